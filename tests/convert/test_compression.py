"""Smaller models: importance in closed form, removed parts against transformers, and the verb from end to end."""

import dataclasses
import itertools
import json
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from bert_jax.checkpoints.load_model import read_weights
from bert_jax.cli.main import main
from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.console import Console
from bert_jax.convert.eval_sets import EvalSet, compare_scores, dev_set_and_metric, task_eval_set
from bert_jax.convert.program import run_readme_code
from bert_jax.convert.prune import TARGETS, choose_layers_to_keep, gate_importance, multiply_heads_by_gates
from bert_jax.errors import UserError
from bert_jax.finetuning.own_labels import OwnFile, infer_task_of_own_file
from bert_jax.finetuning.task_data import TaskSplit, score_names
from bert_jax.interop.huggingface import export_model, load_model
from bert_jax.interop.tensors import flatten_params, unflatten_params
from bert_jax.models import Head, make_model
from bert_jax.models.encoder import is_global_layer
from bert_jax.tasks.scoring import score_predictions
from bert_jax.tasks.table import TASKS
from bert_jax.tokenizer import load_tokenizer
from tests.helpers import tiny_models, tokenizer_directories
from tests.helpers.family_cases import CASES, batch_of, model_of

CONFIG = EncoderConfig(vocab_size=9, hidden_size=8, num_layers=3, num_heads=2, mlp_size=16)
SHAPES = {
    "attention/output/kernel": (8, 8),
    "attention/output/bias": (8,),
    "mlp_down/kernel": (16, 8),
    "mlp_down/bias": (8,),
}


@pytest.mark.parametrize("name", TARGETS)
def test_importance_is_the_mean_of_the_gates_derivatives(name: str) -> None:
    """The loss is sum(x * w^2 / 2), so that the derivative of a gate on some w is the sum of x * w^2 over them."""
    rng = np.random.default_rng(0)
    weights = {path: rng.standard_normal((3, *shape)).astype(np.float32) for path, shape in SHAPES.items()}
    params = unflatten_params({f"encoder/layers/{path}": x for path, x in weights.items()})
    scales = rng.standard_normal(5).astype(np.float32)

    def loss(params, example):
        return 0.5 * example["input_ids"][0] * sum(jnp.sum(x * x) for x in flatten_params(params).values())

    found = gate_importance(TARGETS[name], CONFIG, params, {"input_ids": scales}, loss)
    squares = {path: np.square(x.astype(np.float64)) for path, x in weights.items()}
    wanted = {
        "heads": squares["attention/output/kernel"].reshape(3, 2, 4 * 8).sum(-1),
        "mlp": squares["mlp_down/kernel"].sum(-1),
        "layers": sum(x.reshape(3, -1).sum(-1) for x in squares.values()),
    }[name]
    np.testing.assert_allclose(found, np.abs(scales).mean() * wanted, rtol=1e-5)


@pytest.mark.parametrize(("every", "first_norm"), [(1, True), (3, False), (2, True), (0, True)])
def test_the_best_layers_equal_the_best_of_all_valid_choices(every: int, first_norm: bool) -> None:
    fields = {"local_window": 4 if every != 1 else None, "global_every": every, "first_attention_norm": first_norm}
    config = EncoderConfig(num_layers=7, **fields)
    kinds = [is_global_layer(config, layer) for layer in range(7)]
    for seed, count in itertools.product(range(5), range(1, 7)):
        found = np.random.default_rng(seed).random(7)
        fitting = [
            kept
            for kept in itertools.combinations(range(7), count)
            if [kinds[layer] for layer in kept] == kinds[:count] and (first_norm or kept[0] == 0)
        ]
        best = max(fitting, key=lambda kept: found[list(kept)].sum())
        assert choose_layers_to_keep(config, found, count) == list(best)


def test_layers_keep_their_windows() -> None:
    config = EncoderConfig(num_layers=4, global_every=0, local_window=16, local_windows=(4, 16, 8, 8))
    flat = {"encoder/layers/mlp_down/bias": np.arange(4)}
    smaller, flat, _ = TARGETS["layers"].remove(config, flat, np.array([2.0, 0.1, 3.0, 1.0]), 0.25)
    assert (smaller.num_layers, smaller.local_windows, smaller.local_window) == (3, (4, 8, 8), 8)
    np.testing.assert_array_equal(flat["encoder/layers/mlp_down/bias"], [0, 2, 3])


@pytest.fixture(scope="module", params=["bert", "modernbert"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A family, the model of transformers, and where it is saved."""
    place = tmp_path_factory.mktemp(request.param)
    theirs, _ = tiny_models.save(place, request.param, "ForSequenceClassification")
    return request.param, theirs, place


def pruned_logits(place: pathlib.Path, output: pathlib.Path, name: str, found: np.ndarray, amount: float):
    """The logits of a pruned model that transformers opens, and the encoder that it then has."""
    loaded = load_model(place)
    flat = {path: np.asarray(x) for path, x in flatten_params(loaded.params).items()}
    config, flat, _ = TARGETS[name].remove(loaded.config, flat, found, amount)
    export_model(unflatten_params(flat), config, loaded.heads, place, output, loaded.labels)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(output).eval()
    return logits(model), model


def logits(model) -> np.ndarray:
    with torch.no_grad():
        return model(input_ids=torch.arange(5, 19).reshape(2, 7)).logits.numpy()


def blocks(model):
    """The layers of a model of transformers, and of each the matrices at the end of attention and MLP."""
    layers = model.model.layers if hasattr(model, "model") else model.bert.encoder.layer
    ends = [
        (one.attn.Wo, one.mlp.Wo) if hasattr(one, "attn") else (one.attention.output.dense, one.output.dense)
        for one in layers
    ]
    return layers, ends


def test_removed_parts_are_those_that_write_nothing(tiny, tmp_path) -> None:
    """Zero the same MLP features in the whole model, and take the same layers out of it."""
    family, theirs, place = tiny
    rng = np.random.default_rng(0)
    copy = type(theirs)(theirs.config).eval()

    features = rng.random((4, 24))
    copy.load_state_dict(theirs.state_dict())
    for layer in range(4):
        blocks(copy)[1][layer][1].weight.data[:, np.argsort(features[layer])[:8]] = 0
    found, model = pruned_logits(place, tmp_path / "mlp", "mlp", features, 0.3)
    np.testing.assert_allclose(found, logits(copy), rtol=0, atol=1e-5)
    assert model.config.intermediate_size == 16

    copy.load_state_dict(theirs.state_dict())
    # In a ModernBERT blocks 0 and 3 read everything and block 3 would come third: the last one goes.
    importances, gone = np.array([0.5, 0.1, 0.3, 0.2]), {"bert": 1, "modernbert": 3}[family]
    del blocks(copy)[0][gone]
    found, model = pruned_logits(place, tmp_path / "layers", "layers", importances, 0.25)
    np.testing.assert_allclose(found, logits(copy), rtol=0, atol=1e-5)
    assert model.config.num_hidden_layers == 3


HEADS = [Head("hidden_states"), Head("sequence_classification", 3)]


@pytest.mark.parametrize("positions", ["learned", "rotary", "relative", "disentangled", "windows and global tokens"])
def test_removed_heads_are_those_that_write_nothing(positions: str) -> None:
    """The hidden states and logits of the whole model, in which the least important heads of each layer write zeros.

    A table of scores by head is one for all layers: these lose the same heads, which matter least in sum.
    """
    config = EncoderConfig(vocab_size=40, hidden_size=48, num_layers=3, num_heads=6, mlp_size=16, max_positions=32)
    if positions == "windows and global tokens":
        config = dataclasses.replace(config, local_window=4, global_every=0, separator_id=3)
    else:
        config = dataclasses.replace(config, positions=positions, query_key_norm=positions == "rotary")
    model = make_model(config, ComputeConfig(), tuple(HEADS))
    params = jax.device_get(jax.jit(model.init)(jax.random.key(0)))
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda x: x + 0.1 * rng.standard_normal(x.shape).astype(np.float32), params)
    ids = rng.integers(4, 40, (2, 20))
    ids[:, 7] = 3
    batch = {"input_ids": ids, "token_type_ids": np.zeros_like(ids), "attention_mask": np.ones_like(ids)}
    importance = rng.random((3, 6))
    flat = {path: np.asarray(x) for path, x in flatten_params(params).items()}
    smaller, removed, description = TARGETS["heads"].remove(config, flat, importance, 0.3)
    assert (smaller.num_heads, smaller.head_dim, smaller.family) == (4, 8, "research")
    assert description.startswith("2 of 6 heads of each layer removed; transformers has no such bert")
    if positions == "relative":
        importance[:] = importance.sum(0)
    gates = np.ones((3, 6), np.float32)
    np.put_along_axis(gates, np.argsort(importance, axis=1)[:, :2], 0, axis=1)
    whole = jax.jit(model.apply)(unflatten_params(multiply_heads_by_gates(flat, jnp.asarray(gates))), batch, None)
    kernel = removed["encoder/layers/attention/query/kernel"]
    assert kernel.shape == (3, 48, 32)
    small = jax.jit(make_model(smaller, ComputeConfig(), tuple(HEADS)).apply)(unflatten_params(removed), batch, None)
    for name, expected in whole.items():
        np.testing.assert_allclose(small[name], expected, rtol=0, atol=2e-5)


def test_transformers_opens_a_nomic_bert_without_heads(tmp_path) -> None:
    """Zero the same heads in the model of transformers, whose `config.json` has the size of a head."""
    theirs = model_of(CASES["nomic_bert"], "NomicBertForMaskedLM")
    theirs.save_pretrained(tmp_path / "whole")
    loaded = load_model(tmp_path / "whole")
    layers, heads = loaded.config.num_layers, loaded.config.num_heads
    importance = np.random.default_rng(0).random((layers, heads))
    flat = {path: np.asarray(x) for path, x in flatten_params(loaded.params).items()}
    config, flat, description = TARGETS["heads"].remove(loaded.config, flat, importance, 1 / heads)
    assert description == f"1 of {heads} heads of each layer removed"
    tokenizer = tokenizer_directories.of_family("nomic_bert", tmp_path / "tokenizer")
    export_model(unflatten_params(flat), config, loaded.heads, tokenizer, tmp_path / "smaller")
    assert load_model(tmp_path / "smaller").config == config
    smaller = transformers.NomicBertForMaskedLM.from_pretrained(tmp_path / "smaller").eval()
    assert sum(x.numel() for x in smaller.parameters()) < sum(x.numel() for x in theirs.parameters())
    size = config.head_dim
    for layer, head in zip(theirs.nomic_bert.layers, importance.argmin(axis=1), strict=True):
        layer.self_attn.o_proj.weight.data[:, size * head : size * (head + 1)] = 0
    ids = torch.tensor(batch_of(CASES["nomic_bert"])["input_ids"][:, 0]).long()
    with torch.no_grad():
        found, expected = smaller(ids).logits, theirs(ids).logits
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("name", "amount"), [("heads", 0.01), ("heads", 1.0), ("layers", 1.0)])
def test_nothing_and_everything_are_refused(name: str, amount: float) -> None:
    shape = (3, *TARGETS[name].gate_shape(CONFIG))
    with pytest.raises(UserError, match="give a smaller fraction" if amount == 1 else "give at least 0.5"):
        TARGETS[name].remove(CONFIG, {"encoder/layers/mlp_down/kernel": np.ones((3, 16, 8))}, np.ones(shape), amount)


@pytest.mark.parametrize(("mlp_size", "amount"), [(64, 0.05), (21, 0.04)])
def test_a_fraction_of_less_than_a_multiple_of_mlp_features_is_refused(mlp_size: int, amount: float) -> None:
    config = dataclasses.replace(CONFIG, mlp_size=mlp_size)
    with pytest.raises(UserError, match=rf"--amount {amount} removes none of {mlp_size} MLP features"):
        TARGETS["mlp"].remove(config, {}, np.ones((3, mlp_size)), amount)


@pytest.mark.parametrize("metric", ["accuracy", "accuracy_mismatched"])
def test_the_metric_of_the_training_chooses_the_dev_set_and_is_a_score_of_it(metric: str) -> None:
    """A fine-tuning on MNLI scores both dev sets, under names with the suffix of the set."""
    task = TASKS["mnli"]
    examples = [{"id": str(n), "label": n} for n in range(3)]
    dev_sets = [name for name in task.sets if name.startswith("dev")]
    scored_by_training = [name for dev in dev_sets for name in score_names(task, [TaskSplit(dev, examples, [])])]
    assert metric in scored_by_training
    dev_set, name = dev_set_and_metric(dev_sets, metric)
    assert score_names(task, [TaskSplit(dev_set, examples, [])]) == [metric]
    assert name in score_predictions(task, examples, [0, 1, 2])


def test_a_metric_that_the_dev_set_does_not_define_is_refused(tmp_path: pathlib.Path) -> None:
    """NoAns_f1 is a score of the questions without an answer, and here every question has one."""
    question = {"question": "a b", "context": "c d", "answers": [{"text": "c", "answer_start": 0}]}
    for name in ("train", "dev"):
        lines = [json.dumps(question | {"id": str(n), "is_impossible": False}) for n in range(4)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    tiny_models.save(tmp_path / "model", "bert", "ForQuestionAnswering")
    files = {"train": "train.jsonl", "dev": "dev.jsonl", "data": str(tmp_path)}
    config = {"name": "custom", "kind": "question_answering", "metric": "NoAns_f1", "max_seq_len": 16} | files
    described = {"name": "custom", "kind": "question_answering", "labels": [], "impossible": True, "config": config}
    (tmp_path / "model" / "task.json").write_text(json.dumps(described))
    with pytest.raises(UserError, match="NoAns_f1: not defined on the examples of dev; give other examples"):
        task_eval_set(read_weights(tmp_path / "model"), None, 4, Console(silent=True))


def test_the_interval_equals_the_closed_form_of_paired_differences() -> None:
    """A mean over units has a closed form: 1.96 times the standard error of the mean difference."""
    rng = np.random.default_rng(0)
    before, difference = rng.normal(0, 10, 400), rng.normal(-0.5, 1, 400)

    def scorer(outputs):
        values = np.concatenate([one["x"] for one in outputs])
        return lambda drawn: float(values[drawn].mean())

    batches = [{"rows": np.arange(200)}, {"rows": np.arange(200, 400)}]
    eval_set = EvalSet(
        metric="mean",
        sign=1,
        num_units=400,
        outputs=("x",),
        batches=batches,
        scorer=scorer,
        training_examples=dict,
        loss=lambda config: lambda *_: jnp.zeros(()),
    )
    lost = compare_scores(
        eval_set, lambda one: {"x": before[one["rows"]]}, lambda one: {"x": (before + difference)[one["rows"]]}
    )
    assert lost.lost == pytest.approx(-difference.mean())
    assert lost.margin == pytest.approx(1.96 * difference.std(ddof=1) / 20, rel=0.15)
    lower = compare_scores(
        dataclasses.replace(eval_set, sign=-1),
        lambda one: {"x": before[one["rows"]]},
        lambda one: {"x": 0 * one["rows"]},
    )
    assert lower.lost == pytest.approx(-before.mean())


SETTINGS = {"name": "custom", "kind": "sequence_classification", "train": "train.tsv", "dev": "dev.tsv"}


@pytest.fixture
def finetuned(tmp_path: pathlib.Path) -> pathlib.Path:
    """A tiny model as `finetune` leaves it, and its files."""
    for name, count in (("train", 6), ("dev", 40)):
        lines = [f"{'ab'[n % 2]} c d\t{n % 2}" for n in range(count)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    labels = {"id2label": {0: "0", 1: "1"}, "label2id": {"0": 0, "1": 1}}
    tiny_models.save(tmp_path / "model", "bert", "ForSequenceClassification", **labels)
    config = SETTINGS | {"data": str(tmp_path), "max_seq_len": 8}
    described = {"name": "custom", "kind": "sequence_classification", "labels": ["0", "1"], "impossible": False}
    (tmp_path / "model" / "task.json").write_text(json.dumps(described | {"config": config}))
    return tmp_path / "model"


def compressed(model: pathlib.Path, capsys: pytest.CaptureFixture, *words: str) -> list[str]:
    """What the verb prints; its card says the same."""
    output = model.parent / "smaller"
    assert main(["compress", "--model", str(model), "--output", str(output), *words]) == 0, capsys.readouterr().err
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == str(output)
    card = (output / "README.md").read_text()
    assert all(f"- {line}" in card for line in lines)
    assert main(["verify", str(output)]) == 0
    capsys.readouterr()
    return lines


def test_a_pruned_model_is_measured_and_opens_in_transformers(finetuned, capsys) -> None:
    what, size, time, scores = compressed(
        finetuned, capsys, "--method", "layers", "--amount", "0.25", "--examples", "3"
    )
    assert what.startswith("1 of 4 layers removed (of 0 to 3: ")
    ratio = float(size.rpartition(", ")[2].split()[0])
    files = [finetuned.parent / name / "model.safetensors" for name in ("smaller", "model")]
    assert ratio == pytest.approx(files[0].stat().st_size / files[1].stat().st_size, abs=0.1)
    assert " of the time" in time
    # The score by transformers, of the dev file and of both models.
    rows = [line.split("\t") for line in (finetuned.parent / "dev.tsv").read_text().splitlines()[1:]]
    found = []
    for place in (finetuned, finetuned.parent / "smaller"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(place)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(place).eval()
        with torch.no_grad():
            guesses = model(**tokenizer([text for text, _ in rows], return_tensors="pt")).logits.argmax(1)
        found.append(np.mean([int(label) == guess for (_, label), guess in zip(rows, guesses.tolist(), strict=True)]))
    assert f"accuracy on 40 held-out examples: {found[0]:.4f} before, {found[1]:.4f} after" in scores


@pytest.mark.slow
@pytest.mark.parametrize("method", ["onnx_int8", "heads", "mlp"])
def test_other_methods_from_end_to_end(finetuned, capsys, method: str) -> None:
    if method == "onnx_int8":
        pytest.importorskip("onnxruntime")
    amount = ["--amount", "0.5"] if method in TARGETS else []
    lines = compressed(finetuned, capsys, "--method", method, *amount)
    assert len(lines) == 4
    assert "accuracy on 40 held-out examples" in lines[3]
    if method == "onnx_int8":
        readme = (finetuned.parent / "smaller" / "README.md").read_text()
        assert run_readme_code(readme, finetuned.parent / "smaller")
        assert "enable_truncation(8)" in readme  # as `predict`: the length of the training


@pytest.mark.parametrize(
    ("count", "said"),
    [(1, "(too few examples for an interval)"), pytest.param(3, "(95 % interval ", marks=pytest.mark.slow)],
)
def test_a_single_example_has_no_interval(finetuned, capsys, count: int, said: str) -> None:
    lines = (finetuned.parent / "dev.tsv").read_text().splitlines(keepends=True)
    (finetuned.parent / "dev.tsv").write_text("".join(lines[: count + 1]))
    assert said in compressed(finetuned, capsys, "--method", "layers", "--amount", "0.25")[3]


def test_draws_without_a_score_are_left_out() -> None:
    """A draw has no score without the first unit, as NoAns_f1 without a question that has no answer."""

    def scorer(outputs):
        values = outputs[0]["x"]
        return lambda drawn: float(values[drawn].mean()) if 0 in drawn else math.nan

    eval_set = EvalSet(
        metric="mean",
        sign=1,
        num_units=4,
        outputs=("x",),
        batches=[{"rows": np.arange(4.0)}],
        scorer=scorer,
        training_examples=dict,
        loss=lambda config: lambda *_: jnp.zeros(()),
    )
    lost = compare_scores(eval_set, lambda batch: {"x": batch["rows"]}, lambda batch: {"x": 2 * batch["rows"]})
    assert lost.lost == pytest.approx(-1.5)
    assert 0 < lost.margin < 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--method", "layers"], "the methods heads, mlp, layers need --amount"),
        (["--method", "onnx_int8", "--amount", "0.5"], "other methods do not accept it"),
        (["--method", "mlp", "--amount", "1"], "--amount 1: a fraction above 0 and below 1"),
        (["--method", "mlp", "--amount", "0.5", "--examples", "0"], "--examples 0: at least 1"),
    ],
)
def test_options_that_do_not_fit(words: list[str], said: str, tmp_path, capsys) -> None:
    assert main(["compress", "--model", str(tmp_path), "--output", str(tmp_path / "out"), *words]) == 2
    assert said in capsys.readouterr().err


def test_a_pretrained_model_needs_a_corpus(tmp_path, capsys) -> None:
    tiny_models.save(tmp_path / "model", "bert")
    words = ["compress", "--model", str(tmp_path / "model"), "--method", "layers", "--amount", "0.5"]
    assert main([*words, "--output", str(tmp_path / "out")]) == 2
    assert "a pretrained model is measured on a corpus; give --data CORPUS" in capsys.readouterr().err


@pytest.fixture
def finetuned_on_a_file(tmp_path: pathlib.Path) -> pathlib.Path:
    """A tiny model as `finetune --data FILE` leaves it: the path of the file is absolute, and no label is listed."""
    names = ["Food", "Toys, Games = 'fun'; \"all\" | ½"]
    rows = [json.dumps({"text": f"{'ab'[n % 2]} c d", "topic": names[n % 2]}) for n in range(40)]
    (tmp_path / "topics.jsonl").write_text("\n".join(rows))
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: n for n, name in enumerate(names)}}
    tiny_models.save(tmp_path / "model", "bert", "ForSequenceClassification", **labels)
    file = OwnFile(path=str(tmp_path / "topics.jsonl"), text=("text",), label=("topic",), dev_fraction=0.5)
    config = infer_task_of_own_file(file).task | {"max_seq_len": 8}
    described = {"name": "custom", "kind": config["kind"], "labels": names, "impossible": False, "config": config}
    (tmp_path / "model" / "task.json").write_text(json.dumps(described))
    return tmp_path / "model"


def dev_texts(model: pathlib.Path, data: pathlib.Path | None) -> list[str]:
    """The texts of the dev set that the scores of `compress` and `verify --run --original` read."""
    weights = read_weights(str(model))
    eval_set = task_eval_set(weights, None if data is None else str(data), 4, Console(silent=True))
    assert len(next(iter(eval_set.training_examples().values()))) == 4
    tokens = load_tokenizer(model).tokens
    return [
        " ".join(tokens[i] for i in row)
        for batch in eval_set.batches
        for row, weight in zip(batch["input_ids"], batch["example_weights"], strict=True)
        if weight
    ][: eval_set.num_units]


def test_labels_may_have_any_characters_and_a_moved_file_is_given_as_data(finetuned_on_a_file) -> None:
    model, file = finetuned_on_a_file, finetuned_on_a_file.parent / "topics.jsonl"
    texts = dev_texts(model, None)
    assert len(texts) == 20
    moved = model.parent / "elsewhere" / "topics.jsonl"
    moved.parent.mkdir()
    file.rename(moved)
    with pytest.raises(UserError, match=r"topics\.jsonl: no such file; give the file of the task as --data"):
        dev_texts(model, None)
    assert dev_texts(model, moved) == dev_texts(model, moved.parent) == texts
    # A file at the path of the training is not read if another file is given.
    file.write_text(moved.read_text())
    moved.write_text(moved.read_text().replace("c d", "e"))
    assert any("c" in text.split() for text in dev_texts(model, None))
    assert not any("c" in text.split() for text in dev_texts(model, moved))
    for absent in (model.parent / "absent", model.parent / "absent.jsonl"):
        with pytest.raises(UserError, match=r"absent.*: no such file or directory"):
            dev_texts(model, absent)


def test_the_directory_of_data_replaces_the_directories_of_the_training(finetuned) -> None:
    texts = dev_texts(finetuned, None)
    path = finetuned / "task.json"
    described = json.loads(path.read_text())
    described["config"] |= {"data": None} | {name: str(finetuned.parent / f"{name}.tsv") for name in ("train", "dev")}
    path.write_text(json.dumps(described))
    assert dev_texts(finetuned, None) == texts
    moved = finetuned.parent / "moved"
    moved.mkdir()
    with pytest.raises(UserError, match=r"moved.dev\.tsv: no such file; give the directory of the files"):
        dev_texts(finetuned, moved)
    for name in ("train", "dev"):
        (finetuned.parent / f"{name}.tsv").rename(moved / f"{name}.tsv")
    assert dev_texts(finetuned, moved) == texts
    with pytest.raises(UserError, match="a file, but the task has several"):
        dev_texts(finetuned, moved / "dev.tsv")
    described["config"] |= {"train": "/one/a.tsv", "dev": "/another/a.tsv"}
    path.write_text(json.dumps(described))
    with pytest.raises(UserError, match="same name in different directories"):
        dev_texts(finetuned, moved)
