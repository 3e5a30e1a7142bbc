"""Random model directories as people publish them: `draw_case(seed, number)`, then `write_case` with transformers.

A directory has the defaults of `save_pretrained`, and up to two odd properties: rows of ODD. The weight of a family or
of a row is the share of published directories with it, in percent, by the author's estimate. Half of the directories
have the layout of transformers 4.
"""

import dataclasses
import json
import pathlib
import random
from collections.abc import Mapping
from typing import Any

import safetensors.torch
import torch
import transformers

from tests.helpers import random_tokenizers
from tests.helpers.directory_cases import (
    ANSWERS,
    BARE,
    CHOICES,
    FOLLOW_PADDING,
    LABELED,
    MASKS,
    PRETRAINING,
    SEQUENCES,
    TOKENS,
    Case,
    Draft,
)
from tests.helpers.odd_properties import ODD

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

# Family -> the beginning of the names of its classes, and its weight.
PREFIXES = {
    "bert": ("Bert", 36),
    "roberta": ("Roberta", 12),
    "xlm-roberta": ("XLMRoberta", 10),
    "distilbert": ("DistilBert", 11),
    "deberta-v2": ("DebertaV2", 5),
    "mpnet": ("MPNet", 5),
    "modernbert": ("ModernBert", 5),
    "albert": ("Albert", 3),
    "electra": ("Electra", 3),
    "camembert": ("Camembert", 3),
    "longformer": ("Longformer", 2),
    "big_bird": ("BigBird", 2),
    "mobilebert": ("MobileBert", 1.5),
    "nomic_bert": ("NomicBert", 1.5),
}
TASKS = {SEQUENCES: 36, BARE: 22, MASKS: 18, TOKENS: 13, ANSWERS: 8, CHOICES: 1.5, PRETRAINING: 1.5}
NUM_ODD = {0: 20, 1: 45, 2: 35}
MAX_POSITIONS = 64
# Fields of BERT that transformers 4 wrote, and that transformers 5 does not know.
POSITIONS_OF_4 = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "albert")
# Fields that transformers 5 writes, and transformers 4 did not write at these values.
FIELDS_OF_5 = {
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "is_decoder": False,
    "bos_token_id": None,
    "eos_token_id": None,
}


def draw_case(seed: int, number: int) -> Case:
    """Return the case of a number; the same for every call."""
    rng = random.Random(f"{seed} {number}")
    family = _draw(rng, {name: weight for name, (_, weight) in PREFIXES.items()})
    tasks = {end: weight for end, weight in TASKS.items() if hasattr(transformers, PREFIXES[family][0] + end)}
    case = Case(
        seed=seed,
        number=number,
        family=family,
        class_prefix=PREFIXES[family][0],
        task=_draw(rng, tasks),
        version=5 if family == "nomic_bert" else rng.choice((4, 5)),
    )
    names: list[str] = []
    for _ in range(_draw(rng, NUM_ODD)):
        groups = {ODD[name].group for name in names} - {""}
        fitting = {
            name: odd.weight
            for name, odd in ODD.items()
            if name not in names and odd.group not in groups and odd.fits(case)
        }
        names.append(_draw(rng, fitting))
    return dataclasses.replace(case, odd=tuple(names))


def write_case(case: Case, directory: pathlib.Path) -> Any:
    """Write the directory of a case; return the model whose weights and head its maker means."""
    draft = Draft(case=case, rng=random.Random(f"{case.seed} {case.number} values"), directory=directory)
    draft.tokenizer = random_tokenizers.make_tokenizer(random_tokenizers.KIND_OF_FAMILY[case.family], draft.rng)
    _apply(draft, "tokenizer")
    draft.config = _config_arguments(draft)
    _apply(draft, "config")
    torch.manual_seed(case.number)
    config = getattr(transformers, f"{case.class_prefix}Config")(**draft.config)
    draft.model = getattr(transformers, case.class_prefix + case.task)(config).eval()
    with torch.no_grad():
        for name, parameter in draft.model.named_parameters():
            # Small embeddings, so that the epsilon of their norm matters.
            parameter += (0.08 if "embeddings" in name else 0.2) * torch.randn_like(parameter)
    draft.model.save_pretrained(directory)
    draft.tokenizer.save_pretrained(directory)
    draft.fields = json.loads((directory / "config.json").read_text())
    draft.settings = json.loads((directory / "tokenizer_config.json").read_text())
    draft.definition = json.loads((directory / "tokenizer.json").read_text())
    draft.tensors = safetensors.torch.load_file(directory / "model.safetensors")
    if case.version == 4:
        _to_layout_of_4(draft)
    _apply(draft, "files")
    _write_files(draft)
    draft.wrap(directory)
    return draft.model


def _draw(rng: random.Random, weights: Mapping[Any, float]) -> Any:
    """Return a key, as often as its weight says."""
    return rng.choices(list(weights), list(weights.values()))[0]


def _apply(draft: Draft, stage: str) -> None:
    for name in draft.case.odd:
        if ODD[name].stage == stage:
            ODD[name].apply(draft)


def _config_arguments(draft: Draft) -> dict[str, Any]:
    """Return the arguments of the config of a tiny model, as published models of the family have them."""
    case, rng, tokenizer = draft.case, draft.rng, draft.tokenizer
    pad = tokenizer.pad_token_id
    arguments: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": MAX_POSITIONS + (pad + 1 if case.family in FOLLOW_PADDING else 0),
        "pad_token_id": pad,
    }
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    if case.family == "distilbert":
        sizes = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}
    begin, end = tokenizer.cls_token_id, tokenizer.sep_token_id
    bounds = {"bos_token_id": begin, "eos_token_id": end}
    like_roberta = {"type_vocab_size": 1, "layer_norm_eps": 1e-5}
    of_family: dict[str, dict[str, Any]] = {
        "roberta": like_roberta,
        "xlm-roberta": like_roberta,
        "camembert": like_roberta,
        "longformer": {"type_vocab_size": 1, "attention_window": [8, 8], "sep_token_id": end},
        "mpnet": {"layer_norm_eps": 1e-5},
        "albert": {"embedding_size": 8},
        "electra": {"embedding_size": rng.choice((8, 16))},
        "big_bird": {"sep_token_id": end, "block_size": 4, "num_random_blocks": 1},
        "mobilebert": {"embedding_size": 8, "intra_bottleneck_size": 8, "num_feedforward_networks": 2},
        "modernbert": {"local_attention": 8, "cls_token_id": begin, "sep_token_id": end}
        | {"classifier_pooling": rng.choice(("cls", "mean"))},
        "deberta-v2": {"relative_attention": True, "position_buckets": 8, "norm_rel_ebd": "layer_norm"}
        | {"share_att_key": True, "pos_att_type": rng.choice((["p2c", "c2p"], "p2c|c2p"))}
        | {"position_biased_input": False, "max_relative_positions": -1},
    }
    arguments |= sizes | of_family.get(case.family, {})
    if case.family not in ("bert", "distilbert", "electra", "mobilebert", "deberta-v2", "nomic_bert"):
        arguments |= bounds
    if case.task in LABELED:
        count = rng.choice((2, 2, 2, 3, 5))
        names = rng.choice((None, _label_names(rng, count, case.task)))
        arguments |= _label_arguments(names or [f"LABEL_{i}" for i in range(count)])
    return arguments


def _label_names(rng: random.Random, count: int, task: str) -> list[str]:
    if task == TOKENS:
        return ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"][:count]
    return rng.sample(["neg", "pos", "neutral", "not entailed", "Ärger", "0", "other"], count)


def _label_arguments(names: list[str]) -> dict[str, Any]:
    return {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}


def _to_layout_of_4(draft: Draft) -> None:
    """Change the files to the form of transformers 4: its fields, vocabulary files and added tokens."""
    fields, settings, family = draft.fields, draft.settings, draft.case.family
    for name, value in FIELDS_OF_5.items():
        if name in fields and fields[name] is value:
            del fields[name]
    fields["torch_dtype"] = fields.pop("dtype", "float32")
    fields["transformers_version"] = draft.rng.choice(("4.12.5", "4.28.1", "4.36.0", "4.48.2"))
    if draft.rng.random() < 0.5:
        fields["_name_or_path"] = draft.rng.choice(("bert-base-uncased", "./output/checkpoint-500"))
    if family in POSITIONS_OF_4:
        fields["position_embedding_type"] = "absolute"
    if family in ("bert", "roberta", "mobilebert"):
        fields["gradient_checkpointing"] = False
    if family == "modernbert":
        rope = fields.pop("rope_parameters")
        types = fields.pop("layer_types")
        fields["global_rope_theta"] = rope["full_attention"]["rope_theta"]
        fields["local_rope_theta"] = rope["sliding_attention"]["rope_theta"]
        distances = [i for i, kind in enumerate(types) if kind == "full_attention"]
        fields["global_attn_every_n_layers"] = distances[1] if len(distances) > 1 else 3
    settings.pop("backend", None)
    settings["clean_up_tokenization_spaces"] = draft.rng.choice((True, False))
    extra = settings.pop("extra_special_tokens", None)
    if extra:
        settings["additional_special_tokens"] = extra
    keys = ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
    settings["added_tokens_decoder"] = {
        str(token["id"]): {key: token[key] for key in keys} for token in draft.definition["added_tokens"]
    }
    names = {name: value for name, value in settings.items() if name.endswith("_token")}
    (draft.directory / "special_tokens_map.json").write_text(json.dumps(names, indent=2))
    random_tokenizers.write_vocabulary_files(draft.definition, draft.directory)


def _write_files(draft: Draft) -> None:
    directory = draft.directory
    for name, content in (
        ("config.json", draft.fields),
        ("tokenizer_config.json", draft.settings),
        ("tokenizer.json", draft.definition),
    ):
        (directory / name).write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")
    (directory / "model.safetensors").unlink()
    _write_weights(draft)
    for name in draft.removed:
        (directory / name).unlink(missing_ok=True)


def _write_weights(draft: Draft) -> None:
    """Write the tensors as a file of safetensors or of torch, whole or in shards."""
    # Tied tensors share memory; safetensors writes no shared memory.
    tensors = {name: x.clone().contiguous() for name, x in draft.tensors.items()}
    suffix = draft.weights_file

    def write(part: dict[str, torch.Tensor], name: str) -> None:
        if suffix.endswith(".bin"):
            torch.save(part, draft.directory / name)
        else:
            safetensors.torch.save_file(part, draft.directory / name, metadata={"format": "pt"})

    if draft.num_shards == 1:
        return write(tensors, suffix)
    stem, _, end = suffix.partition(".")
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for shard in range(draft.num_shards):
        file = f"{stem}-{shard + 1:05d}-of-{draft.num_shards:05d}.{end}"
        part = {name: tensors[name] for name in names[shard :: draft.num_shards]}
        write(part, file)
        weight_map |= dict.fromkeys(part, file)
    total = sum(x.numel() * x.element_size() for x in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (draft.directory / f"{suffix}.index.json").write_text(json.dumps(index, indent=2))
    return None
