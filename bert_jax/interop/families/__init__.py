"""The names of `transformers` for the parts of each family, as data: fields of `config.json`, classes, tensors.

A family is a row of `FAMILIES`, keyed by its `model_type`. The names are those of its modeling and configuration files
in transformers 5, and of the files published since 2018 that it still reads.

base.py        the types of a row, and what several families share
bert.py roberta.py albert.py distilbert.py electra.py modernbert.py mpnet.py deberta.py    add a file and its row
research.py    what transformers does not have, in directories that bert_jax alone reads
"""

from bert_jax.interop.families.albert import albert
from bert_jax.interop.families.base import (
    ACTIVATIONS,
    INDIFFERENT,
    LABELS,
    LEAVES,
    Family,
    Field,
    ModelClass,
    Module,
    Spelling,
)
from bert_jax.interop.families.bert import bert
from bert_jax.interop.families.deberta import deberta
from bert_jax.interop.families.distilbert import distilbert
from bert_jax.interop.families.electra import electra
from bert_jax.interop.families.modernbert import modernbert
from bert_jax.interop.families.mpnet import mpnet
from bert_jax.interop.families.research import research
from bert_jax.interop.families.roberta import roberta

__all__ = [
    "ACTIVATIONS",
    "FAMILIES",
    "INDIFFERENT",
    "LABELS",
    "LEAVES",
    "Family",
    "Field",
    "ModelClass",
    "Module",
    "Spelling",
]

FAMILIES: dict[str, Family] = {
    "bert": bert(),
    "roberta": roberta("Roberta", 50265),
    "xlm-roberta": roberta("XLMRoberta", 30522),
    "camembert": roberta("Camembert", 30522),
    "albert": albert(),
    "distilbert": distilbert(),
    "electra": electra(),
    "modernbert": modernbert(),
    "mpnet": mpnet(),
    "deberta-v2": deberta(),
    "research": research(),
}
