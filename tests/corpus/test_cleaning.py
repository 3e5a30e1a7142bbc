"""Cleaning as a stage, alone and in `prepare`: recipes, accounts, the same bytes for any workers and after kills."""

import collections
import itertools
import json
import os
import random
import re
import shlex
import shutil

import pytest

from bert_jax.corpus.build.clean import clean_texts, format_cleaning_result
from bert_jax.corpus.build.cleaning.recipe import read_recipe
from bert_jax.corpus.build.cleaning.rules import RULES
from bert_jax.corpus.build.prepare import prepare
from bert_jax.corpus.build.summary import format_summary
from bert_jax.errors import UserError
from bert_jax.readers import ReadOptions, read_documents
from tests.helpers.preparation import TINY, TINY_PIECES, contents, few_words, make_tokenizer, set_sizes

RECIPE = """
deduplicate = "exact"
[mask_emails]
[repeated_lines]
min_documents = 4
min_words = 2
[c4_quality]
filter_no_terminal_punct = false
min_num_sentences = -1
min_words_per_line = 5
[contamination]
files = ["{evaluation}"]
ngram = 4
"""
WORDS = ["cat", "dog", "sat", "on", "mat", "the", "zebra"]


def prose(rng, sentences):
    return " ".join(" ".join(rng.choices(WORDS, k=rng.randint(4, 9))).capitalize() + "." for _ in range(sentences))


def make_texts(place):
    """JSON lines and files with something for every rule of RECIPE, and what each document should become.

    Returns:
        name -> text, or the reason of its removal.
    """
    place.mkdir()
    (place / "evaluation.tsv").write_text("1\tNow here is the question\n")
    (place / "recipe.toml").write_text(RECIPE.format(evaluation=place / "evaluation.tsv"))
    texts = place / "texts"
    texts.mkdir()
    rng = random.Random(0)
    expected = {}
    lines = []
    for number in range(120):
        name = f"{texts / 'a.jsonl'}:{number + 1}"
        body, word = prose(rng, rng.randint(2, 12)), "".join(rng.choices("abcdefgh", k=8))
        cases = {
            0: (f"{body} Lorem ipsum.", "c4_quality: lorem_ipsum"),
            1: (f"{body} Now here is THE question?", f"contamination: {place / 'evaluation.tsv'}"),
            2: (f"Log in, Page {number}\n{body}\nLog in, page 7", body),
            3: (f"Log in, page 3\nOne two {word} four", "c4_quality: empty"),
            4: (f"{body} Mail x{number}@y.org now.", f"{body} Mail email@example.com now."),
            5: ("log  in, PAGE 8", "repeated_lines"),
        }
        text, expected[name] = cases.get(number % 9, (body, body))
        lines.append(json.dumps({"text": text}))
    lines[20] = "{"
    lines[30] = lines[29]
    expected[f"{texts / 'a.jsonl'}:21"], expected[f"{texts / 'a.jsonl'}:31"] = "broken JSON", "exact duplicate"
    (texts / "a.jsonl").write_text("\n".join(lines) + "\n")
    # Longer than a whole text may be: in pieces.
    long = prose(rng, 250)
    (texts / "long.txt").write_text(f"{long} x@y.org")
    expected[str(texts / "long.txt")] = f"{long} email@example.com"
    (texts / "lost.txt").write_text("Lorem ipsum. " * 500)
    expected[str(texts / "lost.txt")] = "nothing left"
    (texts / "one.txt").write_text(f"Log in, page 1\n\n{long[:300]}")
    expected[str(texts / "one.txt")] = long[:300]
    return expected


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    place = tmp_path_factory.mktemp("cleaning") / "trial"
    return place, make_texts(place), make_tokenizer(place / "tokenizer")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    set_sizes(monkeypatch, {**TINY, **TINY_PIECES})
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def run(trial, output, **more):
    place = trial[0]
    usual = {"recipe": place / "recipe.toml", "workers": 1, "keep_removed": output.parent / f"{output.name}.removed"}
    return clean_texts([str(place / "texts")], output=output, **usual | more)


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_document_is_kept_or_counted_with_its_reason(trial, tmp_path):
    expected = trial[1]
    account = run(trial, tmp_path / "c.jsonl")
    kept = collections.defaultdict(str)
    for record in read(tmp_path / "c.jsonl"):
        kept[record["name"].partition(".txt")[0] + ".txt" * (".txt" in record["name"])] += record["text"]
    reasons = collections.Counter(
        value for value in expected.values() if " " not in value or value in REASONS or ":" in value
    )
    texts = {name: text for name, text in expected.items() if text not in reasons}
    without_spaces = [{name: "".join(text.split()) for name, text in all_texts.items()} for all_texts in (kept, texts)]
    assert without_spaces[0] == without_spaces[1]  # datatrove strips lines, and with them the ends of pieces
    assert account["documents"] == {"in": len(expected), "kept": len(texts), "rejected": dict(reasons)}
    cleaning = account["cleaning"]
    assert cleaning["characters_kept"] == sum(map(len, kept.values()))
    assert cleaning["changed"]["mask_emails"] == sum("email@" in text for text in texts.values())
    assert cleaning["changed"]["repeated_lines"] >= 14
    pieces = [one for one in read(tmp_path / "c.jsonl.removed") if "lost.txt" in one["name"]]
    emptied = {reason: number for reason, number in cleaning["changed"].items() if reason.startswith("piece removed: ")}
    assert emptied == collections.Counter(f"piece removed: {one['reason']}" for one in pieces)
    assert len(pieces) > 1
    removed = {one["name"]: one for one in read(tmp_path / "c.jsonl.removed") if "lost.txt" not in one["name"]}
    assert {name: one["reason"] for name, one in removed.items()} == {
        name: reason
        for name, reason in expected.items()
        if reason in reasons and reason not in ("broken JSON", "nothing left")
    }
    originals = {document.name: document.text for document in read_documents([str(trial[0] / "texts" / "a.jsonl")])}
    assert all(one["text"] == originals[name] for name, one in removed.items() if one["reason"] != "exact duplicate")
    found = {one["found"] for one in removed.values() if one["reason"].startswith("contamination")}
    assert found == {"now here is the"}
    (again,) = (one for one in removed.values() if one["reason"] == "exact duplicate")
    assert again["repeats"] == again["name"].replace(":31", ":30")
    text = format_cleaning_result(account, "c.jsonl")
    assert f"{len(expected)} documents in = {len(texts)} kept + " in text
    assert re.search(
        r"% of [\d,]+ characters left after cleaning; documents changed: \d+ by c4_quality, \d+ by mask_emails, \d+ by",
        text,
    )


REASONS = {"exact duplicate", "broken JSON", "nothing left"}


def check_same(trial, tmp_path, recipe):
    account = run(trial, tmp_path / "c.jsonl", recipe=recipe)
    assert run(trial, tmp_path / "d", workers=3, recipe=recipe) == account
    assert (tmp_path / "c.jsonl.removed").read_bytes() == (tmp_path / "d.removed").read_bytes()
    files = sorted((tmp_path / "d").iterdir())
    assert len(files) > 3
    assert {path.suffix for path in files} == {".jsonl"}
    assert b"".join(path.read_bytes() for path in files) == (tmp_path / "c.jsonl").read_bytes()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_the_same_bytes_for_any_number_of_workers_in_a_file_or_a_directory(trial, tmp_path):
    """The pass that cleans; each start of three processes takes seconds."""
    recipe = (trial[0] / "recipe.toml").read_text().replace("exact", "none").replace("[repeated_lines]", "")
    other = trial[0] / "other.toml"  # beside its evaluation file
    other.write_text(re.sub("min_(documents|words) = [42]\n", "", recipe))
    check_same(trial, tmp_path, other)


@pytest.mark.slow
def test_the_same_bytes_for_any_number_of_workers_in_all_passes(trial, tmp_path):
    check_same(trial, tmp_path, trial[0] / "recipe.toml")


def interrupted(make, place):
    """Interrupt at ever later chunks until it ends, with damage to what is kept; return the messages and interrupts."""
    messages = []
    for calls in itertools.count(1):
        left = [None] * (5 * calls)

        def progress(*_, left=left):
            left.pop()
            if not left:
                raise KeyboardInterrupt

        try:
            make(progress=progress, say=messages.append)
        except KeyboardInterrupt:
            kept = sorted(path for path in place.rglob("*") if path.parent.name in ("cleaned", "lines"))
            if kept and calls % 2:
                kept[calls % len(kept)].write_bytes(b"{}")
        else:
            return messages, calls


def test_interrupted_cleanings_end_with_the_same_bytes(trial, tmp_path):
    run(trial, tmp_path / "c.jsonl")
    messages, calls = interrupted(
        lambda **more: run(trial, tmp_path / "d.jsonl", **more), tmp_path / ".d.jsonl.incomplete"
    )
    assert calls > 3
    assert any("resumes after" in line for line in messages)
    for suffix in ("", ".removed"):
        assert (tmp_path / f"c.jsonl{suffix}").read_bytes() == (tmp_path / f"d.jsonl{suffix}").read_bytes()
    assert not (tmp_path / ".d.jsonl.incomplete").exists()


def test_a_killed_run_resumes_to_the_same_bytes(trial, tmp_path):
    """What lies on the disk after some of the chunks, in every pass."""
    place, copies, calls = tmp_path / ".c.jsonl.incomplete", [], itertools.count()

    def copy(*_):
        if next(calls) % 5 == 4:
            copies.append(tmp_path / f"copy{len(copies)}")
            shutil.copytree(place, copies[-1])

    run(trial, tmp_path / "c.jsonl", progress=copy)
    expected = {name: (tmp_path / name).read_bytes() for name in ("c.jsonl", "c.jsonl.removed")}
    assert len(copies) > 6
    resumed = []
    for found in copies:
        for name in expected:
            (tmp_path / name).unlink()
        found.rename(place)
        run(trial, tmp_path / "c.jsonl", say=resumed.append)
        assert {name: (tmp_path / name).read_bytes() for name in expected} == expected
    assert sum("resumes after" in line for line in resumed) > len(copies) // 2


def corpus_of(trial, output, inputs=None, **more):
    usual = {"workers": 1, "heldout_fraction": 0.2, "language": "en"}
    return prepare([str(inputs or trial[0] / "texts")], trial[2], output, **usual | more)


def test_a_corpus_that_is_cleaned_is_the_corpus_of_the_cleaned_text(trial, tmp_path):
    """Also after interrupts."""
    place, expected, _ = trial
    options = {"clean": place / "recipe.toml"}
    manifest = corpus_of(trial, tmp_path / "one", keep_removed=tmp_path / "r", **options)
    rejected = manifest["documents"]["rejected"]
    account = run(trial, tmp_path / "c.jsonl")
    assert manifest["documents"]["in"] == account["documents"]["in"]
    assert {"nothing left" if reason == "no tokens" else reason: n for reason, n in rejected.items()} == account[
        "documents"
    ]["rejected"]
    assert manifest["cleaning"]["changed"] == account["cleaning"]["changed"]
    assert manifest["settings"]["deduplicate"] == "exact"
    assert "documents changed: " in format_summary(manifest, "one")
    assert (tmp_path / "r").read_bytes() == (tmp_path / "c.jsonl.removed").read_bytes()

    # The texts, written plainly, in the same order and with the same names of long documents.
    plain = tmp_path / "plain"
    plain.mkdir()
    kept = {name: text for name, text in expected.items() if name not in {one["name"] for one in read(tmp_path / "r")}}
    lines = [
        json.dumps({"text": text})
        for name, text in kept.items()
        if ".jsonl" in name and " " in text and text not in REASONS
    ]
    (plain / "a.jsonl").write_text("\n".join(lines) + "\n")
    for name in ("long.txt", "one.txt"):
        (plain / name).write_text(expected[str(place / "texts" / name)])
    other = corpus_of(trial, tmp_path / "other", plain)
    names = ("documents", "sentences", "tokens")
    for split in ("train", "heldout"):
        assert [manifest["splits"][split][one] for one in names] == [other["splits"][split][one] for one in names]

    make = lambda **more: corpus_of(trial, tmp_path / "two", keep_removed=tmp_path / "r2", **options, **more)  # noqa: E731
    messages, calls = interrupted(make, tmp_path / ".two.incomplete")
    assert calls > 3
    assert any("resumes after" in line for line in messages)
    assert contents(tmp_path / "two") == contents(tmp_path / "one")
    assert (tmp_path / "r2").read_bytes() == (tmp_path / "r").read_bytes()


@pytest.mark.slow
def test_a_change_of_recipe_or_of_an_evaluation_file_starts_over(trial, tmp_path):
    place = tmp_path / "copy"
    make_texts(place)
    recipe = (place / "recipe.toml").read_text()
    own = (place, None, None)

    def stop(*_):
        if next(count) == 12:
            raise KeyboardInterrupt

    for change in (
        lambda: (place / "recipe.toml").write_text(recipe.replace("min_words_per_line = 5", "min_words_per_line = 6")),
        lambda: (place / "evaluation.tsv").write_text("Other words here now, and more\n"),
    ):
        messages, count = [], itertools.count()
        with pytest.raises(KeyboardInterrupt):
            run(own, tmp_path / "c.jsonl", progress=stop)
        change()
        run(own, tmp_path / "c.jsonl", say=messages.append)
        assert any("starts over, as the cleaning changed" in line for line in messages)
        # In this process as in others, which remember nothing of the files as they were.
        run(own, tmp_path / "fresh.jsonl", workers=2)
        assert (tmp_path / "c.jsonl").read_bytes() == (tmp_path / "fresh.jsonl").read_bytes()
        for path in tmp_path.glob("fresh.jsonl*"):
            path.unlink()
        for path in tmp_path.glob("c.jsonl*"):
            path.unlink()


MISTAKES = [
    ("[gopher_qualty]", "there is no rule 'gopher_qualty'; did you mean 'gopher_quality'?"),
    ("dedup = 'near'", "there is no rule 'dedup'; did you mean 'deduplicate'?"),
    (
        "[gopher_quality]\nmin_docwords = 3",
        "[gopher_quality] has no parameter 'min_docwords'; did you mean 'min_doc_words'?",
    ),
    ("[repair_encoding]\nx = 3", "[repair_encoding] has no parameter 'x' (it has none)"),
    ("[gopher_quality]\nmin_doc_words = 2.5", "[gopher_quality] min_doc_words: 2.5 is not a whole number"),
    ("[gopher_quality]\nmin_doc_words = true", "min_doc_words: True is not a whole number"),
    ("[gopher_repetition]\ndup_line_frac = '3'", "dup_line_frac: '3' is not a finite number"),
    ("[gopher_quality]\nstop_words = 'the'", "stop_words: 'the' is not a list of texts"),
    ("[gopher_repetition]\ntop_n_grams = [0.2]", "top_n_grams: [0.2] is not a list of pairs, such as [[2, 0.2]"),
    ("[gopher_repetition]\ntop_n_grams = [[2.5, 0.2]]", "is not a list of pairs"),
    ("[gopher_repetition]\ndup_n_grams = [[5, nan]]", "is not a list of pairs"),
    ("[fineweb_quality]\nline_punct_thr = inf", "line_punct_thr: inf is not a finite number"),
    ("[c4_quality]\nfilter_policy = 1", "filter_policy: 1 is not true or false"),
    (
        "[fineweb_quality]\nlanguage = 'xx'",
        "[fineweb_quality] language: datatrove splits no words of 'xx'; give an ISO 639 code",
    ),
    ("[c4_quality]\nexclusion_writer = 'x'", "[c4_quality] has no parameter 'exclusion_writer'"),
    ("[mask_emails]\nreplacement = 1", "replacement: 1 is not a text in quotes"),
    ("[mask_ip_addresses]\npublic_only = 1", "public_only: 1 is not true or false"),
    ("[language]", "[language] needs the parameter 'keep'"),
    ("[language]\nkeep = ['xx']", "[language] keep: 'xx' is no language of py3langid"),
    ("[contamination]\nfiles = ['nowhere.json']", "nowhere.json"),
    ("[contamination]\nfiles = ['http://127.0.0.1/x.json']", "is no local file; copy it to this machine"),
    ("[contamination]\nfiles = ['file:///etc/passwd']", "is no local file; copy it to this machine"),
    ("gopher_quality = 3", "gopher_quality is a rule; write it as a table, [gopher_quality]"),
    ("deduplicate = 'all'", "deduplicate: give one of none, split, exact, near"),
    ("deduplicate = ['near']", "deduplicate: give one of none, split, exact, near"),
    ("[a", "cannot be read as TOML"),
    ("[language]\nkeep = ['en']\nmin_probability = 7", "[language] min_probability: give a number from 0 to 1"),
    ("[repeated_lines]\nmin_documents = 1", "[repeated_lines] give min_documents from 2 on, and min_words from 1 on"),
    ("[repeated_lines]\nrepeated = 'x'", "[repeated_lines] has no parameter 'repeated'"),
]


@pytest.mark.parametrize(("content", "words"), MISTAKES, ids=[one[1][:30] for one in MISTAKES])
def test_a_wrong_recipe_is_refused_in_one_line(tmp_path, content, words):
    (tmp_path / "r.toml").write_text(content + "\n")
    with pytest.raises(UserError) as error:
        read_recipe(tmp_path / "r.toml")
    assert words in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "r.toml"))
    assert "\n" not in str(error.value)


def test_a_line_in_many_pieces_of_a_document_counts_once(tmp_path, monkeypatch):
    """Beside a literal count of documents; the pieces of the long document are in many chunks and blocks."""
    lines = [f"this header is in {number} documents" for number in ("three", "four")]
    short = [["A text of its own.", lines[0], lines[1]]] * 2 + [["Another text of its own.", lines[1]]]
    long = [line for number in range(40) for line in (*lines, f"Body number {'x' * (number + 1)} " + "word " * 100)]
    texts = [*short, long]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text("\n".join(text))
    (tmp_path / "r.toml").write_text("[repeated_lines]\nmin_documents = 4\nmin_words = 5\n")
    clean_texts(
        [str(tmp_path / f"{number}.txt") for number in range(4)], tmp_path / "r.toml", tmp_path / "c.jsonl", workers=1
    )
    counts = collections.Counter(line for text in texts for line in set(text))
    assert [counts[line] for line in lines] == [3, 4]
    kept = read(tmp_path / "c.jsonl")
    assert len(kept) > 20
    found = [line for record in kept for line in record["text"].splitlines() if line]
    assert sorted(found) == sorted(line for text in texts for line in text if counts[line] < 4)


def test_evaluation_files_are_below_the_recipe_or_given(tmp_path):
    """A stranger's recipe reads no other file; the remedy of the message works word for word."""
    (tmp_path / "secret.txt").write_text("one two three")
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "own.txt").write_text("four five six " * 5)
    (tmp_path / "recipe" / "link.txt").symlink_to("../secret.txt")
    os.mkfifo(tmp_path / "recipe" / "pipe.txt")
    path = tmp_path / "recipe" / "r.toml"

    def read_with(*files, **options):
        path.write_text(f"[contamination]\nngram = 3\nfiles = {json.dumps(files)}\n")
        return [step.parameters["files"] for step in read_recipe(path, **options).steps]

    own = str(tmp_path / "recipe" / "own.txt")
    assert read_with("own.txt") == read_with(own) == [(own,)]
    for outside in ("../secret.txt", "link.txt", str(tmp_path / "secret.txt"), "../*.txt"):
        with pytest.raises(UserError, match="is not below") as error:
            read_with("own.txt", outside)
        assert "\n" not in str(error.value)
        given = shlex.split(str(error.value).rpartition(" --evaluation_files ")[2])
        assert read_with("own.txt", outside, evaluation_files=given) == [tuple(given)]
    for odd, words in (("pipe.txt", "not a regular file"), ("absent.txt", "no such file")):
        with pytest.raises(UserError, match=words):
            read_with(odd)
    path.write_text("[mask_emails]\n")  # the option adds the rule
    assert [step.rule for step in read_recipe(path, [own]).steps] == ["mask_emails", "contamination"]


def test_a_file_whose_name_is_not_utf_8(trial, tmp_path):
    names = [os.fsdecode(name) for name in (b"\xe9.txt", b"\xff.txt", b"none\xff.txt")]
    for name, text in zip(names, ("the cat sat.", "the dog sat.", "the mat."), strict=True):
        (tmp_path / name).write_text(text)
    (tmp_path / "r.toml").write_text("deduplicate = 'exact'\n" + few_words(3))
    inputs, recipe = [str(tmp_path / name) for name in names], tmp_path / "r.toml"
    clean_texts(inputs, recipe, tmp_path / "c.jsonl", workers=1, keep_removed=tmp_path / "c.removed")
    assert [line["name"] for line in read(tmp_path / "c.jsonl")] == [
        rf"{tmp_path}/\udc{byte}.txt" for byte in ("e9", "ff")
    ]
    assert [line["name"] for line in read(tmp_path / "c.removed")] == [rf"{tmp_path}/none\udcff.txt"]
    for output in (tmp_path / "c.jsonl", *(inputs[:2])):  # the output can be read again, and files without cleaning
        assert all(document.text for document in read_documents([str(output)]))
    cleaned = prepare(inputs, trial[2], tmp_path / "c", clean=recipe, workers=1, heldout_fraction=0.0)
    assert cleaned["documents"]["stored"] == 2


def test_other_mistakes(trial, tmp_path):
    (tmp_path / "r.toml").write_text("deduplicate = 'near'\n" + few_words(100_000))
    inputs = [str(trial[0] / "texts")]
    with pytest.raises(UserError, match="no such file or recipe of cleaning; did you mean 'web'"):
        read_recipe("webb")
    for deduplicate in ("none", "split", "exact"):
        with pytest.raises(UserError, match=rf"--deduplicate {deduplicate}: .* has near; leave one of them out"):
            prepare(inputs, trial[2], tmp_path / "c", deduplicate=deduplicate, clean=tmp_path / "r.toml")
    words = (
        "0 of 123 documents .*: 120 gopher_quality: gopher_short_doc, 2 (nothing left|no tokens), 1 broken JSON; "
        "change the recipe"
    )
    with pytest.raises(UserError, match=words):
        corpus_of(trial, tmp_path / "c", clean=tmp_path / "r.toml")
    with pytest.raises(UserError, match=words):
        clean_texts(inputs, tmp_path / "r.toml", tmp_path / "c.jsonl", workers=1)
    with pytest.raises(UserError, match=r"1 of 120 documents were rejected: .*1 broken JSON; write JSON"):
        clean_texts(
            [f"{inputs[0]}/a.jsonl"], trial[0] / "recipe.toml", tmp_path / "c.jsonl", workers=1, max_rejected_fraction=0
        )
    with pytest.raises(UserError, match="--workers 0"):
        clean_texts(inputs, tmp_path / "r.toml", tmp_path / "c.jsonl", workers=0)
    assert not list(tmp_path.glob("c*"))


# As in FineWeb's own pipeline; Gopher's stop words, which datatrove writes as null.
DEFAULTS = {
    "filter_no_terminal_punct": False,
    "language": "en",
    "stop_words": ("the", "be", "to", "of", "and", "that", "have", "with"),
}


def test_the_recipe_that_comes_with_bert_jax_has_the_published_values(samples, tmp_path):
    """Every rule in it has all parameters, with the defaults of its function; it cleans the samples."""
    recipe = read_recipe("web")
    assert recipe == read_recipe("configs/clean/web.toml")._replace(name=recipe.name)
    assert {"language", "gopher_repetition", "gopher_quality", "c4_quality", "fineweb_quality"} < {
        s.rule for s in recipe.steps
    }
    for step in recipe.steps:
        for name, parameter in RULES[step.rule].parameters().items():
            if parameter.default is not parameter.empty:
                value, default = step.parameters[name], DEFAULTS.get(name, parameter.default)
                assert value == default, (step.rule, name)
    dump = samples / "enwiki-sample" / "enwiki-pages-articles-shortened.xml.bz2"
    account = clean_texts([str(dump)], "web", tmp_path / "c.jsonl", ReadOptions(), workers=1)
    rejected = {
        "gopher_quality: gopher_below_alpha_threshold": 1,
        "gopher_quality: gopher_short_doc": 3,
        "gopher_repetition: top_4_gram": 1,
        "redirect": 8,
    }
    assert account["documents"] == {"in": 15, "kept": 2, "rejected": rejected}
    assert set(account["cleaning"]["rules"]) <= set(RULES)
