"""A run whose first phase is left to right or a hybrid and whose second phase has masks, beside torch."""

import dataclasses
import functools
import itertools
import pathlib
import shutil

import jax
import numpy as np
import pytest
import torch
import transformers

from bert_jax import config as c
from bert_jax.api import pretrain
from bert_jax.checkpoints.load_model import read_weights
from bert_jax.config import PretrainConfig, with_vocab_size
from bert_jax.config.checks import refuse_fields_without_effect
from bert_jax.corpus.mixture import open_mixture
from bert_jax.errors import UserError
from bert_jax.interop import huggingface
from bert_jax.interop.tensors import to_tensors
from bert_jax.models import model_flops
from bert_jax.objectives import OBJECTIVES, make_objective
from bert_jax.objectives.losses import mean_values, original_tokens
from bert_jax.reports.provenance import provenance_of
from bert_jax.tokenizer import load_tokenizer
from bert_jax.training.metrics import read_metrics
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import learning_rate, plan_phases
from bert_jax.training.step import init_state, train_step
from tests.helpers import torch_training
from tests.helpers.generated_corpus import generated_corpus
from tests.helpers.run_data import batches_of

STEPS, WARMUP = 20, 3


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return generated_corpus(tmp_path_factory.mktemp("phases"))


def two_phases(corpus: pathlib.Path | None = None, **first: object) -> PretrainConfig:
    made = c.pretrain_config()
    made.model.update(hidden_size=32, num_layers=2, num_heads=4, mlp_size=64, max_positions=32)
    made.model.update(vocab_size=None if corpus else 100, dropout=0.0, attention_dropout=0.0, initializer_range=0.1)
    made.data.update(corpus=str(corpus) if corpus else None, sentence_pairs="full_sentences", num_threads=1)
    causal = {"seq_len": 32, "fraction": 0.5, "objective": "left_to_right"} | first
    made.train.update(steps=STEPS, batch_size=8, log_every=4, phases=c.phases(causal, {"seq_len": 32, "fraction": 0.5}))
    made.evaluate.update(every=5, batch_size=4, num_sequences=8)
    made.checkpoint.update(every=5, keep=10)
    made.optimizer.update(peak_learning_rate=3e-3, warmup_fraction=WARMUP / STEPS, schedule="linear", weight_decay=0.1)
    return c.resolve(PretrainConfig, made)


@pytest.mark.parametrize(
    ("first", "causal_fraction"),
    [
        ({}, 1.0),
        pytest.param(
            {"objective": "hybrid", "left_to_right_fraction": 0.25, "grad_accum_steps": 2}, 0.25, marks=pytest.mark.slow
        ),
    ],
    ids=["left_to_right", "hybrid"],
)
def test_losses_and_weights_of_both_phases_follow_torch(
    corpus: pathlib.Path, tmp_path: pathlib.Path, first: dict[str, object], causal_fraction: float
) -> None:
    """`BertLMHeadModel` with a causal mask and `BertForMaskedLM`, on the same parameters: 1e-5, 20 steps 1e-4."""
    store = open_mixture(str(corpus))
    config = with_vocab_size(two_phases(corpus, **first), load_tokenizer(store.tokenizer_directory).vocab_size)
    heads, phases = OBJECTIVES[config.objective].heads(config.data.sentence_pairs), plan_phases(config.train)
    read = batches_of(config, store)
    batches = [list(itertools.islice(read(phase, phase.begin), phase.end - phase.begin)) for phase in phases]
    objective = make_objective(config)
    optimizer = make_optimizer(config.optimizer, objective.logical_axes, objective.sections)
    state = jax.jit(functools.partial(init_state, config.seed, objective, optimizer))()
    huggingface.export_model(state.params, config.model, heads, store.tokenizer_directory, tmp_path / "model")
    masked = transformers.BertForMaskedLM.from_pretrained(tmp_path / "model")
    masked.get_input_embeddings().padding_idx = None
    settings = transformers.BertConfig.from_pretrained(tmp_path / "model", is_decoder=True)
    causal = transformers.BertLMHeadModel(settings)

    def causal_loss(model: torch.nn.Module, batch: dict[str, np.ndarray]) -> torch.Tensor:
        mask, types = (torch.tensor(batch[name]).long() for name in ("attention_mask", "token_type_ids"))
        ids = torch.tensor(np.asarray(original_tokens(batch))).long()
        words = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        words["labels"] = ids.masked_fill(mask == 0, -100)
        shared = dict(model.named_parameters()) | dict(model.named_buffers())
        return torch.func.functional_call(causal, shared, (), words, tie_weights=True).loss

    def masked_loss(model: torch.nn.Module, batch: dict[str, np.ndarray]) -> torch.Tensor:
        mask, types = (torch.tensor(batch[name]).long() for name in ("attention_mask", "token_type_ids"))
        logits = model(torch.tensor(batch["input_ids"]).long(), mask, types).logits
        rows, columns = np.nonzero(batch["masked_weights"])
        labels = torch.tensor(batch["masked_labels"][rows, columns]).long()
        return torch.nn.functional.cross_entropy(logits[rows, batch["masked_positions"][rows, columns]], labels)

    def loss_of(model: torch.nn.Module, batch: dict[str, np.ndarray]) -> torch.Tensor:
        if not any(batch is one for one in batches[0]):
            return masked_loss(model, batch)
        if causal_fraction == 1:
            return causal_loss(model, batch)
        is_causal = np.arange(8) % 4 < 1  # a quarter: the first of every four sequences
        parts = [{name: x[rows] for name, x in batch.items()} for rows in (is_causal, ~is_causal)]
        return 0.25 * causal_loss(model, parts[0]) + 0.75 * masked_loss(model, parts[1])

    ours = []
    for phase, of_phase in zip(phases, batches, strict=True):
        schedule = functools.partial(learning_rate, config.optimizer, phases)
        of_index, steps = objective.of_phase(phase.index), phase.grad_accum_steps
        step = jax.jit(functools.partial(train_step, of_index, optimizer, schedule, steps))
        for batch in of_phase:
            state, metrics = step(state, batch)
            ours.append(mean_values(metrics["means"])["loss"])
    theirs, _ = torch_training.trajectory(masked, loss_of, [*batches[0], *batches[1]], config.optimizer, WARMUP)
    assert ours[0] == pytest.approx(theirs[0], abs=1e-5)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
    trained = dict(masked.named_parameters())
    for name, x in to_tensors(state.params, config.model, heads).items():
        if not name.endswith("key.bias"):  # whose gradients are rounding errors
            np.testing.assert_allclose(x, trained[name].detach().numpy(), rtol=0, atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    "first", [pytest.param({}, marks=pytest.mark.slow), {"objective": "hybrid", "left_to_right_fraction": 0.5}], ids=str
)
def test_a_run_measures_each_phase_and_resumes_bit_for_bit(
    corpus: pathlib.Path, tmp_path: pathlib.Path, first: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    """The evaluations of a hybrid phase measure masked tokens alone; its sequences are packed here."""
    config = two_phases(corpus, **first)
    if first:
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, packing=2))
    assert pretrain(config, tmp_path / "whole")
    lines = read_metrics(tmp_path / "whole" / "metrics.jsonl")
    for line in lines:
        is_left_to_right = line["step"] <= 10 and not (first and line["split"] == "heldout")
        has_masks = line["step"] > 10 or bool(first)
        assert ("next_token_loss" in line, "mlm_loss" in line) == (is_left_to_right, has_masks)
    assert [line["step"] for line in lines if line["split"] == "train"] == [4, 8, 10, 12, 16, 20]
    with pytest.raises(UserError, match=r"would have changed step 1 of the 20 done\)"):
        pretrain(two_phases(corpus, objective=None), tmp_path / "whole")
    for step in (10, 15):
        read_weights(tmp_path / "whole", step=step)
        says = "step 10 lies in a left_to_right phase" in capsys.readouterr().err
        provenance = provenance_of(tmp_path / "whole", step)
        says_in_card = "does not fill masks" in provenance.origin
        assert says == says_in_card == (not provenance.fills_masks) == (step == 10 and not first)
    shutil.copytree(tmp_path / "whole", tmp_path / "resumed")
    for checkpoint in (tmp_path / "resumed" / "checkpoints").iterdir():
        if int(checkpoint.name) > 5:
            shutil.rmtree(checkpoint)
    assert pretrain(config, tmp_path / "resumed")
    again = read_metrics(tmp_path / "resumed" / "metrics.jsonl")
    for name in ("step", "loss", "grad_norm"):
        assert [line.get(name) for line in again] == [line.get(name) for line in lines]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"objective": "left_to_rigth"}, "did you mean 'left_to_right'"),
        ({"mask_probability": 0.3}, r"phases\[0\].mask_probability has no effect with .*objective=left_to_right"),
        ({"left_to_right_fraction": 0.5}, r"left_to_right_fraction has no effect with .*objective=left_to_right"),
        (
            {"objective": "hybrid", "left_to_right_fraction": 0.3},
            r"phases\[0\].left_to_right_fraction=0.3: a device reads 8 sequences at a time; set a multiple of 1/8",
        ),
    ],
)
def test_settings_that_cannot_be(corpus: pathlib.Path, tmp_path: pathlib.Path, changed: dict, says: str) -> None:
    with pytest.raises(UserError, match=says):
        pretrain(two_phases(corpus, **changed), tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize(
    ("section", "values", "says"),
    [
        ("model", {"trigram_embeddings": True}, "trigram_embeddings=True shows a causal model the next token; choose"),
        ("compute", {"attention": "cudnn", "dtype": "bfloat16"}, "needs config.model.causal=False; or set it to auto"),
    ],
)
def test_a_phase_refuses_a_model_that_cannot_be_causal(section: str, values: dict[str, object], says: str) -> None:
    config = two_phases()
    config = dataclasses.replace(config, **{section: dataclasses.replace(getattr(config, section), **values)})
    with pytest.raises(UserError, match=f"a phase with objective=left_to_right has a causal model: .*{says}"):
        make_objective(config)
    other_phase = dataclasses.replace(config.train, phases=tuple(map(with_masks, config.train.phases)))
    assert make_objective(dataclasses.replace(config, train=other_phase))


def test_the_flops_of_a_run_are_the_flops_of_each_phase() -> None:
    """A left-to-right phase predicts all tokens but the first, and reads half of the pairs; `--budget` counts both."""
    config = two_phases()
    causal = dataclasses.replace(config.model, causal=True)
    objective = make_objective(config)
    assert objective.flops(32, 0) == model_flops(causal, 32, 31)
    assert objective.flops(32, 1) == model_flops(config.model, 32, round(0.15 * 32))
    hybrid = make_objective(two_phases(objective="hybrid", left_to_right_fraction=0.25))
    assert hybrid.flops(32, 0) == 0.25 * objective.flops(32, 0) + 0.75 * objective.flops(32, 1)


def with_masks(phase: c.PhaseConfig) -> c.PhaseConfig:
    return dataclasses.replace(phase, objective=None)


def test_other_objectives_have_no_phases_of_their_own() -> None:
    config = dataclasses.replace(two_phases(), objective="replaced_tokens")
    with pytest.raises(UserError, match=r"phases\[0\].objective needs config.objective=masked_tokens"):
        make_objective(config)
    distillation = c.DistillationConfig(teacher="teacher")
    config = dataclasses.replace(two_phases(), objective="distillation", distillation=distillation)
    refuse_fields_without_effect(config)  # the teacher is needed, although the phases have objectives
    with pytest.raises(UserError, match=r"phases\[0\].objective needs config.objective=masked_tokens"):
        make_objective(config, config.model)
    pairs = two_phases()
    with pytest.raises(UserError, match="has no head"):
        make_objective(dataclasses.replace(pairs, data=dataclasses.replace(pairs.data, sentence_pairs="next_sentence")))
