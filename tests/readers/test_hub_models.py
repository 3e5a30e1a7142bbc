"""Models and tokenizers by their names on the Hugging Face Hub, from a server that answers as the Hub does."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from bert_jax.readers.hub import HubName, hub_name_of_snapshot, parse_hub_name
from tests.helpers.hub_server import COMMIT, Hub
from tests.helpers.tiny_models import save

pytest.importorskip("huggingface_hub")

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = """
import json, sys
from bert_jax.checkpoints.load_model import read_weights
from bert_jax.errors import UserError
from bert_jax.tokenizer import load_tokenizer

opened = {"weights": lambda name: read_weights(name).directory, "tokenizer": lambda name: load_tokenizer(name).sha256}
for kind, name in json.loads(sys.argv[1]):
    try:
        print(json.dumps(str(opened[kind](name))))
    except UserError as error:
        print(json.dumps("refused: " + str(error)))
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models")
    save(directory / "bert", "bert")
    (directory / "bert" / "modeling.py").write_text("raise SystemExit('code of a repository ran')")
    shutil.copytree(directory / "bert", directory / "pickled", ignore=shutil.ignore_patterns("*.safetensors"))
    (directory / "pickled" / "pytorch_model.bin").write_bytes(b"\x80\x04N.")
    made = Hub()
    for fault in ("", "cut", "cut always", "changed", "gated", "private"):
        made.add(f"owner/{fault.replace(' ', '-') or 'plain'}", directory / "bert", fault)
    made.add("owner/pickled", directory / "pickled")
    with made.serving() as url:
        yield made, url, directory


def environment(url, home, **more):
    """The environment of a process that takes this server for the Hub."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    own = {"HF_ENDPOINT": url, "HF_HOME": str(home), "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_TOKEN": "hf_token"}
    return kept | own | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"} | more


def opened(cases, url, home, **more):
    """The directory or the digest of each (kind, name), or its refusal."""
    argv = [sys.executable, "-c", CODE, json.dumps(cases)]
    done = subprocess.run(
        argv, env=environment(url, home, **more), capture_output=True, text=True, check=False, cwd=home
    )
    assert done.returncode == 0, done.stderr
    return dict(zip([name for _, name in cases], map(json.loads, done.stdout.splitlines()), strict=True))


def test_names_faults_and_the_cache(hub, tmp_path):
    made, url, directory = hub
    names = ("plain", f"plain@{COMMIT}", "plain@other", "cut", "changed", "gated", "private", "plian", "pickled")
    found = opened([("weights", f"owner/{name}") for name in names], url, tmp_path)
    snapshot = str(tmp_path / "hub" / "models--owner--{}" / "snapshots" / COMMIT)
    for name in ("plain", "cut"):
        assert found[f"owner/{name}"] == snapshot.format(name)
        for file in ("config.json", "model.safetensors", "tokenizer.json"):
            assert (pathlib.Path(snapshot.format(name)) / file).read_bytes() == (directory / "bert" / file).read_bytes()
    assert found[f"owner/plain@{COMMIT}"] == snapshot.format("plain")
    assert not list(tmp_path.rglob("*.py")) + list(tmp_path.rglob("*.bin"))
    says = {
        "plain@other": "owner/plain@other: the Hub has no revision other of owner/plain",
        "changed": "owner/changed: model.safetensors has another digest than the Hub says; it was removed, repeat",
        "gated": "owner/gated: the Hub asks for its terms to be accepted; accept them on the page of the model",
        "private": "owner/private: no such directory, and no such model on the Hub (a private model needs HF_TOKEN)",
        "plian": "needs HF_TOKEN); did you mean owner/plain",
        "pickled": "owner/pickled: no safetensors in the repository; other weights are not read from the Hub",
    }
    for name, text in says.items():
        assert found[f"owner/{name}"].startswith("refused: "), name
        assert text in found[f"owner/{name}"]
        assert "\n" not in found[f"owner/{name}"]
    assert not (pathlib.Path(snapshot.format("changed")) / "model.safetensors").exists()

    # From the cache alone: no request is sent.
    sent = len(made.requests)
    cases = [
        ("weights", "owner/plain"),
        ("tokenizer", "owner/cut"),
        ("weights", "owner/never"),
        ("weights", "a/b@c/../d"),
    ]
    offline = opened(cases, url, tmp_path, HF_HUB_OFFLINE="1")
    assert len(made.requests) == sent
    assert offline["owner/plain"] == snapshot.format("plain")
    assert len(offline["owner/cut"]) == 64
    assert "owner/never: no such directory, and not in the cache of the Hub" in offline["owner/never"]
    assert "no model here" in offline["a/b@c/../d"]


def test_a_tokenizer_is_downloaded_without_weights(hub, tmp_path):
    _, url, _ = hub
    found = opened([("tokenizer", "owner/plain")], url, tmp_path)
    assert len(found["owner/plain"]) == 64
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.slow
def test_a_download_that_ends_early_is_one_line_and_continues(hub, tmp_path):
    made, url, _ = hub
    refused = opened([("weights", "owner/cut-always")], url, tmp_path)["owner/cut-always"]
    assert refused.startswith("refused: owner/cut-always: the download failed (")
    assert refused.endswith("the same command continues it")
    made.faults["owner/cut-always"] = ""
    assert opened([("weights", "owner/cut-always")], url, tmp_path)["owner/cut-always"].endswith(COMMIT)


def test_an_export_is_uploaded_with_its_card(hub, tmp_path):
    made, url, directory = hub
    argv = ["export", "--workdir", str(directory / "bert"), "--output", str(tmp_path / "out")]
    argv += ["--push_to_hub", "owner/new", "--license", "mit"]
    done = subprocess.run(
        [sys.executable, "-m", "bert_jax", *argv],
        env=environment(url, tmp_path, HF_HUB_DISABLE_XET="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"uploaded: http://127.0.0.1/owner/new/commit/{COMMIT}" in done.stderr
    files = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert made.uploads["owner/new"] == files
    assert b"license: mit" in files["README.md"]


def test_paths_are_no_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for path in ("runs/new", "model", "/a/b", "./a", "../a/b", "a/b/c", "a/b/", "gs://a/b", "a/b@../c", ""):
        assert parse_hub_name(path) is None, path
    assert parse_hub_name("owner/name") == HubName("owner/name", None)
    assert parse_hub_name(pathlib.Path("owner/na.me@refs/pr/1")) == HubName("owner/na.me", "refs/pr/1")
    snapshot = tmp_path / "models--owner--name" / "snapshots" / COMMIT
    assert hub_name_of_snapshot(snapshot) == HubName("owner/name", COMMIT)
    assert hub_name_of_snapshot(tmp_path) is None
