"""Fine-tuning of an adapter: beside `peft` on torch, its optimizer state, its files, and runs that are stopped."""

import contextlib
import dataclasses
import functools
import itertools
import json
import random
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import peft
import pytest
import sentence_transformers
import torch
import transformers

from bert_jax import config as c
from bert_jax.checkpoints.load_model import read_weights
from bert_jax.cli.main import main
from bert_jax.config import ComputeConfig
from bert_jax.finetuning.inputs import peft_can_open
from bert_jax.finetuning.training import _files_of_word_tokenizer
from bert_jax.finetuning.training_sets import TrainingSet, task_training_batches
from bert_jax.interop.huggingface import load_model
from bert_jax.interop.huggingface.peft import find_adapter_targets
from bert_jax.interop.tensors import to_tensors
from bert_jax.loaded_model import load
from bert_jax.models import Adapter, make_model
from bert_jax.models.adapters import init_adapter_matrices, merge_adapter_into_weights, with_adapter
from bert_jax.objectives.frozen_encoder import frozen_encoder_and_teacher, part_without_encoder, with_frozen_encoder
from bert_jax.objectives.tasks import make_task_objective, task_head
from bert_jax.parallel.sharding import BatchBlocks
from bert_jax.tasks.batching import Feed
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import make_features
from bert_jax.tokenizer import load_tokenizer
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import Phase, learning_rate
from bert_jax.training.step import TrainState, train_step
from tests.helpers import torch_training
from tests.helpers.finetuning_runs import (
    finetune,
    finetune_command,
    make_world,
    read_lines,
    stop_after,
    tensors,
    write_lines,
)
from tests.helpers.tiny_models import LETTERS, MAX_POSITIONS, save

# `peft` reads an old name of transformers.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

KIND, STEPS, WARMUP, BATCH, EXAMPLES, RANK, ALPHA = "sequence_classification", 30, 3, 8, 45, 3, 7.5
HEADS = (task_head(KIND, 3),)


def example(rng, number):
    text = "".join(rng.choices(LETTERS, k=rng.randint(2, 13)))
    return {"id": str(number), "text": text, "label": LETTERS.index(text[0]) % 3}


@pytest.mark.parametrize(
    ("family", "targets", "saved", "scan"),
    [
        ("bert", None, ["pooler"], True),
        ("modernbert", ("all-linear",), ["head"], True),
        ("albert", ("all-linear",), ["pooler"], False),
    ],
)
def test_losses_and_weights_follow_peft(tmp_path, family, targets, saved, scan):
    no_dropout = {
        "bert": ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"),
        "albert": ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob"),
        "modernbert": (),
    }[family]
    model, _ = save(tmp_path, family, "ForSequenceClassification", num_labels=3, **dict.fromkeys(no_dropout, 0.0))
    tokenizer, loaded = load_tokenizer(tmp_path), load_model(tmp_path)
    compute = ComputeConfig(scan_layers=scan)

    made = c.finetune_config()
    made.optimizer.update(peak_learning_rate=1e-2, warmup_fraction=WARMUP / STEPS, schedule="linear", weight_decay=0.1)
    made.task.update(kind=KIND, max_seq_len=MAX_POSITIONS)
    config = c.resolve(c.FinetuneConfig, made)
    rng = random.Random(7)
    examples = [example(rng, number) for number in range(EXAMPLES)]
    features = make_features(KINDS[KIND], examples, tokenizer, config.task)[0]
    feed = Feed((MAX_POSITIONS,), BATCH, loaded.config.num_token_types, tokenizer.pad_id)
    batches = list(
        itertools.islice(task_training_batches((TrainingSet(features, feed),), None, 0, BatchBlocks((0,), 1), 0), STEPS)
    )

    adapter = Adapter(find_adapter_targets(loaded.config, targets), RANK, ALPHA, dropout=0.0)
    plain = make_model(loaded.config, compute, HEADS)
    objective = make_task_objective(with_adapter(plain, adapter), KIND, freeze_encoder=False, settings=config.task)
    objective = with_frozen_encoder(objective, loaded.config.num_layers)
    optimizer = make_optimizer(config.optimizer, objective.logical_axes, objective.sections)
    matrices = init_adapter_matrices(adapter, plain.shapes, jax.random.key(0))
    params = jax.tree.map(jnp.asarray, part_without_encoder(loaded.params)) | {"adapter": matrices}
    state = TrainState(
        jnp.zeros((), jnp.int32),
        params,
        optimizer(0.0).init(params),
        jax.random.PRNGKey(0),
        jnp.zeros((), jnp.int32),
        jnp.zeros((), jnp.int32),
        jax.tree.map(jnp.asarray, frozen_encoder_and_teacher(loaded.params, ())),
    )
    schedule = functools.partial(learning_rate, config.optimizer, (Phase(end=STEPS, seq_len=32, batch_size=BATCH),))
    step = jax.jit(functools.partial(train_step, objective, optimizer, schedule, 1))
    states, losses = [state], []
    for batch in batches:
        state, metrics = step(state, batch)
        states.append(state)
        losses.append(metrics["means"]["task_loss"].value())
    sizes = [sum(x.size for x in jax.tree.leaves(tree)) for tree in (params, state.opt_state)]
    assert 2 * sizes[0] <= sizes[1] <= 2 * sizes[0] + 2, "the optimizer has state for more than is trained"

    theirs = as_peft(model, adapter, jax.device_get(matrices), saved)
    early = []  # the weights before each of the first three steps

    def loss_of(model, batch):
        if len(early) < 3:
            early.append(merged_state(theirs))
        real = batch["example_weights"] > 0
        names = ("input_ids", "attention_mask") + (("token_type_ids",) if loaded.config.num_token_types else ())
        inputs = {name: torch.tensor(batch[name][real]).long() for name in names}
        return model(**inputs, labels=torch.tensor(batch["labels"][real]).long()).loss

    trained, norms = torch_training.trajectory(theirs, loss_of, batches, config.optimizer, WARMUP)
    assert max(trained) - min(trained) > 0.3, "the loss hardly moves: the comparison shows nothing"
    assert max(norms) > 1.0, "clipping is never at work"
    np.testing.assert_allclose(losses[0], trained[0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(losses, trained, rtol=0, atol=1e-4)
    # The rate of the first step is 0, so the second step is the first change.
    assert any(not np.array_equal(early[2][name], x) for name, x in early[1].items())
    for ours, found, tolerance in ((states[2], early[2], 1e-5), (state, merged_state(theirs), 1e-4)):
        merged = merge_adapter_into_weights(
            adapter, jax.device_get(ours.params) | {"encoder": loaded.params["encoder"]}
        )
        for name, tensor in to_tensors(merged, loaded.config, HEADS).items():
            np.testing.assert_allclose(tensor, found[name], rtol=0, atol=tolerance, err_msg=name)


def as_peft(model, adapter, matrices, saved):
    """The model of transformers with the same matrices."""
    names = [target.name.rpartition("{layer}.")[2] for target in adapter.targets]
    settings = {"r": RANK, "lora_alpha": ALPHA, "target_modules": names, "modules_to_save": saved}
    theirs = peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_CLS", **settings))
    modules = dict(theirs.base_model.model.named_modules())
    for target in adapter.targets:
        node = matrices
        for part in target.path.split("/"):
            node = node[part]
        for layer in range(len(node["a"]) if node["a"].ndim == 3 else 1):
            a, b = (x[layer] if node["a"].ndim == 3 else x for x in (node["a"], node["b"]))
            module = modules[target.name.format(layer=layer)]
            with torch.no_grad():
                module.lora_A["default"].weight.copy_(torch.tensor(a.T))
                module.lora_B["default"].weight.copy_(torch.tensor(b.reshape(RANK, -1).T))
    return theirs


def merged_state(model):
    """The tensors of a model of `peft` with the products of its matrices added, by the names of transformers."""
    state = {name.removeprefix("base_model.model."): x.detach() for name, x in model.state_dict().items()}
    merged = {}
    for name, x in state.items():
        if ".base_layer." in name:
            module = name.partition(".base_layer.")[0]
            if name.endswith("weight"):
                x = (
                    x
                    + state[f"{module}.lora_B.default.weight"] @ state[f"{module}.lora_A.default.weight"] * ALPHA / RANK
                )
            merged[name.replace(".base_layer", "")] = x.numpy().copy()
        elif ".modules_to_save.default." in name:
            merged[name.replace(".modules_to_save.default", "")] = x.numpy().copy()
        elif "original_module" not in name and "lora_" not in name:
            merged[name] = x.numpy().copy()
    return merged


def test_scanned_and_unrolled_layers_have_equal_dropout(tmp_path):
    save(tmp_path, "bert", "ForSequenceClassification", num_labels=3)
    loaded, outputs = load_model(tmp_path), []
    batch = {name: np.ones((4, 8), np.int32) for name in ("input_ids", "token_type_ids", "attention_mask")}
    adapter = Adapter(find_adapter_targets(loaded.config, ("all-linear",)), RANK, ALPHA, dropout=0.25)
    config = dataclasses.replace(loaded.config, dropout=0.0, attention_dropout=0.0, classifier_dropout=0.0)
    for scan, rng in ((True, jax.random.key(1)), (False, jax.random.key(1)), (True, None)):
        model = with_adapter(make_model(config, ComputeConfig(scan_layers=scan), HEADS), adapter)
        matrices = jax.tree.map(lambda x: jax.random.normal(jax.random.key(0), x.shape), model.shapes["adapter"])
        output = jax.jit(model.apply)(loaded.params | {"adapter": matrices}, batch, rng)
        outputs.append(output["sequence_logits"])
    np.testing.assert_allclose(outputs[0], outputs[1], rtol=0, atol=1e-5)
    assert np.abs(outputs[0] - outputs[2]).max() > 1e-2


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


SETTINGS = ("adapter.rank=4", "adapter.dropout=0.1", "optimizer.peak_learning_rate=1e-2", "train.grad_accum_steps=2")


@pytest.fixture(scope="module")
def run(world, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("adapter") / "run"
    finetune(world, workdir, KIND, *SETTINGS)
    return workdir


def test_only_the_adapter_and_the_head_are_trained_and_saved(world, run):
    start, end = tensors(world / "start"), tensors(run / "model")
    moved = {name for name in end.keys() & start.keys() if not np.array_equal(start[name], end[name])}
    assert {name.rpartition("self.")[2] for name in moved if "pooler" not in name} == {"query.weight", "value.weight"}
    assert {name for name in moved if "pooler" in name} == {"bert.pooler.dense.weight", "bert.pooler.dense.bias"}
    checkpoint = next((run / "runs").glob("*/checkpoints/10/run/metadata"))
    digests = json.loads(checkpoint.read_text())["digests"]
    assert not any("encoder.layers" in name and ".kernel" in name for name in digests)
    assert sum(name.startswith("params.adapter.") for name in digests) == 4  # two matrices of two maps


def test_the_adapter_beside_the_model_is_the_model(run):
    merged, read = load_model(run / "model"), load_model(run / "model" / "adapter")
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-6), merged.params, read.params)
    theirs = peft.AutoPeftModelForSequenceClassification.from_pretrained(run / "model" / "adapter", num_labels=3)
    tensors_of_peft = theirs.merge_and_unload().state_dict()
    for name, x in tensors(run / "model").items():
        np.testing.assert_allclose(x, tensors_of_peft[name].numpy(), rtol=0, atol=1e-6, err_msg=name)


def test_an_exported_adapter_predicts_as_its_model(run, tmp_path):
    output = tmp_path / "adapter"
    assert main(["export", "--workdir", str(run), "--format", "peft", "--output", str(output)]) == 0
    texts = [{"text": "abc", "text_pair": "j"}, {"text": "hij", "text_pair": "c"}]
    for directory in (output, run / "model" / "adapter"):  # the second has no tokenizer
        assert read_weights(directory).labels == ("yes", "no", "perhaps")
        for found, expected in zip(load(directory).predict(texts), load(run).predict(texts), strict=True):
            assert found == expected
    assert main(["export", "--workdir", str(output), "--format", "peft", "--output", str(tmp_path / "no")]) == 2


@pytest.mark.slow
def test_an_adapter_of_words_has_the_tokenizer_of_its_training(world, tmp_path):
    finetune(world, tmp_path / "run", "token_classification", *SETTINGS)
    files = _files_of_word_tokenizer(world / "start")
    assert {"tokenizer.json", "tokenizer_config.json"} <= files.keys()
    for name, content in files.items():
        assert (tmp_path / "run" / "model" / "adapter" / name).read_bytes() == content


def test_a_tokenizer_of_words_encodes_each_word_as_inside_a_sentence(tmp_path):
    save(tmp_path / "base", "roberta")
    (tmp_path / "words").mkdir()
    for name, content in _files_of_word_tokenizer(tmp_path / "base").items():
        (tmp_path / "words" / name).write_bytes(content)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "base", add_prefix_space=True)
    expected = theirs(["a", "b"], is_split_into_words=True, add_special_tokens=False)["input_ids"]
    base, ours = (load_tokenizer(tmp_path / name).encode_words(["a", "b"]) for name in ("base", "words"))
    assert [token for word in ours for token in word] == expected
    assert base != ours


def test_an_architecture_that_transformers_lacks_has_no_adapter_for_peft(tmp_path):
    """`compress --method heads` makes such a model of a BERT."""
    save(tmp_path, "bert", "ForSequenceClassification", num_labels=3)
    weights = read_weights(tmp_path)
    assert peft_can_open(weights)
    config = dataclasses.replace(weights.config, family="research")
    assert not peft_can_open(dataclasses.replace(weights, config=config))


@pytest.mark.parametrize("head", [pytest.param("dense", marks=pytest.mark.slow), "late_interaction"])
def test_an_adapter_of_vectors_encodes_as_its_model(world, tmp_path, head):
    """The adapter keeps pooling, length 1, prompts, maximum length and the projection of tokens."""
    texts, place = ["abc", "a b c d e f g h i j", "hij"], tmp_path / "pairs"
    place.mkdir()
    pairs = [
        {"text": a + b, "text_pair": b + a, "label": float(a < b)} for a, b in itertools.permutations(LETTERS[:4], 2)
    ]
    for name in ("train", "dev"):
        write_lines(place / f"{name}.jsonl", pairs)
    width = ["task.vector_width=8", "task.query_length=10"] if head == "late_interaction" else []
    settings = (f"task.data={place}", "task.query_prompt=a b ", "task.max_seq_len=12", f"task.vector_head={head}")
    finetune(world, tmp_path / "run", "similarity", *SETTINGS[:3], "task.positive_from=1", *settings, *width)
    output = tmp_path / "adapter"
    assert main(["export", "--workdir", str(tmp_path / "run"), "--format", "peft", "--output", str(output)]) == 0
    theirs = {"dense": "SentenceTransformer", "late_interaction": "MultiVectorEncoder"}[head]
    model = getattr(sentence_transformers, theirs)(str(output), device="cpu")
    expected = np.concatenate([*map(np.atleast_2d, model.encode_query(texts, convert_to_numpy=True))])
    for directory in (tmp_path / "run", tmp_path / "run" / "model" / "adapter", output):
        found = load(directory).encode(texts, truncate=True, prompt_name="query")
        found = found if isinstance(found, np.ndarray) else found.vectors
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5, err_msg=directory.name)
    # Earlier versions wrote only the adapter itself; the export takes the other files from the model.
    for path in (tmp_path / "run" / "model" / "adapter").iterdir():
        if path.name not in ("adapter_config.json", "adapter_model.safetensors"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    with contextlib.suppress(FileNotFoundError):  # the digests of an earlier version name no removed file
        (tmp_path / "run" / "model" / "SHA256SUMS").unlink()
    again = tmp_path / "again"
    assert main(["export", "--workdir", str(tmp_path / "run"), "--format", "peft", "--output", str(again)]) == 0
    before, after = (
        {path.relative_to(top): path.read_bytes() for path in top.rglob("*") if path.is_file()}
        for top in (output, again)
    )
    assert before == after


def test_an_interrupted_training_of_an_adapter_resumes_to_the_same_bits(world, run, tmp_path, monkeypatch):
    argv = finetune_command(world, tmp_path / "run", KIND, *SETTINGS, "checkpoint.every=3")
    with monkeypatch.context() as patch:
        stop_after(patch, 4, RuntimeError("killed"))
        with pytest.raises(RuntimeError, match="killed"):
            main(argv)
    assert main(argv) == 0
    for name in ("model.safetensors", "adapter/adapter_model.safetensors"):
        assert (tmp_path / "run" / "model" / name).read_bytes() == (run / "model" / name).read_bytes()
    lines = (
        [line["loss"] for line in read_lines(next(at.glob("runs/*/metrics.jsonl"))) if line["split"] == "train"]
        for at in (tmp_path / "run", run)
    )
    assert next(lines) == next(lines)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["adapter.rank=0"], "config.adapter.rank=0 must be at least 1"),
        (["adapter.alpha=8"], "config.adapter.alpha has no effect with config.adapter.rank=None"),
        (["adapter.rank=4", "adapter.targets=value, qeury"], "is called 'qeury'; did you mean 'query'?"),
        (
            ["adapter.rank=4", "adapter.targets=classifier"],
            "no linear map of this bert encoder is called 'classifier'",
        ),
        (["adapter.rank=4", "adapter.dropout=1.0"], "config.adapter.dropout=1.0 must lie"),
        (["adapter.rank=4", "optimizer.freeze_encoder=True"], "config.optimizer.freeze_encoder has no effect with"),
        (["adapter.rank=4", "task.random_weights=True"], "an adapter changes trained weights"),
    ],
)
def test_settings_that_are_refused(world, tmp_path, capfd, settings, says):
    assert main(finetune_command(world, tmp_path / "run", KIND, *settings)) == 2
    err = [line for line in capfd.readouterr().err.splitlines() if not line.startswith(("custom ", "task "))]
    assert 1 <= len(err) <= 2, err
    assert says in err[0]
    assert not (tmp_path / "run").exists()


def test_an_adapter_is_no_start_of_an_adapter(world, run, tmp_path, capsys):
    start = run / "model" / "adapter"
    assert main(finetune_command(world, tmp_path / "no", KIND, "adapter.rank=4", start=start)) == 2
    assert "is an adapter, and `peft` opens no adapter of an adapter" in capsys.readouterr().err
    finetune(world, tmp_path / "all", KIND, "task.epochs=0.2", "optimizer.peak_learning_rate=0.0", start=start)
    found, expected = (load_model(at).params for at in (tmp_path / "all" / "model", start))
    jax.tree.map(np.testing.assert_array_equal, found, expected)
