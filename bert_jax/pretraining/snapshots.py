"""The snapshot of a growing corpus that a step reads.

The snapshot depends only on the step, so a resumed run reads the same snapshots.
"""

import contextlib
import time
from collections.abc import Callable, Generator
from typing import NamedTuple

from bert_jax.corpus.build.prepare import format_summary
from bert_jax.corpus.build.prepare_parts import fraction_prepared_after_part
from bert_jax.corpus.manifest import SHORT, read_manifest, snapshot_fingerprints
from bert_jax.corpus.mixture import Mixture
from bert_jax.corpus.store import Split, open_corpus
from bert_jax.errors import UserError
from bert_jax.objectives.base import Batch
from bert_jax.training.schedules import Phase

POLL_SECONDS = 0.5  # seconds between two checks whether the next snapshot is prepared


class BackgroundPreparation(NamedTuple):
    """The preparation of the rest of a text while a run reads the first part.

    Attributes:
        is_running: function that returns whether more snapshots are being prepared, and raises UserError if the
            preparation failed.
        say: function that prints a line about the snapshots that the run reads.
    """

    is_running: Callable[[], bool] = lambda: False
    say: Callable[[str], None] = lambda line: None


ALL_PREPARED = BackgroundPreparation()


def batches_by_snapshot(
    corpus: Mixture,
    num_snapshots: int,
    phases: tuple[Phase, ...],
    preparation: BackgroundPreparation,
    snapshot_batches: Callable[[Split, Phase, int], Generator[Batch, None, None]],
    phase: Phase,
    step: int,
) -> Generator[Batch, None, None]:
    """Yield the batches of a phase from `step` on, each from the snapshot of its step.

    The run reads a snapshot until the number of tokens read since step 0 reaches the number of tokens of the snapshot.
    After this, the run reads the next snapshot. Sequence numbers continue over snapshots. While the next snapshot is
    being prepared, the function yields {}.

    Args:
        corpus: first snapshot of the corpus.
        num_snapshots: number of snapshots that the run reads.
        phases: phases of the run.
        preparation: preparation of the missing snapshots.
        snapshot_batches: function (split, phase, step) -> an endless iterator over the batches of a snapshot.
        phase: phase of the run.
        step: step of the first batch.

    Raises:
        UserError: the next snapshot does not exist, or the preparation failed.
    """
    position = 1  # number of the snapshot, from 1 to `num_snapshots`
    while True:
        split = corpus.split("train")
        end = step_after_tokens(phases, split.num_tokens) if position < num_snapshots else None
        if end is None or step < end:
            if position > 1:
                preparation.say(_snapshot_summary(corpus, step, position, num_snapshots))
            with contextlib.closing(snapshot_batches(split, phase, step)) as batches:
                while step != end:
                    preparation.is_running()  # an error of the preparation ends the run now
                    yield next(batches)
                    step += 1
        if (following := _next_snapshot(corpus, num_snapshots, preparation)) is None:
            share = fraction_prepared_after_part(position, num_snapshots)
            preparation.say(f"step {step:,}: waiting until {share:.1%} of the text is prepared")
        while following is None:
            yield {}
            time.sleep(POLL_SECONDS)
            following = _next_snapshot(corpus, num_snapshots, preparation)
        corpus, position = following, position + 1


def check_snapshots_exist(num_snapshots: int, corpus: Mixture, preparation: BackgroundPreparation) -> None:
    """Raise UserError if a run needs more snapshots than exist from `corpus` on, and no snapshot is being prepared."""
    if num_snapshots == 1:
        return
    if len(corpus.corpora) > 1:
        raise UserError(f"config.data.snapshots={num_snapshots} is for one corpus; leave it out")
    if not preparation.is_running():
        present = 1 + len(_later_fingerprints(corpus))
        if present < num_snapshots:
            raise UserError(
                f"config.data.snapshots={num_snapshots}, but {corpus.corpora[0].directory} has {present} from "
                f"{corpus.fingerprint[:SHORT]} on; lower it, or start with config.data.text, which prepares the rest"
            )


def step_after_tokens(phases: tuple[Phase, ...], num_tokens: int) -> int:
    """Return the number of steps, at most all steps, in which a run reads `num_tokens` tokens, padding included."""
    for phase in phases:
        per_step = phase.batch_size * phase.seq_len
        steps = -(-num_tokens // per_step)
        if phase.begin + steps <= phase.end:
            return phase.begin + steps
        num_tokens -= (phase.end - phase.begin) * per_step
    return phases[-1].end


def _next_snapshot(corpus: Mixture, num_snapshots: int, preparation: BackgroundPreparation) -> Mixture | None:
    """Return the snapshot after `corpus`; None while it is being prepared."""
    is_running = preparation.is_running()  # called before the corpus is read, because the preparation may end meanwhile
    directory, later = corpus.corpora[0].directory, _later_fingerprints(corpus)
    if not later and not is_running:
        raise UserError(
            f"{directory}: no snapshot after {corpus.fingerprint[:SHORT]}, but the run reads {num_snapshots} in turn "
            "(config.data.snapshots); start it with config.data.text, which prepares the rest"
        )
    return Mixture((open_corpus(directory, later[0]),)) if later else None


def _later_fingerprints(corpus: Mixture) -> list[str]:
    """Return the fingerprints of the snapshots after `corpus`."""
    known = snapshot_fingerprints(read_manifest(corpus.corpora[0].directory))
    return known[known.index(corpus.fingerprint) + 1 :]


def _snapshot_summary(corpus: Mixture, step: int, position: int, num_snapshots: int) -> str:
    """Return lines for the console about the snapshot that the run reads from `step` on."""
    (snapshot,) = corpus.corpora
    share = fraction_prepared_after_part(position - 1, num_snapshots)
    head = f"step {step:,}: reading snapshot {position} of {num_snapshots}, {share:.1%} of the text"
    lines = [head, *(f"warning: {warning}" for warning in snapshot.manifest["warnings"])]
    return "\n".join(lines + format_summary(snapshot.manifest, snapshot.directory).splitlines()[:1])
