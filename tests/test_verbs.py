"""The verbs as functions: equal to the output of their commands; and runs whose recipe adds rows to tables."""

import argparse
import json
import pathlib

import jax
import pytest

import bert_jax
from bert_jax.batches.masking import MASKINGS
from bert_jax.cli.main import VERBS, main
from bert_jax.config import ComputeConfig, EncoderConfig
from bert_jax.console import Console
from bert_jax.models import Head
from bert_jax.models.layers import ACTIVATIONS
from bert_jax.readers import storage
from bert_jax.training.optimizers import OPTIMIZERS
from tests.helpers import tokenizer_directories
from tests.helpers.commands import World, make_world

QUIET = Console(silent=True)
# Verb -> its name in Python, where the two differ; None: a method of `LoadedModel`, or below.
IN_PYTHON = {
    "tokenizer": "train_tokenizer",
    "clean": "clean_texts",
    "config": "read_config",
    "compile": "compile_recipe",
    "pairs": "write_unlabeled_pairs",
    "mine": "mine_negatives",
    "fill-mask": None,
    "predict": None,
    "embed": None,
}
METHODS = {"fill-mask": "fill_mask", "predict": "predict", "embed": "encode"}
RECIPE = """
import optax

from bert_jax.batches.masking import MASKINGS, Masking
from bert_jax.config import phases, pretrain_config
from bert_jax.training.optimizers import OPTIMIZERS

MASKINGS["own_words"] = Masking(
    whole_words=True,
    max_words=1,
    weights=lambda max_words, config: [1.0],
    token_weights=lambda ids, vocabulary: 1.0 + 3.0 * (ids > 20),
)
OPTIMIZERS["own_lion"] = lambda rate, config, info: optax.lion(rate, config.beta1, config.beta2)


def get_config():
    config = pretrain_config()
    config.model.update(hidden_size=16, num_layers=1, num_heads=2, mlp_size=24, max_positions=24)
    config.train.update(steps=2, batch_size=4, log_every=1, phases=phases({"seq_len": 24}))
    config.evaluate.update(every=2, num_sequences=8, batch_size=4)
    config.data.masking = "own_words"
    config.optimizer.update(name="own_lion", peak_learning_rate=1e-4, warmup_fraction=0.0)
    return config
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    made = make_world(tmp_path_factory.mktemp("world"))
    assert bert_jax.export(made.run, made.model, console=QUIET) == str(made.model)
    return made


def printed(capsys, *argv):
    capsys.readouterr()
    assert main([str(word) for word in argv]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_verb_is_in_python():
    for verb in VERBS.keys() - {"completion"}:  # a script for a shell
        name = IN_PYTHON.get(verb, verb)
        assert name in bert_jax.__all__ if name else callable(getattr(bert_jax.LoadedModel, METHODS[verb]))


def test_values_are_those_that_the_commands_print(world, capsys, tmp_path):
    assert bert_jax.evaluate(world.run, console=QUIET) == pytest.approx(
        printed(capsys, "evaluate", "--workdir", world.run, "--json")
    )
    inspected = bert_jax.inspect(world.corpus, overrides={"data.sentence_pairs": "none"}, console=QUIET)
    command = printed(capsys, "inspect", world.corpus, "--json", "--config.data.sentence_pairs=none")
    assert json.loads(json.dumps(inspected)) == command
    scores = bert_jax.score(world.model, pairs=["zorro_small"], fraction=0.02, console=QUIET)
    command = printed(capsys, "score", "--model", world.model, "--pairs", "zorro_small", "--fraction", 0.02, "--json")
    assert json.loads(json.dumps(scores)) == command
    templates = tmp_path / "templates.jsonl"
    words = [token for token in bert_jax.load_tokenizer(world.tokenizer).tokens if token.isalpha()][-4:]
    groups = {"first": [words[2]], "second": [words[3]]}
    template = {"template": "{} [MASK].", "fillers": words[:2], "groups": groups}
    templates.write_text(json.dumps(template) + "\n")
    found = bert_jax.bias(world.model, templates=[str(templates)], console=QUIET)
    command = printed(capsys, "bias", "--model", world.model, "--templates", templates, "--json")
    assert json.loads(json.dumps(found)) == command


def test_pages_and_directories_are_written(world, tmp_path):
    page = tmp_path / "page.html"
    assert bert_jax.report(world.run, page) == str(page)
    assert "</html>" in page.read_text()
    assert bert_jax.attention(world.model, "a text", output=tmp_path / "attention.html").endswith("attention.html")
    assert bert_jax.verify(world.run, console=QUIET).damage == []
    bert_jax.train_tokenizer([[str(world.texts)]], 150, tmp_path / "tokenizer")
    name = bert_jax.vocabulary(world.model, tmp_path / "tokenizer", tmp_path / "smaller", console=QUIET)
    assert bert_jax.load(name).config.vocab_size == 150
    with pytest.raises(bert_jax.UserError, match="need --amount"):
        bert_jax.compress(world.model, tmp_path / "small", method="layers")
    with pytest.raises(bert_jax.UserError, match="no such data set"):
        bert_jax.score(world.model, pears=["zorro_small"])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda world, out: bert_jax.export(world.model, out, format="torch"), "--format torch: unknown"),
        (lambda world, out: bert_jax.compress(world.model, out, method="layer"), "did you mean 'layers'"),
        (lambda world, out: bert_jax.report([], out / "page.html"), "no work directory"),
        (lambda world, out: bert_jax.mine_negatives(out, out, out, ranks=(10,)), "give two ranks"),
        (lambda world, out: bert_jax.score(world.model), "nothing to score"),
        (lambda world, out: bert_jax.score(world.model, pairs="zorro_small", vectors="int8"), "--vectors needs"),
        (lambda world, out: bert_jax.score(world.model, pairs="zorro_small", split="dev"), "--split needs"),
        (lambda world, out: bert_jax.score(world.model, retrieval=out, temperature=2.0), "--temperature has no effect"),
        (lambda world, out: bert_jax.score(world.model, retrieval=out, masking="pll"), "--masking has no effect"),
        (lambda world, out: bert_jax.score(world.model, retrieval=out, fraction=0.5), "--fraction has no effect"),
        (lambda world, out: bert_jax.verify_run(world.model, data="texts"), "--data: only with --original"),
    ],
)
def test_a_mistake_is_a_user_error_in_python_too(world, tmp_path, call, says):
    with pytest.raises(bert_jax.UserError, match=says):
        call(world, tmp_path)
    assert list(tmp_path.iterdir()) == []


# Each function that reads a list of paths or names, with a single path in place of the list.
ONE_PATH = {
    "train_tokenizer": lambda world, path, out: bert_jax.train_tokenizer(path, 150, out / "tok"),
    "train_tokenizer, a list": lambda world, path, out: bert_jax.train_tokenizer([path], 150, out / "tok"),
    "prepare": lambda world, path, out: bert_jax.prepare(path, world.tokenizer, out / "corpus", workers=1),
    "clean_texts": lambda world, path, out: bert_jax.clean_texts(path, "web", out / "kept.jsonl", workers=1),
    "evaluation_files": lambda world, path, out: bert_jax.clean_texts(
        path, "web", out / "kept.jsonl", evaluation_files=path, workers=1
    ),
    "score": lambda world, path, out: bert_jax.score(world.model, text=path, console=QUIET),
    "score --retrieval": lambda world, path, out: bert_jax.score(world.model, retrieval=path, console=QUIET),
    "bias": lambda world, path, out: bert_jax.bias(world.model, templates=path, console=QUIET),
    "report": lambda world, path, out: bert_jax.report(path, out / "page.html"),
}


@pytest.mark.parametrize("as_type", [str, pathlib.Path])
@pytest.mark.parametrize("name", ONE_PATH)
def test_one_path_is_a_list_of_one_path(world, tmp_path, name, as_type):
    """The message about an absent file has its whole path, and no letter of it."""
    path = as_type(tmp_path / "absent.txt")
    with pytest.raises(bert_jax.UserError, match=f"{path}: "):
        ONE_PATH[name](world, path, tmp_path)


OUTPUTS = {
    "report": lambda world, url: bert_jax.report(world.run, url + ".html"),
    "plot": lambda world, url: bert_jax.plot(world.run, url + ".png"),
    "inspect": lambda world, url: bert_jax.inspect(world.corpus, html=url + ".html", console=QUIET),
    "compress": lambda world, url: bert_jax.compress(world.model, url, method="onnx_int8"),
    "vocabulary": lambda world, url: bert_jax.vocabulary(world.model, world.tokenizer, url),
    "attention": lambda world, url: bert_jax.attention(world.model, "a text", output=url + ".html"),
    "bias": lambda world, url: bert_jax.bias(world.model, output=url + ".html", fraction=0.01, console=QUIET),
    "mine_negatives": lambda world, url: bert_jax.mine_negatives("pairs.jsonl", "corpus.jsonl", url),
    "write_unlabeled_pairs": lambda world, url: bert_jax.write_unlabeled_pairs(str(world.corpus), url),
    "train_tokenizer": lambda world, url: bert_jax.train_tokenizer(world.texts, 150, url),
    "prepare": lambda world, url: bert_jax.prepare(world.texts, world.tokenizer, url, workers=1),
    "clean_texts": lambda world, url: bert_jax.clean_texts(world.texts, "web", url + ".jsonl", workers=1),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_is_no_url(world, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(bert_jax.UserError, match=r"gs://bucket/made\S* is a URL; mount the storage"):
        OUTPUTS[name](world, "gs://bucket/made")
    assert list(tmp_path.iterdir()) == []


DIRECTORIES = ("compress", "vocabulary", "mine_negatives", "write_unlabeled_pairs", "train_tokenizer", "prepare")


@pytest.mark.parametrize("name", DIRECTORIES)
def test_an_output_is_no_empty_text(world, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(bert_jax.UserError, match=r"an empty path|the current directory"):
        OUTPUTS[name](world, "")
    assert list(tmp_path.iterdir()) == []


def test_an_input_is_no_empty_text(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(bert_jax.UserError, match="an empty path"):
        bert_jax.pretrain("demo", "", {"data.corpus": str(world.corpus)}, console=QUIET)
    with pytest.raises(bert_jax.UserError, match="'' is not a corpus"):
        bert_jax.evaluate(world.run, corpus="", console=QUIET)
    assert list(tmp_path.iterdir()) == []


def test_export_writes_to_a_url_as_the_verb_does(world, monkeypatch):
    asked = []
    monkeypatch.setattr(storage, "list_file_versions", lambda url: asked.append(url) or {"config.json": "1"})
    with pytest.raises(bert_jax.UserError, match="gs://bucket/made exists already"):
        bert_jax.export(world.model, "gs://bucket/made", console=QUIET)
    assert asked == ["gs://bucket/made"]


def test_a_compiled_recipe_has_its_memory(world):
    sizes = {"model.hidden_size": 16, "model.num_layers": 1, "model.num_heads": 2, "model.mlp_size": 24}
    report = bert_jax.compile_recipe("demo", sizes | {"model.vocab_size": 100, "train.steps": 10}, console=QUIET)
    assert report["phases"]
    json.dumps(report)


@pytest.fixture(scope="module")
def own(world, tmp_path_factory):
    """A run of a recipe that adds rows, in a process that has forgotten the rows."""
    place = tmp_path_factory.mktemp("own")
    (place / "own.py").write_text(RECIPE)
    run = bert_jax.pretrain(str(place / "own.py"), place / "run", {"data.corpus": str(world.corpus)}, console=QUIET)
    assert run
    assert run.directory == place / "run"
    assert run.metrics["mlm_loss"] > 0
    assert run.metrics["step"] == 2
    assert run.load().config.hidden_size == 16
    forget()
    yield place
    forget()


def forget():
    MASKINGS.pop("own_words", None)
    OPTIMIZERS.pop("own_lion", None)


def test_the_recipe_is_named_where_its_row_is_missing(own, tmp_path, capsys):
    recipe, run = own / "own.py", own / "run"
    commands = (
        ["evaluate", "--workdir", run],
        ["report", run, "--output", tmp_path / "page.html"],
    )
    for command in commands:
        forget()
        assert main([str(word) for word in command]) == 2
        err = capsys.readouterr().err
        assert "own_" in err
        assert f"--recipe {recipe}" in err
        assert len(err.splitlines()) <= 2
        assert main([str(word) for word in (*command, "--recipe", recipe)]) == 0
    forget()
    assert bert_jax.evaluate(run, recipe=recipe, console=QUIET)["mlm_loss"] > 0
    assert main(["verify", str(run)]) == 0


def test_every_verb_that_opens_a_model_runs_a_recipe_first():
    for name, verb in VERBS.items():
        parser = argparse.ArgumentParser()
        verb.add_options(parser)
        options = {option for action in parser._actions for option in action.option_strings}
        assert "--model" not in options or "--recipe" in options, name


ACTIVATION_RECIPE = """
from bert_jax.config import pretrain_config
from bert_jax.models.layers import ACTIVATIONS

ACTIVATIONS["own_zero"] = lambda x: 0 * x


def get_config():
    return pretrain_config()
"""


def test_a_model_with_an_activation_of_a_recipe_is_opened_by_the_recipe(tmp_path, monkeypatch, capsys):
    (tmp_path / "own.py").write_text(ACTIVATION_RECIPE)
    (tmp_path / "texts.txt").write_text("a text\n")
    monkeypatch.setitem(ACTIVATIONS, "own_zero", lambda x: 0 * x)
    config = EncoderConfig(
        vocab_size=101, num_layers=1, hidden_size=16, num_heads=2, mlp_size=24, family="research", activation="own_zero"
    )
    heads, tokenizer = (Head("masked_token"),), tokenizer_directories.bert(tmp_path, config.vocab_size)
    params = jax.device_get(jax.jit(bert_jax.make_model(config, ComputeConfig(), heads).init)(jax.random.key(0)))
    bert_jax.export_model(params, config, heads, tokenizer, tmp_path / "model")
    for command in (
        ["fill-mask", "a [MASK] text"],
        ["embed", "--input", tmp_path / "texts.txt", "--output", tmp_path / "vectors.npy"],
        ["score", "--text", tmp_path / "texts.txt"],
    ):
        monkeypatch.delitem(ACTIVATIONS, "own_zero")
        argv = [str(word) for word in (*command, "--model", tmp_path / "model")]
        assert main(argv) == 2
        assert "if a recipe adds this row, give the recipe: --recipe FILE" in capsys.readouterr().err
        assert main([*argv, "--recipe", str(tmp_path / "own.py")]) == 0
    monkeypatch.delitem(ACTIVATIONS, "own_zero")
    with pytest.raises(bert_jax.UserError, match="own_zero"):
        bert_jax.load(tmp_path / "model")
    assert bert_jax.load(tmp_path / "model", recipe=tmp_path / "own.py").config == config


def test_the_weights_of_a_run_need_no_rule_of_masking_and_no_optimizer(own, tmp_path):
    forget()
    assert main(["fill-mask", "--model", str(own / "run"), "a [MASK] b"]) == 0
    assert main(["export", "--workdir", str(own / "run"), "--output", str(tmp_path / "model")]) == 0
    assert "own_words" in (tmp_path / "model" / "README.md").read_text()


def test_a_recipe_of_the_package_is_not_recorded_and_an_own_recipe_may_move(own, world):
    assert bert_jax.read_config(bert_jax.PretrainConfig, "demo", []).recipe is None
    moved = own / "moved.py"
    moved.write_text(RECIPE)
    assert bert_jax.pretrain(str(moved), own / "run", {"data.corpus": str(world.corpus)}, console=QUIET)
