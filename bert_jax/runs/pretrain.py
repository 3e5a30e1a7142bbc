"""Pretraining put together: corpus and config in, a work directory out; and what one reads from it later."""

import contextlib
import dataclasses
import math
import os
import pathlib
from collections.abc import Generator

import jax
import numpy as np

from bert_jax.config import Config, DataConfig, MeshConfig, flatten, to_json
from bert_jax.console import Console
from bert_jax.data.corpus import Split
from bert_jax.data.mixture import Mixture, find_corpora, open_mixture
from bert_jax.data.sequences.pipeline import Rows, batches, make_rows, symbols_of
from bert_jax.data.sequences.sampling import SENTENCE_PAIRS
from bert_jax.data.statistics import row_figures
from bert_jax.data.tokenizer import Tokenizer, load_tokenizer
from bert_jax.errors import UserError
from bert_jax.models import Params, kernel_used
from bert_jax.objectives.base import Batch
from bert_jax.objectives.masked_tokens import pretraining, pretraining_heads
from bert_jax.parallel import sharding
from bert_jax.parallel.preemption import Interrupt
from bert_jax.parallel.sharding import BatchBlocks
from bert_jax.parallel.watchdog import Watchdog
from bert_jax.reports.corpus_checks import row_warnings
from bert_jax.runs.initial_weights import check_exportable, describe_start, read_weights, restore_params
from bert_jax.training import workdir
from bert_jax.training.checkpoint import versions
from bert_jax.training.evaluation import make_evaluate
from bert_jax.training.loop import Data, fit
from bert_jax.training.schedules import Phase, plan
from bert_jax.training.step import layout

LOOKED_AT = 512  # rows of a phase, before it begins
# Of an architecture, what training may choose anew.
MAY_DIFFER = ("dropout", "attention_dropout", "classifier_dropout", "initializer_range")


def pretrain(
    config: Config,
    directory: pathlib.Path,
    console: Console,
    interrupt: Interrupt | None = None,
    watchdog: Watchdog | None = None,
) -> bool:
    """Run or resume `config` in `directory`; False where a signal ended it early (its state is saved).

    Of several processes each calls it, with the same config and a directory that all of them see.
    """
    if not config.data.corpus:
        raise UserError("no corpus: give --config.data.corpus=DIR, a directory made by `bert-jax prepare`")
    corpus = open_mixture(config.data.corpus, console.say)
    if len(corpus.corpora) == 1 and (len(config.data.weights) == 1 or config.data.smoothing != 1):
        raise UserError("config.data.weights and smoothing have no effect on one corpus; leave them out")
    tokenizer = corpus.tokenizer()
    config = with_vocabulary(config, tokenizer)
    check_exportable(config, tokenizer.pad_id)
    where = dataclasses.replace(config.data, corpus=",".join(find_corpora(config.data.corpus)))
    init_from = os.path.abspath(config.init_from) if config.init_from else ""
    config = dataclasses.replace(config, data=where, init_from=init_from)  # the next call may come from elsewhere
    objective = pretraining(config)
    if watchdog:
        watchdog.check_agreement(run_fingerprint(config, corpus))
    mesh, _ = layout(config, objective)  # refused now, it leaves the directory to the mended command
    params = start(config, tokenizer, console)
    data = corpus_data(config, corpus, tokenizer, sharding.batch_blocks(mesh))
    first = jax.process_index() == 0
    with workdir.locked(directory) if first else contextlib.nullcontext():
        if first:
            workdir.claim(directory, config, data.fingerprint, corpus.tokenizer_directory)
        describe(config, corpus, console)
        left_out = corpus.left_out("heldout", min_documents(config))
        if data.heldout and left_out:
            console.say(f"held out: too few documents in {', '.join(left_out)}; evaluated is on the others")
        if data.heldout is None:
            console.say("held out: too few documents, so no evaluation; `prepare --heldout_fraction` sets how many")
        return fit(config, objective, data, directory, console, interrupt, watchdog, params)


def start(config: Config, tokenizer: Tokenizer, console: Console) -> Params | None:
    """The parameters of `config.init_from`, to go on with on another corpus; None: random ones.

    Raises UserError where their architecture or vocabulary is not `config.model`'s.
    """
    if not config.init_from:
        return None
    found = read_weights(config.init_from, pretraining_heads(config), jax.random.key(config.seed), console)
    wrong = [
        f"config.model.{key}={value} (there {theirs[key]})"
        for theirs in (flatten(dataclasses.asdict(found.config)),)
        for key, value in flatten(dataclasses.asdict(config.model)).items()
        if value != theirs[key] and key not in MAY_DIFFER
    ]
    if wrong:
        raise UserError(f"--config.init_from={config.init_from} is another architecture: {', '.join(wrong)}")
    if load_tokenizer(found.directory).tokens != tokenizer.tokens:
        raise UserError(
            f"{config.data.corpus} was prepared with another vocabulary than {config.init_from}; "
            f"prepare it again with --tokenizer {found.directory}"
        )
    describe_start(found, console)
    return found.params


def run_fingerprint(config: Config, corpus: Mixture) -> dict[str, str]:
    """What has to be the same in every process of a run; the corpus may lie elsewhere on each."""
    values = {f"config.{key}": str(value) for key, value in flatten(to_json(config)).items() if key != "data.corpus"}
    return values | versions() | {"corpus": corpus.fingerprint, "tokenizer": corpus.tokenizer_sha256}


def with_vocabulary(config: Config, tokenizer: Tokenizer) -> Config:
    """The config with the tokenizer's vocabulary size, which a recipe may leave at 0."""
    size, wanted = tokenizer.vocab_size, config.model.vocab_size
    if wanted not in (0, size):
        raise UserError(
            f"config.model.vocab_size={wanted}, but the corpus was made with a vocabulary of {size}; "
            f"set it to {size}, or to 0 for the corpus's"
        )
    return dataclasses.replace(config, model=dataclasses.replace(config.model, vocab_size=size))


def corpus_data(config: Config, corpus: Mixture, tokenizer: Tokenizer, share: BatchBlocks) -> Data:
    """Batches of this process's share of the rows: row numbers go on over phases and epochs.

    Raises UserError where rows of some phase cannot be made.
    """
    least = min_documents(config)
    train, held = corpus.split("train"), corpus.split("heldout", least)
    symbols = symbols_of(tokenizer)
    # Evaluated is on all that is held out, each row once.
    for_all = dataclasses.replace(config.data, weights=(), smoothing=1.0, dupe_factor=0)

    def rows(split: Split, data: DataConfig, phase: Phase) -> Rows:
        return make_rows(split, symbols, phase.seq_len, config.seed, data, config.model.num_token_types)

    def shared(source: Rows, first_row: int, batch_size: int, stop_row: int | None) -> Generator[Batch, None, None]:
        with contextlib.ExitStack() as stack:
            blocks = [
                batches(
                    source,
                    first_row,
                    batch_size,
                    host=block,
                    hosts=share.of,
                    threads=config.data.num_threads,
                    prefetch=config.data.prefetch,
                    stop_row=stop_row,
                )
                for block in share.blocks
            ]
            for block in blocks:
                stack.enter_context(contextlib.closing(block))
            for parts in zip(*blocks, strict=True):
                yield {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def training(phase: Phase, step: int) -> Generator[Batch, None, None]:
        return shared(rows(train, config.data, phase), phase.first_row(step), phase.batch_size, None)

    def heldout(phase: Phase) -> Generator[Batch, None, None]:
        source = rows(held, for_all, phase)
        stop = min(config.evaluate.num_sequences, source.per_epoch)
        return shared(source, 0, config.evaluate.batch_size, stop)

    for phase in plan(config):
        rows(train, config.data, phase)
    fingerprint = {"corpus": corpus.fingerprint, "tokenizer": corpus.tokenizer_sha256}
    return Data(training, heldout if held.num_documents >= least else None, fingerprint)


def min_documents(config: Config) -> int:
    """Documents of each source that rows can be made of: random second sentences come from another one."""
    return SENTENCE_PAIRS[config.data.sentence_pairs].documents


def describe(config: Config, corpus: Mixture, console: Console) -> None:
    """What is about to run, in two lines, one a corpus of several, one a phase, and one for what will hurt it."""
    split, symbols = corpus.split("train"), symbols_of(corpus.tokenizer())
    devices = jax.devices()
    console.say(
        f"corpus {config.data.corpus}: {split.num_documents:,} documents, {split.num_tokens:,} tokens, "
        f"vocabulary {corpus.vocab_size:,}"
    )
    if len(corpus.corpora) > 1:
        shares = make_rows(split, symbols, plan(config)[0].seq_len, config.seed, config.data).per_source
        for (name, source), own in zip(corpus.sources(), shares.tolist(), strict=True):
            console.say(
                f"  {os.path.basename(name)}: {source.num_tokens / split.num_tokens:.2%} of the tokens, "
                f"{own / shares.sum():.2%} of the rows"
            )
    console.say(
        f"model {config.model.num_layers} layers x {config.model.hidden_size}, {config.compute.dtype}, "
        f"on {len(devices)} x {devices[0].device_kind}, "
        f"attention by {kernel_used(config.model, config.compute, devices[0].platform)}"
    )
    for number, phase in enumerate(plan(config)):
        tokens = (phase.end - phase.begin) * phase.batch_size * phase.seq_len
        times = np.format_float_positional(tokens / split.num_tokens, precision=3, fractional=False, trim="-")
        if tokens:
            console.say(
                f"phase {number + 1}: steps {phase.begin:,} to {phase.end:,} of {phase.batch_size} rows x "
                f"{phase.seq_len} tokens, {times} times the corpus"
            )
            rows = make_rows(split, symbols, phase.seq_len, config.seed, config.data)
            for line in row_warnings(row_figures(rows, symbols.vocabulary.mask, LOOKED_AT), config.data).values():
                console.say(f"warning: {line}")


def evaluate_run(directory: pathlib.Path, step: int | None, console: Console) -> dict[str, float | int]:
    """Held-out metrics of a checkpoint, with the entropies that they are to be judged by (nats a token)."""
    config, step, params = restore_params(directory, step, console)
    corpus = open_mixture(config.data.corpus)
    _, fingerprint = workdir.read(directory)
    if corpus.fingerprint != fingerprint["corpus"]:
        raise UserError(f"{config.data.corpus} is another corpus than the one that {directory} was trained on")
    tokenizer = corpus.tokenizer()
    mesh = sharding.make_mesh(MeshConfig())  # of the devices present, not of those that trained
    sharding.check_batch(mesh, config.evaluate.batch_size, name="config.evaluate.batch_size")
    data = corpus_data(config, corpus, tokenizer, sharding.batch_blocks(mesh))
    if data.heldout is None:
        raise UserError(f"{config.data.corpus} has too few held-out documents: nothing to evaluate on")
    phases = plan(config)
    phase = next((phase for phase in phases if step <= phase.end), phases[-1])
    with jax.set_mesh(mesh):
        params = jax.device_put(params, sharding.shardings(pretraining(config).logical_axes, mesh))
        found = make_evaluate(pretraining(config), mesh)(params, data.heldout(phase))
    entropy = unigram_entropy(corpus.split("heldout"), corpus.vocab_size)
    size = {"documents": corpus.split("heldout").num_documents}
    return {"step": step, "seq_len": phase.seq_len} | size | found | {"unigram_entropy": entropy}


def unigram_entropy(split: Split, vocab_size: int) -> float:
    """Entropy in nats of the split's token frequencies: what a model that reads no context cannot beat."""
    counts = np.zeros(vocab_size, np.int64)
    for first in range(0, split.num_records, 1024):
        tokens, *_ = split.read(np.arange(first, min(first + 1024, split.num_records)))
        counts += np.bincount(tokens, minlength=vocab_size)
    shares = counts[counts > 0] / counts.sum()
    return -math.fsum(shares * np.log(shares))
