"""The command line, `bert-jax VERB`. Each verb is a function beside its options; heavy imports stand inside the verbs.

command.py       Help and options of one verb, and the options that several verbs share
config_text.py   what `config` prints
conversion.py    Verbs that make one model directory out of another
data.py          Verbs that make and show corpora
main.py          VERBS, the table of verbs: add a row, and its Verb beside its function
models.py        Verbs that use a model
outputs.py       Console and output file of a verb
parser.py        the parser, and errors for words that belong to no option
results_text.py  scores as tables, and the commands that come next
runs.py          Verbs about a run
scores.py        Verbs that measure a model
training.py      Verbs that train, and what they would train
"""
