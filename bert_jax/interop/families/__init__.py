"""Families: the names that Hugging Face gives to our fields and tensors. Add a file and its row in FAMILIES.

albert.py      ALBERT (Lan et al
base.py        the types of a row, and what several families share
bert.py        BERT (Devlin et al
big_bird.py    BigBird (Zaheer et al
deberta.py     DeBERTa, version 3 (He et al
distilbert.py  DistilBERT (Sanh et al
electra.py     ELECTRA's generator and discriminator (Clark et al
longformer.py  Longformer (Beltagy et al
mobilebert.py  MobileBERT (Sun et al
modernbert.py  ModernBERT (Warner et al
mpnet.py       MPNet (Song et al
nomic_bert.py  NomicBERT (Nussbaum et al
research.py    what transformers does not have, in directories that bert_jax alone reads
roberta.py     RoBERTa (Liu et al
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
