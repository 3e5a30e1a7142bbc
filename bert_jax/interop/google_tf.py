"""Checkpoints of Google's BERT in TensorFlow 1: `bert_config.json` and `bert_model.ckpt.{index,data-*}`.

Variables have the names of google-research/bert, modeling.py and run_pretraining.py. `RENAMES` turns these names into
the names of `transformers`. The epsilon of layer normalization is 1e-12 in Google's code, as in our BERT.

The activation `hidden_act: "gelu"` is read as the exact GELU (with erf), as in transformers: the released models were
trained with the exact GELU. But since 2019, Google's code computes "gelu" with the tanh approximation. A model trained
by the newer code is therefore read with errors of up to 5e-4 in an activation, unless its `bert_config.json` says
"gelu_new".
"""

import functools
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_jax import strict_json
from bert_jax.errors import UserError, needs_packages
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.huggingface import Loaded
from bert_jax.interop.huggingface.model_config import parse_model_config
from bert_jax.interop.tensors import (
    from_tensors,
    iterate_stored_tensors,
    parameter_shapes,
    tensor_names,
    unflatten_params,
)
from bert_jax.models import Head

CONFIG, INDEX = "bert_config.json", ".index"
# (pattern, replacement), applied in this order to the name of a variable.
RENAMES = (
    (r"/layer_(\d+)/", r"/layer/\1/"),
    (r"_embeddings$", "_embeddings/weight"),
    (r"/(kernel|gamma|output_weights)$", "/weight"),
    (r"/(beta|output_bias)$", "/bias"),
    (r"/", "."),
)
OPTIMIZER = re.compile(r"global_step$|.*/adam_[mv]$")  # variables of the optimizer


def load_google(path: str | os.PathLike[str]) -> Loaded:
    """Return the architecture and the parameters of a BERT trained by Google's code.

    The heads are `masked_token` and `next_sentence`, or `pooled` for a checkpoint that holds only the encoder. In the
    result, `unused` lists the variables of the optimizer.

    Args:
        path: a directory with one checkpoint, or a checkpoint's path without the suffix: `DIR/bert_model.ckpt`.

    Raises:
        UserError: TensorFlow is not installed; files are missing or damaged; a field or variable is unknown or missing,
            or has a wrong shape.
    """
    prefix = _checkpoint_prefix(pathlib.Path(path))
    fields = strict_json.read_object(prefix.parent / CONFIG)
    return model_from_variables(_read_variables(prefix), fields, str(prefix))


def model_from_variables(variables: Mapping[str, np.ndarray], fields: Mapping[str, Any], where: str) -> Loaded:
    """Return the model of these variables (by name) and fields of `bert_config.json`; see `load_google`."""
    family = FAMILIES["bert"]
    described = parse_model_config({**fields, "model_type": "bert"}, f"{where} with {CONFIG}")
    for field in described.unknown:
        raise UserError(f"{where} with {CONFIG}: unknown field {field}")
    unused = tuple(sorted(name for name in variables if OPTIMIZER.match(name)))
    originals = {_name_in_transformers(name): name for name in variables if name not in unused}
    tensors = {
        name: variables[original].T if original.endswith("/kernel") else variables[original]
        for name, original in originals.items()
    }
    # Choose the first class whose tensors are all in the checkpoint.
    source = next(
        model
        for model in family.classes
        if model.heads in (("masked_token", "next_sentence"), ("pooled",), ())
        and all(name in tensors for module in model.modules for name in tensor_names(module))
    )
    heads = tuple(Head(name) for name in source.heads)
    shapes = parameter_shapes(described.encoder, heads)
    stored_tensors = functools.partial(iterate_stored_tensors, (*family.encoder, *source.modules), shapes)
    flat = from_tensors(tensors, stored_tensors(), shapes, described.encoder, where)
    for name in sorted(tensors.keys() - {stored.name for stored in stored_tensors()}):
        raise UserError(f"{where}: variable '{originals[name]}' does not belong to a BERT with its pretraining heads")
    for name, x in tensors.items():
        if x.dtype != np.float32 or not np.isfinite(x).all():
            raise UserError(f"{where}: variable '{originals[name]}' is not float32 and finite")
    return Loaded(config=described.encoder, heads=heads, params=unflatten_params(flat), unused=unused)


def _name_in_transformers(variable: str) -> str:
    """Return the name that transformers gives to a TensorFlow variable."""
    for pattern, replacement in RENAMES:
        variable = re.sub(pattern, replacement, variable)
    return variable


def _checkpoint_prefix(path: pathlib.Path) -> pathlib.Path:
    """Return the path of the only checkpoint, without suffix."""
    if not path.is_dir():
        if not path.with_name(path.name + INDEX).is_file():
            raise UserError(f"{path}{INDEX} does not exist; give the directory of a checkpoint, or its path")
        return path
    names = [index.name.removesuffix(INDEX) for index in sorted(path.glob(f"*{INDEX}"))]
    if len(names) != 1:
        raise UserError(
            f"{path} holds {len(names)} checkpoints of TensorFlow ({', '.join(names) or 'none'}); give the path of a "
            "checkpoint"
        )
    return path / names[0]


def _read_variables(prefix: pathlib.Path) -> dict[str, np.ndarray]:
    """Return the variables of a checkpoint by name."""
    with needs_packages(f"{prefix}, a checkpoint of TensorFlow,", "tensorflow-cpu"):
        import tensorflow
    try:
        reader = tensorflow.train.load_checkpoint(str(prefix))
        return {name: np.asarray(reader.get_tensor(name)) for name in reader.get_variable_to_shape_map()}
    except Exception as error:  # damaged bytes cause many types of errors
        raise UserError(f"{prefix} cannot be read: {str(error).strip().partition(chr(10))[0]}") from None
