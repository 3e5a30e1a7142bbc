"""The restart of a training with huge pages."""

import os
import pathlib
import sys

import pytest

from bert_jax.__main__ import _restart_with_huge_pages


@pytest.mark.parametrize(
    ("verb", "setting", "environment", "restarts"),
    [
        ("pretrain", "always [madvise] never", {}, True),
        ("finetune", "always [madvise] never", {}, True),
        ("predict", "always [madvise] never", {}, False),
        ("pretrain", "[always] madvise never", {}, False),
        ("pretrain", None, {}, False),
        ("pretrain", "always [madvise] never", {"GLIBC_TUNABLES": "glibc.malloc.check=1"}, False),
    ],
)
def test_a_training_restarts_once_where_programs_must_ask_for_huge_pages(
    verb: str,
    setting: str | None,
    environment: dict[str, str],
    restarts: bool,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[tuple[str, list[str]]] = []
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "execv", lambda program, words: started.append((program, words)))
    monkeypatch.setattr(sys, "argv", ["bert-jax", verb, "--config=demo"])
    monkeypatch.setattr(sys, "orig_argv", ["python", "-X", "utf8", "bin/bert-jax", verb, "--config=demo"])
    file = tmp_path / "enabled"
    if setting:
        file.write_text(setting + "\n")
    for _ in range(2):  # the second call is that of the restarted program
        _restart_with_huge_pages(str(file))
    restart = (sys.executable, [sys.executable, "-X", "utf8", "bin/bert-jax", verb, "--config=demo"])
    assert started == [restart] * restarts
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
