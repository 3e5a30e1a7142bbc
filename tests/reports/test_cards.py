"""Model cards: metadata that the Hub's own library reads, and text that stays text."""

import dataclasses
import functools
import json
import operator
import pathlib
import runpy
from typing import Any

import markdown_it
import numpy as np
import pytest
import sentence_transformers
import transformers
from huggingface_hub import ModelCard

from bert_jax.checkpoints.load_model import Weights, weights_digest
from bert_jax.config import (
    EncoderConfig,
    FinetuneConfig,
    PretrainConfig,
    fields_of,
    finetune_config,
    flatten,
    resolve,
    to_json,
)
from bert_jax.corpus.manifest import manifest_fingerprint, manifest_seal
from bert_jax.errors import UserError
from bert_jax.interop.sentence_modules import SentenceModules
from bert_jax.models import Head
from bert_jax.reports.card import model_card
from bert_jax.reports.provenance import DATASETS
from bert_jax.reports.run.record import read_workdir
from bert_jax.tasks.table import TASKS
from tests.helpers.written_pages import HOSTILE, curve, write_run


def weights(*heads: str, step: int | None = None) -> Weights:
    labeled = ("sequence_classification", "token_classification")
    found = tuple(Head(name, 2 if name in labeled else 0) for name in heads)
    config = EncoderConfig(vocab_size=100)
    return Weights(config=config, heads=found, params={}, directory=pathlib.Path(), step=step)


def test_the_card_of_a_pretraining_run(tmp_path: pathlib.Path) -> None:
    """The scores are those of the last evaluation up to the step; no directory of this machine is named."""
    lines = curve(1000, 10)
    place = tmp_path / "my_run"
    machine = {"devices": 1, "device_kind": "cpu", "jax": "0.10.2", "python": "3.11.7"}
    (tmp_path / "books").mkdir()
    train = {"documents": 7, "tokens": 12_345, "dtype": "u2", "shards": [], "index": {"name": "i", "sha256": ""}}
    manifest = {"format_version": 1, "tokenizer": {"sha256": ""}, "splits": {"train": train}, "signatures": []}
    manifest |= {"settings": {"language": "zh-hans"}, "fingerprint": manifest_fingerprint(manifest)}
    manifest |= {"seal": manifest_seal(manifest)}
    (tmp_path / "books" / "manifest.json").write_text(json.dumps(manifest))
    corpus = f"{tmp_path / 'books'}, {tmp_path / 'absent'}"
    phases = [{"seq_len": n, "fraction": part} for n, part in ((128, 0.5), (256, 0.2), (512, 0.3))]
    write_run(place, lines, machine, data={"corpus": corpus}, train={"steps": 1000, "phases": phases})
    text = model_card(weights("masked_token", "next_sentence", step=650), place, "apache-2.0", "google-bert/bert-tiny")
    card = ModelCard(text)
    assert card.data.to_dict() == {
        "language": ["zh"],
        "license": "apache-2.0",
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["bert", "bert_jax", "masked_tokens"],
        "base_model": "google-bert/bert-tiny",
    }
    line = [line for line in lines if line["split"] == "heldout" and line["step"] <= 650][-1]
    assert line["step"] == 600
    assert f"| mlm loss | {line['mlm_loss']:.4f} |" in card.text
    assert "| unigram loss | 6.0000 |" in card.text
    assert "held out of training, at step 600" in card.text
    assert "step 650 of 1,000, on sequences of up to 256 tokens." in card.text
    assert "books: 7 documents, 12,345 tokens; absent." in card.text
    assert "| fingerprint of the corpus | c0ffee |" in card.text
    assert "| version of jax | 0.10.2 |" in card.text
    assert "## Cost" in card.text
    assert "| machine | 1 x cpu; processes: ?; cores per host: ? |" in card.text
    assert str(tmp_path) not in text
    assert "snapshots" not in card.text
    assert "Losses and entropies are in nats.\n" in card.text
    electra = tmp_path / "electra"
    write_run(electra, [one | {"replaced_loss": 15.0} for one in lines], machine, train={"steps": 1000})
    said = "Losses and entropies are in nats, times their weight: replaced loss.\n"
    assert said in model_card(weights("replaced_token", step=650), electra)
    growing = tmp_path / "growing"
    write_run(growing, lines, machine, data={"corpus": corpus, "snapshots": 3}, train={"steps": 1000})
    assert "absent. This is the first of 3 snapshots of" in model_card(weights("masked_token", step=650), growing)


def test_the_card_of_a_fine_tuned_model(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "qnli"
    place.mkdir()
    made = finetune_config()
    made.init_from, made.task.name, made.task.data = "google-bert/bert-tiny", "qnli", str(tmp_path / "glue")
    run = {"config": to_json(resolve(FinetuneConfig, made)), "fingerprint": {"task": "f00", "tokenizer": "beef"}}
    (place / "run.json").write_text(json.dumps(run))
    runs = [{"learning_rate": 3e-5, "seed": seed, "scores": {"accuracy": 0.5 + 0.1 * seed}} for seed in (0, 1)]
    mean = {"3e-05": {"accuracy": {"mean": 0.55, "standard_deviation": 0.0707}}}
    results = {"task": "qnli", "metric": "accuracy", "best": runs[1], "mean": mean, "runs": runs}
    (place / "results.json").write_text(json.dumps(results))
    card = ModelCard(model_card(weights("sequence_classification"), place))
    assert card.data.pipeline_tag == "text-classification"
    assert card.data.datasets == ["nyu-mll/glue"]
    (result,) = card.data.eval_results
    assert (result.dataset_type, result.dataset_name, result.dataset_split) == ("nyu-mll/glue", "qnli", "validation")
    assert (result.metric_type, result.metric_value, result.task_type) == ("accuracy", 0.6, "text-classification")
    assert card.data.license is None
    assert "No license was given" in card.text
    assert "| accuracy | 60.0% |" in card.text
    assert "| accuracy, mean and deviation of 2 seeds | 55.0% ± 7.1% |" in card.text
    assert "from the weights of google-bert/bert-tiny, with" in card.text
    assert "## Cost" not in card.text  # no line of metrics says what it took
    assert str(tmp_path) not in str(card)


# Key of a config -> a text that is no path, and that a card shows unchanged.
TEXTS = {
    "profile.steps": "10:13",
    "task.name": "custom",
    "task.columns": "text=in/out,label=gold",
    "task.delimiter": "/",
    "task.labels": "TCP/IP,HTTP",
    "task.label_separator": "/",
    "task.template": "{text} Pros/cons: [MASK].",
    "task.verbalizers": "TCP/IP=net/work|line,HTTP=web",
    "task.class_weights": "TCP/IP=5,HTTP=1",
    "task.metric": "accuracy",
    "task.query_prompt": "query/question: ",
    "task.document_prompt": "passage/text: ",
    "task.retrieval_split": "dev",
    "adapter.targets": "query,value",
}
# Key of a config -> a path, and the path in a card.
PATHS = {
    "init_from": ("google-bert/bert-base-uncased@refs/pr/1", "google-bert/bert-base-uncased@refs/pr/1"),
    "data.corpus": ("/home/me/books@c0ffee, gs://bucket/news/", "books@c0ffee,news"),
    "data.text": ("/home/me/a.txt,tfds:wiki/en@/home/me/tfds#train[:9]", "a.txt,tfds:wiki/en#train[:9]"),
    "data.tokenizer": ("/home/me/tokenizer", "tokenizer"),
    "replaced_tokens.generator_from": ("/home/me/runs/small", "small"),
    "distillation.teacher": ("answerdotai/ModernBERT-base", "answerdotai/ModernBERT-base"),
    "evaluate.corpus": ("/home/me/held/out", "out"),
    "evaluate.pairs": ("zorro_small", "zorro_small"),
    "task.data": ("tfds:glue/mrpc@/home/me/tfds", "tfds:glue/mrpc"),
    "task.train": ("/home/me/a.jsonl,/home/me/b.jsonl", "a.jsonl,b.jsonl"),
    "task.dev": ("../dev/dev.tsv", "dev.tsv"),
    "task.test": ("/home/me/test.tsv", "test.tsv"),
    "task.retrieval": ("private/nfcorpus/", "nfcorpus"),
    "task.teacher": ("s3://bucket/runs/teacher", "teacher"),
}


@pytest.mark.parametrize("config_class", [PretrainConfig, FinetuneConfig])
def test_the_published_recipe_is_the_recipe_without_the_directories_of_paths(
    config_class: type[Any], tmp_path: pathlib.Path
) -> None:
    """A new field of the config that holds any text needs a row of TEXTS or of PATHS."""
    keys = [
        key
        for key, field, kind in fields_of(config_class)
        if kind in (str, str | None) and not field.metadata["table"] and not field.metadata["allowed"]
    ]
    keys.remove("recipe")  # not a part of recipes
    values = to_json(config_class())
    for key in keys:
        *sections, name = key.split(".")
        functools.reduce(operator.getitem, sections, values)[name] = PATHS[key][0] if key in PATHS else TEXTS[key]
    (tmp_path / "run.json").write_text(json.dumps({"config": values, "fingerprint": {"tokenizer": "beef"}}))
    (tmp_path / "recipe.py").write_text(read_workdir(tmp_path).published_recipe)
    published = flatten(runpy.run_path(str(tmp_path / "recipe.py"))["get_config"]().to_dict())
    assert {key: published[key] for key in keys} == {key: PATHS[key][1] if key in PATHS else TEXTS[key] for key in keys}


def test_a_directory_that_says_nothing_has_a_card_that_says_so(tmp_path: pathlib.Path) -> None:
    card = ModelCard(model_card(weights(), tmp_path))
    assert card.data.pipeline_tag == "feature-extraction"
    assert "How it was trained is not recorded here." in card.text


@pytest.mark.parametrize(
    ("heads", "tag", "opener"),
    [
        (("masked_token", "next_sentence"), "fill-mask", "AutoModelForMaskedLM"),
        (("token_classification",), "token-classification", "AutoModelForTokenClassification"),
        (("question_answering",), "question-answering", "AutoModelForQuestionAnswering"),
        (("multiple_choice",), "multiple-choice", "AutoModelForMultipleChoice"),
        (("sentence_embedding",), "sentence-similarity", "AutoModel"),
        (("pooled",), "feature-extraction", "AutoModel"),
    ],
)
def test_the_card_says_how_to_open_it(heads: tuple[str, ...], tag: str, opener: str, tmp_path: pathlib.Path) -> None:
    card = ModelCard(model_card(weights(*heads), tmp_path))
    assert card.data.pipeline_tag == tag
    assert f"import AutoTokenizer, {opener}\n" in card.text
    assert hasattr(transformers, opener)


def test_the_card_of_a_sentence_encoder_opens_it_with_its_pooling(tmp_path: pathlib.Path) -> None:
    modules = SentenceModules(pooling="max", normalize=True, max_seq_len=7)
    found = dataclasses.replace(weights(), sentences=modules)
    card = ModelCard(model_card(found, tmp_path))
    assert (card.data.pipeline_tag, card.data.library_name) == ("sentence-similarity", "sentence-transformers")
    assert "A text is one vector of length 1, by max pooling. Texts are cut at 7 tokens." in card.text
    assert "from sentence_transformers import SentenceTransformer\n" in card.text
    assert hasattr(sentence_transformers, "SentenceTransformer")


def test_data_sets_of_cards_are_of_tasks() -> None:
    assert DATASETS.keys() <= TASKS.keys()


def test_hostile_names_stay_text(tmp_path: pathlib.Path) -> None:
    """markdown-it, which knows CommonMark and tables, finds no HTML, link or image, and one block of code each."""
    place = tmp_path / "<img src=x> [a](b) `c` ```"
    write_run(place, curve(90, 10) + [{"step": 100, "split": "heldout", HOSTILE[1]: 1.0}], train={"steps": 100})
    run = json.loads((place / "run.json").read_text())
    run["config"]["init_from"] = f"```\n{HOSTILE[0]}\n---\n````"
    run["fingerprint"][f"a | {HOSTILE[2]}"] = "![x](http://y)"
    (place / "run.json").write_text(json.dumps(run))
    text = model_card(weights("masked_token", step=100), place)
    card = ModelCard(text)
    assert card.data.pipeline_tag == "fill-mask"
    tokens = markdown_it.MarkdownIt("commonmark").enable("table").parse(card.text)
    every = [child for token in tokens for child in (token, *(token.children or []))]
    assert not {token.type for token in every} & {"html_block", "html_inline", "image", "link_open"}
    code = [token.content for token in tokens if token.type == "fence"]
    assert len(code) == 2
    assert "def get_config" in code[1]
    shown = "".join(child.content for child in every if child.type.startswith("text"))
    assert "<img src=x> [a](b) `c` ```" in shown
    assert 'onerror="alert' in shown


def test_the_limits_come_from_a_bias_report_on_the_same_weights(tmp_path: pathlib.Path) -> None:
    params = {"encoder": {"embeddings": {"token": np.arange(6, dtype=np.float32)}}}
    found = dataclasses.replace(weights("masked_token"), params=params)
    readings = [{"says": f"Of 9 pairs 60 % <b>{HOSTILE[0]}", "does_not_say": "It does not say why."}]
    report = {"model": "m", "weights": weights_digest(params), "results": [{"readings": readings}]}
    path = tmp_path / "bias.json"

    def card() -> ModelCard:
        path.write_text(json.dumps(report))
        return ModelCard(model_card(found, tmp_path, bias=path))

    tokens = markdown_it.MarkdownIt("commonmark").enable("table").parse(card().text)
    every = [child for token in tokens for child in (token, *(token.children or []))]
    assert not {token.type for token in every} & {"html_block", "html_inline"}
    shown = "".join(child.content for child in every if child.type.startswith("text"))
    assert f"Of 9 pairs 60 % <b>{HOSTILE[0]} It does not say why." in shown
    assert any(token.type == "bullet_list_open" for token in tokens)
    params["encoder"]["embeddings"]["token"][3] += 1
    with pytest.raises(UserError, match="measured with other weights"):
        card()
    for broken in ({"results": 3}, {"results": [{"readings": [{"says": 1, "does_not_say": ""}]}]}, {"weights": None}):
        report |= broken
        with pytest.raises(UserError, match=r"bias.json: not a bias report|measured with other weights"):
            card()
    report.clear()
    with pytest.raises(UserError, match="not a bias report"):
        card()
    with pytest.raises(UserError, match="cannot be read"):
        model_card(found, tmp_path, bias=tmp_path / "absent.json")


@pytest.mark.parametrize("words", [{"license_": "Apache 2"}, {"license_": "a\nb"}, {"base_model": "a/b/c"}])
def test_identifiers_that_the_hub_refuses(words: dict[str, str], tmp_path: pathlib.Path) -> None:
    with pytest.raises(UserError, match="Hugging Face Hub"):
        model_card(weights("masked_token"), tmp_path, **words)
