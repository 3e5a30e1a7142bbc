"""The verbs of the command line as functions: they take keyword arguments, and return a value in place of printing it.

Each function calls the same function as its verb. The other verbs are the functions `train_tokenizer`, `prepare`,
`pretrain` and `finetune` of api.py, and the methods `fill_mask`, `predict` and `encode` of `LoadedModel`. Mistakes
raise UserError.
"""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

from bert_jax.api import Overrides, as_config, override_words
from bert_jax.checkpoints.load_model import open_model, weights_digest
from bert_jax.checkpoints.verify import Verified, verify_directory
from bert_jax.config import FinetuneConfig, PretrainConfig
from bert_jax.config.load import add_table_rows_of_recipe, config_class_of_recipe
from bert_jax.console import Console
from bert_jax.convert.compress import compress_model
from bert_jax.convert.export import CardFacts, export_directory
from bert_jax.convert.prune import TARGETS
from bert_jax.convert.verify_run import RuntimeCheck, check_runtimes
from bert_jax.convert.vocabulary import change_vocabulary
from bert_jax.dryrun.dry_run import dry_run, finetuning_compile_inputs, pretraining_compile_inputs, recipe_total
from bert_jax.dryrun.report import report_json
from bert_jax.dryrun.topology import compile_only_devices
from bert_jax.errors import UserError, check_positive
from bert_jax.files import Paths, list_paths, local_path
from bert_jax.pretraining.evaluate import evaluate_checkpoint
from bert_jax.reports.attention.write import write_attention_file
from bert_jax.reports.bias_metric_notes import MEANINGS
from bert_jax.reports.bias_page import bias_json, bias_page
from bert_jax.reports.corpus.inspect import inspection_json, inspection_page, open_inspection
from bert_jax.reports.html.markup import write_page
from bert_jax.reports.run.plot import plot_run
from bert_jax.reports.run.write import write_report
from bert_jax.scoring.score import (
    BENCHMARKS,
    heads_of_benchmarks,
    make_scoring_model,
)
from bert_jax.scoring.score_model import (
    DEFAULT_SPLIT,
    run_bias_benchmarks,
    score_model,
    scores_json,
)
from bert_jax.scoring.templates import PACKAGED
from bert_jax.training.remote_workdir import directory_to_upload, local_copy

PathLike = str | os.PathLike[str]


def evaluate(
    workdir: PathLike,
    *,
    step: int | None = None,
    corpus: PathLike | None = None,
    recipe: PathLike | None = None,
    console: Console | None = None,
) -> dict[str, float | int]:
    """Return the held-out metrics of a run of `pretrain`: losses in nats, accuracies, the unigram loss.

    Args:
        workdir: work directory of `pretrain`.
        step: step of the checkpoint; None: the newest undamaged checkpoint.
        corpus: a directory or URL of a corpus to read instead of the corpus of the run.
        recipe: recipe that adds rows to tables, such as a masking rule; the recipe is run first.
        console: printer of progress; None: a console on stderr.
    """
    add_table_rows_of_recipe(recipe)
    other_corpus = None if corpus is None else os.fspath(corpus)
    return evaluate_checkpoint(local_copy(workdir), step, console or Console(), other_corpus)


def report(
    workdirs: Paths,
    output: PathLike,
    *,
    watts: float | None = None,
    grams_per_kwh: float | None = None,
    recipe: PathLike | None = None,
) -> str:
    """Write an .html page about one or more runs; return the name of the page.

    Args:
        workdirs: one or several work directories of `pretrain` or `finetune`.
        output: .html file to create.
        watts: power of all devices, to estimate energy that was not measured; None: published powers.
        grams_per_kwh: grams of CO2 per kWh of electricity; None: no estimate of CO2.
        recipe: as in `evaluate`.
    """
    add_table_rows_of_recipe(recipe)
    return write_report(list_paths(workdirs), os.fspath(local_path(output)), watts, grams_per_kwh)


def plot(workdir: PathLike, output: PathLike, *, console: Console | None = None) -> str:
    """Draw the learning curves of a run into a .png, .pdf or .svg file; return the name of the file."""
    plot_run(local_copy(workdir), local_path(output), (console or Console()).say)
    return os.fspath(output)


def verify(directory: PathLike, *, console: Console | None = None) -> Verified:
    """Compare every byte of a tokenizer, a corpus, an export or a work directory with its digests.

    In the result, `damage` has a line for each damaged part, `checked` has the names of the checked files, and `bytes`
    is the size of these files.
    """
    return verify_directory(local_copy(directory), (console or Console()).progress)


def verify_run(
    directory: PathLike,
    *,
    original: PathLike | None = None,
    data: str | None = None,
    console: Console | None = None,
) -> list[RuntimeCheck]:
    """Run an export in every installed runtime, and compare its outputs with the outputs of bert_jax.

    Args:
        directory: directory of `export`, or a model directory of transformers.
        original: the model that was exported, whose score is printed beside the score of each runtime.
        data: data to score the runtimes on; None: the data that `finetune` read.
        console: printer of progress; None: a console on stderr.
    """
    return list(
        check_runtimes(
            local_copy(directory), None if original is None else os.fspath(original), data, console or Console()
        )
    )


def inspect(
    corpus: PathLike,
    *,
    recipe: PathLike | None = None,
    overrides: Overrides | None = None,
    sequence: int | None = None,
    html: PathLike | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Return figures and warnings about a corpus, and training sequences that are made from it.

    Args:
        corpus: one or several corpora of `prepare`, named as in `config.data.corpus`.
        recipe: name or file of a recipe, whose first phase determines the sequences; None: the defaults.
        overrides: values by key that replace values of the recipe: {"data.masking": "span"}.
        sequence: number of the only sequence to return, counted from 0; None: the first sequences are returned.
        html: .html file to create with a page of all figures; None: no page.
        console: printer of progress; None: a console on stderr.
    """
    words = override_words(overrides)
    inspection = open_inspection(os.fspath(corpus), recipe, words, sequence, console or Console())
    if html is not None:
        write_page(os.fspath(local_path(html)), lambda: inspection_page(inspection))
    return inspection_json(inspection)


def compile_recipe(
    config: Any,
    overrides: Overrides | None = None,
    *,
    topology: str | None = None,
    price_per_chip_hour: float | None = None,
    watts_per_chip: float | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Return memory, time and cost of a recipe before it runs, in bytes, FLOPs and seconds, with a list `phases`.

    Args:
        config: a recipe by file or name, a `ConfigDict`, or a frozen config.
        overrides: values by key that replace values of a recipe.
        topology: TPU slice such as "v5e:16x16", or GPUs of a host such as "h100:8"; None: the devices of this machine.
        price_per_chip_hour: price of a chip per hour, to estimate the cost; None: no estimate.
        watts_per_chip: power of a chip, to estimate the energy; None: the published value.
        console: printer of progress; None: a console on stderr.
    """
    check_positive({"price_per_chip_hour": price_per_chip_hour, "watts_per_chip": watts_per_chip})
    console = console or Console()
    devices = compile_only_devices(topology) if topology else None
    frozen = as_config(_config_class(config), config, overrides)
    work = (
        finetuning_compile_inputs(frozen, console)
        if isinstance(frozen, FinetuneConfig)
        else pretraining_compile_inputs(frozen)
    )
    compiled = dry_run(work, devices, console.say)
    return report_json(compiled, recipe_total(compiled, price_per_chip_hour, watts_per_chip))


def _config_class(config: Any) -> Any:
    """Return the class of a config in any form: `PretrainConfig` or `FinetuneConfig`."""
    if isinstance(config, str | os.PathLike):
        return config_class_of_recipe(config)
    return FinetuneConfig if hasattr(config, "task") else PretrainConfig


def export(
    model: PathLike,
    output: PathLike,
    *,
    format: str = "huggingface",
    head: str | None = None,
    part: str | None = None,
    step: int | None = None,
    license: str | None = None,
    base_model: str | None = None,
    bias: PathLike | None = None,
    retrieval: PathLike | None = None,
    measure: bool = False,
    recipe: PathLike | None = None,
    console: Console | None = None,
) -> str:
    """Write a model for other programs; return the name of the directory.

    Args:
        model: a work directory, a model directory, or Google's TensorFlow checkpoint of a BERT.
        output: directory to create, or its URL on object storage.
        format: a row of `bert_jax.convert.export.FORMATS`.
        head: the only head to write; None: all heads that the format can express.
        part: an auxiliary model of the run, such as "generator".
        step: step of the checkpoint; None: the newest undamaged checkpoint.
        license, base_model, bias, retrieval: facts for the model card: the license, the id of the base model on the
            Hub, a file that `bias --json` wrote, and a file that `score --retrieval DIR --json` wrote.
        measure: whether the README.md of an exported program shows the output of the code in it, and latencies.
        recipe: as in `evaluate`.
        console: printer of progress; None: a console on stderr.
    """
    add_table_rows_of_recipe(recipe)
    reports = (None if path is None else pathlib.Path(path) for path in (bias, retrieval))
    facts = CardFacts(license, base_model, *reports)
    with directory_to_upload(os.fspath(output)) as directory:
        export_directory(
            local_copy(model),
            directory,
            format,
            console or Console(),
            step=step,
            head=head,
            part=part,
            card_facts=facts,
            measure=measure,
        )
    return os.fspath(output)


def compress(
    model: PathLike,
    output: PathLike,
    *,
    method: str,
    amount: float | None = None,
    data: PathLike | None = None,
    examples: int = 256,
    console: Console | None = None,
) -> list[str]:
    """Write a smaller model; return lines about its size, time and score before and after.

    Args:
        model: directory of a fine-tuned model, or of a model with a masked-token head.
        output: directory to create.
        method: "heads", "mlp", "layers" or "onnx_int8".
        amount: fraction of heads, MLP features or layers to remove; None for "onnx_int8".
        data: files of the task, or a corpus, to score on; None: the files that `finetune` read.
        examples: number of training examples from which the importance of parts is measured.
        console: printer of progress; None: a console on stderr.
    """
    if (amount is None) == (method in TARGETS):
        raise UserError(f"the methods {', '.join(TARGETS)} need --amount; other methods do not accept it")
    if amount is not None and not 0 < amount < 1:
        raise UserError(f"--amount {amount:g}: a fraction above 0 and below 1")
    if examples < 1:
        raise UserError(f"--examples {examples}: at least 1")
    source = None if data is None else os.fspath(data)
    target = local_path(output)
    return compress_model(local_copy(model), target, method, amount or 0.0, source, examples, console or Console())


def vocabulary(model: PathLike, tokenizer: PathLike, output: PathLike, *, console: Console | None = None) -> str:
    """Write a model with the vocabulary of another tokenizer, for further pretraining; return its directory."""
    change_vocabulary(local_copy(model), pathlib.Path(tokenizer), local_path(output), console or Console())
    return os.fspath(output)


def attention(
    model: PathLike,
    text: str,
    pair: str | None = None,
    *,
    output: PathLike,
    words: bool = False,
    layer: int | None = None,
    head: int | None = None,
    first_token: int = 0,
) -> str:
    """Draw the attention of each head for a text as an .html page or a picture; return the name of the file.

    `write_attention_file` of bert_jax/reports/attention/write.py documents the arguments.
    """
    return write_attention_file(
        os.fspath(model), text, pair, os.fspath(local_path(output)), words, layer, head, first_token
    )


def score(
    model: PathLike,
    *,
    masking: str = "within_word_l2r",
    temperature: float = 1.0,
    fraction: float = 1.0,
    labeled: Paths = (),
    retrieval: Paths = (),
    split: str = DEFAULT_SPLIT,
    vectors: str = "",
    rerank: PathLike | None = None,
    rerank_depth: int | None = None,
    recipe: PathLike | None = None,
    console: Console | None = None,
    **data: Paths,
) -> dict[str, Any]:
    """Return the scores of a model on texts, files with labels and test collections, as `score --json` prints them.

    Args:
        model: model directory.
        masking, temperature: the arguments `masking` and `temperature` of `LoadedModel.score`.
        fraction: fraction of the items of each paradigm or group.
        labeled: one or more files with labels, in a format of the files that trained the fine-tuned model.
        retrieval: one or more test collections in the layout of BEIR.
        split: name of the judgments of the test collections; the judgments are read from qrels/SPLIT.tsv.
        vectors: forms of smaller vectors, with which each search of `retrieval` is repeated, such as "int8,binary,64".
        rerank: cross-encoder that sorts the first documents of both rankings of `retrieval` again; None: none.
        rerank_depth: documents of each query that `rerank` sorts; None: 100.
        recipe: as in `evaluate`.
        console: printer of progress; None: a console on stderr.
        data: name of a benchmark -> its source, or several: pairs="zorro_small", crows_pairs=["crows.csv"].
    """
    add_table_rows_of_recipe(recipe)
    wanted, console = _benchmarks_and_sources(data, BENCHMARKS), console or Console()
    if not wanted and not labeled and not retrieval:
        raise UserError(f"nothing to score; give {' or '.join((*BENCHMARKS, 'labeled', 'retrieval'))}")
    scores = score_model(
        model,
        wanted,
        list_paths(labeled),
        list_paths(retrieval),
        masking,
        temperature,
        fraction,
        split,
        vectors,
        rerank,
        rerank_depth,
        console,
    )
    return scores_json(model, scores, details=False)


def bias(
    model: PathLike,
    *,
    fraction: float = 1.0,
    output: PathLike | None = None,
    console: Console | None = None,
    **data: Paths,
) -> dict[str, Any]:
    """Return a model's associations with their meanings and limits, in the form that `bias --json` prints.

    Args:
        model: model directory.
        fraction: fraction of the items of each group.
        output: .html file to create; None: no page.
        console: printer of progress; None: a console on stderr.
        data: name of a data set -> its sources: crows_pairs=["crows.csv"]; if none is given, the templates of
            occupations are used.
    """
    page = None if output is None else os.fspath(local_path(output))
    wanted = _benchmarks_and_sources(data, MEANINGS) or [("templates", source) for source in PACKAGED]
    opened = open_model(model, heads_of_benchmarks(name for name, _ in wanted))
    reports = run_bias_benchmarks(make_scoring_model(opened), wanted, fraction, console or Console())
    if page is not None:
        write_page(page, lambda: bias_page(os.fspath(model), reports))
    return bias_json(os.fspath(model), weights_digest(opened.params), reports)


def _benchmarks_and_sources(data: Mapping[str, Paths], known: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (benchmark, source) for each source, in the order of `known`; raise UserError for an unknown benchmark."""
    for name in data:
        if name not in known:
            raise UserError(f"{name}: no such data set; there are {', '.join(known)}")
    return [(name, source) for name in known for source in list_paths(data.get(name, ()))]
