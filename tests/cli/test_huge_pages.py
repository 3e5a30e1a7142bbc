"""The restart of a training with huge pages."""

import os
import pathlib
import sys

import pytest

from bert_jax import __main__ as program

ASKED, ALWAYS = "always [madvise] never", "[always] madvise never"
WORDS = ["--config=demo"]


class Restarted(Exception):
    """Ends a process in place of `os.execve`."""


@pytest.fixture
def start(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    """A function that runs the command line in an environment, up to its restart; it returns program, words, variables.

    The result is None without a restart.
    """
    started: list[tuple[str, list[str], dict[str, str]]] = []

    def execve(*arguments) -> None:
        started.append(arguments)
        raise Restarted

    def run(setting: str | None, environment: dict[str, str], words: list[str], python_words: list[str]):
        file = tmp_path / "enabled"
        file.write_text(setting + "\n") if setting else file.unlink(missing_ok=True)
        monkeypatch.setattr(program._restart_with_huge_pages, "__defaults__", (str(file),))
        monkeypatch.setattr(program, "_open_standard_streams", lambda: sys.exit("no restart"))  # ends `run`
        monkeypatch.setattr(os, "environ", dict(environment))
        monkeypatch.setattr(os, "execve", execve)
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.setattr(sys, "argv", ["bert-jax", *words])
        monkeypatch.setattr(sys, "orig_argv", ["python", *python_words])
        started.clear()
        with pytest.raises((Restarted, SystemExit)):
            program.run()
        return started[0] if started else None

    return run


@pytest.mark.parametrize("verb", ["pretrain", "finetune"])
@pytest.mark.parametrize("module", [["-X", "utf8", "bin/bert-jax"], ["-m", "bert_jax"], ["-c", "import bert_jax"]])
def test_a_training_restarts_once_where_programs_must_ask_for_huge_pages(start, verb, module) -> None:
    """In the environment of the first start: `python -m` must find the same package again."""
    words = [verb, *WORDS]
    executable, python_words, environment = start(ASKED, {"HOME": "/"}, words, module + words)
    assert (executable, python_words) == (sys.executable, [sys.executable, *module, *words])
    assert environment.pop("GLIBC_TUNABLES") == "glibc.malloc.hugetlb=1"
    assert start(ASKED, environment, words, module + words) is None, "glibc may remove GLIBC_TUNABLES"
    del environment[program.RESTARTED]
    assert environment == {"HOME": "/"}


@pytest.mark.parametrize(
    ("words", "setting", "environment"),
    [
        (["predict", *WORDS], ASKED, {}),
        ([], ASKED, {}),
        (["pretrain", *WORDS], ALWAYS, {}),
        (["pretrain", *WORDS], None, {}),
        (["pretrain", *WORDS], ASKED, {"GLIBC_TUNABLES": "glibc.malloc.check=1"}),
    ],
)
def test_other_programs_do_not_restart(start, words, setting, environment) -> None:
    assert start(setting, environment, words, ["-m", "bert_jax", *words]) is None


@pytest.mark.parametrize("python_words", [["-m", "pytest"], ["-c", "program", "[]"], ["train.py", "pretrain"], []])
def test_a_program_that_runs_a_training_is_not_started_again(start, python_words) -> None:
    """A program that sets `sys.argv`, or a notebook, would lose its state, and begin again."""
    assert start(ASKED, {}, ["pretrain", *WORDS], python_words) is None
