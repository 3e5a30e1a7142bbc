"""Model directories at work: embed, fill masks, predict.

batching.py       inputs of any length -> batches by bucket -> the outputs of each input
embed.py          texts -> vectors: add a pooling to POOLINGS, a choice of layers to LAYERS
feature_files.py  files of vectors, filled in any order
fill_mask.py      masks -> likeliest tokens
inputs.py         the one reader of inputs: text lines, JSON lines, standard input
predict.py        the predictions of a fine-tuned model
"""
