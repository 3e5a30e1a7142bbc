"""The bytes of `prepare`: on Beam's local runners, through its job server, and after failures."""

import collections
import gzip
import json
import os
import pathlib
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error

import pytest

pytest.importorskip("apache_beam")

import fsspec
from apache_beam.options.pipeline_options import PipelineOptions

from bert_jax.corpus.beam import pipeline, records
from bert_jax.corpus.beam import prepare as with_beam
from bert_jax.corpus.beam.prepare import prepare_with_beam
from bert_jax.corpus.build import chunks
from bert_jax.corpus.build.prepare import prepare
from bert_jax.corpus.cache import copy_corpus_to_cache
from bert_jax.corpus.manifest import verify_corpus
from bert_jax.corpus.store import open_corpus
from bert_jax.errors import StorageError, UserError
from bert_jax.readers import ReadOptions, storage
from bert_jax.tokenizer import SPECIAL_TOKENS, Normalizer, save_tokenizer, wordpiece_tokenizer
from tests.beam.runners import IN_MEMORY, RETRYING, RUNNERS, processes
from tests.beam.small_chunks import small_chunks
from tests.helpers.preparation import contents

pytestmark = [pytest.mark.beam, pytest.mark.filterwarnings("default")]  # warnings of Beam itself

WORDS = ["the", "##s", "cat", "dog", "sat", "on", "mat", ".", "a", "##t"]
HELDOUT = 0.2


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(wordpiece_tokenizer([*SPECIAL_TOKENS, *WORDS], Normalizer()), directory)
    return directory


def text(rng):
    words = ["the", "cats", "Dogs", "sat", "on", "mat", "[SEP]", "zebra", "at", "the"]
    return " ".join(" ".join(rng.choices(words, k=rng.randint(1, 30))).capitalize() + "." for _ in range(40))


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """Small and large files, compressed ones, a document in pieces, and some to be rejected."""
    directory = tmp_path_factory.mktemp("texts")
    rng = random.Random(0)
    for number in range(30):
        (directory / f"{number:02}.txt").write_text("\n\n".join(text(rng) for _ in range(rng.randint(1, 3))))
    lines = [json.dumps({"text": text(rng)}) for _ in range(60)]
    (directory / "lines.jsonl").write_text("\n".join([*lines, '{"text": 3}', "{", '{"text": "\\u200b"}']))
    with gzip.open(directory / "packed.jsonl.gz", "wt") as file:
        file.write("\n".join(json.dumps({"text": text(rng)}) for _ in range(40)))
    (directory / "pieces.txt").write_text("\n\n".join(text(rng) for _ in range(40)))
    (directory / "binary.txt").write_bytes(b"\0\1")
    (directory / "latin.txt").write_bytes(b"caf\xe9")
    (directory / "nothing.txt").write_bytes(b"")
    return directory


@pytest.fixture(scope="session")
def local(texts, tokenizer, tmp_path_factory):
    """The corpus that `prepare` makes of the texts."""
    place = tmp_path_factory.mktemp("local") / "corpus"
    manifest = prepare([str(texts)], tokenizer, place, workers=1, heldout_fraction=HELDOUT)
    splits = manifest["splits"]
    assert len(splits["train"]["shards"]) > 10
    assert len(splits["heldout"]["shards"]) > 3
    assert manifest["documents"] == {
        "in": 30 + 63 + 40 + 1 + 3,
        "stored": 30 + 60 + 40 + 1,
        "rejected": {"binary": 1, "broken JSON": 1, "empty": 1, "invalid UTF-8": 1, "no tokens": 1, "not a text": 1},
    }
    return place


def run(texts, tokenizer, output, options):
    return prepare_with_beam([str(texts)], tokenizer, output, heldout_fraction=HELDOUT, beam_options=options)


@pytest.mark.parametrize("options", RUNNERS.values(), ids=RUNNERS)
def test_every_runner_makes_the_bytes_of_prepare(options, texts, tokenizer, local, tmp_path):
    manifest = run(texts, tokenizer, tmp_path / "corpus", options)
    assert contents(tmp_path / "corpus") == contents(local)
    found = open_corpus(tmp_path / "corpus")
    assert verify_corpus(found.directory) == []
    assert found.manifest == manifest


@pytest.fixture
def started(tmp_path):
    """Starts a module of Beam as a process; ended after the test."""
    children = []
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]  # the worker pool calls `python`

    def start(module, *arguments):
        with open(tmp_path / f"{module}.log", "w") as log:
            command = [sys.executable, "-m", module, *arguments]
            children.append(
                subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "PATH": path})
            )

    yield start
    for child in children:
        child.terminate()
        child.wait()


def waited_for(ready):
    deadline = time.monotonic() + 60
    while not (found := ready()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def listens(port):
    with socket.socket() as caller:
        return caller.connect_ex(("localhost", port)) == 0


@pytest.mark.parametrize("pool", [False, True], ids=["loopback", "worker pool"])
def test_a_job_server_makes_the_same_corpus(pool, started, texts, tokenizer, local, tmp_path):
    """The protocol of Flink and Spark: a job server that takes the pipeline, and workers that it calls."""
    port_file = tmp_path / "port"
    started("apache_beam.runners.portability.local_job_service_main", "--port_file", str(port_file))
    port = waited_for(lambda: port_file.exists() and port_file.read_text())
    options = ["--runner=PortableRunner", f"--job_endpoint=localhost:{port}", "--environment_type=LOOPBACK"]
    if pool:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            pool_port = free.getsockname()[1]
        started("apache_beam.runners.worker.worker_pool_main", f"--service_port={pool_port}")
        waited_for(lambda: listens(pool_port))
        options[-1:] = ["--environment_type=EXTERNAL", f"--environment_config=localhost:{pool_port}"]
    run(texts, tokenizer, tmp_path / "corpus", options)
    assert contents(tmp_path / "corpus") == contents(local)


def test_chunks_may_come_in_any_order(texts, tokenizer, local, tmp_path, monkeypatch):
    def shuffled(*arguments):
        found = list(small_chunks(*arguments))
        random.Random(1).shuffle(found)
        return iter(found)

    monkeypatch.setattr(chunks, "read_chunks", shuffled)
    run(texts, tokenizer, tmp_path / "corpus", RETRYING)
    assert contents(tmp_path / "corpus") == contents(local)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_failed_work_is_repeated(after, texts, tokenizer, local, tmp_path, monkeypatch):
    """One shard fails three times, an index twice, the manifest once, before or after its file was uploaded."""
    failures = {"train-00003": 3, "heldout.index": 2, "manifest": 1}
    tries = collections.Counter()
    put, lock = storage.upload, threading.Lock()

    def failing(path, url):
        with lock:
            tries[url] += 1
            attempt = tries[url]
        fails = any(name in url and attempt <= number for name, number in failures.items())
        if after or not fails:
            put(path, url)
        if fails:
            raise OSError("the network is away")

    monkeypatch.setattr(storage, "upload", failing)
    run(texts, tokenizer, tmp_path / "corpus", RETRYING)
    assert contents(tmp_path / "corpus") == contents(local)
    assert max(tries.values()) == 4


def test_object_storage_in_and_out(texts, tokenizer, local, tmp_path):
    """Inputs at a URL, the output at a URL, and the corpus staged from there; memory:// stands in for a bucket."""
    files = fsspec.filesystem("memory")
    files.put(str(texts), "/bucket/texts", recursive=True)
    inputs, output = "memory://bucket/texts", "memory://bucket/corpora/small"
    manifest = prepare_with_beam([inputs], tokenizer, output, heldout_fraction=HELDOUT, beam_options=IN_MEMORY)
    prepare([inputs], tokenizer, tmp_path / "local", workers=1, heldout_fraction=HELDOUT)
    copy, wanted = copy_corpus_to_cache(output, tmp_path / "cache"), contents(tmp_path / "local")
    signatures = wanted.pop("signatures.npy")  # training reads none
    assert contents(copy) == wanted
    assert files.cat("/bucket/corpora/small/signatures.npy") == signatures
    assert open_corpus(copy).manifest == manifest
    with pytest.raises(UserError, match="not empty, it holds"):
        prepare_with_beam([inputs], tokenizer, output, beam_options=IN_MEMORY)


@pytest.mark.parametrize("options", [IN_MEMORY, RETRYING, processes(2)], ids=["in memory", "retrying", "processes"])
def test_an_error_on_a_worker_is_reported_in_a_line(options, texts, tokenizer, tmp_path):
    directory = tmp_path / "broken"
    directory.mkdir()
    (directory / "a.txt").write_text("The cat sat.")
    packed = gzip.compress(b"The cat sat on the mat. " * 1000)
    (directory / "b.txt.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(UserError) as refused:
        run(directory, tokenizer, tmp_path / "corpus", options)
    assert str(refused.value).startswith(f"{directory / 'b.txt.gz'}: broken archive")
    assert str(refused.value).endswith(f"\n{tmp_path / 'corpus'}: incomplete; remove it before the next try")
    assert str(refused.value).count("\n") == 1
    with pytest.raises(UserError, match="not a corpus"):
        open_corpus(tmp_path / "corpus")


def test_nothing_to_train_on_is_refused(tokenizer, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(UserError, match="0 of 1 documents could be used: 1 empty"):
        run(tmp_path / "empty.txt", tokenizer, tmp_path / "corpus", IN_MEMORY)


def test_bad_arguments_are_refused_before_anything_is_written(texts, tokenizer, tmp_path, capfd):
    output = tmp_path / "corpus"
    for options in (["--runner=Nonsense"], ["--runner=DirectRunner", "--direct_num_workers=many"]):
        with pytest.raises(UserError, match="--beam_options"):
            run(texts, tokenizer, output, options)
    with pytest.raises(UserError, match="nowhere"):
        run(tmp_path / "nowhere", tokenizer, output, IN_MEMORY)
    with pytest.raises(UserError, match="sideways"):
        prepare_with_beam([str(texts)], tokenizer, output, ReadOptions(documents="sideways"), beam_options=IN_MEMORY)
    with pytest.raises(UserError, match="heldout_fraction"):
        prepare_with_beam([str(texts)], tokenizer, output, heldout_fraction=1.0)
    assert not output.exists()
    output.mkdir()
    (output / "mine").write_text("")
    with pytest.raises(UserError, match="holds something"):
        run(texts, tokenizer, output, IN_MEMORY)
    assert [path.name for path in output.iterdir()] == ["mine"]


def test_an_internal_error_keeps_its_traceback(texts, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(records, "summarize_corpus", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError) as raised:
        run(texts, tokenizer, tmp_path / "corpus", IN_MEMORY)
    assert raised.value.__notes__ == [f"{tmp_path / 'corpus'}: incomplete; remove it before the next try"]


def test_a_lost_worker_is_a_failure_of_the_storage(texts, tokenizer, tmp_path, monkeypatch):
    """As `benchmarks/beam_workers.py` measures: launchers start the command again."""
    raises = compile(
        "raise RuntimeError('Channel closed prematurely.')", "site-packages/apache_beam/data_plane.py", "exec"
    )
    monkeypatch.setattr(with_beam, "_add_steps", lambda *arguments: exec(raises))
    with pytest.raises(StorageError) as raised:
        run(texts, tokenizer, tmp_path / "corpus", IN_MEMORY)
    assert str(raised.value) == (
        "a worker of Apache Beam was lost (Channel closed prematurely.); start again\n"
        f"{tmp_path / 'corpus'}: incomplete; remove it before the next try"
    )


def test_a_job_server_that_is_absent_or_cannot_be_downloaded_is_named(texts, tokenizer, tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"^--job_endpoint=localhost:1: no job server listens there"):
        run(texts, tokenizer, tmp_path / "corpus", ["--runner=PortableRunner", "--job_endpoint=localhost:1"])
    assert not (tmp_path / "corpus").exists()
    monkeypatch.setattr("apache_beam.utils.subprocess_server.urlopen", refuse_connection)
    monkeypatch.setattr("apache_beam.utils.subprocess_server.JavaJarServer.JAR_CACHE", str(tmp_path / "jars"))
    for runner, option in (("FlinkRunner", "flink_job_server_jar"), ("SparkRunner", "spark_job_server_jar")):
        with pytest.raises(UserError, match=rf"fetch https://\S+\.jar elsewhere, .* --{option}=FILE"):
            run(texts, tokenizer, tmp_path / runner, [f"--runner={runner}", "--environment_type=LOOPBACK"])


def refuse_connection(*_, **__):
    raise urllib.error.URLError("no internet")


def test_workers_of_another_version_are_refused(texts, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(with_beam, "installed_package_versions", lambda packages: "this version")
    monkeypatch.setattr(pipeline, "installed_package_versions", lambda packages: "another version")
    with pytest.raises(UserError, match=r"^a worker has another version, this machine has this version") as refused:
        run(texts, tokenizer, tmp_path / "corpus", IN_MEMORY)
    assert str(refused.value).count("\n") == 1


def test_a_killed_pipeline_leaves_no_corpus(texts, tokenizer, local, tmp_path):
    """Killed after the third shard: no corpus, and refused until it is removed; then the same again."""
    code = f"""
import os, signal
from bert_jax.corpus.build import chunks
from bert_jax.corpus.beam.prepare import prepare_with_beam
from bert_jax.readers import storage
from tests.beam.small_chunks import small_chunks
chunks.read_chunks = small_chunks
put, shards = storage.upload, []
def dying(path, url):
    put(path, url)
    shards.extend([url] * url.endswith(".arrayrecord"))
    if len(shards) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
storage.upload = dying
prepare_with_beam([{str(texts)!r}], {str(tokenizer)!r}, {str(tmp_path / "corpus")!r}, heldout_fraction={HELDOUT})
"""
    killed = subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    assert killed.returncode == -signal.SIGKILL
    assert sum(name.endswith(".arrayrecord") for name in contents(tmp_path / "corpus")) == 3
    with pytest.raises(UserError, match="not a corpus"):
        open_corpus(tmp_path / "corpus")
    with pytest.raises(UserError, match="remove it"):
        run(texts, tokenizer, tmp_path / "corpus", IN_MEMORY)


def test_the_commands_of_the_documentation_have_options_that_beam_knows():
    documentation = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text()
    commands = re.findall(r"--beam_options='([^']*)'", documentation)
    runners = set()
    for command in commands:
        options = PipelineOptions(shlex.split(command))
        known = options.get_all_options()
        assert not set(options.get_all_options(retain_unknown_options=True)) - set(known), command
        runners.add(known["runner"])
    assert runners >= {"DataflowRunner", "FlinkRunner", "PortableRunner"}
