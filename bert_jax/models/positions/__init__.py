"""Position schemes: how a model knows the order of its tokens. Add a file with the functions and a row in table.py.

scheme.py    PositionScheme, the parts that a row may have
table.py     POSITIONS, keyed by `model.positions`
learned.py   a table of embeddings
rotary.py    rotation of queries and keys
relative.py  a learned bias of the scores by distance
patterns.py  which positions attention reads in long sequences: windows, global tokens, blocks
disentangled.py    embeddings of distances, which queries and keys read
"""

from bert_jax.models.positions.learned import restarting_positions
from bert_jax.models.positions.scheme import Distances, PositionScheme
from bert_jax.models.positions.table import POSITIONS

__all__ = ["POSITIONS", "Distances", "PositionScheme", "restarting_positions"]
