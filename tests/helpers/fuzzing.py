"""`prepare` on random inputs: its messages, the content of the corpus, and the peak of memory.

python -m tests.helpers.fuzzing TOKENIZERS FIRST LAST    # prints the faults and the peak of memory as JSON
"""

import collections
import contextlib
import io
import json
import os
import pathlib
import random
import re
import resource
import signal
import sys
import tempfile
import traceback
from unittest import mock

import numpy as np

from bert_jax.batches.masking import MASKINGS
from bert_jax.batches.pipeline import make_sequences, special_ids_and_vocabulary
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.cli.main import main
from bert_jax.config import DataConfig
from bert_jax.corpus.build import chunks
from bert_jax.corpus.build import sentences as splitter
from bert_jax.corpus.manifest import verify_corpus
from bert_jax.corpus.store import open_corpus
from bert_jax.errors import UserError
from bert_jax.readers import pieces
from bert_jax.readers.documents import ReadOptions
from bert_jax.tokenizer import load_tokenizer, save_tokenizer
from bert_jax.tokenizer.train import train_from_texts
from tests.helpers import fuzzed_inputs, fuzzed_texts, simple_reader

KINDS = ("wordpiece", "byte_level", "unigram")
PART = 100_000  # characters
SECONDS = 240  # for one tree; some take 60 s on a slow machine with other work


def make_tokenizers(place):
    """One tokenizer per kind, trained on sentences like those of the inputs."""
    rng = random.Random(0)
    syllables = "".join(rng.choices("abdefgiklmnorstu", k=9000))
    words = [syllables[start : start + 6] for start in range(0, 9000, 6)]
    sentences = [fuzzed_texts.sentence(rng) + " " + " ".join(rng.choices(words, k=9)) for _ in range(2000)]
    for kind in KINDS:
        tokenizer, files = train_from_texts(lambda: sentences, 600, kind, lowercase=kind == "wordpiece")
        save_tokenizer(tokenizer, pathlib.Path(place) / kind, files)
    return place


class Fault(AssertionError):
    """A condition that must hold does not."""


def check(condition, *words):
    if not condition:
        raise Fault(*words)


def run(seed, tokenizers, place):
    """Prepare the tree of a seed and check everything; return the outcome in a word."""
    rng = random.Random(seed)
    files = fuzzed_inputs.tree(rng)
    inputs, output = os.path.join(place, "in"), os.path.join(place, "corpus")
    fuzzed_inputs.write(files, inputs)
    kind = rng.choice(KINDS)
    options = ReadOptions(
        documents=rng.choice(("auto", "auto", "file", "blank-line", "line")),
        format=rng.choice(
            ("auto",) * 90
            + ("text", "markdown", "jsonl", "csv", "tsv", "parquet", "wikiextractor", "mediawiki")
            + ("rst", "html", "epub", "pdf", "arrow", "tfrecord")
        ),
        field=rng.choice(("text",) * 40 + ("a.b", "1", "0", "nosuch", "tex")),
        encoding_errors=rng.choice(("reject", "replace")),
        markup=rng.choice(("none",) * 30 + ("html", "markdown", "rst")),
    )
    heldout = rng.choice((0, 0.02, 0.3))
    argv = [
        "prepare", "--input", inputs, "--tokenizer", os.path.join(tokenizers, kind), "--output", output, "--workers=1",
        "--max_rejected_fraction=1",
        f"--format={options.format}", f"--documents={options.documents}", f"--field={options.field}",
        f"--encoding_errors={options.encoding_errors}", f"--heldout_fraction={heldout}",
        f"--markup={options.markup}",
        f"--language={rng.choice(('en', 'de', 'ko', 'fr'))}",
    ]  # fmt: skip
    sizes = [(chunks, "CHUNK_BYTES", 3000), (chunks, "CHUNKS_PER_BLOCK", 2), (chunks, "PARTITION_BYTES", 20_000)] * (
        rng.random() < 0.3
    )
    sizes += [(pieces, "MAX_UNSPLIT_BYTES", 3000), (pieces, "MAX_PIECE_BYTES", 1000)] * (rng.random() < 0.3)
    with contextlib.ExitStack() as stack:
        for module, name, size in sizes:
            stack.enter_context(mock.patch.object(module, name, size))
        wanted = expected(files, options)
        status, messages, printed = call(argv)
    if status == 2:
        check_refusal(messages, output, files, inputs)
        tokenizer = load_tokenizer(os.path.join(tokenizers, kind))
        check(
            not wanted or wanted.may_refuse or "documents" in messages,
            "refused, but nothing is wrong with it:",
            messages,
        )
        check(
            "0 of" not in messages or wanted is None or not any_tokens(wanted, tokenizer), "no document used:", messages
        )
        return "refused"
    check(status == 0, "exit status", status, messages)
    check(not os.path.lexists(os.path.join(place, ".corpus.incomplete")), "left its work behind")
    check_counts(output, wanted, messages, printed)
    check_sequences(output, rng)
    return "prepared" if wanted is None else "prepared, all documents known"


class Expected(collections.namedtuple("Expected", "documents must_refuse may_refuse")):
    """Of all the files: the texts of documents, None for a document without text, ... where it is unknown."""


def expected(files, options):
    """Return `Expected`, or None where it is unknown."""
    if options.markup != "none":
        return None
    documents, must_refuse, may_refuse, fields = [], False, False, options.field == "text"
    try:
        for file in files:
            if file.streams is None:
                return None
            if any(part.startswith(".hid") for part in file.name.split("/")):
                continue
            found = {simple_reader.format_of(stream.bare, options.format) for stream in file.streams}
            fields = fields or bool(found & {"jsonl", "csv", "tsv", "parquet", "arrow", "tfrecord"})
            may_refuse = may_refuse or file.may_refuse
            documents += [None] * file.rejected
            for stream in file.streams:
                documents += simple_reader.documents(stream, options)
    except simple_reader.Refused:
        must_refuse = True
    except simple_reader.Unknown:
        return None
    # Before it is read, an archive may contain records. A tree of hidden files alone has nothing to read.
    may_refuse = may_refuse or not documents
    return Expected(documents, must_refuse, may_refuse or must_refuse or not fields)


def call(argv):
    """Exit status, standard error, standard output of the command line; a fault for an exception, and for a hang."""
    out, error = (
        io.TextIOWrapper(io.BytesIO(), "utf-8", errors, write_through=True) for errors in ("strict", "backslashreplace")
    )

    def late(*_):
        raise Fault("takes too long")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            status = main(argv)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return status, error.buffer.getvalue().decode(), out.buffer.getvalue().decode()


def check_refusal(messages, output, files, inputs):
    check(not os.path.lexists(output), "a corpus in spite of the refusal")
    for place in (
        f"{os.path.dirname(output)}/.corpus.incomplete",
        f"{os.path.dirname(output)}/.corpus.incomplete/corpus",
    ):
        with contextlib.suppress(UserError):
            open_corpus(place)
            raise Fault("a corpus that is not whole is taken")
    message = messages.rpartition("bert-jax prepare: ")[2].replace("new\nline", "")
    check(
        message.strip() and message.count("\n") <= 2 and len(message) < 3000,
        "a message of other than one or two lines:",
        messages,
    )
    check("Traceback" not in messages, messages)


def any_tokens(wanted, tokenizer):
    return any(isinstance(text, str) and has_tokens(text, tokenizer) for text in wanted.documents)


def has_tokens(text, tokenizer):
    """Encode in parts, since the library needs much memory."""
    return any(tokenizer.encode_sentences([text[start : start + PART]])[0] for start in range(0, len(text), PART))


def check_counts(output, wanted, messages, printed):
    corpus = open_corpus(output)
    check(verify_corpus(pathlib.Path(output)) == [], "damaged")
    counts = corpus.manifest["documents"]
    check(counts["in"] == counts["stored"] + sum(counts["rejected"].values()), "in != stored + rejected:", counts)
    stored = [ids for split in ("train", "heldout") for ids in documents_of(corpus.split(split))]
    check(len(stored) == counts["stored"], "the counts are of other documents than the corpus has")
    check(f"{counts['in']:,} document" in printed, printed)
    if wanted is None:
        return
    check(not wanted.must_refuse, "read, though it cannot be")
    check(counts["in"] == len(wanted.documents), f"{counts} of {len(wanted.documents)} documents")
    if ... in wanted.documents:
        return
    tokenizer = load_tokenizer(corpus.directory / "tokenizer")
    texts = [text for text in wanted.documents if text and has_tokens(text, tokenizer)]
    check(len(texts) == len(stored), f"{len(stored)} stored, {len(texts)} have tokens: {counts}")
    if corpus.manifest["tokenizer"]["kind"] == "byte_level":
        found = collections.Counter(
            bare(tokenizer.plain.decode(one.tolist(), skip_special_tokens=False))
            for one in stored
            if len(one) < 4 * PART
        )
        given = collections.Counter(bare(text) for text in texts if "\ufffd" not in text and len(text) < PART)
        lost = given - found
        check(not lost, f"texts that are not in the corpus: {[text[:300] for text in lost]}")
        return
    whole = collections.Counter(tuple(tokenizer.encode_sentences([text])[0]) for text in texts if is_clean(text))
    lost = whole - collections.Counter(tuple(one.tolist()) for one in stored)
    check(not lost, f"{len(lost)} clean documents have other ids")


def documents_of(split):
    """The ids of each document."""
    for first, end in zip(split.first_record, split.first_record[1:], strict=False):
        yield split.read(np.arange(first, end))[0]


def bare(text):
    """Return the text without white space, which preparation reduces to one between words."""
    return re.sub(r"\s", "", text)


def is_clean(text):
    """Words of letters, one space or line end between them, periods: the same tokens as a whole and in sentences."""
    return re.fullmatch(r"(?:[^\W\d_]{1,50}(?:\.?[ \n]|\.?$))+", text) and len(text) < splitter.WINDOW


def check_sequences(output, rng):
    """Build sequences by each rule of sentence pairs, with the other options drawn at random."""
    corpus = open_corpus(output)
    split = corpus.split("train")
    symbols = special_ids_and_vocabulary(load_tokenizer(corpus.directory / "tokenizer"))
    for pairing in SENTENCE_PAIRS:
        config = DataConfig(sentence_pairs=pairing, masking=rng.choice(list(MASKINGS)), packing=rng.choice((1, 1, 3)))
        try:
            sequences = make_sequences(split, symbols, rng.choice((24, 128, 512)), 1, config)
        except UserError as error:
            check(pairing == "next_sentence" and split.num_documents < 2, str(error))
            continue
        batch = sequences.batch(np.arange(100))
        check(
            batch["input_ids"].min() >= 0 and batch["input_ids"].max() < corpus.manifest["tokenizer"]["vocab_size"],
            "an id",
        )


def fault_of(seed, tokenizers):
    """Return the outcome of the tree of a seed, and '' or the fault."""
    with tempfile.TemporaryDirectory() as place:
        try:
            return run(seed, tokenizers, place), ""
        except Exception as error:
            words = "" if isinstance(error, Fault) else "".join(traceback.format_exception(error)[-2:])
            return "fault", f"seed {seed}: {error} {words}".replace(place, "")
        except BaseException as error:  # a panic of a library in Rust is not an Exception
            if isinstance(error, KeyboardInterrupt):
                raise
            return "fault", f"seed {seed}: {type(error)} {error}"


def fault_of_bomb(bomb, tokenizers, place):
    """Return '' or the fault where a bomb is the only input; nothing of it can be used."""
    path, output = os.path.join(place, bomb.name), os.path.join(place, "corpus")
    fuzzed_inputs.write([bomb], place)
    try:
        status, messages, _ = call(
            [
                "prepare",
                f"--input={path}",
                f"--tokenizer={tokenizers}/wordpiece",
                f"--output={output}",
                "--workers=1",
                "--max_rejected_fraction=1",
            ]
        )
        check(status == 2 and not os.path.exists(output), "status", status, messages)
    except Exception as error:
        return f"{bomb.name}: {type(error).__name__} {error}"
    return ""


def peak():
    """Return the peak of resident memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def report(tokenizers, first, last):
    """Return the outcomes of seeds, the faults, and the memory before and at the peak."""
    outcomes, faults = collections.Counter(), []
    before = peak()
    for seed in range(first, last):
        outcome, fault = fault_of(seed, tokenizers)
        outcomes[outcome] += 1
        faults += [fault] * bool(fault)
    with tempfile.TemporaryDirectory() as place:
        for bomb in fuzzed_inputs.bombs():
            fault = fault_of_bomb(bomb, tokenizers, place)
            faults += [fault] * bool(fault)
    return {"outcomes": outcomes, "faults": faults, "MiB before": before, "MiB at the peak": peak()}


if __name__ == "__main__":
    make_tokenizers(sys.argv[1])
    print(json.dumps(report(sys.argv[1], *map(int, sys.argv[2:4])), indent=1))
