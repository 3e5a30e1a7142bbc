"""Every knob, its default and its meaning; a `ConfigDict` from a recipe becomes one frozen `Config`.

A recipe (`configs/NAME.py`) calls `default_config()`, changes what differs and returns it. `resolve` checks the
result against the dataclasses below, so that an unknown key or a wrong type is refused by name.
"""

import dataclasses
import math
import os
import pathlib
import re
import sys
import typing
from collections.abc import Sequence
from typing import Any

import ml_collections
from absl import flags
from ml_collections import config_flags

from bert_jax.errors import UserError, did_you_mean, nearest

Range = tuple[float, float]
SHARE: Range = (0.0, 1.0)
BELOW_ONE: Range = (0.0, math.nextafter(1.0, 0.0))
SOME: Range = (1e-6, 1.0)
POSITIVE: Range = (1, math.inf)
NATURAL: Range = (0, math.inf)
SOME_TIMES: Range = (1e-3, math.inf)

FAMILIES = ("bert", "roberta", "albert", "distilbert", "electra")
PAIRINGS = ("next_sentence", "sentence_order", "full_sentences", "document_sentences", "none")
MASKINGS = ("token", "whole_word", "ngram", "span")
IN_WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "text", tuple: "a tuple like (1, 2)"}
KINDS = ("", "classification", "regression", "tagging", "span", "choice")


def knob(default: Any, meaning: str, allowed: Range | tuple[str, ...] | None = None) -> Any:
    """A dataclass field, its one-line meaning and what it may be: (lowest, highest), or the names to choose from."""
    return dataclasses.field(default=default, metadata={"meaning": meaning, "allowed": allowed})


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """The architecture alone: with the weights, all that an export needs."""

    family: str = knob("bert", "whose names and files an export takes", FAMILIES)
    vocab_size: int = knob(0, "tokens in the vocabulary; 0 takes the corpus's", NATURAL)
    hidden_size: int = knob(768, "width of the residual stream", POSITIVE)
    num_layers: int = knob(12, "transformer blocks", POSITIVE)
    num_heads: int = knob(12, "attention heads; must divide hidden_size", POSITIVE)
    mlp_size: int = knob(3072, "inner width of the feed-forward block", POSITIVE)
    max_positions: int = knob(512, "learned position embeddings: the longest row the model can read", POSITIVE)
    num_token_types: int = knob(2, "segments: 2 for sentence pairs, 1 in RoBERTa, 0 in DistilBERT: no table", NATURAL)
    position_offset: int = knob(0, "number of the first position; RoBERTa counts from 2, its padding id + 1", NATURAL)
    embedding_size: int = knob(0, "width of the tables, projected to hidden_size; 0: hidden_size, unprojected", NATURAL)
    share_layers: bool = knob(False, "all blocks have the same parameters (ALBERT)")
    activation: str = knob(
        "gelu", "'gelu' (erf, as in the released BERT) or 'gelu_tanh' (Google's code since 2019)", ("gelu", "gelu_tanh")
    )
    masked_activation: str = knob("", "of the masked-token head; '' as activation", ("", "gelu", "gelu_tanh"))
    pooler_activation: str = knob("tanh", "'relu' in DistilBERT, 'gelu' in ELECTRA", ("tanh", "relu", "gelu"))
    pooler_dropout: bool = knob(False, "dropout before the pooler too (RoBERTa, ELECTRA)")
    layer_norm_epsilon: float = knob(1e-12, "added to the variance under the root", NATURAL)
    dropout: float = knob(0.1, "after the embeddings and on both sublayer outputs", BELOW_ONE)
    attention_dropout: float = knob(0.1, "on the attention probabilities", BELOW_ONE)
    classifier_dropout: float = knob(0.1, "before the output of a task's head", BELOW_ONE)
    initializer_range: float = knob(0.02, "standard deviation of the truncated normal at the start", NATURAL)


@dataclasses.dataclass(frozen=True)
class ComputeConfig:
    """How the architecture is computed; changes speed and rounding, never what is learned."""

    dtype: str = knob(
        "float32", "of matrix products: 'float32' or 'bfloat16' (parameters stay float32)", ("float32", "bfloat16")
    )
    scan_layers: bool = knob(True, "compile one block and scan it over the layers; False unrolls them")
    attention: str = knob(
        "auto",
        "'auto': one fused kernel on TPUs, XLA elsewhere; 'xla': XLA everywhere; 'cudnn': for NVIDIA GPUs",
        ("auto", "xla", "cudnn"),
    )
    remat: bool = knob(False, "recompute each block in the backward pass: less memory, a third more work")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """From the prepared corpus to rows."""

    corpus: str = knob("", "directory made by `prepare`; several, parted by commas, or a glob pattern, are mixed")
    weights: tuple[float, ...] = knob((), "of the rows of each corpus of a mixture; () takes what it has, smoothed")
    smoothing: float = knob(1.0, "exponent of those rows: 1 as they are; 0.7 as multilingual BERT; 0 all alike", SHARE)
    pairing: str = knob("next_sentence", "what a row is made of: see bert_jax/data/rows/sampling.py", PAIRINGS)
    packing: int = knob(1, "examples that may share a row, each reading itself alone; 1: none do", POSITIVE)
    short_probability: float = knob(0.1, "share of pairs whose target length is drawn at random", SHARE)
    masking: str = knob("token", "what is masked together: see bert_jax/data/rows/masking.py", MASKINGS)
    mask_probability: float = knob(0.15, "share of a row's tokens to predict", SOME)
    mask_token_share: float = knob(0.8, "of those, replaced by [MASK]", SHARE)
    random_token_share: float = knob(0.1, "of those, replaced by a random token; the rest keep theirs", SHARE)
    longest_span: int = knob(
        0, "words that are masked together, at most; 0: as published, 3 in n-grams, 10 in spans", NATURAL
    )
    span_end_probability: float = knob(0.2, "of a span to end after each of its words", SOME)
    duplicates: int = knob(0, "epochs after which the same rows return, as in the original's 10; 0: never", NATURAL)
    threads: int = knob(2, "threads that build batches", POSITIVE)
    prefetch: int = knob(4, "batches built ahead of the step", POSITIVE)


@dataclasses.dataclass(frozen=True)
class PhaseConfig:
    """One stretch of the run at one sequence length; 0 takes the value of `train` or `optimizer`."""

    length: int = knob(128, "tokens in a row", POSITIVE)
    share: float = knob(1.0, "of train.steps", SHARE)
    batch_size: int = knob(0, "rows a step", NATURAL)
    accumulation: int = knob(0, "micro-batches a step", NATURAL)
    peak_learning_rate: float = knob(0.0, "if set, the schedule starts afresh in this phase", NATURAL)
    warmup_share: float = knob(0.0, "of this phase's steps; only with its own peak_learning_rate", SHARE)


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """How long, how much at a time."""

    steps: int = knob(1_000_000, "optimizer steps of the whole run", POSITIVE)
    batch_size: int = knob(256, "rows a step, over all devices and hosts", POSITIVE)
    accumulation: int = knob(1, "micro-batches that a step is computed in", POSITIVE)
    phases: tuple[PhaseConfig, ...] = knob((PhaseConfig(),), "in order; the shares add up to 1")
    log_every: int = knob(100, "steps between two lines of metrics", POSITIVE)
    max_bad_steps: int = knob(20, "skipped steps in a row (loss or gradient not finite) that stop the run", POSITIVE)


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """AdamW or LAMB, warmup and decay."""

    name: str = knob("adamw", "'adamw' or 'lamb'", ("adamw", "lamb"))
    peak_learning_rate: float = knob(1e-4, "at the end of warmup", NATURAL)
    warmup_share: float = knob(0.01, "of train.steps", SHARE)
    schedule: str = knob(
        "bert", "'bert': decay counts from step 0, warmup replaces it; 'optax': from the peak", ("bert", "optax")
    )
    decay_power: float = knob(1.0, "1: linear to zero; NVIDIA's LAMB takes 0.5", NATURAL)
    beta1: float = knob(0.9, "decay of the first moment", BELOW_ONE)
    beta2: float = knob(0.999, "decay of the second moment", BELOW_ONE)
    epsilon: float = knob(1e-6, "added outside the root", NATURAL)
    weight_decay: float = knob(0.01, "decoupled; LayerNorms and biases are exempt", NATURAL)
    bias_correction: bool = knob(True, "False is the original BERT's Adam")
    clip_norm: float = knob(1.0, "of the global gradient norm; 0: no clipping", NATURAL)
    layer_decay: float = knob(1.0, "rate of each layer over that of the next; ELECTRA fine-tunes with 0.8", SOME)
    freeze_encoder: bool = knob(False, "train the heads alone")


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """Devices along each axis; one of them may be -1, which takes what is left."""

    data: int = knob(-1, "copies of the model")
    fsdp: int = knob(1, "shards of parameters and optimizer state")
    tensor: int = knob(1, "shards of heads, feed-forward and vocabulary")


@dataclasses.dataclass(frozen=True)
class EvaluateConfig:
    """Held-out evaluation during training."""

    every: int = knob(10_000, "steps between two evaluations; 0: only at the end, of `finetune` each epoch", NATURAL)
    rows: int = knob(10_000, "rows of the held-out documents, at most one epoch of them", NATURAL)
    batch_size: int = knob(256, "rows an evaluation step", POSITIVE)


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """What survives."""

    every: int = knob(1_000, "steps between two checkpoints; 0: only at the end, of `finetune` each epoch", NATURAL)
    keep: int = knob(3, "newest checkpoints to keep", POSITIVE)
    keep_period: int = knob(0, "also keep every checkpoint at a multiple of this step, for ever; 0: none", NATURAL)


@dataclasses.dataclass(frozen=True)
class WatchdogConfig:
    """Seconds without progress after which a run ends with status 124 and says why; 0: it waits for ever."""

    start_seconds: float = knob(1_800.0, "to find all processes; to open the data; to read a checkpoint", NATURAL)
    compile_seconds: float = knob(3_600.0, "for one program", NATURAL)
    step_seconds: float = knob(900.0, "for one step, or one batch of an evaluation, and the rows for it", NATURAL)
    save_seconds: float = knob(1_800.0, "for one checkpoint", NATURAL)


@dataclasses.dataclass(frozen=True)
class TaskConfig:
    """What to fine-tune on, from which files, how the best of several trainings is found."""

    name: str = knob("", "a row of bert_jax/tasks/table.py, such as 'mrpc' or 'squad2', or 'custom'")
    kind: str = knob("", "of a custom task", KINDS)
    data: str = knob("", "directory with the published files, plain or .gz; or 'tfds:NAME', 'tfds:NAME@DATA_DIR'")
    train: str = knob("", "file instead of the published name, relative to data or absolute")
    dev: str = knob("", "likewise, to evaluate on")
    test: str = knob("", "likewise, to predict on at the end")
    columns: str = knob("", "of a custom task: 'text=sentence1,text_pair=sentence2,label=gold'")
    labels: str = knob("", "of a custom task: 'no,yes'; '' takes those of the training file, sorted")
    metric: str = knob("", "that picks the best checkpoint; '' takes the task's own")
    max_length: int = knob(128, "tokens in a row, the longest", POSITIVE)
    buckets: tuple[int, ...] = knob((), "lengths that rows are padded to, each compiled once; () chooses a few")
    doc_stride: int = knob(128, "tokens from one window of a long context to the next", POSITIVE)
    max_query_length: int = knob(64, "tokens of a question; what is longer is cut, and counted", POSITIVE)
    max_answer_length: int = knob(30, "tokens of an answer, at most", POSITIVE)
    n_best: int = knob(20, "answers that are kept of a question", POSITIVE)
    epochs: float = knob(3.0, "times that each row is seen", SOME_TIMES)
    seeds: int = knob(1, "trainings that differ in the seed alone, from config.seed on", POSITIVE)
    learning_rates: tuple[float, ...] = knob((), "each is tried with each seed; () takes optimizer.peak_learning_rate")
    patience: int = knob(0, "evaluations without a new best that end a training; 0: none does", NATURAL)
    dropout: float = knob(-1.0, "in encoder and head; below 0: as the weights were trained with", (-1.0, BELOW_ONE[1]))
    random_weights: bool = knob(False, "of init_from take architecture and tokenizer alone: what is pretraining worth?")


@dataclasses.dataclass(frozen=True)
class Config:
    """A whole run."""

    seed: int = knob(0, "of the parameters, the rows and the dropout", NATURAL)
    init_from: str = knob("", "weights to start from: an export, a work directory, or one of Hugging Face")
    model: EncoderConfig = knob(EncoderConfig(), "architecture")
    compute: ComputeConfig = knob(ComputeConfig(), "precision and compilation")
    data: DataConfig = knob(DataConfig(), "rows")
    train: TrainConfig = knob(TrainConfig(), "steps and phases")
    optimizer: OptimizerConfig = knob(OptimizerConfig(), "update")
    mesh: MeshConfig = knob(MeshConfig(), "devices")
    evaluate: EvaluateConfig = knob(EvaluateConfig(), "held-out rows")
    checkpoint: CheckpointConfig = knob(CheckpointConfig(), "saving")
    task: TaskConfig = knob(TaskConfig(), "fine-tuning")
    watchdog: WatchdogConfig = knob(WatchdogConfig(), "hangs and lost processes")


# Keys that a resumed run may change: what is learned stays the same up to rounding. data.corpus, task.data and
# init_from are where something lies, not which it is; evaluate changes what is measured, not what is learned.
FREE_TO_CHANGE = (
    "compute.scan_layers",
    "compute.attention",
    "compute.remat",
    "data.corpus",
    "data.threads",
    "data.prefetch",
    "train.log_every",
    "train.max_bad_steps",
    "mesh",
    "evaluate",
    "checkpoint",
    "watchdog",
    "init_from",
    "task.data",
    "task.test",
    "task.seeds",
    "task.learning_rates",
)


def default_config() -> ml_collections.ConfigDict:
    """All defaults as a mutable `ConfigDict`, for a recipe to change."""
    config = ml_collections.ConfigDict(dataclasses.asdict(Config()))
    config.train.phases = phases({})
    return config


def phases(*rows: dict[str, Any]) -> tuple[ml_collections.ConfigDict, ...]:
    """`train.phases` from one dict a phase, each over the defaults of `PhaseConfig`."""
    return tuple(ml_collections.ConfigDict(dataclasses.asdict(PhaseConfig()) | row) for row in rows)


def read_config(file: str | None, overrides: Sequence[str]) -> Config:
    """The `Config` of a recipe with overrides such as `--config.train.steps=9` or `--config.train.phases[0].length=64`.

    Without a file, of the defaults. Raises UserError for a file that is no recipe, and for each override that names no
    key or does not fit its type.
    """
    known = {index_form(key): value for key, value in flatten(_plain(_load(file, ()))).items()}
    for override in overrides:
        key, equals, _ = override.removeprefix("--config.").partition("=")
        if not override.startswith("--config."):
            name, equals, value = override.lstrip("-").partition("=")
            meant = name if name.startswith("config.") else f"config.{name}"
            if meant.removeprefix("config.") in known:
                raise UserError(f"'{override}' is no option; write --{meant}{equals}{value}")
            raise UserError(
                f"'{override}' is no option{did_you_mean(f'--{name}', [f'--config.{key}' for key in known])}"
            )
        if key not in known:
            raise UserError(f"config has no key '{key}'{did_you_mean(key, known)}")
        if not equals:
            raise UserError(f"{override}: write {override}=VALUE")
    try:
        return resolve(_load(file, overrides))
    except flags.IllegalFlagValueError as error:
        key = str(error).removeprefix("flag --config.").partition("=")[0]
        given = next(one for one in overrides if one.startswith(f"--config.{key}="))
        raise UserError(f"{given}: give {IN_WORDS.get(type(known[key]), 'another value')}") from error


def index_form(key: str) -> str:
    """A dotted key of `flatten` as it is written on the command line: `train.phases[0].length`."""
    return re.sub(r"\.(\d+)", r"[\1]", key)


def _load(file: str | None, overrides: Sequence[str]) -> ml_collections.ConfigDict:
    """The recipe's ConfigDict, or the default one, overridden by ml_collections' own flag parser."""
    values = flags.FlagValues()
    argv = ["bert_jax", *([f"--config={file}"] if file else []), *overrides]
    if file is None:
        config_flags.DEFINE_config_dict("config", default_config(), flag_values=values, sys_argv=argv)
    else:
        if not os.path.isfile(file):
            path = pathlib.Path(file)
            recipes = {one.stem: one for one in (*pathlib.Path("configs").rglob("*.py"), *path.parent.glob("*.py"))}
            near = recipes.get(nearest(path.stem, recipes))
            raise UserError(f"--config={file}: no such file{f'; did you mean {near}?' if near else ''}")
        sys.modules.pop("config_config", None)  # ml_collections loads a recipe over the names of the one before
        config_flags.DEFINE_config_file("config", flag_values=values, sys_argv=argv)
    try:
        values(argv)
    except flags.IllegalFlagValueError:
        raise
    except Exception as error:  # a recipe is a program: it may raise anything
        what = f"--config={file}: no recipe with get_config()" if file else "the options of the config do not fit"
        raise UserError(f"{what} ({type(error).__name__}: {error})") from error
    if not isinstance(values.config, ml_collections.ConfigDict):
        raise UserError(f"--config={file}: its get_config() must return an ml_collections.ConfigDict")
    return values.config


def resolve(config: ml_collections.ConfigDict) -> Config:
    """The frozen `Config` of a `ConfigDict`; UserError names a key that is unknown, of a wrong type or out of range."""
    built = from_values(Config, _plain(config), "config")
    model, train = built.model, built.train
    if model.hidden_size % model.num_heads:
        raise UserError(
            f"config.model.num_heads={model.num_heads} does not divide config.model.hidden_size={model.hidden_size}"
        )
    if not math.isclose(total := sum(phase.share for phase in train.phases), 1.0, abs_tol=1e-6):
        raise UserError(f"config.train.phases: the shares add up to {total:g}; they must add up to 1")
    for number, phase in enumerate(train.phases):
        if not 8 <= phase.length <= model.max_positions:
            raise UserError(
                f"config.train.phases[{number}].length={phase.length}: rows have 8 to {model.max_positions} tokens "
                "(config.model.max_positions)"
            )
    _check_data(built.data)
    return built


def _check_data(data: DataConfig) -> None:
    """Refuses what contradicts itself, or would be ignored."""
    if data.mask_token_share + data.random_token_share > 1:
        raise UserError("config.data.mask_token_share and random_token_share add up to more than 1")
    if any(weight < 0 for weight in data.weights) or (data.weights and not sum(data.weights)):
        raise UserError(f"config.data.weights={data.weights}: give numbers from 0 on, and one above 0")
    for knob_name, works, why in (
        ("longest_span", data.masking in ("ngram", "span"), "without config.data.masking=ngram or span; set that"),
        ("span_end_probability", data.masking == "span", "without config.data.masking=span; set that"),
        ("smoothing", not data.weights, "beside config.data.weights; leave one out"),
    ):
        if getattr(data, knob_name) != getattr(DataConfig(), knob_name) and not works:
            raise UserError(f"config.data.{knob_name} has no effect {why}")


def to_json(config: Config) -> dict[str, Any]:
    """The config as plain JSON values; `from_json` is its inverse."""
    return dataclasses.asdict(config)


def from_json(values: dict[str, Any]) -> Config:
    """The config that `to_json` wrote."""
    return from_values(Config, values, "config")


def flatten(values: Any, prefix: str = "") -> dict[str, Any]:
    """Nested dicts, and lists of them, as one dict with dotted keys: `train.phases.0.length`; others stay whole."""
    whole = isinstance(values, list | tuple) and not any(isinstance(one, dict) for one in values)
    if whole or not isinstance(values, dict | list | tuple):
        return {prefix: values}
    rows = values.items() if isinstance(values, dict) else enumerate(values)
    flat: dict[str, Any] = {}
    for key, value in rows:
        flat |= flatten(value, f"{prefix}.{key}" if prefix else str(key))
    return flat


def differences(saved: Config, wanted: Config) -> list[str]:
    """One line a key in which two configs differ so that the numbers of a run would."""
    old, new = flatten(to_json(saved)), flatten(to_json(wanted))
    free = tuple(key + "." for key in FREE_TO_CHANGE)
    return [
        f"{key}: {old.get(key)} -> {new.get(key)}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key) and not f"{key}.".startswith(free)
    ]


def _plain(config: Any) -> Any:
    """A ConfigDict as dicts, tuples and scalars (its own to_dict stops at tuples)."""
    if isinstance(config, ml_collections.ConfigDict):
        return {key: _plain(value) for key, value in config.items()}
    return tuple(_plain(value) for value in config) if isinstance(config, list | tuple) else config


def from_values(kind: Any, value: Any, path: str) -> Any:
    """`value` as an instance of `kind`: a dataclass of this file, a tuple of one, or a scalar.

    Raises UserError, which names what is wrong after `path`.
    """
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, value, path)
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{path}={value!r} must be a tuple, such as (1, 2)")
        one = typing.get_args(kind)[0]
        if not value and dataclasses.is_dataclass(one):
            raise UserError(f"{path} is empty; give at least one")
        return tuple(from_values(one, row, f"{path}[{i}]") for i, row in enumerate(value))
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise UserError(f"{path}={value!r}: give {IN_WORDS[kind]}")
    return value


def _build_dataclass(kind: Any, value: Any, path: str) -> Any:
    hints = typing.get_type_hints(kind)
    for key in value:
        if key not in hints:
            raise UserError(f"{path} has no key '{key}'{did_you_mean(key, hints)}")
    fields = {}
    for field in dataclasses.fields(kind):
        if field.name not in value:
            continue
        here = f"{path}.{field.name}"
        fields[field.name] = built = from_values(hints[field.name], value[field.name], here)
        allowed = field.metadata["allowed"]
        if allowed and isinstance(allowed[0], str) and built not in allowed:
            raise UserError(f"{here}={built!r}: choose from {', '.join(allowed)}")
        if allowed and not isinstance(allowed[0], str) and not allowed[0] <= built <= allowed[1]:
            raise UserError(f"{here}={built!r} must {_range_in_words(*allowed)}")
    return kind(**fields)


def _range_in_words(lowest: float, highest: float) -> str:
    if highest == math.inf:
        return f"be at least {lowest:g}"
    return f"lie from {lowest:g} to {'below ' if highest == BELOW_ONE[1] else ''}{highest:g}"
