"""The memory check before the first step: its measurements, refusals and suggestions."""

import pathlib
import re
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import MeshConfig
from bert_jax.errors import UserError
from bert_jax.parallel import memory
from bert_jax.parallel.memory import BatchSettings, Memory
from bert_jax.parallel.sharding import make_mesh

GIB = 2**30
SETTINGS = BatchSettings(batch_size=256, seq_len=128, grad_accum_steps=1, remat=False)


@pytest.fixture
def mesh() -> jax.sharding.Mesh:
    return make_mesh(MeshConfig(), jax.devices()[:1])


def compiled_sum(sequences: int) -> jax.stages.Compiled:
    """A program with one argument of `sequences` KiB, and a temporary that is larger."""

    def step(x: jax.Array) -> jax.Array:
        return jnp.sort(jnp.concatenate([x, x + 1]), axis=0)[:sequences]

    return jax.jit(step, donate_argnums=0).lower(jax.ShapeDtypeStruct((sequences, 256), jnp.float32)).compile()


def test_memory_of_a_program_counts_arguments_temporaries_and_results_once() -> None:
    found = memory.program_memory(compiled_sum(64))
    assert found
    assert found.arguments == 64 * 1024
    assert found.temporaries >= 2 * 64 * 1024
    assert found.arguments + found.temporaries <= found.total < found.arguments + found.temporaries + 64 * 1024


def test_a_program_that_fits_passes(mesh: jax.sharding.Mesh) -> None:
    memory.check_memory(compiled_sum(64), mesh, SETTINGS)


def test_a_program_that_does_not_fit_is_refused(mesh: jax.sharding.Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compiled_sum(64)
    monkeypatch.setattr(memory, "device_capacity", lambda _: 100 * 1024)
    with pytest.raises(UserError) as refused:
        memory.check_memory(compiled, mesh, SETTINGS)
    first, second = str(refused.value).splitlines()
    assert first.startswith("a step of 256 sequences of 128 tokens needs 0.0 GiB of memory per device, and 0.0 GiB are")
    assert "config.compute.remat=True" in second
    assert "config.train.grad_accum_steps=" in second
    assert "a smaller config.train.batch_size" in second


def test_unknown_capacity_refuses_nothing(mesh: jax.sharding.Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "device_capacity", lambda _: None)
    memory.check_memory(compiled_sum(64), mesh, SETTINGS)


@pytest.mark.parametrize(
    ("temporaries", "settings", "expected"),
    [
        (40, SETTINGS, "grad_accum_steps=4 (64 sequences per device at a time instead of 256)"),
        (40, SETTINGS._replace(grad_accum_steps=4), "grad_accum_steps=16 (16 sequences"),
        (40, SETTINGS._replace(keys="config.train.phases[1]"), "--config.train.phases[1].grad_accum_steps=4"),
        (100, SETTINGS, "grad_accum_steps=8 "),
    ],
)
def test_the_suggested_accumulation_fits(
    mesh: jax.sharding.Mesh, temporaries: int, settings: BatchSettings, expected: str
) -> None:
    """Of 16 GiB, 2 hold the arguments and 0.7 the sum of gradients: the temporaries must shrink to 13.3."""
    needed = Memory(2 * GIB, temporaries * GIB, (2 + temporaries) * GIB)
    changes = memory.overrides_to_fit_memory(needed, 16 * GIB, mesh, settings, parameter_bytes=2 * GIB // 3)
    assert expected in changes[-1]
    assert any("remat" in change for change in changes) == (2 + temporaries <= 48)


def test_arguments_alone_that_do_not_fit_need_a_smaller_model(mesh: jax.sharding.Mesh) -> None:
    assert memory.overrides_to_fit_memory(Memory(20 * GIB, 100 * GIB, 120 * GIB), 16 * GIB, mesh, SETTINGS, 0) == ()


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 30.50G of 15.75G hbm.", int(30.5 * GIB)),
        ("RESOURCE_EXHAUSTED: Out of memory allocating 4294967296 bytes.", 4 * GIB),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4294967296 bytes.", 4 * GIB),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12.50GiB.", int(12.5 * GIB)),
        ("RESOURCE_EXHAUSTED: ... temporaries (12.25G) ...", int(12.25 * GIB)),
        ("RESOURCE_EXHAUSTED: Out of memory", None),
    ],
)
def test_an_error_of_xla_about_memory_becomes_a_user_error(text: str, needed: int | None) -> None:
    error = jax.errors.JaxRuntimeError(text)
    assert memory.bytes_in_memory_error(error) == needed
    expected = "more memory than a device has" if needed is None else f"{needed / GIB:.1f} GiB of memory per device"
    words = f"needs {expected}\nuse a larger config.train.grad_accum_steps .now 1.*; `bert-jax compile` with the same"
    with pytest.raises(UserError, match=words), memory.out_of_memory_as_user_error(SETTINGS):
        raise error


def test_other_errors_of_xla_pass() -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"), memory.out_of_memory_as_user_error(SETTINGS):
        raise jax.errors.JaxRuntimeError("INTERNAL: a bug")


def test_an_allocation_that_fails_on_the_cpu_is_about_memory() -> None:
    """XLA's own words for a result of 2 PiB."""
    huge = jax.jit(lambda: jnp.zeros((1 << 40, 512), jnp.float32)).lower().compile()
    with pytest.raises(jax.errors.JaxRuntimeError) as raised:
        huge().block_until_ready()
    assert memory.is_out_of_memory(raised.value)


def test_available_memory_respects_the_container(tmp_path: pathlib.Path) -> None:
    assert memory.available_host_memory(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 16000 kB\nMemAvailable:    8000 kB\n")
    assert memory.available_host_memory(tmp_path) == 8000 * 1024
    cgroup = tmp_path / "sys" / "fs" / "cgroup"
    cgroup.mkdir(parents=True)
    (cgroup / "memory.max").write_text("max\n")
    assert memory.available_host_memory(tmp_path) == 8000 * 1024
    (cgroup / "memory.max").write_text("6000000\n")
    (cgroup / "memory.current").write_text("5000000\n")
    (cgroup / "memory.stat").write_text("anon 1000000\nfile 2000000\n")
    assert memory.available_host_memory(tmp_path) == 3_000_000


def test_this_machine_has_memory() -> None:
    assert (memory.device_capacity(jax.devices()[0]) or 0) > 0


@pytest.mark.parametrize(
    ("platform", "variables", "taken"),
    [
        ("gpu", {}, 0.75),
        ("gpu", {"XLA_CLIENT_MEM_FRACTION": "0.9"}, 0.9),
        ("gpu", {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".5"}, 0.5),
        ("gpu", {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, 1.0),
        ("tpu", {"XLA_CLIENT_MEM_FRACTION": "0.9"}, 1.0),
    ],
)
def test_jax_takes_a_fraction_of_a_gpus_memory(
    platform: str, variables: dict[str, str], taken: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `generate_pjrt_gpu_plugin_options` of jaxlib reads the environment; 0.75 is documented."""
    for name in ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_ALLOCATOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert memory.usable_memory_fraction(platform) == taken
    device: Any = types.SimpleNamespace(
        platform=platform, memory_stats=lambda: None, device_kind="NVIDIA A100-SXM4-40GB"
    )
    assert memory.device_capacity(device) == int(40 * GIB * taken)


def test_a_larger_fraction_is_suggested_where_it_is_enough(mesh: jax.sharding.Mesh) -> None:
    needed = Memory(10 * GIB, 60 * GIB, 70 * GIB)
    first = memory.overrides_to_fit_memory(needed, 60 * GIB, mesh, SETTINGS, 3 * GIB, usable_fraction=0.75)[0]
    assert first.startswith("XLA_CLIENT_MEM_FRACTION=0.95 in the environment")
    for larger in (Memory(10 * GIB, 67 * GIB, 77 * GIB), 0.75), (needed, 1.0):
        assert not any(
            "MEM_FRACTION" in one
            for one in memory.overrides_to_fit_memory(larger[0], 60 * GIB, mesh, SETTINGS, 3, larger[1])
        )


def test_a_fraction_of_memory_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_CLIENT_MEM_FRACTION", "most")
    with pytest.raises(UserError, match="XLA_CLIENT_MEM_FRACTION=most: give a fraction"):
        memory.usable_memory_fraction("gpu")


def test_used_bytes_count_the_process_or_its_fullest_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU the resident size, which grows by an array that is filled."""
    before = memory.used_memory_bytes()
    assert before
    filled = np.ones(GIB // 16, np.uint8)
    after = memory.used_memory_bytes()
    assert after
    status = pathlib.Path("/proc/self/status").read_text()
    assert after == pytest.approx(1024 * int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]), rel=0.02)
    assert after > before + 0.9 * filled.nbytes
    devices = [types.SimpleNamespace(memory_stats=lambda peak=peak: {"peak_bytes_in_use": peak}) for peak in (5, 9, 7)]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    assert memory.used_memory_bytes() == 9
