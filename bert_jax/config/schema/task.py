"""The task to fine-tune on."""

import dataclasses

from bert_jax.config.schema.field import ABOVE_0, AT_LEAST_1, FROM_0_BELOW_1, FROM_0_TO_1, field


@dataclasses.dataclass(frozen=True)
class TaskConfig:
    """The task to fine-tune on, its files, and how the best of several trainings is chosen."""

    name: str | None = field(None, "task from bert_jax/tasks/table.py, such as mrpc or squad2, or custom")
    kind: str | None = field(None, "kind of a custom task", table="bert_jax.tasks.kinds.KINDS")
    data: str | None = field(None, "directory of the published files, plain or .gz; or tfds:NAME, tfds:NAME@DATA_DIR")
    train: str | None = field(None, "training file, relative to data or absolute; None: the published name")
    dev: str | None = field(None, "development file; None: the published name")
    test: str | None = field(None, "file to predict at the end; None: the published name")
    columns: str | None = field(None, "columns of a custom task: 'text=sentence1,text_pair=sentence2,label=gold'")
    labels: str | None = field(None, "labels of a custom task: 'no,yes'; None: those of the training file, sorted")
    metric: str | None = field(None, "metric that chooses the best checkpoint; None: the task's own")
    max_seq_len: int = field(128, "maximum tokens per sequence", AT_LEAST_1)
    buckets: tuple[int, ...] | None = field(
        None, "lengths that sequences are padded to, one program each; None: chosen from the data"
    )
    doc_stride: int = field(128, "tokens from one window of a long context to the next", AT_LEAST_1)
    max_query_length: int = field(64, "maximum tokens of a question; longer ones are cut and counted", AT_LEAST_1)
    max_answer_length: int = field(30, "maximum tokens of an answer", AT_LEAST_1)
    skip_unusable_answers: bool = field(
        False, "leave out training questions whose answers are not at their place, and count them; False: refuse them"
    )
    positive_from: float = field(4.0, "similarity: smallest label of a positive pair, in training")
    temperature: float = field(0.05, "similarity: temperature of the cosines", ABOVE_0)
    n_best: int = field(20, "number of answers kept per question", AT_LEAST_1)
    epochs: float = field(3.0, "passes over the training set", ABOVE_0)
    num_seeds: int = field(1, "trainings that differ only in the seed, from config.seed on", AT_LEAST_1)
    learning_rates: tuple[float, ...] | None = field(
        None, "learning rates to try, each with each seed; None: optimizer.peak_learning_rate"
    )
    patience: int | None = field(
        None, "evaluations without a new best after which a training stops early; None: never", AT_LEAST_1
    )
    dropout: float | None = field(
        None, "dropout rate of encoder and head; None: as the weights were trained with", FROM_0_BELOW_1
    )
    teacher: str | None = field(None, "directory of a model fine-tuned on the task, to learn from beside the labels")
    soft_fraction: float = field(0.5, "fraction of the loss that compares with the teacher's outputs", FROM_0_TO_1)
    soft_temperature: float = field(2.0, "temperature of both softmaxes where these are probabilities", ABOVE_0)
    bilstm: bool = field(
        False, "add two bidirectional LSTM layers between encoder and head; needs model.family=research (BERT, table 5)"
    )
    random_weights: bool = field(
        False, "start from random weights, with the architecture and tokenizer of init_from (a baseline)"
    )
