"""Inference with a model directory: embed, fill masks, predict.

embed.py          texts -> vectors: add a pooling to POOLINGS, a choice of layers to LAYERS
feature_files.py  files of vectors, written in any order
fill_mask.py      masks -> likeliest tokens
inputs.py         text lines, JSON lines, standard input -> inputs; a broken line is refused
outputs.py        a model over inputs of any length -> the outputs of each input
predict.py        the predictions of a fine-tuned model
"""
