"""Kinds of tasks, each in a file; a new kind needs a file and a row in KINDS.

answer_search.py              search for the best answers by the start and end logits of windows
answer_windows.py             windows over contexts as features, with the tokens at which the answer begins and ends
kind.py                       the type `TaskKind`, which holds everything in which kinds differ, and the function
                              `make_features`
multilabel_classification.py  any number of labels for a text or a pair of texts
multilabel_score.py           F1 of sets of labels, and the threshold with the best F1
multiple_choice.py            the right continuation of a text among several continuations
prompt_classification.py      a label for a text or a pair of texts, predicted as the word at the mask of a template
question_answering.py         a span of a context as the answer to a question
records.py                    checks of the values of a record, shared by the kinds
regression.py                 a number for a text or a pair of texts
reranking.py                  the scores of documents for a query, by a model that reads both together
sequence_classification.py    a label for a text or a pair of texts
similarity.py                 the similarity of two texts, computed from one vector for each text
squad_score.py                exact match and F1 of SQuAD, and the best threshold for no answer
texts.py                      features of texts and pairs of texts, and predictions of a class for each example
token_classification.py       a label for each word of a sentence
"""

from bert_jax.tasks.kinds.kind import TaskKind
from bert_jax.tasks.kinds.multilabel_classification import MULTILABEL_CLASSIFICATION
from bert_jax.tasks.kinds.multiple_choice import MULTIPLE_CHOICE
from bert_jax.tasks.kinds.prompt_classification import PROMPT_CLASSIFICATION
from bert_jax.tasks.kinds.question_answering import QUESTION_ANSWERING
from bert_jax.tasks.kinds.regression import REGRESSION
from bert_jax.tasks.kinds.reranking import RERANKING
from bert_jax.tasks.kinds.sequence_classification import SEQUENCE_CLASSIFICATION
from bert_jax.tasks.kinds.similarity import SIMILARITY
from bert_jax.tasks.kinds.token_classification import TOKEN_CLASSIFICATION

# A model without a task.json has the first kind in this order that fits its head.
KINDS: dict[str, TaskKind] = {
    "regression": REGRESSION,
    "sequence_classification": SEQUENCE_CLASSIFICATION,
    "prompt_classification": PROMPT_CLASSIFICATION,
    "multilabel_classification": MULTILABEL_CLASSIFICATION,
    "token_classification": TOKEN_CLASSIFICATION,
    "question_answering": QUESTION_ANSWERING,
    "multiple_choice": MULTIPLE_CHOICE,
    "similarity": SIMILARITY,
    "reranking": RERANKING,
}
