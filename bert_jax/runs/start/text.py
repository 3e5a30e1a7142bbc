"""Text in place of a corpus, for a first trial: tokenizer and corpus are made once, in the user's cache."""

import dataclasses
import hashlib
import json

import jax

from bert_jax.config import PretrainConfig
from bert_jax.console import Console
from bert_jax.data import sources
from bert_jax.data.preparation.encoding import PrepareSettings
from bert_jax.data.preparation.prepare import format_summary, identity, prepare
from bert_jax.data.tokenizer import load_tokenizer
from bert_jax.data.tokenizer.training.train import train_tokenizer
from bert_jax.errors import UserError
from bert_jax.files import user_cache

VOCAB_SIZE = 8_192  # of a tokenizer that is trained here, where the config names no size
OTHERWISE = "`bert-jax tokenizer` and `prepare` have all options"


def with_corpus(config: PretrainConfig, console: Console) -> PretrainConfig:
    """Return the config with the corpus of `config.data.text` in its place; without text, the config as it is.

    Tokenizer and corpus lie in a directory of the user's cache whose name follows from the files, their sizes and
    times, the tokenizer, and the versions that they are made with: the same call finds them there. A preparation that
    was stopped resumes. All of the text is read before the first step.

    Raises:
        UserError: text and a corpus, a tokenizer without text, several processes, or what `train_tokenizer` and
            `prepare` refuse.
    """
    data = config.data
    if data.text is None:
        if data.tokenizer is not None:
            raise UserError("config.data.tokenizer: a corpus has its own; it is for config.data.text")
        return config
    if data.corpus is not None:
        raise UserError("config.data.text and config.data.corpus: give one of them")
    if jax.process_count() > 1:
        raise UserError("config.data.text is for one process: make a corpus with `bert-jax prepare`")
    inputs, options = data.text.split(","), PrepareSettings().read_options
    files = sources.find_files(inputs, options, console.say)
    made_of = identity(files, [sources.total_bytes([path]) for path in files], None, PrepareSettings(), None, False)
    vocab_size = config.model.vocab_size or VOCAB_SIZE
    made_of["the tokenizer"] = load_tokenizer(data.tokenizer).sha256 if data.tokenizer else vocab_size
    name = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]
    place = user_cache() / "text" / name
    place.mkdir(parents=True, exist_ok=True)
    corpus, tokenizer = place / "corpus", place / "tokenizer"
    if corpus.exists():
        console.say(f"the corpus of {data.text} was made before: {corpus}")
    else:
        if not data.tokenizer and not tokenizer.exists():
            say, show = console.say, console.preparation
            say(train_tokenizer([inputs], vocab_size, str(tokenizer), progress=show, say=say))
        manifest = prepare(inputs, data.tokenizer or tokenizer, corpus, progress=console.preparation, say=console.say)
        for line in (*(f"warning: {one}" for one in manifest["warnings"]), format_summary(manifest, corpus), OTHERWISE):
            console.say(line)
    return dataclasses.replace(
        config, data=dataclasses.replace(data, text=None, tokenizer=None, corpus=str(corpus.resolve()))
    )
