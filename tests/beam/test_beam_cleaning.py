"""Recipes, copies and segmenters in Beam: the corpus, the account and the removed documents of `prepare`."""

import collections
import json
import random
import threading

import pytest

pytest.importorskip("apache_beam")

import fsspec

from bert_jax.cli.main import main
from bert_jax.corpus.beam.prepare import prepare_with_beam
from bert_jax.corpus.build.prepare import prepare
from bert_jax.corpus.manifest import WORDS_VERSION
from bert_jax.errors import UserError
from bert_jax.readers import storage
from bert_jax.tokenizer import SPECIAL_TOKENS, Normalizer, save_tokenizer, wordpiece_tokenizer
from tests.beam.runners import IN_MEMORY, RETRYING, RUNNERS, processes
from tests.helpers.preparation import contents, few_words, make_tokenizer

pytestmark = [pytest.mark.beam, pytest.mark.filterwarnings("default")]  # warnings of Beam itself

HELDOUT = 0.2
# The Universal Declaration of Human Rights, article 1 and the beginnings of 3 and 4.
CHINESE = (
    "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。"  # noqa: RUF001
    "人人有权享有生命、自由和人身安全。任何人不得使为奴隶或奴役。"
)
RECIPE = """
deduplicate = "near"
against = ["{known}"]
[mask_emails]
[repeated_lines]
min_documents = 4
min_words = 2
[c4_quality]
filter_no_terminal_punct = false
min_num_sentences = -1
min_words_per_line = -1
[contamination]
files = ["{evaluation}"]
ngram = 4
"""


def prose(rng, words):
    return " ".join("".join(rng.choices("abcdefgh", k=4)) for _ in range(words)).capitalize() + "."


def write_lines(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return [str(path)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Files with something for every rule, long documents in pieces, exact and near copies, also of a corpus."""
    place = tmp_path_factory.mktemp("cleaning")
    tokenizer = make_tokenizer(place / "tokenizer")
    rng = random.Random(0)
    known = [prose(rng, 40) for _ in range(8)]
    prepare(
        write_lines(place / "known.jsonl", known),
        tokenizer,
        place / "known",
        workers=1,
        heldout_fraction=HELDOUT,
        deduplicate="near",
    )
    (place / "evaluation.tsv").write_text("1\tNow here is the question\n")
    (place / "recipe.toml").write_text(
        RECIPE.format(known=place / "known", evaluation=place / "evaluation.tsv") + few_words(5)
    )
    texts = place / "texts"
    texts.mkdir()
    lines = []
    for number in range(120):
        body = prose(rng, rng.randint(30, 90))
        cases = {
            0: f"{body} Lorem ipsum.",
            1: f"{body} Now here is THE question?",
            2: f"Log in, Page {number}\n{body}\nLog in, page 7",
            3: f"Log in, page 3\n{body[:20]}",
            4: f"{body} Mail x{number}@y.org now.",
            5: known[number % len(known)].upper(),
            6: f"{known[number % len(known)]} {prose(rng, 2)}",
            7: lines[-3] + " more" if number > 20 else body,
            8: lines[-6] if number > 20 else body,
        }
        lines.append(cases.get(number % 11, body))
    write_lines(texts / "a.jsonl", lines)
    long = "\n".join(prose(rng, 30) for _ in range(500))
    (texts / "long.txt").write_text(f"{long} x@y.org")
    (texts / "long copy.txt").write_text(f"{long} x@y.org again")
    (texts / "lost.txt").write_text("Lorem ipsum. " * 5_000)
    (texts / "latin.txt").write_bytes(b"caf\xe9")
    for number in range(4):
        (texts / f"{number}.txt").write_text(f"Log in, page 1\n\n{prose(rng, 900)}")
    return place


def options(place, **others):
    return {"heldout_fraction": HELDOUT, "clean": place / "recipe.toml", **others}


@pytest.fixture(scope="module")
def local(place, tmp_path_factory):
    """The corpus that `prepare` makes, and the documents that it removed."""
    output = tmp_path_factory.mktemp("local")
    removed = output / "removed.jsonl"
    manifest = prepare(
        [str(place / "texts")],
        place / "tokenizer",
        output / "corpus",
        workers=1,
        keep_removed=removed,
        **options(place),
    )
    reasons = manifest["documents"]["rejected"]
    known = place / "known"
    assert set(reasons) >= {f"exact duplicate of {known}", f"near duplicate of {known}", "exact duplicate"}
    assert set(reasons) >= {
        "near duplicate",
        "c4_quality: lorem_ipsum",
        "gopher_quality: gopher_short_doc",
        "invalid UTF-8",
        "no tokens",
    }
    assert {"mask_emails", "repeated_lines"} <= set(manifest["cleaning"]["changed"])
    assert len(manifest["splits"]["train"]["shards"]) > 5
    return output / "corpus", removed


@pytest.mark.parametrize("runner", ["default", "bundles", "every bundle thrice", "2 processes"])
def test_a_recipe_gives_the_bytes_and_the_account_of_prepare(runner, place, local, tmp_path):
    corpus, removed = local
    prepare_with_beam(
        [str(place / "texts")],
        place / "tokenizer",
        tmp_path / "corpus",
        beam_options=RUNNERS[runner],
        keep_removed=tmp_path / "removed.jsonl",
        **options(place),
    )
    assert contents(tmp_path / "corpus") == contents(corpus)
    assert (tmp_path / "removed.jsonl").read_bytes() == removed.read_bytes()


@pytest.mark.parametrize("deduplicate", ["exact", "near"])
def test_copies_are_removed_without_a_recipe(deduplicate, place, tmp_path):
    arguments = {"heldout_fraction": HELDOUT, "deduplicate": deduplicate}
    texts, tokenizer = [str(place / "texts")], place / "tokenizer"
    prepare(texts, tokenizer, tmp_path / "a", workers=1, keep_removed=tmp_path / "a.jsonl", **arguments)
    found = prepare_with_beam(
        texts, tokenizer, tmp_path / "b", beam_options=IN_MEMORY, keep_removed=tmp_path / "b.jsonl", **arguments
    )
    assert contents(tmp_path / "b") == contents(tmp_path / "a")
    assert (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()
    assert found["documents"]["rejected"][f"{deduplicate} duplicate"] > 5


def test_failed_work_is_repeated(place, local, tmp_path, monkeypatch):
    """Files of every step between fail once or twice, after they were uploaded or before."""
    names = {"repeated-": 2, "00001-00000.jsonl": 1, "00001-00000.rows": 2, "decisions": 1, "sketches.npy": 1}
    tries = collections.Counter()
    put, lock = storage.upload, threading.Lock()

    def failing(path, url):
        with lock:
            tries[url] += 1
            fails = any(name in url and tries[url] <= number for name, number in names.items())
        if not fails or tries[url] % 2:
            put(path, url)
        if fails:
            raise OSError("the network is away")

    monkeypatch.setattr(storage, "upload", failing)
    prepare_with_beam(
        [str(place / "texts")], place / "tokenizer", tmp_path / "corpus", beam_options=RETRYING, **options(place)
    )
    assert contents(tmp_path / "corpus") == contents(local[0])
    assert all(any(name in url and number > 1 for url, number in tries.items()) for name in names)


def test_object_storage_holds_the_intermediate_files(place, local, tmp_path):
    files, output = fsspec.filesystem("memory"), "/bucket/cleaned/corpus"
    prepare_with_beam(
        [str(place / "texts")],
        place / "tokenizer",
        f"memory:/{output}",
        beam_options=IN_MEMORY,
        keep_removed=tmp_path / "removed.jsonl",
        **options(place),
    )
    assert {path.removeprefix(f"{output}/"): files.cat(path) for path in files.find(output)} == contents(local[0])
    assert (tmp_path / "removed.jsonl").read_bytes() == local[1].read_bytes()


def test_words_of_a_segmenter_are_stored(tmp_path):
    pytest.importorskip("rjieba")
    characters = sorted({*CHINESE})
    save_tokenizer(wordpiece_tokenizer([*SPECIAL_TOKENS, *characters], Normalizer()), tmp_path / "tokenizer")
    sentences = CHINESE.split("。")
    rng = random.Random(0)
    texts = write_lines(tmp_path / "a.jsonl", ["。".join(rng.sample(sentences, 3)) for _ in range(200)])
    arguments = {"language": "zh", "segmenter": "jieba", "heldout_fraction": HELDOUT}
    found = prepare(texts, tmp_path / "tokenizer", tmp_path / "a", workers=1, **arguments)
    assert found["format_version"] == WORDS_VERSION
    for runner in (IN_MEMORY, processes(2)):
        output = tmp_path / str(len(runner))
        assert prepare_with_beam(texts, tmp_path / "tokenizer", output, beam_options=runner, **arguments) == found
        assert contents(output) == contents(tmp_path / "a")


def test_the_command_line_hands_everything_over(place, local, tmp_path, capsys):
    removed = tmp_path / "removed.jsonl"
    words = ["--input", place / "texts", "--tokenizer", place / "tokenizer", "--output", tmp_path / "corpus"]
    more = ["--heldout_fraction", HELDOUT, "--clean", place / "recipe.toml", "--keep_removed", removed]
    assert main([*map(str, ["prepare", *words, *more, "--runner", "beam"])]) == 0
    assert contents(tmp_path / "corpus") == contents(local[0])
    assert removed.read_bytes() == local[1].read_bytes()
    assert "characters left after cleaning" in capsys.readouterr().out


def test_bad_recipes_are_refused_before_anything_is_written(place, tmp_path):
    def run(**others):
        arguments = {"beam_options": IN_MEMORY, **others}
        prepare_with_beam([str(place / "texts")], place / "tokenizer", tmp_path / "corpus", **arguments)

    (tmp_path / "recipe.toml").write_text('deduplicate = "near"\nagainst = ["nowhere"]\n')
    with pytest.raises(UserError, match="nowhere"):
        run(clean=tmp_path / "recipe.toml")
    with pytest.raises(UserError, match="leave one of them out"):
        run(clean=place / "recipe.toml", deduplicate="exact")
    with pytest.raises(UserError, match="--keep_removed: these options remove nothing"):
        run(keep_removed=tmp_path / "removed.jsonl")
    with pytest.raises(UserError, match="--segmenter jieba reads zh"):
        run(segmenter="jieba")
    (tmp_path / "removed.jsonl").write_text("")
    with pytest.raises(UserError, match="exists already"):
        run(clean=place / "recipe.toml", keep_removed=tmp_path / "removed.jsonl")
    assert not (tmp_path / "corpus").exists()


def test_a_recipe_that_leaves_nothing_is_reported_in_a_line(place, tmp_path):
    (tmp_path / "recipe.toml").write_text(few_words(90_000))
    (tmp_path / "a.txt").write_text("The cat sat on the mat.")
    with pytest.raises(UserError, match="change the recipe of the cleaning") as refused:
        prepare_with_beam(
            [str(tmp_path / "a.txt")],
            place / "tokenizer",
            tmp_path / "corpus",
            beam_options=processes(2),
            clean=tmp_path / "recipe.toml",
        )
    assert str(refused.value).startswith("0 of 1 documents could be used: 1 gopher_quality: gopher_short_doc")
    assert str(refused.value).endswith("incomplete; remove it before the next try")
