"""Speed of a pretraining step with the modern block and with Muon, relative to BERT's block with AdamW at equal shape.

    python benchmarks/block_speed.py [--shapes 4x128 6x192] [--batch 32] [--length 64] [--rounds 20] [--dtype float32]

Two models of equal shape have equal numbers of layers, features, heads and parameters, and the same vocabulary. The
gated MLP is 2/3 as wide as the plain MLP, so that both models have equally many parameters. Heads have 64 features. The
modern block is the block of `model.modernbert`: pre-norm, rotary positions with two bases, local windows in two of
three blocks, no biases. Only the program `with dropout`, which is BERT as published, has dropout; dropout makes this
program slower. A step is the forward pass, the masked-token loss, the backward pass, clipping to norm 1 and the update.
The programs take turns in one process, step by step, so that other load affects all of them; the figures are medians.
"""

import argparse
import dataclasses
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import ComputeConfig, EncoderConfig, PretrainConfig, pretrain_config, resolve
from bert_jax.config.presets import bert_preset, modernbert_preset
from bert_jax.models import count_parameters
from bert_jax.objectives import make_objective
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import learning_rate, plan_phases
from bert_jax.training.step import init_state, train_step

BASELINE = "BERT, AdamW"


def random_batch(config: EncoderConfig, batch: int, length: int) -> dict[str, np.ndarray]:
    """Return full sequences of random tokens, 15 % of them to predict; the contents do not change the speed."""
    rng, predictions = np.random.default_rng(0), round(0.15 * length) + 1
    positions = np.sort(rng.random((batch, length)).argsort(axis=1)[:, :predictions], axis=1)
    return {
        "input_ids": rng.integers(0, config.vocab_size, (batch, length), np.int32),
        "token_type_ids": np.zeros((batch, length), np.int32),
        "attention_mask": np.ones((batch, length), np.int32),
        "masked_positions": positions.astype(np.int32),
        "masked_labels": rng.integers(0, config.vocab_size, (batch, predictions), np.int32),
        "masked_weights": np.ones((batch, predictions), np.float32),
        "example_weights": np.ones(batch, np.float32),
    }


def make_step(
    model: EncoderConfig, optimizer: str, compute: ComputeConfig, arguments: argparse.Namespace
) -> Callable[[], None]:
    """Return the step that `pretrain` runs, with a donated state; each call waits for the result."""
    default = resolve(PretrainConfig, pretrain_config())
    config = dataclasses.replace(
        default,
        model=model,
        compute=compute,
        data=dataclasses.replace(default.data, sentence_pairs="full_sentences"),
        optimizer=dataclasses.replace(default.optimizer, name=optimizer),
    )
    objective = make_objective(config)
    make = make_optimizer(config.optimizer, objective.logical_axes, objective.sections)
    phases = plan_phases(config.train)
    state = jax.jit(functools.partial(init_state, config.seed, objective, make))()
    batch = {name: jnp.asarray(x) for name, x in random_batch(model, arguments.batch, arguments.length).items()}
    step = functools.partial(
        train_step,
        objective,
        make,
        functools.partial(learning_rate, config.optimizer, phases),
        phases[0].grad_accum_steps,
    )
    compiled = jax.jit(step, donate_argnums=0).lower(state, batch).compile()

    def run() -> None:
        nonlocal state
        for _ in range(arguments.steps):
            state, metrics = compiled(state, batch)
        jax.block_until_ready(metrics)

    return run


def contestants(layers: int, hidden: int, vocab: int) -> dict[str, tuple[EncoderConfig, str]]:
    """Return the architecture and the optimizer of each program, by name."""
    same: dict[str, Any] = {"vocab_size": vocab, "num_heads": max(1, hidden // 64), "num_token_types": 0}
    published = dataclasses.replace(bert_preset(layers, hidden), **same)
    plain = dataclasses.replace(published, dropout=0.0, attention_dropout=0.0)
    modern = dataclasses.replace(modernbert_preset(layers, hidden, 1, round(8 * hidden / 3)), **same)
    normed = dataclasses.replace(modern, query_key_norm=True)
    return {
        BASELINE: (plain, "adamw"),
        "BERT, AdamW, with dropout": (published, "adamw"),
        "BERT, Muon": (plain, "muon"),
        "modern, AdamW": (modern, "adamw"),
        "modern, Muon": (modern, "muon"),
        "modern with query-key norm, Muon": (normed, "muon"),
    }


def main() -> None:
    """Time the programs in turns and print a table for each shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["4x128", "6x192"], help="layers x width")
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--steps", type=int, default=1, help="steps of each round; more on a GPU, where a step is short"
    )
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--unrolled", action="store_true", help="compute.scan_layers=False")
    parser.add_argument(
        "--only", nargs="*", help="contestants to run, by the start of their names, beside the baseline"
    )
    arguments = parser.parse_args()
    compute = ComputeConfig(dtype=arguments.dtype, scan_layers=not arguments.unrolled)

    for shape in arguments.shapes:
        layers, hidden = map(int, shape.split("x"))
        steps, parameters = {}, {}
        for name, (model, optimizer) in contestants(layers, hidden, arguments.vocab).items():
            if arguments.only and name != BASELINE and not any(name.startswith(start) for start in arguments.only):
                continue
            steps[name] = make_step(model, optimizer, compute, arguments)
            steps[name]()
            parameters[name] = count_parameters(model, ())
        seconds: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(arguments.rounds):
            for name, step in steps.items():
                begin = time.perf_counter()
                step()
                seconds[name].append((time.perf_counter() - begin) / arguments.steps)
        medians = {name: statistics.median(times) for name, times in seconds.items()}
        # A ratio for each round: load that lasts longer than a round then affects both times.
        ratios = {
            name: statistics.median(mine / base for mine, base in zip(times, seconds[BASELINE], strict=True))
            for name, times in seconds.items()
        }
        print(
            f"\n{shape}, {arguments.batch} x {arguments.length} tokens, vocabulary {arguments.vocab:,}, "
            f"{compute.dtype}, {jax.devices()[0].device_kind}"
        )
        for name, median in medians.items():
            print(
                f"{name:34s} {1e3 * median:8.2f} ms  ratio {ratios[name]:.2f}  "
                f"encoder of {parameters[name]:,} parameters",
                flush=True,
            )


if __name__ == "__main__":
    main()
