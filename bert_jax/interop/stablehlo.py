"""Export of a model as a StableHLO program for any batch size and length, which JAX runs without bert_jax.

An exported directory holds the program as serialized by `jax.export`, the weights as a NumPy archive, and a manifest of
inputs, outputs and labels. The weights are arguments of the program: if the weights were constants, XLA would compile
the weights again for each input shape.
"""

import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError
from bert_jax.files import output_directory
from bert_jax.interop.tensors import flatten_params
from bert_jax.models import Head, Params, make_model

Arrays = dict[str, jax.Array]
PLATFORMS = ("cpu", "tpu", "cuda")
PROGRAM, WEIGHTS, MANIFEST = "model.stablehlo", "weights.npz", "manifest.json"
# Dimensions of an input of sequences, and of an input of multiple choice.
SEQUENCES, CHOICES = ("batch", "length"), ("batch", "choices", "length")
# Outputs whose last axis is the vocabulary; the model pads this axis, the program does not.
VOCABULARY = ("mlm_logits", "next_logits")


def export_stablehlo(
    params: Params,
    config: EncoderConfig,
    heads: tuple[Head, ...],
    output: str | os.PathLike[str],
    labels: Sequence[str] = (),
    extend_outputs: Callable[[Arrays, Arrays], Arrays] = lambda outputs, inputs: outputs,
) -> None:
    """Write program, weights and manifest to a directory: `model.stablehlo`, `weights.npz`, `manifest.json`.

    To run the program, with nothing but jax and numpy:

        manifest = json.load(open("manifest.json"))
        archive = np.load("weights.npz")
        weights = [jax.device_put(archive[name]) for name in manifest["weights"]]
        program = jax.jit(jax.export.deserialize(bytearray(open("model.stablehlo", "rb").read())).call)
        outputs = program(weights, input_ids, token_type_ids, attention_mask)  # in the order of manifest["inputs"]

    Args:
        params: a tree of `make_model(config, ..., heads)`, float32.
        config: the architecture.
        heads: the outputs of the program.
        output: directory to write; it appears only when it is complete.
        labels: names of the classes, for the manifest.
        extend_outputs: (outputs of the model, inputs) -> outputs of the program.

    Raises:
        UserError: the number of labels is not the number of classes, or `output` is in use.
    """
    classes = max(head.classes for head in heads) if heads else 0
    if labels and len(labels) != classes:
        raise UserError(f"{len(labels)} labels ({', '.join(labels)}) for {classes} classes")
    # The fused kernel of TPUs needs fixed shapes.
    model = make_model(config, ComputeConfig(attention="xla"), heads)
    inputs, structure = _input_dimensions(config, heads), jax.tree.structure(params)
    weights = {path: np.asarray(x) for path, x in flatten_params(params).items()}

    def program(weights: list[jax.Array], *arrays: jax.Array) -> dict[str, jax.Array]:
        batch = dict(zip(inputs, arrays, strict=True))
        batch.setdefault("token_type_ids", jnp.zeros_like(batch["input_ids"]))
        outputs = extend_outputs(model.apply(jax.tree.unflatten(structure, weights), batch, None), batch)
        return {name: x[..., : config.vocab_size] if name in VOCABULARY else x for name, x in outputs.items()}

    sizes = _symbolic_sizes(inputs, config.max_positions)
    with output_directory(pathlib.Path(output)) as partial:
        exported = export.export(jax.jit(program), platforms=PLATFORMS)(
            [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in weights.values()],
            *(jax.ShapeDtypeStruct([sizes[name] for name in names], jnp.int32) for names in inputs.values()),
        )
        results = jax.tree.unflatten(exported.out_tree, exported.out_avals)
        manifest = {
            "jax": jax.__version__,
            "platforms": PLATFORMS,
            "max_length": config.max_positions,
            "labels": list(labels),
            "inputs": [
                {"name": name, "shape": [_json_dimension(sizes[d]) for d in names], "dtype": "int32"}
                for name, names in inputs.items()
            ],
            # The list has the outputs in the order of the program's flat results.
            "outputs": [
                {"name": name, "shape": [_json_dimension(d) for d in x.shape], "dtype": str(x.dtype)}
                for name, x in results.items()
            ],
            "weights": list(weights),
        }
        (partial / PROGRAM).write_bytes(exported.serialize())
        np.savez(partial / WEIGHTS, allow_pickle=False, **weights)
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _input_dimensions(config: EncoderConfig, heads: tuple[Head, ...]) -> dict[str, tuple[str, ...]]:
    """Return name -> dimensions of each input; a model with at most one token type has no input for token types."""
    names = {head.name for head in heads}
    dimensions = CHOICES if "multiple_choice" in names else SEQUENCES
    inputs: dict[str, tuple[str, ...]] = dict.fromkeys(("input_ids", "token_type_ids", "attention_mask"), dimensions)
    if config.num_token_types < 2:
        del inputs["token_type_ids"]
    return inputs | ({"masked_positions": ("batch", "predictions")} if "masked_token" in names else {})


def _symbolic_sizes(inputs: dict[str, tuple[str, ...]], max_length: int) -> dict[str, Any]:
    """Return name of a dimension -> its symbolic size."""
    names = sorted({name for dimensions in inputs.values() for name in dimensions})
    limits = [*(f"{name} >= 1" for name in names), f"length <= {max_length}"]
    return dict(zip(names, export.symbolic_shape(", ".join(names), constraints=limits), strict=True))


def _json_dimension(dimension: Any) -> int | str:
    """Return a dimension for JSON: a number, or the name of a symbolic dimension."""
    return dimension if isinstance(dimension, int) else str(dimension)
