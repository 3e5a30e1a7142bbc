"""Model directories of every family and class: read and exported again, and the outputs of the models.

The record is the input as well: config.json and shapes are recorded, numbers follow from the tensors' names. To add a
family or class, add its config.json and shapes to recorded/exports.json.
"""

import json
import pathlib
from typing import Any

import numpy as np
import safetensors.numpy

import bert_jax
from tests.record.compare import read
from tests.record.inside import exported_again
from tests.record.values import drawn, sums
from tests.record.world import SPECIAL, VOCABULARY, write_vocabulary

# Ids of [PAD] and [SEP] that the recorded configs have.
ROBERTAS = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer")
Content = dict[str, Any]  # config, tensors, files
TEXTS = ["Badu bedu.", "Fonu, banu kidu."]
MASKED = "badu [MASK] fonu."


def families() -> list[str]:
    return list(read("exports"))


def classes(family: str) -> dict[str, Content]:
    """Class -> its config, tensors (name -> shape) and files, as they are recorded."""
    return expanded(read("exports")[family])


def compact(found: dict[str, Content]) -> dict[str, Any]:
    """What all classes have, with the prefix of the encoder, and what each has beside it."""
    first = next(iter(found.values()))["tensors"]
    prefix = next(name for name in first if "embeddings" in name).partition(".")[0] + "."
    whole, bare = {}, []
    for name, one in found.items():
        without = not any(key.startswith(prefix) for key in one["tensors"])
        bare += [name] if without else []
        tensors = {prefix * without + key: shape for key, shape in one["tensors"].items()}
        whole[name] = one | {"tensors": tensors}
    common: Content = {
        part: {
            key: x
            for key, x in next(iter(whole.values()))[part].items()
            if all(key in one[part] and one[part][key] == x for one in whole.values())
        }
        for part in ("config", "tensors")
    }
    files = next(iter(whole.values()))["files"]
    own = {
        name: {
            part: {key: x for key, x in one[part].items() if key not in common[part]} for part in ("config", "tensors")
        }
        | ({} if one["files"] == files else {"files": one["files"]})
        for name, one in whole.items()
    }
    common["files"] = files
    return {"prefix": prefix, "without the prefix": bare, "common": common, "classes": own}


def expanded(recorded: dict[str, Any]) -> dict[str, Content]:
    """The other way around."""
    found = {}
    for name, own in recorded["classes"].items():
        config, tensors = (recorded["common"][part] | own[part] for part in ("config", "tensors"))
        prefix = recorded["prefix"] if name in recorded["without the prefix"] else ""
        tensors = {key.removeprefix(prefix): shape for key, shape in tensors.items()}
        found[name] = {"config": config, "tensors": tensors, "files": own.get("files", recorded["common"]["files"])}
    return found


def tensor(name: str, shape: list[int]) -> np.ndarray:
    scale = name.lower().endswith(("norm.weight", "norm.scale", "norm1.weight", "norm2.weight"))
    return drawn(name, tuple(shape), 0.3) + np.float32(scale)


def write_model(place: pathlib.Path, family: str, one: dict[str, Any]) -> None:
    special = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"] if family in ROBERTAS else SPECIAL
    write_vocabulary(place, special)
    (place / "config.json").write_text(json.dumps(one["config"]))
    tensors = {name: tensor(name, shape) for name, shape in one["tensors"].items()}
    safetensors.numpy.save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})


def exported_classes(family: str, place: pathlib.Path) -> dict[str, Any]:
    """What the exports of models that were read have; their numbers must be those that were read, bit for bit."""
    found = {}
    for number, (name, one) in enumerate(classes(family).items()):
        write_model(place / f"read{number}", family, one)
        exported_again(place / f"read{number}", place / f"written{number}")
        found[name] = content(place / f"written{number}")
    return compact(found)


def content(place: pathlib.Path) -> dict[str, Any]:
    tensors = safetensors.numpy.load_file(place / "model.safetensors")
    for key, x in tensors.items():
        assert x.dtype == np.float32, key
        np.testing.assert_array_equal(x, tensor(key, list(x.shape)), err_msg=f"{key} was written otherwise than read")
    return {
        "config": json.loads((place / "config.json").read_text()),
        "tensors": {key: list(x.shape) for key, x in sorted(tensors.items())},
        "files": sorted(path.relative_to(place).as_posix() for path in place.rglob("*")),
    }


def answers(family: str, place: pathlib.Path) -> dict[str, Any]:
    """Vectors of texts and guesses for a mask, by the family's model with a head of masked tokens."""
    name = next(name for name in classes(family) if name.endswith(("ForMaskedLM", "masked_token")))
    write_model(place, family, classes(family)[name])
    model = bert_jax.load(place)
    guesses = model.fill_mask(MASKED, top_k=3)
    assert model.config.vocab_size == len(VOCABULARY)
    return {
        "vectors": [sums(x) for x in model.encode(TEXTS)],
        "first numbers": [float(x) for x in model.encode(TEXTS)[:, :4].ravel()],
        "guesses": [guess["token"] for guess in guesses],
        "probabilities": [guess["probability"] for guess in guesses],
    }
