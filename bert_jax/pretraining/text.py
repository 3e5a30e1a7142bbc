"""Pretraining on text without `bert-jax prepare`, for a first trial: a tokenizer and a corpus in the user's cache."""

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax

from bert_jax.config import DataConfig
from bert_jax.console import Console
from bert_jax.corpus.build.encoding import PrepareSettings
from bert_jax.corpus.build.plan import plan_inputs, preparation_identity
from bert_jax.corpus.build.prepare import format_summary, prepare
from bert_jax.corpus.build.prepare_parts import files_of_part, fraction_prepared_after_part, num_parts_of_text
from bert_jax.corpus.manifest import SHORT, read_manifest, snapshot_fingerprints
from bert_jax.errors import UserError, with_message
from bert_jax.files import user_cache
from bert_jax.pretraining.background_preparation import prepare_in_background
from bert_jax.pretraining.snapshots import BackgroundPreparation
from bert_jax.tokenizer import load_tokenizer
from bert_jax.tokenizer.pair_merging import VocabularyNotFullError
from bert_jax.tokenizer.train import train_tokenizer

VOCAB_SIZE = 8_192  # vocabulary size of a tokenizer that is trained on the text, unless the config names a size
OTHERWISE = "`bert-jax tokenizer` and `prepare` have all options"


class DataAndPreparation(NamedTuple):
    """Data settings that name a corpus, and the background preparation of the rest of its text."""

    data: DataConfig
    preparation: BackgroundPreparation


@contextlib.contextmanager
def text_as_corpus(data: DataConfig, vocab_size: int | None, console: Console) -> Iterator[DataAndPreparation]:
    """Make a corpus of the text that `data` names; yield `data` with this corpus, and the background preparation.

    Tokenizer and corpus are in a directory of the user's cache. The name of the directory depends on the files, their
    sizes and modification times, the tokenizer, and the versions of the code, so a repeated call finds the directory. A
    stopped preparation resumes when the call is repeated. Before the `with` block, only the first part of a long text
    is read; a new tokenizer is trained on this part only. The other parts are prepared while the block runs.

    Args:
        data: data settings of the run, with `text`.
        vocab_size: vocabulary size of a tokenizer that is trained on the text; None: VOCAB_SIZE, or as many tokens as a
            short text fills.
        console: console that prints progress.

    Raises:
        UserError: `data` names both a text and a corpus, the run has several processes, or `train_tokenizer` or
            `prepare` raises UserError.
    """
    say = console.say
    assert data.text is not None
    if data.corpus is not None:
        raise UserError("config.data.text and config.data.corpus both name text; give one of them")
    if jax.process_count() > 1:
        raise UserError("config.data.text works with one process only; make a corpus with `bert-jax prepare`")
    is_path = os.path.exists(data.text)  # the path may contain a comma
    inputs = [data.text] if is_path else [item.strip() for item in data.text.split(",") if item.strip()]
    try:
        corpus, count = _corpus_of_text(inputs, data.tokenizer, data.snapshots, vocab_size, console)
    except UserError as error:  # the error names the option of `prepare`
        raise with_message(error, str(error).replace("--input", "config.data.text")) from None
    snapshots = snapshot_fingerprints(read_manifest(corpus))
    data = dataclasses.replace(data, text=None, tokenizer=None, corpus=str(corpus))
    if count > 1:
        data = dataclasses.replace(data, corpus=f"{corpus}@{snapshots[0][:SHORT]}", snapshots=count)
    if len(snapshots) >= count:
        yield DataAndPreparation(data, BackgroundPreparation(say=say))
        return
    done = fraction_prepared_after_part(len(snapshots) - 1, count)
    say(f"{done:.1%} of the text is prepared; the rest follows while the run reads it")
    with prepare_in_background(inputs, corpus, count) as is_running:
        yield DataAndPreparation(data, BackgroundPreparation(is_running, say))


class _CorpusOfText(NamedTuple):
    """The corpus of the first part of a text, and the number of parts of the text."""

    corpus: pathlib.Path
    num_parts: int


def _corpus_of_text(
    inputs: Sequence[str], tokenizer: str | None, num_snapshots: int | None, vocab_size: int | None, console: Console
) -> _CorpusOfText:
    """Return the corpus of the first part of a text, and the number of parts; prepare the corpus if it is missing."""
    options, say = PrepareSettings().read_options, console.say
    planned = plan_inputs(inputs, options, say)
    files, made_of = planned.files, preparation_identity(planned, None, PrepareSettings())
    made_of["the tokenizer"] = load_tokenizer(tokenizer).sha256 if tokenizer else vocab_size or VOCAB_SIZE
    made_of["the parts"] = count = num_snapshots or num_parts_of_text(files, options)
    name = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]
    directory = user_cache() / "text" / name
    directory.mkdir(parents=True, exist_ok=True)
    corpus, trained = directory / "corpus", directory / "tokenizer"
    with open(directory / "first.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another run, which prepares the same text")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if corpus.exists():
            say(f"the corpus of {','.join(inputs)} was made before: {corpus}")
            return _CorpusOfText(corpus.resolve(), count)
        show = console.print_preparation_progress
        # A number of parts that the user chose may be too large for the later parts.
        parts = [files_of_part(files, options, part, count) for part in range(count if num_snapshots else 1)]
        first, read = parts[0]
        if not tokenizer and not trained.exists():
            train = functools.partial(train_tokenizer, [first], output=str(trained), read_options=read, say=say)
            try:
                say(train(vocab_size=vocab_size or VOCAB_SIZE, progress=show))
            except VocabularyNotFullError as error:
                if vocab_size:
                    fix = f"set config.model.vocab_size={error.num_tokens}"
                    raise UserError(f"config.model.vocab_size={vocab_size} is too large for the text; {fix}") from None
                say(f"the text is short: its vocabulary has {error.num_tokens:,} tokens, not {VOCAB_SIZE:,}")
                say(train(vocab_size=error.num_tokens, progress=show))
        manifest = prepare(first, tokenizer or trained, corpus, read, keep_sketches=count > 1, progress=show, say=say)
        warnings = (f"warning: {warning}" for warning in manifest["warnings"])
        for line in (*warnings, format_summary(manifest, corpus), OTHERWISE):
            say(line)
    return _CorpusOfText(corpus.resolve(), count)
