"""The choices behind a random model directory, and the directory while it is being made."""

import dataclasses
import pathlib
import random
from collections.abc import Callable
from typing import Any

import torch

SEQUENCES, TOKENS, MASKS, BARE = "ForSequenceClassification", "ForTokenClassification", "ForMaskedLM", "Model"
ANSWERS, CHOICES, PRETRAINING = "ForQuestionAnswering", "ForMultipleChoice", "ForPreTraining"
LABELED = (SEQUENCES, TOKENS)
FOLLOW_PADDING = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer")
WITHOUT_POOLER = ("distilbert", "electra", "modernbert", "deberta-v2")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """The choices behind a directory."""

    seed: int
    number: int
    family: str
    class_prefix: str  # "Bert" of BertForMaskedLM
    task: str  # "ForMaskedLM" of BertForMaskedLM
    version: int  # of transformers, whose layout the files have
    odd: tuple[str, ...] = ()  # rows of ODD


@dataclasses.dataclass(kw_only=True)
class Draft:
    """A directory that is being made."""

    case: Case
    rng: random.Random
    directory: pathlib.Path
    tokenizer: Any = None  # of transformers
    config: dict[str, Any] = dataclasses.field(default_factory=dict)  # arguments of the family's config
    model: Any = None  # of transformers
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)  # config.json
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)  # tokenizer_config.json
    definition: dict[str, Any] = dataclasses.field(default_factory=dict)  # tokenizer.json
    tensors: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)
    weights_file: str = "model.safetensors"
    num_shards: int = 1
    removed: set[str] = dataclasses.field(default_factory=set)  # names of files
    wrap: Callable[[pathlib.Path], None] = lambda directory: None  # after all files are written
