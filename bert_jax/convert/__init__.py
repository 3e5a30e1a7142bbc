"""One model directory -> another: export, compress, prune, change the vocabulary.

export.py      a model in the formats of other programs: add one as a row of FORMATS
compress.py    a smaller model, and its size, time and score: add a method as a row of METHODS
prune.py       heads, MLP features and layers by their importance: TARGETS
eval_sets.py   the data to measure a compressed model on
vocabulary.py  a model with another vocabulary
"""
