"""`prepare` against a straightforward encoding: corpus, options, warnings and refusals."""

import hashlib
import multiprocessing
import os
import random
import re
import time
import unicodedata

import numpy as np
import pytest
import sentencex

from bert_jax.corpus import store as corpus
from bert_jax.corpus.build import chunks, encoding
from bert_jax.corpus.build.prepare import format_summary, prepare
from bert_jax.corpus.build.sentences import WINDOW
from bert_jax.corpus.build.signatures import choose_split, split_hash
from bert_jax.corpus.languages import check_language
from bert_jax.corpus.manifest import verify_corpus
from bert_jax.corpus.store import open_corpus
from bert_jax.errors import UserError
from bert_jax.readers import ReadOptions
from bert_jax.tokenizer import cut_text, load_tokenizer
from tests.helpers.preparation import TINY, TINY_PIECES, contents, make_texts, make_tokenizer, set_sizes


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    return make_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    return make_texts(tmp_path_factory.mktemp("texts"), 60, sentences=20)


def letters(text):
    """The text without white space, punctuation and case, one character at a time."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(one for one in folded if unicodedata.category(one)[0] not in "PZC")[:65_536]


def straightforward(paths, directory):
    """Return {split: [[sentence ids, ...] per document]}, one sentence and one token at a time."""
    tokenizer = load_tokenizer(directory)
    expected = {"train": [], "heldout": []}
    for path in paths:
        try:
            content = path.read_bytes().decode()
        except UnicodeDecodeError:
            continue
        sentences = []
        for sentence in sentencex.segment("en", content):
            for piece in cut_text(sentence, WINDOW):
                ids = tokenizer.plain.encode(piece, add_special_tokens=False).ids
                sentences += [
                    ids[start : start + corpus.MAX_SENTENCE] for start in range(0, len(ids), corpus.MAX_SENTENCE)
                ]
        if sentences and "\0" not in content:
            digest = hashlib.blake2b(letters(content).encode(), digest_size=8).digest()
            expected["heldout" if int.from_bytes(digest, "big") / 2**64 < 0.2 else "train"].append(sentences)
    return expected


def test_the_corpus_equals_a_straightforward_encoding(tmp_path, texts, tokenizer):
    seen = []
    manifest = prepare(
        [str(texts)],
        tokenizer,
        tmp_path / "c",
        workers=1,
        heldout_fraction=0.2,
        progress=lambda *a: seen.append(a),
        deduplicate="none",
    )
    found = open_corpus(tmp_path / "c")
    assert verify_corpus(found.directory) == []
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
    assert manifest["sentences_split"] == 1  # of 16,000 characters
    assert 0.01 < manifest["unknown_token_fraction"] < 0.2
    assert manifest["fingerprint"] == found.fingerprint
    assert seen[-1] == (sum(path.stat().st_size for path in texts.iterdir()),) * 2 + (65,)
    assert found.tokenizer_sha256 == load_tokenizer(found.tokenizer_directory).sha256
    assert "65 documents in = 61 stored + 4 rejected (1 binary, 1 empty, 1 invalid UTF-8, 1 no tokens)" in (
        format_summary(manifest, "c")
    )


def test_a_single_chunk_starts_no_process(tmp_path, texts, tokenizer, monkeypatch):
    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", None)
    inputs = [str(texts / "000.txt"), str(texts / "001.txt")]
    assert prepare(inputs, tokenizer, tmp_path / "one", workers=2, heldout_fraction=0)["documents"]["stored"] == 2
    set_sizes(monkeypatch, TINY)
    with pytest.raises(TypeError, match="NoneType"):
        prepare(inputs, tokenizer, tmp_path / "many", workers=2, heldout_fraction=0)


def test_the_same_bytes_for_any_number_of_workers(tmp_path, texts, tokenizer, monkeypatch):
    set_sizes(monkeypatch, {**TINY, **TINY_PIECES})
    manifests = [prepare([str(texts)], tokenizer, tmp_path / str(n), workers=n) for n in (1, 3)]
    one, three = (contents(tmp_path / str(n)) for n in (1, 3))
    assert one == three
    assert {"manifest.json", "train.index.npy", "heldout.index.npy", "tokenizer/vocab.txt"} < set(one)
    assert len(manifests[0]["splits"]["train"]["shards"]) > 20
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "3"]
    assert "PYTHONSAFEPATH" not in os.environ  # set for the workers alone


def test_the_size_of_chunks_changes_nothing(tmp_path, texts, tokenizer, monkeypatch):
    found = []
    for size in (1, 1 << 30):
        monkeypatch.setattr(chunks, "CHUNK_BYTES", size)
        found.append(prepare([str(texts)], tokenizer, tmp_path / str(size), workers=1))
    lost = [one.pop("unknown_character_fraction") for one in found]  # of a chunk with many, an estimate
    changed = [one.pop("changed_character_fractions")["case folded"] for one in found]  # likewise
    for one in found:
        assert one["counts"].pop("changed_characters")["case folded"] > 0
        one["counts"].pop("compared_characters")
        one.pop("seal")
    warnings = [one.pop("warnings") for one in found]
    assert found[0] == found[1]
    assert abs(changed[0] - changed[1]) < 0.2 * changed[0]
    assert abs(lost[0] - lost[1]) < 0.01 * lost[0]
    assert list(map(len, warnings)) == [2, 2]


def test_the_characters_that_unknown_tokens_stand_for_are_counted(tmp_path, tokenizer, monkeypatch):
    rng = random.Random(0)
    texts = [" ".join(rng.choices(("the", "cat", "unseen", "zebras"), (9, 9, 1, 1), k=30)) + "." for _ in range(300)]
    (tmp_path / "a.txt").write_text("\n".join(texts))
    whole = "".join(texts)
    lost = (6 * whole.count("unseen") + 6 * whole.count("zebras")) / len(whole)
    for read, error in ((500, 1e-6), (20, 0.05 * lost)):
        monkeypatch.setattr(encoding, "UNKNOWN_READ", read)
        settings = {"workers": 1, "heldout_fraction": 0.1}
        manifest = prepare(
            [str(tmp_path / "a.txt")], tokenizer, tmp_path / str(read), ReadOptions(documents="line"), **settings
        )
        assert abs(manifest["unknown_character_fraction"] - lost) < error
        (warning,) = [line for line in manifest["warnings"] if "lost" in line]
        assert warning.startswith(f"{manifest['unknown_character_fraction']:.2%} of the characters are lost: ")
        assert f"{manifest['unknown_character_fraction']:.2%} of the characters lost" in format_summary(manifest, "c")


def test_the_sizes_of_partitions_and_blocks_change_only_the_shards(tmp_path, texts, tokenizer, monkeypatch):
    prepare([str(texts)], tokenizer, tmp_path / "a", workers=1)
    set_sizes(monkeypatch, TINY)
    prepare([str(texts)], tokenizer, tmp_path / "b", workers=1)
    for split in corpus.SPLITS:
        a, b = (open_corpus(tmp_path / name).split(split) for name in "ab")
        assert np.array_equal(a.first_record, b.first_record)
        for one, two in zip(a.read(np.arange(a.num_records)), b.read(np.arange(b.num_records)), strict=True):
            assert np.array_equal(one, two)


def test_partitions_are_consecutive_whole_files(monkeypatch):
    monkeypatch.setattr(chunks, "PARTITION_BYTES", 10)
    parts = chunks.plan_partitions("abcdefg", [4, 6, 1, 30, 2, 0, 8])
    assert [part.files for part in parts] == [("a", "b"), ("c",), ("d",), ("e", "f", "g")]
    assert [part.bytes_before for part in parts] == [0, 10, 11, 41]
    assert [part.index for part in parts] == [0, 1, 2, 3]


def test_the_documents_option(tmp_path, tokenizer):
    path = tmp_path / "a.txt"
    path.write_text("the cat sat. the dog sat.\non the mat.\n\nthe mat. on the cat.\n\n\nthe cats.\n")
    counts = {
        unit: prepare(
            [str(path)], tokenizer, tmp_path / unit, ReadOptions(documents=unit), workers=1, heldout_fraction=0
        )["splits"]["train"]
        for unit in ("blank-line", "line")
    }
    assert {unit: (split["documents"], split["sentences"]) for unit, split in counts.items()} == {
        "blank-line": (3, 6),
        "line": (4, 6),
    }


def test_equal_documents_are_in_one_split_and_the_fraction_holds():
    found = [choose_split(split_hash(str(number)), 0.1) for number in range(20_000)]
    assert found == [choose_split(split_hash(str(number)), 0.1) for number in range(20_000)]
    assert abs(found.count("heldout") - 2000) < 5 * (20_000 * 0.1 * 0.9) ** 0.5
    assert {choose_split(split_hash(str(number)), 0) for number in range(1000)} == {"train"}


def test_documents_of_one_long_line(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text("the cat " * 625_000)
    (tmp_path / "b.txt").write_text("the dog.")
    (tmp_path / "c.txt").write_text("t" * 1_000_000)  # not even a space
    inputs = [str(tmp_path / name) for name in ("a.txt", "b.txt", "c.txt")]
    manifest = prepare(inputs, tokenizer, tmp_path / "c", workers=1, heldout_fraction=0)
    split = open_corpus(tmp_path / "c").split("train")
    assert split.num_documents == 3
    assert split.num_tokens == 1_250_000 + 3 + -(-1_000_000 // WINDOW)
    assert split.read(np.arange(split.num_records))[1].max() == corpus.MAX_SENTENCE
    assert manifest["documents"]["in"] == 3


@pytest.mark.parametrize(
    ("files", "share", "words"),
    [
        ({"a": b"\0", "b": b"\0\0", "c": b"\xff"}, 0, "0 of 3 documents could be used: 2 binary, 1 invalid UTF-8"),
        ({"a": b""}, 0, "0 of 1 documents could be used: 1 empty"),
        (
            {"a": b"the cat. the dog."},
            0.999,
            "0 training documents .1 held out, none rejected.; lower --heldout_fraction",
        ),
    ],
)
def test_inputs_without_a_training_document(tmp_path, tokenizer, files, share, words):
    (tmp_path / "in").mkdir()
    for name, data in files.items():
        (tmp_path / "in" / name).write_bytes(data)
    with pytest.raises(UserError, match=words):
        prepare([str(tmp_path / "in")], tokenizer, tmp_path / "c", workers=1, heldout_fraction=share)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_bad_arguments(tmp_path, texts, tokenizer):
    cases = [
        ({"inputs": ["*.none"]}, "no file matches"),
        ({"tokenizer_directory": tmp_path}, "no such vocabulary"),
        ({"read_options": ReadOptions(documents="page")}, "'page' is none of"),
        ({"heldout_fraction": 1.0}, "heldout_fraction"),
        ({"workers": 0}, "--workers 0"),
        ({"output": texts}, "--output is also --input"),
    ]
    for change, words in cases:
        usual = {"inputs": [str(texts)], "tokenizer_directory": tokenizer, "output": tmp_path / "c", "workers": 1}
        with pytest.raises(UserError, match=words):
            prepare(**usual | change)
    assert list(tmp_path.iterdir()) == []


def test_warnings(tmp_path, tokenizer):
    (tmp_path / "a").write_text("the zebra sat")
    manifest = prepare([str(tmp_path / "a")], tokenizer, tmp_path / "c", workers=1, heldout_fraction=0)
    expected = ["one training document", "every document is one sentence", "[UNK]"]
    for found, words in zip(manifest["warnings"], expected, strict=True):
        assert words in found
    assert open_corpus(tmp_path / "c").split("train").num_documents == 1


def test_too_few_documents_to_hold_any_out_are_reported_with_the_fix(tmp_path, tokenizer):
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("the cat sat. the dog sat.")

    def warned(name, inputs, fraction):
        inputs = [str(tmp_path / one) for one in inputs]
        manifest = prepare(inputs, tokenizer, tmp_path / name, workers=1, heldout_fraction=fraction)
        return [line for line in manifest["warnings"] if "`evaluate`" in line]

    (line,) = warned("a", ["0.txt", "1.txt"], 1e-9)
    assert line.startswith("no document of 2 is held out, so `evaluate` has nothing to read: give at least 4 documents")
    assert not warned("b", ["0.txt", "1.txt"], 0)
    assert not warned("c", ["0.txt"], 1e-9)


@pytest.mark.parametrize(("heldout", "problem"), [(0, "no document of 20"), (1, "one document of 20")])
def test_the_suggested_heldout_fraction_holds_out_two_documents(tmp_path, tokenizer, heldout, problem):
    texts = ["the cat sat. " * (n + 2) + "\n" for n in range(20)]
    (tmp_path / "a.txt").write_text("".join(texts))
    digests = (hashlib.blake2b(letters(text).encode(), digest_size=8).digest() for text in texts)
    first, second = sorted(int.from_bytes(digest, "big") / 2**64 for digest in digests)[:2]
    fraction = (first / 2, (first + second) / 2)[heldout]
    settings = {"read_options": ReadOptions(documents="line"), "workers": 1, "deduplicate": "none"}
    inputs = [str(tmp_path / "a.txt")]
    manifest = prepare(inputs, tokenizer, tmp_path / "few", **settings, heldout_fraction=fraction)
    line = manifest["warnings"][0]
    assert line.startswith(problem)
    suggested = float(re.search(r"--heldout_fraction (\S+),", line)[1])
    manifest = prepare(inputs, tokenizer, tmp_path / "two", **settings, heldout_fraction=suggested)
    assert all(line.startswith("an evaluation has about") for line in manifest["warnings"])
    assert manifest["splits"]["heldout"]["documents"] == 2


def test_a_single_heldout_document_is_reported(tmp_path, tokenizer):
    warned = {}
    for number in range(30):
        (tmp_path / f"{number}.txt").write_text("the cat sat. " * (number + 2))
        manifest = prepare(
            [str(tmp_path / "*.txt")],
            tokenizer,
            tmp_path / f"c{number}",
            workers=1,
            heldout_fraction=0.2,
            deduplicate="none",
        )
        held = manifest["splits"]["heldout"]["documents"]
        warned[held] = any("is held out, and `evaluate` needs 2" in line for line in manifest["warnings"])
    assert warned.pop(1)
    assert len(warned) > 3
    assert not any(warned.values())


def test_languages_without_rules_are_named(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text("the cat sat\nthe dog sat")
    manifest = prepare(
        [str(tmp_path / "a.txt")], tokenizer, tmp_path / "c", workers=1, heldout_fraction=0, language="th"
    )
    assert any("no rules for it, so they end at line ends; for sentence pairs" in line for line in manifest["warnings"])
    assert ", sentences of th end at line ends, 0 overlong" in format_summary(manifest, "c")
    assert manifest["splits"]["train"]["sentences"] == 2


@pytest.mark.parametrize(("language", "warned"), [("deu", True), ("de", False), ("zh-hans", False), ("none", False)])
def test_language_codes_of_three_letters_give_a_warning(tmp_path, tokenizer, language, warned):
    (tmp_path / "a.txt").write_text("the cat sat. the dog sat.\nthe mat.")
    manifest = prepare(
        [str(tmp_path / "a.txt")], tokenizer, tmp_path / "c", workers=1, heldout_fraction=0, language=language
    )
    assert any("two letters only (de, not deu)" in line for line in manifest["warnings"]) == warned
    rule = "each line a sentence" if language == "none" else f"sentences by the rules of {language}"
    rule += ", or of English where there are none" * warned
    assert f" tokens unknown, 0.00% of the characters lost, {rule}, 0 overlong sentences cut" in format_summary(
        manifest, "c"
    )


def test_the_message_lists_the_fields_of_records_without_the_requested_field(tmp_path, tokenizer):
    for name, field in (("b.jsonl", "review"), ("a.jsonl", "body"), ("c.jsonl", "text")):
        (tmp_path / name).write_text(f'{{"id": 1, "{field}": "the cat sat. the dog sat."}}\n' * 5)
    hint = "a record without 'text' has 'id', 'body'; give the field of the text with --field"
    with pytest.raises(UserError, match=f"0 of 10 documents could be used: 10 no field; {hint}"):
        prepare([str(tmp_path / name) for name in ("b.jsonl", "a.jsonl")], tokenizer, tmp_path / "c", workers=1)
    inputs = [str(tmp_path / name) for name in ("b.jsonl", "a.jsonl", "c.jsonl")]
    with pytest.raises(UserError, match=r"10 of 15 documents were rejected: 10 no field; a record .* allow it with"):
        prepare(inputs, tokenizer, tmp_path / "c", workers=1)
    manifest = prepare(inputs, tokenizer, tmp_path / "c", workers=1, max_rejected_fraction=0.67)
    assert f"10 of 15 documents were rejected (no field): {hint}" in manifest["warnings"]
    assert manifest["documents"] == {"in": 15, "stored": 5, "rejected": {"no field": 10}}


def test_the_summary_of_a_single_document(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text("the " * 1100)
    manifest = prepare([str(tmp_path / "a.txt")], tokenizer, tmp_path / "c", workers=1, heldout_fraction=0)
    first, held, last, _ = format_summary(manifest, "c").splitlines()
    assert first == "c: 1 document in = 1 stored + 0 rejected"
    assert held == (
        "train 1 document / 3 sentences / 1,100 tokens, heldout 0 documents / 0 sentences / 0 tokens; "
        "an evaluation has about 0 predictions"
    )
    assert last.endswith("1 overlong sentence cut in pieces")


def test_a_killed_worker_is_reported(tmp_path, texts, tokenizer, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 5_000)

    def kill_the_workers(*_):
        for process in multiprocessing.active_children():
            process.kill()
        time.sleep(0.2)

    with pytest.raises(UserError, match=r"a worker process ended.*__main__"):
        prepare([str(texts)], tokenizer, tmp_path / "c", workers=2, progress=kill_the_workers)
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_cannot_be_written(tmp_path, texts, tokenizer):
    (tmp_path / "file").write_text("")
    says = f"{tmp_path / 'file' / 'c'}: cannot be written (a part of its path is a file); nothing was kept;"
    with pytest.raises(UserError, match=re.escape(says)):
        prepare([str(texts)], tokenizer, tmp_path / "file" / "c", workers=1)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("language", ["german", "De", "", "e", "xx", "jp"])
def test_an_invalid_language_code_is_refused(tmp_path, language):
    with pytest.raises(UserError, match="give a code such as de"):
        prepare(["x"], tmp_path, tmp_path / "c", language=language)


def test_the_languages_of_an_identifier_are_accepted():
    identifier = pytest.importorskip("py3langid.langid")
    known = set(identifier.LanguageIdentifier.from_model_file(identifier.MODEL_FILE).labels)
    assert len(known) > 90
    for code in [*known, "yue", "zh-min-nan", "none"]:
        check_language(code)
