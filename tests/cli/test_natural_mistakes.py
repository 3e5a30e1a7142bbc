"""Commands that a new user types: each is answered by the cause in one or two short lines, or does what was meant."""

import pathlib
import shutil
import subprocess
from collections.abc import Callable

import pytest

import bert_jax
from bert_jax.cli.main import main
from tests.helpers.commands import World
from tests.helpers.tiny_models import save

LIMIT = 200  # characters of a line of a message
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
    ("tokenizer texts/00.txt t2", 2, "give --vocab_size N and --output DIR"),
    ("tokenizer --input texts --type xyzzy --vocab_size 500 --output t3", 2, "--kind: invalid choice: 'xyzzy'"),
    ("tokenizer --input texts --kind sentencepiece --output t4", 2, "did you mean 'unigram'?"),
    ("tokenizer --input texts --bpe --vocab_size 500 --output t4", 2, "did you mean '--kind bpe'?"),
    ("tokenize --input texts --output t5", 2, "did you mean 'tokenizer'?"),
    ("prepare --input texts --tokenizer tok --output corpus", 2, "holds a corpus already"),
    ("prepare --input texts --tokenizer tok --language icelandic --output c2", 2, "did you mean 'is'?"),
    ("prepare --input texts --tokenizer tok --language IS --output c2", 2, "did you mean 'is'?"),
    ("prepare --input texts --tokenizer tok --language isl --output c2 --workers 1", 0, "did you mean 'is'?"),
    ("clean --input texts --output texts --workers 1", 2, "--output is also --input; choose another"),
    ("prepare --input tickets.csv --tokenizer model --field body --output c1", 2, "there are 'ticket_id', 'betreff'"),
    ("prepare --input tickets.csv --tokenizer model --field body --output c1", 2, "give a column with --field"),
    ("prepare --input tickets.csv --tokenizer model --output c4 --workers 1", 0, "60 documents in = 60 stored"),
    ("prepare --input book.docx --tokenizer tok --output c1", 2, "save a document of an office program as text"),
    ("tokenizer --input texts --vocab_size 1000000 --output t1", 2, "the text fills a vocabulary of"),
    ("tokenizer --input texts --lowercase --vocab_size 500 --output t1", 2, "unless --cased is given"),
    ("tokenizer --input texts --vocab 500 --output t1", 2, "did you mean '--vocab_size'?"),
    ("prepare --input texts --tokenizer tok --output c1 --split 0.1", 2, "did you mean '--heldout_fraction'?"),
    ("tokenizer --input texts --vocab_size 8k --output t1", 2, "give a whole number"),
    ("pretrain --workdir r1 --config.data.corpus=corpus", 2, "give --config RECIPE, or --budget AMOUNT"),
    ("pretrain --config=demo", 2, "--workdir"),
    ("pretrain --config=small-cpu --workdir r1", 2, "no corpus: give"),
    ("pretrain demo r1", 2, "no corpus: give"),
    ("pretrain --recipe demo --model r1 --workdir r1", 2, "no corpus: give"),
    ("pretrain --config=demo.yaml --workdir r1", 2, "did you mean 'demo'?"),
    ("pretrain -c demo -w r1", 2, "did you mean '--config --workdir'?"),
    ("--config=demo pretrain", 2, "required: --workdir"),
    ("resume run", 2, "repeat the `bert-jax pretrain` or `bert-jax finetune` command with its --workdir"),
    ("demo", 2, "did you mean 'pretrain --config=demo'?"),
    ("xyzzy", 2, "`bert-jax help` lists the verbs"),
    ("pretrain --config=demo --corpus corpus --workdir r4 --steps 100", 2, "did you mean '--config.train.steps=100'?"),
    ("pretrain --config=demo --workdir r1 --epochs 3 --lr 1e-4", 2, "are not options; did you mean '--config."),
    ("pretrain --config=demo --workdir r1 --cpu", 2, "did you mean '--platform cpu'?"),
    ("pretrain --config=demo --workdir r1 --corpus corpus --gpu", 2, "did you mean '--platform cuda'?"),
    ("pretrain --config=demo --workdir r1 --corpus corpus --device cuda", 2, "did you mean '--platform'?"),
    ("pretrain demo r1 corpus", 2, "give a corpus as --corpus corpus"),
    ("pretrain --config=demo --workdir r1 --hours 2", 2, "did you mean '--budget 2h'?"),
    ("pretrain --config=demo --workdir r1 --config.model.layers=4", 2, "did you mean 'model.num_layers'?"),
    ("pretrain --config=demo --workdir r1 --num_gpus 8", 2, "did you mean '--config.mesh.data=8'?"),
    ("pretrain --config=demo --workdir r1 --corpus corpus --resume", 2, "repeat its command without this option"),
    ("pretrain --config=demo --workdir r1 --corpus texts", 2, "make a corpus of its texts with `prepare --input`"),
    ("pretrain --config=demo --workdir r1 --mesh 8", 2, "--config.mesh.data=4 --config.mesh.fsdp=2"),
    ("pretrain --config=demo --workdir r1 --config.train.batch-size=acht", 2, "batch_size=acht: give a whole number"),
    ("pretrain --config=demo --workdir run --corpus corpus", 2, "holds a run that differs"),
    ("pretrain --config=demo --workdir corpus --corpus corpus", 2, "holds a corpus"),
    ("pretrain recipe.py again --corpus corpus --init_from model", 2, "prepared with another vocabulary"),
    ("pretrain recipe.py again --corpus corpus --init_from model", 2, "(`bert-jax vocabulary`)"),
    ("pretrain --config=demo again --corpus corpus --init_from run", 2, "another architecture"),
    ("pretrain --config=demo again --corpus corpus --init_from run", 2, "--config.model=from_init takes"),
    ("pretrain recipe.py run --corpus corpus", 0, "finished: all 4 steps are done"),
    ("pretrain --config=bert-base-uncased --workdir r1", 2, "did you mean 'bert_base'?"),
    ("pretrain --config=xyzzy --workdir r1", 2, "`bert-jax config` lists all"),
    ("pretrain --config=demo --workdir r1 --config.train.step=100", 2, "did you mean 'train.steps'?"),
    ("pretrain --config=demo --workdir r1 --config.optimizer.learning_rate=1e-4", 2, "'optimizer.peak_learning_rate'"),
    ("pretrain --config=demo --workdir r1 --config.train.batch_size=abc", 2, "give a whole number"),
    ("pretrain --config=demo --workdir r1 --batch_size 16", 2, "did you mean '--config.train.batch_size=16'?"),
    ("pretrain --config=demo --workdir r1 --steps=5", 2, "did you mean '--config.train.steps=5'?"),
    ("pretrain --config=demo --workdir r1 --config.data.corpus=tickets.csv", 2, "a file, not a corpus"),
    ("pretrain --config=demo --workdir r1 --config.data.corpus=nothere", 2, "make a corpus with `prepare"),
    ("pretrain --budget 5minits --workdir r1 --config.data.corpus=c", 2, "give a time, tokens or FLOPs"),
    ("evaluate nothere", 2, "no run here"),
    ("plot nothere --output p.png", 2, "no such run"),
    ("plot run --output p.xyz", 2, "Format 'xyz' is not supported"),
    ("plot run", 2, "give --output FILE.png"),
    ("evaluate --model run", 0, "mlm loss"),
    ("evaluate model", 2, "a model, but no run here"),
    ("report model --output x.html", 2, "a model, but no run here"),
    ("report run -o r.html", 2, "did you mean '--output'?"),
    ("report run --output r.pdf", 2, "give the name of an .html file"),
    ("report run", 2, "give --output FILE.html or --follow"),
    ("report run runs/b --output r.html", 2, "no run here (no such directory)"),
    ("report run absent --output r.html", 2, "are 'run'"),
    ("report --model run --output r.html", 0, "r.html"),
    ("config bert_bse", 2, "did you mean 'bert_base'?"),
    ("config --config=bert-base", 0, "train.steps = 1000000"),
    ("gallery", 2, "`bert-jax help` lists the verbs"),
    ("configs", 2, "did you mean 'config'?"),
    ("inspect --corpus nothere", 2, "no such corpus directory"),
    ("verify --model tok", 0, "intact"),
    ("completion fish", 2, "invalid choice: 'fish'"),
    ("export --onnx run out", 2, "did you mean '--format onnx'?"),
    ("export run out --format safetensors", 2, "did you mean 'huggingface'?"),
    ("export run --output out --format torch", 2, "did you mean 'huggingface'?"),
    ("export run --output out --format gguf", 2, "choose from 'huggingface'"),
    ("export run", 2, "give --output DIR"),
    ("export run model", 2, "holds a model already"),
    ("inspect run", 2, "a run, not a corpus; give the corpus, or show the run"),
    ("inspect model", 2, "the directory holds a model"),
    ("inspect tok", 2, "so not a corpus; make a corpus"),
    ("verify tickets.csv", 2, "a file; give the directory"),
    ("verify nothere", 2, "no such directory"),
    ("fill-mask --model model 'a <mask>.'", 2, "write [MASK] instead"),
    ("fill-mask model a b [MASK]", 2, "put the whole text in quotes"),
    ("fill-mask --model model 'a ___.'", 2, "write it where a token is missing"),
    ("fill-mask --model model 'a word.'", 2, "write it where a token is missing"),
    ("fill-mask --model nothere 'a [MASK].'", 2, "no model here"),
    ("fill-mask model 'a b [MASK]'", 0, "%"),
    ("fill_mask --workdir model 'a b [MASK]'", 0, "%"),
    ("fill-mask --model model", 2, "give either a text with [MASK], in quotes, or --input FILE"),
    ("fill-mask --model model 'a [MASK]' --topk 3", 2, "did you mean '--top_k'?"),
    ("fill-mask --model model/model.safetensors 'a [MASK].'", 2, "a file; give the directory of the model, model"),
    ("fill-mask --model bert-base-uncased 'a [MASK].'", 2, "a name of the Hub as OWNER/NAME"),
    ("attention model text a.html", 2, "give --output FILE.html"),
    ("attention --model model text --out a.html", 2, "did you mean '--output'?"),
    ("embed model texts/00.txt", 2, "give --output FILE.npy"),
    ("embed --model model --input short.txt --output v.csv", 2, "end the file name with .npy"),
    ("embed --model model --input tickets.csv --field bdy --output v.npy", 2, "no 'bdy'"),
    ("embed --model model --input texts --output v.npy", 2, "Is a directory"),
    ("embed --model model --text 'a b' --output v.npy", 2, "write the texts into a file"),
    ("predict --model model --input tickets.csv --probabilities", 2, "each answer already has its probabilities"),
    ("predict --model model --text 'a b'", 2, "give it as --input FILE.txt"),
    ("predict --model model --input 'a b'", 2, "fine-tune it first"),
    ("predict --model model --input tickets.csv --output a.csv", 2, "give a name that ends with .jsonl"),
    ("predict model", 2, "fine-tune it first"),
    ("classify --model model --input tickets.csv", 2, "did you mean 'predict'?"),
    ("vocabulary model --output v", 2, "give --tokenizer DIR"),
    ("compress --model model --layers 2 --output m3", 2, "give --method layers --amount FRACTION"),
    ("score --model model --input texts/00.txt", 2, "did you mean '--text'?"),
    ("embed --model model --input unknown.txt --output v.npy", 0, "1 of 2 texts have mostly unknown tokens"),
    ("fill-mask --model model '\N{CJK UNIFIED IDEOGRAPH-6F22} [MASK]'", 0, "the text has mostly unknown tokens"),
    ("score model --text 'The cat sat on the mat.'", 2, "write the text into a file, one text per line"),
    ("bias model bias.json", 2, ".html"),
    ("pairs corpus p1", 0, "training pairs"),
    ("bias --model nothere", 2, "no model here"),
    ("attention --model model text", 2, "--output"),
    ("attention --model model --output a.html", 2, "give --text TEXT"),
    ("score --model model", 2, "nothing to score; give --pairs"),
    ("score --model model --pairs blimp", 2, "docs/score.md"),
    ("score --model model --retrieval nothere", 2, "in the layout of BEIR"),
    ("predict --model model --input tickets.csv --output x.jsonl", 2, "fine-tune it first"),
    ("finetune --config=squad --init_from model --workdir f1", 2, "give --config.task.name"),
    (
        "finetune --config=glue --init_from model --workdir f1 --config.task.name=ner",
        2,
        "give a benchmark (conll2003, wnut17, wikigold",
    ),
    ("finetune --config=glue --init_from model --workdir f1 --task mrpc", 2, "--config.task.name=NAME, such as"),
    ("finetune --task ner --data x --init_from model --workdir f1", 2, "--kind KIND, such as token_classification"),
    ("finetune --data tickets.csv --init_from model --workdir f1", 2, "give --text COLUMN and --label COLUMN; tickets"),
    (
        "finetune --data tickets.csv --label hauptkategorie --workdir f1",
        2,
        "tickets.csv has ticket_id, betreff, text, h",
    ),
    ("finetune --data tickets.csv --text text --labels hauptkategorie --model model --workdir f1", 2, "'--label'?"),
    (
        "finetune --data tickets.xlsx --text text --label a --init_from model --workdir f1",
        2,
        "save the sheet as CSV in UTF-8",
    ),
    (
        "finetune --data tickets.csv --text text --label hauptkategorie --init_from nothere --workdir f1",
        2,
        "no model here",
    ),
    (
        "finetune --data tickets.csv --text betreff text --label hauptkategorie --init_from model --workdir f1",
        2,
        "two columns as --text COLUMN,COLUMN",
    ),
    (
        "finetune --data tickets.csv --text text --label ticket_id --kind sentiment --init_from model --workdir f1",
        2,
        "each of the 60 rows has another label",
    ),
    ("finetune --train tickets.csv --text text --label a --init_from model --workdir f1", 2, "did you mean '--data'?"),
    ("finetune tickets.csv --text text --label a --init_from model --workdir f1", 2, "a file as --data tickets.csv"),
    (
        "finetune --data tickets.csv --text text --label hauptkategorie --kind rnr --init_from model --workdir f1",
        2,
        "--kind rnr: choose from regression",
    ),
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
    ("compile --config=bert_base --topology v5e-8x8", 2, "did you mean 'v5e:8x8'?"),
    ("compile --config=bert_base --topology h100x8", 2, "did you mean 'h100:8'?"),
    ("compile --config=bert_base --topology 64", 2, "write v5e-64 or v5e:8x8 for TPUs"),
    ("compile --config=bert_base --tpu v5e-64", 2, "did you mean '--topology'?"),
    ("compile bert-bse", 2, "did you mean 'bert_base'?"),
    ("compile --config=bert_base --topology v5e-64 --price 1", 2, "did you mean '--price_per_chip_hour'?"),
    ("compile bert_base v5e-65", 2, "v5e-64"),
    ("compile", 2, "give --config RECIPE"),
    ("compress --model model --int8", 2, "--method"),
]


@pytest.fixture(scope="module")
def place(world: World, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A directory with a model, a file of tickets separated by semicolons, and a finished run with its inputs."""
    place = tmp_path_factory.mktemp("mistakes")
    save(place / "model", "bert")
    rows = "".join(f"{row};betreff {row};text {row};{'AB'[row % 2]}\n" for row in range(60))
    (place / "tickets.csv").write_text(f"ticket_id;betreff;text;hauptkategorie\n{rows}")
    (place / "tickets.xlsx").write_text("")
    (place / "book.docx").write_bytes(b"PK\x03\x04\x00\x00 [Content_Types].xml")
    (place / "unknown.txt").write_text("a b c\n\N{CJK UNIFIED IDEOGRAPH-6F22}\n")
    (place / "short.txt").write_text("a b c\n")
    for name, made in {"texts": world.texts, "tok": world.tokenizer, "corpus": world.corpus, "run": world.run}.items():
        shutil.copytree(made, place / name)
    shutil.copy(world.recipe, place / "recipe.py")
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
        assert [line for line in message if len(line.replace(f"{place}/", "")) > LIMIT] == []
        assert "Traceback" not in printed.err


@pytest.mark.parametrize(
    ("spelled", "seconds"),
    [("5min", 300), ("2 hours", 7_200), ("1 hour 30 minutes", 5_400), ("90 sec", 90), ("1d", 86_400)],
)
def test_a_time_may_be_spelled_as_people_do(spelled: str, seconds: float) -> None:
    from bert_jax.pretraining.budget.amounts import parse_budget

    assert parse_budget(spelled).seconds == seconds


def test_at_least_150_mistakes_are_kept() -> None:
    assert len({command for command, _, _ in COMMANDS}) >= 150


def test_a_finished_run_that_is_repeated_says_so_and_counts_no_restart(
    place: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    assert main(["pretrain", "recipe.py", "run", "--corpus", "corpus"]) == 0
    printed = capsys.readouterr()
    assert "finished: all 4 steps are done" in printed.err
    assert "next:\n  bert-jax report run --output run.html --recipe recipe.py\n" in printed.out
    assert "The capital of" not in printed.out  # the example is a sentence of the corpus
    assert main(["report", "run", "--output", "repeated.html"]) == 0
    page = (place / "repeated.html").read_text()
    assert "restarted" not in page
    assert 'class="restart"' not in page


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (lambda: bert_jax.load("nothere"), "no model here"),
        (lambda: bert_jax.load("model").fill_mask("no mask"), "write it where a token is missing"),
        (lambda: bert_jax.load("model").encode("one text"), "give a list of strings"),
        (lambda: bert_jax.load("model").predict(["a text"]), "fine-tune it first"),
        (lambda: bert_jax.load_model("model"), "did you mean 'load'?"),
        (lambda: bert_jax.pretrain_config("bert-bse"), "did you mean 'bert_base'?"),
        (lambda: bert_jax.pretrain_config("glue"), "is a fine-tuning recipe"),
        (
            lambda: bert_jax.finetune_config("glue", {"task.labels": ["no", "yes"]}),
            "config.task.labels=['no', 'yes']: give text, such as 'a,b'",
        ),
        (lambda: bert_jax.fine_tune("model"), "did you mean 'finetune'?"),
    ],
)
def test_a_natural_mistake_in_python_is_answered(
    call: Callable[[], object], answer: str, place: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    with pytest.raises((bert_jax.UserError, AttributeError)) as raised:
        call()
    assert answer in str(raised.value)
    assert raised.value.__context__ is None


def test_a_recipe_has_its_name_in_python_too() -> None:
    assert bert_jax.pretrain_config("bert-base").model.num_layers == 12
    assert bert_jax.finetune_config("glue").train.batch_size == 32


def test_bash_completes_verbs_options_recipes_and_keys(
    capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    program = """
source ./script
completions() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    local function
    function=$(complete -p bert-jax | sed 's/.*-F \\([^ ]*\\).*/\\1/')
    $function bert-jax "${COMP_WORDS[COMP_CWORD]}" ''
    echo "${COMPREPLY[*]}"
}
completions bert-jax pretr
completions bert-jax pretrain --config small_
completions bert-jax pretrain --config.train.st
completions bert-jax tokenizer --kind by
"""
    done = subprocess.run(["bash", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["pretrain", "small_cpu small_gpu", "--config.train.steps", "byte_level"]
