"""Vocabularies of every kind, trained on Korean, Japanese, Chinese, German and made-up text."""

import contextlib
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile

import pytest

from bert_jax.errors import UserError
from bert_jax.tokenizer import (
    SPECIAL_TOKENS,
    TOKENIZERS,
    Normalizer,
    load_tokenizer,
    save_tokenizer,
    train,
    wordpiece_tokenizer,
)
from bert_jax.tokenizer import sentencepiece as sentencepiece_kind
from bert_jax.tokenizer.train import train_from_texts
from bert_jax.tokenizer.training_report import TokenCounts, count_tokens

SENTENCEPIECE = ("unigram", "sentencepiece_bpe")
TEXT = "the cat sat on the mat and the dogs chatted on the shattered mattress , catching the doggedest . " * 50
SIZES = {"ko": 2200, "ja": 1800, "zh": 1220, "de": 1900}


@pytest.fixture(scope="module")
def languages(samples):
    """Sentences of each language, the even ones to train on and the odd ones for tests."""
    found = {}
    for name, treebank in (("ko", "ko_gsd"), ("ja", "ja_gsd"), ("de", "de_gsd")):
        with gzip.open(samples / "ud" / f"{treebank}-ud-dev.conllu.gz", "rt", encoding="utf-8") as lines:
            found[name] = [line[9:].rstrip("\n") for line in lines if line.startswith("# text = ")]
    with tarfile.open(samples / "tatoeba" / "tatoeba-v1.tar.gz") as archive:
        member = next(name for name in archive.getnames() if name.endswith("tatoeba.cmn-eng.cmn"))
        found["zh"] = archive.extractfile(member).read().decode().splitlines()
    return found


@pytest.fixture(scope="module")
def trained(languages):
    """Tokenizers that were trained, each once."""
    made = {}

    def get(kind, language, lowercase=False):
        if kind in SENTENCEPIECE:
            pytest.importorskip("sentencepiece")
        key = (kind, language, lowercase)
        if key not in made:
            made[key] = train_from_texts(
                lambda: ["\n".join(languages[language][::2])], SIZES[language], kind, lowercase
            )
        return made[key]

    return get


def tokens(tokenizer, text):
    return [tokenizer.tokens[number] for number in tokenizer.encode_sentences([text])[0]]


@pytest.mark.parametrize("language", SIZES)
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_every_kind_in_every_language(tmp_path, monkeypatch, languages, trained, kind, language):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    transformers = pytest.importorskip("transformers")
    tokenizer, files = trained(kind, language)
    assert tokenizer.kind.name == kind
    assert tokenizer.vocab_size == len(set(tokenizer.tokens)) == SIZES[language]
    save_tokenizer(tokenizer, tmp_path / "saved", files)
    assert load_tokenizer(tmp_path / "saved").sha256 == tokenizer.sha256
    seen, new = (count_tokens(tokenizer, [text]) for text in languages[language][::2]), languages[language][1::2]
    unknown = sum(fit.unknown for fit in seen) / sum(count_tokens(tokenizer, languages[language][::2]))
    assert unknown < (0.0005 if kind != "wordpiece" else 0.002)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert theirs(new)["input_ids"] == [tokenizer.encode(text) for text in new]
    assert [theirs.decode(ids) for ids in theirs(new)["input_ids"]] == [
        tokenizer.decode(tokenizer.encode(text)) for text in new
    ]
    assert theirs(f"a {tokenizer.special.mask} b")["input_ids"].count(tokenizer.mask_id) == 1


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", SENTENCEPIECE)
def test_spiece_model_opens_in_the_library_with_the_same_ids(tmp_path, languages, trained, kind, lowercase):
    sentencepiece = pytest.importorskip("sentencepiece")
    texts = [text for found in languages.values() for text in found]
    for language in languages:
        tokenizer, files = trained(kind, language, lowercase)
        save_tokenizer(tokenizer, tmp_path / language, files)
        place = tmp_path / language / "spiece.model"
        theirs = sentencepiece.SentencePieceProcessor(model_file=str(place))
        found = zip(tokenizer.encode_sentences(texts), theirs.encode(texts), strict=True)
        differ = [(mine, other) for mine, other in found if mine != other]
        # Two orders of the same pieces are equally likely: '...' and '.', '.' and '...'.
        assert all(sorted(mine) == sorted(other) for mine, other in differ)
        assert len(differ) <= 3 * (kind == "unigram")
        alone = load_tokenizer(place)
        assert (alone.sha256, alone.lowercase, alone.kind.name) == (tokenizer.sha256, lowercase, kind)
        with pytest.raises(UserError, match=f"do_lower_case is {not lowercase}, but the model's own normalization"):
            load_tokenizer(place, lowercase=not lowercase)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_case_is_kept_or_folded(trained, kind):
    text = "Die Straße ist in Berlin"
    cased, uncased = trained(kind, "de", False)[0], trained(kind, "de", True)[0]
    assert (cased.lowercase, uncased.lowercase) == (False, True)
    assert text in cased.decode(cased.encode(text))
    assert uncased.encode(text) == uncased.encode(text.upper().replace("STRASSE", "STRAẞE"))
    assert not any(
        letter.isupper() for token in uncased.tokens if token not in uncased.special for letter in token
    ) or (
        kind == "byte_level"  # whose letters stand for bytes
    )


@pytest.mark.parametrize("kind", SENTENCEPIECE)
@pytest.mark.parametrize("normalization", ["nmt_nfkc", "nfkc", "identity"])
def test_the_turkish_capital_i_is_known(kind, normalization):
    """A dotted I is lowercased to two characters, which the tables of the library do not do."""
    pytest.importorskip("sentencepiece")
    text = "\u0130zmir \u0130stanbul ve \u0130znik \u0130pek yolu " * 50
    tokenizer, _ = train_from_texts(lambda: [text], 28, kind, True, normalization)
    ids = tokenizer.encode_sentences([text])[0]
    assert tokenizer.unk_id not in ids
    assert not any("\u0130" in token for token in tokenizer.tokens)


def test_wordpiece_separates_chinese_characters_and_sentencepiece_joins_characters(languages, trained):
    wordpiece = trained("wordpiece", "zh")[0]
    ids = wordpiece.encode_sentences(["我们都是学生。"])[0]
    assert [wordpiece.tokens[number] for number in ids] == list("我们都是学生。")
    assert not wordpiece.continues[ids].any()
    for kind in SENTENCEPIECE:
        unigram = trained(kind, "ja")[0]
        found = tokens(unigram, "これはそれからのことである")
        assert 1 < len(found) < len("これはそれからのことである")
        assert unigram.continues[unigram.encode_sentences(["これはそれから"])[0]].tolist()[1:].count(False) == 0


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_words_begin_where_a_token_does_not_continue(languages, trained, kind):
    tokenizer = trained(kind, "ko")[0]
    for text in languages["ko"]:
        words = re.sub(r"[^가-힣 ]", "", text).split()
        (ids,) = tokenizer.encode_sentences([tokenizer.kind.word_prefix + " ".join(words)])
        if tokenizer.unk_id not in ids:
            assert (~tokenizer.continues[ids]).sum() == len(words)


def test_bpe_merges_in_order(languages, trained):
    """Against merging by hand, pair by pair."""
    tokenizer = trained("bpe", "de")[0]
    merges = [tuple(pair) for pair in tokenizer.definition["model"]["merges"]]
    words = {word for text in languages["de"][1::2] for word in re.findall(r"[a-zA-ZäöüßÄÖÜ]+", text)}
    for word in sorted(words):
        parts = [word[0], *("##" + letter for letter in word[1:])]
        if not set(parts) <= set(tokenizer.tokens):
            continue
        for first, second in merges:
            place = 0
            while place < len(parts) - 1:
                if (parts[place], parts[place + 1]) == (first, second):
                    parts[place : place + 2] = [first + second.removeprefix("##")]
                place += 1
        assert tokens(tokenizer, word) == parts


def test_special_tokens_come_first_and_words_are_found():
    tokenizer, files = train_from_texts(lambda: [TEXT], 40)
    assert tokenizer.tokens[:5] == SPECIAL_TOKENS
    assert tokenizer.vocab_size == len(set(tokenizer.tokens)) == 40
    assert tokenizer.decode(tokenizer.encode("The cat")) == "[CLS] the cat [SEP]"
    assert {"the", "##at"} <= set(tokenizer.tokens)
    assert not files


def test_byte_level_numbers_its_special_tokens_as_roberta_does():
    tokenizer, _ = train_from_texts(lambda: [TEXT], 300, "byte_level", lowercase=False)
    assert tokenizer.tokens[:5] == ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    assert tokenizer.unk_id not in tokenizer.encode("unseen 漢字 \x01")
    assert "Ġthe" in tokenizer.tokens


PROGRAM = """
import sys
from bert_jax.tokenizer import TOKENIZERS
from bert_jax.tokenizer.train import train_tokenizer
output, *files = sys.argv[1:]
for kind in TOKENIZERS:
    train_tokenizer([files], 2600, f"{output}/{kind}", kind=kind, sample_characters=40_000)
"""


def test_the_same_text_gives_the_same_bytes_in_any_process(tmp_path, languages):
    """Hash seeds, thread counts and orders of files differ; ties between pieces are many in so small a text."""
    pytest.importorskip("sentencepiece")
    files = []
    for number in range(6):
        files.append(tmp_path / f"{number}.txt")
        files[-1].write_text("\n".join(languages["ko"][number::6]), encoding="utf-8")
    running = []
    for run, order in enumerate((files, files[::-1], files[3:] + files[:3])):
        place = tmp_path / str(run)
        place.mkdir()
        threads = {name: str(1 + run) for name in ("RAYON_NUM_THREADS", "OMP_NUM_THREADS")}
        environment = os.environ | threads | {"PYTHONHASHSEED": str(run)}
        command = [sys.executable, "-c", PROGRAM, str(place), *map(str, order)]
        running.append((place, subprocess.Popen(command, env=environment)))
    found = []
    for place, process in running:
        assert process.wait() == 0
        paths = sorted(path for path in place.rglob("*") if path.is_file())
        found.append({str(path.relative_to(place)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths})
    assert len(found[0]) == 3 * 5 + 1 + 2  # vocab.txt of WordPiece, spiece.model of two
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_ties_do_not_depend_on_the_process(kind):
    """As above, with nothing but ties."""
    if kind in SENTENCEPIECE:
        pytest.importorskip("sentencepiece")
    program = (
        "import itertools, sys; from bert_jax.tokenizer.train import train_from_texts\n"
        "words = [''.join(w) for w in itertools.product('abcdefgh', repeat=4)]\n"
        "words += [chr(0x1000 + n) for n in range(300)]\n"
        "size = 480 if sys.argv[1] == 'unigram' else 1000\n"
        "print(train_from_texts(lambda: [' '.join(words * 2)], size, sys.argv[1])[0].sha256)\n"
    )
    command = [sys.executable, "-c", program, kind]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    found = {process.communicate()[0] for process in running}
    assert len(found) == 1
    assert len(found.pop()) == 65


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize(
    ("texts", "size", "words"),
    [
        ([TEXT], 50_000, r"fills a vocabulary of [\d,]+ tokens, not of 50,000"),
        ([TEXT], 10, r"too small: special tokens and characters alone are \d+"),
        ([], 100, "empty"),
        ([" \n "], 100, "empty"),
    ],
)
def test_sizes_that_a_text_cannot_fill(kind, texts, size, words):
    if kind in SENTENCEPIECE:
        pytest.importorskip("sentencepiece")
    with pytest.raises(UserError, match=words):
        train_from_texts(lambda: texts, size, kind)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_the_suggested_sizes_work(languages, kind):
    if kind in SENTENCEPIECE:
        pytest.importorskip("sentencepiece")
    for texts in ([TEXT], languages["ja"]):
        for asked in (50_000, 5):
            with pytest.raises(UserError) as caught:
                train_from_texts(lambda texts=texts: texts, asked, kind)
            suggested = int(str(caught.value).rsplit(" ", 1)[1].replace(",", ""))
            assert train_from_texts(lambda texts=texts: texts, suggested, kind)[0].vocab_size == suggested


@pytest.mark.parametrize("kind", SENTENCEPIECE)
def test_the_library_sentencepiece_drops_no_line(monkeypatch, capfd, kind):
    sentencepiece = pytest.importorskip("sentencepiece")
    theirs, given = sentencepiece.SentencePieceTrainer.train, []

    def loud(sentence_iterator, **settings):
        given.extend(sentence_iterator)
        theirs(sentence_iterator=iter(given), **(settings | {"minloglevel": 0}))

    monkeypatch.setattr(sentencepiece.SentencePieceTrainer, "train", loud)
    texts = [
        TEXT * 3,
        "𠮷野家" * 9000,
        "bars ▁▂▃▄▅▆▇ \u2047 \t tabs\r\nand\x85ends\u2028of\x0blines ",
        "\ufeffmark",
        "ab " * 9000,
    ]
    train_from_texts(lambda: texts, 60, kind)
    log = capfd.readouterr().err
    assert f"Loaded all {len(given)} sentences" in log
    assert "kipped" not in log
    assert max(len(line.encode()) for line in given) <= 4192
    kept, wanted = (sorted("".join("".join(part).split())) for part in (given, texts))
    assert kept == [character for character in wanted if character != "▅"]
    # The log if lines were not cut.
    given.clear()
    monkeypatch.setattr(sentencepiece_kind, "MAX_LINE", 8192)
    with contextlib.suppress(UserError):
        train_from_texts(lambda: texts, 60, kind)
    assert "kipped" in capfd.readouterr().err


@pytest.mark.parametrize(("kind", "more"), [("wordpiece", 5), ("unigram", 5 + 1)])  # special tokens, the mark of spaces
def test_every_frequent_character_is_known(kind, more):
    """The thousand most frequent, and as many more as make up 99.95 % of a text, in Japanese as in English."""
    if kind in SENTENCEPIECE:
        pytest.importorskip("sentencepiece")
    for characters, wanted in ((900, 900), (3000, None)):
        counts = [30_000 // (n + 1) + 1 for n in range(characters)]
        text = "".join(chr(0x4E00 + n) * count for n, count in enumerate(counts))
        wanted = wanted or next(n for n in range(characters) if sum(counts[:n]) >= 0.9995 * sum(counts))
        assert wanted in (900, *range(1500, 3000))
        with pytest.raises(UserError, match="too small") as caught:
            train_from_texts(lambda text=text: [text], 100, kind)
        least = int(re.findall(r"[\d,]+$", str(caught.value))[0].replace(",", ""))
        assert least == wanted + more


def test_a_kind_without_its_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(
        UserError,
        match="a SentencePiece vocabulary or table needs sentencepiece protobuf: pip install sentencepiece protobuf",
    ):
        train_from_texts(lambda: [TEXT], 60, "unigram")


def test_token_counts():
    tokenizer = wordpiece_tokenizer([*SPECIAL_TOKENS, "the", "cat", "sat", "o", "##n"], Normalizer())
    counts = count_tokens(tokenizer, ["the cat\nsat ☃", " \n", "on"])
    assert counts == TokenCounts(words=5, characters=14, tokens=6, unknown=1)
    assert str(counts) == "1.20 tokens per word, 2.33 characters per token, 16.67% unknown"


def test_the_saved_file_equals_the_definition(tmp_path, trained):
    tokenizer, files = trained("unigram", "de")
    save_tokenizer(tokenizer, tmp_path / "saved", files)
    names = sorted(path.name for path in (tmp_path / "saved").iterdir())
    assert names == ["SHA256SUMS", "spiece.model", "tokenizer.json", "tokenizer_config.json"]
    assert json.loads((tmp_path / "saved" / "tokenizer.json").read_text(encoding="utf-8")) == tokenizer.definition
    assert set(TOKENIZERS) == {"wordpiece", "bpe", "byte_level", "unigram", "sentencepiece_bpe"}


@pytest.mark.parametrize("kind", SENTENCEPIECE)
def test_more_text_than_memory_holds_is_refused(monkeypatch, tmp_path, kind):
    (tmp_path / "a.txt").write_text(TEXT)
    monkeypatch.setattr(train, "MAX_IN_MEMORY", 1000)
    with pytest.raises(UserError, match=r"holds the text .* in memory, .* --sample_characters 1000 or less"):
        train.train_tokenizer([[str(tmp_path / "a.txt")]], 60, tmp_path / "tok", kind=kind)
    assert not (tmp_path / "tok").exists()
