"""Conversion of a model directory to another directory: export, compress, prune, change the vocabulary.

export.py            a model in the formats of other programs; to add a format, add a row to FORMATS
program.py           directory of an exported program: program, expected outputs, README.md
export_readme.py     README.md of a program, with Python code for each runtime and each kind of answer
expected_outputs.py  a batch with the outputs of bert_jax, the reference for other runtimes
runtimes.py          the programs that run an export; to add a runtime, add a row to RUNTIMES
latency.py           latency of an export on one core
verify_run.py        `verify --run`: an export in every installed runtime
compress.py          a smaller model, with its size, time and score; to add a method, add a row to METHODS
prune.py             removal of unimportant heads, MLP features and layers; to add a kind of part, add a row to TARGETS
eval_sets.py         the held-out data and the score that measure a compressed model
vocabulary.py        a model with another vocabulary
"""
