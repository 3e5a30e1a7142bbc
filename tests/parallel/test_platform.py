"""The platform of a run: a CPU beside an accelerator's plugin is refused. Stand-ins for plugins are empty modules."""

import pathlib
import types
from collections.abc import Iterator

import jax
import pytest

from bert_jax.cli.main import main
from bert_jax.errors import UserError
from bert_jax.parallel.platform import PLUGINS, check_platform, compiler_options, use_platform


@pytest.fixture(autouse=True)
def no_choice() -> Iterator[None]:
    """Neither --platform nor JAX_PLATFORMS; the devices of this process are found already, and stay."""
    kept = jax.config.jax_platforms
    jax.devices()
    jax.config.update("jax_platforms", None)
    yield
    jax.config.update("jax_platforms", kept)


@pytest.fixture(params=PLUGINS)
def plugin(request: pytest.FixtureRequest, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that can be found, and that nothing imports."""
    (tmp_path / f"{request.param}.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    return str(request.param)


def test_a_cpu_without_plugins_is_no_mistake() -> None:
    check_platform()


def test_a_cpu_beside_a_plugin_is_refused(plugin: str) -> None:
    with pytest.raises(UserError, match=rf"^{plugin} .* JAX finds none and would train on the CPU\n.*--platform cpu$"):
        check_platform()


def test_a_chosen_cpu_is_no_mistake(plugin: str) -> None:
    use_platform("cpu")
    check_platform()


def test_the_verb_refuses_before_it_writes(
    plugin: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pretrain", "--config=demo", f"--workdir={tmp_path / 'run'}"]) == 2
    assert plugin in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("error", "says"), [(AssertionError(), "finds no such device"), (RuntimeError("a\nb"), "a$")])
def test_a_platform_that_is_not_there_is_refused(error: Exception, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX raises either."""

    def none() -> str:
        raise error

    monkeypatch.setattr(jax, "default_backend", none)
    use_platform("cuda")
    with pytest.raises(UserError, match=rf"--platform=cuda: .*{says}"):
        check_platform()


def test_deterministic_kernels_are_chosen_on_gpus() -> None:
    def options(platform: str, deterministic: bool) -> dict[str, str | bool]:
        device = types.SimpleNamespace(platform=platform, device_kind="")
        mesh = types.SimpleNamespace(devices=types.SimpleNamespace(flat=[device]))
        return compiler_options(mesh, deterministic)  # type: ignore[arg-type]

    assert options("gpu", True) == options("gpu", False) | {"xla_gpu_deterministic_ops": True}
    assert options("cpu", True) == {}
    assert options("tpu", True) == options("tpu", False) != {}


def test_the_use_of_a_chip_without_a_data_sheet_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    from bert_jax.parallel import chips

    device = types.SimpleNamespace(platform="gpu", device_kind="NVIDIA GeForce RTX 9090")
    monkeypatch.setattr(jax, "devices", lambda: [device])
    assert chips.peak_flops() is None
    device.device_kind = "NVIDIA H100 80GB HBM3"
    assert chips.peak_flops() == 989e12
