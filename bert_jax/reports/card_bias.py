"""What a report of `bert-jax bias --json` says, for the limits of a model card."""

import pathlib
from typing import Any

from bert_jax.errors import UserError
from bert_jax.readers.rows import parse_json


def bias_sentences(report: pathlib.Path, weights: str) -> list[str]:
    """Return a text for each figure of a bias report: what it says and what it does not say.

    Args:
        report: a file with what `bert-jax bias --json` printed.
        weights: `weights_digest` of the model of the card.

    Raises:
        UserError: the file cannot be read or is no such report, or the report is about other weights.
    """
    try:
        found = parse_json(str(report), report.read_text(encoding="utf-8"))
        measured, sentences = (
            found["weights"],
            [_sentence(one) for part in found["results"] for one in part["readings"]],
        )
    except OSError as error:
        raise UserError(f"--bias {report}: cannot be read ({error.strerror or error})") from None
    except (KeyError, TypeError, UnicodeDecodeError):
        raise UserError(f"--bias {report}: not a bias report; give what `bert-jax bias --json` printed") from None
    if measured != weights:
        raise UserError(f"--bias {report}: measured with other weights than these; run `bert-jax bias --json` again")
    return sentences


def _sentence(reading: Any) -> str:
    says, limits = reading["says"], reading["does_not_say"]
    if not isinstance(says, str) or not isinstance(limits, str):
        raise TypeError("a sentence is no text")
    return f"{says} {limits}"
