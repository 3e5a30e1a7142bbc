"""Several corpora as one: which they are, what is refused, and rows in the shares that were asked for."""

import numpy as np
import pytest

from bert_jax.config import DataConfig
from bert_jax.data.corpus import open_corpus
from bert_jax.data.mixture import find_corpora, open_mixture
from bert_jax.data.preparation.prepare import prepare
from bert_jax.data.sequences.pipeline import make_rows, symbols_of
from bert_jax.data.sources import ReadOptions
from bert_jax.data.tokenizer import Normalizer, load_tokenizer, save_tokenizer, wordpiece_tokenizer
from bert_jax.errors import UserError

READING = ReadOptions(documents="line")
WORDS = ["ein", "zwei", "one", "two", "hana", "dul"]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Three languages of two words each, of 400, 100 and 25 documents."""
    place = tmp_path_factory.mktemp("corpora")
    save_tokenizer(
        wordpiece_tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS], Normalizer()), place / "tok"
    )
    rng = np.random.default_rng(0)
    for number, (code, documents) in enumerate((("de", 400), ("en", 100), ("ko", 25))):
        lines = [
            ". ".join(" ".join(rng.choice(WORDS[2 * number : 2 * number + 2], 12)) for _ in range(6)) + "."
            for _ in range(documents)
        ]
        (place / f"{code}.txt").write_text("\n".join(lines))
        prepare(
            [str(place / f"{code}.txt")], place / "tok", place / "c" / code, READING, workers=1, heldout_fraction=0.1
        )
    return place / "c"


def rows_of(place: str, config: DataConfig):
    mixture = open_mixture(place)
    symbols = symbols_of(load_tokenizer(mixture.tokenizer_directory))
    return mixture, make_rows(mixture.split("train"), symbols, 32, 0, config)


def languages(batch) -> np.ndarray:
    """The language of each row, by its first words; every row must be of one."""
    ids = batch["input_ids"].copy()
    line, prediction = np.nonzero(batch["masked_weights"])
    ids[line, batch["masked_positions"][line, prediction]] = batch["masked_labels"][line, prediction]
    found = np.where(ids >= 6, (ids - 6) // 2, -1)
    found = np.where(batch["attention_mask"] == 1, found, -1)
    highest, lowest = found.max(axis=1), np.where(found < 0, 9, found).min(axis=1)
    assert np.array_equal(highest, lowest)
    return highest


@pytest.mark.parametrize("config", [DataConfig(), DataConfig(smoothing=0.3), DataConfig(weights=(1.0, 1.0, 2.0))])
def test_rows_of_each_language_in_its_share(corpora, config):
    mixture, rows = rows_of(f"{corpora}/*", config)
    assert [split.num_documents for _, split in mixture.sources()] == [
        open_corpus(corpora / code).split("train").num_documents for code in ("de", "en", "ko")
    ]
    sizes = np.array([rows_of(str(corpora / code), DataConfig())[1].per_epoch for code in ("de", "en", "ko")])
    wanted = np.array(config.weights) if config.weights else sizes**config.smoothing
    expected = np.rint(wanted / wanted.sum() * sizes.sum())
    counts = np.bincount(languages(rows.batch(np.arange(rows.per_epoch))), minlength=3)
    assert counts.tolist() == expected.tolist() == rows.per_source.tolist()


def test_one_corpus_alone_is_itself(corpora):
    mixture, rows = rows_of(str(corpora / "de"), DataConfig())
    alone = open_corpus(corpora / "de")
    assert mixture.fingerprint == alone.fingerprint
    symbols = symbols_of(load_tokenizer(alone.tokenizer_directory))
    expected = make_rows(alone.split("train"), symbols, 32, 0, DataConfig()).batch(np.arange(50))
    assert all(np.array_equal(expected[key], array) for key, array in rows.batch(np.arange(50)).items())


def test_the_order_of_corpora_is_part_of_the_fingerprint(corpora):
    one, other = (
        open_mixture(",".join(str(corpora / code) for code in codes)) for codes in (("de", "en"), ("en", "de"))
    )
    assert one.fingerprint != other.fingerprint


def test_heldout_leaves_out_sources_with_too_few_documents(corpora):
    mixture = open_mixture(f"{corpora}/*")
    each = [open_corpus(corpora / code).split("heldout").num_documents for code in ("de", "en", "ko")]
    for least in (0, 2, 5, 10**6):
        enough = [number for number in each if number >= least] or each[:1]
        assert mixture.split("heldout", least).num_documents == sum(enough)


def test_what_is_refused(corpora, tmp_path, monkeypatch):
    (tmp_path / "a,b").mkdir()
    with pytest.raises(UserError, match="no directory matches"):
        find_corpora(f"{corpora}/x*")
    for nothing in ("", ",", " , "):
        with pytest.raises(UserError, match="names no corpus"):
            find_corpora(nothing)
    monkeypatch.chdir(tmp_path / "a,b")
    with pytest.raises(UserError, match="a path may have none"):
        find_corpora("de")
    with pytest.raises(UserError, match="named twice"):
        find_corpora(f"{corpora}/*,{corpora}/de")
    save_tokenizer(
        wordpiece_tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], Normalizer()), tmp_path / "tok"
    )
    (tmp_path / "a.txt").write_text("one two. two one.\n" * 9)
    prepare([str(tmp_path / "a.txt")], tmp_path / "tok", tmp_path / "c", READING, workers=1)
    with pytest.raises(UserError, match="different tokenizers"):
        open_mixture(f"{corpora}/de, {tmp_path}/c")


def test_corpora_without_heldout_documents_are_named(corpora):
    mixture = open_mixture(f"{corpora}/*")
    each = {
        str(corpora / code): open_corpus(corpora / code).split("heldout").num_documents for code in ("de", "en", "ko")
    }
    for least in (1, 5, 30):
        assert mixture.left_out("heldout", least) == [name for name, number in each.items() if number < least]
