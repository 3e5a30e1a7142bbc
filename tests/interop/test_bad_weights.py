"""Weight files that are damaged, lie, or mean harm: refused in one or two lines, nothing run, nothing allocated."""

import dataclasses
import json
import pathlib
import pickle
import resource
import struct
import sys

import jax
import numpy as np
import pytest
import safetensors.numpy
import torch

from bert_jax.errors import UserError
from bert_jax.interop.huggingface import load_model
from tests.helpers.family_cases import CASES, model_of


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    place = tmp_path_factory.mktemp("saved")
    model_of(CASES["bert"], "BertForPreTraining").save_pretrained(place)
    return place


@pytest.fixture
def model(saved, tmp_path):
    """A fresh copy of a model's directory."""
    for path in saved.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def refuses(model, words):
    with pytest.raises(UserError, match=words) as caught:
        load_model(model)
    assert str(caught.value).count("\n") <= 1, "more than two lines"


def header_of(path) -> tuple[dict, bytes]:
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def write(path, header: bytes, data: bytes) -> None:
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def change_tensors(directory, change):
    path = directory / "model.safetensors"
    safetensors.numpy.save_file(change(safetensors.numpy.load_file(path)), path)


@pytest.mark.parametrize("kept", [0, 1, 8, 9, 100, -1000, -1])
def test_a_truncated_file(model, kept):
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    refuses(model, r"model\.safetensors cannot be read|header of .*model\.safetensors cannot be read")


def read_or_none(model):
    try:
        return load_model(model)
    except UserError:
        return None


def test_a_flipped_bit_in_the_header_is_seen_or_harmless(model):
    """Not in the length of the header alone, but in names, dtypes, shapes and offsets."""
    path = model / "model.safetensors"
    whole, expected = path.read_bytes(), load_model(model)
    length = 8 + struct.unpack("<Q", whole[:8])[0]
    rng, refused = np.random.default_rng(0), 0
    places = np.concatenate([np.arange(64), rng.choice(np.arange(64, 8 * length), 400, replace=False)])
    for place in places:
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        found = read_or_none(model)
        refused += found is None
        if found is not None:  # a space, or what the header says about the file's origin
            jax.tree.map(np.testing.assert_array_equal, found.params, expected.params)
            assert dataclasses.replace(found, params={}) == dataclasses.replace(expected, params={})
    assert refused > 0.9 * len(places)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_numbers_that_are_not_finite(model, value, kind):
    def spoil(tensors):
        x = tensors["bert.pooler.dense.weight"].astype(kind)
        x[3, 4] = value
        return tensors | {"bert.pooler.dense.weight": x}

    change_tensors(model, spoil)
    refuses(model, r"tensor 'bert\.pooler\.dense\.weight' has numbers that are not finite")


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.int8, np.bool_])
def test_other_dtypes(model, kind):
    change_tensors(model, lambda t: t | {"bert.pooler.dense.bias": t["bert.pooler.dense.bias"].astype(kind)})
    refuses(model, rf"tensor 'bert\.pooler\.dense\.bias' is {np.dtype(kind)}; float32, float16, bfloat16 and")


@pytest.mark.parametrize("kind", ["F8_E5M2", "F8_E4M3", "F8_E8M0", "F4", "F6_E2M3"])
def test_dtypes_that_numpy_lacks(model, kind):
    path = model / "model.safetensors"
    header, data = header_of(path)
    header["bert.pooler.dense.bias"]["dtype"] = kind
    write(path, json.dumps(header).encode(), data)
    refuses(model, rf"tensor 'bert\.pooler\.dense\.bias' is {kind}; float32, float16, bfloat16 and")


@pytest.mark.parametrize(
    ("entry", "data"),
    [
        ({"shape": [2**62 + 1], "data_offsets": [0, 4]}, 4),
        ({"shape": [2**32, 2**32], "data_offsets": [0, 0]}, 0),
        ({"shape": [0, 2**62], "data_offsets": [0, 0]}, 0),
        ({"shape": [1] * 1000, "data_offsets": [0, 4]}, 4),
        ({"shape": [1], "data_offsets": [4, 8]}, 8),
        ({"shape": [1], "data_offsets": [4, 0]}, 8),
        ({"shape": [1], "data_offsets": [0, 4]}, 8),
        ({"shape": [1], "data_offsets": [2**64 - 4, 2**64]}, 8),
        ({"shape": [1.0], "data_offsets": [0, 4]}, 4),
    ],
    ids=["wraps to 4", "wraps to 0", "empty", "axes", "begins late", "ends early", "rest", "beyond", "fraction"],
)
def test_offsets_and_shapes_that_do_not_fit(model, entry, data):
    write(model / "model.safetensors", json.dumps({"a": {"dtype": "F32", **entry}}).encode(), bytes(data))
    refuses(model, "cannot be read: ")


def test_a_header_of_many_mebibytes(model):
    (model / "model.safetensors").write_bytes(struct.pack("<Q", 17 << 20) + bytes(17 << 20))
    refuses(model, "cannot be read: a header of 17,825,792 bytes")


@pytest.mark.parametrize("shape", [[10**12], [2**40, 2**40], [2**63], [-1], [10**9, 24]], ids=str)
def test_a_header_that_claims_huge_shapes(model, shape):
    path = model / "model.safetensors"
    header, data = header_of(path)
    header["bert.embeddings.word_embeddings.weight"]["shape"] = shape
    write(path, json.dumps(header).encode(), data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refuses(model, "cannot be read")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000, "KiB taken for what is not there"


def test_a_header_that_claims_data_beyond_the_file(model):
    path = model / "model.safetensors"
    header, data = header_of(path)
    last = max((name for name in header if name != "__metadata__"), key=lambda n: header[n]["data_offsets"][1])
    header[last] = {"dtype": "F32", "shape": [10**12], "data_offsets": [header[last]["data_offsets"][0], 4 * 10**12]}
    write(path, json.dumps(header).encode(), data)
    refuses(model, "cannot be read")


def test_a_header_longer_than_the_file(model):
    (model / "model.safetensors").write_bytes(struct.pack("<Q", 2**62) + b"{}")
    refuses(model, "cannot be read: truncated, or no safetensors file")


def test_a_tensor_twice_in_the_header(model):
    path = model / "model.safetensors"
    header, data = header_of(path)
    name = "bert.pooler.dense.bias"
    text = json.dumps(header)
    write(path, (text[:-1] + f', "{name}": {json.dumps(header[name])}}}').encode(), data)
    refuses(model, f"the key '{name}' is given twice")


def test_overlapping_tensors(model):
    path = model / "model.safetensors"
    header, data = header_of(path)
    header["bert.pooler.dense.bias"]["data_offsets"] = [0, 96]
    write(path, json.dumps(header).encode(), data)
    refuses(model, "cannot be read")


class Harm:
    """A pickle that leaves a file where it was opened."""

    def __init__(self, witness):
        self.witness = witness

    def __reduce__(self):
        return pathlib.Path.touch, (pathlib.Path(self.witness),)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("writer", ["pickle", "torch"])
def test_code_in_a_pickle_is_not_run(model, name, writer, tmp_path_factory):
    witness = tmp_path_factory.mktemp("witness") / "harmed"
    (model / "model.safetensors").unlink()
    content = {"bert.pooler.dense.bias": Harm(witness)}
    if writer == "torch":
        torch.save(content, model / name)
    else:
        (model / name).write_bytes(pickle.dumps(content))
    refuses(model, "is refused: torch finds more in it" if name.endswith("bin") else "cannot be read")
    assert not witness.exists()


@pytest.mark.parametrize(
    "content", [[1, 2], {"model": {"a": torch.ones(2)}}, {"epoch": 3}, {3: torch.ones(1)}], ids=str
)
def test_a_torch_file_without_named_tensors_is_refused(model, content):
    (model / "model.safetensors").unlink()
    torch.save(content, model / "pytorch_model.bin")
    refuses(model, "is not a plain table of named tensors")


@pytest.mark.parametrize("kept", [0, 10, 5000, -100])
def test_a_truncated_file_of_torch(model, kept):
    (model / "model.safetensors").unlink()
    path = model / "pytorch_model.bin"
    torch.save(model_of(CASES["bert"], "BertForPreTraining").state_dict(), path)
    path.write_bytes(path.read_bytes()[:kept])
    refuses(model, r"pytorch_model\.bin is refused")


def test_a_file_of_torch_without_torch(model, monkeypatch):
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    monkeypatch.setitem(sys.modules, "torch", None)
    refuses(model, "needs torch: pip install")


def test_a_directory_without_weights(model):
    (model / "model.safetensors").unlink()
    (model / "tf_model.h5").write_bytes(b"")
    refuses(model, r"holds no weights: model\.safetensors")
    (model / "model.onnx").write_bytes(b"")
    refuses(model, "an export for other programs, which bert_jax does not read; run it as its README.md shows")


def index(model, change):
    """The model in two shards, with an index that `change` has been at."""
    path = model / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    names = sorted(tensors)
    parts = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for file, part in parts.items():
        safetensors.numpy.save_file({name: tensors[name] for name in part}, model / file)
    path.unlink()
    weight_map = {name: file for file, part in parts.items() for name in part}
    text = json.dumps({"metadata": {}, "weight_map": change(weight_map)})
    (model / "model.safetensors.index.json").write_text(text)


@pytest.mark.parametrize(
    "file", ["../outside.safetensors", "/etc/passwd", "sub/one.safetensors", "..", ".", "", "a\\b", "a\0b"], ids=repr
)
def test_an_index_that_leaves_the_directory(model, file):
    outside = model.parent / "outside.safetensors"
    outside.write_bytes((model / "model.safetensors").read_bytes())
    index(model, lambda names: names | {"bert.pooler.dense.bias": file})
    refuses(model, "only files beside it are read")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m | {"bert.pooler.dense.bias": "three.safetensors"}, r"three\.safetensors is missing"),
        (lambda m: m | {"more": "one.safetensors"}, r"index\.json lists 'more' in one\.safetensors, one\..* does not"),
        (
            lambda m: {name: file for name, file in m.items() if name != "bert.pooler.dense.bias"},
            r"lists 'bert\.pooler\.dense\.bias' in .*\.safetensors, model\.safetensors\.index\.json does not",
        ),
        (lambda m: [], "no 'weight_map'"),
        (lambda m: {}, "no 'weight_map'"),
        (lambda m: m | {"bert.pooler.dense.bias": 3}, "no 'weight_map'"),
    ],
    ids=["file missing", "tensor missing", "tensor unnamed", "list", "empty", "number"],
)
def test_an_index_that_does_not_fit_its_files(model, change, words):
    index(model, change)
    refuses(model, words)


def test_an_index_with_a_key_twice(model):
    index(model, lambda names: names)
    path = model / "model.safetensors.index.json"
    path.write_text(path.read_text().replace('"weight_map"', '"weight_map": {}, "weight_map"'))
    refuses(model, "the key 'weight_map' is given twice")


TENSORS = {
    "missing": (lambda t: t.pop("bert.pooler.dense.bias"), r"tensor 'bert\.pooler\.dense\.bias' is missing"),
    "unexpected": (
        lambda t: t.update({"bert.pooler.dense.bia": np.ones(24, np.float32)}),
        r"tensor 'bert\.pooler\.dense\.bia' is not of a BertForPreTraining; did you mean 'bert\.pooler\.dense\.bias'",
    ),
    "shape": (
        lambda t: t.update({"cls.predictions.bias": t["cls.predictions.bias"][:-1].copy()}),
        r"tensor 'cls\.predictions\.bias' is \[130\], not \[131\]",
    ),
    "turned": (
        lambda t: t.update({(n := "bert.encoder.layer.0.intermediate.dense.weight"): t[n].T.copy()}),
        r"tensor 'bert\.encoder\.layer\.0\.intermediate\.dense\.weight' is \[24, 40\], not \[40, 24\]",
    ),
    "scalar": (
        lambda t: t.update({"bert.pooler.dense.weight": np.array(3, np.float32)}),
        r"tensor 'bert\.pooler\.dense\.weight' is \[\], not \[24, 24\]",
    ),
    "untied weight": (
        lambda t: t.update({"cls.predictions.decoder.weight": t["bert.embeddings.word_embeddings.weight"] * 2}),
        r"'cls\.predictions\.decoder\.weight' differs from 'bert\.embeddings\.word_embeddings\.weight'",
    ),
    "untied bias": (
        lambda t: t.update({"cls.predictions.decoder.bias": t["cls.predictions.bias"] + 1}),
        r"'cls\.predictions\.decoder\.bias' differs",
    ),
    "other positions": (
        lambda t: t.update({"bert.embeddings.position_ids": np.arange(19)[None, ::-1].copy()}),
        "does not number the positions from 0 on",
    ),
    "two names": (
        lambda t: t.update({"bert.embeddings.LayerNorm.gamma": np.ones(24, np.float32)}),
        "are the same under two names",
    ),
    "another layer": (
        lambda t: t.update({"bert.encoder.layer.2.output.dense.bias": np.ones(24, np.float32)}),
        r"'bert\.encoder\.layer\.2\.output\.dense\.bias' is not of a BertForPreTraining",
    ),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_that_do_not_fit(model, name):
    change, words = TENSORS[name]
    tensors = safetensors.numpy.load_file(model / "model.safetensors")
    change(tensors)
    safetensors.numpy.save_file(tensors, model / "model.safetensors")
    refuses(model, words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_hidden_layers": 3}, r"'bert\.encoder\.layer\.2\.attention\.self\.query\.weight' is missing"),
        ({"num_hidden_layers": 2**31 - 1}, r"'bert\.encoder\.layer\.2\.attention\.self\.query\.weight' is missing"),
        ({"num_hidden_layers": 1}, r"'bert\.encoder\.layer\.1\..*' is not of a BertForPreTraining"),
        ({"intermediate_size": 41}, r"'bert\.encoder\.layer\.0\.intermediate\.dense\.weight' is \[40, 24\], not \[41,"),
        ({"vocab_size": 2**30}, r"word_embeddings\.weight' is \[131, 24\], not \[1073741824, 24\]"),
        ({"hidden_size": 3 * 2**28}, r"word_embeddings\.weight' is \[131, 24\], not \[131, 805306368\]"),
        ({"num_attention_heads": 5}, r"config\.json: model\.num_heads=5 does not divide"),
        ({"architectures": ["BertForMasked"]}, "architectures is 'BertForMasked'; did you mean 'BertForMaskedLM'"),
        (
            {"architectures": ["BertGenerationDecoder"]},
            "architectures is 'BertGenerationDecoder'.*these can be read: BertFor",
        ),
        ({"model_type": "electra"}, "architectures is 'BertForPreTraining'"),
        (
            {"model_type": "electra", "architectures": None},
            r"'electra\.embeddings\.word_embeddings\.weight' is missing",
        ),
    ],
    ids=str,
)
def test_a_configuration_of_another_model(model, change, words):
    path = model / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    refuses(model, words)


def test_labels_and_weights_that_contradict_each_other(tmp_path):
    model_of(CASES["bert"], "BertForSequenceClassification").save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    fields = json.loads(path.read_text())
    four = {str(i): f"label {i}" for i in range(4)}
    path.write_text(json.dumps(fields | {"id2label": four, "label2id": {x: int(i) for i, x in four.items()}}))
    refuses(tmp_path, r"tensor 'classifier\.weight' is \[3, 24\], not \[4, 24\]")
    path.write_text(json.dumps(fields | {"problem_type": "regression"}))
    refuses(tmp_path, "problem_type is 'regression' with 3 labels")
