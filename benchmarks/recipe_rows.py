"""Rows of recipe_ablation.py: BERT's recipe at a small size, and the changes that lead to the modern recipe."""

import ast
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

ENDS = ("bert", "modern")
MODES = ("tokens", "time")
Values = dict[str, Any]  # flat keys of a config
MASKS = "masks"  # not a key of a config: masking rates at the beginning and the end of the run, linear in between

# BERT's recipe (Devlin et al. 2019) at a size that two CPU cores train in minutes. The published learning rate is for
# 256 sequences a step and a million steps. Next sentences are left out: the rows are compared by masked tokens.
BERT: Values = {
    "model.family": "research",  # transformers has no model for most rows
    "model.num_layers": 4,
    "model.hidden_size": 128,
    "model.num_heads": 2,
    "model.mlp_size": 512,
    "model.max_positions": 128,
    "model.dropout": 0.0,
    "model.attention_dropout": 0.0,
    "data.sentence_pairs": "full_sentences",
    "train.steps": 1_200,
    "train.batch_size": 16,
    "train.log_every": 20,
    "train.phases": [{"seq_len": 128}],
    "optimizer.peak_learning_rate": 2e-3,
    "optimizer.warmup_fraction": 0.05,
    "optimizer.schedule": "linear",
    "evaluate.every": 100,
    "evaluate.batch_size": 64,
    "evaluate.num_sequences": 1_000,
    "checkpoint.every": 200,
    "checkpoint.keep": 1,
}
# The changes that lead from BERT's recipe to the modern recipe, in this order.
CHANGES: dict[str, Values] = {
    "pre_norm": {"model.norm_position": "pre", "model.final_norm": True},
    "rotary": {"model.positions": "rotary"},
    "gated": {"model.mlp": "gated", "model.mlp_size": 352},
    "no_biases": {
        "model.attention_bias": False,
        "model.mlp_bias": False,
        "model.norm_bias": False,
        "model.head_bias": False,
    },
    "neighbors": {"model.initialization": "neighbors", "model.initializer_range": 0.08},
    "muon": {"optimizer.name": "muon", "optimizer.muon_learning_rate": 0.02},
    "masks_40_to_15": {MASKS: (0.4, 0.15)},
    "short_first": {
        "train.phases": [
            {"seq_len": 64, "fraction": 0.8, "batch_size": 32},
            {"seq_len": 128, "fraction": 0.2, "batch_size": 16},
        ]
    },
}


class Row(NamedTuple):
    """Row of the ablation: the names of its changes, and its vocabulary size relative to the other rows."""

    changes: tuple[str, ...]
    vocabulary: float = 1.0


ALL = tuple(CHANGES)
ROWS: dict[str, Row] = {
    "bert": Row(()),
    **{f"+{name}": Row(ALL[: number + 1]) for number, name in enumerate(ALL[:-1])},
    "modern": Row(ALL),
    **{f"bert with {name}": Row((name,)) for name in ALL[1:]},
    **{f"modern without {name}": Row(tuple(one for one in ALL if one != name)) for name in ALL[:-1]},
    "modern, half the vocabulary": Row(ALL, 0.5),
    "modern, twice the vocabulary": Row(ALL, 2.0),
}


class Job(NamedTuple):
    """One run: a row, the mode (equal tokens or equal time), and a seed."""

    row: str
    mode: str
    seed: int

    def file(self, output: pathlib.Path) -> pathlib.Path:
        """Return the path of the result of the run."""
        name = "".join(c if c.isalnum() else "_" for c in self.row.replace("+", "to "))
        return output / "results" / f"{name}-{self.mode}-{self.seed}.json"


def parsed(overrides: Sequence[str]) -> Values:
    """Parse words of the form `--config.KEY=VALUE`."""
    values: Values = {}
    for word in overrides:
        key, equals, text = word.removeprefix("--config.").partition("=")
        if not (word.startswith("--config.") and equals):
            raise SystemExit(f"{word}: write --config.KEY=VALUE")
        try:
            values[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            values[key] = text
    return values


def config_of(values: Values, corpus: str) -> Any:
    """Return the `PretrainConfig` with these values of its flat keys."""
    from bert_jax.config import PretrainConfig, phases, pretrain_config, resolve

    made, values = pretrain_config(), values | {"data.corpus": corpus}
    masks = values.pop(MASKS, None)
    if masks:
        values["train.phases"] = with_masks(values["train.phases"], *masks)
    for key, value in values.items():
        *path, last = key.split(".")
        part = made
        for name in path:
            part = part[name]
        part[last] = phases(*value) if key == "train.phases" else value
    return resolve(PretrainConfig, made)


def with_masks(phases: Sequence[Values], begin: float, end: float) -> list[Values]:
    """Return phases whose masking rate changes linearly from `begin` to `end` over the run."""
    found, done = [], 0.0
    for phase in phases:
        until = done + phase.get("fraction", 1.0)
        rates = [begin + (end - begin) * part for part in (done, until)]
        found.append(phase | {"mask_probability": rates[0], "mask_probability_end": rates[1]})
        done = until
    return found
