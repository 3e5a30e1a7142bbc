"""Every Python snippet of README.md and docs/ runs, every command is one, and the site has every page."""

import configparser
import contextlib
import functools
import http.server
import itertools
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import bert_jax
from bert_jax.batches.masking import MASKINGS
from bert_jax.checkpoints.architecture import FROM_INIT
from bert_jax.cli.main import VERBS
from bert_jax.cli.parser import parse_arguments
from bert_jax.config import FinetuneConfig, PretrainConfig, read_config, with_vocab_size
from bert_jax.objectives import make_objective
from bert_jax.pretraining.initial_weights import check_exportable
from tests.helpers.browser import open_browser
from tests.helpers.tiny_models import save

ROOT = pathlib.Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = {page: page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))}
CONFIGS = {"pretrain": PretrainConfig, "finetune": FinetuneConfig}
API = ROOT / "docs" / "api.md"


def with_snippets(page: pathlib.Path) -> object:
    """Return a parameter; the snippets of pages other than the README are slow."""
    marks = () if page.parent == ROOT else pytest.mark.slow
    return pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks)


@pytest.mark.parametrize("page", [with_snippets(page) for page, text in PAGES.items() if FENCE.search(text)])
def test_snippets_run(page: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one namespace, from top to bottom, beside the model directories `my-bert` and `my-classifier`."""
    save(tmp_path / "my-bert", "bert")
    save(tmp_path / "my-classifier", "bert", "ForSequenceClassification")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(MASKINGS, "rare_words", MASKINGS["token"])  # a snippet sets the row; other tests have none
    namespace: dict[str, object] = {"__name__": "snippet"}
    for match in FENCE.finditer(PAGES[page]):
        before = PAGES[page][: match.start("code")].count("\n")  # a traceback names the line of the page
        exec(compile("\n" * before + match["code"], str(page), "exec"), namespace)


def test_the_api_page_names_the_whole_api() -> None:
    missing = [name for name in bert_jax.__all__ if not re.search(rf"\b{name}\b", PAGES[API])]
    assert not missing
    assert FENCE.search(PAGES[API])


LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


def headings(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and mkdocs make them."""
    titles = re.findall(r"(?m)^#+ (.*)", re.sub(r"(?ms)^```.*?^```", "", text))
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles]
    return {re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-") for title in plain}


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md")), ids=lambda page: page.stem
)
def test_links_inside_of_the_project_lead_somewhere(page: pathlib.Path) -> None:
    for name, anchor in LINK.findall(re.sub(r"`[^`]*`", "", page.read_text(encoding="utf-8"))):
        target = page.parent / name if name else page
        assert target.exists() or name.startswith("api/"), f"{page}: {name}"  # `make docs` writes docs/api/
        if anchor and target.suffix == ".md":
            assert anchor in headings(target.read_text(encoding="utf-8")), f"{page}: {name}#{anchor}"


BLOCK = re.compile(r"^```\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Stands for more words, or is a word of the reader.
OPEN = ("...", "DIR", "RECIPE", "RUN", "CORPUS", "$")


def commands_of(text: str) -> Iterator[str]:
    """The commands of `bert-jax` in the blocks of a page; a line that continues ends in a backslash or in a quote."""
    for block in BLOCK.findall(text):
        line = ""
        for one in block.splitlines():
            line += one
            if line.endswith("\\") or line.partition(" #")[0].count("'") % 2:
                line = line.removesuffix("\\")
                continue
            if (found := re.match(r" *(?:[A-Z_]+=\S+ )?(bert-jax .*)", line)) and not any(
                word in line for word in OPEN
            ):
                yield found[1]
            line = ""


COMMANDS = [
    (page.relative_to(ROOT), line)
    for page, text in PAGES.items()
    if "decisions" not in page.parts
    for line in commands_of(text)
]


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=lambda value: str(value)[:60])
def test_commands_are_commands(page: pathlib.Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verbs, options, fields and recipes are known; nothing runs. A recipe of the reader is taken for the default."""
    monkeypatch.chdir(ROOT)
    words = shlex.split(line, comments=True)[1:]
    args = parse_arguments(VERBS, list(itertools.takewhile(lambda word: word not in (">", "|"), words)))
    kinds, recipe = VERBS[args.verb].config_kinds, getattr(args, "config", None)
    if len(kinds) == 1:
        of_the_reader = recipe is not None and recipe.endswith(".py") and not pathlib.Path(recipe).exists()
        words = [word for word in args.overrides if word != FROM_INIT]  # the weights are the reader's
        read_config(CONFIGS[kinds[0]], None if of_the_reader else recipe, words)


def test_the_recipes_of_each_objective_train_a_model_that_can_be_exported() -> None:
    """With the fields that the table of objectives names beside them."""
    page = PAGES[ROOT / "docs" / "pretraining.md"]
    table = page[page.index("| objective | recipe for a CPU") :].split("\n\n")[0].splitlines()[2:]
    for small, published in [row.split("|")[2:4] for row in table if "`finetune`" not in row]:
        codes = re.findall("`(.*?)`", published)
        fields = [f"--config.{code}" for code in codes if "=" in code]
        for name in (re.findall("`(.*?)`", small)[0], *(code for code in codes if "=" not in code)):
            config = with_vocab_size(read_config(PretrainConfig, name, fields if name in codes else []), 30_522)
            padding = max(0, config.model.position_offset - 1)
            check_exportable(config.model, config.objective, config.data.sentence_pairs, {"pad": padding, "sep": 3})
            if config.objective != "distillation":  # which needs a teacher
                make_objective(config)


def test_the_guide_names_every_marker() -> None:
    (line,) = (line for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines() if "The pytest markers" in line)
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(ROOT / "setup.cfg")
    markers = re.findall(r"^(\w+):", settings["tool:pytest"]["markers"], re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)` \(", line)) == sorted(markers)


def test_the_site_has_every_page() -> None:
    listed = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert listed == {page for page in pages if not page.startswith("decisions/0")}
    records = PAGES[ROOT / "docs" / "decisions" / "README.md"]
    assert all(f"({pathlib.Path(page).name})" in records for page in pages if page.startswith("decisions/0"))


@pytest.mark.slow
def test_the_site_is_built_and_loads_nothing_from_elsewhere(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("mkdocs", reason="needs pip install mkdocs")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "docs" / "api").mkdir(exist_ok=True)
    (tmp_path / "docs" / "api" / "index.html").touch()  # of pdoc
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    argv = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    with served(tmp_path / "build" / "site") as address, open_browser(tmp_path) as browser:
        for name in ("index.html", "gallery.html", "tasks/own_language.html"):
            opened = browser.open(f"{address}/{name}")
            assert not [line for line in opened.console if "error" in line.lower()]
            assert all(one.startswith(address) for one in opened.requests)
            for wide, dark in itertools.product((1280, 390), (False, True, False)):  # follows the system at each visit
                browser.open(f"{address}/{name}", wide=wide, dark=dark)
                assert browser.run("document.documentElement.scrollWidth") == wide
                red, *_ = map(int, re.findall(r"\d+", browser.run("getComputedStyle(document.body).backgroundColor")))
                assert (red < 64) == dark


@contextlib.contextmanager
def served(place: pathlib.Path) -> Iterator[str]:
    """The address of a directory, on this machine alone."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *words: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=place)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
