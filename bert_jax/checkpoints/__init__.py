"""Any model directory -> config, parameters, tokenizer; and the check of a directory against its digests.

load_model.py        open any model directory
longer_positions.py  weights of a model of short sequences for training on longer ones
verify.py            `bert-jax verify`: every byte of a directory against its digests
"""
