import hashlib
import multiprocessing
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import sentencex

from bert_jax.data import corpus
from bert_jax.data import prepare as preparation
from bert_jax.data.corpus import open_corpus, verify
from bert_jax.data.prepare import is_heldout, prepare, train_tokenizer
from bert_jax.data.tokenizer import SPECIAL_TOKENS, Normalizer, cut_text, load_tokenizer, save, wordpiece
from bert_jax.errors import UserError

WORDS = ["the", "##s", "cat", "dog", "sat", "on", "mat", ".", "[", "]", "sep", "t", "##h", "##e"]


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokenizer")
    save(wordpiece([*SPECIAL_TOKENS, *WORDS], Normalizer()), directory)
    return directory


def text(rng, sentences):
    """Sentences of one to 30 words, some unknown and some that spell a special token."""
    words = ["the", "cats", "Dogs", "sat", "on", "mat", "[SEP]", "zebra", "the"]
    return " ".join(" ".join(rng.choices(words, k=rng.randint(1, 30))).capitalize() + "." for _ in range(sentences))


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    directory = tmp_path_factory.mktemp("texts")
    rng = random.Random(0)
    for number in range(60):
        (directory / f"{number:03}.txt").write_text("\n\n".join(text(rng, 40) for _ in range(rng.randint(1, 12))))
    (directory / "binary").write_bytes(b"\0\1")
    (directory / "latin").write_bytes(b"caf\xe9")
    (directory / "nothing").write_bytes(b"")
    (directory / "unseen").write_text("\u200b\u200b")
    (directory / "words").write_text("the cat " * 2000 + "\n\n" + "the dog sat on the mat. " * 3)
    return directory


def straightforward(paths, directory):
    """{split: [(sentence ids, ...) a document]}: one sentence and one token at a time."""
    tokenizer = load_tokenizer(directory)
    expected = {"train": [], "heldout": []}
    for path in paths:
        try:
            content = path.read_bytes().decode()
        except UnicodeDecodeError:
            continue
        sentences = []
        for sentence in sentencex.segment("en", content):
            for piece in cut_text(sentence):
                ids = tokenizer.plain.encode(piece, add_special_tokens=False).ids
                sentences += [
                    ids[start : start + corpus.MAX_SENTENCE] for start in range(0, len(ids), corpus.MAX_SENTENCE)
                ]
        if sentences and "\0" not in content:
            digest = hashlib.blake2b(content.encode(), digest_size=8).digest()
            expected["heldout" if int.from_bytes(digest, "big") / 2**64 < 0.2 else "train"].append(sentences)
    return expected


def contents(directory):
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def test_the_store_holds_what_a_straightforward_encoding_gives(tmp_path, texts, tokenizer):
    seen = []
    manifest = prepare(
        [str(texts)], tokenizer, tmp_path / "c", workers=1, heldout_share=0.2, progress=lambda *a: seen.append(a)
    )
    found = open_corpus(tmp_path / "c")
    verify(found)
    for name, documents in straightforward(sorted(texts.iterdir()), tokenizer).items():
        split = found.split(name)
        assert split.num_documents == len(documents) > 5
        for number, sentences in enumerate(documents):
            records = np.arange(split.first_record[number], split.first_record[number + 1])
            tokens, lengths, _ = split.read(records)
            assert lengths.tolist() == [len(sentence) for sentence in sentences]
            assert tokens.tolist() == [token for sentence in sentences for token in sentence]
            sizes = split.tokens_per_record[records]
            assert sizes.max() <= corpus.MAX_RECORD
            assert (sizes[:-1] > corpus.MAX_RECORD - corpus.MAX_SENTENCE).all()
    rejected = {"binary": 1, "invalid UTF-8": 1, "empty": 1, "no tokens": 1}
    assert manifest["documents"] == {"in": 65, "stored": 61, "rejected": rejected}
    assert manifest["sentences_split"] == 3  # of 16,000 characters in two, each of those of more than 512 tokens
    assert 0.01 < manifest["unknown_token_share"] < 0.2
    assert manifest["fingerprint"] == found.fingerprint
    assert seen[-1] == (sum(path.stat().st_size for path in texts.iterdir()),) * 2 + (65,)
    assert found.tokenizer_sha256 == load_tokenizer(found.tokenizer_directory).sha256


def test_the_same_bytes_for_any_number_of_workers(tmp_path, texts, tokenizer, monkeypatch):
    monkeypatch.setattr(preparation, "UNIT_CHARACTERS", 10_000)
    for workers in (1, 2):
        prepare([str(texts)], tokenizer, tmp_path / str(workers), workers=workers)
    one, two = (contents(tmp_path / str(workers)) for workers in (1, 2))
    assert one == two
    assert {"manifest.json", "train.index.npy", "heldout.index.npy", "tokenizer/vocab.txt"} < set(one)


def test_the_size_of_units_moves_nothing(tmp_path, texts, tokenizer, monkeypatch):
    found = []
    for size in (1, 1 << 30):
        monkeypatch.setattr(preparation, "UNIT_CHARACTERS", size)
        found.append(prepare([str(texts)], tokenizer, tmp_path / str(size), workers=1))
    assert found[0] == found[1]


def test_units_of_documents(tmp_path, tokenizer):
    path = tmp_path / "a.txt"
    path.write_text("the cat sat. the dog sat.\non the mat.\n\nthe mat. on the cat.\n\n\nthe cats.\n")
    counts = {
        unit: prepare([str(path)], tokenizer, tmp_path / unit, unit, 1, heldout_share=0)["splits"]["train"]
        for unit in ("blank-line", "line")
    }
    assert {unit: (split["documents"], split["sentences"]) for unit, split in counts.items()} == {
        "blank-line": (3, 6),
        "line": (4, 6),
    }


def test_equal_documents_fall_on_one_side_and_the_share_holds():
    found = [is_heldout(str(number), 0.1) for number in range(20_000)]
    assert found == [is_heldout(str(number), 0.1) for number in range(20_000)]
    assert abs(sum(found) - 2000) < 5 * (20_000 * 0.1 * 0.9) ** 0.5
    assert not any(is_heldout(str(number), 0) for number in range(1000))


def test_stretches_hold_the_sentences_of_the_whole(monkeypatch):
    """Cut between paragraphs and, where one is overlong, inside; no sentence is lost or parted."""
    rng = random.Random(0)
    paragraphs = [text(rng, sentences) for sentences in (3, 200, 1, 40, 40)]
    whole = "\n\n".join(paragraphs) + "\n\n" + "word " * 500 + "end. After it."
    expected = [sentence.strip() for sentence in sentencex.segment("en", whole) if sentence.strip()]
    for size in (700, 3000, 1 << 20):
        monkeypatch.setattr(preparation, "CHARACTERS_AT_ONCE", size)
        found = list(preparation._sentences(whole, "en"))
        assert [sentence.strip() for sentence in found if sentence.strip()] == expected


def test_a_document_of_one_long_line(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text("the cat " * 625_000)
    (tmp_path / "b.txt").write_text("the dog.")
    (tmp_path / "c.txt").write_text("t" * 1_000_000)  # not even a space
    inputs = [str(tmp_path / name) for name in ("a.txt", "b.txt", "c.txt")]
    manifest = prepare(inputs, tokenizer, tmp_path / "c", workers=1, heldout_share=0)
    split = open_corpus(tmp_path / "c").split("train")
    pieces = len(list(cut_text("t" * 1_000_000)))
    assert split.num_tokens == 1_250_000 + 3 + pieces
    assert split.read(np.arange(split.num_records))[1].max() == corpus.MAX_SENTENCE
    assert manifest["sentences_split"] == 2 + len(list(cut_text("the cat " * 625_000)))


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a": b"\0", "b": b"\0\0", "c": b"\xff"}, "0 of 3 documents could be used: 2 binary, 1 invalid UTF-8"),
        ({"a": b""}, "0 of 1 documents could be used: 1 empty"),
        ({"a": b"the cat. the dog."}, "1 training document .* --documents blank-line"),
    ],
)
def test_corpora_that_nothing_can_learn_from(tmp_path, tokenizer, files, words):
    (tmp_path / "in").mkdir()
    for name, data in files.items():
        (tmp_path / "in" / name).write_bytes(data)
    with pytest.raises(UserError, match=words):
        prepare([str(tmp_path / "in")], tokenizer, tmp_path / "c", workers=1, heldout_share=0)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_bad_arguments(tmp_path, texts, tokenizer):
    cases = [
        ({"inputs": ["*.none"]}, "no file matches"),
        ({"tokenizer_directory": tmp_path}, "no such vocabulary"),
        ({"documents": "page"}, "'page' is none of"),
        ({"heldout_share": 1.0}, "heldout_share"),
        ({"output": texts}, "holds something else"),
    ]
    for change, words in cases:
        usual = {"inputs": [str(texts)], "tokenizer_directory": tokenizer, "output": tmp_path / "c", "workers": 1}
        with pytest.raises(UserError, match=words):
            prepare(**usual | change)
    assert list(tmp_path.iterdir()) == []


def test_warnings(tmp_path, tokenizer):
    (tmp_path / "a").write_text("the cat sat\n\nthe zebra sat\n")
    manifest = prepare([str(tmp_path / "a")], tokenizer, tmp_path / "c", "line", 1, heldout_share=0)
    for found, words in zip(manifest["warnings"], ["every document is one sentence", "held-out", "[UNK]"], strict=True):
        assert words in found


PROGRAM = """
import sys
from bert_jax.data import prepare
prepare.UNIT_CHARACTERS = 20_000
if __name__ == "__main__":
    prepare.prepare(sys.argv[1:2], *sys.argv[2:4], workers=int(sys.argv[4]), progress=lambda *a: print(a, flush=True))
"""


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_preparation_leaves_nothing_to_be_taken_for_whole(tmp_path, texts, tokenizer, workers, kill):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, tmp_path / "program.py", texts, tokenizer, tmp_path / "c", str(workers)]
    for units in (1, 7):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0) as process:
            for _ in range(units):
                assert process.stdout.readline()
            process.send_signal(kill)
            process.wait()
            process.stdout.read()  # ends when the workers have ended too
        for place in (tmp_path / "c", tmp_path / ".c.incomplete"):
            with pytest.raises(UserError):
                open_corpus(place)
        assert (tmp_path / ".c.incomplete").exists() == (kill == signal.SIGKILL)
    prepare([str(texts)], tokenizer, tmp_path / "c", workers=1)
    prepare([str(texts)], tokenizer, tmp_path / "d", workers=1)
    assert contents(tmp_path / "c") == contents(tmp_path / "d")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "d", "program.py"]


def test_a_killed_worker_is_said(tmp_path, texts, tokenizer, monkeypatch):
    monkeypatch.setattr(preparation, "UNIT_CHARACTERS", 5_000)

    def kill_the_workers(*_):
        for process in multiprocessing.active_children():
            process.kill()
        time.sleep(0.2)

    with pytest.raises(UserError, match="a worker process was killed"):
        prepare([str(texts)], tokenizer, tmp_path / "c", workers=2, progress=kill_the_workers)
    assert list(tmp_path.iterdir()) == []


def test_train_tokenizer_and_prepare_with_it(tmp_path, texts):
    line = train_tokenizer([str(texts)], 50, tmp_path / "tok")
    assert line.startswith("50 tokens, uncased")
    assert line.endswith("left out 1 binary, 1 empty, 1 invalid UTF-8")
    assert prepare([str(texts)], tmp_path / "tok", tmp_path / "c", workers=1)["tokenizer"]["vocab_size"] == 50
    with pytest.raises(UserError, match="holds something else already"):
        train_tokenizer([str(texts)], 50, tmp_path / "tok")
    with pytest.raises(UserError, match="--kind bpe: not known"):
        train_tokenizer([str(texts)], 50, tmp_path / "tok2", kind="bpe")
