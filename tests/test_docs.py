"""Every Python snippet of README.md and docs/ runs."""

import pathlib
import re

import pytest

import bert_jax
from tests.tiny_models import save

ROOT = pathlib.Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = {page: page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))}
API = ROOT / "docs" / "api.md"


@pytest.mark.parametrize(
    "page", [page for page, text in PAGES.items() if FENCE.search(text)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_snippets_run(page: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one namespace, from top to bottom, beside the model directories `my-bert` and `my-classifier`."""
    save(tmp_path / "my-bert", "bert")
    save(tmp_path / "my-classifier", "bert", "ForSequenceClassification")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "snippet"}
    for match in FENCE.finditer(PAGES[page]):
        before = PAGES[page][: match.start("code")].count("\n")  # a traceback names the line of the page
        exec(compile("\n" * before + match["code"], str(page), "exec"), namespace)


def test_the_api_page_names_the_whole_api() -> None:
    missing = [name for name in bert_jax.__all__ if not re.search(rf"\b{name}\b", PAGES[API])]
    assert not missing
    assert FENCE.search(PAGES[API])
