"""Which snapshot of a growing corpus a step reads: a function of the step, so that a resumed run reads the same."""

import contextlib
import time
from collections.abc import Callable, Generator
from typing import NamedTuple

from bert_jax.config import PretrainConfig
from bert_jax.corpus.build.prepare import format_summary
from bert_jax.corpus.build.prepare_parts import prepared_fraction
from bert_jax.corpus.manifest import SHORT, fingerprints, read_manifest
from bert_jax.corpus.mixture import Mixture
from bert_jax.corpus.store import Split, open_corpus
from bert_jax.errors import UserError
from bert_jax.objectives.base import Batch
from bert_jax.training.schedules import Phase, plan_phases

POLL_SECONDS = 0.5  # between two looks for a snapshot that is being prepared


class Rest(NamedTuple):
    """The rest of a text, which is prepared while a run reads the beginning.

    is_coming() -> whether more snapshots are being prepared; UserError where that failed
    say(line) -> print a line about what the run reads
    """

    is_coming: Callable[[], bool] = lambda: False
    say: Callable[[str], None] = lambda line: None


ALL_PREPARED = Rest()


def read_in_turn(
    config: PretrainConfig,
    corpus: Mixture,
    rest: Rest,
    read: Callable[[Split, Phase, int], Generator[Batch, None, None]],
    phase: Phase,
    step: int,
) -> Generator[Batch, None, None]:
    """Yield the batches of a phase from `step` on, each from the snapshot that its step reads.

    The run reads a snapshot until it has read as many tokens, since step 0, as the snapshot has, and then the next one,
    of `config.data.snapshots`. Sequence numbers run on. A batch is {} while its snapshot is being prepared.

    Args:
        config: of the run.
        corpus: its first snapshot.
        rest: what is prepared meanwhile.
        read: (split, phase, step) -> the batches of a snapshot without end.
        phase: of the run.
        step: of the first batch.

    Raises:
        UserError: there is no next snapshot; the preparation failed.
    """
    phases, count, number = plan_phases(config.train), config.data.snapshots or 1, 1
    while True:
        split = corpus.split("train")
        end = step_after(phases, split.num_tokens) if number < count else None
        if end is None or step < end:
            if number > 1:
                rest.say(_reading(corpus, step, number, count))
            with contextlib.closing(read(split, phase, step)) as batches:
                while step != end:
                    rest.is_coming()  # an error ends the run now
                    yield next(batches)
                    step += 1
        if (following := _next_snapshot(corpus, count, rest)) is None:
            rest.say(f"step {step:,}: waiting until {prepared_fraction(number, count):.1%} of the text is prepared")
        while following is None:
            yield {}
            time.sleep(POLL_SECONDS)
            following = _next_snapshot(corpus, count, rest)
        corpus, number = following, number + 1


def check_snapshots(config: PretrainConfig, corpus: Mixture, rest: Rest) -> None:
    """Raise UserError where `config.data.snapshots` is above what `corpus`, the first one, and `rest` will have."""
    count = config.data.snapshots or 1
    if count > 1 and len(corpus.corpora) > 1:
        raise UserError(f"config.data.snapshots={count} is for one corpus; leave it out")
    if count > 1 and not rest.is_coming():
        found = 1 + len(_later(corpus))
        if found < count:
            raise UserError(
                f"config.data.snapshots={count}, but {corpus.corpora[0].directory} has {found} from "
                f"{corpus.fingerprint[:SHORT]} on; lower it, or start with config.data.text, which prepares the rest"
            )


def step_after(phases: tuple[Phase, ...], tokens: int) -> int:
    """Return the first step before which so many tokens, with padding, were read; the last one where none is."""
    for phase in phases:
        per_step = phase.batch_size * phase.seq_len
        steps = -(-tokens // per_step)
        if phase.begin + steps <= phase.end:
            return phase.begin + steps
        tokens -= (phase.end - phase.begin) * per_step
    return phases[-1].end


def _next_snapshot(corpus: Mixture, count: int, rest: Rest) -> Mixture | None:
    """The snapshot after this one; None where it is being prepared."""
    coming = rest.is_coming()  # asked first: the preparation may end between the two questions
    directory, later = corpus.corpora[0].directory, _later(corpus)
    if not later and not coming:
        raise UserError(
            f"{directory}: no snapshot after {corpus.fingerprint[:SHORT]}, but the run reads {count} in turn "
            "(config.data.snapshots); start it with config.data.text, which prepares the rest"
        )
    return Mixture((open_corpus(directory, later[0]),)) if later else None


def _later(corpus: Mixture) -> list[str]:
    """The fingerprints of the snapshots after this one."""
    known = fingerprints(read_manifest(corpus.corpora[0].directory))
    return known[known.index(corpus.fingerprint) + 1 :]


def _reading(corpus: Mixture, step: int, number: int, count: int) -> str:
    found = corpus.corpora[0]
    lines = [f"warning: {one}" for one in found.manifest["warnings"]]
    lines += format_summary(found.manifest, found.directory).splitlines()[:1]
    head = (
        f"step {step:,}: reading snapshot {number} of {count}, {prepared_fraction(number - 1, count):.1%} of the text"
    )
    return "\n".join([head, *lines])
