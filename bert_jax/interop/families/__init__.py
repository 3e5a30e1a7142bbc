"""The names of `transformers` for the parts of each family, as data: fields of `config.json`, classes, tensors.

A family is a row of `FAMILIES`, keyed by its `model_type`. The names are those of its modeling and configuration files
in transformers 5, and of the files published since 2018 that it still reads.

base.py        the types of a row, and what several families share
absolute/ relative/    a family a file, by how its tokens know their order: add a file and its row
research.py    what transformers does not have, in directories that bert_jax alone reads
"""

from bert_jax.interop.families.absolute.albert import albert
from bert_jax.interop.families.absolute.bert import bert
from bert_jax.interop.families.absolute.big_bird import big_bird
from bert_jax.interop.families.absolute.distilbert import distilbert
from bert_jax.interop.families.absolute.electra import electra
from bert_jax.interop.families.absolute.longformer import longformer
from bert_jax.interop.families.absolute.mobilebert import mobilebert
from bert_jax.interop.families.absolute.roberta import roberta
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
from bert_jax.interop.families.relative.deberta import deberta
from bert_jax.interop.families.relative.modernbert import modernbert
from bert_jax.interop.families.relative.mpnet import mpnet
from bert_jax.interop.families.relative.nomic_bert import nomic_bert
from bert_jax.interop.families.research import research

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
    "longformer": longformer(),
    "big_bird": big_bird(),
    "albert": albert(),
    "distilbert": distilbert(),
    "electra": electra(),
    "mobilebert": mobilebert(),
    "modernbert": modernbert(),
    "mpnet": mpnet(),
    "deberta-v2": deberta(),
    "nomic_bert": nomic_bert(),
    "research": research(),
}
