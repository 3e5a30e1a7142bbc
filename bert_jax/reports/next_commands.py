"""Commands that use the model of a finished run, for its console and its report."""

import shlex

from bert_jax.config import PretrainConfig
from bert_jax.objectives import OBJECTIVES


def pretrained_commands(workdir: str, config: PretrainConfig, mask: str) -> list[str]:
    """Return commands that use the model of a pretraining; `mask` is the mask token of its tokenizer."""
    place, stem = shlex.quote(workdir), workdir.rstrip("/")
    text = shlex.quote(f"The capital of {mask} is Paris.")
    fills = any(head.name == "masked_token" for head in OBJECTIVES[config.objective].heads(config.data.sentence_pairs))
    return [
        f"bert-jax evaluate  --workdir {place}",
        *([f"bert-jax fill-mask --model {place} {text}"] if fills else []),
        f"bert-jax export    --workdir {place} --output {shlex.quote(stem + '-export')}",
        f"bert-jax finetune  --config=glue --workdir {shlex.quote(stem + '-mrpc')} --config.init_from={place} "
        "--config.task.name=mrpc --config.task.data=DIR",
    ]


def finetuned_commands(workdir: str) -> list[str]:
    """Return the command that uses the model of a fine-tuning."""
    return [f"bert-jax predict --model {shlex.quote(workdir)} --input FILE --output predictions.jsonl"]
