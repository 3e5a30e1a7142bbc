"""A lack of memory or devices gives a message of one line and status 2."""

import dataclasses
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from bert_jax.cli import main as cli
from bert_jax.config import WatchdogConfig
from bert_jax.errors import resource_error_message
from bert_jax.parallel import joining
from bert_jax.parallel.preemption import Interrupt
from bert_jax.parallel.rendezvous import Membership, Peers


def all_of_it(args: object) -> None:
    bytearray(1 << 60)


def test_a_lack_of_host_memory_names_the_option_to_lower(monkeypatch, capsys) -> None:
    monkeypatch.setitem(cli.VERBS, "embed", dataclasses.replace(cli.VERBS["embed"], run=all_of_it))
    argv = ["embed", "--model", "m", "--input", "i", "--output", "o"]
    assert cli.main(argv) == 2
    assert capsys.readouterr().err == "bert-jax embed: out of memory; lower --batch_size\n"
    with pytest.raises(MemoryError):
        cli.main([*argv, "--debug"])


def test_a_lack_of_device_memory_in_xla_s_words() -> None:
    huge = jax.jit(lambda: jnp.zeros((1 << 40, 512), jnp.float32)).lower().compile()
    with pytest.raises(jax.errors.JaxRuntimeError) as raised:
        huge().block_until_ready()
    message = resource_error_message(raised.value, "lower x")
    assert message.startswith("out of memory (RESOURCE_EXHAUSTED: ")
    assert message.endswith("; lower x")


def test_a_bug_stays_a_bug(monkeypatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    for error in (RuntimeError("a bug"), AssertionError(), ValueError("RESOURCE_EXHAUSTED")):
        assert resource_error_message(error, "lower x") == ""


def test_one_of_several_processes_without_memory_ends_all(monkeypatch, capsys) -> None:
    """With its message and status 2, not as a bug."""
    ends: list[tuple[str, int]] = []

    def fail(self: object, message: str, status: int) -> None:
        ends.append((message, status))
        raise SystemExit(status)

    monkeypatch.setattr(joining, "rendezvous", lambda *arguments: Membership(("a", "b"), {}))
    monkeypatch.setattr(joining, "_start_jax", lambda peers, config: None)
    monkeypatch.setattr(joining.multihost_utils, "sync_global_devices", lambda name: None)
    monkeypatch.setattr(joining.Watchdog, "end_all", fail)
    monkeypatch.setattr(Interrupt, "use_preemption_service", lambda self: None)
    peers = Peers("127.0.0.1:1", 2, 0)
    with (
        pytest.raises(SystemExit),
        joining.joined_processes(peers, WatchdogConfig(), Interrupt(), "pretrain", "lower x") as watchdog,
    ):
        raise MemoryError
    watchdog.close()
    assert ends == [("out of memory; lower x", 2)]
    assert capsys.readouterr().err == "bert-jax pretrain: out of memory; lower x\n"


@pytest.mark.skipif("cuda" in {device.platform for device in jax.devices()}, reason="there is a GPU here")
def test_platforms_that_are_not_there(world) -> None:
    command = [sys.executable, "-m", "bert_jax", "fill-mask", "--model", str(world.model), "[MASK]"]
    environment = os.environ | {"JAX_PLATFORMS": "cuda"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("bert-jax fill-mask: JAX_PLATFORMS=cuda: no such devices here")
    assert "Traceback" not in done.stderr
