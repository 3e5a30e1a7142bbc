"""The command line: `bert-jax VERB`. It parses, calls the functions of the rooms below, and prints what they return.

main.py             VERBS, the table of verbs: what each calls. Add a verb as a row, a function and a Command
parser.py           the parser, and errors for words that belong to no option
command.py          Command: help and options of one verb; options that several verbs share
data_options.py     tokenizer, prepare, inspect
training_options.py config, compile, pretrain, finetune
model_options.py    evaluate, plot, report, export, verify, fill-mask, attention, predict, embed, score
config_text.py      what `config` prints
results_text.py     scores as tables, and the commands that come next
"""
