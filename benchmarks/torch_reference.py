"""Compare the held-out losses of our model and of the model of `transformers` under torch, after equal training.

    python benchmarks/torch_reference.py --corpus CORPUS --config small_cpu --steps 1000 --output reference/

Both programs start from the same weights, which bert_jax initializes and exports and `transformers` opens. Both
programs read the same batches in the same order, and use AdamW with clipping and the recipe's schedule of learning
rates. The recipe's optimizer is replaced by AdamW, its sentence pairs by full sentences, and its dropout by 0. The
held-out loss is measured on the held-out documents of the corpus. Goal: our loss is at most 0.02 nats higher.
`--config.KEY=VALUE` overrides fields of the recipe.
"""

import argparse
import contextlib
import dataclasses
import functools
import itertools
import json
import pathlib
import shutil
import statistics
import time
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np
import torch
import transformers

from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.config import OptimizerConfig, PretrainConfig, read_config, with_vocab_size
from bert_jax.corpus.mixture import Mixture, open_mixture
from bert_jax.corpus.statistics import token_counts, unigram_loss
from bert_jax.errors import UserError
from bert_jax.interop import huggingface
from bert_jax.objectives import OBJECTIVES, make_objective
from bert_jax.objectives.base import Batch, Params
from bert_jax.parallel import sharding
from bert_jax.parallel.sharding import BatchBlocks
from bert_jax.pretraining.data import heldout_batches, sequence_rules, training_batches
from bert_jax.training.evaluation import evaluation_batch_size, make_evaluate
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.plan import Data
from bert_jax.training.schedules import Phase, learning_rate, plan_phases
from bert_jax.training.step import check_divisible_by_mesh, init_state, jit_train_step, state_layout

GOAL = 0.02  # nats
# Muon's fields, and fields that torch's AdamW does not have.
DEFAULT = OptimizerConfig()
CHANGED: dict[str, Any] = {
    **{
        name: getattr(DEFAULT, name)
        for name in ("muon_learning_rate", "momentum", "nesterov", "layer_decay", "ema_decay")
    },
    "name": "adamw",
    "bias_correction": True,
}
IGNORED = -100  # torch's label of a position without a loss
LOGGED = 20  # number of steps over which training losses are averaged


def reference_config(recipe: str, corpus: Mixture, corpus_dir: str, steps: int, overrides: list[str]) -> PretrainConfig:
    """Return the recipe with only the options that both programs support."""
    config = with_vocab_size(read_config(PretrainConfig, recipe, overrides), corpus.vocab_size)
    return dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, dropout=0.0, attention_dropout=0.0),
        data=dataclasses.replace(config.data, corpus=corpus_dir, sentence_pairs="full_sentences", packing=1),
        train=dataclasses.replace(config.train, steps=steps, z_loss=0.0),
        optimizer=dataclasses.replace(config.optimizer, **CHANGED),
    )


def batches_of(data: Data, phases: tuple[Phase, ...]) -> Iterator[tuple[Phase, Batch]]:
    """Yield the batch of every step with its phase."""
    for phase in phases:
        with contextlib.closing(data.batches(phase, phase.begin)) as batches:
            for batch in itertools.islice(batches, phase.end - phase.begin):
                yield phase, batch


def ours(config: PretrainConfig, corpus: Mixture, data: Data, start: pathlib.Path) -> dict[str, Any]:
    """Export the initial weights to `start`, train, and return the losses."""
    objective, phases = make_objective(config), plan_phases(config.train)
    mesh = sharding.make_mesh(config.mesh)
    check_divisible_by_mesh(mesh, objective, phases, config.evaluate.batch_size)
    optimizer = make_optimizer(config.optimizer, objective.logical_axes, objective.sections)
    with jax.set_mesh(mesh):
        _, shardings = state_layout(objective, optimizer, mesh)
        init = functools.partial(init_state, config.seed, objective, optimizer)
        state = jax.jit(init, out_shardings=shardings)()
        export(config, corpus, jax.device_get(state.params), start)
        schedule = functools.partial(learning_rate, config.optimizer, phases)
        steps = {
            phase: jit_train_step(
                objective, optimizer, schedule, phase.grad_accum_steps, mesh=mesh, shardings=shardings
            )
            for phase in phases
            if phase.begin < phase.end
        }
        losses, seconds = list[Any](), list[float]()
        for phase, batch in batches_of(data, phases):
            began = time.perf_counter()
            state, metrics = steps[phase](state, sharding.place_batch(batch, mesh))
            losses.append(metrics["means"]["mlm_loss"])
            jax.block_until_ready(losses[-1])
            seconds.append(time.perf_counter() - began)
        assert data.heldout
        heldout_means = make_evaluate(objective, mesh)(state.params, (), data.heldout.batches(phases[-1]))
    trained = [float(mean.total / mean.weight) for mean in jax.device_get(losses)]
    held = {"loss": heldout_means["mlm_loss"], "accuracy": heldout_means["mlm_accuracy"]}
    return {"training": trained, **held, "seconds": statistics.median(seconds)}


def export(config: PretrainConfig, corpus: Mixture, params: Params, directory: pathlib.Path) -> None:
    """Write a directory that `transformers` opens."""
    heads = OBJECTIVES[config.objective].heads(config.data.sentence_pairs)
    huggingface.export_model(params, config.model, heads, corpus.tokenizer_directory, directory)


def theirs(config: PretrainConfig, data: Data, start: pathlib.Path) -> dict[str, Any]:
    """Open the exported weights, train them under torch, and return the losses."""
    model, unread = transformers.AutoModelForMaskedLM.from_pretrained(start, output_loading_info=True)
    lost = [*unread["missing_keys"], *unread["unexpected_keys"], *unread["mismatched_keys"]]
    assert not lost, f"weights that did not pass from ours to torch: {lost}"
    phases, rate = plan_phases(config.train), config.optimizer
    plain = [p for name, p in model.named_parameters() if name.endswith("bias") or "norm" in name.lower()]
    exempt = {id(p) for p in plain}
    decayed = [p for p in model.parameters() if id(p) not in exempt]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": rate.weight_decay}, {"params": plain, "weight_decay": 0.0}],
        lr=1.0,
        betas=(rate.beta1, rate.beta2),
        eps=rate.epsilon,
    )
    rates = jax.jit(jax.vmap(lambda step: learning_rate(rate, phases, step)))(np.arange(phases[-1].end)).tolist()
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rates[min(step, len(rates) - 1)])
    losses, seconds = list[float](), list[float]()
    model.train()
    for _, batch in batches_of(data, phases):
        began = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss, _, weight = masked_loss(model, batch)
        (loss / max(weight, 1.0)).backward()
        if rate.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), rate.clip_norm)
        optimizer.step()
        schedule.step()
        losses.append(loss.item() / max(weight, 1.0))
        seconds.append(time.perf_counter() - began)
    model.eval()
    assert data.heldout
    evaluation = heldout_loss(model, data.heldout.batches(phases[-1]))
    return {"training": losses, **evaluation, "seconds": statistics.median(seconds)}


def heldout_loss(model: transformers.PreTrainedModel, batches: Iterable[Batch]) -> dict[str, float]:
    """Return the mean loss and accuracy over all masked tokens."""
    total = correct = weight = 0.0
    with torch.no_grad():
        for batch in batches:
            loss, hits, number = masked_loss(model, batch)
            total, correct, weight = total + loss.item(), correct + hits, weight + number
    return {"loss": total / weight, "accuracy": correct / weight}


def masked_loss(model: transformers.PreTrainedModel, batch: Batch) -> tuple[torch.Tensor, float, float]:
    """Return (summed loss, correct, number) of the masked tokens of a batch, by the model's own forward pass."""
    real = batch["masked_weights"] > 0
    rows, columns = np.nonzero(real)[0], batch["masked_positions"][real]
    labels = torch.tensor(batch["masked_labels"][real]).long()
    names = ["input_ids", "attention_mask"]
    if getattr(model.config, "type_vocab_size", 0):
        names.append("token_type_ids")
    logits = model(**{name: torch.tensor(batch[name]).long() for name in names}).logits[rows, columns]
    loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORED)
    return loss, float((logits.argmax(-1) == labels).sum()), float(len(labels))


def compare(config: PretrainConfig, corpus: Mixture, output: pathlib.Path) -> dict[str, Any]:
    """Train both sides and return their losses; `start/` of the output has the initial weights."""
    split = corpus.split("heldout", SENTENCE_PAIRS[config.data.sentence_pairs].min_documents)
    if not split.num_documents:
        raise UserError(f"{config.data.corpus} has no held-out documents: prepare it with --heldout_fraction")
    rules = sequence_rules(config, corpus.tokenizer())
    blocks, phases, longest = (
        BatchBlocks((0,), 1),
        plan_phases(config.train),
        max(p.seq_len for p in config.train.phases),
    )
    data = Data(
        batches=training_batches(corpus, rules, phases, blocks),
        heldout=heldout_batches(
            split,
            rules,
            blocks,
            num_sequences=config.evaluate.num_sequences,
            batch_size=config.evaluate.batch_size or evaluation_batch_size(longest, sharding.make_mesh(config.mesh)),
            eval_uses_training_masks=OBJECTIVES[config.objective].eval_uses_training_masks,
        ),
    )
    counts = [token_counts(corpus.split(name), corpus.vocab_size) for name in ("train", "heldout")]
    start = output / "start"
    shutil.rmtree(start, ignore_errors=True)
    return {
        "steps": config.train.steps,
        "unigram_loss": unigram_loss(*counts),
        "ours": ours(config, corpus, data, start),
        "theirs": theirs(config, data, start),
    }


def report(results: dict[str, Any]) -> str:
    """Return a table of both sides."""
    lines = [
        "| | held-out loss | accuracy | below the unigram loss | seconds a step |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, key in (("bert_jax", "ours"), ("transformers, torch", "theirs")):
        side = results[key]
        below = results["unigram_loss"] - side["loss"]
        lines.append(f"| {name} | {side['loss']:.4f} | {side['accuracy']:.2%} | {below:.2f} | {side['seconds']:.3f} |")
    smooth = [np.convolve(results[key]["training"], np.ones(LOGGED) / LOGGED, "valid") for key in ("ours", "theirs")]
    gap = np.abs(smooth[0] - smooth[1]).max() if len(smooth[0]) else float("nan")
    worse = results["ours"]["loss"] - results["theirs"]["loss"]
    verdict = "met" if worse <= GOAL else "missed"
    return "\n".join(
        [
            *lines,
            "",
            f"{results['steps']:,} steps of the same batches. Ours minus theirs: {worse:+.4f} nats held out (goal: "
            f"at most {GOAL}: {verdict}). Means of {LOGGED} training losses differ by {gap:.4f} at most.",
        ]
    )


def main() -> None:
    """Compare both programs, print the figures and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, help="a corpus of `bert-jax prepare` with held-out documents")
    parser.add_argument("--config", required=True, help="recipe, such as bert_mini_cpu")
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--output", type=pathlib.Path, required=True, help="a directory, for weights and figures")
    args, overrides = parser.parse_known_args()
    corpus = open_mixture(args.corpus)
    config = reference_config(args.config, corpus, args.corpus, args.steps, overrides)
    results = compare(config, corpus, args.output)
    (args.output / "reference.json").write_text(json.dumps(results) + "\n", encoding="utf-8")
    print(report(results))


if __name__ == "__main__":
    main()
