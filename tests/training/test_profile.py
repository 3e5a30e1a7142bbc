"""A trace of some steps: written once, readable, and without an effect on the weights."""

import dataclasses
import gzip
import io
import json
import pathlib
import shutil

import pytest

from bert_jax import config as c
from bert_jax.console import Console
from bert_jax.errors import UserError
from bert_jax.training.profile import profiled_steps
from bert_jax.training.resuming import refused_changes
from tests.helpers.synthetic import synthetic_data, tiny_config, train
from tests.training.test_train import run

ONE_PHASE = c.phases({"seq_len": 16})


def with_profile(config: c.PretrainConfig, steps: str) -> c.PretrainConfig:
    return dataclasses.replace(config, profile=c.ProfileConfig(steps=steps))


@pytest.mark.slow
def test_traced_steps_learn_like_other_steps(tmp_path: pathlib.Path) -> None:
    plain = tiny_config(steps=4, phases=ONE_PHASE)
    traced, out = with_profile(plain, "1:3"), io.StringIO()
    assert train(traced, synthetic_data(traced), tmp_path / "traced", Console(out))
    assert "a profile of steps 1 to 2 is in" in out.getvalue()
    (trace,) = (tmp_path / "traced" / "profile").rglob("*.trace.json.gz")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    steps = [event["args"]["step_num"] for event in events if event.get("name") == "train"]
    assert steps == ["1", "2"]
    assert list((tmp_path / "traced" / "profile").rglob("*.xplane.pb"))
    _, lines = run(plain, tmp_path / "plain")
    _, same_lines = run(traced, tmp_path / "traced")  # a finished run: its state, and no other trace
    assert same_lines == lines
    assert c.to_json(traced) != c.to_json(plain)
    assert not refused_changes(c.to_json(plain), c.to_json(traced), 4)
    assert len(list((tmp_path / "traced" / "profile").rglob("*.trace.json.gz"))) == 1


def test_a_trace_ends_with_the_run(tmp_path: pathlib.Path) -> None:
    config, out = with_profile(tiny_config(steps=2, phases=ONE_PHASE), "1:2"), io.StringIO()
    assert train(config, synthetic_data(config), tmp_path, Console(out))
    assert out.getvalue().count("a profile of steps 1 to 1") == 1


@pytest.mark.parametrize("text", ["3", "3:3", "4:3", ":3", "-1:3", "a:b", "1:11", "1:2:3", ""])
def test_other_steps_are_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"config\.profile\.steps=.*: give FIRST:END with 0 <= FIRST < END <= 10"):
        profiled_steps(text, 10)
    assert profiled_steps("9:10", 10) == range(9, 10)


def test_a_resumed_run_traces_the_steps_that_are_left(tmp_path: pathlib.Path) -> None:
    config = tiny_config(steps=4, phases=ONE_PHASE)
    assert train(config, synthetic_data(config), tmp_path, Console(io.StringIO()))
    for saved in sorted((tmp_path / "checkpoints").iterdir())[1:]:
        shutil.rmtree(saved)
    (first,) = (int(path.name) for path in (tmp_path / "checkpoints").iterdir())
    assert 0 < first < 4
    said = io.StringIO()
    traced = with_profile(config, "0:4")
    assert train(traced, synthetic_data(traced), tmp_path, Console(said))
    assert f"a profile of steps {first} to 3 is in" in said.getvalue()
    assert "no effect" not in said.getvalue()
    assert train(traced, synthetic_data(traced), tmp_path, Console(said))
    assert "warning: no effect of config.profile.steps=0:4, as these steps are done" in said.getvalue()
