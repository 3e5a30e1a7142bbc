"""The Python snippets of the pages run: all of docs/api.md, elsewhere those whose fence says `python runnable`."""

import pathlib
import re

import pytest

from tests.tiny_models import save

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(?P<info>python[^\n]*)\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)


def snippets(page: pathlib.Path) -> list[tuple[int, str]]:
    """Line number and code of the snippets of a page that are run."""
    text = page.read_text(encoding="utf-8")
    return [
        (text[: match.start("code")].count("\n"), match["code"])
        for match in FENCE.finditer(text)
        if page.name == "api.md" or "runnable" in match["info"].split()
    ]


WITH_SNIPPETS = [page for page in PAGES if snippets(page)]


def test_the_api_page_has_snippets() -> None:
    assert ROOT / "docs" / "api.md" in WITH_SNIPPETS


@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=lambda page: str(page.relative_to(ROOT)))
def test_snippets_run(page: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one namespace, from top to bottom, beside the model directories `my-bert` and `my-classifier`."""
    save(tmp_path / "my-bert", "bert")
    save(tmp_path / "my-classifier", "bert", "ForSequenceClassification")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "snippet"}
    for line, code in snippets(page):
        # Blank lines before it, so that a traceback names the line of the page.
        exec(compile("\n" * line + code, str(page), "exec"), namespace)
