"""Families: the names that Hugging Face gives to our fields and tensors. Add a file and its row in FAMILIES.

base.py        the types of a row, and the parts that several families share
albert.py      ALBERT
bert.py        BERT
big_bird.py    BigBird
deberta.py     DeBERTa, version 3
distilbert.py  DistilBERT
electra.py     ELECTRA's generator and discriminator
longformer.py  Longformer
mobilebert.py  MobileBERT
modernbert.py  ModernBERT
mpnet.py       MPNet
nomic_bert.py  NomicBERT
research.py    architectures that transformers does not have, in directories that bert_jax alone reads
roberta.py     RoBERTa, XLM-RoBERTa, CamemBERT
"""

from bert_jax.interop.families.albert import albert
from bert_jax.interop.families.base import (
    ACTIVATIONS,
    INDIFFERENT,
    LABELS,
    LEAVES,
    VOCABULARY,
    Family,
    Field,
    ModelClass,
    Module,
    Spelling,
)
from bert_jax.interop.families.bert import bert
from bert_jax.interop.families.big_bird import big_bird
from bert_jax.interop.families.deberta import deberta
from bert_jax.interop.families.distilbert import distilbert
from bert_jax.interop.families.electra import electra
from bert_jax.interop.families.longformer import longformer
from bert_jax.interop.families.mobilebert import mobilebert
from bert_jax.interop.families.modernbert import modernbert
from bert_jax.interop.families.mpnet import mpnet
from bert_jax.interop.families.nomic_bert import nomic_bert
from bert_jax.interop.families.research import research
from bert_jax.interop.families.roberta import roberta

__all__ = [
    "ACTIVATIONS",
    "FAMILIES",
    "INDIFFERENT",
    "LABELS",
    "LEAVES",
    "VOCABULARY",
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
