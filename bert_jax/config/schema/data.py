"""From the prepared corpus to training sequences."""

import dataclasses

from bert_jax.config.schema.field import ABOVE_0_TO_1, AT_LEAST_1, FROM_0_TO_1, field


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """From the prepared corpus to training sequences."""

    corpus: str | None = field(
        None,
        "directory made by `prepare`; several, separated by commas, or a glob pattern, are mixed; DIR@FINGERPRINT is a "
        "snapshot of one that has grown",
    )
    text: str | None = field(None, "inputs of `prepare`, separated by commas, in place of a corpus, for a first trial")
    tokenizer: str | None = field(None, "directory of the tokenizer of `text`; None: a WordPiece trained on it")
    snapshots: int | None = field(None, "snapshots to read in turn; None: 1, or more of a long `text`", AT_LEAST_1)
    weights: tuple[float, ...] | None = field(
        None, "sampling weight per corpus of a mixture; None: proportional to size, smoothed"
    )
    smoothing: float = field(
        1.0, "exponent of the sizes: 1 as they are, 0.7 as multilingual BERT, 0 all equal", FROM_0_TO_1
    )
    max_epochs: int | None = field(
        None, "maximum times that an epoch of a mixture reads each of its corpora; None: no limit", AT_LEAST_1
    )
    sentence_pairs: str = field(
        "next_sentence",
        "how a sequence is built from sentences",
        table="bert_jax.data.sequences.sentence_pairs.SENTENCE_PAIRS",
    )
    packing: int = field(1, "maximum number of examples packed into one sequence; 1: no packing", AT_LEAST_1)
    short_seq_probability: float = field(0.1, "fraction of pairs whose target length is drawn at random", FROM_0_TO_1)
    masking: str = field("token", "unit that is masked", table="bert_jax.data.sequences.masking.MASKINGS")
    mask_probability: float = field(
        0.15, "fraction of the tokens of a sequence to predict; evaluation has 15 %, 80-10-10", ABOVE_0_TO_1
    )
    mask_token_fraction: float = field(0.8, "fraction of the predicted tokens replaced by [MASK]", FROM_0_TO_1)
    random_token_fraction: float = field(
        0.1, "fraction of the predicted tokens replaced by a random token; the rest stay", FROM_0_TO_1
    )
    max_span_length: int | None = field(
        None, "maximum number of words masked together; None: as published, 3 for ngram, 10 for span", AT_LEAST_1
    )
    span_end_probability: float = field(0.2, "probability that a span ends after each of its words", ABOVE_0_TO_1)
    dupe_factor: int | None = field(
        None, "epochs after which the same sequences return, 10 in the original; None: never", AT_LEAST_1
    )
    num_threads: int = field(2, "threads that build batches", AT_LEAST_1)
    prefetch: int = field(4, "batches built ahead of the step", AT_LEAST_1)
