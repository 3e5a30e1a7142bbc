"""Words of scripts without spaces: from a segmenter through the records to whole-word masking."""

import itertools
import json
import os
import random
import re

import numpy as np
import pytest

from bert_jax.batches.masking import MASKINGS, MAX_WORD_TOKENS, Vocabulary
from bert_jax.batches.pipeline import Symbols, make_sequences
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.cli.main import main
from bert_jax.config import DataConfig
from bert_jax.corpus.build.encoding import encode_texts
from bert_jax.corpus.build.prepare import format_summary, prepare
from bert_jax.corpus.build.segmenters import SEGMENTERS, Segmenter, find_sentences, find_words, word_starts
from bert_jax.corpus.build.sentences import split_sentences
from bert_jax.corpus.manifest import WORDS_VERSION, read_manifest
from bert_jax.corpus.statistics import token_figures
from bert_jax.corpus.store import Split, open_corpus
from bert_jax.errors import UserError
from bert_jax.tokenizer import SPECIAL_TOKENS, Normalizer, load_tokenizer, save_tokenizer, wordpiece_tokenizer
from bert_jax.tokenizer.train import train_from_texts
from tests.helpers.preparation import TINY, contents, set_sizes
from tests.helpers.stored_corpus import store

# The Universal Declaration of Human Rights, article 1.
CHINESE = "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。"  # noqa: RUF001
# One text per package, and words of it that a dictionary has.
SAMPLES = {
    "jieba": (CHINESE, ["尊严", "权利", "理性", "良心", "精神"]),
    "fugashi": (
        "すべての人間は、生れながらにして自由であり、尊厳と権利とについて平等である。",
        ["人間", "自由", "尊厳", "平等"],
    ),
    "pythainlp": ("มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ", ["มนุษย์", "และ", "สิทธิ"]),
    "khmercut": ("មនុស្សទាំងអស់កើតមកមានសេរីភាពនិងសមភាព", ["មនុស្ស", "សេរីភាព", "និង", "សមភាព"]),
    "laonlp": ("ມະນຸດທຸກຄົນເກີດມາມີກຽດສັກສີ", ["ມະນຸດ", "ຄົນ", "ກຽດ"]),
    "icu": (
        "လူတိုင်းသည်တူညီလွတ်လပ်သောဂုဏ်သိက္ခာဖြင့်လည်းကောင်း၊တူညီလွတ်လပ်သောအခွင့်အရေးများဖြင့်လည်းကောင်း၊",
        ["လူ", "တူညီ", "လွတ်လပ်", "ဂုဏ်သိက္ခာ", "အခွင့်အရေး"],
    ),
}
MODULES = {"unidic-lite": "unidic_lite", "python-crfsuite": "pycrfsuite", "pyicu-wheels": "icu"}
# A consonant or letter that no virama stacks below another, and that has no virama or asat itself.
BURMESE_SYLLABLE = re.compile("(?<!\u1039)[\u1000-\u102a\u103f\u104a-\u104f](?!\u1037?[\u1039\u103a])")
FIRST_ID, VOCAB = 5, 300


def two_by_two(text):
    """Words of two characters; some white space is left out, as by packages."""
    return [text[at : at + 2].replace(" ", "") for at in range(0, len(text), 2)]


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # no test cuts the power


@pytest.fixture
def _two_by_two(monkeypatch):
    row = Segmenter("zh", ("numpy",), lambda: two_by_two, lambda: lambda line: line.replace("。", "。|").split("|"))
    monkeypatch.setitem(SEGMENTERS, "two", row)
    yield
    find_words.cache_clear()
    find_sentences.cache_clear()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Every Chinese character is a token and, for the vocabulary, a word."""
    directory = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(wordpiece_tokenizer([*SPECIAL_TOKENS, *sorted(set(CHINESE)), "ab", "##c"], Normalizer()), directory)
    return directory


def write_texts(directory, number, seed=0):
    directory.mkdir()
    rng = random.Random(seed)
    for name in range(number):
        parts = [CHINESE[at : at + rng.randint(5, 40)] for at in rng.choices(range(30), k=rng.randint(1, 8))]
        (directory / f"{name:03}.txt").write_text("。".join(parts) + "。\n" + "abc ")
    return [str(directory)]


def literal_starts(text, words, offsets):
    """The rule of `word_starts`, character by character; the words and the white space between them are the text."""
    owner, at = [], 0
    for number, word in enumerate(words):
        while text[at : at + len(word)] != word:
            owner.append(None)
            at += 1
        owner += [number] * len(word)
        at += len(word)
    found = []
    for first, _ in offsets:
        rest = [number for number, letter in zip(owner[first:], text[first:], strict=False) if not letter.isspace()]
        found.append(rest[0] if rest else len(words) - 1)
    return [number != before for before, number in zip([None, *found], found, strict=False)]


def test_tokens_belong_to_the_word_in_which_they_begin():
    rng = random.Random(0)
    across = 0
    for _ in range(500):
        text = "".join(rng.choices("的是不我 \u3000", weights=[5, 5, 5, 5, 2, 1], k=rng.randint(0, 20))) + "们"
        cuts = sorted(rng.choices(range(len(text) + 1), k=4))
        words = [text[a:b].strip() for a, b in itertools.pairwise([0, *cuts, len(text)])]
        words = [word for word in words if word]
        ends = sorted(set(rng.choices(range(1, len(text) + 1), k=6)))
        offsets = list(itertools.pairwise([0, *ends]))
        if rng.random() < 0.3:
            offsets.insert(0, (0, 0))  # a mark of the vocabulary that stands for no character
        across += sum(a < cut < b for cut in cuts for a, b in offsets)
        assert word_starts(text, words, offsets) == literal_starts(text, words, offsets)
    assert across > 500


def test_words_of_scripts_with_spaces_stay_whole():
    letters = list("的Größe是я не")
    assert word_starts("的Größe是я не", letters, [(0, 1), (1, 3), (3, 6), (6, 7), (7, 8), (8, 11)]) == [
        *(True, True, False),
        *(True, True, True),
    ]


def test_a_word_that_a_package_has_changed_begins_nowhere():
    assert word_starts("一二三四五", ["一", "貳", "三四", "五"], [(n, n + 1) for n in range(5)]) == [
        *(True, False, True),
        *(False, True),
    ]


def test_a_corpus_has_the_words_of_its_segmenter(tmp_path, tokenizer):
    rjieba = pytest.importorskip("rjieba", reason="words of Chinese need rjieba, of the extra `words`")
    texts = write_texts(tmp_path / "texts", 12)
    manifest = prepare(
        texts, tokenizer, tmp_path / "c", workers=1, language="zh", segmenter="jieba", heldout_fraction=0
    )
    assert manifest["format_version"] == WORDS_VERSION
    assert manifest["settings"]["segmenter"] == "jieba"
    assert list(manifest["settings"]["segmenter_versions"]) == ["rjieba"]
    assert "sentences by the rules of zh, words by jieba" in format_summary(manifest, "c")
    train, plain = open_corpus(tmp_path / "c").split("train"), load_tokenizer(tokenizer)
    found, expected, num_tokens = [], [], train.num_tokens
    for record, path in enumerate(sorted((tmp_path / "texts").iterdir())):
        found.append(train.read_words(np.array([record]), plain.continues)[3].tolist())
        text = path.read_text().removesuffix("\nabc ")
        own = [first for word in rjieba.cut(text) for first in [True] + [False] * (len(word) - 1)]
        expected.append([*own, True, False])  # ab ##c
    assert found == expected
    together = [len(list(group)) for flags in found for group in _words(flags)]
    figures = token_figures(train, plain, MAX_WORD_TOKENS)
    assert figures.joined == sum(size for size in together if size > 1) / num_tokens > 0.3
    assert figures.long_words == figures.long_words_by_vocabulary == 0
    assert figures.joined_by_vocabulary == 2 * 12 / num_tokens  # ab ##c


def _words(flags):
    """The tokens of each word, of whether each token begins a word."""
    number = itertools.accumulate(flags)
    return [list(group) for _, group in itertools.groupby(number)]


@pytest.mark.usefixtures("_two_by_two")
def test_bytes_of_a_character_belong_to_its_word():
    bytes_alone, _ = train_from_texts(lambda: iter([CHINESE * 9]), 290, "byte_level", lowercase=False)
    texts = [CHINESE, f" {CHINESE} x"]
    _, tokens, found = encode_texts(texts, bytes_alone, "two")
    pieces = [bytes_alone.tokens[number] for number in tokens]  # a letter per byte
    assert max(map(len, pieces)) > 3 > min(map(len, pieces))
    first_bytes = np.cumsum([0, *map(len, pieces)])[:-1]
    letters = "".join(texts)
    character_of = [at for at, letter in enumerate(letters) for _ in letter.encode()]
    owner = [number for number, word in enumerate(two_by_two(CHINESE)) for _ in word]
    owner += [100 + at // 2 for at in range(len(texts[1]))]  # whose pairs are others, after the space
    expected = [owner[character_of[at]] for at in first_bytes]
    assert found.tolist() == [one != before for before, one in zip([None, *expected], expected, strict=False)]


@pytest.mark.parametrize("name", SAMPLES)
def test_packages_find_words(name):
    for package in SEGMENTERS[name].packages:
        pytest.importorskip(MODULES.get(package, package))
    text, words = SAMPLES[name]
    found = find_words(name)
    assert set(words) <= set(found(text))
    for each in (text, "", " ", f" {text}\n{text} abc 1.5\t{text}", "😀\u200b。\u3000x"):
        assert "".join("".join(found(each)).split()) == "".join(each.split())
    assert sum(word_starts(text, found(text), [(at, at + 1) for at in range(len(text))])) == len(found(text))


def test_words_of_burmese_begin_at_syllables():
    pytest.importorskip("icu")
    text = SAMPLES["icu"][0]
    syllables = [match.start() for match in BURMESE_SYLLABLE.finditer(text)]
    starts = [0, *itertools.accumulate(map(len, find_words("icu")(text)))][:-1]
    assert len(syllables) > len(starts) > 15
    assert set(starts) <= set(syllables)


def test_sentences_of_thai():
    pytest.importorskip("pycrfsuite", reason="sentences of Thai need pythainlp and python-crfsuite")
    tokenize = pytest.importorskip("pythainlp.tokenize")
    lines = ["ฉันรักภาษาไทย เมื่อวานนี้ฝนตกหนักมาก วันนี้อากาศดีครับ", "เราไปเที่ยวกันเถอะ"]
    found = list(split_sentences("\n\n".join(lines), "th", segmenter="pythainlp"))
    assert found == [(part.strip(), True) for line in lines for part in tokenize.sent_tokenize(line, engine="crfcut")]
    assert len(found) > 2 == len(list(split_sentences("\n\n".join(lines), "th")))


@pytest.mark.usefixtures("_two_by_two")
def test_sentences_of_a_segmenter():
    text = "一二。三\n四。  五六。\n\n七"
    assert [sentence for sentence, _ in split_sentences(text, "zh", segmenter="two")] == [
        *("一二。", "三", "四。"),
        *("五六。", "七"),
    ]
    assert [sentence for sentence, _ in split_sentences("一。二\n三", "none", segmenter="two")] == ["一。二\n", "三"]


def test_the_same_bytes_for_any_number_of_workers(tmp_path, tokenizer, monkeypatch):
    pytest.importorskip("rjieba", reason="a process of its own knows no stand-in")
    set_sizes(monkeypatch, TINY)
    texts = write_texts(tmp_path / "texts", 30)
    for workers in (1, 2):
        prepare(texts, tokenizer, tmp_path / f"{workers}", workers=workers, language="zh", segmenter="jieba")
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


@pytest.mark.usefixtures("_two_by_two")
def test_without_a_segmenter_nothing_changes(tmp_path, tokenizer):
    texts = write_texts(tmp_path / "texts", 4)
    prepare(texts, tokenizer, tmp_path / "a", workers=1, language="zh")
    prepare(texts, tokenizer, tmp_path / "b", workers=1, language="zh", segmenter="none")
    prepare(texts, tokenizer, tmp_path / "c", workers=1, language="zh", segmenter="two")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert "segmenter" not in (tmp_path / "a" / "manifest.json").read_text()
    plain, marked = (open_corpus(tmp_path / name).split("train") for name in "ac")
    for split in (plain, marked):
        records = np.arange(split.num_records)
        for one, other in zip(split.read(records), split.read_words(records, np.zeros(99, bool)), strict=False):
            np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(
        plain.read(np.array([0]))[0], marked.read(np.array([0]))[0][: plain.tokens_per_record[0]]
    )
    assert not plain.has_words


@pytest.mark.usefixtures("_two_by_two")
def test_an_interrupted_preparation_resumes_with_the_same_words(tmp_path, tokenizer, monkeypatch):
    set_sizes(monkeypatch, TINY)
    texts, said = write_texts(tmp_path / "texts", 50), []

    def interrupt(done, total, documents):
        if documents > 40:
            raise KeyboardInterrupt

    usual = {"workers": 1, "language": "zh", "say": said.append}
    for other in ("two", "none"):
        with pytest.raises(KeyboardInterrupt):
            prepare(texts, tokenizer, tmp_path / "c", progress=interrupt, segmenter="two", **usual)
        prepare(texts, tokenizer, tmp_path / "c", segmenter=other, **usual)
        prepare(texts, tokenizer, tmp_path / other, segmenter=other, **usual)
        assert contents(tmp_path / "c") == contents(tmp_path / other)
        (tmp_path / "c").rename(tmp_path / f"kept {other}")
    assert sum("resumes after" in line for line in said) == 1
    assert sum("starts over, as the segmenter changed" in line for line in said) == 1


@pytest.mark.usefixtures("_two_by_two")
def test_appended_documents_use_the_segmenter_of_the_corpus(tmp_path, tokenizer):
    first, second = write_texts(tmp_path / "1", 8), write_texts(tmp_path / "2", 8, seed=1)
    for name, segmenter in (("c", "two"), ("plain", "none")):
        prepare(first, tokenizer, tmp_path / name, workers=1, language="zh", segmenter=segmenter)
    for name, segmenter, words in (("c", "none", "two"), ("plain", "two", "none")):
        with pytest.raises(UserError, match=f"--segmenter {segmenter}: .* was prepared with {words}; leave the option"):
            prepare(second, None, tmp_path / name, workers=1, append=True, segmenter=segmenter)
    prepare(second, None, tmp_path / "c", workers=1, append=True)
    assert read_manifest(tmp_path / "c")["settings"]["segmenter"] == "two"
    train = open_corpus(tmp_path / "c").split("train")
    assert len(train.source_documents) == 2
    _, lengths, _, begins = train.read_words(np.arange(train.num_records), np.zeros(99, bool))
    for flags in np.split(begins, np.cumsum(lengths)[:-1]):
        if len(flags) > 2:  # not "abc"
            assert flags[::2].all()
            assert not flags[1::2].any()


def test_bad_segmenters_are_refused(tmp_path, tokenizer, monkeypatch):
    texts = write_texts(tmp_path / "texts", 1)

    def no_module():
        raise ImportError

    monkeypatch.setitem(SEGMENTERS, "absent", Segmenter("zh", ("one", "two"), no_module))
    rows = "give jieba (zh), fugashi (ja), pythainlp (th), khmercut (km), laonlp (lo), icu (my)"
    for name, language, words in (
        ("jeiba", "zh", rows),
        ("jeiba", "zh", "did you mean 'jieba'?"),
        ("jieba", "ja", "--segmenter jieba reads zh, and --language is ja; give --language zh"),
        ("jieba", None, "--segmenter jieba reads zh, and --language is en; give --language zh"),
        ("absent", "zh", "needs one two: pip install one two, or pip install '.[words]' for all segmenters"),
    ):
        with pytest.raises(UserError) as caught:
            prepare(texts, tokenizer, tmp_path / "c", workers=1, language=language, segmenter=name)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "c").exists()


def random_documents(continues, number, seed):
    """Documents for `store` whose marks are those of a vocabulary, and the same without marks."""
    rng = np.random.default_rng(seed)
    marked, plain = [], []
    for _ in range(number):
        lengths = rng.integers(1, 60, rng.integers(1, 40))
        tokens = rng.integers(FIRST_ID, VOCAB, lengths.sum()).astype(np.uint16)
        plain.append((lengths, tokens))
        marked.append((lengths, tokens, True, bytes(16), ~continues[tokens]))
    return marked, plain


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The same documents with the words of a vocabulary as marks and without, and that vocabulary."""
    place = tmp_path_factory.mktemp("stored")
    continues = np.random.default_rng(1).random(VOCAB) < 0.5
    continues[:FIRST_ID] = False
    marked, plain = random_documents(continues, 40, 0)
    store(place / "marked", marked, vocab_size=VOCAB, documents_per_shard=15, format_version=WORDS_VERSION)
    store(place / "plain", plain, vocab_size=VOCAB)
    return *(open_corpus(place / name).split("train") for name in ("marked", "plain")), continues


def symbols(continues):
    return Symbols(0, 1, 2, 1, Vocabulary(VOCAB, 3, continues))


@pytest.mark.parametrize("masking", MASKINGS)
@pytest.mark.parametrize(("pairs", "packing"), [*((pairs, 1) for pairs in SENTENCE_PAIRS), ("next_sentence", 4)])
def test_marks_mask_like_a_vocabulary_with_the_same_words(stored, masking, pairs, packing):
    marked, plain, continues = stored
    config = DataConfig(masking=masking, sentence_pairs=pairs, packing=packing)
    none, numbers = np.zeros(VOCAB, bool), np.arange(40)  # without its marks, every token of the first is a word
    one, other = (
        make_sequences(split, symbols(marks), 64, 0, config) for split, marks in ((marked, none), (plain, continues))
    )
    batch, expected = one.batch(numbers), other.batch(numbers)
    for name, array in expected.items():
        np.testing.assert_array_equal(batch[name], array)
        assert batch[name].dtype == array.dtype
    assert (one.begins_word is None) == (not MASKINGS[masking].whole_words)
    assert other.begins_word is None
    if one.begins_word:
        ids = batch["input_ids"].copy()
        hidden = np.nonzero(batch["masked_weights"])
        ids[hidden[0], batch["masked_positions"][hidden]] = batch["masked_labels"][hidden]
        np.testing.assert_array_equal(one.begins_word(numbers), (ids >= FIRST_ID) & ~continues[ids])


def test_a_mixture_of_corpora_with_and_without_words(stored):
    marked, plain, continues = stored
    joined = Split.join([plain, marked, plain])
    assert joined.has_words
    records = np.random.default_rng(0).integers(0, joined.num_records, 200)
    other = np.roll(continues, 7)
    *found, begins = joined.read_words(records, other)
    for one, same in zip(found, joined.read(records), strict=True):
        np.testing.assert_array_equal(one, same)
    sizes = joined.tokens_per_record[records]
    from_marks = (records >= plain.num_records) & (records < plain.num_records + marked.num_records)
    expected = np.where(np.repeat(from_marks, sizes), ~continues[found[0]], ~other[found[0]])
    np.testing.assert_array_equal(begins, expected)


@pytest.mark.usefixtures("_two_by_two")
def test_inspect_shows_the_words_of_the_segmenter(tmp_path, tokenizer, capsys):
    texts = write_texts(tmp_path / "texts", 8)
    prepare(texts, tokenizer, tmp_path / "c", workers=1, language="zh", segmenter="two")
    options = ["inspect", str(tmp_path / "c"), "--config.data.masking=whole_word", "--config.data.sentence_pairs=none"]
    assert main([*options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sources"][0]["prepared"]["segmenter"] == "two"
    figures = found["tokens"]
    assert figures["joined"] > 0.8 > 0.1 > figures["joined_by_vocabulary"]
    assert main(options) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"words by two: {figures['joined']:.2%} of the tokens in words of several tokens" in printed
    assert f"words by the vocabulary alone: {figures['joined_by_vocabulary']:.2%} and 0%" in printed
    assert main([*options, "--html", str(tmp_path / "page.html")]) == 0
    page = re.sub('<span class="read">.*?</span>', "", (tmp_path / "page.html").read_text().partition('class="page')[2])
    units = re.findall(r'<span class="unit">((?:<mark[^>]*>[^<]*</mark>)+)</span>', page)
    sizes = [len(re.findall("<mark", unit)) for unit in units]
    assert len(sizes) > 20
    assert set(sizes) == {2}


def test_a_record_without_its_marks_is_damaged(tmp_path):
    store(
        tmp_path / "c",
        [(np.array([9]), np.arange(5, 14, dtype=np.uint16))],
        vocab_size=VOCAB,
        format_version=WORDS_VERSION,
    )
    with pytest.raises(UserError, match="damaged shard"):
        open_corpus(tmp_path / "c").split("train").read(np.array([0]))
