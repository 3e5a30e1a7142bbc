import json
import resource
import signal
import threading

import numpy as np
import pytest

from bert_jax.data import corpus
from bert_jax.data.corpus import CorpusWriter, cut_sentences, open_corpus, pack_document, token_dtype, verify
from bert_jax.errors import UserError


def documents(seed, number=40, vocab_size=30522, sentences=600):
    rng = np.random.default_rng(seed)
    for _ in range(number):
        lengths = rng.integers(1, 60, rng.integers(1, sentences))
        yield lengths, rng.integers(0, vocab_size, lengths.sum()).astype(token_dtype(vocab_size))


def store(directory, train, heldout=(), vocab_size=30522):
    with CorpusWriter(directory, token_dtype(vocab_size)) as writer:
        for split, found in (("train", train), ("heldout", heldout)):
            for document in found:
                writer.write(split, pack_document(*document))
        writer.tokenizer_directory.mkdir()
        return writer.commit({"tokenizer": {"sha256": "0" * 64, "vocab_size": vocab_size}})


def pieces(lengths, tokens):
    """The records of a document, greedily, one sentence at a time."""
    records, start = [], 0
    for length in lengths.tolist():
        if not records or sum(records[-1][0]) + length > corpus.MAX_RECORD:
            records.append(([], []))
        records[-1][0].append(length)
        records[-1][1].extend(tokens[start : start + length].tolist())
        start += length
    return records


@pytest.mark.parametrize("vocab_size", [30522, 119547])
@pytest.mark.parametrize("shard_bytes", [64 << 20, 100_000])
def test_reads_what_was_written(tmp_path, monkeypatch, vocab_size, shard_bytes):
    monkeypatch.setattr(corpus, "SHARD_BYTES", shard_bytes)
    train = list(documents(0, vocab_size=vocab_size))
    heldout = list(documents(1, 3, vocab_size))
    manifest = store(tmp_path / "c", train, heldout, vocab_size)
    assert len(manifest["splits"]["train"]["shards"]) == 1 or shard_bytes == 100_000
    found = open_corpus(tmp_path / "c")
    verify(found)
    assert (found.vocab_size, found.fingerprint) == (vocab_size, manifest["fingerprint"])
    for name, expected in (("train", train), ("heldout", heldout)):
        split = found.split(name)
        records = [record for document in expected for record in pieces(*document)]
        assert split.tokens_per_record.tolist() == [sum(record[0]) for record in records]
        assert np.diff(split.first_record).tolist() == [len(pieces(*document)) for document in expected]
        assert (split.num_documents, split.num_records) == (len(expected), len(records))
        assert split.num_sentences == sum(len(document[0]) for document in expected)
        assert split.num_tokens == manifest["splits"][name]["tokens"] == sum(len(document[1]) for document in expected)
        order = np.random.default_rng(2).integers(0, len(records), 3 * len(records))
        tokens, lengths, counts = split.read(order)
        assert tokens.dtype == token_dtype(vocab_size)
        assert lengths.dtype == counts.dtype == np.int32
        assert tokens.tolist() == [token for record in order for token in records[record][1]]
        assert lengths.tolist() == [length for record in order for length in records[record][0]]
        assert counts.tolist() == [len(records[record][0]) for record in order]
        assert [part.tolist() for part in split.read(np.zeros(0, np.int64))] == [[], [], []]


def test_records_beyond_the_end_are_refused(tmp_path):
    store(tmp_path / "c", documents(0))
    split = open_corpus(tmp_path / "c").split("train")
    for record in (-1, split.num_records):
        with pytest.raises(IndexError):
            split.read(np.array([0, record]))


def test_many_threads_read_the_same(tmp_path):
    store(tmp_path / "c", documents(0))
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


def test_long_sentences_are_cut_and_nothing_is_lost():
    lengths = np.array([1, 512, 513, 1024, 1500, 7])
    assert cut_sentences(lengths).tolist() == [1, 512, 512, 1, 512, 512, 512, 512, 476, 7]
    assert cut_sentences(lengths[:2]).tolist() == [1, 512]


def test_equal_content_gives_equal_fingerprints_and_other_content_another(tmp_path):
    prints = [store(tmp_path / str(n), documents(seed))["fingerprint"] for n, seed in enumerate([0, 0, 1])]
    assert prints[0] == prints[1] != prints[2]


def damage_manifest(directory, change):
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def cut(path, keep):
    path.write_bytes(path.read_bytes()[:keep])


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


SHARD = "train-00000-of-00001.arrayrecord"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda d: (d / "manifest.json").unlink(), "no complete manifest"),
        (lambda d: cut(d / "manifest.json", 100), "no complete manifest"),
        (lambda d: damage_manifest(d, lambda m: m.update(format_version=99)), "corpus format 99"),
        (lambda d: damage_manifest(d, lambda m: m["tokenizer"].update(sha256="1")), "changed since it was written"),
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


def test_places_that_are_no_corpus(tmp_path):
    with pytest.raises(UserError, match="no such corpus directory"):
        open_corpus(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no complete manifest"):
        open_corpus(tmp_path)
    store(tmp_path / "c", [], documents(0))
    with pytest.raises(UserError, match="no training document"):
        open_corpus(tmp_path / "c")


def test_flipped_bits_in_a_shard_are_found_when_read(tmp_path):
    store(tmp_path / "c", documents(0))
    flip(tmp_path / "c" / SHARD, 200_000)
    found = open_corpus(tmp_path / "c")
    split = found.split("train")
    with pytest.raises(UserError, match=f"{SHARD}: damaged shard"):
        split.read(np.arange(split.num_records))
    with pytest.raises(UserError, match=f"{SHARD}: digest differs"):
        verify(found)


def test_an_output_in_use_is_refused_and_an_empty_one_taken(tmp_path):
    (tmp_path / "c").mkdir()
    store(tmp_path / "c", documents(0))
    with pytest.raises(UserError, match="holds a corpus already"):
        store(tmp_path / "c", documents(0))
    (tmp_path / "d").write_text("mine")
    with pytest.raises(UserError, match="holds something else already"):
        store(tmp_path / "d", documents(0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "d"]


def test_two_writers_of_one_corpus(tmp_path):
    with CorpusWriter(tmp_path / "c", token_dtype(9)):
        with pytest.raises(UserError, match="another preparation is writing"):
            store(tmp_path / "c", documents(0))
        assert (tmp_path / ".c.incomplete").is_dir()
    assert list(tmp_path.iterdir()) == []


def test_leftovers_are_not_a_corpus_and_are_removed(tmp_path):
    leftover = tmp_path / ".c.incomplete"
    (leftover / "tokenizer").mkdir(parents=True)
    (leftover / "train-00000.open").write_bytes(b"half")
    (leftover / "heldout-00007-of-00009.arrayrecord").write_bytes(b"half")
    with pytest.raises(UserError, match="no complete manifest"):
        open_corpus(leftover)
    store(tmp_path / "c", documents(0))
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
    assert not (tmp_path / "c" / "heldout-00007-of-00009.arrayrecord").exists()


def test_an_error_while_writing_leaves_nothing(tmp_path):
    def broken():
        yield from documents(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store(tmp_path / "c", broken())
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path):
    """A limit on the size of files stands in for the disk: writes fail half-way in the same place."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
    try:
        with pytest.raises(UserError, match="could not write the corpus"):
            store(tmp_path / "c", documents(0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="could not write the corpus"):
        store(tmp_path / "file" / "c", documents(0))
