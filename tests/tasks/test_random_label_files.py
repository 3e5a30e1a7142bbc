"""Label files at random: the labels are those of pyarrow's readers, or one line says why the file is not read."""

import collections

import pytest

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.reading.examples import read_task_examples
from bert_jax.tasks.table import resolve_task
from tests.helpers.random_label_files import label_text, random_file

# Why a file is refused, and what the generator did.
REASONS = {
    "invalid UTF-8": ("latin-1", "utf-16-le"),
    "a NUL byte": ("utf-16-le",),
    "needs two or more": ("",),
}


def check(directory, seed):
    """Return the reason of a refusal, or "read"."""
    file = random_file(seed)
    (directory / file.name).write_bytes(file.data)
    config = TaskConfig(
        name="custom",
        kind="sequence_classification",
        train=str(directory / file.name),
        columns=f"text={file.text},label={file.label}",
        skip_unlabeled=True,
    )
    expected = [name for name in map(label_text, file.labels) if name is not None]
    refusal = ""
    try:
        task = resolve_task(config)
        examples = read_task_examples(task, config, "train", lambda line: None)
    except UserError as error:
        refusal = str(error)
    if not refusal:
        assert [task.labels[example["label"]] for example in examples] == expected, file.made
        return "read"
    said = f"{file.made}: {refusal}"
    assert len(refusal.splitlines()) == 1, said
    (reason,) = [reason for reason in REASONS if reason in refusal] or [said]
    assert any(part in file.made for part in REASONS[reason]), said
    assert reason != "needs two or more" or len({*expected}) < 2, said
    return reason


def test_labels_of_60_files(tmp_path):
    outcomes = collections.Counter(check(tmp_path, seed) for seed in range(60))
    assert outcomes["read"] > 48, outcomes


@pytest.mark.slow
def test_labels_of_500_files(tmp_path):
    outcomes = collections.Counter(check(tmp_path, seed) for seed in range(1000, 1500))
    print(dict(outcomes))
    assert outcomes["read"] > 425, outcomes
