"""Speed of a pretraining step on one accelerator in bfloat16: every way of computing it, beside transformers in torch.

    make bench-device
    python benchmarks/device_speed.py [--size base] [--shapes 256x128 64x512] [--packed] [--json FILE]

Attention is computed by the fused kernel of the platform, and once more by XLA; layers are unrolled, and once scanned.

A step is forward, masked-token and next-sentence loss, backward, clipping to norm 1 and AdamW on float32 parameters.
Each contestant is compiled, warmed up with 5 steps and timed over 20 that are dispatched together; the figure is the
median of 5 such stretches. MFU counts the FLOPs of matrix products (models.model_flops) over the data sheet's peak.
torch runs `BertForPreTraining` under autocast to bfloat16 with SDPA and fused AdamW, once more under torch.compile.
"""

import argparse
import dataclasses
import functools
import json
import os
import pathlib
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")  # the other half is torch's

import jax
import jax.numpy as jnp
import numpy as np
from random_batch import packed, random_batch

from bert_jax.config import ComputeConfig, EncoderConfig, MeshConfig, PretrainConfig, pretrain_config, resolve
from bert_jax.config.presets import PRESETS
from bert_jax.models import model_flops
from bert_jax.objectives import make_objective
from bert_jax.parallel.chips import peak_flops
from bert_jax.parallel.sharding import make_mesh
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import plan_phases
from bert_jax.training.step import init_state, train_step

WARMUP, STEPS, STRETCHES = 5, 20, 5
Run = Callable[[int], None]  # runs that many steps and waits for the last
Batch = dict[str, np.ndarray]


def ours(config: EncoderConfig, compute: ComputeConfig, batch: Batch) -> Run:
    """The step that `pretrain` runs, its state donated."""
    default = resolve(PretrainConfig, pretrain_config())
    pairs = default.data.sentence_pairs if "next_sentence_labels" in batch else "full_sentences"
    data = dataclasses.replace(default.data, sentence_pairs=pairs)
    run_config = dataclasses.replace(default, model=config, compute=compute, data=data)
    objective = make_objective(run_config)
    optimizer = make_optimizer(run_config.optimizer, objective.logical_axes, objective.sections)
    phases = plan_phases(run_config.train)
    state = jax.jit(functools.partial(init_state, run_config, objective, optimizer))()
    placed = {name: jnp.asarray(x) for name, x in batch.items()}
    step = functools.partial(train_step, run_config, objective, optimizer, phases, phases[0])
    compiled = jax.jit(step, donate_argnums=0).lower(state, placed).compile()

    def run(steps: int) -> None:
        nonlocal state
        metrics = None
        for _ in range(steps):
            state, metrics = compiled(state, placed)
        jax.block_until_ready(metrics)

    return run


def theirs(config: EncoderConfig, compiled: bool, batch: Batch) -> Run:
    """`BertForPreTraining` of transformers in training mode; its head reads every position."""
    import torch
    import transformers

    description = transformers.BertConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        intermediate_size=config.mlp_size,
        hidden_dropout_prob=config.dropout,
        attention_probs_dropout_prob=config.attention_dropout,
    )
    model = transformers.BertForPreTraining(description).train().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    tensors = {name: torch.tensor(x).long().cuda() for name, x in batch.items()}
    inputs = {name: tensors[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
    labels = torch.full_like(tensors["input_ids"], -100)
    labels[torch.arange(len(labels))[:, None], tensors["masked_positions"]] = tensors["masked_labels"]
    forward = torch.compile(model) if compiled else model

    def run(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16):
                loss = forward(**inputs, labels=labels, next_sentence_label=tensors["next_sentence_labels"]).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        torch.cuda.synchronize()

    return run


def contestants(config: EncoderConfig) -> dict[str, Callable[[Batch], Run]]:
    """Return the ways to compute a step of this architecture by name; torch has BERT's block alone."""
    without = dataclasses.replace(config, attention_dropout=0.0)
    bf16 = functools.partial(ComputeConfig, dtype="bfloat16", scan_layers=False)
    found: dict[str, Callable[[Batch], Run]] = {
        "ours": lambda batch: ours(config, bf16(), batch),
        "ours, scanned": lambda batch: ours(config, bf16(scan_layers=True), batch),
        "ours, attention by XLA": lambda batch: ours(config, bf16(attention="xla"), batch),
    }
    if config.attention_dropout:
        found["ours, no attention dropout"] = lambda batch: ours(without, bf16(), batch)
    if config.family == "bert":
        found["torch"] = lambda batch: theirs(config, False, batch)
        found["torch compiled, no attention dropout"] = lambda batch: theirs(without, True, batch)
    return found


def main() -> None:
    """Time the contestants one after the other and print a table per shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="base", choices=PRESETS)
    parser.add_argument("--shapes", nargs="+", default=["256x128", "64x512"], help="sequences x tokens")
    parser.add_argument("--packed", action="store_true", help="four examples to a row, for ours")
    parser.add_argument("--only", nargs="*", help="contestants to run, by name; all where not given")
    parser.add_argument("--json", type=pathlib.Path, help="a file that gets a line for each contestant")
    arguments = parser.parse_args()

    config, device = PRESETS[arguments.size], jax.devices()[0]
    peak = peak_flops() or float("nan")  # MFU is unknown where no data sheet is in the table
    print(f"{device.device_kind}, JAX {jax.__version__}, peak {peak / 1e12:.0f} TFLOP/s, {arguments.size}, bfloat16")
    jax.set_mesh(make_mesh(MeshConfig(), [device]))  # as `pretrain` does: activations then have a layout of their own
    for shape in arguments.shapes:
        sequences, seq_len = map(int, shape.split("x"))
        batch = random_batch(config, sequences, seq_len, round(0.15 * seq_len) + 1)
        flops = sequences * model_flops(config, seq_len, batch["masked_positions"].shape[1])
        if not config.num_token_types:
            del batch["next_sentence_labels"]
        batch = packed(batch) if arguments.packed else batch
        print(f"\n{sequences} sequences x {seq_len} tokens{', packed' if arguments.packed else ''}")
        for name, make in contestants(config).items():
            if (arguments.only and name not in arguments.only) or (arguments.packed and name.startswith("torch")):
                continue
            row: dict[str, Any] = {"size": arguments.size, "shape": shape, "packed": arguments.packed, "name": name}
            try:
                ready, times = timed(make, batch)
            except Exception as error:  # one that does not fit or compile leaves the others their turn
                row["error"] = f"{type(error).__name__}: {str(error)[:300]}"
                print(f"  {name:36s} failed: {row['error']}", flush=True)
            else:
                median = statistics.median(times)
                row |= {"ready_s": ready, "step_s": times, "mfu": flops / median / peak, "device": device.device_kind}
                print(
                    f"  {name:36s} {1e3 * median:8.2f} ms  {sequences * seq_len / median:11,.0f} tokens/s  "
                    f"MFU {row['mfu']:5.1%}  (ready after {ready:.0f} s)",
                    flush=True,
                )
            if arguments.json:
                with arguments.json.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")


def timed(make: Callable[[Batch], Run], batch: Batch) -> tuple[float, list[float]]:
    """Return the seconds until a contestant is warm, and those of a step in each stretch."""
    begin = time.perf_counter()
    run = make(batch)
    run(WARMUP)
    ready, times = time.perf_counter() - begin, []
    for _ in range(STRETCHES):
        begin = time.perf_counter()
        run(STEPS)
        times.append((time.perf_counter() - begin) / STEPS)
    return ready, times


if __name__ == "__main__":
    main()
