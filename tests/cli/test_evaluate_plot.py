"""`evaluate` and `plot`: the scores and curves of a run."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.helpers.commands import is_empty, prepare_command, pretrain_command, prose


def test_evaluate_prints_one_json_object_or_a_table_of_the_same_numbers(world, run) -> None:
    status, out, _ = run("evaluate", "--workdir", world.run, "--json")
    assert status == 0
    found = json.loads(out)
    assert (found["step"], found["seq_len"]) == (4, 24)
    assert {"loss", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy", "unigram_loss"} < found.keys()
    lines = [json.loads(line) for line in (world.run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["split"] == "train"] == [1, 2, 3, 4]
    last = next(line for line in lines if line["split"] == "heldout" and line["step"] == 4)
    assert found["loss"] == pytest.approx(last["loss"], rel=1e-6)
    status, out, _ = run("evaluate", "--workdir", world.run)
    assert status == 0
    head, *lines = out.splitlines()
    assert head == f"step 4: {found['documents']} held-out documents, 24 tokens per sequence"
    shown = {line[2:].partition("  ")[0].replace(" ", "_"): line.split("  ")[2:] for line in lines}
    assert shown.keys() == found.keys() - {"step", "seq_len", "documents"}
    assert f"{found['mlm_accuracy']:.1%}" in lines[list(shown).index("mlm_accuracy")]
    assert f"{found['mlm_loss']:.4f}  nats" in lines[list(shown).index("mlm_loss")]


@pytest.mark.slow
def test_evaluate_on_three_devices_agrees_with_the_devices_of_the_run(world, run) -> None:
    """A batch that they do not divide is filled up."""
    found = json.loads(run("evaluate", "--workdir", world.run, "--json")[1])
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=3", "JAX_PLATFORMS": "cpu"}
    argv = [sys.executable, "-m", "bert_jax", "evaluate", "--workdir", world.run, "--json"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == pytest.approx(found, rel=1e-5)


def test_evaluate_an_earlier_step(world, run) -> None:
    status, out, _ = run("evaluate", "--workdir", world.run, "--step", 2, "--json")
    assert status == 0
    assert json.loads(out)["step"] == 2


def test_evaluate_without_heldout_documents(other, tmp_path, run, refused) -> None:
    status, _, err = run(*pretrain_command(other, tmp_path / "run", "--config.train.steps=2"))
    assert status == 0
    assert "no evaluation: too few held-out documents" in err
    refused("evaluate", "--workdir", tmp_path / "run", says=(str(other.corpus), "too few held-out documents"))


def test_evaluate_on_another_corpus(world, other, tmp_path, run, refused, monkeypatch) -> None:
    """Of the same documents held out, the same figures; without any held out, all documents are read."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(world.corpus, tmp_path / "same")
    own, same = (
        json.loads(run("evaluate", "--workdir", world.run, "--json", *more)[1])
        for more in ((), ("--corpus", f"file://{tmp_path / 'same'}"))
    )
    assert own == same
    status, _, _ = run(*prepare_command(world, tmp_path / "all", "--heldout_fraction", "0"))
    assert status == 0
    found = json.loads(run("evaluate", "--workdir", world.run, "--corpus", tmp_path / "all", "--json")[1])
    assert found["documents"] == 40 > own["documents"]
    assert found["unigram_loss"] != own["unigram_loss"]
    # How the run mixed its corpora says nothing of another one.
    mixed, both = tmp_path / "mixed", f"{world.corpus},{tmp_path / 'all'}"
    words = pretrain_command(world, mixed, "--config.data.weights=(1.0,2.0)", "--config.train.steps=2", corpus=both)
    status, _, err = run(*words)
    assert status == 0, err
    status, out, err = run("evaluate", "--workdir", mixed, "--corpus", tmp_path / "same", "--json")
    assert status == 0, err
    assert json.loads(out)["documents"] == own["documents"]
    says = (str(other.corpus), "another tokenizer", str(world.corpus))
    refused("evaluate", "--workdir", world.run, "--corpus", other.corpus, says=says)


@pytest.mark.slow
def test_a_run_evaluates_on_the_corpus_that_its_config_names(world, other, tmp_path, run, refused, monkeypatch) -> None:
    """Its held-out documents, or all if it holds out none; `evaluate` reads them again, from any directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    assert run(*prepare_command(world, tmp_path / "dev", "--heldout_fraction", "0"))[0] == 0
    shutil.copytree("dev", "one/dev")
    shutil.copytree("dev", "two/dev")
    named = f"--config.evaluate.corpus=dev, one/dev,file://{tmp_path}/two/dev"
    status, _, err = run(*pretrain_command(world, tmp_path / "run", named, "--config.train.steps=2"))
    assert status == 0, err
    recorded = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    last = next(line for line in reversed(recorded) if line["split"] == "heldout")
    monkeypatch.chdir("/")
    again = json.loads(run("evaluate", "--workdir", tmp_path / "run", "--json")[1])
    corpora = ",".join(f"{tmp_path}/{name}" for name in ("dev", "one/dev", "two/dev"))
    elsewhere = run("evaluate", "--workdir", tmp_path / "run", "--corpus", corpora, "--json")[1]
    assert json.loads(elsewhere) == again
    assert again["documents"] == 3 * 40
    assert again["mlm_loss"] == pytest.approx(last["mlm_loss"], rel=1e-5)
    assert again["unigram_loss"] == last["unigram_loss"]
    wrong = f"--config.evaluate.corpus={other.corpus}"
    refused(*pretrain_command(world, tmp_path / "new", wrong), says=(str(other.corpus), "another tokenizer"))
    assert not (tmp_path / "new" / "run.json").exists()


def test_a_run_keeps_the_snapshot_of_its_evaluation_corpus(world, tmp_path, run) -> None:
    """Documents that are added during the run do not change its losses; another text is named."""
    assert run(*prepare_command(world, tmp_path / "dev", "--heldout_fraction", "0"))[0] == 0
    words = ("--config.train.steps=2", "--config.checkpoint.every=1", "--config.evaluate.every=1")
    command = pretrain_command(world, tmp_path / "run", f"--config.evaluate.corpus={tmp_path / 'dev'}", *words)
    assert run(*command)[0] == 0
    before = json.loads(run("evaluate", "--workdir", tmp_path / "run", "--json")[1])
    (tmp_path / "more.txt").write_text(prose(77, 20))
    status, _, err = run("prepare", "--append", "--input", tmp_path / "more.txt", "--output", tmp_path / "dev")
    assert status == 0, err
    assert json.loads(run("evaluate", "--workdir", tmp_path / "run", "--json")[1]) == before
    for evaluated, is_named in ((tmp_path / "dev", False), (world.corpus, True)):
        shutil.rmtree(tmp_path / "run" / "checkpoints" / "2")
        status, _, err = run(*command[:-4], f"--config.evaluate.corpus={evaluated}", *words)
        assert status == 0, err
        assert ("compare losses on equal text only" in err) == is_named
        lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
        last = next(line for line in reversed(lines) if line["split"] == "heldout")
        assert (last["mlm_loss"] == pytest.approx(before["mlm_loss"], rel=1e-5)) != is_named


@pytest.mark.parametrize(
    ("name", "begins"), [("a.png", b"\x89PNG\r\n\x1a\n"), ("a.pdf", b"%PDF-"), ("a.svg", b"<?xml")]
)
def test_plot_draws_a_picture_of_each_format(world, tmp_path, run, name: str, begins: bytes) -> None:
    status, out, err = run("plot", "--workdir", world.run, "--output", tmp_path / name)
    assert (status, out, err) == (0, f"{tmp_path / name}\n", "")
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_curves_that_cannot_be_drawn(world, tmp_path, refused, monkeypatch) -> None:
    refused("plot", "--workdir", world.texts, "--output", tmp_path / "a.png", says=(str(world.texts), "no metrics yet"))
    for output in (tmp_path / "a.xyz", tmp_path / "absent" / "a.png"):
        refused("plot", "--workdir", world.run, "--output", output, says=(str(output), "cannot be written"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    argv = ["plot", "--workdir", world.run, "--output", tmp_path / "a.png"]
    refused(*argv, says=("plot needs matplotlib", "pip install matplotlib"))
    assert is_empty(tmp_path)
