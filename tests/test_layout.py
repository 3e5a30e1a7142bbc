"""The rules of the house that the imports and the tree can show."""

import ast
import pathlib
import subprocess
import sys

import pytest

import bert_jax

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "bert_jax"
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")
FOLDERS = sorted({path.parent for path in FILES})
MOST_FILES, MOST_LINES = 9, 400

# A room may import itself and the rooms before it. `__init__` is the map and imports nothing when it is loaded.
ORDER = (
    "errors",
    "files",
    "strict_json",
    "console",
    "config",
    "parallel",
    "data",
    "models",
    "tasks",
    "objectives",
    "training",
    "interop",
    "inference",
    "reports",
    "runs",
    "dryrun",
    "cli",
    "__main__",
)
# The same inside of data/: from files to sequences.
DATA_ORDER = (
    {"sources"},
    {"tokenizer"},
    {"manifest"},
    {"corpus"},
    {"preparation", "sequences", "staging"},
    {"mixture", "statistics"},
    {"leaks"},
)
NO_JAX = ("config", "data", "tasks", "errors", "files", "strict_json", "console")
# The way of one call of `bert-jax pretrain`, from the arguments to the updated parameters.
PATH = (
    "cli/main.py",
    "cli/parser.py",
    "cli/options/training.py",
    "cli/verbs/training.py",
    "config/find_recipe.py",
    "config/load.py",
    "config/schema/run.py",
    "config/schema/encoder.py",
    "config/schema/data.py",
    "config/schema/training.py",
    "config/schema/field.py",
    "runs/pretrain.py",
    "runs/corpus_data.py",
    "objectives/__init__.py",
    "objectives/base.py",
    "objectives/pretraining/masked_tokens.py",
    "objectives/losses.py",
    "objectives/means.py",
    "training/loop.py",
    "training/step.py",
    "training/optimizers/__init__.py",
    "training/schedules.py",
)
MOST_LINES_OF_PATH = 2_700


def imported(path: pathlib.Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def room_of(path: pathlib.Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_one_way(path: pathlib.Path) -> None:
    own = room_of(path)
    for name in imported(path):
        parts = name.split(".")
        assert parts[0] not in ("launch", "configs", "tests", "benchmarks"), f"{path} imports {name}"
        if parts[0] == "bert_jax" and parts[1] != "__version__":
            other = parts[1]
            assert ORDER.index(other) <= ORDER.index(own), f"{own} imports {other}"
            if own == other == "data" and len(path.relative_to(PACKAGE / "data").parts) + len(parts) > 4:
                here, there = path.relative_to(PACKAGE / "data").parts[0].removesuffix(".py"), parts[2]
                level = {room: i for i, rooms in enumerate(DATA_ORDER) for room in rooms}
                assert here == there or level[there] < level[here], f"data/{here} imports data/{there}"
        if own in NO_JAX:
            assert parts[0] not in ("jax", "flax", "optax", "orbax"), f"{path} imports {name}"
        if parts[:2] == ["flax", "linen"]:
            assert own == "models", f"{path} imports linen"
        assert parts[0] not in ("pickle", "marshal", "shelve", "dill"), f"{path} imports {name}"
        assert not name.startswith("jax._src"), f"{path} imports private {name}"
    if own == "models":
        rooms = {name.split(".")[1] for name in imported(path) if name.startswith("bert_jax.")}
        assert not rooms & {"data", "tasks", "objectives"}, path


def modules_of(path: pathlib.Path) -> set[pathlib.Path]:
    """The files that a file imports."""
    found = set()
    for name in imported(path):
        parts = name.split(".")[1:]
        if not name.startswith("bert_jax."):
            continue
        for end in (len(parts), len(parts) - 1):
            base = PACKAGE.joinpath(*parts[:end])
            for file in (base.with_suffix(".py"), base / "__init__.py"):
                if file.is_file() and file != path:
                    found.add(file)
                    break
            else:
                continue
            break
    return found


def test_no_import_goes_in_a_circle() -> None:
    graph = {path: modules_of(path) for path in FILES}
    done: set[pathlib.Path] = set()

    def visit(path: pathlib.Path, trail: tuple[pathlib.Path, ...]) -> None:
        assert path not in trail, " -> ".join(str(p.relative_to(PACKAGE)) for p in (*trail, path))
        if path not in done:
            for other in graph.get(path, ()):
                visit(other, (*trail, path))
            done.add(path)

    for path in FILES:
        visit(path, ())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_rooms_are_small_and_say_what_lives_there(folder: pathlib.Path) -> None:
    files = sorted(folder.glob("*.py"))
    assert len(files) <= MOST_FILES, [path.name for path in files]
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    inside = [path.name for path in files if path.name not in ("__init__.py", "__main__.py")]
    inside += [path.name for path in folder.iterdir() if (path / "__init__.py").is_file()]
    missing = [name for name in inside if name not in text]
    assert not missing, f"the docstring of {folder.relative_to(ROOT)} does not name {', '.join(missing)}"


def test_the_map_names_every_room() -> None:
    rooms = {room_of(path) for path in FILES} - {"__main__"}
    assert rooms == set(ORDER) - {"__main__"}
    text = bert_jax.__doc__ or ""
    assert not [room for room in rooms if not any(f"{room}{end}" in text for end in ("/", ".py"))]
    named = [word.rstrip("/") for word in text.split() if word.endswith("/")]
    assert not [name for name in named if not (PACKAGE / name).is_dir()], "the map names a room that is not there"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_file_has_one_purpose_and_says_it(path: pathlib.Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)), f"{path} has no docstring"
    assert text.count("\n") <= MOST_LINES, f"{path} is too long for one purpose"


def test_the_way_from_the_command_line_to_the_update_is_short() -> None:
    lines = {name: (PACKAGE / name).read_text(encoding="utf-8").count("\n") for name in PATH}
    assert sum(lines.values()) <= MOST_LINES_OF_PATH, lines


def test_looking_and_preparing_load_no_jax() -> None:
    modules = (
        "bert_jax.reports.inspect",
        "bert_jax.data.preparation.prepare",
        "bert_jax.data.tokenizer.training",
        "bert_jax.cli.main",
    )
    code = f"import {', '.join(modules)}, sys; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
