"""Families: the names that Hugging Face gives to our fields and tensors; to add a family, add a row of FAMILIES.

base.py        the types of a row, and the parts that several families share
albert.py      ALBERT
bert.py        BERT
big_bird.py    BigBird
deberta.py     DeBERTa, version 3
distilbert.py  DistilBERT
electra.py     ELECTRA's generator and discriminator
longformer.py  Longformer
mobilebert.py  MobileBERT
modernbert.py  ModernBERT, and its decoder
mpnet.py       MPNet
nomic_bert.py  NomicBERT
research.py    architectures that transformers does not have, in directories that only bert_jax can read
roberta.py     RoBERTa, XLM-RoBERTa, CamemBERT
"""

from bert_jax.interop.families.albert import albert_family
from bert_jax.interop.families.base import (
    ACTIVATIONS,
    INDIFFERENT,
    LABELS,
    LEAVES,
    VOCABULARY,
    Family,
    Field,
    ModelClass,
    NamedModule,
    Spelling,
)
from bert_jax.interop.families.bert import bert_family
from bert_jax.interop.families.big_bird import big_bird_family
from bert_jax.interop.families.deberta import deberta_family
from bert_jax.interop.families.distilbert import distilbert_family
from bert_jax.interop.families.electra import electra_family
from bert_jax.interop.families.longformer import longformer_family
from bert_jax.interop.families.mobilebert import mobilebert_family
from bert_jax.interop.families.modernbert import modernbert_decoder_family, modernbert_family
from bert_jax.interop.families.mpnet import mpnet_family
from bert_jax.interop.families.nomic_bert import nomic_bert_family
from bert_jax.interop.families.research import research_family
from bert_jax.interop.families.roberta import roberta_family

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
    "NamedModule",
    "Spelling",
]

FAMILIES: dict[str, Family] = {
    "bert": bert_family(),
    "roberta": roberta_family("Roberta", 50265),
    "xlm-roberta": roberta_family("XLMRoberta", 30522),
    "camembert": roberta_family("Camembert", 30522),
    "longformer": longformer_family(),
    "big_bird": big_bird_family(),
    "albert": albert_family(),
    "distilbert": distilbert_family(),
    "electra": electra_family(),
    "mobilebert": mobilebert_family(),
    "modernbert": modernbert_family(),
    "modernbert-decoder": modernbert_decoder_family(),
    "mpnet": mpnet_family(),
    "deberta-v2": deberta_family(),
    "nomic_bert": nomic_bert_family(),
    "research": research_family(),
}
