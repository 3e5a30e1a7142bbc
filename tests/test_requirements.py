"""What setup.cfg requires: a floor for each package, every package that is imported, and extras that pages name."""

import ast
import configparser
import importlib.metadata
import pathlib
import re
import subprocess
import sys

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = pathlib.Path(__file__).resolve().parents[1]
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg", encoding="utf-8")
EXTRAS = {name: text.split("\n") for name, text in SETUP["options.extras_require"].items()}
CORE = SETUP["options"]["install_requires"].split("\n")
# The compilers and plugins of accelerators have the version that their JAX names.
PINNED_BY_JAX = {"jax[cuda12]", "jax[cuda13]", "jax[cuda13-local]", "jax[tpu]"}


def requirements(lines: list[str]) -> list[Requirement]:
    return [Requirement(line) for line in lines if line]


@pytest.mark.parametrize("lines", [CORE, *EXTRAS.values()], ids=["core", *EXTRAS])
def test_every_requirement_has_a_floor(lines: list[str]) -> None:
    for requirement in requirements(lines):
        if requirement.name != "bert-jax" and str(requirement) not in PINNED_BY_JAX:
            assert {clause.operator for clause in requirement.specifier} in ({">="}, {"=="}), requirement


def test_every_imported_package_is_required() -> None:
    """Imports at the top of a module by the core, imports inside of functions by the core or an extra."""
    core, extras = (
        {canonicalize_name(requirement.name) for lines in groups for requirement in requirements(lines)}
        for groups in ([CORE], EXTRAS.values())
    )
    distributions = importlib.metadata.packages_distributions()
    missing = set()
    for path in (ROOT / "bert_jax").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        is_optional = path.parent.name == "beam" or path.name == "spacy_words.py"  # imported where they are used
        for node in ast.walk(tree):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for module in {name.partition(".")[0] for name in modules} - {"bert_jax", *sys.stdlib_module_names}:
                owners = {canonicalize_name(name) for name in distributions.get(module, [])}
                allowed = core if node in tree.body and not is_optional else core | extras
                if owners and not owners & allowed:
                    missing.add((module, path.relative_to(ROOT).as_posix()))
    assert not missing


def test_extras_that_files_name_exist() -> None:
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    named = set()
    for path in map(ROOT.joinpath, files):
        if path.is_file() and path.suffix in {".md", ".py", ".sh", ".sbatch", ".cfg", ".txt", ".yml", ""}:
            text = path.read_text(encoding="utf-8", errors="replace")
            for group in re.findall(r"(?:'\.|bert-jax|bert_jax)\[([a-z0-9,-]+)\]", text):
                named |= {(name, str(path)) for name in group.split(",")}
    assert len(named) > 10
    assert not [(name, path) for name, path in named if name not in EXTRAS and "decisions" not in path]


def test_all_holds_every_extra_but_accelerators_and_tools() -> None:
    (own,) = (requirement for requirement in requirements(EXTRAS["all"]) if requirement.name == "bert-jax")
    apart = {"all", "beam", "cuda12", "cuda13", "dev", "gpu-compiler", "test", "tpu"}
    assert set(EXTRAS) == own.extras | apart
