"""Whole runs: each verb of the command line and each function of the Python API is put together here.

api.py             pretrain, finetune and batches as the Python API has them
pretrain.py        corpus and config -> a work directory
budget/            --budget: a time, tokens or FLOPs -> size, batch and steps of a recipe
corpus_data.py     a corpus as the batches of the loop
evaluate.py        held-out metrics of a pretraining run
finetune.py        weights, task and config -> the best model, scores and predictions; its parts are in finetuning/
requirements.py    the package versions that a run began with
start/             what a pretraining starts from: weights, longer positions, a teacher
vocabulary.py      a model with another vocabulary, whose rows are carried over
compression/       a smaller model, with what it costs
export.py          a model for others to use: add a target format as a function and a row of FORMATS
"""
