"""Break lines of the package, one after the other: do the tests of two commits notice each broken line?

    git worktree add ../old OLD_COMMIT && git worktree add ../new NEW_COMMIT
    python benchmarks/mutations.py ../old ../new --lines 30 --output mutations.jsonl

The lines are drawn at random from the lines that both checkouts have; the hash of the new commit is the seed. In each
checkout, one line at a time is broken: a comparison, a sum, a condition or a constant is changed. The tests that name
the module run first, then the tests of its package, then all tests, until a test fails. Each line of the output file
names a broken line of code and, for each checkout, the test that failed, or "" if no test failed. A second call skips
the lines that the output file has. The script changes the checkouts while it runs, so give it copies.
"""

import argparse
import ast
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
COMPARISONS |= {ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is}
OPERATIONS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult}


class Change(NamedTuple):
    """Position of a node of a file's syntax tree, and the text that replaces the node."""

    line: int
    begin: int
    end: int
    text: str


def changes_of(source: str) -> Iterator[Change]:
    """Yield each way to break a line of a module; docstrings, annotations and messages are not changed."""
    tree = ast.parse(source)
    annotations = {
        id(inner)
        for node in ast.walk(tree)
        for field in ("annotation", "returns")
        for inner in ast.walk(getattr(node, field, None) or ast.Pass())
    }
    for node in ast.walk(tree):
        if id(node) in annotations or not isinstance(node, ast.expr) or node.lineno != node.end_lineno:
            continue
        broken = _broken(node)
        if broken is not None and node.end_col_offset is not None:
            yield Change(node.lineno, node.col_offset, node.end_col_offset, f"({ast.unparse(broken)})")


def _broken(node: ast.expr) -> ast.expr | None:
    """Return a changed expression with another value, or None if no rule changes this expression."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        return ast.Compare(node.left, [COMPARISONS[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return ast.BinOp(node.left, OPERATIONS[type(node.op)](), node.right)
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    if isinstance(node, ast.IfExp):
        return ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        return ast.Constant(not node.value)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return ast.Constant(node.value + 1)
    return None


def draw(old: pathlib.Path, new: pathlib.Path, count: int) -> list[tuple[str, str, Change]]:
    """Return (file, text of the line, change of the new file) of `count` lines that both checkouts have once."""
    candidates = []
    for path in sorted((new / "bert_jax").rglob("*.py")):
        name = path.relative_to(new).as_posix()
        lines = path.read_text(encoding="utf-8").splitlines()
        before = (old / name).read_text(encoding="utf-8").splitlines() if (old / name).is_file() else []
        candidates += [
            (name, lines[change.line - 1], change)
            for change in changes_of("\n".join(lines))
            if lines.count(lines[change.line - 1]) == 1 == before.count(lines[change.line - 1])
        ]
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=new, text=True).strip()
    return random.Random(commit).sample(candidates, count)


def failing_test(checkout: pathlib.Path, name: str, line: str, change: Change, seconds: float) -> str:
    """Break the line, run the tests, and restore it; return the first test that fails, or "" if no test fails."""
    path = checkout / name
    source = path.read_bytes()
    broken = line.encode()[: change.begin] + change.text.encode() + line.encode()[change.end :]
    module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    package = checkout / "tests" / module.split(".")[1]
    tests = sorted((checkout / "tests").rglob("test_*.py"))
    naming = [test for test in tests if module in test.read_text(encoding="utf-8")]
    ordered = dict.fromkeys([*naming, *(test for test in tests if package in test.parents), *tests])
    try:
        path.write_bytes(source.replace(line.encode(), broken))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *map(str, ordered)]
        done = subprocess.run(
            command,
            cwd=checkout,
            env=os.environ | {"PYTHONPATH": str(checkout)},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not within {seconds:.0f} s"
    finally:
        path.write_bytes(source)
    failed = [text for text in done.stdout.splitlines() if text.startswith(("FAILED", "ERROR"))]
    return failed[0] if failed else "" if done.returncode == 0 else f"status {done.returncode}"


def main() -> None:
    """Break each drawn line that the output file does not have yet."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("old", type=pathlib.Path)
    arguments.add_argument("new", type=pathlib.Path)
    arguments.add_argument("--lines", type=int, default=30)
    arguments.add_argument("--seconds", type=float, default=3600.0, help="limit for the tests of a line")
    arguments.add_argument("--output", type=pathlib.Path, required=True)
    options = arguments.parse_args()
    written = options.output.read_text().splitlines() if options.output.exists() else []
    done = {json.loads(text)["id"] for text in written}
    for name, line, change in draw(options.old, options.new, options.lines):
        key = hashlib.sha256(f"{name}:{change}".encode()).hexdigest()[:12]
        if key in done:
            continue
        result = {
            side: failing_test(checkout, name, line, change, options.seconds)
            for side, checkout in (("old", options.old), ("new", options.new))
        }
        record = {"id": key, "file": name, "line": change.line, "code": line.strip(), "change": change.text, **result}
        with open(options.output, "a") as file:
            file.write(json.dumps(record) + "\n")
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
