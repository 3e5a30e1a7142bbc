"""Inference with a model directory: embed, fill masks, predict.

cross_encoder.py  the scores of pairs of texts by a model with a classification head
embed.py          from texts to vectors; add a pooling to POOLINGS, or a choice of layers to LAYERS
feature_files.py  files of vectors, written in any order
fill_mask.py      the likeliest tokens for each mask
inputs.py         inputs from text lines, JSON lines or standard input; a broken line is an error
outputs.py        the outputs of a model for inputs of any length
predict.py        the predictions of a fine-tuned model
row_limits.py     the rows of sequences that a model can read, and their cost
vectors.py        vectors of texts in memory
words.py          the words of texts, for models that label words
"""
