"""A choice is a row of a table: no code outside the table compares the field that names the row with a string."""

import ast
import pathlib
from collections.abc import Iterator

import pytest

from bert_jax.config import FinetuneConfig, PretrainConfig, fields_of, table_of_field

ROOT = pathlib.Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "bert_jax").rglob("*.py"))
FIELDS = {key: field for kind in (PretrainConfig, FinetuneConfig) for key, field, _ in fields_of(kind)}
CHOSEN = {key: field for key, field in FIELDS.items() if field.metadata["table"]}
# Field name -> the modules of its tables, and their keys.
TABLES = {
    name: (
        {field.metadata["table"].rpartition(".")[0] for field in CHOSEN.values() if field.name == name},
        {row for field in CHOSEN.values() if field.name == name for row in table_of_field(field)},
    )
    for name in {field.name for field in CHOSEN.values()}
}
# Names that other things have too: only a comparison with a row of the table counts.
COMMON_NAMES = {"name", "kind"}


def strings(node: ast.AST) -> Iterator[str]:
    """The string constants that a comparison compares with, alone or in a collection."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for element in node.elts:
            yield from strings(element)
    elif isinstance(node, ast.Call):  # frozenset({"a", "b"})
        for argument in node.args:
            yield from strings(argument)


def comparisons(tree: ast.AST) -> Iterator[tuple[int, list[ast.AST], list[str]]]:
    """(line, expressions, strings compared with them) of each comparison and match statement."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            yield node.lineno, sides, [text for side in sides for text in strings(side)]
        elif isinstance(node, ast.Match):
            patterns = [
                part.value for case in node.cases for part in ast.walk(case) if isinstance(part, ast.MatchValue)
            ]
            yield node.lineno, [node.subject], [text for part in patterns for text in strings(part)]


def variants_in(source: str, module: str) -> list[str]:
    """The comparisons in a module of a field that names a row, with a string, but for the module of the table."""
    found = []
    for line, sides, texts in comparisons(ast.parse(source)):
        for side in sides:
            name = side.attr if isinstance(side, ast.Attribute) else side.id if isinstance(side, ast.Name) else None
            if name not in TABLES or module in TABLES[name][0]:
                continue
            any_string = isinstance(side, ast.Attribute) and name not in COMMON_NAMES
            if any(any_string or text in TABLES[name][1] for text in texts):
                found.append(f"{module}:{line}: {ast.unparse(side)} is compared with {', '.join(map(repr, texts))}")
    return found


def module_of(path: pathlib.Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_every_table_has_its_default() -> None:
    for key, field in CHOSEN.items():
        assert field.default is None or field.default in table_of_field(field), key


def test_no_variant_is_an_if() -> None:
    found = [line for path in FILES for line in variants_in(path.read_text(encoding="utf-8"), module_of(path))]
    assert not found, "\n".join(found)


PLANTED = [
    'if self.config.family == "roberta":',
    'if "roberta" != config.family:',
    'if config.family in ("roberta", "albert"):',
    'if family in {"roberta"}:',
    'if config.positions not in frozenset({"learned"}):',
    'if config.optimizer.name == "lamb":',
    'match config.model.norm:\n            case "layer_norm" | "another":\n                pass\n        if True:',
]


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_variant_is_found(planted: str) -> None:
    path = ROOT / "bert_jax" / "models" / "encoder.py"
    source, place = path.read_text(encoding="utf-8"), "        config, dtype = self.config, self.dtype\n"
    assert source.count(place) == 1
    text = source.replace(place, f"{place}        {planted}\n            pass\n")
    assert len(variants_in(text, module_of(path))) == 1
    assert not variants_in(source, module_of(path))


def test_other_comparisons_are_left_alone() -> None:
    for line in (
        'head.name == "masked_token"',
        "config.family in FAMILIES",
        "config.family == other",
        'x == "roberta"',
    ):
        assert not variants_in(line, "bert_jax.models.encoder"), line
    assert not variants_in('config.attention == "xla"', "bert_jax.models.attention")
