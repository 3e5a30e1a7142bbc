"""Commands that a new user types: each is answered by the cause in one or two short lines, or does what was meant."""

import pathlib

import pytest

from bert_jax.cli.main import main
from tests.helpers.tiny_models import save

LIMIT = 260  # characters of a message
# The command, its status, and what its answer says.
COMMANDS = [
    ("pretain --config=demo --workdir r0", 2, "did you mean 'pretrain'?"),
    ("train --config=demo", 2, "did you mean 'pretrain'?"),
    ("ner", 2, "did you mean 'finetune'?"),
    ("help", 0, "verbs:"),
    ("help pretrain", 0, "usage: bert-jax pretrain"),
    ("version", 0, "bert-jax 0."),
    ("tokenizer --input nothere/*.txt --vocab_size 1000 --output t1", 2, "no file matches this pattern"),
    ("tokenizer --input tickets.csv --output t1", 2, "--vocab_size"),
    ("prepare --input tickets.csv --output c1", 2, "give --tokenizer DIR"),
    ("prepare --input tickets.csv --tokenizer bert-base-uncased --output c1", 2, "a name of the Hub as OWNER/NAME"),
    ("prepare --input tickets.csv --tokenizer model --lang is --output c1", 2, "did you mean '--language'?"),
    ("prepare --input tickets.csv --tokenizer model --field body --output c1", 2, "no column 'body'"),
    ("pretrain --workdir r1 --config.data.corpus=corpus", 2, "give --config RECIPE, or --budget AMOUNT"),
    ("pretrain --config=demo", 2, "--workdir"),
    ("pretrain --config=bert-base --workdir r1", 2, "did you mean bert_base?"),
    ("pretrain --config=bert-base-uncased --workdir r1", 2, "did you mean bert_base?"),
    ("pretrain --config=xyzzy --workdir r1", 2, "`bert-jax config` lists all"),
    ("pretrain --config=demo --workdir r1 --config.train.step=100", 2, "did you mean 'train.steps'?"),
    ("pretrain --config=demo --workdir r1 --config.optimizer.learning_rate=1e-4", 2, "'optimizer.peak_learning_rate'"),
    ("pretrain --config=demo --workdir r1 --config.train.batch_size=abc", 2, "give a whole number"),
    ("pretrain --config=demo --workdir r1 --batch_size 16", 2, "did you mean '--config.train.batch_size=16'?"),
    ("pretrain --config=demo --workdir r1 --steps=5", 2, "did you mean '--config.train.steps=5'?"),
    ("pretrain --config=demo --workdir r1 --corpus corpus", 2, "did you mean '--config.data.corpus=corpus'?"),
    ("pretrain --config=demo --workdir r1 --config.data.corpus=tickets.csv", 2, "a file, not a corpus"),
    ("pretrain --config=demo --workdir r1 --config.data.corpus=nothere", 2, "make a corpus with `prepare"),
    ("pretrain --budget 5minits --workdir r1 --config.data.corpus=c", 2, "give a time, tokens or FLOPs"),
    ("evaluate nothere", 2, "no run here"),
    ("plot nothere --output p.png", 2, "no such run"),
    ("inspect model", 2, "make a corpus with `prepare`"),
    ("verify tickets.csv", 2, "a file; give the directory"),
    ("verify nothere", 2, "no such directory"),
    ("fill-mask --model model 'a <mask>.'", 2, "write [MASK] instead"),
    ("fill-mask --model model 'a word.'", 2, "write it where a token is missing"),
    ("fill-mask --model nothere 'a [MASK].'", 2, "no model here"),
    ("attention --model model text", 2, "--output"),
    ("score --model model", 2, "nothing to score; give --pairs"),
    ("score --model model --pairs blimp", 2, "docs/score.md"),
    ("score --model model --retrieval nothere", 2, "in the layout of BEIR"),
    ("predict --model model --input tickets.csv --output x.jsonl", 2, "fine-tune it first"),
    ("finetune --config=squad --init_from model --workdir f1", 2, "give --config.task.name"),
    ("finetune --config=glue --init_from model --workdir f1 --config.task.name=ner", 2, "conll2003, wnut17, wikigold"),
    ("finetune --config=glue --init_from model --workdir f1 --task mrpc", 2, "'--config.task.name=mrpc'"),
    ("finetune --data tickets.csv --init_from model --workdir f1", 2, "needs --text COLUMN and --label COLUMN"),
    ("finetune --data nothere.csv --text a --label b --init_from model --workdir f1", 2, "No such file"),
    (
        "finetune --data tickets.csv --text text --label kategorie --init_from model --workdir f1",
        2,
        "'hauptkategorie'?",
    ),
    ("finetune --data tickets.csv --text txt --label hauptkategorie --init_from model --workdir f1", 2, "mean 'text'?"),
    ("finetune --data tickets.csv --text txt --label kategorie --init_from model --workdir f1", 2, "mean 'text'?"),
    ("finetune --data tickets.csv --text text --label hauptkategorie --workdir f1", 2, "no weights"),
    ("compile --config=bert_base --topology tpu-v5", 2, "unknown chip 'tpu-v5'"),
    ("compile --config=bert_base --topology v5e-65", 2, "v5e-64"),
    ("compress --model model --int8", 2, "--method"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A directory with a model and a file of tickets, separated by semicolons."""
    place = tmp_path_factory.mktemp("mistakes")
    save(place / "model", "bert")
    rows = "".join(f"{row};betreff {row};text {row};{'AB'[row % 2]}\n" for row in range(60))
    (place / "tickets.csv").write_text(f"ticket_id;betreff;text;hauptkategorie\n{rows}")
    return place


def words_of(command: str) -> list[str]:
    """Split at spaces, but keep a text in quotes whole."""
    parts = command.split("'")
    return [word for i, part in enumerate(parts) for word in ([part] if i % 2 and " " in part else part.split())]


@pytest.mark.parametrize(("command", "status", "answer"), COMMANDS, ids=[row[0] for row in COMMANDS])
def test_a_natural_mistake_is_answered(
    command: str,
    status: int,
    answer: str,
    place: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(place)
    try:
        code = main(words_of(command))
    except SystemExit as end:
        code = end.code
    printed = capsys.readouterr()
    assert code == status
    assert answer in printed.out + printed.err
    if status:
        message = printed.err.strip().splitlines()
        assert message[-1].startswith(("bert-jax", "`bert-jax"))
        assert all(len(line) <= LIMIT for line in message)
        assert "Traceback" not in printed.err


@pytest.mark.parametrize(
    ("spelled", "seconds"),
    [("5min", 300), ("2 hours", 7_200), ("1 hour 30 minutes", 5_400), ("90 sec", 90), ("1d", 86_400)],
)
def test_a_time_may_be_spelled_as_people_do(spelled: str, seconds: float) -> None:
    from bert_jax.pretraining.budget.amounts import parse_budget

    assert parse_budget(spelled).seconds == seconds
