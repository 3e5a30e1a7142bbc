"""Mistakes in a fine-tuning are reported in one or two lines before anything is trained or written."""

import dataclasses
import hashlib
import io
import json
import pathlib
import re

import pytest

from bert_jax.cli.main import main
from bert_jax.config import TaskConfig, refuse_fields_without_effect
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.finetuning.inputs import refuse_settings_of_other_kinds
from bert_jax.finetuning.task_data import read_split, splits_digest
from bert_jax.finetuning.training import read_finished_result, remove_best_models_except
from bert_jax.objectives.vector_losses import VECTOR_LOSSES
from bert_jax.tasks.class_weights import SCHEMES
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.table import resolve_task
from bert_jax.tokenizer import load_tokenizer
from tests.helpers.finetuning_runs import finetune_command, lines, make_world, write_lines
from tests.helpers.tiny_models import save


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    place = make_world(tmp_path_factory.mktemp("refusals"))
    (place / "empty").mkdir()
    (place / "bare").mkdir()
    save(place / "bare-weights", "bert", "ForPreTraining")
    for path in (place / "bare-weights").glob("*"):
        if path.name in ("config.json", "model.safetensors"):
            (place / "bare" / path.name).write_bytes(path.read_bytes())
    return place


@pytest.fixture
def refused(world, tmp_path, capfd):
    def refused(kind, says, *more, start=None):
        capfd.readouterr()
        assert main(finetune_command(world, tmp_path / "run", kind, *more, start=start)) == 2
        err = capfd.readouterr().err
        said = [line for line in err.splitlines() if not line.startswith(("custom ", "task "))]  # reports on the data
        assert 1 <= len(said) <= 2, err
        assert said[0].startswith("bert-jax finetune: ")
        assert says in err, err
        assert not (tmp_path / "run").exists()

    return refused


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["init_from="], "config.init_from is empty; give a path, or None"),
        (["init_from=None"], "no weights to start from: give --init_from"),
        (["task.name=mrcp"], "no task 'mrcp'; did you mean 'mrpc'?"),
        (["task.name=mrpc", "task.kind=None", "task.labels=None", "task.train=None", "task.dev=None"], "no train set"),
        (["task.kind=None"], "needs config.task.kind"),
        (["task.kind=classify"], "choose from"),
        (["task.train=missing.jsonl"], "missing.jsonl: no such file"),
        (["task.test=missing.jsonl"], "missing.jsonl: no such file"),
        (["task.dev=None"], "no dev set"),
        (["task.columns=text=texts"], "no key 'texts' for text; did you mean 'text'?"),
        (["task.columns=words=text"], "no field 'words'"),
        (["task.labels=yes,no"], "label 'perhaps' is not among yes, no"),
        (["task.labels=yes"], "has the labels 'yes'"),
        (["task.metric=f1"], "config.task.metric=f1 is none of accuracy, macro_f1"),
        (["task.max_seq_len=600"], "reads 32 tokens; set config.task.max_seq_len=32"),
        (["task.max_seq_len=4"], "max_seq_len=4 is too short for two texts"),
        (["task.buckets=(8,)"], "config.task.buckets=(8,): the last must lie from"),
        (["task.buckets=(0,24)"], "config.task.buckets=(0, 24)"),
        (["task.buckets=(24,4000)"], "config.task.buckets=(24, 4000)"),
        (["train.batch_size=0"], "config.train.batch_size=0 must be at least 1"),
        (["task.learning_rates=(1e-3,0.001)"], "give each once"),
        (["train.batch_size=9", "train.grad_accum_steps=2"], "9 sequences does not divide into 2"),
        (["train.batch_size=8", "train.grad_accum_steps=3", "task.buckets=None"], "8 sequences does not divide into 3"),
        (["optimizer.warmup_steps=1000"], "config.optimizer.warmup_steps=1000, but the run has 10 steps"),
        (["evaluate.batch_size=0"], "config.evaluate.batch_size=0 must be at least 1"),
        (["model.num_layers=3"], "no key 'model.num_layers'"),
        (["train.steps=100"], "no key 'train.steps'"),
        (["task.num_seeds=0"], "config.task.num_seeds=0 must be at least 1"),
        (["task.learning_rates=(a,)"], "config.task.learning_rates"),
        (["task.epoch=3"], "no key 'task.epoch'; did you mean 'task.epochs'?"),
    ],
)
def test_settings(refused, settings, says):
    refused("sequence_classification", says, *settings)


# Fields of TaskConfig that have an effect with every kind of task. A field that has no effect with some kind belongs to
# the `settings` of the other kinds instead.
FIELDS_OF_EVERY_KIND = {
    *("name", "kind", "data", "train", "dev", "dev_fraction", "dev_seed", "test", "columns", "delimiter"),
    *("skip_unlabeled", "metric", "max_seq_len", "buckets", "epochs", "num_seeds", "learning_rates", "patience"),
    *("dropout", "random_weights"),
    # Refused by a check of their own, for kinds whose loss has no teacher or whose head is of pretraining.
    *("teacher", "soft_fraction", "bilstm"),
}


def test_a_field_has_an_effect_with_every_kind_or_is_a_setting_of_the_kinds_that_read_it():
    of_kinds = {name for kind in KINDS.values() for name in kind.settings}
    fields = {field.name: field for field in dataclasses.fields(TaskConfig)}
    assert FIELDS_OF_EVERY_KIND | of_kinds == fields.keys()
    assert not FIELDS_OF_EVERY_KIND & of_kinds
    for kind, row in KINDS.items():
        for name in of_kinds:
            settings = dataclasses.replace(TaskConfig(), **{name: "changed"})
            if name in row.settings:
                refuse_settings_of_other_kinds(settings, kind)
                continue
            says = f"config.task.{name} has no effect with config.task.kind={kind}; set it to {fields[name].default}"
            with pytest.raises(UserError, match=f"^{re.escape(says)}$"):
                refuse_settings_of_other_kinds(settings, kind)


@pytest.mark.parametrize("loss", VECTOR_LOSSES)
def test_a_loss_of_vectors_refuses_the_settings_that_it_does_not_read(loss):
    """The docstring of a loss names the arguments that it does not read."""
    reads = {
        "temperature": "temperature: not read" not in (VECTOR_LOSSES[loss].loss.__doc__ or ""),
        "positive_from": loss != "cosent",
        "learned_temperature": loss == "info_nce",
        "symmetric": loss == "info_nce",
        "false_negative_margin": loss == "info_nce",
        "triplet_margin": loss == "triplet",
        "score_temperature": loss == "teacher_kl",
    }
    for name, is_read in reads.items():
        settings = TaskConfig(kind="similarity", vector_loss=loss, **{name: 0.5})
        if is_read:
            refuse_fields_without_effect(settings, "config.task")
        else:
            says = re.escape(f"config.task.{name} has no effect with config.task.vector_loss={loss}")
            with pytest.raises(UserError, match=says):
                refuse_fields_without_effect(settings, "config.task")


def test_a_tokenizer_that_the_best_model_could_not_have_is_refused_before_the_training(refused, tmp_path):
    save(tmp_path / "weights", "roberta")
    fields = json.loads((tmp_path / "weights/config.json").read_text())
    (tmp_path / "weights/config.json").write_text(json.dumps(fields | {"pad_token_id": 2}))
    refused("sequence_classification", "padding has the id 1", start=tmp_path / "weights")


def test_settings_of_other_kinds(refused):
    refused("regression", "task.labels has no effect with config.task.kind=regression", "task.labels=a,b")
    refused("sequence_classification", "config.task.n_best has no effect", "task.n_best=3")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_rare_labels_are_corrected_once(refused, scheme):
    says = f"config.task.oversample=True and config.task.class_weights={scheme} both correct"
    refused("sequence_classification", says, "task.oversample=True", f"task.class_weights={scheme}")


@pytest.mark.parametrize(
    ("family", "suffix", "more", "says"),
    [
        (None, None, ["task.soft_fraction=0.7"], "task.soft_fraction has no effect with config.task.teacher=None"),
        ("bert", "ForMaskedLM", [], "fine-tune it first"),
        ("bert", "ForSequenceClassification", ["task.labels=perhaps,no,yes"], "has the labels yes, no, perhaps"),
        ("roberta", "ForSequenceClassification", [], "has another vocabulary"),
    ],
)
def test_teachers(world, refused, tmp_path, family, suffix, more, says):
    if family:
        classes = {"id2label": dict(enumerate(("yes", "no", "perhaps")))} if "Sequence" in suffix else {}
        save(tmp_path / "teacher", family, suffix, **classes)
        more = [*more, f"task.teacher={tmp_path / 'teacher'}"]
    refused("sequence_classification", says, *more)


def test_a_teacher_of_label_sets_teaches_no_single_labels(refused, tmp_path):
    classes = {"id2label": dict(enumerate(("yes", "no", "perhaps"))), "problem_type": "multi_label_classification"}
    save(tmp_path / "teacher", "bert", "ForSequenceClassification", **classes)
    says = "learned multi_label_classification, and the task has one label per text"
    refused("sequence_classification", says, f"task.teacher={tmp_path / 'teacher'}")


def test_places_without_a_model(world, refused):
    refused("sequence_classification", "no model here", start=world / "empty")
    refused("sequence_classification", "no model here", start=world / "nowhere")
    refused("sequence_classification", "bare", start=world / "bare")  # without a tokenizer


def changed(world, kind, split, change):
    """A file whose third example is changed."""
    records = lines(kind, 20, seed=1)
    change(records[2])
    path = world / kind / f"bad-{split}.jsonl"
    write_lines(path, records)
    return f"task.{split}={path.name}"


@pytest.mark.parametrize("split", ["train", "dev", "test"])
@pytest.mark.parametrize(
    ("kind", "change", "says"),
    [
        ("sequence_classification", {"text": None}, "text"),
        ("sequence_classification", {"text": " ", "text_pair": ""}, "empty"),
        ("regression", {"label": "much"}, "label"),
        ("token_classification", {"tokens": ["a"], "labels": ["O", "O"]}, "2 labels"),
        ("question_answering", {"question": "a" * 30}, "leaves no room for its context"),
        ("multiple_choice", {"choices": ["a", "b"], "label": 0}, "the same number of choices"),
        ("multiple_choice", {"label": 3}, "3"),
    ],
)
def test_examples(world, refused, split, kind, change, says):
    query = ["task.max_query_length=40"] if "room" in says else []
    refused(kind, says, changed(world, kind, split, lambda record: record.update(change)), *query)


def test_an_answer_without_a_place_in_a_training_set(world, refused):
    """Other sets are scored by the text of their answers."""
    misplaced = {"context": "x y", "answers": [{"text": "z", "answer_start": 0}]}
    changes = changed(world, "question_answering", "train", lambda record: record.update(misplaced))
    refused("question_answering", "'z' is not in its context", changes)


def test_files(world, refused):
    data = world / "sequence_classification"
    (data / "quotes.csv").write_text('text,label\n"ab"c,yes\nb,no\n')
    refused("sequence_classification", "quotes.csv:2: unbalanced quotes", "task.train=quotes.csv")
    (data / "open.csv").write_text('text,label\nab,yes\n"b,no\n')
    refused("sequence_classification", "open.csv:3: unbalanced quotes", "task.dev=open.csv")
    (data / "columns.tsv").write_text("sentence\tlabel\nab\tyes\n")
    refused("sequence_classification", "no column 'text' for text", "task.train=columns.tsv")
    (data / "empty.jsonl").write_text("")
    refused("sequence_classification", "empty.jsonl: the file is empty", "task.dev=empty.jsonl")
    (data / "broken.jsonl").write_text('{"text": "a", "label": "yes"}\n{"text"\n')
    refused("sequence_classification", "broken.jsonl:2: invalid JSON", "task.train=broken.jsonl")
    (data / "latin.jsonl").write_bytes(json.dumps({"text": "a", "label": "yes"}).encode() + b"\n\xe9\n")
    refused("sequence_classification", "latin.jsonl", "task.train=latin.jsonl")


def test_a_changed_score_of_a_finished_training_is_damage(tmp_path: pathlib.Path) -> None:
    result = {"step": 4, "scores": {"accuracy": 0.5}}
    seal = hashlib.sha256(b'{"scores": {"accuracy": 0.5}, "step": 4}').hexdigest()
    path, out = tmp_path / "result.json", io.StringIO()
    path.write_text(json.dumps(result | {"seal": seal}))
    assert read_finished_result(path, Console(out)) == result
    path.write_text(path.read_text().replace("0.5", "0.6"))
    assert read_finished_result(path, Console(out)) is None
    assert out.getvalue().count("damaged (its seal does not match)") == 1
    path.write_text(json.dumps(result))
    assert read_finished_result(path, Console(out)) is None


def test_a_digest_covers_the_answers_of_a_dev_set(world):
    """The features of a dev set of questions have no targets."""
    settings = TaskConfig(name="custom", kind="question_answering", data=str(world / "question_answering"))
    settings = dataclasses.replace(settings, train="train.jsonl", dev="dev.jsonl", max_seq_len=48, max_query_length=10)
    task, tokenizer = resolve_task(settings), load_tokenizer(world / "start")
    split = read_split(task, settings, "dev", tokenizer, Console(silent=True))
    changed_examples = [dict(example) for example in split.examples]
    changed_examples[2]["answers"] = [{**changed_examples[2]["answers"][0], "text": "another answer"}]
    assert splits_digest([split]) != splits_digest([split._replace(examples=changed_examples)])


def test_a_copy_of_a_best_model_stays(tmp_path: pathlib.Path) -> None:
    for name in ("best-5", "best-10", "best-10-copy"):
        (tmp_path / name).mkdir()
    remove_best_models_except(tmp_path, [10])
    assert {path.name for path in tmp_path.iterdir()} == {"best-10", "best-10-copy"}
