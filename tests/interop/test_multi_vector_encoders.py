"""MultiVectorEncoder of sentence-transformers and ColBERT of PyLate: equal vectors and rankings."""

import json
import shutil
import string

import numpy as np
import pytest
import safetensors.numpy
import sentence_transformers
import torch
import transformers
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.evaluation import MultiVectorInformationRetrievalEvaluator
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

import bert_jax
from bert_jax.checkpoints.load_model import open_model
from bert_jax.cli.main import main
from bert_jax.errors import UserError
from bert_jax.inference.embed import HEADS
from bert_jax.scoring.retrieval import score_retrieval
from tests.helpers.finetuning_runs import write_lines
from tests.helpers.retrieval_collections import write_collection
from tests.helpers.tiny_models import save

TEXTS = ["abc", "a. b c d. e f g h i j", "Hij.", "", "abcdefghij" * 2]
PROMPTS = {"query": "a b ", "document": "c "}
EXPANSION = {"strategy": "fixed", "length": 14}
WIDTH = 8
# Settings of the Transformer, and the words that documents skip.
FORMS = {
    "expanded": ({"query_expansion": EXPANSION, "document_length": 20}, [*string.punctuation]),
    "attended": ({"query_expansion": EXPANSION | {"attend": True}}, []),
    "plain": ({"query_length": 9, "document_length": 12}, [".", "c"]),
}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    directory = tmp_path_factory.mktemp("encoder")
    save(directory, "bert", "Model")
    return directory


def projection():
    weights = torch.randn(WIDTH, 16, generator=torch.Generator().manual_seed(0))
    identity = torch.nn.Identity()
    return Dense(
        16, WIDTH, bias=False, activation_function=identity, init_weight=weights, module_input_name="token_embeddings"
    )


def save_theirs(source, output, form="expanded", **more):
    settings, words = FORMS[form]
    modules = [Transformer(str(source), **settings), projection(), MultiVectorMask(skiplist_words=words)]
    modules.append(Normalize(module_input_name="token_embeddings"))
    model = sentence_transformers.MultiVectorEncoder(modules=modules, device="cpu", prompts=PROMPTS, **more)
    model.save(str(output))
    return model


def rows(vectors):
    return [vectors.vectors[begin:end] for begin, end in zip(vectors.offsets, vectors.offsets[1:], strict=False)]


def assert_equal_vectors(found, expected):
    assert [len(x) for x in found] == [len(x) for x in expected]
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(expected), rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "form", ["expanded", *(pytest.param(x, marks=pytest.mark.slow) for x in ("attended", "plain"))]
)
def test_vectors_equal_the_vectors_of_a_multi_vector_encoder(encoder, tmp_path, form):
    model = save_theirs(encoder, tmp_path / "theirs", form)
    assert main(["export", "--model", str(tmp_path / "theirs"), "--output", str(tmp_path / "ours")]) == 0
    again = sentence_transformers.MultiVectorEncoder(str(tmp_path / "ours"), device="cpu")
    loaded = bert_jax.load(tmp_path / "theirs")
    for role in ("query", "document"):
        expected = getattr(model, f"encode_{role}")(TEXTS, convert_to_numpy=True)
        vectors = loaded.encode(TEXTS, truncate=True, prompt_name=role)
        assert_equal_vectors([*vectors], expected)
        np.testing.assert_array_equal(vectors[-1], vectors[len(TEXTS) - 1])
        assert_equal_vectors(getattr(again, f"encode_{role}")(TEXTS, convert_to_numpy=True), expected)
    assert len(loaded.encode([])) == 0
    assert "MultiVectorEncoder" in (tmp_path / "ours" / "README.md").read_text()


@pytest.mark.filterwarnings("ignore")
def test_mask_tokens_at_the_end_of_a_window_have_the_vectors_of_the_library(tmp_path):
    """In windows of 3 tokens to each side, a query of 5 tokens is the longest without an empty window."""
    save(tmp_path / "encoder", "modernbert", "Model")  # whose windows have 6 tokens
    for length in (5, 6):
        settings = {"query_expansion": {"strategy": "fixed", "length": length}}
        modules = [Transformer(str(tmp_path / "encoder"), **settings), projection(), MultiVectorMask()]
        modules.append(Normalize(module_input_name="token_embeddings"))
        model = sentence_transformers.MultiVectorEncoder(modules=modules, device="cpu", prompts={"query": ""})
        model.save(str(tmp_path / f"theirs{length}"))
        loaded = bert_jax.load(tmp_path / f"theirs{length}")
        if length == 5:
            expected = model.encode_query(["", "a"], convert_to_numpy=True)
            assert_equal_vectors([*loaded.encode(["", "a"], prompt_name="query")], expected)
        else:
            with pytest.raises(UserError, match="windows of 6 tokens"):
                loaded.encode(["", "a"], prompt_name="query")


def in_the_words_of_pylate(encoder, output):
    """A directory as PyLate 1.6 writes it, whose two prefixes are new tokens of the vocabulary."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoder)
    tokenizer.add_tokens(["[Q] ", "[D] "])
    model = transformers.BertModel.from_pretrained(encoder)
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(output)
    tokenizer.save_pretrained(output)
    (output / "1_Dense").mkdir()
    projection().save(str(output / "1_Dense"))
    dense = {"in_features": 16, "out_features": WIDTH, "bias": False, "use_residual": False}
    dense["activation_function"] = "torch.nn.modules.linear.Identity"
    (output / "1_Dense" / "config.json").write_text(json.dumps(dense))
    types = ("sentence_transformers.models.Transformer", "pylate.models.Dense.Dense")
    modules = [{"idx": n, "name": str(n), "path": path, "type": types[n]} for n, path in enumerate(("", "1_Dense"))]
    (output / "modules.json").write_text(json.dumps(modules))
    (output / "sentence_bert_config.json").write_text('{"max_seq_length": 19, "do_lower_case": false}')
    fields = {
        "model_type": "ColBERT",
        "query_prefix": "[Q] ",
        "document_prefix": "[D] ",
        "query_length": 12,
        "document_length": 20,
        "attend_to_expansion_tokens": False,
        "skiplist_words": [*string.punctuation],
        "do_query_expansion": True,
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "MaxSim",
    }
    (output / "config_sentence_transformers.json").write_text(json.dumps(fields))


@pytest.mark.filterwarnings("ignore")
def test_vectors_equal_the_vectors_of_a_directory_of_pylate(encoder, tmp_path):
    in_the_words_of_pylate(encoder, tmp_path / "theirs")
    model = sentence_transformers.MultiVectorEncoder(str(tmp_path / "theirs"), device="cpu")
    loaded = bert_jax.load(tmp_path / "theirs")
    assert main(["export", "--model", str(tmp_path / "theirs"), "--output", str(tmp_path / "ours")]) == 0
    again = sentence_transformers.MultiVectorEncoder(str(tmp_path / "ours"), device="cpu")
    for role in ("query", "document"):
        expected = getattr(model, f"encode_{role}")(TEXTS[:3], convert_to_numpy=True)
        assert_equal_vectors(rows(loaded.encode(TEXTS[:3], truncate=True, prompt_name=role)), expected)
        assert_equal_vectors(getattr(again, f"encode_{role}")(TEXTS[:3], convert_to_numpy=True), expected)


@pytest.mark.filterwarnings("ignore")
def test_the_maximum_length_of_a_role_is_the_highest_that_an_option_can_choose(encoder, tmp_path):
    """The encoder reads 32 tokens, the module at most 19, and queries have 12."""
    in_the_words_of_pylate(encoder, tmp_path)
    loaded = bert_jax.load(tmp_path)
    for role, highest in (("query", 12), ("document", 19)):  # document_length is 20, beyond the module's maximum
        assert max(map(len, rows(loaded.encode(TEXTS, truncate=True, prompt_name=role, max_seq_len=highest)))) > 1
        for wrong in (highest + 1, 32):
            with pytest.raises(UserError, match=f"max_seq_len {wrong}: .* of this model have at most {highest} tokens"):
                loaded.encode(TEXTS, truncate=True, prompt_name=role, max_seq_len=wrong)


def test_embed_writes_the_vectors_of_tokens(encoder, tmp_path, capsys):
    model = save_theirs(encoder, tmp_path / "theirs")
    write_lines(tmp_path / "texts.jsonl", [{"text": text} for text in TEXTS])
    command = ["embed", "--model", str(tmp_path / "theirs"), "--input", str(tmp_path / "texts.jsonl"), "--truncate"]
    output = ["--output", str(tmp_path / "tokens.safetensors"), "--prompt_name", "document"]
    assert main([*command, *output]) == 0
    tensors = safetensors.numpy.load_file(tmp_path / "tokens.safetensors")
    expected = model.encode_document(TEXTS, convert_to_numpy=True)
    np.testing.assert_array_equal(np.diff(tensors["offsets"]), [len(x) for x in expected])
    np.testing.assert_allclose(tensors["features"], np.concatenate(expected), rtol=0, atol=1e-5)
    point = transformers.AutoTokenizer.from_pretrained(encoder).convert_tokens_to_ids(".")
    assert point not in tensors["input_ids"]
    assert main(["verify", "--run", str(tmp_path / "theirs")]) == 0
    assert "the outputs of the encoder are compared, but not its late_interaction vectors" in capsys.readouterr().err


def test_an_option_without_effect_is_refused(encoder, tmp_path, capsys):
    save_theirs(encoder, tmp_path / "theirs")
    write_lines(tmp_path / "texts.jsonl", [{"text": "abc"}])
    command = ["embed", "--model", str(tmp_path / "theirs"), "--input", str(tmp_path / "texts.jsonl")]
    assert main([*command, "--output", str(tmp_path / "vectors.safetensors"), "--no-normalize"]) == 2
    assert "always have length 1; leave it out" in capsys.readouterr().err


def test_retrieval_equals_the_evaluator_of_the_library(encoder, tmp_path):
    model = save_theirs(encoder, tmp_path / "theirs")
    corpus, queries, relevant = write_collection(tmp_path)
    evaluator = MultiVectorInformationRetrievalEvaluator(
        queries, corpus, relevant, mrr_at_k=[10], ndcg_at_k=[10], precision_recall_at_k=[10], map_at_k=[60]
    )
    expected = {key.rpartition("maxsim_")[2]: value for key, value in evaluator(model).items()}
    report = score_retrieval(open_model(tmp_path / "theirs", HEADS), tmp_path)
    for ours, theirs in (("ndcg@10", "ndcg@10"), ("recall@10", "recall@10"), ("mrr@10", "mrr@10"), ("map", "map@60")):
        assert report.rows["model"][ours] == pytest.approx(expected[theirs], abs=1e-9), ours
    assert report.similarity == "maxsim"


def change(directory, name, **fields):
    path = directory / name
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    ("name", "fields", "says"),
    [
        ("1_Dense/config.json", {"bias": True}, "bias is True; only False can be read"),
        ("1_Dense/config.json", {"out_features": None}, "out_features is None"),
        ("2_MultiVectorMask/config.json", {"keep_only_token_ids": [3]}, "keep_only_token_ids is \\[3\\]"),
        ("2_MultiVectorMask/config.json", {"skiplist_words": "ab"}, "a list of tokens is needed"),
        ("3_Normalize/config.json", {"module_input_name": "sentence_embedding"}, "only 'token_embeddings'"),
        ("sentence_bert_config.json", {"query_expansion": EXPANSION | {"strategy": "min"}}, "strategy of query_exp"),
        ("sentence_bert_config.json", {"query_expansion": EXPANSION | {"token": "a"}}, "token of query_expansion"),
        ("sentence_bert_config.json", {"query_expansion": {"strategy": "fixed"}}, "has no length"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "meanmaxsim"}, "only 'maxsim' can be read"),
    ],
)
def test_other_forms_are_refused(theirs, tmp_path, name, fields, says):
    shutil.copytree(theirs, tmp_path / "theirs")
    change(tmp_path / "theirs", name, **fields)
    with pytest.raises(UserError, match=says):
        bert_jax.load(tmp_path / "theirs")


@pytest.fixture(scope="module")
def theirs(encoder, tmp_path_factory):
    directory = tmp_path_factory.mktemp("theirs") / "model"
    save_theirs(encoder, directory)
    return directory


def test_an_expansion_longer_than_the_model_is_refused(theirs, tmp_path):
    shutil.copytree(theirs, tmp_path / "theirs")
    change(tmp_path / "theirs", "sentence_bert_config.json", query_expansion=EXPANSION | {"length": 33})
    with pytest.raises(UserError, match="queries have 33 tokens, but the model reads 32"):
        bert_jax.load(tmp_path / "theirs").encode(["a"], prompt_name="query")
