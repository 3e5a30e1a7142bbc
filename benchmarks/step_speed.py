"""Compare the speed of our pretraining step with `transformers` under torch eager on this machine.

    python benchmarks/step_speed.py [--size mini] [--batch 32] [--length 128] [--predictions 20] [--rounds 12]

A step is the forward pass, MLM and NSP loss, the backward pass, clipping to norm 1 and AdamW, in float32 with dropout
0.1. The programs take turns in one process, step by step, so that other load affects all of them; the figures are
medians. `torch gathered` applies the prediction head only to the masked positions, as our program does; plain
`BertForPreTraining` applies the head to all positions.
"""

import argparse
import dataclasses
import functools
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers
from random_batch import random_batch

from bert_jax.config import ComputeConfig, EncoderConfig, PretrainConfig, pretrain_config, resolve
from bert_jax.models import PRESETS, model_flops
from bert_jax.objectives import make_objective
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.schedules import learning_rate, plan_phases
from bert_jax.training.step import init_state, train_step

Step = Callable[[], None]


def ours(config: EncoderConfig, compute: ComputeConfig, batch: dict[str, np.ndarray]) -> Step:
    """Return the step that `pretrain` runs, with a donated state."""
    run_config = dataclasses.replace(resolve(PretrainConfig, pretrain_config()), model=config, compute=compute)
    objective = make_objective(run_config)
    optimizer = make_optimizer(run_config.optimizer, objective.logical_axes, objective.sections)
    phases = plan_phases(run_config.train)
    state = jax.jit(functools.partial(init_state, run_config.seed, objective, optimizer))()
    placed = {name: jnp.asarray(x) for name, x in batch.items()}
    step = functools.partial(
        train_step,
        objective,
        optimizer,
        functools.partial(learning_rate, run_config.optimizer, phases),
        phases[0].grad_accum_steps,
    )
    compiled = jax.jit(step, donate_argnums=0).lower(state, placed).compile()

    def run() -> None:
        nonlocal state
        state, metrics = compiled(state, placed)
        jax.block_until_ready(metrics)

    return run


def theirs(config: EncoderConfig, attention: str, gathered: bool, batch: dict[str, np.ndarray]) -> Step:
    """Return a step of `BertForPreTraining` in training mode, under torch eager with fused AdamW."""
    description = transformers.BertConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        intermediate_size=config.mlp_size,
        hidden_act={"gelu": "gelu", "gelu_tanh": "gelu_new"}[config.activation],
        hidden_dropout_prob=config.dropout,
        attention_probs_dropout_prob=config.attention_dropout,
        attn_implementation=attention,  # type: ignore[call-arg]  # transformers takes it; its type stub lacks it
    )
    model = transformers.BertForPreTraining(description).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    tensors = {name: torch.tensor(x).long() for name, x in batch.items()}
    inputs = {name: tensors[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
    rows = torch.arange(len(batch["input_ids"]))[:, None]
    labels = torch.full_like(tensors["input_ids"], -100)
    labels[rows, tensors["masked_positions"]] = tensors["masked_labels"]
    entropy = torch.nn.functional.cross_entropy

    def loss() -> torch.Tensor:
        if not gathered:
            return model(**inputs, labels=labels, next_sentence_label=tensors["next_sentence_labels"]).loss
        out = model.bert(**inputs)
        masked = out.last_hidden_state[rows, tensors["masked_positions"]]
        mlm, nsp = model.cls(masked, out.pooler_output)
        return entropy(mlm.flatten(0, 1), tensors["masked_labels"].flatten()) + entropy(
            nsp, tensors["next_sentence_labels"]
        )

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return run


def main() -> None:
    """Time the programs in turns and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="mini", choices=PRESETS)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--predictions", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--only", nargs="*", help="contestants to run, by the start of their names")
    arguments = parser.parse_args()

    config = PRESETS[arguments.size]
    batch = random_batch(config, arguments.batch, arguments.length, arguments.predictions)
    contestants: dict[str, Callable[[], Step]] = {
        "ours scanned": lambda: ours(config, ComputeConfig(), batch),
        "ours unrolled": lambda: ours(config, ComputeConfig(scan_layers=False), batch),
        "torch sdpa": lambda: theirs(config, "sdpa", False, batch),
        "torch eager attention": lambda: theirs(config, "eager", False, batch),
        "torch sdpa gathered": lambda: theirs(config, "sdpa", True, batch),
        "torch eager attention gathered": lambda: theirs(config, "eager", True, batch),
    }
    steps = {}
    for name, make in contestants.items():
        if arguments.only and not any(name.startswith(start) for start in arguments.only):
            continue
        begin = time.perf_counter()
        steps[name] = make()
        steps[name]()
        print(f"{name}: ready after {time.perf_counter() - begin:.1f} s", flush=True)

    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(arguments.rounds):
        for name, step in steps.items():
            begin = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - begin)

    tokens = arguments.batch * arguments.length
    flops = arguments.batch * model_flops(config, arguments.length, arguments.predictions)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    print(
        f"\nBERT-{arguments.size}, {arguments.batch} x {arguments.length} tokens, {arguments.predictions} predictions, "
        f"float32, dropout {config.dropout}, {torch.get_num_threads()} threads; useful GFLOP a step: {flops / 1e9:.1f}"
    )
    for name, median in medians.items():
        print(
            f"{name:32s} {1e3 * median:8.1f} ms  {tokens / median:9.0f} tokens/s  {flops / median / 1e9:6.1f} GFLOP/s"
        )
    best = min((median for name, median in medians.items() if name.startswith("ours")), default=0.0)
    for name, median in medians.items():
        if name.startswith("torch") and best:
            print(f"ratio ours / {name}: {median / best:.2f}")


if __name__ == "__main__":
    main()
