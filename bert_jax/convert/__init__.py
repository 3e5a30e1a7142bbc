"""Conversion of a model directory to another directory: export, compress, prune, change the vocabulary.

export.py            a model in the formats of other programs; add a row to FORMATS for a format
program.py           directory of an exported program: program, expected outputs, README.md
export_readme.py     README.md of a program, with Python code for each runtime and each kind of answer
expected_outputs.py  a batch with the outputs of bert_jax, the reference for other runtimes
runtimes.py          the programs that run an export; add a row to RUNTIMES for a runtime
latency.py           latency of an export on one core
verify_run.py        `verify --run`: an export in every installed runtime
compress.py          a smaller model, with its size, time and score; add a row to METHODS for a method
prune.py             removal of heads, MLP features and layers by importance; add a row to TARGETS for a kind of part
eval_sets.py         the data and the score for a compressed model
vocabulary.py        a model with another vocabulary
"""
