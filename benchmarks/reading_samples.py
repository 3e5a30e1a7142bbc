"""Print a random sample of functions and sentences of this checkout, for a reader who does not know the project.

    python benchmarks/reading_samples.py

Prints 25 functions, each as file and signature, and 100 sentences of docstrings, help texts and pages. The first eight
hex digits of the commit are the seed of the functions; this number plus 1 is the seed of the sentences. A reader who
does not know the project scores each function: 2 if file and signature are clear, 1 if they are partly clear, 0 if they
mislead. The reader marks each sentence that needs a second reading. docs/decisions/ has the results.
"""

import ast
import pathlib
import random
import subprocess
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.test_language import sentences, sentences_of_page  # noqa: E402

NUM_FUNCTIONS, NUM_SENTENCES = 25, 100
MIN_WORDS = 4  # of a sentence


def functions() -> Iterator[str]:
    """Yield file and signature of each function of the package, without special methods.

    A method stands as `Class.method`, and a function within a function as `outer.inner`.
    """
    for path in sorted((ROOT / "bert_jax").rglob("*.py")):
        for name, node in _named_functions(ast.parse(path.read_text(encoding="utf-8")), ""):
            node.body, node.decorator_list = [ast.Pass()], []
            signature = ast.unparse(node).partition(":\n    pass")[0]
            yield f"{path.relative_to(ROOT)}: def {name}{signature.removeprefix(f'def {node.name}')}"


def _named_functions(tree: ast.AST, scope: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield (qualified name, node) of each function below `tree`; `scope` is the name of `tree` itself."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("__"):
            yield f"{scope}{node.name}", node
        inner = f"{scope}{node.name}." if isinstance(node, ast.FunctionDef | ast.ClassDef) else scope
        yield from _named_functions(node, inner)


def all_sentences() -> Iterator[str]:
    """Yield file and sentence of each docstring, help text and page; decision records are left out."""
    for folder in ("bert_jax", "configs", "launch", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and (text := ast.get_docstring(node)):
                    yield from (
                        f"{path.relative_to(ROOT)}: {sentence}" for _, sentence in sentences(text, as_read=True)
                    )
    for path in sorted((ROOT / "tests/record/recorded/help").glob("*.txt")):
        for paragraph in path.read_text(encoding="utf-8").split("\n\n"):
            yield f"{path.relative_to(ROOT)}: {' '.join(paragraph.split())}"
    pages = [path for path in (ROOT / "docs").rglob("*.md") if not path.name[:4].isdecimal()]
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(pages)):
        yield from (
            f"{path.relative_to(ROOT)}: {sentence}"
            for _, sentence in sentences_of_page(path.read_text(encoding="utf-8"), as_read=True)
        )


def main() -> None:
    """Print both samples."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    seed = int(commit[:8], 16)
    longer = [text for text in all_sentences() if len(text.partition(": ")[2].split()) >= MIN_WORDS]
    print(f"commit {commit}")
    for title, seed_of, texts, count in (
        ("functions", seed, list(functions()), NUM_FUNCTIONS),
        ("sentences", seed + 1, longer, NUM_SENTENCES),
    ):
        print(f"{title}:")
        for index, text in enumerate(random.Random(seed_of).sample(texts, count), 1):
            print(f"{index}. {text}")


if __name__ == "__main__":
    main()
