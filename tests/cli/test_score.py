"""`score` and `bias` on a small model: tables, JSON, the file with all sentences, pages, and refusals."""

import json
import os
import pathlib
import re
import signal
from collections import Counter

import jax
import pytest

from bert_jax.loaded_model import load
from bert_jax.scoring import retrieval
from bert_jax.scoring.score import BENCHMARKS
from bert_jax.search import top_documents
from bert_jax.search.smaller_vectors import search_stored
from bert_jax.training.metrics import read_metrics
from bert_jax.training.plan import Session
from tests.helpers.commands import is_empty, prepare_command, pretrain_command, vocabulary

WORDS = vocabulary()


@pytest.fixture
def pairs(tmp_path):
    """Two paradigms of 20 pairs, one in each format."""
    place = tmp_path / "pairs"
    place.mkdir()
    made = [(f"{WORDS[n]} {WORDS[n + 1]}.", f"{WORDS[n + 1]} {WORDS[n]} {WORDS[n + 2]}.") for n in range(20)]
    lines = [json.dumps({"sentence_good": good, "sentence_bad": bad}) for good, bad in made]
    (place / "short.jsonl").write_text("\n".join(lines))
    (place / "long.txt").write_text("".join(f"{good}\n{bad}\n" for good, bad in made))
    return place


def test_a_line_per_paradigm_and_their_mean(world, pairs, run) -> None:
    status, out, err = run("score", "--model", world.model, "--pairs", pairs)
    assert (status, err) == (0, "")
    head, columns, *rows, mean = out.splitlines()
    assert head == f"pairs {pairs}: 40 pairs; masking within_word_l2r, temperature 1"
    assert columns.split() == ["pairs", "accuracy", "ties"]
    accuracies = {name: float(row.removesuffix("%")) for name, _, row, _ in map(str.split, rows)}
    assert list(accuracies) == ["long", "short"]
    assert sum(accuracies.values()) == pytest.approx(100)  # the same pairs the other way round
    assert mean.split() == ["mean", "40", "50.0%", "0"]


def test_json_and_the_file_of_all_sentences(world, pairs, tmp_path, run) -> None:
    text = tmp_path / "a.txt"
    text.write_text(f"{WORDS[0]} {WORDS[1]}.\n\n{WORDS[2]} " * 2)
    argv = ["--masking", "original", "--temperature", 2, "--fraction", 0.25, "--json"]
    output = tmp_path / "scores.json"
    found = run("score", "--model", world.run, "--pairs", pairs, "--text", text, *argv, "--output", output)
    assert found[0] == 0, found[2]
    printed, written = json.loads(found[1]), json.loads(output.read_text())
    assert [one["benchmark"] for one in printed["results"]] == ["pairs", "text"]
    assert [(one["items"], one["scored"]) for one in printed["results"]] == [(40, 10), (3, 1)]
    sentences = [one.pop("sentences") for one in written["results"]]
    assert written == printed
    assert [len(one) for one in sentences] == [20, 1]
    texts = [one["text"] for one in sentences[0]]
    wanted = load(world.model).score(texts, masking="original", temperature=2.0)
    assert [sum(one["log_probabilities"]) for one in sentences[0]] == pytest.approx(list(wanted), abs=1e-4)
    assert load(world.model).benchmark("pairs", pairs).total["pairs"] == 40


def test_mistakes_are_refused(world, pairs, tmp_path, refused) -> None:
    argv = ["score", "--model", world.model]
    refused(*argv, says=("nothing to score", "--pairs or --text"))
    refused(*argv, "--pairs", tmp_path / "absent", says=(str(tmp_path / "absent"), "no such file"))
    refused(*argv, "--pairs", pairs, "--fraction", 0, says=("fraction 0.0", "above 0, up to 1"))
    refused(*argv, "--pairs", pairs, "--temperature", -1, says=("temperature -1.0",))
    refused(*argv, "--text", world.model / "model.safetensors", says=("model.safetensors:1", "not UTF-8"))
    refused("score", "--model", world.texts, "--pairs", pairs, says=(str(world.texts), "config.json"))
    (tmp_path / "made").mkdir()
    refused(*argv, "--pairs", pairs, "--output", tmp_path / "made", says=(str(tmp_path / "made"), "cannot be written"))
    refused(*argv, "--pairs", pairs, "--output", tmp_path / "no" / "x", says=("cannot be written", "choose another"))
    assert is_empty(tmp_path / "made")
    (pairs / "long.txt").write_text(f"{WORDS[0]}\n{'a ' * 40}\n")
    refused(*argv, "--pairs", pairs, says=(f"{pairs / 'long.txt'}:1", "40 tokens; this model reads 30"))


def test_evaluations_during_training_score_pairs(world, pairs, tmp_path, run, refused) -> None:
    (pairs / "more.jsonl").write_text((pairs / "short.jsonl").read_text()[:-400].rpartition("\n")[0])
    place, argv = tmp_path / "run", [f"--config.evaluate.pairs={pairs}", "--config.evaluate.every=2"]
    status, _, err = run(*pretrain_command(world, place, *argv))
    assert status == 0, err
    lines = [line for line in read_metrics(place / "metrics.jsonl") if line["split"] == "heldout"]
    assert [line["step"] for line in lines] == [2, 4]
    wanted = load(place).benchmark("pairs", pairs).total["accuracy"]
    assert lines[-1]["pairs_accuracy"] == wanted
    assert f"pairs accuracy {wanted:.1%}" in err
    status, out, err = run("evaluate", "--workdir", place, "--json")
    assert json.loads(out)["pairs_accuracy"] == wanted, err
    # The same run without pairs learns the same, and a part of the pairs is spread over the paradigms.
    plain = read_metrics(world.run / "metrics.jsonl")
    assert [line["loss"] for line in plain if line["split"] == "train"] == [
        line["loss"] for line in read_metrics(place / "metrics.jsonl") if line["split"] == "train"
    ]
    absent = f"--config.evaluate.pairs={tmp_path / 'absent'}"
    refused(*pretrain_command(world, tmp_path / "other", absent), says=(str(tmp_path / "absent"), "no such file"))
    assert not (tmp_path / "other").exists()


def test_pairs_without_an_evaluation_are_refused(world, pairs, tmp_path, run, refused) -> None:
    corpus = tmp_path / "corpus"
    assert run(*prepare_command(world, corpus, "--heldout_fraction", "0"))[0] == 0
    command = pretrain_command(world, tmp_path / "run", f"--config.evaluate.pairs={pairs}", corpus=corpus)
    refused(*command, says=("config.evaluate.pairs", "too few held-out documents", "--heldout_fraction"))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_signal_ends_the_scoring_of_pairs(world, pairs, tmp_path, run, monkeypatch) -> None:
    place, argv = tmp_path / "run", [f"--config.evaluate.pairs={pairs}", "--config.evaluate.every=2"]
    heartbeat, beats = Session.heartbeat, []

    def interrupted(*arguments) -> bool:
        beats.append(os.kill(os.getpid(), signal.SIGTERM))
        return heartbeat(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "heartbeat", interrupted)
        status, _, err = run(*pretrain_command(world, place, *argv))
    assert (status, len(beats)) == (0, 1), err
    assert "SIGTERM: stopped after step 2" in err
    assert run(*pretrain_command(world, place, *argv))[0] == 0
    lines = [line for line in read_metrics(place / "metrics.jsonl") if line["split"] == "heldout"]
    assert [line["step"] for line in lines if "pairs_accuracy" in line] == [2, 4]


def test_the_packaged_pairs_are_of_all_paradigms() -> None:
    items = BENCHMARKS["pairs"].read(pathlib.Path("zorro_small"))
    assert Counter(Counter(item.group for item in items).values()) == {20: 23}


@pytest.fixture
def templates(tmp_path):
    """Two templates of words of the small text, with three fillers and two groups."""
    lines = [
        {
            "template": f"The {{}} [MASK] {WORDS[1]}.",
            "fillers": WORDS[2:5],
            "groups": {"first": [WORDS[5]], "second": [WORDS[6], WORDS[7]]},
        },
        {"template": f"[MASK] {WORDS[8]} the {{}}."},
    ]
    file = tmp_path / "own.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    return file


def test_bias_as_text_page_json_and_limits_of_a_card(world, templates, tmp_path, run, refused) -> None:
    argv = ["bias", "--model", world.model, "--templates", templates]
    page = tmp_path / "bias.html"
    status, out, err = run(*argv, "--output", page)
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[2:6]] == [*WORDS[2:5], "all"]
    assert "It measures no bias." in " ".join(out.split())
    assert "Beside each of the 3 fillers, the words have less than 1 % of the probability" in page.read_text()
    status, printed, err = run(*argv, "--json")
    (result,) = json.loads(printed)["results"]
    assert result["total"] == load(world.model).benchmark("templates", templates).total
    assert [one["figure"] for one in result["readings"]][:2] == ["probability", "first"]
    report = tmp_path / "bias.json"
    report.write_text(printed)
    output = tmp_path / "exported"
    assert run("export", "--workdir", world.run, "--output", output, "--bias", report)[0] == 0  # the weights of the run
    assert "Bias, measured by `bert-jax bias`:" in (output / "README.md").read_text()
    report.write_text(printed.replace(json.loads(printed)["weights"], "0" * 64))
    argv = ["export", "--workdir", world.run, "--output", tmp_path / "other", "--bias", report]
    refused(*argv, says=("bias.json", "measured with other weights"), after=1)
    assert not (tmp_path / "other").exists()


def test_mistakes_of_bias_are_refused(world, tmp_path, refused) -> None:
    argv = ["bias", "--model", world.model]
    refused(*argv, says=("the vocabulary has no",))  # English occupations, which this text does not have
    refused(*argv, "--output", tmp_path / "bias.json", says=("bias.json", "give the name of an .html file"))
    refused(*argv, "--winogender", tmp_path / "absent", says=("absent", "cannot be read"))
    assert is_empty(tmp_path)


@pytest.fixture
def test_collection(tmp_path):
    """A collection of 30 documents of one word each; the query of each even document is its word."""
    directory = tmp_path / "collection"
    (directory / "qrels").mkdir(parents=True)
    documents = [{"_id": f"d{number}", "text": WORDS[number]} for number in range(30)]
    queries = [{"_id": f"q{number}", "text": WORDS[number]} for number in range(30)]
    judgments = [f"q{number}\td{number}\t1" for number in range(0, 30, 2)]
    (directory / "corpus.jsonl").write_text("\n".join(map(json.dumps, documents)))
    (directory / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    (directory / "qrels" / "dev.tsv").write_text("\n".join(judgments))
    return directory


def test_retrieval_finds_equal_texts(world, test_collection, tmp_path, run) -> None:
    argv = ["score", "--model", world.model, "--retrieval", test_collection, "--split", "dev"]
    status, out, err = run(*argv)
    assert status == 0
    assert err.startswith(f"warning: {world.model} has no files of sentence-transformers: ")
    assert err.count("\n") == 1
    head, remark, size, columns, model, _, bm25, _, difference = out.splitlines()
    assert head == f"retrieval {test_collection}, dev: 15 queries, 30 documents, similarity cosine"
    assert remark.split() == ["15", "queries", "without", "a", "judgment", "left", "out"]
    width = json.loads((world.model / "config.json").read_text())["hidden_size"]
    assert size == f"  numbers stored for each text: {width}.0 (queries), {width}.0 (documents)"
    assert columns.split() == ["ndcg@10", "recall@10", "recall@100", "mrr@10", "map"]
    assert model.split() == ["model", *["1.0000"] * 5]  # a text is nearest to itself
    assert bm25.split() == ["BM25", *["1.0000"] * 5]
    assert difference.split("BM25")[1].split() == ["0.000", "to", "0.000"] * 5
    output = tmp_path / "measures.json"
    printed = json.loads(run(*argv, "--json", "--output", output)[1])
    written = json.loads(output.read_text())
    queries = written["results"][0].pop("query_measures")
    assert written == printed
    assert [query["query"] for query in queries] == [f"q{number}" for number in range(0, 30, 2)]
    assert all(query["model"]["ndcg@10"] == query["BM25"]["map"] == 1 for query in queries)


def test_an_absent_collection_is_one_line(world, tmp_path, refused) -> None:
    refused("score", "--model", world.model, "--retrieval", tmp_path, says=(str(tmp_path), "corpus.jsonl", "BEIR"))


def test_retrieval_also_searches_in_smaller_vectors(
    world, test_collection, tmp_path, run, refused, monkeypatch
) -> None:
    argv = ["score", "--model", world.model, "--retrieval", test_collection, "--split", "dev"]
    forms = ["float", "int8", "binary", "8", "8-int8"]
    status, out, _ = run(*argv, "--vectors", ",".join(forms))
    assert status == 0
    rows = [line.split() for line in out.splitlines()[-6:]]
    assert rows[0] == ["vectors", "MiB", "seconds", "ndcg@10", "lost"]
    assert [row[0] for row in rows[1:]] == forms
    assert rows[1][3:] == ["1.0000", "+0.0000"]  # the float vectors of the model
    compiled = list[int]()  # programs that each search compiled

    def counted_search(*arguments):
        before = len(programs)
        found = search_stored(*arguments)
        compiled.append(len(programs) - before)
        return found

    programs = list[str]()
    jax.clear_caches()

    def listen(event, seconds, **_):
        if "backend_compile" in event:
            programs.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    monkeypatch.setattr(retrieval, "search_stored", counted_search)
    monkeypatch.setattr(top_documents, "QUERY_BLOCK", 4)
    printed = json.loads(run(*argv, "--vectors", ",".join(forms), "--json")[1])["results"][0]["vectors"]
    jax.monitoring.unregister_event_duration_listener(listen)
    assert len(compiled) == 2 * len(forms)
    assert any(compiled[::2])
    assert not any(compiled[1::2])  # the second search of each form is timed
    assert [printed[form]["num_bytes"] for form in forms] == [30 * 16 * 4, 30 * 16, 30 * 2, 30 * 8 * 4, 30 * 8]
    report, output = tmp_path / "retrieval.json", tmp_path / "exported"
    export = ["export", "--workdir", world.run, "--output", output, "--retrieval", report]
    report.write_text(run(*argv, "--vectors", "int8", "--json")[1])
    assert run(*export)[0] == 0  # the weights of the run
    card = (output / "README.md").read_text()
    assert "collection, dev: 15 queries, 30 documents" in card
    assert "| int8 | 0.00 MiB, nDCG@10 " in card
    for content, says in (("{}", "not a report of retrieval"), (report.read_text(), "measured with other weights")):
        report.write_text(re.sub(r'"weights": ?"\w+"', '"weights":"0"', content))
        refused(*export[:4], tmp_path / "other", *export[5:], says=("retrieval.json", says), after=1)
        assert not (tmp_path / "other").exists()
    refused(*argv, "--vectors", "17", says=("--vectors 17", "16 numbers"))
    refused(*argv[:3], "--pairs", "zorro_small", "--vectors", "8", says=("--vectors needs --retrieval",))
