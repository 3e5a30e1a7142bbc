"""Progress and messages in a terminal."""

import io
import os
import time

import pytest

from bert_jax.console import Console, format_number, format_seconds


def test_progress_line_has_all_a_person_wants() -> None:
    out = io.StringIO()
    line = {"step": 50, "loss": 2.5, "mlm_accuracy": 0.25, "nsp_accuracy": 0.5, "learning_rate": 1e-4}
    Console(out).print_training_step(line | {"tokens_per_second": 12345.6}, 100, 2.0)
    text = out.getvalue()
    assert all(word in text for word in ("step 50/100", "loss 2.500 ", "mlm 25.0%", "nsp 50.0%", "12,346", "eta 1:40"))


def test_the_terms_of_a_loss_are_printed_beside_it() -> None:
    out = io.StringIO()
    line = {"step": 50, "loss": 2.125, "next_token_loss": 3.5, "mlm_loss": 1.75, "learning_rate": 1e-4}
    Console(out).print_training_step(line | {"tokens_per_second": 1.0}, 100, 2.0)
    assert "loss 2.125 (next_token 3.500, mlm 1.750)  " in out.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"), [(5, "0:05"), (3725, "1:02:05"), (90_061, "1d 01:01:01"), (-3, "0:00"), (59.7, "1:00")]
)
def test_durations(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_a_terminal_sees_one_line_that_overwrites_itself() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    console = Console(out)
    time.sleep(0.11)  # a progress line comes at most ten times a second
    console.print_preparation_progress(10**6, 10**6, 7)
    console.say("done")
    assert out.getvalue().startswith("1.0/1.0 MB (100%)  7 documents")
    assert out.getvalue().endswith("\r\x1b[Kdone\n")


def test_every_part_of_a_work_is_a_beat_whether_its_line_is_printed_or_not() -> None:
    console, beats = Console(io.StringIO(), silent=True), []
    console.beat = lambda: beats.append(1)
    console.print_preparation_progress(1, 10, 1)
    console.progress("predicting", 1, 10, "inputs")
    console.progress("predicting", 2, 10, "inputs")
    assert len(beats) == 3


def test_scores_of_a_task_are_shares_in_percent_and_other_numbers_as_they_are() -> None:
    out = io.StringIO()
    Console(out).print_heldout_metrics(1200, {"accuracy": 0.875, "token_accuracy": 0.5, "pearson": 0.25, "f1": 81.5})
    assert out.getvalue() == "step 1,200 held out: accuracy 87.5%  token accuracy 50.0%  pearson 0.2500  f1 81.5000\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_overwrites_itself(monkeypatch) -> None:
    clock = iter([10.0, 10.05, 10.2])
    monkeypatch.setattr("bert_jax.console.time.monotonic", lambda: next(clock))
    out = Terminal()
    console = Console(out)
    for done in (1, 2, 3):
        console.progress("evaluating", done, 1500, "batches")
    console.close()
    assert out.getvalue() == "evaluating 1/1,500 batches\r\x1b[Kevaluating 3/1,500 batches  15/s  eta 1:40\n"


def test_progress_in_a_log_is_a_line_every_few_seconds(monkeypatch) -> None:
    clock = iter([10.0, 12.0, 16.0, 17.0, 30.0])
    monkeypatch.setattr("bert_jax.console.time.monotonic", lambda: next(clock))
    console = Console(out := io.StringIO())
    for done in range(5):
        console.progress("reading", done + 1, None, "lines")
    assert out.getvalue() == "reading 3 lines  0.5/s\nreading 5 lines  0.25/s\n"


def test_work_that_begins_again_has_its_own_rate(monkeypatch) -> None:
    """Two evaluations of a run: 20 batches at 4 per second, then, much later, at 2 per second."""
    clock = iter([*(0.25 * n for n in range(1, 21)), *(1000 + 0.5 * n for n in range(1, 21))])
    monkeypatch.setattr("bert_jax.console.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("bert_jax.console.LOG_SECONDS", 4.5)
    console = Console(out := io.StringIO())
    for done in [*range(1, 21), *range(1, 21)]:
        console.progress("evaluating", done, 20, "batches")
    assert out.getvalue().splitlines() == [
        "evaluating 19/20 batches  4.2/s  eta 0:00",
        "evaluating 10/20 batches  2.2/s  eta 0:04",
        "evaluating 19/20 batches  2.1/s  eta 0:00",
    ]


def test_work_without_a_count_is_announced_at_once() -> None:
    console = Console(out := io.StringIO())
    console.progress("compiling (usually 20 to 60 s)")
    assert out.getvalue() == "compiling (usually 20 to 60 s) ...\n"
    live = Console(terminal := Terminal())
    live.progress("saving checkpoint 7")
    live.say("done")
    assert terminal.getvalue() == "saving checkpoint 7 ...\r\x1b[Kdone\n"


def test_a_silent_console_prints_nothing() -> None:
    console = Console(out := io.StringIO(), silent=True)
    console.progress("compiling")
    console.say("done")
    console.close()
    assert out.getvalue() == ""


def test_work_that_cannot_be_counted_shows_its_time_and_leaves_nothing_behind(monkeypatch) -> None:
    monkeypatch.setattr("bert_jax.console.QUIET_SECONDS", 0.001)
    out = Terminal()
    console = Console(out)
    with console.working("exporting"):
        while not out.getvalue():
            time.sleep(0.001)
    assert out.getvalue() == "exporting ... 0:00\r\x1b[K"
    console.close()
    assert out.getvalue().endswith("\x1b[K")


@pytest.mark.parametrize("log", ["full disk", "closed pipe"])
def test_a_run_outlives_its_log(log: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    if log == "full disk":
        os.close(writer)
        writer = os.open("/dev/full", os.O_WRONLY)
    with os.fdopen(writer, "w") as out:  # the end writes the rest of the buffer again
        console = Console(out)
        for step in range(3):
            console.say(f"step {step}")
        console.close()


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.0, 3, "0"),
        (0.00213, 2, "0.0021"),
        (99.94, 3, "99.9"),
        (99.96, 2, "100"),
        (99.96, 3, "100"),
        (999.7, 3, "1,000"),
        (1234.567, 3, "1,230"),
        (-1020.4, 3, "-1,020"),
    ],
)
def test_a_rounded_number_has_no_exponent(value: float, digits: int, text: str) -> None:
    assert format_number(value, digits) == text


def test_short_work_shows_nothing() -> None:
    out = Terminal()
    with Console(out).working("exporting"):
        pass
    with pytest.raises(ValueError, match="inside"), Console(out).working("exporting"):
        raise ValueError("inside")
    assert out.getvalue() == ""
