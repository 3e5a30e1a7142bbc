"""SparseEncoder of sentence-transformers: equal vectors and rankings after import, training and export."""

import ast
import json

import numpy as np
import pytest
import scipy.sparse
import sentence_transformers
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sparse_encoder.evaluation import SparseInformationRetrievalEvaluator
from sentence_transformers.sparse_encoder.modules import SpladePooling

import bert_jax
from bert_jax.checkpoints.load_model import open_model
from bert_jax.cli.main import main
from bert_jax.convert.export import FORMATS
from bert_jax.convert.program import run_readme_code
from bert_jax.convert.runtimes import open_runtime
from bert_jax.errors import UserError
from bert_jax.inference.embed import HEADS
from bert_jax.scoring.retrieval import score_retrieval
from tests.helpers.finetuning_runs import read_lines, write_lines
from tests.helpers.retrieval_collections import write_collection
from tests.helpers.tiny_models import save

TEXTS = ["abc", "a b c d e f g h i j", "Hij", "", "abcdefghij" * 4]
PROMPTS = {"query": "a b ", "document": "c "}


@pytest.fixture(scope="module")
def masked_model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("masked")
    save(directory, "bert")
    return directory


def save_theirs(source, output, pooling="max", activation="relu", **more):
    transformer = Transformer(str(source), transformer_task="fill-mask", max_seq_length=20)
    modules = [transformer, SpladePooling(pooling, activation)]
    model = sentence_transformers.SparseEncoder(modules=modules, device="cpu", **more)
    model.save(str(output))
    return model


def in_words_of_version_5(directory):
    modules = json.loads((directory / "modules.json").read_text())
    for module, name in zip(modules, ("MLMTransformer", "SpladePooling"), strict=True):
        module["type"] = f"sentence_transformers.sparse_encoder.models.{name}"
    (directory / "modules.json").write_text(json.dumps(modules))
    (directory / "sentence_bert_config.json").write_text('{"max_seq_length": 20, "do_lower_case": false}')
    pooling = {"pooling_strategy": "max", "activation_function": "relu", "word_embedding_dimension": None}
    (directory / "1_SpladePooling" / "config.json").write_text(json.dumps(pooling))


def all_rows(vectors):
    return vectors[np.arange(len(vectors))]


@pytest.mark.parametrize("version", [5, 6])
def test_vectors_equal_the_vectors_of_a_sparse_encoder(masked_model, tmp_path, version):
    model = save_theirs(masked_model, tmp_path / "theirs", prompts=PROMPTS)
    if version == 5:
        in_words_of_version_5(tmp_path / "theirs")
        model = sentence_transformers.SparseEncoder(str(tmp_path / "theirs"), device="cpu")
    assert main(["export", "--model", str(tmp_path / "theirs"), "--output", str(tmp_path / "ours")]) == 0
    again = sentence_transformers.SparseEncoder(str(tmp_path / "ours"), device="cpu")
    for name in (None, "query", "document"):
        expected = model.encode(TEXTS, prompt_name=name).to_dense().numpy()
        assert (expected > 0).sum() > 20
        found = bert_jax.load(tmp_path / "theirs").encode(TEXTS, truncate=True, prompt_name=name)
        np.testing.assert_allclose(all_rows(found), expected, rtol=0, atol=1e-5)
        np.testing.assert_allclose(again.encode(TEXTS, prompt_name=name).to_dense(), expected, rtol=0, atol=1e-5)
    assert len(bert_jax.load(tmp_path / "theirs").encode([])) == 0
    assert "SparseEncoder" in (tmp_path / "ours" / "README.md").read_text()


def test_embed_writes_terms_and_a_matrix(masked_model, tmp_path):
    model = save_theirs(masked_model, tmp_path / "theirs")
    expected = model.encode(TEXTS).to_dense().numpy()
    write_lines(tmp_path / "texts.jsonl", [{"text": text} for text in TEXTS])
    command = ["embed", "--model", str(tmp_path / "theirs"), "--input", str(tmp_path / "texts.jsonl"), "--truncate"]
    for name in ("terms.jsonl", "matrix.npz"):
        assert main([*command, "--output", str(tmp_path / name)]) == 0
    matrix = scipy.sparse.load_npz(tmp_path / "matrix.npz")
    np.testing.assert_allclose(matrix.toarray(), expected, rtol=0, atol=1e-5)
    lines = read_lines(tmp_path / "terms.jsonl")
    for terms, row, decoded in zip(lines, expected, model.decode(model.encode(TEXTS)), strict=True):
        assert len(terms) == (row > 0).sum()
        assert list(terms.values()) == sorted(terms.values(), reverse=True)
        for token, weight in decoded:
            assert terms[token] == pytest.approx(weight, abs=1e-5)


def test_embed_names_the_suffixes_of_sparse_vectors(masked_model, tmp_path, capsys):
    save_theirs(masked_model, tmp_path / "theirs")
    write_lines(tmp_path / "texts.jsonl", [{"text": "abc"}])
    command = ["embed", "--model", str(tmp_path / "theirs"), "--input", str(tmp_path / "texts.jsonl")]
    assert main([*command, "--output", str(tmp_path / "vectors.npy")]) == 2
    assert "these vectors are sparse; end the file name with .jsonl or .npz" in capsys.readouterr().err


@pytest.mark.parametrize("similarity", ["absent", None, "cosine"])
def test_retrieval_equals_the_evaluator_of_the_library(masked_model, tmp_path, similarity):
    is_absent, similarity = similarity == "absent", None if similarity == "absent" else similarity
    model = save_theirs(masked_model, tmp_path / "theirs", prompts=PROMPTS, similarity_fn_name=similarity)
    if is_absent:
        path = tmp_path / "theirs" / "config_sentence_transformers.json"
        path.write_text(
            json.dumps({k: x for k, x in json.loads(path.read_text()).items() if k != "similarity_fn_name"})
        )
    corpus, queries, relevant = write_collection(tmp_path)
    evaluator = SparseInformationRetrievalEvaluator(
        queries, corpus, relevant, mrr_at_k=[10], ndcg_at_k=[10], precision_recall_at_k=[10], map_at_k=[60]
    )
    name = similarity or "dot"
    expected = {key.rpartition(f"{name}_")[2]: value for key, value in evaluator(model).items()}
    report = score_retrieval(open_model(tmp_path / "theirs", HEADS), tmp_path)
    for ours, theirs in (("ndcg@10", "ndcg@10"), ("recall@10", "recall@10"), ("mrr@10", "mrr@10"), ("map", "map@60")):
        assert report.rows["model"][ours] == pytest.approx(expected[theirs], abs=1e-9), ours
    assert report.similarity == name
    for role, theirs in (("queries", "query_active_dims"), ("documents", "corpus_active_dims")):
        assert report.numbers_per_text[role] == pytest.approx(expected[theirs]), role


@pytest.mark.parametrize(("pooling", "activation"), [("sum", "relu"), ("max", "log1p_relu")])
def test_other_poolings_are_refused(masked_model, tmp_path, pooling, activation):
    save_theirs(masked_model, tmp_path / "theirs", pooling, activation)
    with pytest.raises(UserError, match=r"only '(max|relu)' can be read"):
        bert_jax.load(tmp_path / "theirs")


def test_a_limit_of_the_weights_is_refused(masked_model, tmp_path):
    save_theirs(masked_model, tmp_path / "theirs", max_active_dims=4)
    with pytest.raises(UserError, match="max_active_dims is 4; bert_jax does not shorten vectors"):
        bert_jax.load(tmp_path / "theirs")


@pytest.mark.parametrize(
    "name", ["stablehlo", *(pytest.param(name, marks=pytest.mark.slow) for name in ("onnx", "openvino"))]
)
def test_exported_programs_give_the_vectors_of_a_sparse_encoder(masked_model, tmp_path, name, capsys):
    model = save_theirs(masked_model, tmp_path / "theirs", prompts=PROMPTS, default_prompt_name="query")
    words = ["export", "--model", str(tmp_path / "theirs"), "--output", str(tmp_path / name), "--format", name]
    assert main(words) == 0
    features = {key: x.numpy() for key, x in model.preprocess(TEXTS).items() if hasattr(x, "numpy")}
    expected = model.encode(TEXTS, prompt="").to_dense().numpy()
    for runtime in FORMATS[name].runtimes:
        found = open_runtime(runtime, tmp_path / name)(features)["sentence_embedding"]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    capsys.readouterr()
    assert main(["verify", "--run", str(tmp_path / name)]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert len(lines) == len(FORMATS[name].runtimes)
    assert all(": equal" in line and "sentence_embedding" in line for line in lines)
    printed = run_readme_code((tmp_path / name / "README.md").read_text(), tmp_path / name)
    vectors = model.encode_query("a query"), model.encode_document("a document")
    for line, vector in zip(printed.splitlines(), (vector.to_dense() for vector in vectors), strict=True):
        tokens = model.tokenizer.convert_ids_to_tokens(vector.nonzero()[:, 0].tolist())
        assert ast.literal_eval(line) == pytest.approx(
            dict(zip(tokens, vector[vector > 0].tolist(), strict=True)), abs=0.006
        )


def test_a_smaller_sparse_encoder_opens_in_the_library(masked_model, tmp_path):
    save_theirs(masked_model, tmp_path / "theirs", prompts=PROMPTS)
    rng = np.random.default_rng(0)
    (tmp_path / "texts").mkdir()
    for number in range(20):
        (tmp_path / "texts" / f"{number}.txt").write_text(" ".join(rng.choice(list("abcdefghij"), 60)) + ".")
    corpus = ["--output", str(tmp_path / "corpus"), "--heldout_fraction", "0.3", "--workers", "1"]
    paths = ["--input", str(tmp_path / "texts"), "--tokenizer", str(masked_model)]
    assert main(["prepare", *paths, *corpus]) == 0
    words = ["--method", "layers", "--amount", "0.25", "--examples", "4", "--data", str(tmp_path / "corpus")]
    output = ["--output", str(tmp_path / "smaller")]
    assert main(["compress", "--model", str(tmp_path / "theirs"), *output, *words]) == 0
    smaller = sentence_transformers.SparseEncoder(str(tmp_path / "smaller"), device="cpu")
    assert (len(smaller[0].model.bert.encoder.layer), smaller.prompts["query"]) == (3, PROMPTS["query"])
    found = bert_jax.load(tmp_path / "smaller").encode(TEXTS, truncate=True)
    np.testing.assert_allclose(all_rows(found), smaller.encode(TEXTS).to_dense(), rtol=0, atol=1e-5)
    assert main(["verify", str(tmp_path / "smaller")]) == 0


def test_verify_compares_the_logits_of_a_sparse_encoder_with_transformers(masked_model, tmp_path, capsys):
    save_theirs(masked_model, tmp_path / "theirs")
    assert main(["export", "--model", str(tmp_path / "theirs"), "--output", str(tmp_path / "ours")]) == 0
    assert main(["verify", "--run", str(tmp_path / "ours")]) == 0
    assert "transformers" in (out := capsys.readouterr().out)
    assert "mlm_logits" in out
