"""Directories of sentence-transformers: vectors against the library's vectors, after import and after export."""

import json
import shutil

import numpy as np
import peft
import pytest
import sentence_transformers
from sentence_transformers.base.modules.normalize import Normalize
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.sentence_transformer.modules import Pooling

import bert_jax
from bert_jax.checkpoints.load_model import open_model
from bert_jax.cli.main import main
from bert_jax.errors import UserError
from bert_jax.inference.embed import HEADS, EmbedOptions, embed_file
from bert_jax.scoring.retrieval import score_retrieval
from tests.helpers.finetuning_runs import RECIPE, write_lines
from tests.helpers.tiny_models import save

TEXTS = ["abc", "a b c d e f g h i j", "Hij", "jih g", "abcdefghij" * 4]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    place = tmp_path_factory.mktemp("encoder")
    save(place, "bert", "Model")
    return place


def save_theirs(encoder, output, pooling="mean", normalize=False, length=12, **more):
    transformer = Transformer(str(encoder), max_seq_length=length)
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), pooling)]
    if normalize:
        modules.append(Normalize())
    model = sentence_transformers.SentenceTransformer(modules=modules, device="cpu", **more)
    model.save(str(output))
    return model


def in_old_words(directory, pooling, length):
    """Rewrite what version 6 saves as versions 2 to 5 did."""
    path = directory / "modules.json"
    modules = json.loads(path.read_text())
    for module in modules:
        module["type"] = f"sentence_transformers.models.{module['type'].rsplit('.', 1)[-1]}"
    path.write_text(json.dumps(modules))
    (directory / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length, "do_lower_case": False}))
    name = "pooling_mode_cls_token" if pooling == "cls" else f"pooling_mode_{pooling}_tokens"
    (directory / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 16, name: True}))
    shutil.rmtree(directory / "2_Normalize", ignore_errors=True)  # was empty, and so in no repository


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_an_adapter_keeps_pooling_norm_prompt_and_length(encoder, tmp_path):
    prompts = {"prompts": {"query": "d e "}, "default_prompt_name": "query"}
    model = save_theirs(encoder, tmp_path / "whole", "cls", normalize=True, length=7, **prompts)
    lora = peft.LoraConfig(
        task_type="FEATURE_EXTRACTION", r=4, target_modules=["query", "value"], init_lora_weights=False
    )
    adapted = peft.get_peft_model(model[0].model, lora)
    shutil.copytree(tmp_path / "whole", tmp_path / "adapter", ignore=shutil.ignore_patterns("config.json", "model.*"))
    shutil.copytree(tmp_path / "whole" / "1_Pooling", tmp_path / "adapter" / "1_Pooling", dirs_exist_ok=True)
    adapted.save_pretrained(tmp_path / "adapter")  # where sentence-transformers saves an adapter
    model[0].model = adapted.merge_and_unload()
    ours = bert_jax.load(tmp_path / "adapter").encode(TEXTS, truncate=True)
    np.testing.assert_allclose(ours, model.encode(TEXTS), atol=1e-5)


@pytest.mark.parametrize("words", ["old", "new"])
@pytest.mark.parametrize(
    ("pooling", "normalize", "length"), [("mean", False, 12), ("cls", True, 12), ("max", True, 7), ("mean", True, 32)]
)
def test_vectors_equal_the_vectors_of_sentence_transformers(encoder, tmp_path, pooling, normalize, length, words):
    model = save_theirs(encoder, tmp_path / "theirs", pooling, normalize, length)
    if words == "old":
        in_old_words(tmp_path / "theirs", pooling, length)
        model = sentence_transformers.SentenceTransformer(str(tmp_path / "theirs"), device="cpu")
    expected = model.encode(TEXTS)
    ours = bert_jax.load(tmp_path / "theirs")
    np.testing.assert_allclose(ours.encode(TEXTS, truncate=True), expected, rtol=0, atol=1e-5)
    with pytest.raises(UserError, match=f"longer than {length} tokens"):
        ours.encode(TEXTS)

    assert main(["export", "--model", str(tmp_path / "theirs"), "--output", str(tmp_path / "ours")]) == 0
    again = sentence_transformers.SentenceTransformer(str(tmp_path / "ours"), device="cpu")
    assert again.max_seq_length == length
    np.testing.assert_allclose(again.encode(TEXTS), expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        bert_jax.load(tmp_path / "ours").encode(TEXTS, truncate=True), expected, rtol=0, atol=1e-5
    )


def test_arguments_override_the_settings_of_the_directory(encoder, tmp_path):
    save_theirs(encoder, tmp_path / "theirs", "cls", True, 12)
    plain, ours = bert_jax.load(encoder), bert_jax.load(tmp_path / "theirs")
    np.testing.assert_array_equal(
        ours.encode(TEXTS[:4], pooling="mean", normalize=False, max_seq_len=32), plain.encode(TEXTS[:4])
    )
    np.testing.assert_array_equal(
        ours.encode(TEXTS[:4]), plain.encode(TEXTS[:4], pooling="cls", normalize=True, max_seq_len=12)
    )
    write_lines(tmp_path / "texts.jsonl", [{"text": "abc"}])
    with pytest.raises(UserError, match="features of tokens cannot be normalized"):
        embed_file(
            tmp_path / "theirs",
            tmp_path / "texts.jsonl",
            tmp_path / "x.safetensors",
            EmbedOptions(pooling="tokens", normalize=True),
        )


def test_a_prompt_and_lower_case_apply(encoder, tmp_path):
    prompts = {"prompts": {"find": "d e: "}, "default_prompt_name": "find"}
    model = save_theirs(encoder, tmp_path / "theirs", **prompts)
    found = bert_jax.load(tmp_path / "theirs").encode(TEXTS, truncate=True)
    np.testing.assert_allclose(found, model.encode(TEXTS), rtol=0, atol=1e-5)
    assert np.abs(found - bert_jax.load(encoder).encode(TEXTS, max_seq_len=12, truncate=True)).max() > 0.01
    settings = tmp_path / "theirs" / "sentence_bert_config.json"
    settings.write_text(json.dumps({"max_seq_length": 12, "do_lower_case": True}))
    np.testing.assert_allclose(bert_jax.load(tmp_path / "theirs").encode(["AbC"]), found[:1], rtol=0, atol=1e-6)


def test_a_prompt_is_chosen_by_its_name(encoder, tmp_path, capsys):
    prompts = {"prompts": {"query": "d e: ", "passage": "a b: "}, "default_prompt_name": "passage"}
    model = save_theirs(encoder, tmp_path / "theirs", **prompts)
    loaded = bert_jax.load(tmp_path / "theirs")
    for name in ("query", "passage", None):
        found = loaded.encode(TEXTS, truncate=True, prompt_name=name)
        np.testing.assert_allclose(found, model.encode(TEXTS, prompt_name=name), rtol=0, atol=1e-5)
    write_lines(tmp_path / "texts.jsonl", [{"text": text} for text in TEXTS])
    command = ["embed", "--model", str(tmp_path / "theirs"), "--input", str(tmp_path / "texts.jsonl"), "--truncate"]
    assert main([*command, "--output", str(tmp_path / "x.npy"), "--prompt_name", "query"]) == 0
    expected = model.encode(TEXTS, prompt_name="query")
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), expected, rtol=0, atol=1e-5)
    assert "prompt" not in capsys.readouterr().err
    settings = tmp_path / "theirs" / "config_sentence_transformers.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"default_prompt_name": None}))
    assert main([*command, "--output", str(tmp_path / "y.npy")]) == 0
    assert "no prompt before the texts; this model has prompts for passage and query" in capsys.readouterr().err
    with pytest.raises(UserError, match="prompt_name quer: no prompt of that name; there are document, passage, query"):
        loaded.encode(["a"], prompt_name="quer")
    with pytest.raises(UserError, match="prompt_name query: no prompt of that name; this model has none"):
        bert_jax.load(encoder).encode(["a"], prompt_name="query")


def test_a_setting_of_speed_changes_nothing(encoder, tmp_path):
    transformer = Transformer(str(encoder), unpad_inputs=False, max_seq_length=12)
    model = sentence_transformers.SentenceTransformer(modules=[transformer, Pooling(16, "mean")], device="cpu")
    model.save(str(tmp_path))
    assert json.loads((tmp_path / "sentence_bert_config.json").read_text())["unpad_inputs"] is False
    np.testing.assert_allclose(bert_jax.load(tmp_path).encode(TEXTS, truncate=True), model.encode(TEXTS), atol=1e-5)


def test_the_file_of_a_transformer_had_other_names(encoder, tmp_path):
    save_theirs(encoder, tmp_path / "theirs", length=12)
    in_old_words(tmp_path / "theirs", "mean", 7)
    path = tmp_path / "theirs" / "sentence_bert_config.json"
    path.rename(path.with_name("sentence_xlm-roberta_config.json"))
    model = sentence_transformers.SentenceTransformer(str(tmp_path / "theirs"), device="cpu")
    assert model.max_seq_length == 7
    found = bert_jax.load(tmp_path / "theirs").encode(TEXTS, truncate=True)
    np.testing.assert_allclose(found, model.encode(TEXTS), rtol=0, atol=1e-5)


def test_a_program_of_vectors_says_where_the_prompt_is(encoder, tmp_path, capfd):
    save_theirs(encoder, tmp_path / "theirs", "cls")
    paths = ["--model", str(tmp_path / "theirs"), "--output", str(tmp_path / "ours"), "--format", "stablehlo"]
    assert main(["export", *paths]) == 0
    assert "length, lower case and prompt are in the code of README.md" in capfd.readouterr().err


def test_the_encoder_in_a_folder_of_its_own(encoder, tmp_path):
    expected = save_theirs(encoder, tmp_path / "theirs", length=32).encode(TEXTS)
    folder = tmp_path / "theirs" / "0_Transformer"
    folder.mkdir()
    for path in (tmp_path / "theirs").iterdir():
        if path.is_file() and path.name not in ("modules.json", "config_sentence_transformers.json"):
            path.rename(folder / path.name)
    path = tmp_path / "theirs" / "modules.json"
    path.write_text(path.read_text().replace('"path": ""', '"path": "0_Transformer"'))
    np.testing.assert_allclose(
        bert_jax.load(tmp_path / "theirs").encode(TEXTS, truncate=True), expected, rtol=0, atol=1e-5
    )


def test_prompts_and_similarity_are_kept(encoder, tmp_path):
    save_theirs(encoder, tmp_path / "theirs", prompts={"find": "a "}, similarity_fn_name="dot")
    assert main(["export", "--model", str(tmp_path / "theirs"), "--output", str(tmp_path / "ours")]) == 0
    first, second = (
        sentence_transformers.SentenceTransformer(str(tmp_path / name), device="cpu") for name in ("theirs", "ours")
    )
    assert (second.prompts, second.similarity_fn_name) == (first.prompts, first.similarity_fn_name)
    assert (second.prompts["find"], second.similarity_fn_name) == ("a ", "dot")


REFUSED = {
    "tokens": ("2_Normalize/config.json", lambda x: {**x, "module_input_name": "token_embeddings"}, "token_embeddings"),
    "texts": ("config_sentence_transformers.json", lambda x: {"prompts": {"a": 1}}, "prompts are not names with texts"),
    "dense": ("modules.json", lambda x: [*x, {"type": "a.Dense", "path": "2_Dense"}], "Transformer, Pooling, Dense"),
    "outside": ("modules.json", lambda x: [{**x[0], "path": "../.."}, *x[1:]], "not inside of the directory"),
    "no path": ("modules.json", lambda x: [{"type": "a.Transformer"}], "without type and path"),
    "nothing": ("modules.json", lambda x: [], "the modules are missing"),
    "no list": ("modules.json", lambda x: {}, "not a JSON list"),
    "two": ("1_Pooling/config.json", lambda x: {**x, "pooling_mode": ["cls", "mean"]}, "pooling by cls, mean"),
    "last": ("1_Pooling/config.json", lambda x: {"pooling_mode_lasttoken": True}, "pooling by pooling_mode_lasttoken"),
    "prompt": ("1_Pooling/config.json", lambda x: {**x, "include_prompt": False}, "include_prompt is False"),
    "length": ("sentence_bert_config.json", lambda x: {"max_seq_length": "12"}, "max_seq_length is '12'"),
    "case": ("sentence_bert_config.json", lambda x: {"do_lower_case": 1}, "do_lower_case is 1"),
    "field": ("sentence_bert_config.json", lambda x: {"query_length": 3}, "unknown field 'query_length'"),
    "output": ("sentence_bert_config.json", lambda x: {"module_output_name": "x"}, "module_output_name is 'x'"),
    "shorter": ("config_sentence_transformers.json", lambda x: {"truncate_dim": 8}, "truncate_dim is 8"),
    "name": ("config_sentence_transformers.json", lambda x: {"default_prompt_name": "x"}, "no text of that name"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_settings_are_refused(encoder, tmp_path, capsys, name):
    file, change, message = REFUSED[name]
    save_theirs(encoder, tmp_path / "theirs", normalize=file.startswith("2_"))
    path = tmp_path / "theirs" / file
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    write_lines(tmp_path / "texts.jsonl", [{"text": "abc"}])
    paths = ["--input", str(tmp_path / "texts.jsonl"), "--output", str(tmp_path / "x.npy")]
    assert main(["embed", "--model", str(tmp_path / "theirs"), *paths]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x.npy").exists()


def training(place, start, workdir):
    task = f"task.name=custom task.kind=similarity task.train={place / 'train.jsonl'} task.dev={place / 'dev.jsonl'}"
    values = (*task.split(), f"init_from={start}", "task.max_seq_len=20")
    return ["finetune", f"--config={place / 'recipe.py'}", f"--workdir={workdir}", *(f"--config.{v}" for v in values)]


def test_a_training_with_negatives_gives_a_directory_of_the_library(encoder, tmp_path, capsys):
    (tmp_path / "recipe.py").write_text(RECIPE)
    triple = {"text": "abc", "text_pair": "cba", "negative": "jjj"}
    write_lines(tmp_path / "train.jsonl", [triple] * 12)
    write_lines(
        tmp_path / "dev.jsonl", [{"text": "abc", "text_pair": other, "label": n} for n, other in enumerate("abcd")]
    )
    assert main(training(tmp_path, encoder, tmp_path / "run")) == 0
    assert main(["export", "--model", str(tmp_path / "run"), "--output", str(tmp_path / "ours")]) == 0
    for directory in (tmp_path / "run" / "model", tmp_path / "ours"):
        model = sentence_transformers.SentenceTransformer(str(directory), device="cpu")
        assert model.max_seq_length == 20
        found = model.encode(TEXTS)
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
        np.testing.assert_allclose(
            bert_jax.load(tmp_path / "run").encode(TEXTS, truncate=True), found, rtol=0, atol=1e-5
        )
    assert main(training(tmp_path, tmp_path / "ours", tmp_path / "more")) == 0

    write_lines(tmp_path / "train.jsonl", [triple, {"text": "abc", "text_pair": "cba"}])
    capsys.readouterr()
    assert main(training(tmp_path, encoder, tmp_path / "half")) == 2
    assert "differ in the number of texts or scores in negative" in capsys.readouterr().err
    save_theirs(encoder, tmp_path / "first", "cls")
    assert main(training(tmp_path, tmp_path / "first", tmp_path / "cls")) == 2
    assert "pooling 'cls'" in capsys.readouterr().err


def test_prompts_and_similarity_outlive_a_training(encoder, tmp_path):
    (tmp_path / "recipe.py").write_text(RECIPE)
    write_lines(tmp_path / "train.jsonl", [{"text": f"abc{other}", "text_pair": other} for other in "abcdefgh"])
    write_lines(
        tmp_path / "dev.jsonl", [{"text": "abc", "text_pair": other, "label": n} for n, other in enumerate("abcd")]
    )
    save_theirs(encoder, tmp_path / "theirs", "mean", True, 12, prompts={"find": "a b c "}, similarity_fn_name="dot")
    assert main(training(tmp_path, tmp_path / "theirs", tmp_path / "run")) == 0
    model = sentence_transformers.SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    assert model.prompts["find"] == "a b c "
    assert model.similarity_fn_name == "dot"


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_retrieval_equals_the_evaluator_of_the_library(encoder, tmp_path, similarity):
    """With the prompts of queries and of documents, and the similarity of the directory."""
    prompts = {"query": "a b ", "document": "c ", "other": "d "}
    model = save_theirs(encoder, tmp_path / "theirs", length=32, prompts=prompts, similarity_fn_name=similarity)
    random = np.random.default_rng(0)
    corpus, queries = (
        {f"{kind}{number}": " ".join(random.choice(list("abcdefghij"), 8)) for number in range(count)}
        for kind, count in (("d", 60), ("q", 15))
    )
    relevant = {query: {f"d{number}" for number in random.choice(60, 5, replace=False)} for query in queries}
    evaluator = InformationRetrievalEvaluator(
        queries, corpus, relevant, mrr_at_k=[10], ndcg_at_k=[10], precision_recall_at_k=[10], map_at_k=[60]
    )
    expected = {name.rpartition(f"{similarity}_")[2]: value for name, value in evaluator(model).items()}
    (tmp_path / "qrels").mkdir()
    for name, texts in (("corpus", corpus), ("queries", queries)):
        lines = [json.dumps({"_id": identifier, "text": text}) for identifier, text in texts.items()]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    rows = [f"{query}\t{document}\t1" for query, documents in relevant.items() for document in documents]
    (tmp_path / "qrels" / "test.tsv").write_text("\n".join(rows))
    report = score_retrieval(open_model(tmp_path / "theirs", HEADS), tmp_path)
    for ours, theirs in (("ndcg@10", "ndcg@10"), ("recall@10", "recall@10"), ("mrr@10", "mrr@10"), ("map", "map@60")):
        assert report.rows["model"][ours] == pytest.approx(expected[theirs], abs=1e-9), ours
    assert report.similarity == similarity


def test_cut_vectors_of_a_normalizing_model_have_length_1_with_every_similarity(encoder, tmp_path):
    """The inner products of vectors of length 1 are cosines, so that both similarities have the same searches."""
    random, forms = np.random.default_rng(0), []
    (tmp_path / "qrels").mkdir()
    for kind, count in (("corpus", 40), ("queries", 8)):
        lines = [{"_id": f"{kind}{n}", "text": " ".join(random.choice(list("abcdefghij"), 8))} for n in range(count)]
        (tmp_path / f"{kind}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = [f"queries{n}\tcorpus{m}\t1\n" for n in range(8) for m in random.choice(40, 5, replace=False)]
    (tmp_path / "qrels" / "test.tsv").write_text("".join(rows))
    for similarity in ("dot", "cosine"):
        save_theirs(encoder, tmp_path / similarity, normalize=True, length=32, similarity_fn_name=similarity)
        report = score_retrieval(open_model(tmp_path / similarity, HEADS), tmp_path, vectors="4,8-int8")
        forms.append({name: form.ndcg for name, form in report.forms.items()})
    assert forms[0] == pytest.approx(forms[1], abs=1e-9)
