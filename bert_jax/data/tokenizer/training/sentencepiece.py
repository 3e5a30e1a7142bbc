"""Vocabularies made from text by the library `sentencepiece`: unigram (Kudo 2018) and BPE.

Text is mapped by the library's own table (NFKC with clean-up, folded where uncased) and by nothing else, so the
`spiece.model` that is saved says all there is to say.
"""

import importlib
import io
import re
from collections.abc import Callable, Iterator
from typing import Any

from bert_jax.data.tokenizer import sentencepiece_model
from bert_jax.data.tokenizer.sentencepiece_model import OWN, SPACE, SPECIAL
from bert_jax.data.tokenizer.training.algorithms import (
    Text,
    Trained,
    alphabet,
    check_characters,
    check_filled,
    cut_text,
    too_small,
)
from bert_jax.errors import UserError

FILE = "spiece.model"
MAX_LINE = 1024  # characters of at most 4 bytes; the library drops lines above MAX_BYTES without an error
MAX_BYTES = 4192
RESERVED = "▅"  # the library's own mark of an unknown character; it drops lines that hold one
THREADS = 16  # how the work is parted, which decides the last bits of the scores; not the number of cores


def train_unigram(text: Text, vocab_size: int, lowercase: bool) -> Trained:
    """A unigram vocabulary of exactly `vocab_size` pieces, special tokens included. The text is held in memory.

    Raises:
        UserError: no text, a size that the text cannot fill or that its characters alone overflow, or the library is
            not there.
    """
    return _train("unigram", text, vocab_size, lowercase)


def train_sentencepiece_bpe(text: Text, vocab_size: int, lowercase: bool) -> Trained:
    """As `train_unigram`, but a BPE vocabulary."""
    return _train("bpe", text, vocab_size, lowercase)


def _train(model_type: str, text: Text, vocab_size: int, lowercase: bool) -> Trained:
    library = _library()
    rule = "nmt_nfkc_cf" if lowercase else "nmt_nfkc"
    check_characters(text)
    rare = _rare(text, library.SentencePieceNormalizer(rule_name=rule).normalize)
    written = io.BytesIO()
    try:
        library.SentencePieceTrainer.train(
            sentence_iterator=iter(sorted(_lines(text, rare))),  # so that the order of files changes nothing
            model_writer=written,
            model_type=model_type,
            vocab_size=vocab_size,
            hard_vocab_limit=False,  # what cannot be filled is refused below, with the size that can
            normalization_rule_name=rule,
            character_coverage=1.0,  # of what is left of the characters
            max_sentence_length=MAX_BYTES,
            num_threads=THREADS,
            minloglevel=2,
            pad_id=0,
            unk_id=1,
            bos_id=2,
            eos_id=3,
            pad_piece=SPECIAL.pad,
            unk_piece=SPECIAL.unk,
            bos_piece=SPECIAL.cls,
            eos_piece=SPECIAL.sep,
            control_symbols=[SPECIAL.mask],
        )
    except RuntimeError as error:
        least = re.search(r"smaller than required_chars. \d+ vs (\d+)", str(error))
        if least:
            raise too_small(vocab_size, int(least[1])) from None
        raise UserError(f"sentencepiece cannot make a vocabulary of it: {error}") from None
    model = sentencepiece_model.parse(written.getvalue())
    check_filled(len(model.pieces), vocab_size)
    model.normalizer_spec.name = OWN + rule
    definition = sentencepiece_model.define(model, sentencepiece_model.folding(rule))
    return Trained(definition, {FILE: model.SerializeToString(deterministic=True)})


def _rare(text: Text, normalize: Callable[[str], str]) -> dict[int, str]:
    """The characters that the vocabulary shall not know, for `str.translate`: to spaces."""
    spaces = str.maketrans(SPACE + RESERVED, "  ")  # the library writes a space before every text, and that as a mark
    normal = {character: normalize(character).translate(spaces) for character in text.characters}
    known = {" ", *alphabet(text.characters, normal.__getitem__)}
    return {ord(character): " " for character in normal if not known.issuperset(normal[character])} | {
        ord(RESERVED): " "
    }


def _lines(text: Text, rare: dict[int, str]) -> Iterator[str]:
    """Lines that the library takes, every one."""
    for piece in text.pieces():
        for line in piece.translate(rare).split("\n"):
            yield from (part for part in cut_text(line, MAX_LINE) if part and not part.isspace())


def _library() -> Any:
    try:
        return importlib.import_module("sentencepiece")
    except ImportError:
        raise UserError("this kind of vocabulary needs sentencepiece: pip install 'bert-jax[spm]'") from None
