"""The Python API: its names, models against `transformers`, and every form of a config."""

import ast
import dataclasses
import itertools
import json
import pathlib
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest
import torch

import bert_jax
from bert_jax.api import as_config
from bert_jax.errors import UserError
from tests.helpers.generated_corpus import generated_corpus
from tests.helpers.stored_corpus import store
from tests.helpers.tiny_models import save
from tests.helpers.written_pages import curve, write_run

ROOT = pathlib.Path(bert_jax.__file__).parent


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import bert_jax, sys; sys.exit(bool({'jax', 'numpy', 'flax', 'ml_collections'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_name_resolves_and_is_typed() -> None:
    """A type checker reads the imports under TYPE_CHECKING, Python the table: they name the same things."""
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {
        (alias.name, node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert typed == {(name, f"bert_jax.{module}") for name, module in bert_jax._MODULES.items()}
    assert set(bert_jax.__all__) == set(bert_jax._MODULES) <= set(dir(bert_jax))
    for name in bert_jax.__all__:
        assert getattr(bert_jax, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        bert_jax.absent  # noqa: B018
    assert (ROOT / "py.typed").is_file()


TEXTS = ["a bc d.", ("abc", "j i h"), "hij", "", "cd e " * 6]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A directory, and the model and tokenizer of transformers that are in it."""
    place = tmp_path_factory.mktemp("bert")
    return place, *save(place, "bert")


def test_vectors_equal_transformers_in_the_order_of_the_texts(bert) -> None:
    place, theirs, tokenizer = bert
    states = []
    for text in TEXTS:
        pair = (text,) if isinstance(text, str) else text
        with torch.no_grad():
            found = theirs(**tokenizer(*pair, return_tensors="pt"), output_hidden_states=True).hidden_states
        states.append(torch.stack(found)[:, 0].numpy())
    model = bert_jax.load(place)
    means = model.encode(TEXTS)
    assert (means.dtype, means.shape) == (np.float32, (len(TEXTS), 16))
    np.testing.assert_allclose(means, np.stack([x[-1].mean(0) for x in states]), rtol=0, atol=1e-5)
    first = model.encode(TEXTS, pooling="cls", layers="-2", batch_size=2)
    np.testing.assert_allclose(first, np.stack([x[-2, 0] for x in states]), rtol=0, atol=1e-5)
    assert model.encode([]).shape == (0, 16)


def test_a_notebook_shows_a_table(bert) -> None:
    place, theirs, tokenizer = bert
    model = bert_jax.load(place)
    assert repr(model.tokenizer) == f"<Tokenizer wordpiece: {len(tokenizer)} tokens, uncased>"
    hostile = dataclasses.replace(model, model=dataclasses.replace(model.model, labels=("<script>alert(1)</script>",)))
    found = hostile._repr_html_()
    assert f"<td>{sum(one.numel() for one in theirs.parameters()):,}</td>" in found
    assert f"{len(tokenizer):,} tokens" in found
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in found
    assert "<script" not in found


def test_a_notebook_shows_a_corpus_and_a_run_with_hostile_names_escaped(tmp_path) -> None:
    """Three documents of two tokens; the names of a directory, a language and a label come from outside."""
    hostile = "<img src=x onerror=alert(1)>"
    place = tmp_path / hostile
    store(place, [(np.array([2]), np.array([5, 6]))] * 3, vocab_size=100)
    corpus = bert_jax.open_corpus(place)
    shown = {"documents": {"rejected": {hostile: 4}}, "settings": {"language": hostile}}
    tokenizer = corpus.manifest["tokenizer"] | {"kind": "wordpiece"}
    corpus.manifest = corpus.manifest | shown | {"tokenizer": tokenizer}
    write_run(tmp_path / hostile / "run", curve(1000, 10), train={"steps": 1000})
    run = bert_jax.open_run(tmp_path / hostile / "run")
    assert len(run.trainings[0].lines) == 110
    assert repr(corpus) == f"<Corpus {place}: train 3 documents, heldout 0 documents, 100 tokens in the vocabulary>"
    assert repr(run) == f"<OpenRun {place / 'run'}: {run.summary.sentences[1]}>"
    tables = corpus._repr_html_(), run._repr_html_()
    assert "<th>train</th><td>3 documents, 6 tokens</td>" in tables[0]
    assert "4 &lt;img src" in tables[0]
    assert "It has done all of its 1,000 steps" in tables[1]
    for table in tables:
        assert "<img" not in table
        assert table.count("<td>") == table.count("</td>") == table.count("<tr>")


def test_texts_that_are_too_long_are_refused_or_cut(bert) -> None:
    place, theirs, tokenizer = bert
    model = bert_jax.load(str(place))
    long = "a " * 40
    with pytest.raises(UserError, match="1 of 2 texts are longer than 32 tokens; truncate"):
        model.encode(["a", long])
    with torch.no_grad():
        inputs = tokenizer(long, return_tensors="pt", truncation=True, max_length=10)
        wanted = theirs.base_model(**inputs).last_hidden_state[0].mean(0).numpy()
    found = model.encode(["a", long], max_seq_len=10, truncate=True)[1]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


def test_equal_calls_compile_once(bert, monkeypatch) -> None:
    from bert_jax.inference import embed

    model = bert_jax.load(bert[0])
    before = model.encode(TEXTS)
    monkeypatch.setattr(embed, "make_model", None)  # another program would need it
    np.testing.assert_array_equal(model.encode(TEXTS), before)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda model: model.encode("a text"), "give a list"),
        (lambda model: model.encode(["a"], pooling="tokens"), "no vector per text"),
        (lambda model: model.encode(["a"], pooling="most"), "choose from mean, cls"),
        (lambda model: model.encode(["a", 3]), "text 1: 'text' is 3; give a text"),
        (lambda model: model.encode([("a", "b", "c")]), "text 0: .*give a text"),
        (lambda model: model.predict("a text"), "give a list"),
        (lambda model: model.predict(["a"]), "this model predicts the masked token only; fine-tune it first"),
        (lambda model: model.fill_mask("no mask"), r"no \[MASK\]"),
        (lambda model: model.fill_mask("\ud800 [MASK]"), "half of a surrogate pair"),
        (lambda model: model.score(["a", None]), "text 1: 'text' is None; give a text"),
        (lambda model: model.score(["\ud800"]), "half of a surrogate pair"),
    ],
)
def test_wrong_calls_are_refused(bert, call, says: str) -> None:
    with pytest.raises(UserError, match=says):
        call(bert_jax.load(bert[0]))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"overrides": ["--config.train.steps=5"]}, "overrides is a list; give a dict such as"),
        ({"budget": 5}, "budget is 5; give a text such as '30m'"),
    ],
)
def test_settings_of_other_types_are_refused(tmp_path, settings, says: str) -> None:
    with pytest.raises(UserError, match=says):
        bert_jax.pretrain("demo", tmp_path / "run", **settings)
    if "overrides" in settings:
        columns = {"text": "text", "label": "label", "init_from": "start"}
        with pytest.raises(UserError, match=says):
            bert_jax.finetune_on_file("a.csv", tmp_path / "run", **columns, **settings)


def test_any_iterable_of_texts_is_read_once_and_whole(bert, tmp_path) -> None:
    model = bert_jax.load(bert[0])
    np.testing.assert_array_equal(model.encode(text for text in TEXTS), model.encode(TEXTS))
    np.testing.assert_array_equal(model.score(iter(["a", "b c"])), model.score(["a", "b c"]))
    save(tmp_path, "bert", "ForSequenceClassification", num_labels=3)
    classifier = bert_jax.load(tmp_path)
    assert classifier.predict(map(str, ["a", "b"])) == classifier.predict(["a", "b"])


@pytest.mark.parametrize("table", [{"text": ["a", "b"]}, types.SimpleNamespace(columns=["text"])])
def test_the_names_of_columns_are_not_taken_for_texts(bert, table) -> None:
    """Python iterates over the names of the columns of a batch of `datasets` and of a DataFrame."""
    model = bert_jax.load(bert[0])
    for read in (model.encode, model.predict, model.score):
        with pytest.raises(UserError, match=r"is one example or a table; give a list of examples, or a column"):
            read(table)


def test_a_model_can_be_the_key_of_a_cache(bert) -> None:
    one, other = bert_jax.load(bert[0]), bert_jax.load(bert[0])
    assert {one: 1, other: 2}[one] == 1
    assert one != other


def test_predictions_and_their_ids(tmp_path) -> None:
    theirs, tokenizer = save(tmp_path, "bert", "ForSequenceClassification", num_labels=3)
    model = bert_jax.load(tmp_path)
    found = model.predict(["abc", {"text": "d", "text_pair": "e", "id": "mine"}, {"text": "j", "label": "unread"}])
    assert [one["id"] for one in found] == ["0", "mine", "2"]
    for one, pair in zip(found, (("abc",), ("d", "e"), ("j",)), strict=True):
        with torch.no_grad():
            likely = theirs(**tokenizer(*pair, return_tensors="pt")).logits.softmax(-1)[0].numpy()
        np.testing.assert_allclose(list(one["probabilities"].values()), likely, rtol=0, atol=2e-6)
        assert one["label"] == f"LABEL_{likely.argmax()}"
    assert model.predict([("d", "e")])[0]["probabilities"] == found[1]["probabilities"]
    for wrong in (None, 3, ("a",), ["a", "b"]):
        with pytest.raises(UserError, match="example 0: give a text, a pair of texts"):
            model.predict([wrong])
    with pytest.raises(UserError, match="example 1: has no 'text'"):
        model.predict(["a", {"texts": "b"}])
    with pytest.raises(UserError, match="which cannot fill masks"):
        model.fill_mask("a [MASK]")


def test_the_settings_of_a_task_are_read_from_another_working_directory(tmp_path, monkeypatch) -> None:
    save(tmp_path / "model", "bert", "ForSequenceClassification", num_labels=2)
    settings = {"kind": "sequence_classification", "config": {"columns": "text=review"}}
    (tmp_path / "model" / "task.json").write_text(json.dumps(settings))
    monkeypatch.chdir(tmp_path)
    model, other = bert_jax.load("model"), bert_jax.load("model")
    monkeypatch.chdir("/")
    assert model.predict([{"review": "a"}]) == model.predict(["a"])
    shutil.rmtree(tmp_path / "model")
    with pytest.raises(UserError, match="model is gone; predict before"):
        other.predict(["a"])


def test_a_head_that_cannot_be_used_leaves_the_encoder(tmp_path) -> None:
    """Several values per text are not predicted; the vectors of the model are computed."""
    theirs, tokenizer = save(tmp_path, "bert", "ForSequenceClassification", num_labels=3, problem_type="regression")
    model = bert_jax.load(tmp_path)
    with torch.no_grad():
        wanted = theirs.base_model(**tokenizer("abc", return_tensors="pt")).last_hidden_state[0].mean(0).numpy()
    np.testing.assert_allclose(model.encode(["abc"])[0], wanted, rtol=0, atol=1e-5)
    for call in (model.fill_mask, lambda text: model.predict([text])):
        with pytest.raises(UserError, match="regression"):
            call("a [MASK]")


def test_every_form_of_a_config(tmp_path) -> None:
    kind = bert_jax.PretrainConfig
    recipe = as_config(kind, "demo", {"train.steps": 7, "optimizer.clip_norm": None})
    assert (recipe.train.steps, recipe.optimizer.clip_norm) == (7, None)
    mutable = bert_jax.pretrain_config()
    mutable.train.steps = 7
    assert as_config(kind, mutable).train.steps == 7
    assert as_config(kind, recipe) == bert_jax.resolve(kind, recipe) == recipe
    assert as_config(kind, pathlib.Path("demo")) == as_config(kind, "demo")
    assert bert_jax.pretrain_config(pathlib.Path("demo")).train.steps == as_config(kind, "demo").train.steps
    of_numpy = dataclasses.replace(recipe.optimizer, peak_learning_rate=np.float64(1e-3))
    of_numpy = dataclasses.replace(recipe, optimizer=of_numpy, seed=np.int64(3))
    assert type(as_config(kind, of_numpy).optimizer.peak_learning_rate) is float
    assert type(as_config(kind, of_numpy).seed) is int

    def changed(section: str, **values: object) -> bert_jax.PretrainConfig:
        return dataclasses.replace(recipe, **{section: dataclasses.replace(getattr(recipe, section), **values)})

    for config, overrides, says in (
        (recipe, {"train.steps": 8}, "overrides are for a recipe"),
        (bert_jax.FinetuneConfig(), None, "give a PretrainConfig"),
        (changed("optimizer", beta2=1.0), None, "config.optimizer.beta2=1.0 must"),
        (changed("train", phases=recipe.train.phases * 2), None, "the fractions add up to 2"),
        (changed("optimizer", warmup_steps=9_999), None, "warmup"),
        ("demo", {"train.step": 8}, "train.steps"),
        ("absent", None, "no such file or recipe"),
    ):
        with pytest.raises(UserError, match=says):
            bert_jax.pretrain(config, tmp_path / "run", overrides)
    assert not (tmp_path / "run").exists()


def test_batches_follow_from_the_step(tmp_path) -> None:
    generated_corpus(tmp_path, documents=30, vocab_size=150)
    config = bert_jax.pretrain_config()
    config.data.corpus = str(tmp_path / "corpus")
    config.model.update(max_positions=64)
    config.train.update(steps=10, batch_size=4)
    config.train.phases[0].seq_len = 32
    of_config_dict = next(bert_jax.make_batches(config))
    config = bert_jax.resolve(bert_jax.PretrainConfig, config)
    from_start = list(itertools.islice(bert_jax.make_batches(config), 4))
    np.testing.assert_array_equal(of_config_dict["input_ids"], from_start[0]["input_ids"])
    (later,) = itertools.islice(bert_jax.make_batches(config, step=3), 1)
    assert later["input_ids"].shape == (4, 32)
    for name, x in later.items():
        np.testing.assert_array_equal(x, from_start[3][name])
    with pytest.raises(UserError, match=r"phase 1: the config has no such phase with steps; .* steps are 0"):
        bert_jax.make_batches(config, phase=1)
    halves = [dataclasses.replace(config.train.phases[0], fraction=0.5)] * 2
    in_phases = dataclasses.replace(config, train=dataclasses.replace(config.train, phases=tuple(halves)))
    of_second = next(bert_jax.make_batches(in_phases, phase=1))
    np.testing.assert_array_equal(of_second["input_ids"], next(bert_jax.make_batches(config, step=5))["input_ids"])
    only_second = [dataclasses.replace(halves[0], fraction=fraction) for fraction in (0.0, 1.0)]
    only_second = dataclasses.replace(config, train=dataclasses.replace(config.train, phases=tuple(only_second)))
    np.testing.assert_array_equal(
        next(bert_jax.make_batches(only_second, phase=1))["input_ids"], from_start[0]["input_ids"]
    )
    growing = dataclasses.replace(config.train, phases=(dataclasses.replace(config.train.phases[0], batch_stages=2),))
    of_stages = list(itertools.islice(bert_jax.make_batches(dataclasses.replace(config, train=growing), step=3), 4))
    assert [len(batch["input_ids"]) for batch in of_stages] == [2, 2, 4, 4]
    read = np.concatenate([batch["input_ids"] for batch in of_stages])
    np.testing.assert_array_equal(read[2:10], np.concatenate([from_start[n]["input_ids"] for n in (2, 3)]))
    for phase, step in ((0, 5), (1, 4), (1, 10)):
        with pytest.raises(UserError, match=f"step {step}: phase {phase} has the steps from"):
            bert_jax.make_batches(in_phases, phase=phase, step=step)
    with pytest.raises(UserError, match="no corpus"):
        bert_jax.make_batches(dataclasses.replace(config, data=dataclasses.replace(config.data, corpus=None)))
    with pytest.raises(UserError, match=r"config\.data\.mask_probability=1\.5 must"):
        bert_jax.make_batches(dataclasses.replace(config, data=dataclasses.replace(config.data, mask_probability=1.5)))


def test_prepare_refuses_arguments_without_effect(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(UserError, match="gs://bucket/corpus is a URL"):
        bert_jax.prepare([str(tmp_path / "a.txt")], tmp_path, "gs://bucket/corpus")
    with pytest.raises(UserError, match="--evaluation_files: only a recipe"):
        bert_jax.prepare([str(tmp_path / "a.txt")], tmp_path, tmp_path / "out", evaluation_files=["b.txt"])
