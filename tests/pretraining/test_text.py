"""`config.data.text`: the same corpus as the verbs make, made once."""

import concurrent.futures
import dataclasses
import io
import os
import pathlib
import random
import signal
import subprocess
import time
from typing import Any

import pytest

from bert_jax.cli.main import main
from bert_jax.config import PretrainConfig, pretrain_config, resolve
from bert_jax.console import Console
from bert_jax.corpus.build.prepare import prepare
from bert_jax.corpus.manifest import read_manifest
from bert_jax.errors import UserError
from bert_jax.pretraining import background_preparation as rest
from bert_jax.pretraining.text import text_as_corpus
from bert_jax.tokenizer import load_tokenizer
from bert_jax.tokenizer.train import train_tokenizer
from tests.helpers.preparation import contents
from tests.helpers.preparation import text as make_text


def config(vocab_size: int | None = 50, **data: Any) -> PretrainConfig:
    made = pretrain_config()
    made.model.vocab_size = vocab_size
    made.data.update(data)
    return resolve(PretrainConfig, made)


def prepared(one: PretrainConfig) -> tuple[PretrainConfig, str]:
    out = io.StringIO()
    with text_as_corpus(one.data, one.model.vocab_size, Console(out)) as (data, _):
        return dataclasses.replace(one, data=data), out.getvalue()


@pytest.fixture
def text(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two files that a pattern names, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for number in range(2):
        sentences = make_text(random.Random(number), 40)
        (tmp_path / f"{number}.md").write_text(sentences, encoding="utf-8")
    return f"{tmp_path}/*.md"


def test_the_corpus_equals_the_corpus_of_the_verbs(text: str, tmp_path: pathlib.Path) -> None:
    """Byte for byte, with a tokenizer that is trained and with one that is given; both fields are gone."""
    text = f"{tmp_path}/0.md, {tmp_path}/1.md,"
    train_tokenizer([[f"{tmp_path}/*.md"]], 50, tmp_path / "tokenizer")
    for tokenizer in (None, str(tmp_path / "tokenizer")):
        found, _ = prepared(config(text=text, tokenizer=tokenizer))
        by_verbs = tmp_path / f"corpus_{bool(tokenizer)}"
        prepare([f"{tmp_path}/*.md"], tmp_path / "tokenizer", by_verbs)
        assert found.data.corpus is not None
        assert contents(pathlib.Path(found.data.corpus)) == contents(by_verbs)
        assert found == config(corpus=found.data.corpus)


def test_it_is_made_once_and_again_when_the_text_changes(text: str, tmp_path: pathlib.Path) -> None:
    first, said = prepared(config(text=text))
    again, said_again = prepared(config(text=text))
    assert again == first
    assert "learning 50 tokens" in said
    assert "was made before" in said_again
    assert "learning" not in said_again
    larger, _ = prepared(config(40, text=text))
    (tmp_path / "1.md").write_text("Other words, and no more than these.", encoding="utf-8")
    changed, said = prepared(config(text=text))
    assert len({first.data.corpus, larger.data.corpus, changed.data.corpus}) == 3
    assert "was made before" not in said


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"text": "a.txt", "corpus": "b"}, "give one of them"),
        ({"text": "absent/*.txt"}, r"absent/\*.txt: .*check config.data.text"),
        ({"text": ","}, "give files, directories, globs or python-docs with config.data.text"),
    ],
)
def test_refusals(data: dict[str, str], words: str, text: str) -> None:
    with pytest.raises(UserError, match=words):
        prepared(config(**data))


def test_a_short_text_fills_a_smaller_vocabulary_unless_the_config_names_its_size(text: str) -> None:
    found, said = prepared(config(None, text=text))
    assert found.data.corpus is not None
    size = load_tokenizer(pathlib.Path(found.data.corpus) / "tokenizer").vocab_size
    assert 40 < size < 8_192
    assert f"the text is short: its vocabulary has {size:,} tokens, not 8,192" in said
    with pytest.raises(
        UserError, match=rf"size={size + 1} is too large for the text; set config.model.vocab_size={size}$"
    ):
        prepared(config(size + 1, text=text))
    prepared(config(size, text=text))


def test_a_path_with_a_comma_is_one_file(text: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "0.md").rename(tmp_path / "0, 1.md")
    found, _ = prepared(config(text=f"{tmp_path}/0, 1.md"))
    assert found.data.corpus is not None
    assert read_manifest(pathlib.Path(found.data.corpus))["documents"]["in"] == 1


def test_a_signal_during_the_preparation_ends_it(text: str, tmp_path: pathlib.Path, monkeypatch, capsys) -> None:
    """The training itself records a signal, and looks after each step; the preparation has no steps."""

    def interrupted(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(30)

    monkeypatch.setattr("bert_jax.pretraining.text.prepare", interrupted)
    handler = signal.getsignal(signal.SIGINT)
    argv = ["pretrain", "--config=demo", f"--workdir={tmp_path / 'run'}", f"--config.data.text={text}"]
    assert main([*argv, "--config.model.vocab_size=50"]) == 130
    err = capsys.readouterr().err
    assert err.splitlines()[-1] == "bert-jax pretrain: interrupted"
    assert "the run stops after this step" not in err
    assert signal.getsignal(signal.SIGINT) is handler


def test_too_many_parts_are_refused_before_any_work(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    with (
        pytest.raises(UserError, match="the text has too few files for 3 parts"),
        text_as_corpus(config(text=text, snapshots=3).data, 50, Console(out)),
    ):
        pass
    assert "learning" not in out.getvalue()


def test_runs_that_begin_together_prepare_their_text_once(text: str) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        both = list(pool.map(lambda _: prepared(config(text=text)), range(2)))
    assert both[0][0] == both[1][0]
    assert sorted("was made before" in said for _, said in both) == [False, True]
    assert all("was made before" in said for _, said in both if "waiting for another run" in said)


def test_one_process_alone(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jax.process_count", lambda: 2)
    with pytest.raises(UserError, match="with one process only"):
        prepared(dataclasses.replace(config(text=text)))


@pytest.fixture
def long_text(text: str, tmp_path: pathlib.Path) -> str:
    """Files for three parts; each file is small, and so in one of them."""
    for number in range(40):
        sentences = make_text(random.Random(number), 20)
        (tmp_path / f"{number}.md").write_text(sentences, encoding="utf-8")
    return text


def is_alive(process_id: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        return "\nState:\tZ" not in pathlib.Path(f"/proc/{process_id}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that prepare the rest of a text, as they start."""
    found: list[int] = []

    class Recorded(subprocess.Popen):
        def __init__(self, *args: object, **keywords: object) -> None:
            super().__init__(*args, **keywords)
            found.append(self.pid)

    monkeypatch.setattr(rest.subprocess, "Popen", Recorded)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # no workers beside them
    return found


def test_the_rest_is_prepared_by_a_process_that_ends_with_the_block(long_text: str, started: list[int]) -> None:
    """The first part is there at once, and the config names its snapshot."""
    out = io.StringIO()
    data = config(text=long_text, snapshots=3).data
    with text_as_corpus(data, 40, Console(out)) as (found, preparation):
        assert found.corpus is not None
        corpus = pathlib.Path(found.corpus.partition("@")[0])
        manifest = read_manifest(corpus)
        assert found == config(corpus=f"{corpus}@{manifest['fingerprint'][:12]}", snapshots=3).data
        assert "6.2% of the text is prepared; the rest follows" in out.getvalue()
        assert manifest["documents"]["in"] == 3  # 40 / 16
        assert "sketches.npy" in contents(corpus)  # later parts put near copies of these documents into their split
        (child,) = started
        assert preparation.is_running()
        assert is_alive(child)
    assert not is_alive(child)


def test_a_broken_file_of_the_rest_is_an_error(long_text: str, tmp_path: pathlib.Path, started: list[int]) -> None:
    (tmp_path / "39.md").unlink()
    (tmp_path / "39.md.gz").write_bytes(b"no gzip")
    words = r"the rest of config\.data\.text cannot be prepared: .*39\.md\.gz: broken archive"
    data = config(text=f"{tmp_path}/*.md*", snapshots=2).data
    with text_as_corpus(data, 40, Console(silent=True)) as (_, preparation):
        os.waitid(os.P_PID, started[0], os.WEXITED | os.WNOWAIT)
        with pytest.raises(UserError, match=words):
            preparation.is_running()
