"""A run at s3:// with s3fs, against moto, a stand-in of S3 on this machine: `make test-s3`."""

import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from bert_jax.cli.main import main
from bert_jax.training import remote_workdir as mirror
from tests.helpers.commands import World, make_world, pretrain_command

pytestmark = pytest.mark.s3
BUCKET, URL = "bucket", "s3://bucket/runs/base"
STEPS = "--config.train.steps=6"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Texts, tokenizer, corpus, recipe, and a run of 6 steps on the local disk."""
    return make_world(tmp_path_factory.mktemp("world"), STEPS)


@pytest.fixture
def bucket(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """An empty bucket, as boto3 sees it, and an empty cache of this process."""
    import boto3
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(mirror, "_open", [])
    s3fs.S3FileSystem.clear_instance_cache()
    made = boto3.resource("s3").Bucket(BUCKET)
    made.create()
    yield made
    server.stop()


def names(bucket: object, place: str = "runs/base/") -> set[str]:
    return {one.key.removeprefix(place) for one in bucket.objects.filter(Prefix=place)}  # type: ignore[attr-defined]


def test_a_killed_run_resumes_on_another_machine_bit_for_bit(world, bucket, tmp_path, monkeypatch, capsys) -> None:
    argv = pretrain_command(world, URL, STEPS)
    process = subprocess.Popen([sys.executable, "-m", "bert_jax", *argv], stderr=subprocess.PIPE, text=True)
    while f"checkpoints/2/{mirror.COMMITTED}" not in names(bucket):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    assert main(argv) == 0
    said = capsys.readouterr().err
    assert "resuming at step" in said or "use another --workdir" in said
    weights = []
    for place, name in ((URL, "theirs"), (world.run, "ours")):
        assert main(["export", "--workdir", str(place), "--output", str(tmp_path / name)]) == 0
        weights.append((tmp_path / name / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]
    assert main(["verify", URL]) == 0
    assert main(["export", "--workdir", URL, "--output", "s3://bucket/model"]) == 0
    assert names(bucket, "model/") == {
        path.relative_to(tmp_path / "ours").as_posix() for path in (tmp_path / "ours").rglob("*") if path.is_file()
    }
    assert main(["fill-mask", "--model", "s3://bucket/model", "ab [MASK]"]) == 0


def test_a_corpus_is_staged_and_an_unknown_bucket_refused(world, bucket, tmp_path, capsys) -> None:
    for path in (path for path in world.corpus.rglob("*") if path.is_file()):
        bucket.upload_file(str(path), f"corpus/{path.relative_to(world.corpus).as_posix()}")
    argv = pretrain_command(world, tmp_path / "run", STEPS, corpus="s3://bucket/corpus")  # type: ignore[arg-type]
    assert main(argv) == 0
    metrics = [(place / "metrics.jsonl").read_text().count("\n") for place in (tmp_path / "run", world.run)]
    assert metrics[0] == metrics[1]
    capsys.readouterr()
    assert main(["evaluate", "--workdir", "s3://nobody/run"]) == 2
    said = capsys.readouterr().err
    assert "s3://nobody/run" in said
    assert "Traceback" not in said
