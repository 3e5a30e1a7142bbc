"""Phases with their own rotary base, window, weight decay and growing batch, beside several runs and transformers."""

import dataclasses
import functools
import json
import pathlib
import shutil

import jax
import numpy as np
import pytest
import torch
import transformers

from bert_jax import config as c
from bert_jax.api import pretrain
from bert_jax.batches.pipeline import make_sequences, special_ids_and_vocabulary
from bert_jax.checkpoints.architecture import read_architecture
from bert_jax.checkpoints.load_model import read_weights
from bert_jax.config import PretrainConfig, with_vocab_size
from bert_jax.console import Console
from bert_jax.convert.export import export_directory
from bert_jax.corpus.mixture import open_mixture
from bert_jax.errors import UserError
from bert_jax.models import model_flops
from bert_jax.objectives import make_objective
from bert_jax.parallel import sharding
from bert_jax.pretraining.evaluate import evaluate_checkpoint
from bert_jax.training.checkpoint import digests
from bert_jax.training.metrics import read_metrics
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import learning_rate, plan_phases
from bert_jax.training.step import init_state, jit_train_step, state_layout
from tests.helpers.generated_corpus import generated_corpus
from tests.helpers.run_data import heldout_of

STEPS = 8
FIRST = {"rotary_base": 100.0, "local_window": 4, "weight_decay": 0.9, "batch_stages": 2}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return generated_corpus(tmp_path_factory.mktemp("corpus"))


def config(corpus: pathlib.Path, *phases: dict, model: dict | None = None, optimizer: dict | None = None):
    made = c.pretrain_config()
    made.model.update(c.presets.architecture("modern_tiny"))
    made.model.update(hidden_size=32, num_layers=3, num_heads=2, mlp_size=32, max_positions=32, local_window=8)
    made.model.update(model or {})
    made.data.update(corpus=str(corpus), sentence_pairs="full_sentences", num_threads=1)
    made.train.update(steps=STEPS, batch_size=8, log_every=1)
    made.train.phases = c.phases(*({"seq_len": 32, "fraction": 1 / len(phases)} | phase for phase in phases))
    made.optimizer.update(peak_learning_rate=1e-2, warmup_steps=2, schedule="warmup_stable_decay")
    made.optimizer.update(optimizer or {})
    made.evaluate.update(every=4, batch_size=4, num_sequences=8)
    made.checkpoint.update(every=2, keep=9, max_time_fraction=None)
    return with_vocab_size(c.resolve(PretrainConfig, made), open_mixture(str(corpus)).vocab_size)


@pytest.fixture(scope="module")
def run(corpus: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Four steps with the values of the first phase, four with those of the run."""
    workdir = tmp_path_factory.mktemp("runs") / "whole"
    assert pretrain(config(corpus, FIRST, {}), workdir)
    return workdir


def test_a_run_in_phases_is_several_runs(corpus: pathlib.Path, run: pathlib.Path) -> None:
    """Three runs without phases, each from the state of the run before: bit for bit."""
    plain = [
        config(corpus, {}, model={"rotary_base": 100.0, "local_window": 4}, optimizer={"weight_decay": 0.9}),
        config(corpus, {}),
    ]
    store = open_mixture(str(corpus))
    symbols, schedule = special_ids_and_vocabulary(store.tokenizer()), plan_phases(plain[1].train)
    sequences = make_sequences(store.split("train"), symbols, 32, 0, plain[0].data, num_token_types=0)
    state, first, mesh = None, 0, sharding.make_mesh(c.MeshConfig(), jax.devices()[:1])
    for settings, num_steps, batch_size in ((plain[0], 2, 4), (plain[0], 2, 8), (plain[1], 4, 8)):
        objective = make_objective(settings)
        optimizer = make_optimizer(settings.optimizer, objective.logical_axes, objective.sections)
        rate = functools.partial(learning_rate, settings.optimizer, schedule)
        with jax.set_mesh(mesh):
            shardings = state_layout(objective, optimizer, mesh).shardings
            init = jax.jit(functools.partial(init_state, 0, objective, optimizer), out_shardings=shardings)
            state = state or init()
            step = jit_train_step(objective, optimizer, rate, 1, mesh=mesh, shardings=shardings)
            for _ in range(num_steps):
                batch = sequences.batch(np.arange(first, first + batch_size))
                state, _ = step(state, sharding.place_batch(batch, mesh))
                first += batch_size
    assert state
    assert digests(read_weights(run).params) == digests(jax.device_get(state.params))
    lines = [line for line in read_metrics(run / "metrics.jsonl") if line["split"] == "train"]
    assert [line["batch_size"] for line in lines] == [4, 4, 8, 8, 8, 8, 8, 8]


def test_it_resumes_bit_for_bit_and_keeps_its_past(
    corpus: pathlib.Path, run: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """From the middle of a phase, whose values cannot change any more."""
    shutil.copytree(run, tmp_path / "resumed")
    for checkpoint in (tmp_path / "resumed" / "checkpoints").iterdir():
        if int(checkpoint.name) > 2:
            shutil.rmtree(checkpoint)
    for change in ({"rotary_base": 200.0}, {"weight_decay": 0.5}, {"batch_stages": 1}):
        with pytest.raises(UserError, match="would have changed step 1 of the 2 done"):
            pretrain(config(corpus, FIRST | change, {}), tmp_path / "resumed")
    assert pretrain(config(corpus, FIRST, {}), tmp_path / "resumed")
    assert digests(read_weights(tmp_path / "resumed").params) == digests(read_weights(run).params)


@pytest.mark.parametrize(("step", "base", "window"), [(4, 100.0, 4), (8, 160_000.0, 8)])
def test_a_checkpoint_is_the_model_of_its_phase(
    corpus: pathlib.Path, run: pathlib.Path, tmp_path: pathlib.Path, step: int, base: float, window: int
) -> None:
    """Its export under transformers has the held-out loss that the run measured, and so has `evaluate`."""
    export_directory(run, tmp_path / "model", "huggingface", Console(), step=step)
    model = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "model", attn_implementation="eager").eval()
    written = json.loads((tmp_path / "model" / "config.json").read_text())
    assert (written["global_rope_theta"], written["local_rope_theta"]) == (base, 10_000.0)
    assert written["local_attention"] == window
    total, count = 0.0, 0
    settings = config(corpus, {})
    for batch in heldout_of(settings, open_mixture(str(corpus))).batches(plan_phases(settings.train)[0]):
        rows, columns = np.nonzero(batch["masked_weights"])
        with torch.no_grad():
            logits = model(*(torch.tensor(batch[name]).long() for name in ("input_ids", "attention_mask"))).logits
        labels = torch.tensor(batch["masked_labels"][rows, columns]).long()
        at = torch.tensor(batch["masked_positions"][rows, columns]).long()
        total += torch.nn.functional.cross_entropy(logits[torch.tensor(rows), at], labels, reduction="sum").item()
        count += len(rows)
    (line,) = (x for x in read_metrics(run / "metrics.jsonl") if x["split"] == "heldout" and x["step"] == step)
    assert line["mlm_loss"] == pytest.approx(total / count, abs=1e-5)
    assert evaluate_checkpoint(run, step, Console())["mlm_loss"] == pytest.approx(line["mlm_loss"], abs=1e-6)


def test_an_unfinished_run_has_the_architecture_of_its_newest_checkpoint(
    run: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    shutil.copytree(run, tmp_path / "run")
    assert read_architecture(tmp_path / "run").rotary_base == 160_000.0
    for step in (6, 8):
        shutil.rmtree(tmp_path / "run" / "checkpoints" / str(step))
    assert read_architecture(tmp_path / "run") == read_weights(tmp_path / "run").config
    assert read_architecture(tmp_path / "run").rotary_base == 100.0


def test_the_flops_of_a_phase_follow_its_window(corpus: pathlib.Path) -> None:
    made = config(corpus, FIRST, {})
    objective, masked = make_objective(made), round(0.15 * 32)
    first = dataclasses.replace(made.model, local_window=4, rotary_base=100.0)
    assert objective.flops(32, 0) == model_flops(first, 32, masked) < objective.flops(32, 1)
    assert objective.flops(32, 1) == model_flops(made.model, 32, masked)


@pytest.mark.parametrize(
    ("phase", "changed", "says"),
    [
        (
            {"rotary_base": 5.0},
            {"model.positions": "learned"},
            r"rotary_base has no effect with config\.model\.positions",
        ),
        ({"local_window": 8}, {}, r"local_window has no effect with config\.model\.local_window=None"),
        ({"weights": (1.0, 1.0)}, {}, r"phases\[0\]\.weights has no effect with one corpus"),
        ({"smoothing": 0.5}, {}, r"phases\[0\]\.smoothing has no effect with one corpus"),
        ({"smoothing": 0.5}, {"data.weights": (1.0, 1.0)}, r"smoothing has no effect with config\.data\.weights="),
        ({"smoothing": 0.5, "weights": (1.0, 1.0)}, {}, r"smoothing has no effect with .*phases\[0\]\.weights="),
        ({"weights": (1.0, -1.0)}, {}, r"phases\[0\]\.weights=\(1\.0, -1\.0\): give numbers from 0 on"),
        ({"weights": (1.0, 1.0)}, {"data.smoothing": 0.5}, r"smoothing has no effect with the weights of every phase"),
        ({"decay_fraction": 0.5}, {}, r"decay_fraction has no effect with .*peak_learning_rate=None"),
        (
            {"decay_fraction": 0.5, "peak_learning_rate": 1e-3},
            {"optimizer.schedule": "linear"},
            r"decay_fraction has no effect with config\.optimizer\.schedule=linear",
        ),
    ],
    ids=str,
)
def test_values_without_effect_are_refused(
    corpus: pathlib.Path, tmp_path: pathlib.Path, phase: dict, changed: dict, says: str
) -> None:
    made = c.pretrain_config(None, {"data.corpus": str(corpus)} | changed)
    made.train.phases = c.phases({"seq_len": 32} | phase)
    with pytest.raises(UserError, match=says):
        pretrain(made, tmp_path / "run")
