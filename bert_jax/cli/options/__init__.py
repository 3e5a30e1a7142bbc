"""Help and options of each verb.

command.py   Command: help and options of one verb; options that several verbs share
data.py      tokenizer, prepare, inspect
training.py  config, compile, pretrain, finetune
models.py    verbs that use a run or a model
"""
