"""Text <-> token ids: tokenizers of five kinds, trained on text, read from a directory, saved for `AutoTokenizer`.

bert_words.py       How BERT cleans text and splits it into words, which `wordpiece` and `bpe` share
bounds.py           what a definition from outside may do to a text
bpe.py              BPE over characters
byte_level.py       Byte-level BPE as in RoBERTa
changes.py          characters that a normalizer changes, by kind of change: to add a kind, add a row of KINDS
kinds.py            The table of tokenizer kinds
load.py             a directory or vocabulary file -> a `Tokenizer`; lists every file it reads, in order
pair_merging.py     vocabularies made by merging pairs, which several kinds share
save.py             a `Tokenizer` -> the directory that transformers opens
sentencepiece.py    SentencePiece models, unigram and BPE
tokenizer.py        the class `Tokenizer`, and how one is built from a definition
tokenizer_json.py   the definition: the content of a `tokenizer.json` as plain data
train.py            Training a tokenizer on the files of one or several sources
training_report.py  The report on a trained vocabulary
training_sample.py  How much of each source a vocabulary is trained on, and which part
wordpiece.py        WordPiece as in BERT, DistilBERT and ELECTRA
"""

from bert_jax.tokenizer.bert_words import Normalizer
from bert_jax.tokenizer.kinds import TOKENIZERS
from bert_jax.tokenizer.load import load_tokenizer
from bert_jax.tokenizer.pair_merging import cut_text
from bert_jax.tokenizer.save import copy_tokenizer, save_tokenizer, tokenizer_files
from bert_jax.tokenizer.tokenizer import SPECIAL_TOKENS, EncodedText, Tokenizer, build_tokenizer, wordpiece_tokenizer

__all__ = [
    "SPECIAL_TOKENS",
    "TOKENIZERS",
    "EncodedText",
    "Normalizer",
    "Tokenizer",
    "build_tokenizer",
    "copy_tokenizer",
    "cut_text",
    "load_tokenizer",
    "save_tokenizer",
    "tokenizer_files",
    "wordpiece_tokenizer",
]
