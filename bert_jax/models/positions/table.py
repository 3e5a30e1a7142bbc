"""The table of position schemes."""

from bert_jax.models.positions.disentangled import distances
from bert_jax.models.positions.learned import learned
from bert_jax.models.positions.relative import relative_bias
from bert_jax.models.positions.rotary import angles, rotate
from bert_jax.models.positions.scheme import PositionScheme

POSITIONS: dict[str, PositionScheme] = {
    "learned": PositionScheme(embed=learned),
    "rotary": PositionScheme(rotate=rotate, angles=angles),
    "relative": PositionScheme(bias=relative_bias),
    "disentangled": PositionScheme(distances=distances),
    "learned_relative": PositionScheme(embed=learned, bias=relative_bias),
}
