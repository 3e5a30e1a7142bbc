"""The corpus store: documents are read back, damage is reported, and shards stay within the limit of open files."""

import dataclasses
import json
import random
import resource
import signal
import subprocess
import sys
import threading
import types

import numpy as np
import pytest
from tokenizers import pre_tokenizers

from bert_jax.corpus import store as corpus
from bert_jax.corpus.build.corpus_writer import (
    ShardInfo,
    cut_long_sentence_lengths,
    pack_document,
    token_dtype,
    write_shard,
)
from bert_jax.corpus.build.encoding import tokens_inside_character
from bert_jax.corpus.manifest import manifest_seal, verify_corpus
from bert_jax.corpus.store import Split, open_corpus
from bert_jax.errors import UserError
from bert_jax.tokenizer import build_tokenizer, byte_level
from tests.helpers.stored_corpus import store


def documents(seed, number=40, vocab_size=30522, sentences=600):
    rng = np.random.default_rng(seed)
    for _ in range(number):
        lengths = rng.integers(1, 60, rng.integers(1, sentences))
        yield lengths, rng.integers(0, vocab_size, lengths.sum()).astype(token_dtype(vocab_size))


def pieces(lengths, tokens):
    """Return the records of a document, filled greedily, one sentence at a time."""
    records, start = [], 0
    for length in lengths.tolist():
        if not records or sum(records[-1][0]) + length > corpus.MAX_RECORD:
            records.append(([], []))
        records[-1][0].append(length)
        records[-1][1].extend(tokens[start : start + length].tolist())
        start += length
    return records


@pytest.mark.parametrize("vocab_size", [30522, 119547])
@pytest.mark.parametrize("documents_per_shard", [1 << 30, 7])
def test_stored_documents_are_read_back(tmp_path, vocab_size, documents_per_shard):
    train = list(documents(0, vocab_size=vocab_size))
    heldout = list(documents(1, 3, vocab_size))
    manifest = store(tmp_path / "c", train, heldout, vocab_size, documents_per_shard)
    assert len(manifest["splits"]["train"]["shards"]) == (6 if documents_per_shard == 7 else 1)
    found = open_corpus(tmp_path / "c")
    assert verify_corpus(found.directory) == []
    assert (found.vocab_size, found.fingerprint) == (vocab_size, manifest["fingerprint"])
    for name, expected in (("train", train), ("heldout", heldout)):
        split = found.split(name)
        records = [record for document in expected for record in pieces(*document)]
        assert split.tokens_per_record.tolist() == [sum(record[0]) for record in records]
        assert np.diff(split.first_record).tolist() == [len(pieces(*document)) for document in expected]
        assert (split.num_documents, split.num_records) == (len(expected), len(records))
        assert split.source_documents.tolist() == [0, len(expected)]
        assert split.num_sentences == sum(len(document[0]) for document in expected)
        assert split.num_tokens == manifest["splits"][name]["tokens"] == sum(len(document[1]) for document in expected)
        check_reading(split, records, token_dtype(vocab_size))


def check_reading(split, records, dtype):
    order = np.random.default_rng(2).integers(0, len(records), 3 * len(records))
    tokens, lengths, counts = split.read(order)
    assert tokens.dtype == dtype
    assert lengths.dtype == counts.dtype == np.int32
    assert tokens.tolist() == [token for record in order for token in records[record][1]]
    assert lengths.tolist() == [length for record in order for length in records[record][0]]
    assert counts.tolist() == [len(records[record][0]) for record in order]
    assert [part.tolist() for part in split.read(np.zeros(0, np.int64))] == [[], [], []]


def test_a_corpus_without_heldout_documents(tmp_path):
    manifest = store(tmp_path / "c", documents(0, 3))
    heldout = open_corpus(tmp_path / "c").split("heldout")
    assert (heldout.num_documents, heldout.num_records) == (0, 0)
    assert manifest["splits"]["heldout"]["shards"] == []


def test_joined_splits_are_one_after_the_other(tmp_path):
    sources = [list(documents(0, 7)), list(documents(1, 5)), list(documents(2, 1))]
    for number, source in enumerate(sources):
        store(tmp_path / str(number), source, documents_per_shard=3)
    splits = [open_corpus(tmp_path / str(number)).split("train") for number in range(3)]
    records = [record for source in sources for document in source for record in pieces(*document)]
    starts = np.cumsum([0] + [len(pieces(*document)) for source in sources for document in source])
    for joined in (Split.join(splits), Split.join([splits[0], Split.join(splits[1:])])):
        assert joined.source_documents.tolist() == [0, 7, 12, 13]
        assert joined.source_documents.dtype == joined.first_record.dtype == np.int64
        assert joined.first_record.tolist() == starts.tolist()
        assert (joined.num_documents, joined.num_records) == (13, len(records))
        assert joined.sentences_per_record.tolist() == [len(record[0]) for record in records]
        check_reading(joined, records, np.uint16)
    assert Split.join(splits[:1]).source_documents.tolist() == [0, 7]
    with pytest.raises(IndexError):
        joined.read(np.array([len(records)]))


def test_joining_small_and_large_vocabularies_is_refused(tmp_path):
    store(tmp_path / "a", documents(0, 3))
    store(tmp_path / "b", documents(0, 3), vocab_size=119547)
    with pytest.raises(UserError, match="cannot be mixed"):
        Split.join([open_corpus(tmp_path / name).split("train") for name in "ab"])


def test_a_damaged_shard_of_a_joined_split_is_named(tmp_path):
    stored = list(documents(0, 20))
    for name in "ab":
        store(tmp_path / name, stored, documents_per_shard=5)
    shard = tmp_path / "b" / "train-00002-of-00004.arrayrecord"
    flip(shard, shard.read_bytes().index(stored[10][1][:20].tobytes()))
    joined = Split.join([open_corpus(tmp_path / name).split("train") for name in "ab"])
    with pytest.raises(UserError, match=str(shard)):
        joined.read(np.arange(joined.num_records))


def test_records_beyond_the_end_are_refused(tmp_path):
    store(tmp_path / "c", documents(0))
    split = open_corpus(tmp_path / "c").split("train")
    for record in (-1, split.num_records):
        with pytest.raises(IndexError):
            split.read(np.array([0, record]))


def test_many_threads_read_the_same_tokens(tmp_path):
    store(tmp_path / "c", documents(0), documents_per_shard=15)
    split = open_corpus(tmp_path / "c").split("train")
    everything = split.read(np.arange(split.num_records))[0]
    ends = np.cumsum(split.tokens_per_record)
    right = []

    def read(seed):
        order = np.random.default_rng(seed).integers(0, split.num_records, 100)
        expected = np.concatenate([everything[ends[r] - split.tokens_per_record[r] : ends[r]] for r in order])
        right.append(all(np.array_equal(split.read(order)[0], expected) for _ in range(20)))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 8


@pytest.fixture
def reading(monkeypatch):
    """A clock that only reads of ArrayRecord advance, by `reading.seconds(number)`, and the sizes of those reads."""
    from array_record.python import array_record_module

    found = types.SimpleNamespace(seconds=lambda number: 0.0, now=0.0, sizes=[])

    class Reader(array_record_module.ArrayRecordReader):
        def read(self, records=None):
            found.now += found.seconds(len(found.sizes))
            found.sizes.append(1 if records is None else len(records))
            return super().read() if records is None else super().read(records)

    monkeypatch.setattr(array_record_module, "ArrayRecordReader", Reader)
    monkeypatch.setattr(corpus.time, "perf_counter", lambda: found.now)
    return found


@pytest.mark.parametrize("documents_per_shard", [1 << 30, 7])
def test_slow_storage_is_read_at_once(tmp_path, documents_per_shard, reading):
    """After 16 records, most of which took 20 ms, one read for all records of a shard; the records are the same."""
    store(tmp_path / "c", documents(0), [], 30522, documents_per_shard)
    records = np.random.default_rng(0).integers(0, open_corpus(tmp_path / "c").split("train").num_records, 200)
    expected = [array.tolist() for array in open_corpus(tmp_path / "c").split("train").read(records)]
    assert reading.sizes == [1] * 200, "the storage was fast"
    split = open_corpus(tmp_path / "c").split("train")
    for first in range(0, 6, 3):  # of a small batch; the times of both and of the next call count together
        split.read(records[first : first + 3])
    reading.seconds, shards = lambda number: 0.02, 1 if documents_per_shard > 7 else 6
    for first in (10, 0):
        reading.sizes.clear()
        assert [array.tolist() for array in split.read(records)] == expected
        assert reading.sizes[:first] == [1] * first
        assert len(reading.sizes[first:]) == shards
        assert sum(reading.sizes) == 200


def test_a_few_slow_reads_do_not_change_the_sizes_of_reads(tmp_path, reading):
    store(tmp_path / "c", documents(0), [], 30522)
    split = open_corpus(tmp_path / "c").split("train")
    reading.seconds = lambda number: 60.0 if number in (0, 7) else 0.0
    split.read(np.arange(40))
    assert reading.sizes == [1] * 40


def test_a_damaged_shard_of_slow_storage_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "SLOW_READ", -1.0)
    store(tmp_path / "c", documents(0), [], 30522, 7)
    split = open_corpus(tmp_path / "c").split("train")
    damaged = sorted((tmp_path / "c").glob("train-*.arrayrecord"))[-1]
    data = bytearray(damaged.read_bytes())
    for position in range(len(data) // 4, len(data) // 2):
        data[position] ^= 255
    damaged.write_bytes(data)
    with pytest.raises(UserError, match=rf"{damaged.name}: damaged shard"):
        split.read(np.arange(split.num_records))


def test_long_sentences_are_cut_and_nothing_is_lost():
    lengths = np.array([1, 512, 513, 1024, 1500, 7])
    assert cut_long_sentence_lengths(lengths).tolist() == [1, 512, 512, 1, 512, 512, 512, 512, 476, 7]
    assert cut_long_sentence_lengths(lengths[:2]).tolist() == [1, 512]


def test_a_long_sentence_of_bytes_is_cut_between_characters():
    text = "한국어" * 400  # three bytes a character, which do not divide 512
    tokens = [*byte_level.SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    definition = byte_level.define_byte_level({token: number for number, token in enumerate(tokens)}, ())
    tokenizer = build_tokenizer(definition, byte_level.SPECIAL)
    ids = np.array(tokenizer.encode_sentences([text])[0])
    lengths = cut_long_sentence_lengths(np.array([len(ids)]), tokens_inside_character(tokenizer)[ids])
    assert max(lengths) <= 512
    parts = [tokenizer.plain.decode(part) for part in np.split(ids, np.cumsum(lengths)[:-1])]
    assert "".join(parts) == text
    pieces = ["<0x41>", "<0x80>", "<0xBF>", "<0xC0>", "<0xE4>", "a"]
    found = tokens_inside_character(dataclasses.replace(tokenizer, tokens=tuple(pieces)))
    assert found.tolist() == [False, True, True, False, False, False]


def test_fingerprints_are_equal_exactly_for_equal_content(tmp_path):
    prints = [store(tmp_path / str(n), documents(seed))["fingerprint"] for n, seed in enumerate([0, 0, 1])]
    assert prints[0] == prints[1] != prints[2]


def test_a_shard_and_its_figures(tmp_path):
    found = [pack_document(*document) for document in documents(0, 5)]
    facts = [write_shard(tmp_path, "train", 3, 1, iter(found)) for _ in range(2)]  # the same file again
    assert facts[0] == facts[1] == ShardInfo(**json.loads(json.dumps(vars(facts[0]))))
    assert sorted(path.name for path in tmp_path.iterdir()) == [facts[0].name, facts[0].rows_name]
    assert facts[0].name == "00003-00001.train.arrayrecord"
    rows = np.concatenate([packed.rows[:, :3] for packed in found])
    assert np.array_equal(np.fromfile(tmp_path / facts[0].rows_name, "<u4").reshape(-1, 7)[:, :3], rows)
    assert (facts[0].records, facts[0].documents) == (len(rows), 5)
    assert (facts[0].tokens, facts[0].sentences) == tuple(rows[:, :2].sum(axis=0).tolist())


def test_a_shard_that_fails_leaves_nothing(tmp_path):
    def broken():
        yield pack_document(*next(documents(0)))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_shard(tmp_path, "train", 0, 0, broken())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
    try:
        with pytest.raises((OSError, RuntimeError), match="File too large"):
            write_shard(tmp_path, "train", 0, 0, (pack_document(*document) for document in documents(0)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == []


def damage_manifest(directory, change):
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def elsewhere(manifest):
    """As someone else may write it, with a seal."""
    manifest["splits"]["train"]["shards"][0]["name"] = f"../c/{SHARD}"
    manifest["seal"] = manifest_seal(manifest)


def cut(path, keep):
    path.write_bytes(path.read_bytes()[:keep])


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


SHARD = "train-00000-of-00001.arrayrecord"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda d: (d / "manifest.json").unlink(), "no complete manifest"),
        (lambda d: cut(d / "manifest.json", 100), "no complete manifest"),
        (lambda d: damage_manifest(d, lambda m: m.update(format_version=99)), "corpus format 99"),
        (lambda d: damage_manifest(d, lambda m: m["tokenizer"].update(sha256="1")), "changed since it was written"),
        (
            lambda d: damage_manifest(d, lambda m: m.pop("seal")),
            "manifest.json: has no seal, as before the first release",
        ),
        (lambda d: damage_manifest(d, elsewhere), "'../c/train-.*' is no plain file name"),
        (lambda d: (d / SHARD).unlink(), f"{SHARD}: cannot be read"),
        (lambda d: cut(d / SHARD, 100_000), f"{SHARD}: 100,000 bytes, the manifest says"),
        (lambda d: flip(d / "train.index.npy", -1), "train.index.npy: digest differs"),
        (lambda d: (d / "train.index.npy").unlink(), "train.index.npy: cannot be read"),
    ],
)
def test_a_damaged_corpus_is_refused(tmp_path, damage, words):
    store(tmp_path / "c", documents(0))
    damage(tmp_path / "c")
    with pytest.raises(UserError, match=words):
        open_corpus(tmp_path / "c")


def test_directories_that_are_no_corpus(tmp_path):
    with pytest.raises(UserError, match="no such corpus directory"):
        open_corpus(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no complete manifest"):
        open_corpus(tmp_path)
    store(tmp_path / "c", [], documents(0))
    with pytest.raises(UserError, match="no training document"):
        open_corpus(tmp_path / "c")


@pytest.mark.parametrize("padding", [True, False])
def test_random_bit_flips_are_reported_or_change_nothing(tmp_path, padding):
    """In whole shards, headers and the index at the end included: reading returns what was written, or fails."""
    store(tmp_path / "c", documents(0, 30, sentences=100), documents_per_shard=10)
    split = open_corpus(tmp_path / "c").split("train")
    everything = [part.tolist() for part in split.read(np.arange(split.num_records))]
    rng = random.Random(0)
    refusals = []
    for _ in range(250):
        shard = tmp_path / "c" / f"train-{rng.randrange(3):05}-of-00003.arrayrecord"
        data = shard.read_bytes()
        bit = rng.randrange(8 * len(data))
        while not (padding or data[bit // 8]):  # most of a small shard is zeros
            bit = rng.randrange(8 * len(data))
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        shard.write_bytes(flipped)
        try:
            split = open_corpus(tmp_path / "c").split("train")
            found = [part.tolist() for part in split.read(np.arange(split.num_records))]
        except UserError as error:
            refusals.append((str(shard), str(error)))
        else:
            assert found == everything, bit
        shard.write_bytes(data)
    assert all(shard in message for shard, message in refusals)
    assert len(refusals) > (10 if padding else 240)


OPEN_SHARDS = """
import resource, sys, threading
import numpy as np
from bert_jax import files
from bert_jax.corpus import store
from bert_jax.errors import UserError
hard, store.READING_THREADS, threads = map(int, sys.argv[2:])
files.OTHER_FILES = 20
resource.setrlimit(resource.RLIMIT_NOFILE, (30, hard))
together = threading.Barrier(threads)
in_turn = threading.Lock()  # at once, each thread could hold a few files, and none could open all of its own
printed = []
def read():
    try:
        with in_turn:
            tokens, *_ = split.read(np.arange(40))
        printed.append(tokens.tolist() == [id for n in range(40) for id in (n, n + 1)])
    except UserError as error:
        printed.append(str(error).partition("arrayrecord: ")[2])
    together.wait()  # the readers of a thread are open until it ends
try:
    split = store.open_corpus(sys.argv[1]).split("train")
    reading = [threading.Thread(target=read) for _ in range(threads)]
    for thread in reading: thread.start()
    for thread in reading: thread.join()
    print(*sorted(set(printed), key=str), sep=", ")
except UserError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("hard", "expected", "threads", "printed"),
    [
        (200, 2, 2, "True"),
        (60, 2, 2, "80 files may be open at once, but this system allows 60; raise `ulimit -Hn`"),
        (200, 2, 8, "Too many open files; lower --config.data.num_threads, or raise `ulimit -n`, True"),
    ],
)
def test_more_shards_than_files_may_be_open(tmp_path, hard, expected, threads, printed):
    """ArrayRecord takes a file that it cannot open for an empty one; the limit is raised, or an error reported."""
    documents = [(np.array([2]), np.array([n, n + 1], "<u2")) for n in range(40)]
    store(tmp_path / "c", documents, documents_per_shard=1)
    command = [sys.executable, "-c", OPEN_SHARDS, str(tmp_path / "c"), *map(str, (hard, expected, threads))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == printed
