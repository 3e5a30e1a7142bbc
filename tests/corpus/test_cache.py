"""Copies of a corpus from object storage: complete, checked, resumed, and made once per machine."""

import collections
import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from bert_jax.corpus import cache
from bert_jax.corpus.build.prepare import prepare
from bert_jax.corpus.cache import copy_corpus_to_cache
from bert_jax.corpus.manifest import verify_corpus
from bert_jax.corpus.mixture import open_mixture
from bert_jax.corpus.store import open_corpus
from bert_jax.errors import UserError
from bert_jax.readers import storage
from bert_jax.tokenizer import SPECIAL_TOKENS, Normalizer, save_tokenizer, wordpiece_tokenizer

fsspec = pytest.importorskip("fsspec")

WORDS = ["the", "cat", "dog", "sat", "on", "mat", "."]


def make_corpus(directory, documents):
    """Make a corpus, with its texts and tokenizer in the same directory."""
    texts = directory / "texts"
    texts.mkdir(parents=True)
    for number in range(documents):
        words = " ".join(WORDS[(number * 3 + k) % 6] for k in range(5 + number))
        (texts / f"{number:02}.txt").write_text(f"The {words}. The cat sat on the mat.")
    save_tokenizer(wordpiece_tokenizer([*SPECIAL_TOKENS, *WORDS], Normalizer()), directory / "tokenizer")
    options = {"heldout_fraction": 0.2, "deduplicate": "none"}
    prepare([str(texts)], directory / "tokenizer", directory / "corpus", workers=1, **options)
    return directory / "corpus"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("original"), 30)


@pytest.fixture
def source(original, tmp_path):
    """A copy of the corpus that a test may damage."""
    shutil.copytree(original, tmp_path / "bucket" / "wiki")
    return tmp_path / "bucket" / "wiki"


@pytest.fixture
def gets(monkeypatch):
    """How many times each file was copied."""
    counts = collections.Counter()
    get = storage.download

    def counting(url, path):
        counts[url.rsplit("/", 1)[-1]] += 1
        get(url, path)

    monkeypatch.setattr(storage, "download", counting)
    return counts


def contents(directory):
    """Return {relative path: bytes} of all files that training reads."""
    found = (path for path in directory.rglob("*") if path.is_file() and path.name != "signatures.npy")
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def flip(path, where):
    data = bytearray(path.read_bytes())
    data[int(len(data) * where)] ^= 1
    path.write_bytes(data)


def in_memory(directory):
    """Copy the directory into fsspec's memory:// file system and return its URL."""
    files = fsspec.filesystem("memory")
    files.put(str(directory), "/bucket/wiki", recursive=True)
    return "memory://bucket/wiki"


def test_a_local_corpus_is_read_where_it_is(source, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert [corpus.directory for corpus in open_mixture(str(source)).corpora] == [source]
    with pytest.raises(UserError, match="/nowhere/at/all: no such corpus directory"):
        open_mixture("/nowhere/at/all")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("url", [lambda path: f"file://{path}", lambda path: f"file://{path}/", in_memory])
def test_a_copy_is_the_corpus(url, source, tmp_path, gets):
    lines = []
    copy = copy_corpus_to_cache(url(source), tmp_path / "cache", lines.append)
    assert contents(copy) == contents(source)
    found = open_corpus(copy)
    assert verify_corpus(found.directory) == []
    assert found.fingerprint == open_corpus(source).fingerprint
    assert copy.name.startswith("wiki-")
    assert set(gets.values()) == {1}
    assert len(lines) == 1
    assert copy_corpus_to_cache(url(source), tmp_path / "cache", lines.append) == copy
    assert set(gets.values()) == {1}
    assert len(lines) == 1


def test_the_users_cache_is_the_default(source, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    copy = copy_corpus_to_cache(f"file://{source}")
    assert copy.parent == tmp_path / "own" / "bert_jax" / "corpora"


def test_damage_in_the_copy_is_found_and_repaired(source, tmp_path, gets):
    copy = copy_corpus_to_cache(f"file://{source}", tmp_path / "cache")
    files = sorted(contents(source))
    assert len(files) >= 6
    for name in files:
        for damage in (os.unlink, lambda path: flip(path, 0.5), lambda path: os.truncate(path, 1)):
            damage(copy / name)
            gets.clear()
            assert copy_corpus_to_cache(f"file://{source}", tmp_path / "cache") == copy
            assert contents(copy) == contents(source)
            assert set(gets) == {pathlib.Path(name).name} - {"manifest.json"}


def test_damage_at_the_source_is_refused_by_name(original, tmp_path):
    for number, name in enumerate(sorted(contents(original))):
        source, cache = tmp_path / f"bucket-{number}" / "wiki", tmp_path / f"cache-{number}"
        shutil.copytree(original, source)
        if name == "manifest.json":
            manifest = json.loads((source / name).read_text())
            manifest["splits"]["train"]["index"]["sha256"] = "0" * 64
            (source / name).write_text(json.dumps(manifest))
        elif name.endswith(".json"):  # of the tokenizer: other settings or another vocabulary
            (source / name).write_text((source / name).read_text().replace("true", "false").replace("cat", "cow"))
        elif name.startswith("tokenizer/"):
            continue  # the same vocabulary again
        else:
            flip(source / name, 0.3)
        with pytest.raises(UserError, match=name.split("/")[0]):
            copy_corpus_to_cache(f"file://{source}", cache)
        for copy in cache.glob("wiki-*"):
            with pytest.raises(UserError, match="not a corpus"):
                open_corpus(copy)
            assert "/" in name or not (copy / name).exists()


def test_a_url_without_a_corpus_is_refused(source, tmp_path):
    with pytest.raises(UserError, match="nowhere"):
        copy_corpus_to_cache(f"file://{tmp_path}/nowhere", tmp_path / "cache")
    manifest = json.loads((source / "manifest.json").read_text())
    shard = manifest["splits"]["train"]["shards"][0]
    for text in ("", "[]", "{}", "{", json.dumps({**manifest, "splits": 3})):
        (source / "manifest.json").write_text(text)
        with pytest.raises(UserError, match=r"wiki/manifest.json: not the manifest"):
            copy_corpus_to_cache(f"file://{source}", tmp_path / "cache")
    shard["name"] = "../../elsewhere"  # a name outside the cache
    (source / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=r"wiki/manifest.json: not the manifest"):
        copy_corpus_to_cache(f"file://{source}", tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_corpus_that_was_prepared_again_is_another_copy(source, tmp_path):
    first = copy_corpus_to_cache(f"file://{source}", tmp_path / "cache")
    shutil.rmtree(source)
    shutil.move(make_corpus(tmp_path / "again", 20), source)
    second = copy_corpus_to_cache(f"file://{source}", tmp_path / "cache")
    assert first != second
    assert contents(second) == contents(source)


def test_a_full_disk_is_reported_before_anything_is_copied(source, tmp_path, gets, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda path: usage._replace(free=10))
    with pytest.raises(UserError, match="10 bytes free"):
        copy_corpus_to_cache(f"file://{source}", tmp_path / "cache")
    assert not gets


def process(source, cache, prelude):
    """Start a process that stages the corpus after `prelude`, which may change `storage`."""
    code = textwrap.dedent(prelude) + textwrap.dedent(
        """
        import sys
        from bert_jax.corpus.cache import copy_corpus_to_cache
        print(copy_corpus_to_cache(sys.argv[1], sys.argv[2]))
        """
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, f"file://{source}", str(cache)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("moment", range(4))
def test_a_killed_copy_is_no_corpus_and_is_resumed(moment, source, tmp_path, gets):
    """The process is killed in the middle of a file, after `moment` complete files."""
    prelude = f"""
        import os, pathlib, signal
        from bert_jax.corpus import cache
        from bert_jax.readers import storage
        cache.FILES_AT_ONCE = 1
        copied, get = [], storage.download
        def dying(url, path):
            if len(copied) == {moment}:
                pathlib.Path(path).write_bytes(b"half")
                os.kill(os.getpid(), signal.SIGKILL)
            get(url, path)
            copied.append(path)
        storage.download = dying
        """
    killed = process(source, tmp_path / "cache", prelude)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    (half,) = (tmp_path / "cache").glob("wiki-*")
    with pytest.raises(UserError, match="not a corpus"):
        open_corpus(half)
    whole = {path.name for path in half.iterdir() if not path.name.startswith(".")}
    assert len(whole) == moment
    copy = copy_corpus_to_cache(f"file://{source}", tmp_path / "cache")
    assert copy == half
    assert contents(copy) == contents(source)
    assert not set(gets) & whole


def test_concurrent_processes_copy_once(source, tmp_path):
    log = tmp_path / "log"
    prelude = f"""
        import time
        from bert_jax.readers import storage
        get = storage.download
        def slow(url, path):
            with open({str(log)!r}, "a") as file:
                file.write(url + "\\n")
            time.sleep(0.2)
            get(url, path)
        storage.download = slow
        """
    processes = [process(source, tmp_path / "cache", prelude) for _ in range(3)]
    places = {process.communicate()[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    (place,) = places
    assert contents(pathlib.Path(place)) == contents(source)
    copied = collections.Counter(log.read_text().split())
    assert set(copied.values()) == {1}
    assert len(copied) == len(contents(source)) - 1  # the manifest is read, not copied


def test_a_slow_copy_is_reported_by_the_process_that_copies_and_by_those_that_wait(source, tmp_path, monkeypatch):
    """And one that hangs is not, so that a watchdog ends it."""
    monkeypatch.setattr(cache, "PAUSE", 0.02)
    monkeypatch.setattr(cache, "FILES_AT_ONCE", 1)
    download, seen = storage.download, collections.defaultdict(list)

    def slow(url, path):
        time.sleep(0.2)
        download(url, path)

    monkeypatch.setattr(storage, "download", slow)

    def copy(name):
        return copy_corpus_to_cache(source.as_uri(), tmp_path / "cache", progress=lambda *line: seen[name].append(line))

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first, second = pool.map(copy, ("one", "two"))
    assert first == second
    size = sum(path.stat().st_size for path in first.glob("*.arrayrecord"))
    for lines in seen.values():
        assert {line[0] for line in lines} == {"copying the corpus"}
        assert {line[2] for line in lines} == {size // 10**6}
        assert 2 <= len(lines) <= 3 * len(list(first.rglob("*")))
    assert set(seen) == {"one", "two"}
