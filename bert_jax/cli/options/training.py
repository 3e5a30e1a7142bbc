"""Help and options of the verbs that take a recipe: config, compile, pretrain, finetune."""

import argparse

from bert_jax.cli.options.command import Command, add_platform, add_processes, add_recipe, run_place


def _config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recipe", nargs="?", metavar="RECIPE", help="name or file of a recipe (default: list the recipes)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _compile(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser, "bert_base")
    parser.add_argument(
        "--topology",
        metavar="CHIP:SIZES",
        help="TPU slice, such as v5e:16x16, v4:2x2x2 or tpu7x:2x2x1 (v5e:16x16:2 for two), or GPUs of one host, as "
        "h100:8 (a100, h100, h200, b200, l40s); needs the TPU compiler (pip install 'jax[tpu]') or the CUDA compiler "
        "(pip install 'jax[cuda13-local]' nvidia-cudnn-cu13), each in its own environment (default: the devices "
        "present)",
    )
    parser.add_argument("--price_per_chip_hour", type=float, metavar="PRICE", help="price, to estimate the run's cost")
    parser.add_argument(
        "--watts_per_chip",
        type=float,
        metavar="W",
        help="power, to estimate the run's energy (default: a typical value, where published)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object with a list `phases`")


def _pretrain(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser, "bert_base", otherwise="default: with --budget small_cpu")
    parser.add_argument(
        "--workdir",
        required=True,
        type=run_place,
        metavar="DIR",
        help="work directory for checkpoints, metrics.jsonl and TensorBoard events: a path, gs:// or s3://BUCKET/NAME",
    )
    parser.add_argument(
        "--budget",
        metavar="AMOUNT",
        help="time, tokens or FLOPs to spend: 30m, 1h30m, '50M tokens', '1e16 flops'; chooses size, tokens, batch and "
        "steps of the recipe (for a time, after some steps that measure the devices), and prints the choice",
    )
    add_platform(parser)
    add_processes(parser)


def _finetune(parser: argparse.ArgumentParser) -> None:
    add_recipe(parser, "glue")
    parser.add_argument(
        "--workdir",
        required=True,
        type=run_place,
        metavar="DIR",
        help="work directory for the model, its scores and its predictions: a path, gs:// or s3://BUCKET/NAME",
    )
    parser.add_argument("--json", action="store_true", help="print results.json on one line instead of a table")
    add_platform(parser)
    add_processes(parser)


CONFIG = Command(
    "print the fields of a recipe",
    "Prints key, value and meaning of every field, and the values it takes; fields that differ from their default are "
    "marked. Without a recipe: the names of the recipes, and the defaults.",
    "bert_base --config.train.steps=500000",
    _config,
    kinds=("pretrain", "finetune"),
    stray="; a field is overridden by --config.KEY=VALUE",
)
COMPILE = Command(
    "estimate memory, time and cost of a recipe before it runs",
    "A dry run: compiles each phase for the devices present, or for a TPU slice or GPUs that are not there, reads "
    "memory, FLOPs, bytes, kernels and collectives from the compiled programs, and estimates times from them. Exit "
    "status 1 if a phase does not fit. A recipe for fine-tuning needs its weights and data. Every field of the recipe "
    "can be overridden, as in --config.compute.remat=True.",
    "--config=bert_base --topology v5e:4x4",
    _compile,
    kinds=("pretrain", "finetune"),
)
PRETRAIN = Command(
    "train a recipe, or resume its run",
    "Trains in a work directory. Ctrl-C or SIGTERM saves and stops; the same command resumes from the newest intact "
    "checkpoint. Every field of the recipe can be overridden, as in --config.optimizer.peak_learning_rate=2e-4; "
    "`bert-jax config RECIPE` lists all fields.",
    "--config=bert_base --workdir runs/base --config.data.corpus=corpus/",
    _pretrain,
    kinds=("pretrain",),
    stray="; give a corpus as --config.data.corpus={0}",
)
FINETUNE = Command(
    "train a task on a pretrained model, or resume its run",
    "Trains config.task from the weights in config.init_from with each learning rate and seed, keeps the best model, "
    "and predicts the dev and test sets. bert_jax/tasks/table.py lists the tasks; 'custom' reads your own JSON lines, "
    "TSV or CSV. `bert-jax config glue` lists all fields.",
    "--config=glue --workdir runs/qnli --config.init_from=my-bert/ --config.task.name=qnli --config.task.data=QNLI/",
    _finetune,
    kinds=("finetune",),
    stray="; give weights as --config.init_from={0}, data as --config.task.data={0}",
)
