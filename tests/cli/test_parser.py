"""Arguments and help of every verb, and refusals of unknown words."""

import dataclasses
import itertools
import os
import shlex
import signal
import subprocess
import sys

import pytest

from bert_jax.__main__ import _raise_keyboard_interrupt, run
from bert_jax.batches.text_pairs import PAIR_RULES
from bert_jax.cli.main import VERBS, main
from bert_jax.cli.parser import make_parser, parse_arguments
from bert_jax.errors import UserError

TEXT = "--input --format --field --markup --members --encoding --encoding_errors --max_unpacked_bytes"
BIAS = "--crows_pairs --stereoset --intersentence --winobias --winogender --templates"
PROCESSES = "--coordinator --num_processes --process_id"
OPTIONS = {
    "tokenizer": f"{TEXT} --kind --vocab_size --output --cased --normalization --sample_characters --smoothing "
    "--weights",
    "prepare": f"{TEXT} --tokenizer --output --documents --workers --heldout_fraction --language --deduplicate "
    "--clean --evaluation_files --keep_removed --max_rejected_fraction --runner --beam_options --append --segmenter",
    "clean": f"{TEXT} --output --recipe --documents --workers --max_rejected_fraction --keep_removed "
    "--evaluation_files --json",
    "inspect": "--sequence --config --json --html --against",
    "config": "--json",
    "compile": "--config --topology --price_per_chip_hour --watts_per_chip --json",
    "pretrain": f"--config --workdir --corpus --init_from --budget --platform {PROCESSES}",
    "evaluate": "--workdir --step --corpus --recipe --json",
    "plot": "--workdir --output",
    "report": "--output --follow --port --watts --grams_per_kwh --recipe",
    "export": "--workdir --output --push_to_hub --format --measure --head --part --step --recipe --license "
    "--base_model --bias --retrieval",
    "compress": "--recipe --model --method --amount --data --examples --output",
    "verify": "--run --original --data",
    "vocabulary": "--recipe --model --tokenizer --output",
    "fill-mask": "--recipe --model --top_k --json --input --text",
    "attention": "--recipe --model --output --words --layer --head --first_token --text --pair",
    "finetune": f"--config --workdir --json --platform {PROCESSES} --data --text --label --init_from --kind "
    "--label_separator --delimiter --dev --test --dev_fraction --skip_unlabeled",
    "pairs": "--corpus --output --rule --number --dev_number --query_tokens --document_tokens --seed",
    "mine": "--recipe --model --bm25 --pairs --corpus --output --ranks --margin --number --cross_encoder --seed",
    "predict": "--recipe --model --input --output --copy_input --batch_size",
    "embed": "--recipe --model --input --output --pooling --normalize --prompt_name --layers --batch_size "
    "--max_seq_len --truncate --vectors --projector --field",
    "score": f"--recipe --model --pairs --text {BIAS} --masking --temperature --fraction --output --labeled "
    "--retrieval --split --vectors --rerank --rerank_depth --json",
    "bias": f"--recipe --model {BIAS} --fraction --output --json",
    "completion": "",
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_each_of_its_options(run, verb: str) -> None:
    status, out, _ = run(verb, "--help")
    assert status == 0
    assert f"example:\n  bert-jax {verb} " in out
    names = [line.split()[0].rstrip(",") for line in out.splitlines() if line.startswith("  --")]
    for name in names:
        assert name in out.partition("\n\n")[0], f"the usage does not show {name}"
    assert set(names) == {"--debug", *OPTIONS[verb].split()}
    assert f"\n  {verb:<10}  {VERBS[verb].summary}\n" in run("--help")[1]


@pytest.mark.parametrize("verb", VERBS)
def test_an_empty_path_is_refused(refused, verb: str) -> None:
    (subparsers,) = (action for action in make_parser({verb: VERBS[verb]})._actions if action.choices)
    for action in subparsers.choices[verb]._actions:
        if action.option_strings and str(action.metavar).startswith(("DIR", "FILE", "PATH", "CORPUS")):
            option = action.option_strings[0]
            refused(verb, option, "", says=(option, ": the value is empty"))


def test_without_a_word_the_command_prints_its_help(run) -> None:
    assert run() == run("--help")
    status, out, err = run()
    assert (status, err) == (0, "")
    assert all(f"  bert-jax {verb:<10} {row.example}\n" in out for verb, row in VERBS.items())


def test_a_start_builds_the_parser_of_its_verb_alone() -> None:
    built: list[str] = []
    verbs = {
        name: dataclasses.replace(verb, add_options=lambda parser, name=name: built.append(name))
        for name, verb in VERBS.items()
    }
    assert parse_arguments(verbs, ["--config.seed=3", "pretrain"]).verb == "pretrain"
    assert built == ["pretrain"]
    with pytest.raises(SystemExit):
        parse_arguments(verbs, ["--help"])
    assert built == ["pretrain", *VERBS]


def test_examples_are_commands() -> None:
    for name, verb in VERBS.items():
        words = itertools.takewhile(lambda word: word != ">", shlex.split(verb.example))
        assert parse_arguments(VERBS, [name, *words]).verb == name


@pytest.mark.parametrize("argv", [["--help"], ["pretrain", "--help"], ["--version"], ["embed"], ["pretrain", "--lr"]])
def test_help_and_refusals_do_not_load_jax(argv: list[str]) -> None:
    program = """
import sys
from bert_jax.cli.main import main
try:
    main(sys.argv[1:])
finally:
    print("jax" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program, *argv], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False", done.stderr


@pytest.mark.parametrize("module", ["corpus.build.prepare", "tokenizer.train", "reports.corpus.inspect"])
def test_the_data_verbs_do_not_load_jax(module: str) -> None:
    program = f"import sys, bert_jax.{module}; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["prepar"], ["'prepar'", "'prepare'"]),
        (["--debug"], ["VERB"]),
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
        (["fill-mask", "--model", "x", "--topk", "3", "[MASK]"], ["--topk", "did you mean '--top_k'"]),
        (["pretain", "--config", "x"], ["no verb 'pretain'; did you mean 'pretrain'?"]),
        (["train"], ["no verb 'train'; did you mean 'pretrain'?"]),
        (["xyzzy"], ["no verb 'xyzzy'; `bert-jax help` lists the verbs"]),
        (["export", "runs/base"], ["give --output DIR"]),
        (["plot"], ["give --workdir DIR and --output FILE.png"]),
        (["evaluate", "ftp://x"], ["argument --workdir: ftp://x"]),
        (["pretrain", "--workdir", "x"], ["--config"]),
        (["evaluate"], ["--workdir"]),
        (["export", "--workdir", "x"], ["--output"]),
        (["evaluate", "--workdir", "x", "--config.train.steps=3"], ["'--config.train.steps=3' is not an option"]),
        (["embed", "--model", "x", "--input", "y"], ["--output"]),
        (["embed", "--model", "x", "--input", "y", "--output", "z", "--pooling", "most"], ["most", "'mean', 'cls'"]),
        (["embed", "--model", "x", "--input", "y", "--output", "z", "--trunc"], ["--trunc", "'--truncate'"]),
        (["embed", "--model", "x", "--output", "y", "--max_length", "9"], ["did you mean '--max_seq_len'"]),
        (["compile", "--config", "x", "--coordinator", "y:1"], ["--coordinator"]),
        (["predict", "--input", "x"], ["--model"]),
        (["predict", "--model", "x", "--out", "y"], ["did you mean '--output'"]),
        (["finetune", "--workdir", "x"], ["--config"]),
        (["plot", "--workdir", "x"], ["--output"]),
        (
            ["export", "--workdir", "x", "--output", "y", "--format", "tf"],
            ["'tf'", "'huggingface', 'stablehlo', 'onnx', 'onnx_int8'"],
        ),
    ],
)
def test_unknown_verbs_and_options(refused, argv: list[str], says: list[str]) -> None:
    refused(*argv, says=(*says, "--help"))


PRETRAIN = ["pretrain", "--config", "x", "--workdir", "y"]
FINETUNE = ["finetune", *PRETRAIN[1:]]


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
        ([*PRETRAIN, "--config.seed=1", "--config.seed", "1"], "--config.seed is given twice"),
    ],
)
def test_options_and_overrides_given_twice(refused, argv: list[str], says: str) -> None:
    refused(*argv, says=(says, "--help"))


def test_each_language_of_a_tokenizer_has_its_own_input() -> None:
    argv = ["tokenizer", "--input", "a", "b", "--input", "c", "--vocab_size", "9", "--output", "y"]
    assert parse_arguments(VERBS, argv).input == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    ("argv", "overrides"),
    [
        (["--config.train.steps", "9"], ["--config.train.steps=9"]),
        (["--config.mesh.data", "-1", "--config.seed=3"], ["--config.mesh.data=-1", "--config.seed=3"]),
        (["--config.data.weights", "(1, 2)"], ["--config.data.weights=(1, 2)"]),
        (["--config.data.corpus", "a=b"], ["--config.data.corpus=a=b"]),
        (["--config.compute.remat", "--config.seed", "3"], ["--config.compute.remat", "--config.seed=3"]),
        (["--config.seed="], ["--config.seed="]),
    ],
)
def test_an_override_may_be_written_with_a_space(argv: list[str], overrides: list[str]) -> None:
    assert parse_arguments(VERBS, [*PRETRAIN, *argv]).overrides == overrides
    args = parse_arguments(VERBS, ["inspect", *argv, "corpus"])
    assert (args.corpus, args.overrides) == ("corpus", overrides)


def test_an_override_without_value_is_refused(refused) -> None:
    argv = ["pretrain", "--config.compute.remat", "--config=demo", "--workdir", "x"]
    refused(*argv, says=("write --config.compute.remat=VALUE",))


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["inspect", "mix/ja", "mix/ko"], "'mix/ko' belongs to no option; give several corpora as one word"),
        ([*PRETRAIN, "corpus/"], "'corpus/' belongs to no option; give a corpus as --corpus corpus/"),
        ([*FINETUNE, "my-bert"], "--init_from my-bert, a file as --data my-bert"),
        (["predict", "m", "a.jsonl", "b.jsonl", "c.jsonl"], "--input c.jsonl or"),
        (["evaluate", "--workdir", "x", "y"], "'y' belongs to no option"),
        (["fill-mask", "--model", "x", "The", "[MASK]"], "'[MASK]' belongs to no option; put the whole text in quotes"),
        (["export", "--workdir", "my", "run", "--output", "x"], "'run' belongs to no option"),
        (["config", "demo", "glue"], "'glue' belongs to no option"),
    ],
)
def test_words_that_belong_to_no_option(refused, argv: list[str], says: str) -> None:
    refused(*argv, says=(says, "--help"))


RATE = "--config.optimizer.peak_learning_rate"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (
            ["inspect", "x", "--masking", "span"],
            "'--masking' is not an option; did you mean '--config.data.masking=span'?",
        ),
        (["inspect", "x", "--mask=span"], "did you mean '--config.data.masking=span'?"),
        ([*PRETRAIN, "--data", "x"], "did you mean '--corpus'?"),
        ([*PRETRAIN, "--seed=3"], "did you mean '--config.seed=3'?"),
        ([*PRETRAIN, "--seed"], "did you mean '--config.seed=VALUE'?"),
        ([*PRETRAIN, "--length=64"], "did you mean '--config.train.phases[0].seq_len=64'?"),
        ([*FINETUNE, "--name=x"], "did you mean '--config.optimizer.name=x' or '--config.task.name=x'?"),
        ([*FINETUNE, "--length=64"], "did you mean '--config.task.max_seq_len=64'?"),
        ([*FINETUNE, "--learning-rate=1e-5"], f"did you mean '{RATE}=1e-5'?"),
        ([*PRETRAIN, "--lr", "1e-4"], f"did you mean '{RATE}=1e-4'?"),
        ([*PRETRAIN, "lr=1e-4"], f"did you mean '{RATE}=1e-4'?"),
        ([*PRETRAIN, "--output_dir=z"], "did you mean '--workdir'?"),
        ([*PRETRAIN, "--num-process=2"], "did you mean '--num_processes'?"),
        ([*PRETRAIN, "train.steps=9"], "'train.steps=9' is not an option; did you mean '--config.train.steps=9'?"),
        ([*PRETRAIN, "--confg.train.steps=9"], "did you mean '--config.train.steps=9'?"),
        ([*PRETRAIN, "-lr=3"], f"did you mean '{RATE}=3'?"),
        (["config", "glue", "--epochs=2"], "did you mean '--config.task.epochs=2'?"),
        (["evaluate", "--workdir", "x", "--seed=3"], "'--seed=3' is not an option\n"),
    ],
)
def test_a_field_of_the_config_written_as_an_option(refused, argv: list[str], says: str) -> None:
    refused(*argv, says=(says, "--help"))


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("evaluate runs/base", "evaluate --workdir runs/base"),
        ("evaluate --step 3 runs/base", "evaluate --workdir runs/base --step 3"),
        ("evaluate --model runs/base", "evaluate --workdir runs/base"),
        ("evaluate --model=runs/base", "evaluate --workdir=runs/base"),
        ("export runs/base my-bert", "export --workdir runs/base --output my-bert"),
        ("export runs/base --output my-bert", "export --workdir runs/base --output my-bert"),
        ("export --output my-bert runs/base", "export --workdir runs/base --output my-bert"),
        ("predict --workdir runs/qnli a.jsonl", "predict --model runs/qnli --input a.jsonl"),
        ("embed my-bert a.txt a.npy", "embed --model my-bert --input a.txt --output a.npy"),
        ("embed --max-seq-len=9 m a o", "embed --max_seq_len=9 --model m --input a --output o"),
        ("score my-bert --pairs a b", "score --model my-bert --pairs a b"),
        ("prepare a.txt b.txt --tokenizer t --output o", "prepare --input a.txt b.txt --tokenizer t --output o"),
        ("tokenizer a --vocab-size 9 --output o", "tokenizer --input a --vocab_size 9 --output o"),
        ("verify --workdir runs/base", "verify runs/base"),
        ("verify --model=my-bert", "verify my-bert"),
        ("report --workdir runs/base --output o.html", "report runs/base --output o.html"),
        ("inspect --corpus c", "inspect c"),
        ("fill_mask m 'a [MASK]'", "fill-mask --model m --text 'a [MASK]'"),
        ("fill-mask '- a [MASK]' --model m", "fill-mask --model m --text '- a [MASK]'"),
        ("attention m a b --output o", "attention --model m --text a --pair b --output o"),
        ("predict m -", "predict --model m --input -"),
        ("compile bert_base", "compile --config bert_base"),
        ("config --config=demo", "config demo"),
        ("pretrain demo r", "pretrain --config demo --workdir r"),
        ("pretrain demo r --model m", "pretrain --config demo --workdir r --init_from m"),
        ("pretrain --recipe demo --workdir r", "pretrain --config demo --workdir r"),
        ("fine-tune --data d --model m --workdir r", "finetune --data d --init_from m --workdir r"),
        (
            "tokenizer a --type bpe --vocab-size 9 --output o",
            "tokenizer --input a --kind bpe --vocab_size 9 --output o",
        ),
        ("pretrain demo r --config.train.batch-size=3", "pretrain demo r --config.train.batch_size=3"),
    ],
)
def test_the_same_command_in_other_words(short: str, long: str) -> None:
    values = [vars(parse_arguments(VERBS, shlex.split(command))) for command in (short, long)]
    for of_command in values:
        of_command.pop("given", None)
        of_command.pop("parser")
    assert values[0] == values[1]


def test_fill_mask_takes_a_text_or_a_file(refused) -> None:
    refused("fill-mask", "--model", "x", says=("[MASK]", "--input"))
    refused("fill-mask", "--model", "x", "--input", "y", "[MASK]", says=("[MASK]", "--input"))


def test_debug_shows_the_traceback(tmp_path) -> None:
    with pytest.raises(UserError):
        main(["evaluate", "--debug", "--workdir", str(tmp_path)])


def test_choices_are_the_rows_of_their_tables() -> None:
    """The command line lists them a second time, so that `--help` loads neither JAX nor the readers of formats."""
    from bert_jax.convert import export
    from bert_jax.inference.embed import POOLINGS
    from bert_jax.readers.formats.table import FORMATS
    from bert_jax.scoring.queries import MASKINGS
    from bert_jax.scoring.score import BENCHMARKS
    from bert_jax.tokenizer.kinds import TOKENIZERS

    tables = {
        ("tokenizer", "--kind"): set(TOKENIZERS),
        ("clean", "--format"): {"auto", *FORMATS},
        ("prepare", "--format"): {"auto", *FORMATS},
        ("export", "--format"): set(export.FORMATS),
        ("embed", "--pooling"): set(POOLINGS),
        ("pairs", "--rule"): set(PAIR_RULES),
        ("score", "--masking"): set(MASKINGS),
    }
    verbs = next(action for action in make_parser(VERBS)._actions if action.dest == "verb").choices
    for (verb, option), rows in tables.items():
        action = verbs[verb]._option_string_actions[option]
        assert set(action.choices) == rows, (verb, option)
    assert {f"--{name}" for name in BENCHMARKS} <= verbs["score"]._option_string_actions.keys()


STOPPED = {
    signal.SIGINT: (130, "bert-jax: interrupted\n"),
    signal.SIGTERM: (143, "bert-jax: stopped by SIGTERM\n"),
    signal.SIGHUP: (129, "bert-jax: stopped by SIGHUP\n"),
}


IMPORTING = """
import signal, sys, time
from bert_jax import __main__ as program
def main():
    import compiled
    assert compiled.ended
    time.sleep(60)
import bert_jax.cli.main
bert_jax.cli.main.main = main
signal.signal(signal.SIGINT, signal.default_int_handler)
raise SystemExit(program.run())
"""


@pytest.mark.parametrize(("signum", "number"), [*((signum, 1) for signum in STOPPED), (signal.SIGINT, 2)])
def test_a_signal_inside_an_import_is_raised_after_the_import(signum, number, tmp_path) -> None:
    """Compiled modules crash on a KeyboardInterrupt, or turn it into an ImportError; this one stands for them.

    A verb can then remove its incomplete files. A second signal ends an import that hangs.
    """
    text = "import os, time\ntry:\n" + f"    os.kill(os.getpid(), {signum:d})\n    [0] * 9\n" * number
    text += f"    time.sleep({0.1 if number == 1 else 60})\n"
    text += "except BaseException:\n    raise ImportError('initialization failed')\nended = True\n"
    (tmp_path / "compiled.py").write_text(text)
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    argv, environment = [sys.executable, "-c", IMPORTING], os.environ | {"PYTHONPATH": path}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=50)
    assert (done.returncode, done.stderr) == STOPPED[signum]
    with pytest.raises(KeyboardInterrupt):
        _raise_keyboard_interrupt(signum, None)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_inside_a_callback_of_the_garbage_collector_is_not_forgotten(signum) -> None:
    """Python prints what is raised there and continues, so the command ended with status 0."""
    text = """
import gc, os, signal, sys, time
from bert_jax import __main__ as program
def _xla_gc_callback(*args):
    if asked:
        asked.pop()
        os.kill(os.getpid(), int(sys.argv[1]))
        time.sleep(0)
def main():
    gc.callbacks.append(_xla_gc_callback)
    gc.collect()
    gc.callbacks.clear()
    time.sleep(60)
import bert_jax.cli.main
asked, bert_jax.cli.main.main = [True], main
signal.signal(signal.SIGINT, signal.default_int_handler)
raise SystemExit(program.run())
"""
    argv = [sys.executable, "-c", text, str(int(signum))]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=50)
    assert (done.returncode, done.stderr) == STOPPED[signum]


@pytest.mark.parametrize(
    "argv",
    [
        ["compress", "--model=run", "--output=gs://b/run"],
        ["embed", "--model=run", "--output=gs://b/run"],
        ["tokenizer", "--input=x", "--kind=bpe", "--output=gs://b/run"],
        ["prepare", "--input=x", "--tokenizer=tok", "--output=c", "--keep_removed=gs://b/run"],
        ["clean", "--input=x", "--output=gs://b/run"],
        ["inspect", "corpus", "--html=gs://b/run"],
    ],
)
def test_a_url_in_place_of_a_directory_is_refused(argv, tmp_path, monkeypatch, capsys) -> None:
    """Else a directory `gs:` would be made."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    first, _ = capsys.readouterr().err.splitlines()
    assert "is a URL; mount the storage (gcsfuse, mount-s3) and give the path there, such as /mnt/b/run" in first
    assert not any(tmp_path.iterdir())


def test_ctrl_c_while_the_words_are_parsed_ends_without_a_traceback(monkeypatch, capfd) -> None:
    def parse(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bert_jax.cli.main.parse_arguments", parse)
    monkeypatch.setattr("bert_jax.__main__.USUAL_HANDLERS", {})  # the handlers of this process stay
    assert (run(), capfd.readouterr().err) == (130, "bert-jax: interrupted\n")
