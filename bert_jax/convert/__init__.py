"""Conversion of a model directory to another directory: export, compress, prune, change the vocabulary.

export.py      a model in the formats of other programs; add a row to FORMATS for a format
compress.py    a smaller model, with its size, time and score; add a row to METHODS for a method
prune.py       removal of heads, MLP features and layers by importance; add a row to TARGETS for a kind of part
eval_sets.py   the data and the score for a compressed model
vocabulary.py  a model with another vocabulary
"""
