"""The rules of the house that the imports and the tree can show."""

import ast
import collections
import functools
import pathlib
import re
import subprocess
import sys

import pytest

import bert_jax

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "bert_jax"
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")
FOLDERS = sorted({path.parent for path in FILES if path.parent != PACKAGE})
# Modules of a package beside its `__init__`, lines of a file, packages below bert_jax on the way to a file.
MIN_MODULES, MAX_MODULES, MAX_LINES, MAX_LEVELS = 3, 16, 600, 3

# A package may import itself and the packages before it. `__init__` is the map and imports nothing when it is loaded.
ORDER = (
    "errors",
    "files",
    "strict_json",
    "console",
    "config",
    "parallel",
    "readers",
    "tokenizer",
    "corpus",
    "batches",
    "models",
    "tasks",
    "objectives",
    "training",
    "interop",
    "checkpoints",
    "inference",
    "search",
    "scoring",
    "loaded_model",
    "reports",
    "pretraining",
    "finetuning",
    "convert",
    "api",
    "dryrun",
    "verbs",
    "cli",
    "__main__",
)
NO_JAX = ("config", "readers", "tokenizer", "corpus", "batches", "tasks", "errors", "files", "strict_json", "console")


@functools.cache
def tree_of(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imported(path: pathlib.Path) -> set[str]:
    names = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def top_package(path: pathlib.Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_one_way(path: pathlib.Path) -> None:
    importer = top_package(path)
    for name in imported(path):
        parts = name.split(".")
        assert parts[0] not in ("launch", "configs", "tests", "benchmarks"), f"{path} imports {name}"
        if parts[0] == "bert_jax" and parts[1] != "__version__":
            assert ORDER.index(parts[1]) <= ORDER.index(importer), f"{importer} imports {parts[1]}"
        if importer in NO_JAX:
            assert parts[0] not in ("jax", "flax", "optax", "orbax"), f"{path} imports {name}"
        if parts[:2] == ["flax", "linen"]:
            assert importer == "models", f"{path} imports linen"
        assert parts[0] not in ("pickle", "marshal", "shelve", "dill"), f"{path} imports {name}"
        assert not name.startswith("jax._src"), f"{path} imports private {name}"
    if importer == "models":
        packages = {name.split(".")[1] for name in imported(path) if name.startswith("bert_jax.")}
        assert not packages & {"readers", "tokenizer", "corpus", "batches", "tasks", "objectives"}, path


@functools.cache
def modules_imported_by(path: pathlib.Path) -> set[pathlib.Path]:
    """The files of the package that a file imports."""
    files = set()
    for name in imported(path):
        if not name.startswith("bert_jax."):
            continue
        parts = name.split(".")[1:]
        for end in (len(parts), len(parts) - 1):
            base = PACKAGE.joinpath(*parts[:end])
            for file in (base.with_suffix(".py"), base / "__init__.py"):
                if file.is_file() and file != path:
                    files.add(file)
                    break
            else:
                continue
            break
    return files


def assert_acyclic(graph: dict[str, set[str]]) -> None:
    done: set[str] = set()

    def visit(node: str, trail: tuple[str, ...]) -> None:
        assert node not in trail, " -> ".join((*trail[trail.index(node) :], node))
        if node not in done:
            for target in sorted(graph.get(node, ())):
                visit(target, (*trail, node))
            done.add(node)

    for node in sorted(graph):
        visit(node, ())


def test_no_import_between_files_goes_in_a_circle() -> None:
    assert_acyclic({str(path): {str(file) for file in modules_imported_by(path)} for path in FILES})


@pytest.mark.parametrize("folder", [PACKAGE, *FOLDERS], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_import_between_the_parts_of_a_package_goes_in_a_circle(folder: pathlib.Path) -> None:
    """A subpackage is one node of its package's graph, so that no circle hides between packages at any depth."""

    def part_of(path: pathlib.Path) -> str | None:
        inside = path.relative_to(folder).parts[0] if path.is_relative_to(folder) else None
        return None if inside in (None, "__init__.py") else inside

    graph = collections.defaultdict[str, set[str]](set)
    for path in FILES:
        for file in modules_imported_by(path):
            importer, target = part_of(path), part_of(file)
            if importer and target and importer != target:
                graph[importer].add(target)
    assert_acyclic(graph)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_packages_have_few_modules_and_name_them(folder: pathlib.Path) -> None:
    files = sorted(path.name for path in folder.glob("*.py") if path.name not in ("__init__.py", "__main__.py"))
    packages = [path.name for path in folder.iterdir() if (path / "__init__.py").is_file()]
    assert len(files) + len(packages) >= MIN_MODULES, files
    assert len(files) <= MAX_MODULES, files
    assert len(folder.relative_to(PACKAGE).parts) <= MAX_LEVELS, folder
    text = ast.get_docstring(tree_of(folder / "__init__.py")) or ""
    missing = [name for name in [*files, *packages] if name not in text]
    assert not missing, f"the docstring of {folder.relative_to(ROOT)} does not name {', '.join(missing)}"
    named = {word for word in text.split() if word.endswith(".py") and "/" not in word}
    assert named <= set(files), f"the docstring of {folder.relative_to(ROOT)} names files that are not there"


def test_the_map_names_every_package() -> None:
    packages = {top_package(path) for path in FILES} - {"__main__"}
    assert packages == set(ORDER) - {"__main__"}
    text = bert_jax.__doc__ or ""
    assert not [name for name in packages if not any(f"    {name}{end}" in text for end in ("/", ".py"))]
    named = [word.rstrip("/") for word in text.split() if word.endswith("/")]
    assert not [name for name in named if not (PACKAGE / name).is_dir()], "the map names a package that is not there"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_file_has_one_purpose_and_says_it(path: pathlib.Path) -> None:
    assert ast.get_docstring(tree_of(path)), f"{path} has no docstring"
    assert path.read_text(encoding="utf-8").count("\n") <= MAX_LINES, f"{path} is too long for one purpose"


CONFIGS = {"PretrainConfig", "FinetuneConfig", "Config", "AnyConfig", "Plan", "Session"}
MAX_CONFIG_FUNCTIONS, MAX_CONFIG_FILES = 30, 14
# Spines: the functions that put a command together, in the order of execution.
SPINES = {
    "corpus/build/prepare.py": "prepare",
    "corpus/build/clean.py": "clean_texts",
    "pretraining/pretrain.py": "pretrain_in_directory",
    "pretraining/evaluate.py": "evaluate_checkpoint",
    "finetuning/finetune.py": "finetune_in_directory",
    "convert/export.py": "export_directory",
}
MAX_SPINE_LINES = 180


def names_in(annotation: ast.expr | None) -> set[str]:
    """The names in an annotation, also of one written as a string; none for functions and classes of them."""
    names = set[str]()
    for node in ast.walk(annotation) if annotation else ():
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names |= set(re.findall(r"\w+", node.value))
    return set() if names & {"Callable", "type"} else names


def test_few_functions_take_a_whole_config() -> None:
    """Below the spines a function takes values or a section; a record that holds a config or a plan is one itself."""
    trees = {path: tree_of(path) for path in FILES}
    configs, known = set(CONFIGS), set[str]()
    while configs != known:
        known = set(configs)
        for tree in trees.values():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    fields = (field.annotation for field in node.body if isinstance(field, ast.AnnAssign))
                    configs |= {node.name for field in fields if names_in(field) & known}
    takers = [
        f"{path.relative_to(PACKAGE)}:{node.name}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(
            names_in(a.annotation) & configs for a in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        )
    ]
    assert len(takers) <= MAX_CONFIG_FUNCTIONS, takers
    assert len({taker.partition(":")[0] for taker in takers}) <= MAX_CONFIG_FILES, takers


@pytest.mark.parametrize("file", SPINES)
def test_spines_are_read_at_one_sitting(file: str) -> None:
    tree = tree_of(PACKAGE / file)
    (spine,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == SPINES[file])
    assert spine.end_lineno
    assert spine.end_lineno - spine.lineno < MAX_SPINE_LINES


def test_looking_and_preparing_load_no_jax() -> None:
    modules = (
        "bert_jax.reports.corpus.inspect",
        "bert_jax.corpus.build.prepare",
        "bert_jax.tokenizer.train",
        "bert_jax.cli.main",
    )
    code = f"import {', '.join(modules)}, sys; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
