"""Means merge exactly; the metrics file holds each step once, whatever killed the run."""

import hashlib
import json
import math
import pathlib
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from bert_jax.objectives.losses import Mean, mean_values, merge_means
from bert_jax.parallel.energy import Counter, Meter, Source
from bert_jax.training import metrics
from bert_jax.training.metrics import MetricsFile, damaged_lines, read_metrics
from bert_jax.training.tensorboard import read_run_starts
from tests.helpers.tensorboard_events import shown


def test_means_merge_to_the_mean_of_everything() -> None:
    rng = np.random.default_rng(0)
    data, weights = rng.normal(size=1000), rng.random(1000)
    parts = np.array_split(np.arange(1000), [10, 11, 500])
    merged: dict[str, Mean] = {}
    for part in parts:
        merged = merge_means(
            merged, {"a_loss": Mean(float((data[part] * weights[part]).sum()), float(weights[part].sum()))}
        )
    assert merged["a_loss"].value() == pytest.approx(np.average(data, weights=weights))
    assert np.isnan(Mean(0.0, 0.0).value())


def test_the_loss_is_the_sum_of_the_losses() -> None:
    found = mean_values({"mlm_loss": Mean(6.0, 3.0), "mlm_accuracy": Mean(1.0, 2.0), "nsp_loss": Mean(1.0, 2.0)})
    assert found == {"loss": 2.5, "mlm_loss": 2.0, "mlm_accuracy": 0.5, "nsp_loss": 0.5}


def test_lines_after_the_checkpoint_are_cut_off(tmp_path: pathlib.Path) -> None:
    file = MetricsFile(tmp_path, 0)
    for step in range(1, 6):
        file.write({"step": step, "split": "train", "loss": 1.0 / step})
    file.close()
    with open(tmp_path / "metrics.jsonl", "a") as half:
        half.write('{"step": 6, "spl')  # a killed run
    file = MetricsFile(tmp_path, 3)
    file.write({"step": 4, "split": "train", "loss": 9.0})
    file.close()
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert [(line["step"], line["loss"]) for line in lines] == [(1, 1.0), (2, 0.5), (3, 1 / 3), (4, 9.0)]
    assert list((tmp_path / "tensorboard").iterdir())


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\0\0\0",
        b"\xff\xfe",
        b"[1]",
        b"3",
        b'{"step": 2, "spl',
        b'{"step": 2}',
        b'{"split": "train", "loss": 1}',
        b'{"step": "2", "split": "train"}',
        b'{"step": 2, "split": "test"}',
        b'{"step": 2, "split": []}',
        b'{"step": 2, "split": "train", "loss": "1.0"}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_line_is_set_aside(tmp_path: pathlib.Path, bad: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    good = [json.dumps({"step": step, "split": "train", "loss": 1.0}).encode() for step in (1, 3)]
    path.write_bytes(b"\n".join([good[0], bad, good[1], b""]))
    assert [line["step"] for line in read_metrics(path)] == [1, 3]
    assert damaged_lines(path) == [bad]
    said: list[str] = []
    MetricsFile(tmp_path, 3, said.append).close()
    assert said == [f"{path}: damaged lines: 1, moved to {tmp_path / 'metrics.damaged'}"]
    assert path.read_bytes() == b"\n".join([*good, b""])
    assert (tmp_path / "metrics.damaged").read_bytes() == bad + b"\n"
    MetricsFile(tmp_path, 3, said.append).close()
    assert len(said) == 1


def test_lines_are_json(tmp_path: pathlib.Path) -> None:
    file = MetricsFile(tmp_path, 0)
    file.write({"step": 1, "split": "heldout", "loss": 1.5})
    file.close()
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 1, "split": "heldout", "loss": 1.5}


def test_values_that_are_not_finite_are_null(tmp_path: pathlib.Path) -> None:
    file = MetricsFile(tmp_path, 0)
    file.write({"step": 1, "split": "train", "loss": float("nan"), "grad_norm": float("inf")})
    file.close()
    assert (tmp_path / "metrics.jsonl").read_text() == (
        '{"step": 1, "split": "train", "loss": null, "grad_norm": null}\n'
    )


def test_a_metrics_file_does_not_load_torch(tmp_path: pathlib.Path) -> None:
    """tensorboardX would, where it is installed, and torch can be imported afterwards."""
    code = (
        "import pathlib, sys; from bert_jax.training.metrics import MetricsFile; "
        f"MetricsFile(pathlib.Path({str(tmp_path)!r}), 0).close(); "
        "assert 'torch' not in sys.modules; import torch"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert any((tmp_path / "tensorboard").iterdir())


def test_the_digest_equals_the_digest_of_the_lines_as_a_list(tmp_path: pathlib.Path) -> None:
    lines = [{"step": step, "split": "train", "loss": value} for step, value in enumerate((0.1, 1e-9, None), start=1)]
    for number in range(4):
        file = MetricsFile(tmp_path, number - 1)
        for line in lines[max(0, number - 1) : number]:
            timed = {"loss": math.nan} if line["loss"] is None else {}
            file.write(line | timed | {"tokens_per_second": 3.0})
        expected = hashlib.sha256(json.dumps(lines[:number], sort_keys=True).encode()).hexdigest()
        assert file.digest() == f"{number}:{expected}"
        file.close()


def test_changed_numbers_are_reported_unless_they_depend_on_the_clock(tmp_path: pathlib.Path) -> None:
    file = MetricsFile(tmp_path, 0)
    file.write({"step": 1, "split": "train", "loss": 2.5, "tokens_per_second": 7.0})
    digest = file.digest()
    file.close()
    path, said = tmp_path / "metrics.jsonl", list[str]()
    late = MetricsFile(tmp_path, 1, said.append, digest=digest)
    late.write({"step": 1, "split": "heldout", "loss": 2.4})  # the evaluation that the run owed at its checkpoint
    late.close()
    for old, new in (("7.0", "8.0"), ("2.5", "2.4")):
        assert not said
        path.write_text(path.read_text().replace(old, new))
        MetricsFile(tmp_path, 1, said.append, digest=digest).close()
    assert said == [f"{path}: differs from the record of the checkpoint of step 1; its numbers may be wrong"]


def test_lines_of_training_carry_the_energy_of_this_start_and_the_end_of_the_file_too(tmp_path: pathlib.Path) -> None:
    """3 J until the first line, 8 J at the end, after an evaluation, whose line carries none."""
    joules = [10]
    file = MetricsFile(tmp_path, 0, meter=Meter(Source("planted", (Counter(lambda: joules[0], 1.0),))))
    joules[0] += 3
    file.write({"step": 1, "split": "train", "loss": 2.5})
    file.write({"step": 1, "split": "heldout", "loss": 2.4})
    joules[0] += 5
    file.close()
    train, heldout = read_metrics(tmp_path / "metrics.jsonl")
    assert train["energy_joules"] == 3.0
    assert "energy_joules" not in heldout
    (session,) = read_run_starts(tmp_path)
    assert session.joules == 8.0
    assert session.measured == session.ended


def test_a_long_event_file_is_read_an_event_at_a_time(tmp_path: pathlib.Path) -> None:
    """A file of 10^6 lines has more than a gigabyte."""
    file = MetricsFile(tmp_path, 6, meter=Meter(Source("planted", (Counter(lambda: 1, 1.0),))))
    for step in range(7, 1007):
        file.write({"step": step, "split": "train"} | {f"loss_{n}": 1.5 for n in range(12)}, [1.0, 2.0])
    file.close()
    (events,) = (tmp_path / "tensorboard").iterdir()
    tracemalloc.start()
    (start,) = read_run_starts(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (start.first_step, start.joules) == (7, 0.0)
    assert start.began <= start.ended == start.measured
    assert peak < events.stat().st_size / 4
    whole = events.read_bytes()
    for size in (100, len(whole) // 2, len(whole) - 1):
        events.write_bytes(whole[:size])
        (cut,) = read_run_starts(tmp_path)
        assert (cut.first_step, cut.began) == (7, start.began)
        assert cut.began <= cut.ended <= start.ended


def test_a_resumed_run_parses_each_line_of_metrics_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = MetricsFile(tmp_path, 0)
    for step in range(1, 6):
        file.write({"step": step, "split": "train", "loss": 1.0})
    digest = file.digest()
    file.close()
    parsed, said, parse_line = list[bytes](), list[str](), metrics._parse_line
    monkeypatch.setattr(metrics, "_parse_line", lambda text: (parsed.append(text), parse_line(text))[1])
    resumed = MetricsFile(tmp_path, 5, said.append, digest=digest)
    resumed.close()
    assert (len(parsed), len(resumed.earlier_lines), said) == (5, 5, [])


def test_tensorboard_shows_the_config_as_text(tmp_path: pathlib.Path) -> None:
    """A path may hold bytes that are no UTF-8."""
    MetricsFile(tmp_path, 0, settings={"train.steps": 9, "data.corpus": "a*b\udcff"}).close()
    ((_, value),) = shown(tmp_path)
    assert (value.tag, value.metadata.plugin_data.plugin_name) == ("config/text_summary", "text")
    assert value.tensor.string_val == [b"    train.steps = 9\n    data.corpus = 'a*b\\udcff'"]


def test_tensorboard_shows_how_the_gradient_norms_since_the_last_line_are_distributed(tmp_path: pathlib.Path) -> None:
    """Buckets count what lies below their limits, the last one its limit as well, and no norm that is not finite."""
    norms = [*np.random.default_rng(0).lognormal(size=200).tolist(), 1e30, math.inf, math.nan]
    file = MetricsFile(tmp_path, 0)
    file.write({"step": 9, "split": "train", "grad_norm": 2.0}, norms)
    file.write({"step": 10, "split": "train", "grad_norm": 3.0}, [3.0])
    file.write({"step": 11, "split": "train", "grad_norm": None}, [math.inf])
    file.write({"step": 11, "split": "heldout", "loss": 2.0})
    file.close()
    (many, whole), (few, single) = [(step, one.histo) for step, one in shown(tmp_path) if one.HasField("histo")]
    assert {one.tag for _, one in shown(tmp_path) if one.HasField("histo")} == {"train/grad_norms"}
    assert (many, few) == (9, 10)
    assert (whole.min, whole.max, whole.num) == (min(norms[:201]), 1e30, 201)
    assert whole.sum == pytest.approx(math.fsum(norms[:201]))
    below = [sum(norm < limit for norm in norms[:201]) for limit in whole.bucket_limit]
    assert list(np.cumsum(whole.bucket)) == [*below[:-1], 201]
    assert whole.bucket_limit[-1] == 1e30
    assert (single.num, sum(single.bucket), single.min, single.max) == (1, 1, 3.0, 3.0)
    assert all("grad_norms" not in line for line in read_metrics(file.path))
