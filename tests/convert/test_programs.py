"""Exported programs run in every runtime: the code of README.md, `verify --run`, and sentence vectors.

The reference is torch with the original weights, through transformers or sentence-transformers.
"""

import ast
import dataclasses
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest
import safetensors.numpy
import sentence_transformers
import torch
import transformers

import bert_jax
from bert_jax.checkpoints.load_model import read_weights
from bert_jax.cli.main import main
from bert_jax.convert.expected_outputs import (
    FILE,
    compute_outputs_of_bert_jax,
    largest_relative_difference,
    read_expected_outputs,
    serialize_expected_outputs,
)
from bert_jax.convert.export import FORMATS
from bert_jax.convert.export_readme import FENCE, KINDS_OF_VECTORS, PROGRAM_CODE
from bert_jax.convert.latency import repeat_first_row_to_batch
from bert_jax.convert.program import program_readme, run_readme_code
from bert_jax.convert.runtimes import RUNTIMES, open_runtime, select_outputs
from bert_jax.errors import UserError
from bert_jax.files import SUMS
from bert_jax.interop.onnx_file import convert_to_openvino, quantize_onnx
from bert_jax.interop.onnx_programs import TEXT_VECTORS
from bert_jax.tasks.vector_heads import VECTOR_HEADS
from tests.helpers import tiny_models
from tests.interop.test_multi_vector_encoders import save_theirs as save_multi_vector_encoder
from tests.interop.test_sentence_modules import TEXTS, save_theirs

for package in ("onnxruntime", "onnxscript", "openvino"):
    if importlib.util.find_spec(package) is None:  # an import of openvino would report its use
        pytest.skip(f"needs {package}", allow_module_level=True)
LENGTH = 12
README_TEXTS = ["a text", "another text"]  # of the code for models of texts
# Form of late interaction -> the ends of the calls in README.md: the lengths of queries and of documents.
LENGTHS_OF_FORMS = {
    "expanded": ("], 14, True)", "], 20, False)"),
    "attended": ("], 14, True)", "], 32, False)"),
    "plain": ("], 9, True)", "], 12, False)"),
}


def argmax_labels(model, tokenizer):
    with torch.no_grad():
        logits = model(**tokenizer(README_TEXTS, return_tensors="pt", padding=True)).logits
    return "".join(f"{model.config.id2label[i]}\n" for i in logits.argmax(-1).tolist())


def label_sets(model, tokenizer):
    with torch.no_grad():
        logits = model(**tokenizer(README_TEXTS, return_tensors="pt", padding=True)).logits
    return "".join(f"{[model.config.id2label[i] for i in np.flatnonzero(row > 0)]}\n" for row in logits.numpy())


def token_labels(model, tokenizer):
    lines = []
    batch = tokenizer(README_TEXTS, return_tensors="pt", padding=True)
    with torch.no_grad():
        labels = model(**batch).logits.argmax(-1).tolist()
    for ids, mask, row in zip(batch["input_ids"].tolist(), batch["attention_mask"].tolist(), labels, strict=True):
        pairs = zip(tokenizer.convert_ids_to_tokens(ids), (model.config.id2label[i] for i in row), strict=True)
        lines.append([pair for pair, is_real in zip(pairs, mask, strict=True) if is_real])
    return lines


def answer(model, tokenizer):
    """By all spans, one after the other."""
    question, text = "a question", "a text with the answer"
    batch = tokenizer(question, text, return_tensors="pt", return_offsets_mapping=True)
    offsets, sequences = batch.pop("offset_mapping")[0].tolist(), batch.sequence_ids(0)
    with torch.no_grad():
        outputs = model(**batch)
    spans = [
        (float(outputs.start_logits[0, first] + outputs.end_logits[0, last]), first, last)
        for first in range(len(sequences))
        for last in range(first, len(sequences))
        if sequences[first] == sequences[last] == 1
    ]
    _, first, last = max(spans)
    return text[offsets[first][0] : offsets[last][1]] + "\n"


def choice(model, tokenizer):
    batch = tokenizer(["a text"] * 2, ["a continuation", "another continuation"], return_tensors="pt", padding=True)
    with torch.no_grad():
        return f"{model(**{name: x[None] for name, x in batch.items()}).logits[0].argmax().item()}\n"


def token_of_the_mask(model, tokenizer):
    batch = tokenizer(f"a {tokenizer.mask_token} text", return_tensors="pt")
    position = batch["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    with torch.no_grad():
        return tokenizer.convert_ids_to_tokens([model(**batch).logits[0, position].argmax().item()])[0] + "\n"


CASES = {
    "labels": ("roberta", "ForSequenceClassification", {"num_labels": 3}, argmax_labels),
    "label_sets": (
        *("bert", "ForSequenceClassification"),
        {"num_labels": 4, "problem_type": "multi_label_classification"},
        label_sets,
    ),
    "token_labels": ("distilbert", "ForTokenClassification", {"num_labels": 3}, token_labels),
    "answer": ("bert", "ForQuestionAnswering", {}, answer),
    "choice": ("albert", "ForMultipleChoice", {}, choice),
    "mask": ("modernbert", "ForMaskedLM", {}, token_of_the_mask),
}
QUICK = ("label_sets",)


def export(model, output, *words):
    assert main(["export", "--model", str(model), "--output", str(output), *words]) == 0


def verify(directory, *words):
    return main(["verify", "--run", str(directory), *words])


def in_other_formats(place):
    """Make int8 and OpenVINO of the ONNX directory, as `export` does."""
    quantize_onnx(place / "onnx", place / "onnx_int8")
    convert_to_openvino(place / "onnx", place / "openvino")


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """Where a sentence encoder is saved and exported, and the model of sentence-transformers."""
    place = tmp_path_factory.mktemp("vectors")
    tiny_models.save(place / "encoder", "bert", "Model")
    model = save_theirs(
        place / "encoder", place / "theirs", "mean", True, LENGTH, prompts={"q": "d e: "}, default_prompt_name="q"
    )
    for name in ("huggingface", "stablehlo", "onnx"):
        export(place / "theirs", place / name, "--format", name)
    in_other_formats(place)
    return place, model


@pytest.mark.parametrize("name", ["stablehlo", "onnx", "openvino"])
def test_programs_give_the_vectors_of_sentence_transformers(vectors, name):
    place, model = vectors
    features = {key: x.numpy() for key, x in model.preprocess(TEXTS).items() if hasattr(x, "numpy")}
    expected = model.encode(TEXTS, prompt="")
    for runtime in FORMATS[name].runtimes:
        run = open_runtime(runtime, place / name)
        np.testing.assert_allclose(run(features)["sentence_embedding"], expected, rtol=0, atol=1e-5)
        first = {key: x[:1] for key, x in features.items()}
        np.testing.assert_allclose(run(first)["sentence_embedding"], expected[:1], rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["dense", pytest.param("late_interaction", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["stablehlo", pytest.param("onnx", marks=pytest.mark.slow)])
def test_a_model_of_vectors_with_the_class_of_a_masked_token_model(tmp_path, capsys, kind, name):
    """sentence-transformers reads only the encoder of such a directory, so the program has only the vectors."""
    tiny_models.save(tmp_path / "encoder", "bert")
    if kind == "dense":
        model = save_theirs(tmp_path / "encoder", tmp_path / "theirs", "mean", True, LENGTH)
        expected = model.encode(README_TEXTS) @ model.encode(README_TEXTS).T
    else:
        model = save_multi_vector_encoder(tmp_path / "encoder", tmp_path / "theirs", "plain")
        (query,) = model.encode_query(["a query"], convert_to_numpy=True)
        documents = model.encode_document(["a document", "another document"], convert_to_numpy=True)
        expected = [(query @ document.T).max(1).sum() for document in documents]
    for file in ("config.json", "model.safetensors"):
        shutil.copy(tmp_path / "encoder" / file, tmp_path / "theirs" / file)
    assert verify(tmp_path / "theirs") == 0, capsys.readouterr().out
    export(tmp_path / "theirs", tmp_path / name, "--format", name)
    assert verify(tmp_path / name) == 0, capsys.readouterr().out
    printed = run_readme_code((tmp_path / name / "README.md").read_text(), tmp_path / name)
    numbers = printed.partition(")\n")[2] if kind == "dense" else printed
    found = [float(x) for x in numbers.replace("[", " ").replace("]", " ").split()]
    np.testing.assert_allclose(found, np.ravel(expected), rtol=0, atol=1e-5)
    export(tmp_path / "theirs", tmp_path / "words", "--format", name, "--head", "masked_token")
    assert verify(tmp_path / "words") == 0, capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("form", "names"),
    [
        ("expanded", ("stablehlo",)),
        ("plain", ("onnx",)),
        pytest.param("attended", ("stablehlo", "onnx", "openvino"), marks=pytest.mark.slow),
        pytest.param("expanded", ("onnx", "openvino"), marks=pytest.mark.slow),
    ],
)
def test_programs_of_late_interaction_score_as_sentence_transformers(tmp_path, capsys, form, names):
    """The code of README.md prints the scores of two documents; `verify` compares the vectors of all tokens."""
    tiny_models.save(tmp_path / "encoder", "bert", "Model")
    model = save_multi_vector_encoder(tmp_path / "encoder", tmp_path / "theirs", form)
    (query,) = model.encode_query(["a query"], convert_to_numpy=True)
    documents = model.encode_document(["a document", "another document"], convert_to_numpy=True)
    expected = [(query @ document.T).max(1).sum() for document in documents]
    for name in names:
        export(tmp_path / "theirs", tmp_path / name, "--format", name)
        assert verify(tmp_path / name) == 0, capsys.readouterr().out
        assert "equal; largest difference of token_embeddings" in capsys.readouterr().out
        readme = (tmp_path / name / "README.md").read_text()
        assert all(call in readme for call in LENGTHS_OF_FORMS[form])
        printed = run_readme_code(readme, tmp_path / name)
        np.testing.assert_allclose([float(line) for line in printed.split()], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("pooling", "normalize"), [("cls", False), ("max", True)])
@pytest.mark.slow
def test_other_poolings_are_in_the_graph(vectors, tmp_path, pooling, normalize):
    place, _ = vectors
    model = save_theirs(place / "encoder", tmp_path / "theirs", pooling, normalize, LENGTH)
    features = {key: x.numpy() for key, x in model.preprocess(TEXTS).items() if hasattr(x, "numpy")}
    for name in ("onnx", "stablehlo"):
        export(tmp_path / "theirs", tmp_path / name, "--format", name)
        for runtime in FORMATS[name].runtimes:
            found = open_runtime(runtime, tmp_path / name)(features)["sentence_embedding"]
            np.testing.assert_allclose(found, model.encode(TEXTS), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["huggingface", "stablehlo", "onnx"])
def test_verify_runs_sentence_vectors_in_every_runtime(vectors, capsys, name):
    place, _ = vectors
    assert verify(place / name) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "intact" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == list(FORMATS[name].runtimes)
    assert all(": equal; largest difference of" in line for line in lines[1:])
    compared = ["sentence_embedding" in line for line in lines[1:]]
    assert compared == (
        [False, True] if name == "huggingface" else [True] * len(compared)
    )  # transformers has no vectors


@pytest.mark.parametrize(
    ("name", "file"), [("onnx", "model.onnx"), ("stablehlo", "model.stablehlo"), ("stablehlo", "manifest.json")]
)
def test_a_program_that_its_runtime_cannot_open_is_named(vectors, tmp_path, name, file):
    """Part of a copy; from Python, no digests are compared."""
    shutil.copytree(vectors[0] / name, tmp_path / name)
    os.truncate(tmp_path / name / file, 100)
    with pytest.raises(UserError, match=r"cannot open it \(.*\); export the model again"):
        bert_jax.verify_run(tmp_path / name)


def test_expected_outputs_that_compare_nothing_are_refused(vectors, tmp_path):
    expected = read_expected_outputs(vectors[0] / "onnx" / FILE)
    for change in (lambda x: np.full_like(x, np.nan), lambda x: x[:2]):
        changed = dataclasses.replace(expected, outputs={name: change(x) for name, x in expected.outputs.items()})
        (tmp_path / FILE).write_bytes(serialize_expected_outputs(changed))
        with pytest.raises(UserError, match="export the model again"):
            read_expected_outputs(tmp_path / FILE)


def test_weights_whose_outputs_are_not_finite_are_refused(vectors):
    weights = read_weights(vectors[0] / "theirs")
    damaged = dataclasses.replace(weights, params=jax.tree.map(lambda x: np.full_like(x, np.inf), weights.params))
    with pytest.raises(UserError, match="is not finite"):
        compute_outputs_of_bert_jax(damaged, "onnx")


def test_outputs_of_any_size_are_compared():
    """Only the logits of answers have a value for tokens that are in no answer."""
    batch, wanted = {"attention_mask": np.ones((3, 2), np.int32)}, np.full((3, 2), -2e5, np.float32)
    assert largest_relative_difference({"sequence_logits": wanted}, {"sequence_logits": 0 * wanted}, batch) == 1.0
    assert largest_relative_difference({"start_logits": wanted}, {"start_logits": 0 * wanted}, batch) == 0.0


def test_the_readme_truncates_texts_to_the_positions_of_the_encoder(vectors, tmp_path):
    """The files of sentence-transformers may name a longer length than the encoder has positions."""
    shutil.copytree(vectors[0] / "theirs", tmp_path / "long")
    (path,) = (tmp_path / "long").glob("sentence_bert_config.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_seq_length": 10_000}))
    weights = read_weights(tmp_path / "long")
    readme = program_readme(weights, "title", "onnxruntime", is_int8=False)
    assert f"enable_truncation({weights.config.max_positions})" in readme


@pytest.mark.filterwarnings("ignore")
def test_queries_that_the_model_cannot_read_are_refused(tmp_path):
    """Mask tokens fill queries up to 14 tokens."""
    tiny_models.save(tmp_path / "encoder", "bert", "Model")
    save_multi_vector_encoder(tmp_path / "encoder", tmp_path / "theirs")
    (path,) = (tmp_path / "theirs").glob("sentence_bert_config.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_seq_length": 10}))
    with pytest.raises(UserError, match="queries have 14 tokens, but the model reads 10"):
        program_readme(read_weights(tmp_path / "theirs"), "title", "onnxruntime", is_int8=False)


def test_scores_of_vectors_are_not_compared(vectors, capsys):
    place, _ = vectors
    assert verify(place / "stablehlo", "--original", str(place / "theirs")) == 2
    assert capsys.readouterr().err.endswith("are not compared; leave out --original\n")


def test_every_kind_of_vectors_has_a_program():
    assert KINDS_OF_VECTORS.keys() == TEXT_VECTORS.keys() == VECTOR_HEADS.keys()


def test_python_returns_the_checks_that_the_command_prints(vectors, capsys):
    place, _ = vectors
    checks = bert_jax.verify_run(place / "onnx")
    assert verify(place / "onnx") == 0
    assert [check.line for check in checks] == capsys.readouterr().out.splitlines()[1:]
    assert all(check.ran and check.is_equal for check in checks)


def test_the_code_of_readme_prints_vectors_with_the_prompt(vectors):
    place, model = vectors
    expected = model.encode(README_TEXTS)
    for name in ("stablehlo", "onnx"):
        shape, _, products = run_readme_code((place / name / "README.md").read_text(), place / name).partition("\n")
        assert ast.literal_eval(shape) == expected.shape
        numbers = np.array([float(x) for x in products.replace("[", " ").replace("]", " ").split()])
        np.testing.assert_allclose(numbers.reshape(2, 2), expected @ expected.T, atol=1e-6)


def test_a_changed_program_is_reported(vectors, tmp_path, capsys):
    place, _ = vectors
    shutil.copytree(place / "onnx", tmp_path / "changed")
    (tmp_path / "changed" / SUMS).unlink()
    tensors = safetensors.numpy.load_file(tmp_path / "changed" / FILE)
    tensors["outputs/sentence_embedding"][1, 3] += 1e-4
    safetensors.numpy.save_file(tensors, tmp_path / "changed" / FILE, metadata={"format": "onnx"})
    assert verify(tmp_path / "changed") == 1
    assert capsys.readouterr().out.count("DIFFERENT; largest difference") == 2
    (tmp_path / "changed" / FILE).write_bytes(b"{}")
    assert verify(tmp_path / "changed") == 2
    assert "cannot be read" in capsys.readouterr().err


def test_runtimes_that_are_not_installed_are_named(vectors, capsys, monkeypatch):
    place, _ = vectors
    missing = RUNTIMES["openvino"]._replace(module="no_such_module")
    monkeypatch.setitem(RUNTIMES, "openvino", missing)
    assert verify(place / "onnx") == 0
    assert "openvino: not installed (pip install openvino)" in capsys.readouterr().out
    monkeypatch.setitem(RUNTIMES, "onnxruntime", RUNTIMES["onnxruntime"]._replace(module="no_such_module"))
    assert verify(place / "onnx") == 2
    assert "no runtime is installed; install one of onnxruntime, openvino" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["verify", ".", "--original", "x"], "--original: only with --run"),
        (["verify", ".", "--run", "--data", "x"], "--data: only with --original"),
        (["export", "--model", "x", "--output", "new", "--measure"], "only for the formats stablehlo, onnx, onnx_int8"),
    ],
)
def test_options_that_do_not_fit(words, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert says in capsys.readouterr().err


def test_int8_reports_its_difference_and_the_effect_of_padding(vectors, capsys):
    place, _ = vectors
    shutil.copy(place / "onnx" / FILE, place / "onnx_int8")
    expected = read_expected_outputs(place / "onnx" / FILE)
    tensors = safetensors.numpy.load_file(place / "onnx" / FILE)
    safetensors.numpy.save_file(tensors, place / "onnx_int8" / FILE, metadata={"format": "onnx_int8"})
    (place / "onnx_int8" / SUMS).unlink(missing_ok=True)
    assert verify(place / "onnx_int8") == 0
    line = capsys.readouterr().out
    run = open_runtime("onnxruntime", place / "onnx_int8")
    padded = run(expected.batch)["last_hidden_state"][2, :3]
    alone = run({name: x[2:3, :3] for name, x in expected.batch.items()})["last_hidden_state"][0]
    effect = np.abs(padded - alone).max() / max(1.0, np.abs(padded).max())
    assert effect > 1e-3
    reported = float(line.partition("change them by up to ")[2].partition(",")[0])
    assert reported >= 0.98 * effect


def test_expected_outputs_equal_torch(vectors):
    place, model = vectors
    expected = read_expected_outputs(place / "onnx" / FILE)
    names = ("input_ids", "token_type_ids", "attention_mask")
    with torch.no_grad():
        found = model[0].model(**{name: torch.tensor(expected.batch[name], dtype=torch.int64) for name in names})
    real = expected.batch["attention_mask"] != 0
    assert sorted(real.sum(1)) == [3, 8, 16]
    np.testing.assert_allclose(
        found.last_hidden_state.numpy()[real], expected.outputs["last_hidden_state"][real], rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in CASES if n not in QUICK)])
def test_every_head_answers_as_transformers(tmp_path, capsys, name):
    family, task, settings, expected_print = CASES[name]
    model, tokenizer = tiny_models.save(tmp_path / "model", family, task, **settings)
    for target in ("huggingface", "stablehlo", "onnx", "openvino"):
        if target == "openvino" and name in QUICK:
            continue
        export(tmp_path / "model", tmp_path / target, "--format", target)
        assert verify(tmp_path / target) == 0, capsys.readouterr().out
        if target != "huggingface":
            readme = (tmp_path / target / "README.md").read_text()
            printed, expected = run_readme_code(readme, tmp_path / target), expected_print(model, tokenizer)
            if isinstance(expected, list):
                printed = [ast.literal_eval(line)[: len(expected[i])] for i, line in enumerate(printed.splitlines())]
            assert printed == expected, target


@pytest.mark.slow
def test_a_regression_and_a_cross_encoder_print_their_values(tmp_path):
    model, tokenizer = tiny_models.save(tmp_path / "model", "bert", "ForSequenceClassification", num_labels=1)
    cross_encoder = sentence_transformers.CrossEncoder(
        str(tmp_path / "model"),
        device="cpu",
        activation_fn=torch.nn.Sigmoid(),
        max_length=12,
        prompts={"q": "d e. "},
        default_prompt_name="q",
    )
    cross_encoder.save(str(tmp_path / "cross"))
    scores = cross_encoder.predict([("a query", "a document"), ("a query", "another document")])
    with torch.no_grad():
        logits = model(**tokenizer(README_TEXTS, return_tensors="pt", padding=True)).logits[:, 0]
    for name, values in (("model", logits.numpy()), ("cross", scores)):
        export(tmp_path / name, tmp_path / f"{name}-onnx", "--format", "onnx")
        printed = run_readme_code((tmp_path / f"{name}-onnx" / "README.md").read_text(), tmp_path / f"{name}-onnx")
        np.testing.assert_allclose([float(x) for x in printed.strip("[]\n").split()], values, atol=1e-5)


def test_openvino_is_imported_without_its_telemetry(vectors):
    """In a process of its own: no fork, no file in the home directory, no module of the telemetry."""
    place, _ = vectors
    code = f"""
import pathlib, sys
events = []
sys.addaudithook(lambda event, args: events.append(event) if event in ("os.fork", "socket.connect") else None)
from bert_jax.convert.runtimes import open_runtime
open_runtime("openvino", {str(place / "openvino")!r})
assert not events, events
assert sys.modules["openvino_telemetry"] is None
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "HOME": str(place)})
    assert not (place / "intel").exists()


def test_every_program_has_code_and_a_runtime():
    assert {row.runtimes[0] for row in FORMATS.values() if row.title} == set(PROGRAM_CODE)
    assert {name for row in FORMATS.values() for name in row.runtimes} == set(RUNTIMES)


def test_a_timed_batch_repeats_the_first_row():
    batch = {
        "input_ids": np.arange(12).reshape(2, 2, 3),
        "attention_mask": np.ones((2, 2, 3), int),
        "masked_positions": np.array([[0, 1], [1, 2]]),
    }
    filled = repeat_first_row_to_batch(batch, 4, 8)
    np.testing.assert_array_equal(filled["input_ids"][3, 1], [3, 4, 5, 3, 4, 5, 3, 4])
    assert filled["input_ids"].shape == filled["attention_mask"].shape == (4, 2, 8)
    np.testing.assert_array_equal(filled["masked_positions"], [[0, 1]] * 4)


@pytest.mark.slow
def test_measured_latencies_are_in_the_readme(tmp_path):
    tiny_models.save(tmp_path / "model", "bert", "ForSequenceClassification")
    export(tmp_path / "model", tmp_path / "onnx", "--format", "onnx", "--measure")
    text = (tmp_path / "onnx" / "README.md").read_text()
    assert "It printed:\n\n```\nLABEL_" in text
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")][2:]
    assert [row[0].split()[1] for row in rows] == ["onnxruntime", "openvino", "transformers"]
    for row in rows:
        small, large = (float(x.strip("| ").replace(",", "")) for x in row[1:])
        assert 0 <= small <= large
    assert len(FENCE.findall(text)) == 1
    assert verify(tmp_path / "onnx") == 0


def test_outputs_of_two_heads_are_found_by_their_names():
    logits, positions = np.arange(24.0).reshape(1, 4, 6), np.array([[2, 0]])
    outputs = {"prediction_logits": logits, "seq_relationship_logits": np.ones((1, 2))}
    found = select_outputs(outputs, ("mlm_logits", "nsp_logits"), {"masked_positions": positions})
    np.testing.assert_array_equal(found["mlm_logits"][0], logits[0, [2, 0]])
    np.testing.assert_array_equal(found["nsp_logits"], [[1, 1]])


def test_an_absent_pooler_is_not_reported(tmp_path, caplog, monkeypatch):
    # Other tests, and the variable CI, change the level and the propagation of this logger.
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    caplog.set_level(logging.WARNING, "transformers")
    model, _ = tiny_models.save(tmp_path, "bert", "Model")
    model.pooler = None
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path)
    transformers.BertModel.from_pretrained(tmp_path)
    assert "MISSING" in caplog.text  # the report of transformers
    caplog.clear()
    open_runtime("transformers", tmp_path)
    assert "MISSING" not in caplog.text
