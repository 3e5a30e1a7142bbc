"""What single objectives read, a section each."""

import dataclasses

from bert_jax.config.schema.field import ABOVE_0, ABOVE_0_TO_1, field


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
