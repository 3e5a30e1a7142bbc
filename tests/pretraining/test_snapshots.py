"""The snapshot that a step reads is the same in every run, however fast the background preparation is."""

import contextlib
import itertools
import json
import os
import pathlib
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bert_jax.config import PretrainConfig, phases, pretrain_config, resolve
from bert_jax.corpus.build.prepare import prepare
from bert_jax.corpus.manifest import read_manifest, snapshot_fingerprints
from bert_jax.corpus.mixture import Mixture, open_mixture
from bert_jax.errors import UserError
from bert_jax.pretraining import snapshots
from bert_jax.pretraining.data import Batches
from bert_jax.pretraining.snapshots import ALL_PREPARED, BackgroundPreparation, check_snapshots_exist, step_after_tokens
from bert_jax.training.schedules import Phase, plan_phases
from tests.helpers.preparation import make_tokenizer, text
from tests.helpers.run_data import batches_of, heldout_of

STEPS, BATCH, SIZES = 60, 4, (8, 20, 30)  # documents of each part


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    place, rng = tmp_path_factory.mktemp("parts"), random.Random(0)
    for part, size in enumerate(SIZES):
        texts = [f"the {part} {number} " + text(rng, 12) for number in range(size)]
        (place / f"{part}.jsonl").write_text("".join(json.dumps({"text": one}) + "\n" for one in texts))
    make_tokenizer(place / "tokenizer")
    return [str(place / f"{part}.jsonl") for part in range(len(SIZES))]


def prepared(parts: list[str], place: pathlib.Path, count: int) -> pathlib.Path:
    """The corpus of the first `count` parts."""
    tokenizer = pathlib.Path(parts[0]).parent / "tokenizer"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        prepare(parts[:1], tokenizer, place / "corpus", workers=1, heldout_fraction=0.2)
        for part in parts[1:count]:
            prepare([part], None, place / "corpus", workers=1, append=True)
    return place / "corpus"


@pytest.fixture(scope="module")
def corpus(parts: list[str], tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return prepared(parts, tmp_path_factory.mktemp("corpus"), 3)


def configured(count: int | None, **phase: Any) -> PretrainConfig:
    made = pretrain_config()
    made.train.update(steps=STEPS, batch_size=BATCH)
    made.train.phases = phases({"seq_len": 32, "fraction": 0.5}, {"seq_len": 48, "fraction": 0.5, **phase})
    made.data.update(sentence_pairs="full_sentences", num_threads=1, snapshots=count)
    made.evaluate.batch_size = 8
    return resolve(PretrainConfig, made)


def opened(corpus: pathlib.Path, number: int) -> Mixture:
    return open_mixture(f"{corpus}@{snapshot_fingerprints(read_manifest(corpus))[number][:12]}")


def data_of(
    corpus: pathlib.Path, number: int, count: int | None, rest: BackgroundPreparation = ALL_PREPARED
) -> Callable[[Phase, int], Batches]:
    return batches_of(configured(count), opened(corpus, number), preparation=rest)


def read(data: Callable[[Phase, int], Batches], begin: int = 0, end: int = STEPS) -> list[dict[str, np.ndarray]]:
    """The batches of the steps from `begin` to `end`."""
    found = []
    for phase in plan_phases(configured(3).train):
        first, last = max(begin, phase.begin), min(end, phase.end)
        with contextlib.closing(data(phase, first)) as batches:
            found += list(itertools.islice(batches, max(0, last - first)))
    return found


def equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def ends(corpus: pathlib.Path) -> list[int]:
    """The steps at which the first two snapshots have been read: as many tokens as each has, step by step."""
    found = []
    for number in range(2):
        left, step = opened(corpus, number).split("train").num_tokens, 0
        while left > 0:
            left, step = left - BATCH * (32 if step < STEPS // 2 else 48), step + 1
        found.append(step)
    return found


def test_each_step_reads_the_sequences_of_its_snapshot(corpus: pathlib.Path) -> None:
    """As a run on that snapshot alone reads them, at any step that it begins at; evaluation stays with the first."""
    first, second = ends(corpus)
    assert 0 < first < STEPS // 2 < second < STEPS  # a change in each phase
    alone = [read(data_of(corpus, number, None)) for number in range(3)]
    expected = alone[0][:first] + alone[1][first:second] + alone[2][second:]
    assert not any(equal(alone[0][step], alone[1][step]) for step in range(STEPS))
    said: list[str] = []
    data = data_of(corpus, 0, 3, BackgroundPreparation(say=said.append))
    assert all(itertools.starmap(equal, zip(read(data), expected, strict=True)))
    assert [line.partition(",")[0] for line in said] == [
        f"step {first}: reading snapshot 2 of 3",
        f"step {STEPS // 2}: reading snapshot 2 of 3",  # the second phase begins
        f"step {second}: reading snapshot 3 of 3",
    ]
    assert "20 new documents 20 are added" in said[0]
    for begin in (first - 1, first, first + 1, second, second + 1):
        some = read(data, begin, begin + 3)
        assert all(itertools.starmap(equal, zip(some, expected[begin : begin + 3], strict=True)))
    phase = plan_phases(configured(3).train)[0]
    for one, other in zip(
        *(heldout_of(configured(count), opened(corpus, 0)).batches(phase) for count in (3, None)), strict=True
    ):
        assert equal(one, other)


def test_a_run_waits_for_a_snapshot(
    parts: list[str], corpus: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty batches until it is there, and then those that a run gets that never waits."""
    monkeypatch.setattr(snapshots, "POLL_SECONDS", 0)
    growing, (first, _) = prepared(parts, tmp_path, 1), ends(corpus)
    said: list[str] = []
    batches = data_of(growing, 0, 2, BackgroundPreparation(lambda: True, said.append))(
        plan_phases(configured(2).train)[0], first
    )
    assert [next(batches) for _ in range(3)] == [{}, {}, {}]
    assert said == [f"step {first}: waiting until 100.0% of the text is prepared"]
    tokenizer = pathlib.Path(parts[0]).parent / "tokenizer"
    prepare(parts[1:2], tokenizer, growing, workers=1, append=True)
    assert equal(next(batches), read(data_of(corpus, 0, 3), first, first + 1)[0])
    batches.close()


def test_an_error_of_the_preparation_ends_the_run_at_once(corpus: pathlib.Path) -> None:
    states = iter([True, True])

    def is_running() -> bool:
        try:
            return next(states)
        except StopIteration:
            raise UserError("broken archive") from None

    batches = data_of(corpus, 0, 3, BackgroundPreparation(is_running))(plan_phases(configured(3).train)[0], 0)
    assert all(next(batches) for _ in range(2))
    with pytest.raises(UserError, match="broken archive"):
        next(batches)


def test_a_snapshot_that_never_comes_is_an_error(parts: list[str], tmp_path: pathlib.Path) -> None:
    corpus = prepared(parts, tmp_path, 1)
    with pytest.raises(UserError, match=r"no snapshot after .* reads 2 in turn \(config\.data\.snapshots\)"):
        read(data_of(corpus, 0, 2))


def test_more_snapshots_than_there_will_be_are_refused_at_the_start(corpus: pathlib.Path) -> None:
    check_snapshots_exist(3, opened(corpus, 0), ALL_PREPARED)
    check_snapshots_exist(9, opened(corpus, 0), BackgroundPreparation(lambda: True))
    with pytest.raises(UserError, match=r"snapshots=4, but .* has 3 from \w+ on; lower it, or start with config.data"):
        check_snapshots_exist(4, opened(corpus, 0), ALL_PREPARED)
    with pytest.raises(UserError, match=r"snapshots=3, but .* has 2 from"):
        check_snapshots_exist(3, opened(corpus, 1), ALL_PREPARED)
    with pytest.raises(UserError, match=r"config\.data\.snapshots=2 is for one corpus"):
        check_snapshots_exist(2, Mixture(opened(corpus, 0).corpora * 2), ALL_PREPARED)


def test_a_resumed_run_with_more_steps_changes_its_snapshots_where_it_did() -> None:
    """By the tokens of the steps before, also where a phase that comes later has other sizes."""
    for later in ({"seq_len": 64}, {"batch_size": 32}, {}):
        plan = plan_phases(configured(3, **later).train)
        for tokens in (1, 128, 129, 128 * 30):
            assert step_after_tokens(plan, tokens) == -(-tokens // 128)
    plan = plan_phases(configured(3).train)
    assert [step_after_tokens(plan, 3840 + tokens) for tokens in (1, 192, 193, 192 * 30, 192 * 31)] == [
        31,
        31,
        32,
        60,
        60,
    ]
