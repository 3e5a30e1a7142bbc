"""Ids, tokens and offsets against published vectors and against other implementations on real texts."""

import dataclasses
import gzip
import itertools
import json
import shutil
import unicodedata

import pytest

from bert_jax.tokenizer import (
    SPECIAL_TOKENS,
    Normalizer,
    copy_tokenizer,
    load_tokenizer,
    save_tokenizer,
    wordpiece_tokenizer,
)

# Which of our vocabularies a published tokenizer has, and whether its configuration says uncased.
VOCABULARY_OF = {
    "Xenova/bert-base-uncased": ("bert-base-uncased", True),
    "Xenova/bert-base-cased": ("bert-base-cased", False),
    "google-bert/bert-base-cased": ("bert-base-cased", False),
    "Xenova/spanbert-large-cased": ("bert-base-cased", True),
    "Xenova/bert-base-multilingual-cased-ner-hrl": ("bert-base-multilingual-cased", False),
    "Xenova/bge-small-zh-v1.5": ("bert-base-chinese", False),
    "Xenova/bge-base-zh-v1.5": ("bert-base-chinese", True),
    "Xenova/distilbert-base-cased-distilled-squad": ("bert-base-cased", False),
    "Xenova/distilbert-base-uncased-finetuned-sst-2-english": ("bert-base-uncased", True),
    "Xenova/distiluse-base-multilingual-cased-v2": ("bert-base-multilingual-cased", False),
    "distilbert/distilbert-base-multilingual-cased": ("bert-base-multilingual-cased", False),
    "Xenova/all-distilroberta-v1": ("roberta-base", None),
    "Xenova/albert-base-v2": ("albert-base", None),
}
# The others have vocabularies of their own, which are not among the real data.
OTHER_VOCABULARY = {
    *("Xenova/paraphrase-multilingual-MiniLM-L12-v2", "Xenova/bert-base-multilingual-uncased-sentiment"),
    *("Xenova/multilingual-e5-small", "Xenova/indobert-base-p1", "Xenova/UMLSBert_ENG", "Xenova/rubert-base-cased"),
    *("Xenova/SapBERT-from-PubMedBERT-fulltext", "Xenova/kobert", "Xenova/scibert_scivocab_uncased", "Xenova/LaBSE"),
    *("Xenova/herbert-large-cased", "Xenova/ernie-gram-zh", "onnx-community/language_detection-ONNX"),
    *("jinaai/jina-embeddings-v2-base-de", "jinaai/jina-embeddings-v2-base-code", "jinaai/jina-reranker-v1-tiny-en"),
    *("jinaai/jina-embeddings-v2-base-zh", "Xenova/EsperBERTo-small-pos", "onnx-community/camembertv2-base"),
}
# Cases of rust-tokenizers, by place in the file, whose ids differ, and why.
RUST_DIFFERS = {
    ("roberta-base", 4): "it drops the space before a special token inside a text; Hugging Face's RoBERTa keeps it",
    ("albert-base-v2", 4): "it makes a token of each space of a run; ALBERT and SentencePiece make one space of them",
    ("albert-base-v2", 5): "the same",
}
# Published after a clean-up that drops spaces before punctuation, which the ids do not tell.
DECODED_DIFFERS = {("Xenova/albert-base-v2", "PUNCTUATION"), ("Xenova/albert-base-v2", "SPIECE_UNDERSCORE")}
# Cases whose published offsets are not ours, and why; where tokens start is compared instead.
RUST_UNCASED = "theirs end before an accent that is stripped, ours after it"


@pytest.fixture(scope="session")
def published(samples):
    return {
        (name, uncased): load_tokenizer(samples / "vocab" / name, lowercase=uncased)
        for name, uncased in set(VOCABULARY_OF.values())
    }


@pytest.fixture
def transformers(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def texts(real_data):
    """English, Korean, Japanese and German: 516 texts of the samples, 812 of the whole data."""
    found = lines(real_data / "sentencepiece-texts" / "botchan.txt.gz")[::20]
    english = {"samples": "glue/QNLI/test.tsv.gz", "data": "wikitext-2/test.txt.gz"}[real_data.name]
    found += [line for line in lines(real_data / english) if line.strip()][::20]
    for name in ("ko_gsd", "ja_gsd", "de_gsd"):
        treebank = lines(real_data / "ud" / f"{name}-ud-dev.conllu.gz")
        found += [line.removeprefix("# text = ") for line in treebank if line.startswith("# text = ")][::5]
    return found


@pytest.fixture(scope="module")
def sentences_of_words(samples):
    found = []
    for name in ("ko_gsd", "ja_gsd", "de_gsd", "en_ewt"):
        sentences = "\n".join(lines(samples / "ud" / f"{name}-ud-dev.conllu.gz")).split("\n\n")[:50]
        for sentence in sentences:
            rows = [line.split("\t") for line in sentence.split("\n") if line and not line.startswith("#")]
            found.append([row[1] for row in rows if row[0].isdigit()])
    return [words for words in found if words]


def lines(path):
    return gzip.open(path, "rt", encoding="utf-8").read().split("\n")


def vectors(samples, *files):
    for file in files:
        models = json.loads((samples / "vectors" / "transformers.js" / f"{file}.json").read_text())
        for model, cases in models.items():
            assert (model in VOCABULARY_OF) != (model in OTHER_VOCABULARY), model
            if model in VOCABULARY_OF:
                for name, case in cases.items():
                    yield model, name, case


@pytest.mark.parametrize(("file", "number"), [("bert", 89), ("distilbert", 50), ("roberta", 11), ("albert", 29)])
def test_ids_equal_the_published_ids(samples, published, file, number):
    cases = list(vectors(samples, file))
    assert len(cases) == number
    for model, name, case in cases:
        tokenizer = published[VOCABULARY_OF[model]]
        if "text_pair" in case:
            first, second = tokenizer.encode_sentences([case["text"], case["text_pair"]])
            end = [tokenizer.sep_id]
            ids = [tokenizer.cls_id, *first, *end * tokenizer.separators, *second, *end]
        else:
            ids = tokenizer.encode(case["text"])
        assert ids == case["ids"], (model, name)


def test_corpus_ids_equal_the_published_ids_without_special_tokens(samples, published):
    total = 0
    for model, name, case in vectors(samples, "bert", "distilbert", "roberta", "albert"):
        tokenizer = published[VOCABULARY_OF[model]]
        if "text_pair" in case or any(token in case["text"] for token in tokenizer.special):
            continue
        assert tokenizer.encode_sentences([case["text"]]) == [case["ids"][1:-1]], (model, name)
        total += 1
    assert total == 178


def test_decoded_ids_equal_the_published_text(samples, published):
    total = 0
    for model, name, case in vectors(samples, "roberta", "albert"):
        found = published[VOCABULARY_OF[model]].decode(case["ids"])
        if (model, name) in DECODED_DIFFERS:
            assert found != case["decoded"]
            found = found.replace(" !!", "!!").replace(" .", ".")
        assert found == case["decoded"]
        total += 1
    assert total == 40


def test_tokens_of_gpt2_which_has_the_same_merges(samples, published):
    cases = json.loads((samples / "vectors" / "transformers.js" / "gpt2.json").read_text())["Xenova/gpt2"]
    tokenizer = published["roberta-base", None]
    found = [[tokenizer.tokens[n] for n in tokenizer.encode_sentences([case["text"]])[0]] for case in cases.values()]
    assert found == [case["tokens"] for case in cases.values()]
    assert len(cases) == 26


def test_mpnet_which_has_berts_vocabulary_and_other_special_tokens(samples, published, tmp_path):
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *published["bert-base-uncased", True].tokens, "<mask>"]
    (tmp_path / "vocab.txt").write_bytes("\n".join(tokens).encode())
    names = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": {"content": "<pad>"}, "mask_token": "<mask>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, **names}))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"unk_token": "[UNK]"}))
    cases = json.loads((samples / "vectors" / "transformers.js" / "mpnet.json").read_text())
    (cases,) = cases.values()
    save_tokenizer(load_tokenizer(tmp_path), tmp_path / "saved")
    for tokenizer in (load_tokenizer(tmp_path), load_tokenizer(tmp_path / "saved")):
        assert [tokenizer.encode(case["text"]) for case in cases.values()] == [case["ids"] for case in cases.values()]
    assert len(cases) == 25


@pytest.mark.parametrize(
    ("name", "vocabulary", "config", "number"),
    [
        ("bert-base-uncased", "bert-base-uncased", {"do_lower_case": True}, 7),
        ("roberta-base", "roberta-base", {"add_prefix_space": True}, 6),
        ("albert-base-v2", "albert-base", {}, 4),
    ],
)
def test_rust_tokenizers_vectors_with_offsets(samples, tmp_path, name, vocabulary, config, number):
    for path in (samples / "vocab" / vocabulary).iterdir():
        shutil.copyfile(path, tmp_path / path.name)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(tmp_path)
    cases = json.loads((samples / "vectors" / "rust-tokenizers.json").read_text())[name]
    equal = 0
    for place, case in enumerate(cases):
        found, text = tokenizer.with_special_tokens.encode(case["text"]), case["text"]
        assert (found.ids == case["ids"]) != ((name, place) in RUST_DIFFERS), place
        if found.ids != case["ids"]:
            continue
        equal += 1
        for offset, (start, end) in zip(found.offsets[1:-1], case["offsets"][1:-1], strict=True):
            # Theirs hold the space before a word; where a space alone is, the two do not always agree.
            start += len(text[start:end]) - len(text[start:end].lstrip())
            if start == end:
                continue
            if vocabulary == "bert-base-uncased":
                assert offset[0] == start, RUST_UNCASED
            else:
                assert offset == (start, end)
        if "[SEP]" not in text:
            (mine,) = tokenizer.encode_with_offsets([text])
            assert (mine.ids, mine.offsets) == (found.ids[1:-1], found.offsets[1:-1])
    assert equal == number


def test_google_and_huggingface_vectors(samples, published):
    cases = json.loads((samples / "vectors" / "google-bert-and-hf.json").read_text())
    full = cases["full_tokenizer"]
    more = [token for token in SPECIAL_TOKENS if token not in full["vocab"]]
    assert wordpiece_tokenizer(full["vocab"] + more, Normalizer()).encode_sentences([full["text"]]) == [full["ids"]]
    pieces = cases["wordpiece"]
    small = wordpiece_tokenizer(pieces["vocab"] + more, Normalizer(do_lower_case=False))
    for case in pieces["cases"]:
        assert [small.tokens[number] for number in small.encode_sentences([case["text"]])[0]] == case["tokens"]
    basic = [({"do_lower_case": True}, case) for case in [*cases["basic_default"], *cases["basic_lower"]]]
    basic += [({"do_lower_case": False}, case) for case in cases["basic_no_lower"]]
    basic += [
        ({"do_lower_case": case["lower"], "strip_accents": case.get("strip_accents")}, case)
        for case in cases["hf_basic_strip_accents"]
    ]
    for settings, case in basic:
        others = [token for token in dict.fromkeys(case["tokens"]) if token not in SPECIAL_TOKENS]
        words = wordpiece_tokenizer([*SPECIAL_TOKENS, *others], Normalizer(**settings))
        # 'never_split' of the original is what special tokens are to `encode`.
        assert [words.tokens[number] for number in words.encode(case["text"])[1:-1]] == case["tokens"]
    assert len(basic) == 11
    offsets = cases["hf_offsets"]
    for name, key in (("bert-base-cased", "cased"), ("bert-base-uncased", "uncased")):
        found = published[name, key == "uncased"].with_special_tokens.encode(offsets["text"])
        assert [[list(offset), token] for offset, token in zip(found.offsets, found.tokens, strict=True)] == offsets[
            key
        ]


def test_googles_classes_of_characters(samples):
    cases = json.loads((samples / "vectors" / "google-bert-and-hf.json").read_text())
    marks = [mark for name in ("is_punctuation", "is_control") for marks in cases[name].values() for mark in marks]
    others = [mark for mark in dict.fromkeys([*marks, *"-A"]) if not mark.isspace() and mark != "\x05"]
    tokens = [*SPECIAL_TOKENS, "a", "b", "ab", "aAb", *others]
    tokenizer = wordpiece_tokenizer(tokens, Normalizer(do_lower_case=False))

    def split(mark):
        return [tokenizer.tokens[number] for number in tokenizer.encode_sentences([f"a{mark}b"])[0]]

    assert all(split(mark) == ["a", "b"] for mark in cases["is_whitespace"]["true"])
    assert all(split(mark) == ["ab"] for mark in cases["is_control"]["true"])
    assert all(split(mark) == ["a", mark, "b"] for mark in cases["is_punctuation"]["true"])
    assert split("A") == ["aAb"]


def test_huggingface_vectors_of_roberta_and_albert(samples, published, tmp_path):
    cases = json.loads((samples / "vectors" / "google-bert-and-hf.json").read_text())
    hello, longer = cases["hf_roberta"]
    roberta = published["roberta-base", None]
    assert roberta.encode(hello["text"]) == hello["ids_with_special"]
    # The published row stops before the last word, ' 418': the test it is from is never run there.
    row = roberta.encode(longer["text"])
    assert roberta.tokens[row.pop(-2)] == "Ġ418"
    assert row == longer["ids_with_special"]
    shutil.copyfile(samples / "vocab" / "albert-base" / "spiece.model", tmp_path / "spiece.model")
    (tmp_path / "tokenizer_config.json").write_text('{"keep_accents": true}')
    albert = load_tokenizer(tmp_path)
    for case in cases["hf_albert_spiece_keep_accents"]:
        assert albert.encode_sentences([case["text"]]) == [case["ids"]]


REFERENCES = {
    "bert-base-uncased": ("BertTokenizer", {}),
    "bert-base-cased": ("BertTokenizer", {"do_lower_case": False}),
    "bert-base-multilingual-cased": ("BertTokenizer", {"do_lower_case": False}),
    "bert-base-chinese": ("BertTokenizer", {"do_lower_case": False}),
    "koelectra": ("ElectraTokenizer", {"do_lower_case": False}),
    "roberta-base": ("RobertaTokenizer", {}),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_ids_and_offsets_equal_transformers(samples, transformers, texts, name):
    kind, settings = REFERENCES[name]
    theirs = getattr(transformers, kind).from_pretrained(samples / "vocab" / name, **settings)
    ours = load_tokenizer(samples / "vocab" / name, settings.get("do_lower_case"))
    texts = [text.replace("<unk>", "unknown") for text in texts]  # a special token to RoBERTa, a text to us
    expected = theirs(texts, add_special_tokens=False, return_offsets_mapping=True)
    found = ours.encode_with_offsets(texts)
    assert [one.ids for one in found] == expected["input_ids"]
    assert [one.offsets for one in found] == [list(map(tuple, one)) for one in expected["offset_mapping"]]
    for number, one in enumerate(found):
        if ours.kind.name == "wordpiece":  # punctuation continues a word in RoBERTa
            same_word = [before == word for before, word in itertools.pairwise([None, *expected.word_ids(number)])]
            assert ours.continues[one.ids].tolist() == same_word
    assert [ours.encode(text) for text in texts] == theirs(texts)["input_ids"]
    pair = [ours.cls_id, *found[0].ids, *[ours.sep_id] * ours.separators, *found[1].ids, ours.sep_id]
    assert theirs(texts[0], texts[1])["input_ids"] == pair


@pytest.mark.parametrize("name", REFERENCES)
def test_ids_of_words_equal_transformers(samples, transformers, sentences_of_words, name):
    kind, settings = REFERENCES[name]
    prefix = {"add_prefix_space": True} if kind == "RobertaTokenizer" else {}
    theirs = getattr(transformers, kind).from_pretrained(samples / "vocab" / name, **settings, **prefix)
    ours = dataclasses.replace(
        load_tokenizer(samples / "vocab" / name, settings.get("do_lower_case")), spaces_words=True
    )
    expected = theirs(sentences_of_words, is_split_into_words=True, add_special_tokens=False)
    for number, words in enumerate(sentences_of_words):
        found = ours.encode_words(words)
        ids = [[] for _ in words]
        for word, token in zip(expected.word_ids(number), expected["input_ids"][number], strict=True):
            ids[word].append(token)
        assert found == [one or [ours.unk_id] for one in ids]


def alberts_own(processor, text):
    """The published procedure of ALBERT, over the library SentencePiece."""
    text = " ".join(text.split()).replace("``", '"').replace("''", '"')
    text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c)).lower()
    found = []
    for piece in processor.encode(text, out_type=str):
        if len(piece) < 2 or piece[-1] != "," or not piece[-2].isdigit():
            found.append(piece)
            continue
        first, *rest = processor.encode(piece[:-1].replace("▁", ""), out_type=str)
        if not piece.startswith("▁"):
            first = first.removeprefix("▁")
        found += [part for part in (first, *rest, ",") if part]
    return processor.piece_to_id(found)


def test_ids_of_albert_equal_the_ids_of_sentencepiece(samples, published, texts, sentences_of_words):
    sentencepiece = pytest.importorskip("sentencepiece")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(samples / "vocab/albert-base/spiece.model"))
    ours = published["albert-base", None]
    assert ours.encode_sentences(texts) == [alberts_own(processor, text) for text in texts]
    words = [word for sentence in sentences_of_words for word in sentence]
    assert ours.encode_words(words) == [alberts_own(processor, word) for word in words]


def test_albert_in_transformers(samples, transformers, published, texts):
    """From a spiece.model alone, transformers 5 splits text at eight marks and keeps '9,' whole; no vector does."""
    theirs = transformers.AlbertTokenizer.from_pretrained(samples / "vocab" / "albert-base")
    ours = published["albert-base", None]
    marks = [token for token in theirs.get_added_vocab() if token not in ours.special] + [",", "`", "<"]
    texts = [text for text in texts if not any(mark in text for mark in marks) and "''" not in text]
    assert len(texts) > 100
    expected = theirs(texts, add_special_tokens=False, return_offsets_mapping=True)
    found = ours.encode_with_offsets(texts)
    assert [one.ids for one in found] == expected["input_ids"]
    assert [one.offsets for one in found] == [list(map(tuple, one)) for one in expected["offset_mapping"]]


def test_auto_tokenizer_opens_our_saved_tokenizer(tmp_path, samples, published, transformers):
    for (name, uncased), tokenizer in published.items():
        cases = [
            case
            for model, _, case in vectors(samples, "bert", "distilbert", "roberta", "albert")
            if VOCABULARY_OF[model] == (name, uncased) and "text_pair" not in case
        ]
        saved = tmp_path / f"{name}-{uncased}"
        save_tokenizer(tokenizer, saved)
        assert load_tokenizer(saved).sha256 == tokenizer.sha256
        theirs = transformers.AutoTokenizer.from_pretrained(saved)
        assert theirs([case["text"] for case in cases])["input_ids"] == [case["ids"] for case in cases]
        special = (theirs.pad_token_id, theirs.unk_token_id, theirs.cls_token_id, theirs.sep_token_id)
        assert special == (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id)
        assert (theirs.mask_token_id, theirs.model_max_length) == (tokenizer.mask_id, 512)


@pytest.mark.parametrize(
    ("name", "kind", "settings"),
    [
        ("bert-base-cased", "BertTokenizer", {"do_lower_case": False}),
        ("bert-base-uncased", "DistilBertTokenizer", {}),
        ("roberta-base", "RobertaTokenizer", {}),
        ("albert-base", "AlbertTokenizer", {}),
    ],
)
def test_a_tokenizer_that_transformers_saved_is_opened(tmp_path, samples, transformers, texts, name, kind, settings):
    theirs = getattr(transformers, kind).from_pretrained(samples / "vocab" / name, **settings)
    theirs.save_pretrained(tmp_path)
    ours = load_tokenizer(tmp_path)
    texts = [*texts[::5], f"Well-to-do (9,000) {theirs.mask_token}.", "“”"]
    assert [ours.encode(text) for text in texts] == theirs(texts)["input_ids"]
    pair = theirs("a b", "c")["input_ids"]
    assert ours.separators == pair.count(theirs.sep_token_id) - 1
    if name != "albert-base":  # which transformers reads in its own way, see above
        raw = load_tokenizer(samples / "vocab" / name, settings.get("do_lower_case"))
        assert ours.sha256 == raw.sha256


def test_a_raw_vocabulary_is_exported_so_that_auto_tokenizer_opens_it(tmp_path, samples, transformers):
    for name, family in (("roberta-base", "roberta"), ("albert-base", "albert"), ("bert-base-uncased", "bert")):
        source, target = samples / "vocab" / name, tmp_path / name
        target.mkdir()
        (target / "config.json").write_text(json.dumps({"model_type": family}))
        copy_tokenizer(source, target)
        theirs, ours = transformers.AutoTokenizer.from_pretrained(target), load_tokenizer(source)
        text = f"Where (9,000) is the {theirs.mask_token}, naïve well-to-do?"
        first, second = ours.encode(text), ours.encode(text)[1:]
        assert theirs(text)["input_ids"] == first
        pair = theirs(text, text)
        assert pair["input_ids"] == [*first, *[ours.sep_id] * (ours.separators - 1), *second]
        if ours.separators == 1:
            assert pair["token_type_ids"] == [0] * len(first) + [1] * len(second)
        else:
            assert "token_type_ids" not in pair
