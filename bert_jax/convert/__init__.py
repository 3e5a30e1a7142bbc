"""One model directory -> another: export, compress, prune, change the vocabulary.

compress.py    the verb: add a method as a row of METHODS
eval_sets.py   What a compressed model is measured on
export.py      Export a model to the formats of other programs, from any directory that holds one
prune.py       heads, MLP features and layers by their importance
runners.py     models as functions of batches: JAX, ONNX, StableHLO; and their times
vocabulary.py  A model with another vocabulary
"""
