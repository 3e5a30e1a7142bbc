"""The wheel: the package with its recipes and types, no tests, and it runs outside of the checkout."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCES = ("bert_jax", "configs", "setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")


def expected() -> set[str]:
    """Every module and recipe of the checkout, under its name in the wheel."""
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "bert_jax").rglob("*.py")}
    files = [path for suffix in ("py", "toml") for path in (ROOT / "configs").rglob(f"*.{suffix}")]
    recipes = {f"bert_jax/{path.relative_to(ROOT).as_posix()}" for path in files}
    pairs = {f"bert_jax/scoring/zorro_small.{suffix}" for suffix in ("jsonl", "LICENSE")}
    templates = "bert_jax/scoring/occupations_en.jsonl"
    return modules | recipes | pairs | {templates, "bert_jax/py.typed"}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """What a wheel is built from, copied, so that a build leaves nothing in the checkout."""
    place = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, place / name)
    return place


def built_from(place: pathlib.Path) -> set[str]:
    subprocess.run([sys.executable, "setup.py", "-q", "build_py", "--build-lib", "built"], cwd=place, check=True)
    return {path.relative_to(place / "built").as_posix() for path in (place / "built").rglob("*.*")}


def test_the_build_takes_every_module_and_recipe(sources: pathlib.Path) -> None:
    assert built_from(sources) == expected()


def test_the_image_of_gke_gets_all_that_the_build_needs(sources: pathlib.Path, tmp_path: pathlib.Path) -> None:
    ignored = (ROOT / "launch" / "gke" / "Dockerfile.dockerignore").read_text()
    assert ignored.startswith("*\n")
    for name in set(SOURCES) & set(re.findall(r"(?m)^!(\S+)", ignored)):
        (tmp_path / name).symlink_to(sources / name)
    assert built_from(tmp_path) == expected()


def test_classifiers_are_the_python_versions_of_ci() -> None:
    classifiers = re.findall(r"Python :: (3\.\d+)", (ROOT / "setup.cfg").read_text())
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert classifiers == re.findall(r"'(3\.\d+)'", re.search(r"python: (.*)", workflow)[1])
    assert classifiers == re.findall(r"3\.\d+", re.search(r"(?m)^PYTHONS := (.*)", (ROOT / "Makefile").read_text())[1])


@pytest.mark.slow
def test_an_installed_wheel_finds_its_recipes(
    sources: pathlib.Path, tmp_path: pathlib.Path, samples: pathlib.Path
) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    shutil.rmtree(sources / "build", ignore_errors=True)
    build = ["wheel", ".", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    subprocess.run([*pip, *build], cwd=sources, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == expected()
    subprocess.run([*pip, "install", "--no-deps", "--target", str(tmp_path / "site"), str(wheel)], check=True)
    code = (
        "import bert_jax; from bert_jax.config import PretrainConfig, read_config\n"
        "print(bert_jax.__file__, read_config(PretrainConfig, 'demo', []).train.steps,"
        " read_config(PretrainConfig, 'bert:tiny', []).model.hidden_size)"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    run = [sys.executable, "-c", code]
    printed = subprocess.run(run, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout
    assert printed.split() == [str(tmp_path / "site" / "bert_jax" / "__init__.py"), "980", "128"]
    script = tmp_path / "site" / "bin" / "bert-jax"
    assert "pretrain" in subprocess.check_output([script, "--help"], cwd=tmp_path, env=environment, text=True)
    # Workers import the script that started them: it must not begin a run of its own.
    (tmp_path / "a.txt").write_text("One sentence. Another sentence.\n")
    prepare = [script, "prepare", "--input", "a.txt", "--tokenizer", samples / "vocab" / "bert-base-uncased"]
    subprocess.run([*prepare, "--output", "corpus", "--workers", "2"], cwd=tmp_path, env=environment, check=True)
