"""Heads on the encoder, those of pretraining and of the tasks.

table.py    what heads read, and the heads: add a function and its row in HEADS
global_tokens.py  the tokens that a head makes global: add a function and its row in GLOBAL_TOKENS
bilstm.py   two recurrent layers below the heads of tasks
answers.py  the head of question answering with an MLP of its own (BigBird)
pooling.py  from tokens to one vector: add a function and its row in POOLINGS
linear.py   the two linear maps of heads, and a table of a head's own
network.py  the encoder with heads
"""

from bert_jax.models.heads.network import Network
from bert_jax.models.heads.table import HEADS, Head

__all__ = ["HEADS", "Head", "Network"]
