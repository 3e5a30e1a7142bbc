"""`report`: a page about a real run."""

import io
import json
import math

import pytest

from bert_jax.console import Console
from bert_jax.reports.run.predictions import heldout_batch, predict_batch
from bert_jax.reports.run.record import read_runs
from bert_jax.reports.run.sections import find_run_corpus
from tests.helpers.commands import is_empty
from tests.helpers.written_pages import Page


def test_a_page_of_a_run(world, run, tmp_path) -> None:
    status, out, err = run("report", world.run, "--output", tmp_path / "report.html")
    assert (status, out) == (0, f"{tmp_path / 'report.html'}\n")
    assert err == f"weights of step 4 of {world.run}\n"
    text = Page((tmp_path / "report.html").read_text()).text
    manifest = json.loads((world.corpus / "manifest.json").read_text())
    assert f"40 of 40none{manifest['settings']['language']}" in text
    assert f"{manifest['splits']['train']['tokens']:,}" in text
    train, heldout = (manifest["splits"][name]["documents"] for name in ("train", "heldout"))
    leaks = f"0 of {heldout} held-out documents are training documents too"
    assert f"0 of {train} training documents are copies of an earlier document; {leaks}." in text
    assert "memory" in text
    assert "It has done all of its 4 steps" in text
    assert "Right of all that are marked: " in text
    assert "Energy is an estimate" in text
    assert "version of jax" in text
    assert manifest["fingerprint"] in text


def test_the_predictions_are_those_that_the_run_was_evaluated_on(world) -> None:
    """The same sequences with the same masks: loss and accuracy are those of the last line of metrics."""
    found = read_runs([world.run])[0]
    facts = found.pretraining
    corpus = find_run_corpus(facts.data.corpus, found.fingerprint["corpus"])
    assert not isinstance(corpus, str), corpus
    batch = heldout_batch(facts, found.seed, found.trainings[0].last_step, corpus, facts.num_eval_sequences)
    rows = predict_batch(world.run, batch, corpus.tokenizer(), Console(io.StringIO()))
    predictions = [prediction for row in rows for prediction in row]
    lines = [json.loads(line) for line in (world.run / "metrics.jsonl").read_text().splitlines()]
    last = next(line for line in lines if line["split"] == "heldout" and line["step"] == 4)
    losses = [-math.log(prediction.probability) for prediction in predictions]
    assert sum(losses) / len(predictions) == pytest.approx(last["mlm_loss"], rel=1e-5)
    assert sum(prediction.is_right for prediction in predictions) / len(predictions) == pytest.approx(
        last["mlm_accuracy"]
    )


def test_report_refuses_a_path_without_a_run_and_bad_options(world, refused, tmp_path) -> None:
    refused("report", world.texts, "--output", tmp_path / "a.html", says=(str(world.texts), "no run here"))
    says = ("a.pdf", "give the name of an .html file")
    refused("report", world.run, "--output", tmp_path / "a.pdf", says=says)
    says = (str(tmp_path), "cannot be written")
    refused("report", world.run, "--output", tmp_path / "absent" / "a.html", says=says)
    says = ("is given twice",)
    refused("report", world.run, world.run, "--output", tmp_path / "a.html", says=says)
    refused("report", world.run, says=("give --output FILE.html or --follow",))
    refused("report", world.run, "--follow", "--output", tmp_path / "a.html", says=("not allowed with",))
    refused("report", world.run, "--port", 0, "--output", tmp_path / "a.html", says=("--port: only with --follow",))
    assert is_empty(tmp_path)


def test_attention_writes_a_page_of_the_heads(world, run, refused, tmp_path) -> None:
    argv = ["attention", "--model", world.model, "--output", tmp_path / "heads.html"]
    assert run(*argv, "one text", "and its pair") == (0, f"{tmp_path / 'heads.html'}\n", "")
    text = Page((tmp_path / "heads.html").read_text()).text
    assert "2 layers of 2 heads" in text
    assert "one text / and its pair" in text
    refused("attention", "--model", world.model, "--output", tmp_path / "a.txt", "x", says=("a.txt", ".html"))
    refused(*argv, "word " * 40, says=("more than 32 tokens", "shorten it"))
    assert run(*argv, "--first_token", 2, "one long text")[0] == 0
    assert "the page shows the attention of tokens 2 to" in Page((tmp_path / "heads.html").read_text()).text
    refused(*argv, "--first_token", 99, "one text", says=("--first_token 99: this text has",))
