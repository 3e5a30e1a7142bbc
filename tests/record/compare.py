"""Recorded values as files, and comparisons of values with the recorded values."""

import difflib
import json
import os
import pathlib
from collections.abc import Iterable
from typing import Any

import pytest

from tests.record.values import differences

RECORDED = pathlib.Path(__file__).parent / "recorded"
WRITE = "BERT_JAX_WRITE_RECORD"  # the environment variable that `python -m tests.record` sets
MEASURED = ("pretraining", "finetuning", "answers")  # whose floats are compared with a tolerance
MOST_LINES = 20
ANEW = "on purpose? write the record anew: python -m tests.record -k"


def check(part: str, entry: str, found: Any) -> None:
    """Fail where a value differs from the recorded one; `python -m tests.record` writes it instead."""
    found = json.loads(json.dumps(found), parse_float=_rounded if part in MEASURED else float)
    recorded = read(part)
    if os.environ.get(WRITE):
        write(part, recorded | {entry: found})
        return
    lines = differences(recorded[entry], found, f"{part}/{entry}") if entry in recorded else [f"{entry} is new"]
    if lines:
        more = [f"... and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
        told = "\n  ".join([*lines[:MOST_LINES], *more])
        pytest.fail(f"recorded/{part}.json differs:\n  {told}\n{ANEW} {part}", pytrace=False)


def check_texts(part: str, found: dict[str, str]) -> None:
    """Likewise of texts, a file each."""
    place = RECORDED / part
    recorded = {path.stem: path.read_text(encoding="utf-8") for path in place.glob("*.txt")}
    if os.environ.get(WRITE):
        for name in recorded.keys() - found.keys():
            (place / f"{name}.txt").unlink()
        place.mkdir(parents=True, exist_ok=True)
        for name, text in found.items():
            (place / f"{name}.txt").write_text(text, encoding="utf-8")
        return
    for name in sorted(recorded.keys() | found.keys()):
        old, new = recorded.get(name, "").splitlines(), found.get(name, "").splitlines()
        if new != old:
            told = "\n  ".join(list(difflib.unified_diff(old, new, "recorded", "today", n=0, lineterm=""))[:MOST_LINES])
            pytest.fail(f"recorded/{part}/{name}.txt differs:\n  {told}\n{ANEW} {part}", pytrace=False)


def check_entries(part: str, entries: Iterable[str]) -> None:
    """No entry is recorded that nothing checks any more."""
    recorded, wanted = read(part), set(entries)
    if os.environ.get(WRITE):
        write(part, {name: value for name, value in recorded.items() if name in wanted})
        return
    stale = sorted(recorded.keys() - wanted)
    assert not stale, f"recorded/{part}.json has {', '.join(stale)}, which is gone; {ANEW} {part}"


def _rounded(number: str) -> float:
    return float(f"{float(number):.9g}")


def read(part: str) -> dict[str, Any]:
    path = RECORDED / f"{part}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write(part: str, values: dict[str, Any]) -> None:
    """Write JSON whose small objects and lists take one line each."""
    RECORDED.mkdir(exist_ok=True)
    values = dict(sorted(values.items()))
    (RECORDED / f"{part}.json").write_text(_text(values) + "\n", encoding="utf-8")


def _text(value: Any, indent: int = 0) -> str:
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict) or not value or len(flat) + indent <= 110:
        return flat
    space = " " * (indent + 1)
    inner = [f"{space}{json.dumps(key)}: {_text(one, indent + 1)}" for key, one in value.items()]
    return "{\n" + ",\n".join(inner) + "\n" + " " * indent + "}"
