"""`fill-mask` on an exported model: predictions, texts that cannot be filled, and directories without a model."""

import json
import os
import pathlib
import shutil
import sys

import pytest

from bert_jax.models import HEADS
from bert_jax.reports.card import USES
from tests.helpers.commands import is_empty, vocabulary


def files(directory: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_an_export_of_an_export_is_the_same(world, tmp_path, run) -> None:
    status, out, err = run("export", "--model", world.model, "--output", tmp_path / "again")
    assert status == 0, err
    assert "bert with masked_token, next_sentence" in out + err
    assert files(tmp_path / "again") == files(world.model)
    assert len({path.stat().st_mode for path in (tmp_path / "again").iterdir()}) == 1  # all can be read by others


def test_other_metrics_than_the_checkpoint_recorded_are_said(run_copy, tmp_path, run) -> None:
    """The card quotes them: lost, or with another number."""
    argv, path = ["export", "--workdir", run_copy, "--output"], run_copy / "metrics.jsonl"
    lines = path.read_text()
    for name, text in (("right", lines), ("lost", ""), ("other", lines.replace('"mlm_loss": ', '"mlm_loss": 1', 1))):
        path.write_text(text)
        status, _, err = run(*argv, tmp_path / name)
        assert status == 0
        assert ("metrics.jsonl: differs from the record of the checkpoint of step 4" in err) == (name != "right")


def test_export_an_earlier_step(world, tmp_path, run) -> None:
    assert run("export", "--workdir", world.run, "--step", 4, "--output", tmp_path / "4")[0] == 0
    assert files(tmp_path / "4") == files(world.model)
    assert run("export", "--workdir", world.run, "--step", 2, "--output", tmp_path / "2")[0] == 0
    differing = {name for name, content in files(tmp_path / "2").items() if content != files(world.model)[name]}
    assert differing == {"model.safetensors", "README.md", "SHA256SUMS"}


def test_other_formats(world, tmp_path, run, refused, monkeypatch) -> None:
    argv = ["export", "--workdir", world.run, "--output", tmp_path / "made", "--format"]
    assert run(*argv, "stablehlo")[0] == 0
    assert {"model.stablehlo", "weights.npz", "manifest.json"} <= files(tmp_path / "made").keys()
    refused(*argv, "onnx", says=(str(tmp_path / "made"), "holds a model already"))
    shutil.rmtree(tmp_path / "made")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    refused(*argv, "onnx", says=("onnxscript", "pip install onnxscript torch"), after=1)
    assert is_empty(tmp_path)


def test_fill_mask_prints_the_likeliest_predictions_first(world, run) -> None:
    word = vocabulary()[0]
    status, out, err = run("fill-mask", "--model", world.model, "--json", "--top_k", 200, f"{word} [MASK] {word}.")
    assert (status, err) == (0, "")
    guesses = json.loads(out)
    assert all(guess.keys() == {"token", "id", "probability", "text"} for guess in guesses)
    probabilities = [guess["probability"] for guess in guesses]
    assert probabilities == sorted(probabilities, reverse=True)
    assert sum(probabilities) == pytest.approx(1, abs=1e-5)
    tokens = (world.model / "vocab.txt").read_text().splitlines()
    assert [tokens[guess["id"]] for guess in guesses] == [guess["token"] for guess in guesses]
    whole = next(guess for guess in guesses if guess["token"].isalpha() and len(guess["token"]) > 1)
    assert f" {whole['token']} " in whole["text"]
    status, out, _ = run("fill-mask", "--model", world.model, f"{word} [MASK].")
    assert len(out.splitlines()) == 5


def test_fill_mask_reads_texts_from_files_and_standard_input(world, tmp_path, run, monkeypatch) -> None:
    texts = [f"{word} [MASK]." for word in vocabulary()[:2]]
    alone = [run("fill-mask", "--model", world.model, "--json", text)[1] for text in texts]
    (tmp_path / "a.txt").write_text("\n".join(texts) + "\n")
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": text, "id": 7}) for text in texts))
    for name in ("a.txt", "a.jsonl"):
        argv = ["fill-mask", "--model", world.model, "--input"]
        assert run(*argv, tmp_path / name, "--json") == (0, "".join(alone), "")
        with open(tmp_path / name) as file:
            monkeypatch.setattr(sys, "stdin", file)
            assert run(*argv, "-", "--json") == (0, "".join(alone), "")
    _, out, _ = run(*argv, tmp_path / "a.txt", "--top_k", 3)
    assert [len(block.splitlines()) for block in out.split("\n\n")] == [3, 3]


def test_fill_mask_takes_a_work_directory(world, run) -> None:
    text = f"{vocabulary()[0]} [MASK]."
    status, out, err = run("fill-mask", "--model", world.run, "--json", text)
    assert status == 0, err
    assert out == run("fill-mask", "--model", world.model, "--json", text)[1]


def test_texts_that_cannot_be_filled(world, tmp_path, run, refused) -> None:
    argv = ["fill-mask", "--model", world.model]
    refused(*argv, "no mask here", says=("no [MASK]",))
    refused(*argv, "", says=("no [MASK]",))
    (tmp_path / "a.txt").write_text("good [MASK]\nbad\n")
    assert "a.txt:2 has no [MASK]" in run(*argv, "--input", tmp_path / "a.txt")[2]
    (tmp_path / "a.txt").write_text("")
    refused(*argv, "--input", tmp_path / "a.txt", says=("a.txt: no text in it; write one per line",))
    refused(*argv, "caf\udce9 [MASK]", says=("argument --text: the text is not UTF-8",))
    pairs = ["attention", "--model", world.model, "--output", "a.html", "good"]
    refused(*pairs, "caf\udce9", says=("argument --pair: the text is not UTF-8",))
    refused(*argv, "[MASK] " * 40, says=("42 tokens", "32"))
    refused(*argv, "--top_k", 0, "[MASK]", says=("top_k 0", "1 to 200"))
    refused(*argv, "--top_k", 201, "[MASK]", says=("top_k 201", "1 to 200"))


def test_directories_that_are_no_model(world, tmp_path, refused) -> None:
    refused("fill-mask", "--model", tmp_path / "absent", "[MASK]", says=("absent", "no such directory"))
    for place in (world.texts, world.tokenizer):
        refused("fill-mask", "--model", place, "[MASK]", says=(str(place), "config.json"))
    for lost, says in [
        (("model.safetensors",), "model.safetensors: missing, but listed in SHA256SUMS; copy"),
        (("model.safetensors", "SHA256SUMS"), "model.safetensors"),
        (("tokenizer.json", "vocab.txt", "SHA256SUMS"), "no such vocabulary"),
    ]:
        shutil.rmtree(tmp_path / "model", ignore_errors=True)
        shutil.copytree(world.model, tmp_path / "model")
        for name in lost:
            (tmp_path / "model" / name).unlink()
        refused("fill-mask", "--model", tmp_path / "model", "[MASK]", says=(str(tmp_path / "model"), says))


@pytest.mark.parametrize("lost", ["tokenizer.json", "vocab.txt"])
def test_one_file_of_the_tokenizer_is_enough(world, tmp_path, run, lost: str) -> None:
    model = pathlib.Path(shutil.copytree(world.model, tmp_path / "model"))
    (model / lost).unlink()
    (model / "SHA256SUMS").unlink()
    argv = ["--json", f"{vocabulary()[0]} [MASK]."]
    status, out, err = run("fill-mask", "--model", model, *argv)
    assert (status, err) == (0, "")
    assert out == run("fill-mask", "--model", world.model, *argv)[1]


def test_a_damaged_tokenizer(world, tmp_path, refused) -> None:
    model = pathlib.Path(shutil.copytree(world.model, tmp_path / "model"))
    os.truncate(model / "tokenizer.json", 1000)
    refused("fill-mask", "--model", model, "[MASK]", says=(str(model / "tokenizer.json"),))


@pytest.mark.parametrize("keep", [0, 4, 500, -100])
def test_damaged_weights(world, tmp_path, refused, keep: int) -> None:
    model = pathlib.Path(shutil.copytree(world.model, tmp_path / "model"))
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:keep])
    refused("fill-mask", "--model", model, "[MASK]", says=(str(weights),))


def test_a_model_with_the_tokenizer_of_another(world, tmp_path, refused) -> None:
    model = pathlib.Path(shutil.copytree(world.model, tmp_path / "model"))
    with open(model / "vocab.txt", "a") as file:
        file.write("more\n")
    refused("fill-mask", "--model", model, "[MASK]", says=("vocab.txt: differs from SHA256SUMS; copy",))
    (model / "SHA256SUMS").unlink()
    refused("fill-mask", "--model", model, "[MASK]", says=(str(model), "of 201 tokens", "of 200", "remove the wrong"))
    (model / "tokenizer.json").unlink()
    says = (str(model), "the tokenizer has 201 tokens, the model 200", "belongs to another model")
    refused("fill-mask", "--model", model, "[MASK]", says=says)


def test_an_export_has_a_card_whose_code_runs(world, tmp_path, run, refused, monkeypatch) -> None:
    argv = ["export", "--workdir", world.run, "--output", tmp_path / "made", "--license"]
    refused(*argv, "My License", says=("--license My License", "apache-2.0"), after=1)
    for option in ("--license", "--base_model", "--bias", "--retrieval"):  # the files need not exist
        words = [*argv[:-1], "--format", "onnx", option, "absent"]
        refused(*words, says=(f"{option}: only for --format huggingface, whose README.md is a model card",))
    assert run(*argv, "mit")[0] == 0
    text = (tmp_path / "made" / "README.md").read_text()
    assert "license: mit" in text
    assert text.replace("license: mit\n", "") == (world.model / "README.md").read_text().replace(
        "No license was given with this model.\n\n", ""
    )
    monkeypatch.chdir(tmp_path / "made")
    namespace: dict[str, object] = {}
    exec(text.split("```python\n")[1].split("```")[0], namespace)
    assert type(namespace["model"]).__name__ == "BertForMaskedLM"
    assert len(namespace["tokenizer"]) == 200
    transformers = pytest.importorskip("transformers")
    assert set(USES) - {""} <= set(HEADS)
    assert {use.opener for use in USES.values()} <= set(dir(transformers))
