"""The command line, `bert-jax VERB`. Each verb is a function that imports heavy modules itself.

command.py       The parts that verbs share: their description and options, the console, the output file
completion.py    The verb that prints scripts for the completion of a shell
config_text.py   Output of `config`
conversion.py    Verbs that make one model directory out of another
data.py          Verbs that make and show corpora
main.py          VERBS, the table of verbs; to add a verb, write its Verb next to its function, and add a row
models.py        Verbs that use a model
parser.py        Parser of the command line, and errors for words that belong to no option
results_text.py  Scores as tables, and commands that use the model
runs.py          Verbs about a run
scores.py        Verbs that measure a model
training.py      Verbs that train, print a recipe, or estimate the memory and time of a run
vectors.py       Verbs that make training data of sentence vectors
"""
