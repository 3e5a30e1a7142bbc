"""Pretrain, fine-tune, evaluate and export BERT-family encoders in JAX.

The Python API is the names in `__all__`; docs/api.md shows each at work. They are imported when first used, so that
`import bert_jax` is fast and loads no JAX.

The packages, in the order of imports: each may import those above it (tests/test_layout.py).

    errors.py        the one exception that a mistake of the user raises
    files.py         files and directories that are written atomically, and their digests
    strict_json.py   JSON from outside, with bounds
    console.py       progress and messages
    config/          fields of a run, recipes, published architectures
    parallel/        mesh and shardings, processes, watchdog, preemption
    data/            text -> sequences, in numpy: sources, tokenizer, preparation, corpus, batches
    models/          encoder, attention kernels, heads: batch -> arrays
    tasks/           tasks and their kinds: examples, features, predictions, scores
    objectives/      models and labels -> loss
    training/        loop, step, optimizers, schedules, checkpoints, metrics files
    interop/         models of other libraries, in and out: Hugging Face, TensorFlow, StableHLO, ONNX
    inference/       model directories at work: embed, fill masks, predict
    reports/         a corpus and a run to look at
    runs/            whole commands: pretrain, finetune, evaluate, export
    dryrun/          a recipe compiled for devices that are not there: memory, time, cost
    cli/             the command line
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bert_jax.config import (
        ComputeConfig,
        EncoderConfig,
        FinetuneConfig,
        PretrainConfig,
        finetune_config,
        pretrain_config,
        read_config,
        resolve,
    )
    from bert_jax.data.corpus import open_corpus
    from bert_jax.data.preparation.prepare import prepare
    from bert_jax.data.tokenizer import load_tokenizer
    from bert_jax.data.tokenizer.training.train import train_tokenizer
    from bert_jax.errors import UserError
    from bert_jax.inference.loaded_model import LoadedModel, load
    from bert_jax.interop.huggingface.model import export_model
    from bert_jax.models import Head, make_model
    from bert_jax.objectives import make_objective
    from bert_jax.runs.api import OpenRun, batches, finetune, open_run, pretrain

__version__ = "0.1.0"
__all__ = [
    "ComputeConfig",
    "EncoderConfig",
    "FinetuneConfig",
    "Head",
    "LoadedModel",
    "OpenRun",
    "PretrainConfig",
    "UserError",
    "batches",
    "export_model",
    "finetune",
    "finetune_config",
    "load",
    "load_tokenizer",
    "make_model",
    "make_objective",
    "open_corpus",
    "open_run",
    "prepare",
    "pretrain",
    "pretrain_config",
    "read_config",
    "resolve",
    "train_tokenizer",
]

# Name -> module below bert_jax.
_MODULES = {
    "ComputeConfig": "config",
    "EncoderConfig": "config",
    "FinetuneConfig": "config",
    "Head": "models",
    "LoadedModel": "inference.loaded_model",
    "OpenRun": "runs.api",
    "PretrainConfig": "config",
    "UserError": "errors",
    "batches": "runs.api",
    "export_model": "interop.huggingface.model",
    "finetune": "runs.api",
    "finetune_config": "config",
    "load": "inference.loaded_model",
    "load_tokenizer": "data.tokenizer",
    "make_model": "models",
    "make_objective": "objectives",
    "open_corpus": "data.corpus",
    "open_run": "runs.api",
    "prepare": "data.preparation.prepare",
    "pretrain": "runs.api",
    "pretrain_config": "config",
    "read_config": "config",
    "resolve": "config",
    "train_tokenizer": "data.tokenizer.training.train",
}


def __getattr__(name: str) -> Any:
    """Import a name of the API when it is first used (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module 'bert_jax' has no attribute '{name}'")
    return getattr(importlib.import_module(f"bert_jax.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
