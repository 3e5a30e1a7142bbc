"""Config, parameters and tokenizer of any model directory; and the check of a directory against its digests.

architecture.py      the architecture of a model directory alone, and `--config.model=from_init`
load_model.py        open any model directory
longer_positions.py  weights of a model of short sequences for training on longer sequences
verify.py            `bert-jax verify`: every byte of a directory against its digests
"""
