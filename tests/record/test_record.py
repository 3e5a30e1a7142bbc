"""The behavior of the code equals the recorded behavior: see README.md."""

import pathlib

import pytest

from tests.helpers.slow_cases import quick
from tests.record import batches, exports, formats, texts, training
from tests.record.compare import check, check_entries, check_texts
from tests.record.world import make_world

RECIPES = batches.recipes()
QUICK_FAMILIES = ("bert", "albert", "modernbert", "research")


@pytest.fixture(scope="module", autouse=True)
def wide() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", texts.COLUMNS)
        yield


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return make_world(tmp_path_factory.mktemp("record"))


@pytest.mark.parametrize("recipe", [*RECIPES, *batches.MORE])
def test_batches(recipe: str, world: pathlib.Path) -> None:
    check("batches", recipe, batches.batches_of(recipe, world))


def test_batches_are_of_the_recipes() -> None:
    check_entries("batches", [*RECIPES, *batches.MORE])


def test_help() -> None:
    check_texts("help", texts.helps())


def test_configs() -> None:
    found = texts.configs()
    for name, value in found.items():
        check("configs", name, value)
    check_entries("configs", found)


@pytest.mark.parametrize("name", quick(training.OBJECTIVES, "masked_tokens"))
def test_pretraining(name: str, world: pathlib.Path) -> None:
    check("pretraining", name, training.of_objective(name, world))


@pytest.mark.parametrize("kind", quick(training.TASKS))
def test_finetuning(kind: str, world: pathlib.Path) -> None:
    check("finetuning", kind, training.of_task(kind, world))


def test_trainings_are_these() -> None:
    check_entries("pretraining", training.OBJECTIVES)
    check_entries("finetuning", training.TASKS)


@pytest.mark.parametrize("family", quick(exports.families(), *QUICK_FAMILIES))
def test_exports(family: str, tmp_path: pathlib.Path) -> None:
    check("exports", family, exports.exported_classes(family, tmp_path))


@pytest.mark.parametrize("family", quick(exports.families(), *QUICK_FAMILIES))
def test_answers(family: str, tmp_path: pathlib.Path) -> None:
    check("answers", family, exports.answers(family, tmp_path))


def test_answers_are_of_the_families() -> None:
    check_entries("answers", exports.families())


@pytest.mark.parametrize("verb", quick(formats.VERBS | formats.SLOW, *formats.QUICK))
def test_formats(verb: str, world: pathlib.Path) -> None:
    check("formats", verb, formats.of_verb(verb, world))


def test_formats_are_of_these_verbs() -> None:
    check_entries("formats", formats.VERBS | formats.SLOW)
