"""`inspect`: sequences are the text of the corpus, warnings come when they should, terminals get colors."""

import dataclasses
import json
import os
import random
import re
import shutil
import subprocess
import sys
import types

import pytest

from bert_jax.console import terminal_columns
from bert_jax.reports.corpus.checks import CHECKS, SEQUENCE_CHECKS
from bert_jax.reports.corpus.figures import CorpusSource
from tests.helpers.written_corpus import LETTERS, WORDS, sentence, text, write_corpus

RECIPE = """
from bert_jax.config import phases, pretrain_config


def get_config():
    config = pretrain_config()
    config.data.sentence_pairs = "none"
    config.train.phases = phases({"seq_len": 32})
    return config
"""
MARK = re.compile(r"\[[^][|]*\|([^][|]*)\]")


def many(documents: int, sentences: int, seed: int = 0, words: int = 8) -> list[str]:
    rng = random.Random(seed)
    return [text(rng, sentences, words) for _ in range(documents)]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return many(60, 300)


@pytest.fixture(scope="module")
def corpus(texts, tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("inspect"), texts, heldout_fraction=0.2)


def test_statistics(corpus, texts, run):
    status, out, err = run("inspect", corpus)
    assert (status, err) == (0, "")
    sentences = sum(one.count(".") for one in texts)
    tokens = sum(len(one.split()) for one in texts) + sentences
    for split in ("train", "heldout"):
        assert re.search(rf"^  {split} +[\d,]+ +[\d,]+ +[\d,]+$", out, re.M)
    assert "60 documents in = 60 stored + 0 rejected" in out
    assert "copies of an earlier document: 0 of" in out
    assert "1.00 tokens per word" in out
    assert "label 1" in out
    assert "no warnings" in out
    assert re.findall(r"^sequence (\d+) \(", out, re.M) == ["0", "1", "2"]
    found = json.loads(run("inspect", corpus, "--json")[1])
    assert sum(found["sources"][0][split]["tokens"] for split in ("train", "heldout")) == tokens
    assert sum(found["sources"][0][split]["sentences"] for split in ("train", "heldout")) == sentences
    assert found["warnings"] == {}
    assert found["sequences"]["predicted"] == pytest.approx(0.15, abs=0.01)
    assert found["sequences"]["masked"] == pytest.approx(0.8, abs=0.03)
    assert found["sequences"]["labelled"] == pytest.approx(0.55, abs=0.1)
    assert found["tokens"]["unknown"] == 0


def shown(out: str) -> dict[str, str]:
    """Return the texts of the only sequence shown, each as one line, by name: A and B, or ' ' for a single text."""
    found: dict[str, str] = {}
    name = ""
    for line in out.splitlines():
        if match := re.match(r"  ([AB ]) (?=\S)", line):
            if match[1] != " ":
                name = match[1]
            found[name] = f"{found.get(name, '')} {line[4:]}".strip()
    return found


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_sequence_is_text_of_the_corpus(corpus, texts, run, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    labels = set()
    for number in (0, 1, 2, 3, 10**6, 10**12):
        status, out, _ = run("inspect", corpus, "--sequence", number)
        assert status == 0
        assert all(terminal_columns(line) <= width for line in out.splitlines())
        assert f"sequence {number:,} " in out
        assert "documents" not in out.splitlines()[0]
        marked = shown(out)
        assert any(MARK.search(part) for part in marked.values())
        first, second = (MARK.sub(r"\1", marked[name]) for name in "AB")
        assert first.startswith("[CLS] ")
        assert first.endswith(" [SEP]")
        assert second.endswith(" [SEP]")
        first, second = first[6:-6], second[:-6]
        owners = [{index for index, text in enumerate(texts) if part in text.lower()} for part in (first, second)]
        assert all(owners)
        label = int(re.search(r"label (\d)", out)[1])
        labels.add(label)
        assert ("another document" in " ".join(out.split())) == (label == 1)
        if label:
            assert not owners[0] & owners[1]
        else:
            # A pair too long for its sequence loses tokens at both sides of both texts.
            ours = [texts[index].lower() for index in owners[0] & owners[1]]
            assert any(one.index(first) + len(first) <= one.rindex(second) for one in ours)
    assert labels == {0, 1}


def test_sequences_of_a_recipe(corpus, texts, tmp_path, run):
    (tmp_path / "recipe.py").write_text(RECIPE)
    _, out, _ = run("inspect", corpus, "--config", tmp_path / "recipe.py", "--sequence", 0)
    assert "; 32 tokens, " in " ".join(out.split())
    assert "label" not in out
    (part,) = shown(out).values()
    assert any(MARK.sub(r"\1", part)[6:-6] in one.lower() for one in texts)
    _, out, _ = run("inspect", corpus, "--sequence", 0, "--config.train.phases[0].seq_len=64")
    assert "; 64 tokens, " in " ".join(out.split())


def test_the_first_phase_sets_the_masks(corpus, run):
    argv = ("inspect", corpus, "--json", "--config.data.sentence_pairs=full_sentences")
    figures = [
        json.loads(run(*argv, *more)[1])["sequences"]["predicted"]
        for more in ((), ("--config.train.phases[0].mask_probability=0.3",))
    ]
    assert figures == pytest.approx([0.15, 0.3], abs=0.01)


@pytest.mark.parametrize("recipe", ["left_to_right_cpu", "phase"])
def test_no_masks_are_shown_where_the_recipe_masks_nothing(corpus, tmp_path, run, refused, recipe):
    first = "{'seq_len': 32, 'fraction': 0.5, 'objective': 'left_to_right'}, {'seq_len': 32, 'fraction': 0.5}"
    if recipe == "phase":
        recipe = tmp_path / "phase.py"
        recipe.write_text(RECIPE.replace('{"seq_len": 32}', first))
    status, out, _ = run("inspect", corpus, "--config", recipe)
    assert status == 0
    assert "none: the first phase masks no tokens" in out
    assert not MARK.search(out)
    refused("inspect", corpus, "--config", recipe, "--sequence", 0, says=("the first phase masks no tokens",))


def test_masks_are_shown_if_a_hybrid_phase_masks_some_of_the_sequences(corpus, run):
    hybrid = "--config.train.phases[0].objective=hybrid"
    assert MARK.search(run("inspect", corpus, hybrid, "--config.data.sentence_pairs=full_sentences")[1])


def test_packed_examples_are_shown_separately(texts, tmp_path, run):
    corpus = write_corpus(tmp_path, many(60, 3, words=4))
    packed = ["--config.data.packing=6", "--config.data.sentence_pairs=document_sentences"]
    found = json.loads(run("inspect", corpus, "--json", "--sequence", 1, *packed)[1])
    assert found["sequences"]["examples"] > 3
    assert {example["sequence"] for example in found["examples"]} == {1}
    _, out, _ = run("inspect", corpus, "--sequence", 1, *packed)
    number = len(found["examples"])
    assert re.findall(r"example (\d+) of (\d+)", out) == [(str(k + 1), str(number)) for k in range(number)]
    for example in found["examples"]:
        assert example["texts"][0].startswith("[CLS]")
        assert example["texts"][0].count("[SEP]") == 1


def test_json_has_the_texts_that_are_shown(corpus, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "9999")
    found = json.loads(run("inspect", corpus, "--json", "--sequence", 5)[1])
    texts = shown(run("inspect", corpus, "--sequence", 5)[1])
    (example,) = found["examples"]
    assert example["texts"] == [texts["A"], texts["B"]]


ONE_SENTENCE = [sentence(random.Random(number), 9) for number in range(80)]
PIECES = [*LETTERS, *(f"##{letter}" for letter in LETTERS), "."]


@pytest.mark.parametrize(("model", "fraction"), [([], 0.15), (["--config.model.causal=true"], 1.0)])
def test_a_causal_model_predicts_all_heldout_tokens(corpus, run, model, fraction):
    """As `evaluation_line` of the start of a run."""
    heldout = json.loads(run("inspect", corpus, "--json")[1])["sources"][0]["heldout"]["tokens"]
    assert f"an evaluation has about {round(fraction * heldout):,} predictions" in run("inspect", corpus, *model)[1]


@pytest.mark.parametrize(
    ("name", "says", "made", "more"),
    [
        ("one_document", "--documents blank-line", {"texts": many(1, 200)}, []),
        ("nothing_held_out", "--heldout_fraction", {"texts": many(60, 60)}, []),
        ("random_pairs", "full_sentences", {"texts": ONE_SENTENCE}, []),
        ("one_sentence", "Join lines", {"texts": ONE_SENTENCE}, ["--config.data.sentence_pairs=sentence_order"]),
        ("duplicates", "14% of the training documents", {"texts": many(60, 60) + many(60, 60)[:10]}, []),
        (
            "leaked",
            "held-out documents",
            {"texts": many(60, 60) + [one.replace("a", "á") for one in many(60, 60)], "heldout_fraction": 0.3},
            [],
        ),
        ("few_predictions", "below 2,000", {"texts": many(60, 60), "heldout_fraction": 0.2}, []),
        (
            "unknown",
            "`tokenizer`",
            {"texts": [one.replace(WORDS[0], "§") + " §§ § §" * 20 for one in many(60, 60)]},
            [],
        ),
        ("changes", "10.00% accent or other mark removed; ", {"texts": ["Bádu bedu. Badu béda."] * 40}, []),
        ("many_tokens_per_word", "tokens per word", {"texts": many(60, 60), "vocabulary": PIECES}, []),
        ("long_words", "hides no whole words", {"texts": ["Badubedu" * 3] * 50}, ["--config.data.masking=whole_word"]),
        ("unused", "% of the vocabulary", {"texts": ["Badu bedu. Badu bedu."] * 2 + many(2, 5)}, []),
        ("mostly_padding", "--config.data.packing=", {"texts": many(60, 3)}, []),
        (
            "idle",
            "--config.data.masking=token",
            {"texts": ["Badubedu"] * 50 + many(50, 9), "vocabulary": PIECES},
            ["--config.data.masking=whole_word", "--config.data.sentence_pairs=none"],
        ),
    ],
)
def test_warnings(tmp_path, run, name, says, made, more):
    corpus = write_corpus(tmp_path, **made)
    status, out, _ = run("inspect", corpus, "--json", *more)
    assert status == 0
    found = json.loads(out)["warnings"]
    assert says in found[name]
    _, out, _ = run("inspect", corpus, *more)
    shown = " ".join(out.split())
    assert all(line in shown for line in found.values())


def test_every_warning_is_provoked():
    provoked = {case[0] for case in test_warnings.pytestmark[0].args[1]}
    assert provoked | {"many_epochs"} == CHECKS.keys() | SEQUENCE_CHECKS.keys()


def test_a_corpus_that_an_epoch_reads_many_times_is_named():
    source = CorpusSource(
        name="small",
        train={},
        heldout={},
        prepared={},
        rejected={},
        tokens_fraction=0.01,
        sequences_fraction=0.5,
        epochs=2067.4,
    )
    others = (
        dataclasses.replace(source, name="large", epochs=0.5),
        dataclasses.replace(source, name="alone", epochs=None),
    )
    said = CHECKS["many_epochs"](types.SimpleNamespace(sources=(source, *others)))
    assert "an epoch reads small 2,067 times. Limit it with --config.data.max_epochs" in said
    assert CHECKS["many_epochs"](types.SimpleNamespace(sources=others)) == ""


def test_packing_helps_where_it_is_suggested(tmp_path, run):
    corpus = write_corpus(tmp_path, many(60, 3))
    found = json.loads(run("inspect", corpus, "--json")[1])
    advice = re.search(r"--config\.data\.packing=\d+", found["warnings"]["mostly_padding"])[0]
    after = json.loads(run("inspect", corpus, "--json", advice)[1])
    assert after["sequences"]["fill"] > 0.7 > found["sequences"]["fill"]
    assert "mostly_padding" not in after["warnings"]


def test_packing_is_not_suggested_again_where_it_does_not_help(tmp_path, run):
    corpus = write_corpus(tmp_path, [sentence(random.Random(seed), 35) for seed in range(60)])
    options = ["--config.data.sentence_pairs=document_sentences", "--config.train.phases[0].seq_len=64", "--json"]
    assert "packing=" in json.loads(run("inspect", corpus, *options)[1])["warnings"]["mostly_padding"]
    found = json.loads(run("inspect", corpus, *options, "--config.data.packing=4")[1])
    assert found["sequences"]["fill"] < 0.7
    assert "choose another length" in found["warnings"]["mostly_padding"]


def test_one_document_held_out_is_too_few_for_pairs(tmp_path, run):
    corpus = write_corpus(tmp_path, many(60, 60), heldout_fraction=0.006)
    found = json.loads(run("inspect", corpus, "--json")[1])
    assert found["sources"][0]["heldout"]["documents"] == 1
    assert "1 held-out document, and pairs need 2" in found["warnings"]["nothing_held_out"]
    alone = json.loads(run("inspect", corpus, "--json", "--config.data.sentence_pairs=full_sentences")[1])
    assert "nothing_held_out" not in alone["warnings"]


def test_documents_that_preparation_rejected(tmp_path, run):
    write_corpus(tmp_path, many(9, 9))
    (tmp_path / "texts" / "binary").write_bytes(b"\0")
    argv = ["--input", tmp_path / "texts", "--tokenizer", tmp_path / "tokenizer", "--output", tmp_path / "again"]
    assert run("prepare", *argv, "--workers", 1)[0] == 0
    assert "10 documents in = 9 stored + 1 rejected (1 binary)" in run("inspect", tmp_path / "again")[1]
    assert json.loads(run("inspect", tmp_path / "again", "--json")[1])["sources"][0]["rejected"] == {"binary": 1}


def test_a_mixture(tmp_path, run):
    large, small = (
        write_corpus(tmp_path / name, many(number, 20, seed)) for name, number, seed in [("a", 90, 1), ("b", 10, 2)]
    )
    found = json.loads(run("inspect", f"{large},{small}", "--json", "--config.data.weights=(1.0, 3.0)")[1])
    assert [source["name"] for source in found["sources"]] == ["a/corpus", "b/corpus"]
    assert found["sources"][1]["tokens_fraction"] == pytest.approx(0.1, abs=0.03)
    assert found["sources"][1]["sequences_fraction"] == pytest.approx(0.75, abs=0.01)
    _, out, _ = run("inspect", f"{large},{small}", "--config.data.smoothing=0.0")
    assert re.search(r"^    b/corpus .* 50.00% +\d+\.\d\d$", out, re.M)
    assert found["sources"][1]["epochs"] > 3 * found["sources"][0]["epochs"]
    limited = ["--config.data.weights=(1.0, 3.0)", "--config.data.max_epochs=2"]
    found = json.loads(run("inspect", f"{large},{small}", "--json", *limited)[1])
    assert found["sources"][1]["epochs"] == 2
    assert run("inspect", f"{large},{small}", "--config.data.max_epochs=2")[0] == 2


def test_colors_are_for_terminals(corpus, run, monkeypatch):
    plain = run("inspect", corpus)[1]
    assert "\x1b" not in plain
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: True)
    colored = run("inspect", corpus)[1]
    assert "\x1b[1;33m[MASK|" in colored
    assert re.sub(r"\x1b\[[\d;]+m", "", colored) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert run("inspect", corpus)[1] == plain


def test_a_terminal_without_the_characters(corpus):
    argv = [sys.executable, "-m", "bert_jax", "inspect", str(corpus)]
    done = subprocess.run(argv, env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "histogram" in done.stdout.decode("ascii")


def test_refusals(corpus, tmp_path, refused):
    refused("inspect", tmp_path / "absent", says=("no such corpus directory",))
    refused("inspect", f"{corpus},{corpus}", "--against", corpus, says=("--against compares two corpora",))
    refused("inspect", corpus, "--sequence", -1, says=("--sequence -1", "from 0"))
    refused("inspect", corpus, "--sequence", 1 << 70, says=("--sequence",))
    refused("inspect", corpus, "--sequence", "x", says=("--sequence",))
    refused("inspect", corpus, "--config.data.masks=1", says=("no key 'data.masks'",))
    refused("inspect", corpus, f"--config.data.corpus={corpus}", says=("leave out the option",))
    refused("inspect", corpus, "--config", tmp_path / "absent.py", says=("no such file",))
    refused("inspect", corpus, "--config.data.weights=(1.0, 2.0)", says=("2 numbers for 1 corpora",))
    refused("inspect", corpus, "--config.train.phases[0].seq_len=9000", says=("8 to 512",))
    refused("inspect", corpus, "--html", tmp_path / "page.pdf", says=("page.pdf", "give the name of an .html file"))
    refused("inspect", corpus, "--html", tmp_path / "absent" / "page.html", says=("cannot be written",))
    refused("inspect", corpus, "--html", tmp_path / "page.html", "--json", says=("not allowed with",))


def test_a_corpus_without_sequences(tmp_path, run, refused):
    corpus = write_corpus(tmp_path, many(1, 50))
    refused("inspect", corpus, "--sequence", 0, says=("needs 2 documents",))
    page = tmp_path / "page.html"
    assert run("inspect", corpus, "--html", page) == (0, f"{page}\n", "")
    assert "config.data.sentence_pairs=next_sentence needs 2 documents" in page.read_text()
    status, out, _ = run("inspect", corpus)
    assert status == 0
    assert "config.data.sentence_pairs=next_sentence needs 2 documents" in " ".join(out.split())
    found = json.loads(run("inspect", corpus, "--json")[1])
    assert (found["sequences"], found["examples"]) == (None, [])
    assert run("inspect", corpus, "--sequence", 0, "--config.data.sentence_pairs=none")[0] == 0


def test_damaged_corpora(corpus, tmp_path, refused):
    def copy(name: str):
        return shutil.copytree(corpus, tmp_path / name)

    shard = next(copy("cut").glob("train-*"))
    shard.write_bytes(shard.read_bytes()[:-100])
    refused("inspect", tmp_path / "cut", says=(str(shard), "bytes, the manifest says"))
    (copy("bare") / "manifest.json").unlink()
    refused("inspect", tmp_path / "bare", says=("no complete manifest.json",))
    flipped = next(copy("flipped").glob("train-*"))
    content = bytearray(flipped.read_bytes())
    content[100:2000] = bytes(1900)
    flipped.write_bytes(content)
    refused("inspect", tmp_path / "flipped", says=(str(flipped), "damaged"))
    vocabulary = copy("other") / "tokenizer" / "vocab.txt"
    vocabulary.write_text(vocabulary.read_text().replace("badu", "zzzz"))
    refused("inspect", tmp_path / "other", says=("tokenizer",))
