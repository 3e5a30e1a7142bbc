"""Any model directory -> config, parameters, tokenizer; and the check of a directory against its digests.

load_model.py        Open any model directory
longer_positions.py  Weights of a model of short sequences for training on longer ones
verify.py            `bert-jax verify`
"""
