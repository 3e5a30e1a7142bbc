"""Config, parameters and tokenizer of any model directory, and the check of a directory against its digests.

architecture.py      reads the architecture of a model without the weights, for `--config.model=from_init`
growth.py            makes the weights of a smaller model the initial weights of a larger model
load_model.py        opens any model directory
longer_positions.py  extends the positions of a model for training on longer sequences
unused_rows.py       removes the rows of a vocabulary that no token of the tokenizer uses
verify.py            `bert-jax verify`: every byte of a directory against its digests
"""
