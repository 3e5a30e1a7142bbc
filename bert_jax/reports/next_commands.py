"""Commands that use the model of a finished run; the console and the report show them."""

import shlex
from collections.abc import Iterable

from bert_jax.models import Head


def pretrained_commands(workdir: str, heads: Iterable[Head], mask: str) -> list[str]:
    """Return commands that use a pretrained model.

    Args:
        workdir: work directory of the run.
        heads: heads of the exported model.
        mask: mask token of the run's tokenizer.
    """
    path, stem = shlex.quote(workdir), workdir.rstrip("/")
    text = shlex.quote(f"The capital of {mask} is Paris.")
    fills_masks = any(head.name == "masked_token" for head in heads)
    return [
        f"bert-jax evaluate  --workdir {path}",
        *([f"bert-jax fill-mask --model {path} {text}"] if fills_masks else []),
        f"bert-jax export    --workdir {path} --output {shlex.quote(stem + '-export')}",
        f"bert-jax finetune  --config=glue --workdir {shlex.quote(stem + '-mrpc')} --config.init_from={path} "
        "--config.task.name=mrpc --config.task.data=DIR",
    ]


def finetuned_commands(workdir: str) -> list[str]:
    """Return the command that uses a fine-tuned model."""
    return [f"bert-jax predict --model {shlex.quote(workdir)} --input FILE --output predictions.jsonl"]
