"""Models that a run trains beside the one of `config.model`."""

from collections.abc import Callable
from typing import Any, NamedTuple

from bert_jax.config import EncoderConfig
from bert_jax.models import Head, Params


class Part(NamedTuple):
    """A model whose parameters are in those of the run, such as ELECTRA's generator.

    own(tree of the model) -> what the run's tree has under the part's name
    whole(tree of the run) -> the tree of the model
    init_from: a directory of weights to start from; None: those beside the run's own start, otherwise random ones
    """

    config: EncoderConfig
    heads: tuple[Head, ...]
    own: Callable[[Any], Any]
    whole: Callable[[Params], Params]
    init_from: str | None
