"""Exported programs run where bert_jax is not, and give the logits of the model, for every batch size and length."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.errors import UserError
from bert_jax.interop.stablehlo import export_stablehlo
from bert_jax.models import Head, make_model

BERT = EncoderConfig(vocab_size=90, hidden_size=16, num_layers=2, num_heads=2, mlp_size=24, max_positions=12)
DISTILBERT = dataclasses.replace(BERT, family="distilbert", num_token_types=0, pooler_activation="relu")
MODERNBERT = dataclasses.replace(
    BERT,
    family="modernbert",
    num_layers=4,
    num_token_types=0,
    norm_position="pre",
    first_attention_norm=False,
    final_norm=True,
    norm_bias=False,
    positions="rotary",
    mlp="gated",
    local_rotary_base=100.0,
    local_window=4,
    global_every=3,
    pooler_norm=True,
    pooler_on_tokens=True,
    pooling="mean",
)
ALBERT = dataclasses.replace(BERT, family="albert", embedding_size=8, share_layers=True, activation="gelu_tanh")

# The program in the documentation of `export_stablehlo`, and a report of the modules it imported.
READER = """
import importlib.util, json, pathlib, sys
import jax, numpy as np

assert importlib.util.find_spec("bert_jax") is None and importlib.util.find_spec("flax") is None
for directory in map(pathlib.Path, sys.argv[1:]):
    manifest = json.loads((directory / "manifest.json").read_text())
    archive = np.load(directory / "weights.npz", allow_pickle=False)
    weights = [jax.device_put(archive[name]) for name in manifest["weights"]]
    exported = jax.export.deserialize(bytearray((directory / "model.stablehlo").read_bytes()))
    assert exported.platforms == ("cpu", "tpu", "cuda"), exported.platforms
    program = jax.jit(exported.call)
    for given in sorted(directory.glob("in.*.npz")):
        batch = np.load(given)
        outputs = program(weights, *(batch[one["name"]] for one in manifest["inputs"]))
        assert list(outputs) == [one["name"] for one in manifest["outputs"]], list(outputs)
        np.savez(given.with_name(given.name.replace("in", "out")), **outputs)
"""

CASES = {
    "bert": (BERT, (Head("masked_token"), Head("next_sentence")), [(1, 12), (3, 5)]),
    "albert": (ALBERT, (Head("multiple_choice"),), [(2, 3, 7), (1, 2, 4)]),
    "modernbert": (MODERNBERT, (Head("masked_token"), Head("sequence_classification", 2)), [(1, 12), (3, 5)]),
    "distilbert": (DISTILBERT, (Head("sequence_classification", 3),), [(1, 8), (4, 5)]),
}


def run_bare(place, *directories):
    """READER in a Python with the packages jax needs and no others, by links to them in a folder of their own."""
    packages = pathlib.Path(jax.__file__).parents[1]
    place.mkdir()
    for name in (
        "jax",
        "jaxlib",
        "numpy",
        "numpy.libs",
        "ml_dtypes",
        "opt_einsum",
        "scipy",
        "scipy.libs",
        "flatbuffers",
    ):
        if (packages / name).exists():
            (place / name).symlink_to(packages / name)
    environment = os.environ | {"PYTHONPATH": str(place), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-S", "-c", READER, *map(str, directories)]
    done = subprocess.run(command, env=environment, cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def weights_of(model):
    rng = np.random.default_rng(0)
    initial = jax.jit(model.init)(jax.random.key(0))
    return jax.tree.map(lambda x: np.asarray(x) + 0.2 * rng.standard_normal(x.shape).astype(np.float32), initial)


def batch_of(config, *shape, seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, shape[-1] + 1, shape[:-1])
    return {
        "input_ids": rng.integers(0, config.vocab_size, shape).astype(np.int32),
        "token_type_ids": rng.integers(0, max(config.num_token_types, 1), shape).astype(np.int32),
        "attention_mask": (np.arange(shape[-1]) < lengths[..., None]).astype(np.int32),
        "masked_positions": rng.integers(0, shape[-1], (shape[0], 2)).astype(np.int32),
    }


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Where each case is exported and was run, and its parameters."""
    place = tmp_path_factory.mktemp("exported")
    params = {}
    for name, (config, heads, shapes) in CASES.items():
        params[name] = weights_of(make_model(config, ComputeConfig(), heads))
        export_stablehlo(params[name], config, heads, place / name, "abc" if heads[0].classes else ())
        for number, shape in enumerate(shapes):
            np.savez(place / name / f"in.{number}.npz", **batch_of(config, *shape, seed=number))
    run_bare(place / "packages", *(place / name for name in CASES))
    return place, params


@pytest.mark.parametrize("name", CASES)
def test_runs_without_bert_jax(exported, name):
    config, heads, shapes = CASES[name]
    place, params = exported
    model = make_model(config, ComputeConfig(), heads)
    for number, shape in enumerate(shapes):
        found = np.load(place / name / f"out.{number}.npz")
        wanted = jax.jit(model.apply)(params[name], batch_of(config, *shape, seed=number), None)
        assert set(found) == set(wanted)
        for output, x in wanted.items():
            x = x[..., : config.vocab_size] if output == "mlm_logits" else x
            np.testing.assert_allclose(found[output], x, rtol=0, atol=1e-5)


def test_the_manifest_lists_inputs_and_outputs(exported):
    place, _ = exported
    manifests = {name: json.loads((place / name / "manifest.json").read_text()) for name in CASES}
    inputs = {name: {one["name"]: one["shape"] for one in m["inputs"]} for name, m in manifests.items()}
    assert list(inputs["bert"]) == ["input_ids", "token_type_ids", "attention_mask", "masked_positions"]
    assert inputs["bert"]["masked_positions"] == ["batch", "predictions"]
    assert inputs["albert"]["input_ids"] == ["batch", "choices", "length"]
    assert inputs["distilbert"] == {"input_ids": ["batch", "length"], "attention_mask": ["batch", "length"]}
    outputs = {one["name"]: one["shape"] for one in manifests["bert"]["outputs"]}
    assert outputs == {"mlm_logits": ["batch", "predictions", 90], "nsp_logits": ["batch", 2]}
    assert manifests["distilbert"]["labels"] == ["a", "b", "c"]


def test_wrong_arguments_are_reported(tmp_path):
    heads = (Head("token_classification", 2),)
    with pytest.raises(UserError, match=r"1 labels \(x\) for 2 classes"):
        export_stablehlo({}, BERT, heads, tmp_path / "out", ("x",))
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(UserError, match="holds something else already"):
        export_stablehlo({}, BERT, heads, tmp_path / "taken")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["taken"]
