"""Shared by the tests of preparation: a tiny tokenizer, texts of every kind, and the bytes of a corpus."""

import random

from bert_jax.corpus.build import chunks
from bert_jax.readers import pieces
from bert_jax.tokenizer import SPECIAL_TOKENS, Normalizer, save_tokenizer, wordpiece_tokenizer

WORDS = ["the", "##s", "cat", "dog", "sat", "on", "mat", ".", "[", "]", "sep", "t", "##h", "##e"]
UNSEEN = "\u200b\u200b"  # no tokens
TINY = {(chunks, "CHUNK_BYTES"): 3000, (chunks, "CHUNKS_PER_BLOCK"): 2, (chunks, "PARTITION_BYTES"): 20_000}
TINY_PIECES = {(pieces, "MAX_UNSPLIT_BYTES"): 5000, (pieces, "MAX_PIECE_BYTES"): 1000}


def few_words(min_words):
    """A rule of a recipe that removes the documents of fewer words, and no other document."""
    off = ("min_avg_word_length", "max_avg_word_length", "max_non_alpha_words_ratio", "min_stop_words")
    return f"[gopher_quality]\nmin_doc_words = {min_words}\n" + "".join(f"{name} = 0\n" for name in off)


def set_sizes(monkeypatch, sizes):
    for (module, name), size in sizes.items():
        monkeypatch.setattr(module, name, size)


def make_tokenizer(directory):
    save_tokenizer(wordpiece_tokenizer([*SPECIAL_TOKENS, *WORDS], Normalizer()), directory)
    return directory


def text(rng, sentences):
    """Sentences of one to 30 words, some unknown and some that spell a special token."""
    words = ["the", "cats", "Dogs", "sat", "on", "mat", "[SEP]", "zebra", "the"]
    return " ".join(" ".join(rng.choices(words, k=rng.randint(1, 30))).capitalize() + "." for _ in range(sentences))


def make_texts(directory, number, paragraphs=12, sentences=40):
    """Write files of some paragraphs each, and five that are rejected completely or in part."""
    directory.mkdir(exist_ok=True)
    rng = random.Random(0)
    for name in range(number):
        content = "\n\n".join(text(rng, sentences) for _ in range(rng.randint(1, paragraphs)))
        (directory / f"{name:03}.txt").write_text(content)
    (directory / "binary").write_bytes(b"\0\1")
    (directory / "latin").write_bytes(b"caf\xe9")
    (directory / "nothing").write_bytes(b"")
    (directory / "unseen").write_text(UNSEEN)
    (directory / "words").write_text("the cat " * 2000 + "\n\n" + "the dog sat on the mat. " * 3)
    return directory


def contents(directory):
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }
