"""What a person sees."""

import io
import time

import pytest

from bert_jax.console import Console, format_seconds


def test_progress_line_has_all_a_person_wants() -> None:
    out = io.StringIO()
    line = {"step": 50, "loss": 2.5, "mlm_accuracy": 0.25, "nsp_accuracy": 0.5, "learning_rate": 1e-4}
    Console(out).training(line | {"tokens_per_second": 12345.6}, 100, 2.0)
    text = out.getvalue()
    assert all(word in text for word in ("step 50/100", "loss 2.500", "mlm 25.0%", "nsp 50.0%", "12,346", "eta 1:40"))


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
    console.preparation(10**6, 10**6, 7)
    console.say("done")
    assert out.getvalue().startswith("1.0/1.0 MB (100%)  7 documents")
    assert out.getvalue().endswith("\r\x1b[Kdone\n")


def test_scores_of_a_task_are_shares_in_percent_and_other_numbers_as_they_are() -> None:
    out = io.StringIO()
    Console(out).heldout(1200, {"accuracy": 0.875, "token_accuracy": 0.5, "pearson": 0.25, "f1": 81.5})
    assert out.getvalue() == "step 1,200 held out: accuracy 87.5%  token accuracy 50.0%  pearson 0.2500  f1 81.5000\n"
