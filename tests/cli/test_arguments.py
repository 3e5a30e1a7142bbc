"""What every verb takes and says of itself, and words it does not know."""

import shlex
import subprocess
import sys

import pytest

from bert_jax.cli.arguments import EPILOG, parse, parser
from bert_jax.cli.main import VERBS, main
from bert_jax.errors import UserError

TEXT = "--input --format --field --encoding_errors"
PROCESSES = "--coordinator --num_processes --process_id"
OPTIONS = {
    "tokenizer": f"{TEXT} --kind --vocab_size --output --cased --sample_characters --smoothing --weights",
    "prepare": f"{TEXT} --tokenizer --output --documents --workers --heldout_fraction --language --runner --beam_options",
    "inspect": "--row --config --json",
    "pretrain": f"--config --workdir {PROCESSES}",
    "finetune": f"--config --workdir {PROCESSES}",
    "predict": "--model --input --output --batch_size",
    "embed": "--model --input --output --pooling --layers --batch_size --max_seq_len --truncate",
    "compile": "--config --topology --price_per_chip_hour --watts_per_chip --json",
    "evaluate": "--workdir --step",
    "plot": "--workdir --output",
    "export": "--workdir --output --format --step",
    "fill-mask": "--model --top_k --json",
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_each_of_its_options(run, verb: str) -> None:
    status, out, _ = run(verb, "--help")
    assert status == 0
    assert "example" in out
    names = [line.split()[0] for line in out.splitlines() if line.startswith("  --")]
    for name in names:
        assert name in out.partition("\n\n")[0], f"the usage does not show {name}"
    assert set(names) == {"--debug", *OPTIONS[verb].split()}
    status, out, _ = run("--help")
    assert f"\n    {verb}" in out


def test_examples_are_commands() -> None:
    examples = [shlex.split(line)[1:] for line in EPILOG.splitlines() if "bert-jax " in line]
    assert {verb for verb, *_ in examples} == VERBS.keys()
    for example in examples:
        args, rest = parser(VERBS).parse_known_args(example)
        assert args.function is VERBS[example[0]]
        assert all(word.startswith("--config.") for word in rest)
        assert not rest or args.takes_overrides


@pytest.mark.parametrize("argv", [["--help"], ["pretrain", "--help"], ["--version"], ["embed"]])
def test_help_does_not_wait_for_jax(argv: list[str]) -> None:
    program = """
import sys
from bert_jax.__main__ import main
try:
    main(sys.argv[1:])
finally:
    print("jax" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program, *argv], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False", done.stderr


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], ["VERB"]),
        (["prepar"], ["'prepar'", "'prepare'"]),
        (["tokenizer", "--input", "x", "--output", "y"], ["--vocab_size"]),
        (["tokenizer", "--input", "x", "--output", "y", "--vocab_size", "many"], ["--vocab_size", "many"]),
        (["tokenizer", "--input", "x", "--output", "y", "--vocab_size", "9", "--kind", "bpee"], ["bpee", "wordpiece"]),
        (["prepare", "--input", "x", "--output", "y", "--tokenizer", "z", "--document", "line"], ["'--documents'"]),
        (["tokenizer", "--input", "x", "--output", "y", "--vocab_size", "8k"], ["--vocab_size: '8k': give a whole"]),
        (
            ["prepare", "--input", "x", "--output", "y", "--tokenizer", "z", "--heldout_fraction", "2%"],
            ["give a number"],
        ),
        (["evaluate", "--workdir", "x", "--stpe", "3"], ["--stpe", "did you mean '--step'"]),
        (["fill-mask", "--model", "x", "--top-k", "3", "[MASK]"], ["--top-k", "did you mean '--top_k'"]),
        (["fill-mask", "--model", "x"], ["TEXT"]),
        (["pretrain", "--workdir", "x"], ["--config"]),
        (["evaluate"], ["--workdir"]),
        (["export", "--workdir", "x"], ["--output"]),
        (["evaluate", "--workdir", "x", "--config.train.steps=3"], ["--config.train.steps=3"]),
        (["embed", "--model", "x", "--input", "y"], ["--output"]),
        (["embed", "--model", "x", "--input", "y", "--output", "z", "--pooling", "max"], ["max", "'mean', 'cls'"]),
        (["embed", "--model", "x", "--input", "y", "--output", "z", "--trunc"], ["--trunc", "'--truncate'"]),
        (["compile", "--config", "x", "--coordinator", "y:1"], ["--coordinator"]),
        (["predict", "--input", "x"], ["--model"]),
        (["finetune", "--workdir", "x"], ["--config"]),
        (["plot", "--workdir", "x"], ["--output"]),
        (
            ["export", "--workdir", "x", "--output", "y", "--format", "tf"],
            ["'tf'", "'huggingface', 'stablehlo', 'onnx'"],
        ),
    ],
)
def test_unknown_verbs_and_options(refused, argv: list[str], says: list[str]) -> None:
    refused(*argv, says=(*says, "--help"))


PRETRAIN = ["pretrain", "--config", "x", "--workdir", "y"]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["evaluate", "--workdir", "w1", "--workdir=w1"], "--workdir is given twice"),
        (["export", "--workdir", "x", "--model", "y", "--output", "z"], "--workdir or --model is given twice"),
        (["embed", "--model", "x", "--input", "y", "--output", "z", "--input", "z"], "--input is given twice"),
        (["tokenizer", "--input", "x", "--weights", "1", "2", "--weights", "3"], "--weights is given twice"),
        ([*PRETRAIN, "--config=x"], "--config is given twice"),
        ([*PRETRAIN, "--num_processes", "2", "--num_processes", "2"], "--num_processes is given twice"),
        ([*PRETRAIN, "--config.seed=1", "--config.train.steps=2", "--config.seed=1"], "--config.seed is given twice"),
    ],
)
def test_what_is_given_twice(refused, argv: list[str], says: str) -> None:
    refused(*argv, says=(says, "--help"))


def test_inputs_of_a_tokenizer_are_given_once_a_language() -> None:
    argv = ["tokenizer", "--input", "a", "b", "--input", "c", "--vocab_size", "9", "--output", "y"]
    assert parse(VERBS, argv).input == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["inspect", "mix/ja", "mix/ko", "--row", "3"], "'mix/ko' belongs to no option; several corpora are one word"),
        ([*PRETRAIN, "corpus/"], "'corpus/' belongs to no option; a corpus is given as --config.data.corpus=corpus/"),
        (["finetune", *PRETRAIN[1:], "my-bert"], "--config.init_from=my-bert, data as --config.task.data=my-bert"),
        (["predict", "--model", "x", "a.jsonl"], "--input a.jsonl or"),
        (["fill-mask", "--model", "x", "The", "[MASK]"], "'[MASK]' belongs to no option; put the whole text in quotes"),
        (["export", "--workdir", "my", "run", "--output", "x"], "'run' belongs to no option"),
    ],
)
def test_words_that_belong_to_no_option(refused, argv: list[str], says: str) -> None:
    refused(*argv, says=(says, "--help"))


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["inspect", "x", "--masking", "span"], "did you mean '--config.data.masking=VALUE'?"),
        (["inspect", "x", "--mask=span"], "did you mean '--config.data.masking=span'?"),
        ([*PRETRAIN, "--corpus", "x"], "did you mean '--config.data.corpus=VALUE'?"),
        ([*PRETRAIN, "--seed=3"], "did you mean '--config.seed=3'?"),
        ([*PRETRAIN, "--length=64"], "did you mean '--config.train.phases[0].seq_len=64'?"),
        ([*PRETRAIN, "--name=x"], "did you mean '--config.optimizer.name=x' or '--config.task.name=x'?"),
        ([*PRETRAIN, "--num-processes=2"], "did you mean '--num_processes'?"),
        (["evaluate", "--workdir", "x", "--seed=3"], "'--seed=3' is no option"),
    ],
)
def test_a_key_of_the_config_written_as_an_option(refused, argv: list[str], says: str) -> None:
    refused(*argv, says=(says, "--help"))


def test_debug_shows_the_traceback(tmp_path) -> None:
    with pytest.raises(UserError):
        main(["evaluate", "--debug", "--workdir", str(tmp_path)])
