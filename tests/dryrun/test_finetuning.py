"""The dry run of fine-tuning: its counts against transformers and against each other, and its refusals."""

import json

import pytest

from bert_jax.cli.main import main
from bert_jax.models import padded_vocab
from tests.helpers.finetuning_runs import MAX_LENGTH, RECIPE, finetune_command, make_world, write_lines
from tests.helpers.tiny_models import LETTERS, save

VOCABULARY, WIDTH = 26, 16  # of the tiny models


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


def compiled(capfd, *words):
    """The object that the verb prints, and what it says on stderr."""
    assert main(["compile", *words]) == 0
    out, err = capfd.readouterr()
    return json.loads(out), err


def words_of(world, kind, *more, **keywords):
    return [word for word in finetune_command(world, "nowhere", kind, *more, **keywords)[1:] if "workdir" not in word]


def test_parameters_and_steps_equal_the_numbers_of_a_run(world, capfd, tmp_path):
    theirs, _ = save(tmp_path / "theirs", "bert", "ForSequenceClassification", num_labels=3)
    found, _ = compiled(capfd, *words_of(world, "sequence_classification"))
    (phase,) = found["phases"]
    padding = (padded_vocab(VOCABULARY) - VOCABULARY) * WIDTH
    assert found["parameters"] == sum(x.numel() for x in theirs.parameters()) + padding
    assert phase["parameter_bytes_per_chip"] == 4 * found["parameters"]
    assert (phase["seq_len"], phase["batch_size"], phase["steps"]) == (MAX_LENGTH, 8, 2 * 5)  # 37 examples, 2 epochs
    assert phase["fits"]


@pytest.fixture(scope="module")
def pairs(world):
    """The options of the recipe for vectors, but for its training file: pairs or triples of texts."""
    place = world / "pairs"
    place.mkdir()
    texts = [letter * 3 for letter in LETTERS] * 2
    both = [{"text": text, "text_pair": text + "a"} for text in texts]
    write_lines(place / "pairs.jsonl", both)
    write_lines(place / "triples.jsonl", [one | {"negative": "j" + one["text"]} for one in both])
    write_lines(place / "dev.jsonl", [one | {"label": number} for number, one in enumerate(both)])
    (place / "recipe.py").write_text(RECIPE)
    settings = [f"init_from={world / 'start'}", "task.name=custom", "task.kind=similarity", f"task.data={place}"]
    return [
        f"--config={place / 'recipe.py'}",
        "--json",
        *(f"--config.{one}" for one in (*settings, "task.dev=dev.jsonl")),
    ]


def test_a_pair_is_two_sequences_and_a_triple_three(pairs, capfd):
    two, _ = compiled(capfd, *pairs, "--config.task.train=pairs.jsonl")
    three, _ = compiled(capfd, *pairs, "--config.task.train=triples.jsonl")
    assert (two["notes"], three["notes"]) == (["an example is 2 sequences"], ["an example is 3 sequences"])
    assert (two["total"]["tokens"], three["total"]["tokens"]) == (6 * 8 * 2 * 24, 6 * 8 * 3 * 24)
    (two,), (three,) = two["phases"], three["phases"]
    assert three["model_flops_per_chip"] / two["model_flops_per_chip"] == pytest.approx(3 / 2)
    assert three["flops_per_chip"] / two["flops_per_chip"] == pytest.approx(3 / 2, rel=0.05)
    # the element-wise work of so narrow a model is much
    assert 1 < two["flops_per_chip"] / two["model_flops_per_chip"] < 2


def test_a_teacher_is_on_the_device(world, capfd, tmp_path):
    teacher, _ = save(tmp_path / "teacher", "bert", "ForSequenceClassification", num_labels=3)
    alone, _ = compiled(capfd, *words_of(world, "sequence_classification"))
    taught, _ = compiled(capfd, *words_of(world, "sequence_classification", f"task.teacher={tmp_path / 'teacher'}"))
    (alone,), (taught,) = alone["phases"], taught["phases"]
    padding = 4 * (padded_vocab(VOCABULARY) - VOCABULARY) * WIDTH
    more = taught["argument_bytes_per_chip"] - alone["argument_bytes_per_chip"]
    assert more == 4 * sum(x.numel() for x in teacher.parameters()) + padding


def test_notes_name_the_limits_of_the_figures(world, capfd):
    more = ["task.buckets=(16, 24)", "task.learning_rates=(1e-3, 2e-3)", "task.num_seeds=2"]
    found, err = compiled(capfd, *words_of(world, "regression", *more))
    assert found["notes"] == [
        "every step is counted at 24 tokens, the longest; steps on shorter texts take less",
        "the figures are for one of 4 trainings",
    ]
    assert "compiling program 1 of 1" in err


@pytest.mark.parametrize(
    ("more", "says"),
    [("init_from=None", "no weights"), ("mesh.data=3", "does not divide"), ("task.data=nowhere", "nowhere")],
)
def test_mistakes_end_with_status_2(world, capsys, more, says):
    assert main(["compile", *words_of(world, "regression", more)]) == 2
    assert says in capsys.readouterr().err
