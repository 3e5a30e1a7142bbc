"""Kinds of tasks: a kind is one file and one row of `KINDS`.

kind.py                    the type `Kind`: everything in which kinds differ; `make_features`
shared/                    checks of records; texts as features; class predictions
sequence_classification.py a label for a text or a pair of texts
regression.py              a number for a text or a pair of texts
similarity.py              how alike two texts are, by a vector of each
token_classification.py    a label for each word of a sentence
question_answering.py      a span of a context as the answer to a question (built from tasks/answers/)
multiple_choice.py         the right one of several continuations of a text

To add a kind, write one file with one `Kind` value and add a row to `KINDS`. Its head is a row of HEADS in
models/heads/, its loss a row of LOSSES in objectives/task_losses.py, its metrics are rows of METRICS in
tasks/scoring.py. Other files do not name kinds (tests/tasks/test_kinds.py).
"""

from bert_jax.tasks.kinds.kind import Kind
from bert_jax.tasks.kinds.multiple_choice import MULTIPLE_CHOICE
from bert_jax.tasks.kinds.question_answering import QUESTION_ANSWERING
from bert_jax.tasks.kinds.regression import REGRESSION
from bert_jax.tasks.kinds.sequence_classification import SEQUENCE_CLASSIFICATION
from bert_jax.tasks.kinds.similarity import SIMILARITY
from bert_jax.tasks.kinds.token_classification import TOKEN_CLASSIFICATION

# In this order, the first kind that fits a head is the kind of a model without a task.json.
KINDS: dict[str, Kind] = {
    "regression": REGRESSION,
    "sequence_classification": SEQUENCE_CLASSIFICATION,
    "token_classification": TOKEN_CLASSIFICATION,
    "question_answering": QUESTION_ANSWERING,
    "multiple_choice": MULTIPLE_CHOICE,
    "similarity": SIMILARITY,
}
