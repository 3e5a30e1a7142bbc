"""Which key was meant: spellings of other trainers, then the nearest name."""

from collections.abc import Iterable

from bert_jax.errors import nearest

# What people write, without dashes, underscores and `config.` -> the key.
ALIASES = {
    "lr": "optimizer.peak_learning_rate",
    "learningrate": "optimizer.peak_learning_rate",
}


def meant_keys(written: str, known: Iterable[str]) -> str:
    """Return `; did you mean '--config.KEY'?`, or nothing where no key is close."""
    known = list(known)
    last = written.rpartition(".")[2]
    alias = ALIASES.get(last.replace("_", "").replace("-", "").lower())
    if alias in known:
        return f"; did you mean '{alias}'?"
    near = nearest(written, known)
    return f"; did you mean '{near}'?" if near else ""
