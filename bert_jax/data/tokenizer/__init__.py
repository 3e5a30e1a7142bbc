"""Text <-> token ids: tokenizers of every kind, read from a directory, trained on text, and saved for `AutoTokenizer`.

load.py           a directory or vocabulary file -> a `Tokenizer`; lists every file it reads, in order
tokenizer.py      the class `Tokenizer`, and how one is built from a definition
save.py           a `Tokenizer` -> the directory that transformers opens
tokenizer_json.py the definition: the content of a `tokenizer.json` as plain data
characters.py     tokens that begin within a character
changes.py        characters that a normalizer changes, by kind of change: to add a kind, add a row of KINDS
bounds.py         what a definition from outside may do to a text
kinds/            WordPiece, BPE, SentencePiece ...: to add a kind, add a file and a row of `kinds.table.TOKENIZERS`
pair_merging.py   vocabularies made by merging pairs, which several kinds share
training/         the text to train on, and what the finished vocabulary makes of it
"""

from bert_jax.data.tokenizer.kinds.bert_words import Normalizer
from bert_jax.data.tokenizer.kinds.table import TOKENIZERS
from bert_jax.data.tokenizer.load import load_tokenizer
from bert_jax.data.tokenizer.pair_merging import cut_text
from bert_jax.data.tokenizer.save import copy_tokenizer, save_tokenizer, tokenizer_files
from bert_jax.data.tokenizer.tokenizer import (
    SPECIAL_TOKENS,
    EncodedText,
    Tokenizer,
    build_tokenizer,
    wordpiece_tokenizer,
)

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
