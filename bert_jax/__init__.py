"""Pretrain, fine-tune, evaluate and export BERT-family encoders in JAX.

The Python API is the names in `__all__`; docs/api.md shows an example of each name. Each name is imported at its first
use, so that `import bert_jax` is fast and loads no JAX.

The packages and modules of bert_jax are listed in the order of their imports, which is also the order in which data
flows through them. A package may import the packages above it in this list (tests/test_layout.py).

    errors.py        the exception for a mistake of the user
    files.py         files and directories that are written atomically, and their digests
    strict_json.py   untrusted JSON, with limits on its size and depth
    console.py       progress and messages
    config/          fields of a run, recipes, published architectures
    parallel/        mesh and shardings, processes, watchdog, preemption
    readers/         files, archives, buckets, data sets -> documents
    tokenizer/       text <-> token ids
    corpus/          the prepared corpus on disk; corpus/build/ makes it from documents
    batches/         sequence number -> masked sequence -> batch
    models/          encoder, attention kernels, heads: batch -> arrays
    tasks/           tasks and their kinds: examples, features, predictions, scores
    objectives/      models and labels -> loss
    training/        step, loop, optimizers, schedules, checkpoints, metrics files
    interop/         models of other libraries, in and out: Hugging Face, TensorFlow, StableHLO, ONNX
    checkpoints/     any model directory -> config, parameters, tokenizer
    inference/       texts through a model directory: embed, fill masks, predict
    search/          the best documents of a query, by vectors or by words
    scoring/         minimal pairs, pseudo-perplexity, bias, retrieval
    loaded_model.py  a model in memory, for Python
    reports/         pages, texts and pictures about a corpus, a run or a model
    pretraining/     all steps of `pretrain`
    finetuning/      all steps of `finetune`
    convert/         one model directory -> another: export, compress, vocabulary
    api.py           runs for Python
    dryrun/          a recipe compiled for devices that are not present: memory, time, cost
    verbs.py         the other verbs of the command line for Python
    cli/             the command line
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bert_jax.api import OpenRun, PretrainRun, finetune, finetune_on_file, make_batches, open_run, pretrain
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
    from bert_jax.corpus.build.clean import clean_texts
    from bert_jax.corpus.build.prepare import prepare
    from bert_jax.corpus.store import open_corpus
    from bert_jax.errors import UserError
    from bert_jax.finetuning.mine import mine_negatives
    from bert_jax.finetuning.unlabeled import write_unlabeled_pairs
    from bert_jax.interop.huggingface.model import export_model
    from bert_jax.loaded_model import LoadedModel, load
    from bert_jax.models import Head, make_model
    from bert_jax.objectives import make_objective
    from bert_jax.tokenizer import load_tokenizer
    from bert_jax.tokenizer.train import train_tokenizer
    from bert_jax.verbs import (
        attention,
        bias,
        compile_recipe,
        compress,
        evaluate,
        export,
        inspect,
        plot,
        report,
        score,
        verify,
        verify_run,
        vocabulary,
    )

__version__ = "0.1.0"
__all__ = [
    "ComputeConfig",
    "EncoderConfig",
    "FinetuneConfig",
    "Head",
    "LoadedModel",
    "OpenRun",
    "PretrainConfig",
    "PretrainRun",
    "UserError",
    "attention",
    "bias",
    "clean_texts",
    "compile_recipe",
    "compress",
    "evaluate",
    "export",
    "export_model",
    "finetune",
    "finetune_config",
    "finetune_on_file",
    "inspect",
    "load",
    "load_tokenizer",
    "make_batches",
    "make_model",
    "make_objective",
    "mine_negatives",
    "open_corpus",
    "open_run",
    "plot",
    "prepare",
    "pretrain",
    "pretrain_config",
    "read_config",
    "report",
    "resolve",
    "score",
    "train_tokenizer",
    "verify",
    "verify_run",
    "vocabulary",
    "write_unlabeled_pairs",
]

# Name -> module below bert_jax.
_MODULES = {
    "ComputeConfig": "config",
    "EncoderConfig": "config",
    "FinetuneConfig": "config",
    "Head": "models",
    "LoadedModel": "loaded_model",
    "OpenRun": "api",
    "PretrainConfig": "config",
    "PretrainRun": "api",
    "UserError": "errors",
    "attention": "verbs",
    "bias": "verbs",
    "clean_texts": "corpus.build.clean",
    "compile_recipe": "verbs",
    "compress": "verbs",
    "evaluate": "verbs",
    "export": "verbs",
    "export_model": "interop.huggingface.model",
    "finetune": "api",
    "finetune_config": "config",
    "finetune_on_file": "api",
    "inspect": "verbs",
    "load": "loaded_model",
    "load_tokenizer": "tokenizer",
    "make_batches": "api",
    "make_model": "models",
    "make_objective": "objectives",
    "mine_negatives": "finetuning.mine",
    "open_corpus": "corpus.store",
    "open_run": "api",
    "plot": "verbs",
    "prepare": "corpus.build.prepare",
    "pretrain": "api",
    "pretrain_config": "config",
    "read_config": "config",
    "report": "verbs",
    "resolve": "config",
    "score": "verbs",
    "train_tokenizer": "tokenizer.train",
    "verify": "verbs",
    "verify_run": "verbs",
    "vocabulary": "verbs",
    "write_unlabeled_pairs": "finetuning.unlabeled",
}


def __getattr__(name: str) -> Any:
    """Import a name of the Python API when the name is first used (PEP 562)."""
    if name not in _MODULES:
        from bert_jax.errors import did_you_mean

        first = name.partition("_")[0]  # as in load_model
        meant = f"; did you mean '{first}'?" if first in __all__ else did_you_mean(name, __all__)
        raise AttributeError(f"module 'bert_jax' has no attribute '{name}'{meant}")
    return getattr(importlib.import_module(f"bert_jax.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
