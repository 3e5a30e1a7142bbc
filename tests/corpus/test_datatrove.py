"""Cleaning by datatrove's filters: the stored documents equal those of a pipeline of datatrove's own executor."""

import gzip
import itertools
import json
import pathlib
import random
import re
import subprocess
import sys
import tarfile

import pytest
from datatrove.utils.word_tokenizers import load_word_tokenizer

from bert_jax.corpus.build import chunks
from bert_jax.corpus.build.clean import clean_texts
from bert_jax.corpus.build.cleaning.rules import RULES
from bert_jax.corpus.build.cleaning.spacy_words import CachedTokenizer, load_cached_word_tokenizer
from bert_jax.corpus.build.cleaning.verdict import Removed

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAULTS = {
    "repeated lines": lambda text: "\n".join([text[:80]] * 9 + [text]),
    "repeated paragraphs": lambda text: "\n\n".join([text[:200]] * 4 + [text]),
    "repeated words": lambda text: text + " so it goes on and on" * 60,
    "short": lambda text: text[:150],
    "bullets": lambda text: "- " + text.replace(". ", ".\n- "),
    "ellipses": lambda text: text.replace(". ", "...\n"),
    "hash signs": lambda text: text.replace(" ", " # "),
    "numbers": lambda text: re.sub(r"(\w+) (\w+)", r"\1 12", text),
    "program": lambda text: text + "\nif (x) { return; }",
    "placeholder": lambda text: "Lorem ipsum dolor sit amet.\n" + text,
    "notices": lambda text: (
        "Please turn on Javascript now.\n" + text + "\nWe use cookies, see our privacy policy.\n[edit]"
    ),
    "short lines": lambda text: text.replace(" ", "\n"),
    "no sentences": lambda text: text.replace(".", "").replace("!", "").replace("?", ""),
    "long word": lambda text: text + "\n" + "x" * 1200 + " and so on.",
}
STOP_WORDS = {"en": ["the", "of", "and", "to"], "de": ["der", "die", "und", "in"], "ko": ["\uc601\ud654", "\uc774"]}
WORDS_OF = {"en": "en", "de": "de", "ko": "en"}  # the tokenizer for Korean is a package of its own


def sentences_of(samples, language):
    """Sentences of a language, from the samples."""
    if language == "de":
        with gzip.open(samples / "ud" / "de_gsd-ud-dev.conllu.gz", "rt", encoding="utf-8") as file:
            return [line[9:].strip() for line in file if line.startswith("# text = ")]
    if language == "ko":
        with tarfile.open(samples / "nsmc" / "nsmc-raw-slice.tar.gz") as archive:
            films = [json.load(archive.extractfile(member)) for member in archive if member.isfile()]
        return [review["review"] for film in films for review in film]
    with gzip.open(samples / "sentencepiece-texts" / "botchan.txt.gz", "rt", encoding="utf-8") as file:
        return [line.strip() for line in file if len(line) > 40]


def make_documents(sentences, number):
    """Documents of ten to 25 sentences, some in lines, and two of three with a fault."""
    rng = random.Random(0)
    for index in range(number):
        text = rng.choice(["\n", " ", "\n\n"]).join(rng.sample(sentences, rng.randint(10, 25)))
        fault = list(FAULTS.values())[index // 3 % len(FAULTS)]
        yield fault(text) if index % 3 else text


def recipe_of(language):
    return {
        "gopher_repetition": {"language": WORDS_OF[language]},
        "gopher_quality": {
            "language": WORDS_OF[language],
            "stop_words": STOP_WORDS[language],
            "min_avg_word_length": 2,
        },
        "c4_quality": {"language": WORDS_OF[language], "filter_no_terminal_punct": False},
        "fineweb_quality": {"language": WORDS_OF[language], "line_punct_thr": 0.1, "char_duplicates_ratio": 0.1},
    }


def run_datatrove(recipe, source, directory):
    """Return the texts that datatrove's executor stores."""
    directory.mkdir(exist_ok=True)
    (directory / "recipe.json").write_text(json.dumps(recipe))
    program = [sys.executable, "-m", "tests.helpers.datatrove_pipeline"]
    subprocess.run([*program, directory / "recipe.json", source, directory], check=True, cwd=ROOT, capture_output=True)
    return read_texts(directory / "output" / "00000.jsonl")


def read_texts(path):
    return [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").split("\n") if line]


def toml_of(recipe):
    """A recipe in TOML, whose strings, numbers and lists JSON writes as well."""
    tables = (
        [f"[{rule}]", *(f"{name} = {json.dumps(value)}" for name, value in table.items())]
        for rule, table in recipe.items()
    )
    return "\n".join(line for table in tables for line in table) + "\n"


@pytest.mark.parametrize(
    "language", [pytest.param("en", marks=pytest.mark.slow), "de", pytest.param("ko", marks=pytest.mark.slow)]
)
def test_an_interrupted_cleaning_stores_the_documents_of_a_pipeline_of_datatrove(
    samples, tmp_path, language, monkeypatch
):
    documents = list(make_documents(sentences_of(samples, language), 130))
    source, recipe = tmp_path / "source.jsonl", recipe_of(language)
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents), encoding="utf-8")
    (tmp_path / "recipe.toml").write_text(toml_of(recipe), encoding="utf-8")
    expected = run_datatrove(recipe, source, tmp_path)

    monkeypatch.setattr(chunks, "CHUNK_BYTES", 20_000)
    monkeypatch.setattr(chunks, "CHUNKS_PER_BLOCK", 2)
    messages, reports = [], itertools.count()

    def stop_once(*_):
        if next(reports) == 5:
            raise KeyboardInterrupt

    def clean():
        return clean_texts(
            [str(source)],
            tmp_path / "recipe.toml",
            tmp_path / "cleaned.jsonl",
            workers=1,
            progress=stop_once,
            say=messages.append,
            max_rejected_fraction=1.0,
        )

    with pytest.raises(KeyboardInterrupt):
        clean()
    account = clean()
    assert any("resumes after" in line for line in messages)
    stored = read_texts(tmp_path / "cleaned.jsonl")
    assert stored == expected
    assert 8 < len(stored) < 100
    reasons = account["documents"]["rejected"]
    assert len(reasons) >= 6
    assert {reason.partition(": ")[0] for reason in reasons} <= set(recipe)
    assert account["cleaning"]["changed"]["c4_quality"] > 5


@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_cached_words_and_sentences_equal_the_words_and_sentences_of_spacy(samples, language):
    rng = random.Random(0)
    parts = [
        "a",
        "Dr",
        ".",
        "...",
        "!",
        "\u2026",
        "'",
        "\u2019s",
        '"',
        ")",
        " ",
        "  ",
        "\n",
        "\t",
        "\u3002",
        "5km",
        "e.g.",
    ]
    texts = ["".join(rng.choices([*parts, " ", " "], k=rng.randint(1, 30))) for _ in range(200)]
    texts += [" ".join(sentences_of(samples, source)[:40]) for source in STOP_WORDS]
    expected, cached = load_word_tokenizer(language), load_cached_word_tokenizer(language)
    assert isinstance(cached, CachedTokenizer)
    for text in texts:
        assert cached.word_tokenize(text) == expected.word_tokenize(text), text
        line = text.strip()
        assert cached.sent_tokenize(line) == expected.sent_tokenize(line), text


@pytest.mark.parametrize("mark", ["(", "!?", "'s", "l'", "\u3002", "\u201c", "http://", "_"])
def test_marks_without_spaces_take_linear_time(mark):
    """spaCy takes hours for each of these texts, so that only a verdict without its tokenizer ends the test."""
    parameters = {name: value.default for name, value in RULES["gopher_quality"].parameters().items()}
    verdict = RULES["gopher_quality"].apply(f"A text, and then {mark * (1_000_000 // len(mark))}", **parameters)
    assert verdict == Removed("1,000 punctuation marks or 100 addresses without a space between them", "unspaced_marks")
