"""The house rules that reading the imports can hold."""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "bert_jax"

# A module may import those of its own and of lower layers.
LAYERS = [
    {"errors"},
    {"config", "chips", "hlo", "topology"},
    {"tensorboard", "relay", "interrupt"},
    {"rollcall"},
    {"watchdog"},
    {"distributed"},
    {"console", "metrics", "sharding", "peak", "compilation", "hlo_cost"},
    {"models", "data", "optim", "phases", "checkpoint", "plot"},
    {"objectives", "recipes", "estimate", "corpus_checks", "rows_text"},
    {"evaluate", "interop", "workdir", "tasks", "inspect_text"},
    {"train", "inference", "model_directory", "text_lines", "feature_files", "inspect"},
    {"loop", "weights", "embed", "fill_mask", "task_data", "predict"},
    {"pretrain", "finetune"},
    {"dryrun", "export"},
    {"arguments", "dryrun_text"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
# The same inside of data/: from files to rows.
DATA_LAYERS = [{"sources"}, {"tokenizer"}, {"corpus"}, {"preparation", "rows", "staging"}, {"mixture", "statistics"}]
DATA_LEVEL = {name: level for level, names in enumerate(DATA_LAYERS) for name in names}


def imports(path: pathlib.Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def layer(path: pathlib.Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_one_way(path: pathlib.Path) -> None:
    own = layer(path)
    for name in imports(path):
        parts = name.split(".")
        assert parts[0] not in ("launch", "configs", "tests", "benchmarks"), f"{path} imports {name}"
        if parts[0] == "bert_jax" and parts[1] != "__version__":
            other = parts[1]
            assert own == other or LEVEL[other] < LEVEL[own], f"{own} imports {other}"
            if own == other == "data":
                here, there = path.relative_to(PACKAGE / "data").parts[0].removesuffix(".py"), parts[2]
                assert here == there or DATA_LEVEL[there] < DATA_LEVEL[here], f"data/{here} imports data/{there}"
        if own == "data":
            assert parts[0] not in ("jax", "flax", "optax", "orbax"), f"{path} imports {name}"
        if parts[:2] == ["flax", "linen"]:
            assert own == "models", f"{path} imports linen"
        assert parts[0] not in ("pickle", "marshal", "shelve", "dill"), f"{path} imports {name}"
    if own == "models":
        assert not {name.split(".")[1] for name in imports(path) if name.startswith("bert_jax.")} & {"data", "phases"}


def test_no_variant_is_an_if() -> None:
    for path in FILES:
        assert "model_type ==" not in path.read_text(encoding="utf-8"), path


def test_every_file_has_one_purpose_and_says_it() -> None:
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert ast.get_docstring(ast.parse(text)), f"{path} has no docstring"
        assert text.count("\n") <= 450, f"{path} is too long for one purpose"


def test_looking_and_preparing_load_no_jax() -> None:
    modules = (
        "bert_jax.reports.inspect",
        "bert_jax.data.preparation.prepare",
        "bert_jax.data.tokenizer.training.train",
        "bert_jax.cli.main",
    )
    code = f"import {', '.join(modules)}, sys; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
