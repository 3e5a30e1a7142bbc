"""Text in place of a corpus, for a first trial: tokenizer and corpus are made once, in the user's cache."""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterator

import jax

from bert_jax.config import PretrainConfig
from bert_jax.console import Console
from bert_jax.corpus.build.encoding import PrepareSettings
from bert_jax.corpus.build.plan import identity, plan_inputs
from bert_jax.corpus.build.prepare import format_summary, prepare
from bert_jax.corpus.build.prepare_parts import files_of_part, num_parts, prepared_fraction
from bert_jax.corpus.manifest import SHORT, fingerprints, read_manifest
from bert_jax.errors import UserError
from bert_jax.files import user_cache
from bert_jax.pretraining.background_preparation import preparing
from bert_jax.pretraining.snapshots import Rest
from bert_jax.tokenizer import load_tokenizer
from bert_jax.tokenizer.train import train_tokenizer

VOCAB_SIZE = 8_192  # of a tokenizer that is trained here, where the config names no size
OTHERWISE = "`bert-jax tokenizer` and `prepare` have all options"


@contextlib.contextmanager
def text_as_corpus(config: PretrainConfig, console: Console) -> Iterator[tuple[PretrainConfig, Rest]]:
    """Give the config with the corpus of `config.data.text` in its place; without text, the config as it is.

    Tokenizer and corpus lie in a directory of the user's cache whose name follows from the files, their sizes and
    times, the tokenizer, and the versions that they are made with: the same call finds them there. A preparation that
    was stopped resumes. Of much text, the first part alone is read here, also for the vocabulary; the others, `Rest`,
    are prepared while the block runs.

    Raises:
        UserError: text and a corpus, a tokenizer without text, several processes, or what `train_tokenizer` and
            `prepare` refuse.
    """
    data = config.data
    if data.text is None:
        if data.tokenizer is not None:
            raise UserError("config.data.tokenizer: a corpus has its own; it is for config.data.text")
        yield config, Rest(say=console.say)
        return
    if data.corpus is not None:
        raise UserError("config.data.text and config.data.corpus: give one of them")
    if jax.process_count() > 1:
        raise UserError("config.data.text is for one process: make a corpus with `bert-jax prepare`")
    inputs, options = data.text.split(","), PrepareSettings().read_options
    planned = plan_inputs(inputs, options, console.say)
    files, made_of = planned.files, identity(planned, None, PrepareSettings())
    vocab_size = config.model.vocab_size or VOCAB_SIZE
    made_of["the tokenizer"] = load_tokenizer(data.tokenizer).sha256 if data.tokenizer else vocab_size
    made_of["the parts"] = count = data.snapshots or num_parts(files, options)
    name = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]
    place = user_cache() / "text" / name
    place.mkdir(parents=True, exist_ok=True)
    corpus, tokenizer = place / "corpus", place / "tokenizer"
    if corpus.exists():
        console.say(f"the corpus of {data.text} was made before: {corpus}")
    else:
        say, show = console.say, console.preparation
        first, read = files_of_part(files, options, 0, count)
        if not data.tokenizer and not tokenizer.exists():
            say(train_tokenizer([first], vocab_size, str(tokenizer), read_options=read, progress=show, say=say))
        manifest = prepare(first, data.tokenizer or tokenizer, corpus, read, progress=show, say=say)
        for line in (*(f"warning: {one}" for one in manifest["warnings"]), format_summary(manifest, corpus), OTHERWISE):
            say(line)
    corpus, snapshots = corpus.resolve(), fingerprints(read_manifest(corpus))
    data = dataclasses.replace(data, text=None, tokenizer=None, corpus=str(corpus))
    if count > 1:
        data = dataclasses.replace(data, corpus=f"{corpus}@{snapshots[0][:SHORT]}", snapshots=count)
    config = dataclasses.replace(config, data=data)
    if len(snapshots) >= count:
        yield config, Rest(say=console.say)
        return
    done = prepared_fraction(len(snapshots) - 1, count)
    console.say(f"{done:.1%} of the text is prepared; the rest follows while the run reads it")
    with preparing(inputs, corpus, count) as is_running:
        yield config, Rest(is_running, console.say)
