"""The command line: `bert-jax VERB`. It parses, calls the functions of the rooms below, and prints what they return.

main.py             VERBS, the table of verbs: add a row, its function in verbs/ and its Command in options/
parser.py           the parser, and errors for words that belong to no option
options/            help and options of each verb
verbs/              what each verb does
config_text.py      what `config` prints
results_text.py     scores as tables, and the commands that come next
"""
