"""What single objectives read, a section each."""

import dataclasses

from bert_jax.config.schema.field import ABOVE_0, ABOVE_0_TO_1, AT_LEAST_0, field


@dataclasses.dataclass(frozen=True)
class ReplacedTokensConfig:
    """The generator beside the encoder, for the objective of that name."""

    generator_size: float = field(
        0.25, "width of the generator's blocks relative to the model's; as many blocks, the same tables", ABOVE_0_TO_1
    )
    generator_from: str | None = field(
        None, "weights of the generator to start from; None: those beside init_from's, otherwise random ones"
    )
    weight: float = field(50.0, "weight of the replaced tokens' loss; that of the generator is 1", ABOVE_0)


@dataclasses.dataclass(frozen=True)
class DistillationConfig:
    """The teacher, and what is learned from it beside the masked tokens, whose weight is 1."""

    teacher: str | None = field(
        None, "directory of the model to learn from, of any family; `compile` also takes a preset such as base"
    )
    temperature: float = field(2.0, "temperature of both softmaxes where probabilities are compared", ABOVE_0)
    soft_weight: float = field(2.5, "weight of the teacher's probabilities; 5 against 2 as published", AT_LEAST_0)
    cosine_weight: float = field(
        0.5,
        "weight of the angle between the last hidden states; 1 against 2 as published; 0: none",
        AT_LEAST_0,
    )
    hidden_weight: float = field(
        0.0,
        "weight of the squared difference of hidden states, layer by layer; of another width through a learned map",
        AT_LEAST_0,
    )
    attention_weight: float = field(
        0.0, "weight of the divergence of each head's attention, layer by layer; needs as many heads", AT_LEAST_0
    )
    copy_layers: bool = field(True, "start from layers of the teacher, evenly spaced; False: random weights")
