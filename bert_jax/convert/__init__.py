"""One model directory -> another: export, compress, prune, change the vocabulary.

export.py      a model in the formats of other programs: add a format as a row of FORMATS
compress.py    a smaller model, and its size, time and score: add a method as a row of METHODS
prune.py       heads, MLP features and layers by their importance: TARGETS
eval_sets.py   data and scores that measure a compressed model
vocabulary.py  a model with another vocabulary
"""
