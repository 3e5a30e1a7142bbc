"""A parser for the texts of budgets, such as `30m`, `1h30m`, `50M tokens` or `1e16 flops`."""

import math
import re
from typing import NamedTuple

from bert_jax.errors import UserError

SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
# Unit -> its longer spellings, without the plural "s".
SPELLINGS = {"s": ("second", "sec"), "m": ("minute", "min"), "h": ("hour", "hr"), "d": ("day",)}
SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_NUMBER = r"\d+(?:\.\d+)?(?:[eE]\+?\d+)?"
_PART = re.compile(rf"({_NUMBER})([{''.join(SECONDS)}])")
_WORDS = {re.compile(rf"\s*({'|'.join(words)})s?\b\s*", re.IGNORECASE): unit for unit, words in SPELLINGS.items()}
_TIME = re.compile(rf"(?:{_PART.pattern})+")
_COUNT = re.compile(rf"({_NUMBER})\s*([{''.join(SCALES)}]?)\s*(tokens|flops)", re.IGNORECASE)


class Budget(NamedTuple):
    """A budget for a run: seconds, training tokens, or FLOPs of matrix products; exactly one field is set."""

    seconds: float | None = None
    tokens: float | None = None
    flops: float | None = None


def parse_budget(text: str) -> Budget:
    """Return the budget that a text names; raise UserError if the text is no time, number of tokens or FLOPs."""
    text, budget = text.strip(), Budget()
    time = text
    for words, unit in _WORDS.items():
        time = words.sub(unit, time)
    if _TIME.fullmatch(time):
        budget = Budget(seconds=sum(float(amount) * SECONDS[unit] for amount, unit in _PART.findall(time)))
    elif match := _COUNT.fullmatch(text):
        amount, scale, unit = match.groups()
        budget = Budget(**{unit.lower(): float(amount) * SCALES[scale.upper()]})
    if not 0 < max(amount or 0 for amount in budget) < math.inf:
        raise UserError(f"--budget '{text}': give a time, tokens or FLOPs: 30m, 1h30m, '50M tokens', '1e16 flops'")
    return budget
