"""Fine-tuning through the masked-token head: its files in transformers, stops, and settings that do not fit."""

import json

import pytest
import transformers

import bert_jax
from bert_jax.cli.main import main
from bert_jax.loaded_model import load
from tests.helpers.finetuning_runs import finetune, finetune_command, make_world, read_lines, stop_after, tensors
from tests.helpers.tiny_models import save

KIND = "sequence_classification"
SETTINGS = (
    "task.labels=None",
    "task.columns=text=text,text_pair=text_pair,label=label",
    "task.template={text} j [MASK]. {text_pair}",
    "task.verbalizers=yes=a|b,no=c,perhaps=d",
    "task.class_weights=balanced",
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def run(world, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("prompt") / "run"
    finetune(world, workdir, KIND, *SETTINGS)
    return workdir


def test_an_export_says_how_transformers_predicts_and_predicts_so(world, run, tmp_path, monkeypatch):
    output = tmp_path / "out"
    assert main(["export", "--workdir", str(run), "--output", str(output)]) == 0
    card = (output / "README.md").read_text()
    code = card.partition("```python\n")[2].partition("```")[0]
    assert "AutoModelForMaskedLM" in code
    described = json.loads((output / "task.json").read_text())
    assert described["config"]["template"] == "{text} j [MASK]. {text_pair}"
    assert described["config"]["verbalizers"] == "no=c,perhaps=d,yes=a|b"
    assert json.loads((output / "config.json").read_text())["architectures"] == ["BertForMaskedLM"]
    monkeypatch.chdir(output)
    texts = {"text": "abc dd", "text_pair": "j i"}
    names: dict = {}
    code = code.replace("'a text'", repr(texts["text"])).replace("'another text'", repr(texts["text_pair"]))
    exec(code, names)  # the code that the card shows
    for directory in (run, output):
        (answer,) = load(directory).predict([texts])
        assert answer["probabilities"] == pytest.approx(names["probabilities"], abs=1e-5)
        assert answer["label"] == max(names["probabilities"], key=names["probabilities"].get)
    predictions = read_lines(run / "predictions" / "custom-dev.jsonl")
    answers = load(output).predict([{"text": row["text"], "text_pair": row["text_pair"]} for row in dev_rows(world)])
    assert [one["label"] for one in answers] == [one["label"] for one in predictions]


def test_other_runtimes_score_the_words_at_the_mask(run):
    checks = bert_jax.verify_run(run / "model", original=run / "model")
    scored = [check for check in checks if "examples; bert_jax" in check.line]
    assert scored
    assert all(" 0.0000 lost" in check.line for check in scored), checks


def dev_rows(world):
    return read_lines(world / KIND / "dev.jsonl")


def test_only_the_head_of_masked_tokens_is_in_the_model(world, run):
    model = transformers.AutoModelForMaskedLM.from_pretrained(run / "model")
    start = tensors(world / "start")
    moved = tensors(run / "model")["cls.predictions.transform.dense.weight"]
    assert (moved != start["cls.predictions.transform.dense.weight"]).any()
    assert not any("classifier" in name for name in model.state_dict())


@pytest.mark.slow
def test_an_interrupted_training_resumes_to_the_same_bits(world, run, tmp_path, monkeypatch):
    argv = finetune_command(world, tmp_path / "run", KIND, *SETTINGS, "checkpoint.every=3")
    with monkeypatch.context() as patch:
        stop_after(patch, 4, RuntimeError("killed"))
        with pytest.raises(RuntimeError, match="killed"):
            main(argv)
    assert main(argv) == 0
    assert (tmp_path / "run/model/model.safetensors").read_bytes() == (run / "model/model.safetensors").read_bytes()
    words = [setting.replace("no=c", "no=e") for setting in SETTINGS]
    assert main(finetune_command(world, tmp_path / "run", KIND, *words, "checkpoint.every=3")) == 2


@pytest.mark.slow
def test_an_adapter_trains_through_the_masked_token_head(world, tmp_path, capsys):
    finetune(world, tmp_path / "run", KIND, *SETTINGS, "adapter.rank=2", "task.epochs=0.4")
    assert "`peft` opens only a head of a task over an exported model" in capsys.readouterr().err
    assert not (tmp_path / "run/model/adapter").exists()
    transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "run/model")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (("task.verbalizers=yes=a",), "config.task.verbalizers has no effect with config.task.template=None"),
        (("task.template={text} [MASK]", "task.kind=regression"), "config.task.template has no effect with"),
        (("task.template={text} [MASK] {text_pair}",), "the word 'yes' of label 'yes' is not one token"),
        (("task.template={text}",), "has [MASK] 0 times; write it once"),
    ],
)
def test_settings_that_are_refused(world, tmp_path, capfd, settings, says):
    kind = "regression" if "regression" in settings[-1] else KIND
    assert main(finetune_command(world, tmp_path / "run", kind, *settings)) == 2
    err = [line for line in capfd.readouterr().err.splitlines() if not line.startswith(("custom ", "task "))]
    assert 1 <= len(err) <= 2, err
    assert says in err[0]
    assert not (tmp_path / "run").exists()


def test_a_start_without_the_head_is_refused(world, tmp_path, capsys):
    save(tmp_path / "start", "bert", "ForSequenceClassification", num_labels=3)
    argv = finetune_command(world, tmp_path / "run", KIND, *SETTINGS, start=tmp_path / "start")
    assert main(argv) == 2
    assert "without masked_token" in capsys.readouterr().err


def test_a_pretrained_model_is_no_predictor(world, capsys):
    assert main(["predict", "--model", str(world / "modern"), "--input", str(world / KIND / "dev.jsonl")]) == 2
    assert "this model predicts the masked token only; fine-tune it first" in capsys.readouterr().err
