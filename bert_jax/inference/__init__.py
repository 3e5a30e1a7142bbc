"""Model directories at work: opened whoever wrote them, then used.

load.py          any model directory -> weights, heads and tokenizer; a new kind of directory is read in `read_weights`
loaded_model.py  the model of the Python API: encode, fill_mask, predict, score
inputs.py        the one reader of inputs: text lines, JSON lines, standard input
batching.py      inputs of any length -> batches by bucket -> the outputs of each input
embed.py         texts -> vectors: add a pooling to POOLINGS, a choice of layers to LAYERS
feature_files.py files of vectors, filled in any order
fill_mask.py     masks -> likeliest tokens
predict.py       the predictions of a fine-tuned model
scoring/         minimal pairs, pseudo-perplexity and bias by the log-probabilities of masked tokens

A new use of a model is one file with a function of `OpenModel` and inputs, and a method of `LoadedModel`.
"""
