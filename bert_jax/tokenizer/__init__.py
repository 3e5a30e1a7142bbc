"""Tokenizers of five kinds: they are trained on text, read from a directory, and saved for `AutoTokenizer`.

A directory becomes a `Tokenizer` in six steps. `load.py` reads the files, `classes.py` has the rules of the class that
the directory names, `tokenizer_json.py` completes the definition, and `kinds.py` finds its kind. `bounds.py` refuses
unsafe definitions, and `tokenizer.py` builds the `Tokenizer`, which encodes texts.

bounds.py           limits on a definition that others wrote: encoding always ends, and never makes a text much longer
byte_level.py       byte-level BPE as in RoBERTa
changes.py          counts of the characters that a normalizer changes; add a row to KINDS for a kind of change
classes.py          CLASSES: the classes of transformers that a directory names, with their files and settings
kinds.py            TOKENIZERS: how each kind is trained and used
load.py             a directory or vocabulary file -> a `Tokenizer`; lists every file it reads, in order
pair_merging.py     training by merging pairs, which several kinds share, and the types of its input and output
save.py             a `Tokenizer` -> the directory that transformers opens
sentencepiece.py    SentencePiece models, unigram and BPE
tokenizer.py        the class `Tokenizer`, and its construction from a definition
tokenizer_json.py   the definition: the content of a `tokenizer.json` as plain data
train.py            files of one or several sources -> a trained tokenizer
training_report.py  how a trained vocabulary encodes each source, and warnings
training_sample.py  choice of the text of each source on which a vocabulary is trained
wordpiece.py        WordPiece and BPE, which split BERT's words into pieces
"""

from bert_jax.tokenizer.kinds import TOKENIZERS
from bert_jax.tokenizer.load import load_tokenizer
from bert_jax.tokenizer.pair_merging import cut_text
from bert_jax.tokenizer.save import copy_tokenizer, save_tokenizer, tokenizer_files
from bert_jax.tokenizer.tokenizer import SPECIAL_TOKENS, EncodedText, Tokenizer, build_tokenizer, wordpiece_tokenizer
from bert_jax.tokenizer.wordpiece import Normalizer

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
