"""Tokenizers of each kind: special tokens, settings of their files, and files that are broken or disagree."""

import dataclasses
import json
import pickle

import pytest

from bert_jax.errors import UserError
from bert_jax.tokenizer import (
    SPECIAL_TOKENS,
    Normalizer,
    build_tokenizer,
    copy_tokenizer,
    cut_text,
    load_tokenizer,
    save_tokenizer,
    tokenizer_files,
    wordpiece,
    wordpiece_tokenizer,
)
from bert_jax.tokenizer.tokenizer_json import SpecialTokens

WORDS = ["the", "##s", "cat", "dog", "sat", "on", "mat", ".", "t", "##h", "a", "##a", "é", "E"]
UNCASED = Normalizer()
ALBERT = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")


def test_a_text_cannot_forge_special_tokens():
    tokenizer = wordpiece_tokenizer([*SPECIAL_TOKENS, "[", "]", "mask", "sep"], Normalizer())
    assert tokenizer.encode_sentences(["[MASK] [SEP]"]) == [[5, 7, 6, 5, 8, 6]]
    assert tokenizer.encode("[MASK]") == [2, 4, 3]


def test_case_is_read_from_the_config_or_the_vocabulary(tmp_path):
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("\n".join([*SPECIAL_TOKENS, *WORDS]) + "\n", encoding="utf-8")
    assert not load_tokenizer(vocab).lowercase
    assert load_tokenizer(vocab, lowercase=True).lowercase
    vocab.write_text("\n".join([*SPECIAL_TOKENS, "[unused0]", *WORDS[:-1]]) + "\n", encoding="utf-8")
    assert load_tokenizer(tmp_path).lowercase
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert not load_tokenizer(tmp_path).lowercase
    with pytest.raises(UserError, match=r"do_lower_case is False in tokenizer_config\.json, but you asked for True"):
        load_tokenizer(tmp_path, lowercase=True)


def test_the_digest_depends_on_vocabulary_and_normalizer():
    tokens = [*SPECIAL_TOKENS, *WORDS]
    others = [
        wordpiece_tokenizer(tokens[:-1], Normalizer()),
        wordpiece_tokenizer(tokens, Normalizer(do_lower_case=False)),
    ]
    assert len({t.sha256 for t in [wordpiece_tokenizer(tokens, Normalizer()), *others]}) == 3


def byte_level(directory, merges=("a b", "Ġ ab", "Ġ c"), special=("<s>", "<pad>", "</s>", "<unk>"), **files):
    """A vocab.json and a merges.txt of few letters."""
    letters = sorted(set("".join(merges).replace(" ", "")) | set("abcdefĠ<s>/"))
    tokens = [*special, *letters, *(merge.replace(" ", "") for merge in merges), "<mask>"]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    (directory / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (directory / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    for name, content in files.items():
        (directory / f"{name}.json").write_text(json.dumps(content))
    return vocabulary


def unigram(directory, pieces=("▁", "ab", "c", "▁c", "▁ab", "a", "b", "9,", "9", ","), special=ALBERT, **settings):
    """A spiece.model; `settings` are of the trainer or the normalizer."""
    pytest.importorskip("google.protobuf")
    format_of = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
    model = format_of.ModelProto()
    for number, piece in enumerate([*special, *pieces]):
        score = 0.0 if number < len(special) else -float(number)
        model.pieces.add(piece=piece, score=score, type=2 if piece == "<unk>" else 3 if piece in special else 1)
    model.trainer_spec.model_type = 1
    model.trainer_spec.unk_id = 1
    model.normalizer_spec.name = "identity"
    for name, value in settings.items():
        spec = model.trainer_spec if hasattr(model.trainer_spec, name) else model.normalizer_spec
        setattr(spec, name, value)
    (directory / "spiece.model").write_bytes(model.SerializeToString())


def saved_json(directory):
    return json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))


def make(kind, directory):
    """A small tokenizer of each kind that knows a, b, c and ab."""
    words = [*SPECIAL_TOKENS, "ab", "##ab", "a", "##a", "b", "##b", "c", "##c", "[", "]", "mask"]
    if kind == "wordpiece":
        return wordpiece_tokenizer(words, UNCASED)
    if kind == "bpe":
        return build_tokenizer(
            wordpiece.define_bpe(words, [("a", "##b"), ("##a", "##b")], UNCASED), SpecialTokens(*SPECIAL_TOKENS)
        )
    settings = {"model_type": 2} if kind == "sentencepiece_bpe" else {}
    (byte_level if kind == "byte_level" else unigram)(directory, **settings)
    return load_tokenizer(directory)


@pytest.mark.parametrize(
    ("kind", "special", "separators", "lowercase"),
    [
        ("wordpiece", SPECIAL_TOKENS, 1, True),
        ("bpe", SPECIAL_TOKENS, 1, True),
        ("byte_level", ("<pad>", "<unk>", "<s>", "</s>", "<mask>"), 2, False),
        ("unigram", ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"), 1, True),
        ("sentencepiece_bpe", ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"), 1, False),
    ],
)
def test_each_kind(tmp_path, kind, special, separators, lowercase):
    made = make(kind, tmp_path)
    save_tokenizer(made, tmp_path / "saved")
    again = pickle.loads(pickle.dumps(made))
    for tokenizer in (made, load_tokenizer(tmp_path / "saved"), again):
        ids = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
        assert tuple(tokenizer.tokens[number] for number in ids) == special
        assert (tokenizer.separators, tokenizer.lowercase) == (separators, lowercase)
        assert (tokenizer.kind.name, tokenizer.sha256, tokenizer.tokens) == (kind, made.sha256, made.tokens)
        assert tokenizer.encode_sentences(["ab c", "a ab"]) == made.encode_sentences(["ab c", "a ab"])
        (encoded,) = tokenizer.encode_with_offsets(["ab  c"])
        assert encoded.ids == tokenizer.encode_sentences(["ab  c"])[0]
        assert [offset for offset in encoded.offsets if offset[0] < offset[1]] == [(0, 2), (4, 5)]
        assert tokenizer.encode("ab") == [tokenizer.cls_id, *tokenizer.encode_sentences(["ab"])[0], tokenizer.sep_id]
        for name in special:
            if name != special[1]:
                number = tokenizer.tokens.index(name)
                assert number in tokenizer.encode(f"a {name} c")[1:-1]
                assert number not in tokenizer.encode_sentences([f"a {name} c", name])[0]
        assert tokenizer.decode(tokenizer.encode("ab c")).replace(" ", "") == f"{special[2]}abc{special[3]}"
        for number in (-1, tokenizer.vocab_size):
            with pytest.raises(UserError, match=f"id {number} is outside the vocabulary of"):
                tokenizer.decode([number])


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "byte_level", "unigram", "sentencepiece_bpe"])
def test_words_are_encoded_as_inside_a_sentence(tmp_path, kind):
    tokenizer = dataclasses.replace(make(kind, tmp_path), spaces_words=True)
    hashes, spaces = ["ab", "##c"], ["▁ab", "c"]
    inside = {"wordpiece": hashes, "bpe": hashes, "byte_level": ["Ġab", "c"]}.get(kind, spaces)
    found = tokenizer.encode_words(["abc", "", "ab"])
    assert [tokenizer.tokens[number] for number in found[0]] == inside
    assert len(found) == 3
    assert all(found)
    assert found[2] == tokenizer.encode_words(["ab"])[0]
    assert tokenizer.continues[found[0]].tolist() == [False, True]
    (sentence,) = tokenizer.encode_sentences([tokenizer.kind.word_prefix + "abc ab c"])
    assert (~tokenizer.continues[sentence]).sum() == 3
    assert not tokenizer.continues[[tokenizer.tokens.index(name) for name in tokenizer.special]].any()
    if kind != "byte_level":  # to which an empty word is a space
        assert found[1] == tokenizer.encode_words([" "])[0] == [tokenizer.unk_id]


def test_a_mask_includes_the_space_before_it_where_words_include_theirs(tmp_path):
    tokenizer = make("byte_level", tmp_path)
    assert [tokenizer.tokens[number] for number in tokenizer.encode("a <mask> c")] == [
        *("<s>", "a", "<mask>", "Ġc", "</s>")
    ]


def test_albert_never_takes_a_number_with_its_comma(tmp_path):
    tokenizer = make("unigram", tmp_path)
    assert [tokenizer.tokens[number] for number in tokenizer.encode_sentences(["9,"])[0]] == ["▁", "9", ","]


def test_unigram_normalizes_as_its_config_says(tmp_path):
    unigram(tmp_path, pieces=("▁", "e", "E", "é", "É", '"'))
    texts = ["``É''"]
    for config, expected in [
        ({}, '▁"e"'),
        ({"do_lower_case": False}, '▁"E"'),
        ({"keep_accents": True}, '▁"é"'),
        ({"do_lower_case": False, "keep_accents": True}, '▁"É"'),
    ]:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        tokenizer = load_tokenizer(tmp_path)
        assert "".join(tokenizer.tokens[number] for number in tokenizer.encode_sentences(texts)[0]) == expected
        assert tokenizer.lowercase == config.get("do_lower_case", True)


def test_tokenizer_json_as_early_versions_wrote_it(tmp_path):
    """No type of the model, merges as strings, specials that were not added, a template; cutting and padding set."""
    byte_level(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    old = json.loads(json.dumps(tokenizer.definition))
    del old["model"]["type"]
    old["model"]["merges"] = [" ".join(pair) for pair in old["model"]["merges"]]
    old["added_tokens"] = []
    ends = {name: {"SpecialToken": {"id": name, "type_id": 0}} for name in ("<s>", "</s>")}
    a, b = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    old["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [ends["<s>"], a, ends["</s>"]],
        "pair": [ends["<s>"], a, ends["</s>"], ends["</s>"], b, ends["</s>"]],
        "special_tokens": {name: {"id": name, "ids": [i], "tokens": [name]} for i, name in ((0, "<s>"), (2, "</s>"))},
    }
    old["truncation"] = {"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    place = tmp_path / "old"
    place.mkdir()
    for processor in (old["post_processor"], None):
        (place / "tokenizer.json").write_text(json.dumps(old | {"post_processor": processor}))
        again = load_tokenizer(place)
        assert (again.sha256, again.separators) == (tokenizer.sha256, 2)
        assert again.encode("a <mask> c ab ab") == tokenizer.encode("a <mask> c ab ab")


def test_files_of_a_tokenizer(tmp_path):
    make("byte_level", tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert [path.name for path in tokenizer_files(tmp_path)] == ["vocab.json", "merges.txt"]
    (tmp_path / "export").mkdir()
    copy_tokenizer(tmp_path, tmp_path / "export")
    names = ["tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"]
    assert [path.name for path in tokenizer_files(tmp_path / "export")] == names
    assert load_tokenizer(tmp_path / "export").sha256 == load_tokenizer(tmp_path).sha256


def test_an_export_keeps_the_other_settings_of_the_config(tmp_path):
    byte_level(tmp_path, tokenizer_config={"model_max_length": 77, "errors": "replace"})
    (tmp_path / "export").mkdir()
    copy_tokenizer(tmp_path, tmp_path / "export")
    config = json.loads((tmp_path / "export" / "tokenizer_config.json").read_text())
    assert (config["model_max_length"], config["errors"], config["mask_token"]) == (77, "replace", "<mask>")


def test_directories_without_a_vocabulary(tmp_path):
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match="no such vocabulary"):
            load_tokenizer(place)
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\nthe\n")
    with pytest.raises(UserError, match=r"vocab\.txt: .*no \[CLS\] \[SEP\] \[MASK\]"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not a UTF-8 text"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, "a", "b", "a"]))
    with pytest.raises(UserError, match="'a' is on lines 6 and 8"):
        load_tokenizer(tmp_path)


def test_a_directory_with_two_vocabularies(tmp_path):
    byte_level(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, "a"]))
    with pytest.raises(UserError, match=r"holds both vocab\.txt and vocab\.json"):
        load_tokenizer(tmp_path)
    assert load_tokenizer(tmp_path / "vocab.json").separators == 2
    assert load_tokenizer(tmp_path / "vocab.txt").separators == 1


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("vocab.json", '{"<s>": 0', r"vocab\.json: vocab\.json cannot be read as JSON"),
        ("vocab.json", "[1]", "vocab.json is not a JSON object"),
        ("vocab.json", "{}", "the vocabulary is empty"),
        ("vocab.json", '{"a": 0, "b": 2}', r"id 2 of 'b' is outside the vocabulary of 2 tokens: no token has id 1"),
        ("vocab.json", '{"a": 0, "b": 0}', "gives id 0 to 'a' and to 'b'"),
        ("vocab.json", '{"a": "0"}', "not an integer"),
        ("vocab.json", '{"a": 0}', "no <pad> <unk> <s> </s> <mask>"),
        ("merges.txt", "#version: 0.2\na b\na bc\n", r"merges\.txt beside it, line 3: 'a bc' does not merge"),
        ("merges.txt", "a\n", "line 1: 'a' does not merge"),
        ("merges.txt", None, "merges.txt is missing in its directory"),
        ("tokenizer_config.json", "{", "tokenizer_config.json cannot be read as JSON"),
        ("tokenizer_config.json", '{"mask_token": 5}', "mask_token in .* is not a string"),
        ("tokenizer_config.json", '{"mask_token": "<hidden>"}', "no <hidden>"),
        ("special_tokens_map.json", "x", "special_tokens_map.json cannot be read as JSON"),
        ("added_tokens.json", '{"new": 99}', "tokens were added to this vocabulary in other files .new."),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"99": {"content": "new"}}}', "in other files .new."),
    ],
)
def test_a_broken_byte_level_vocabulary(tmp_path, name, content, says):
    byte_level(tmp_path)
    load_tokenizer(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=says) as caught:
        load_tokenizer(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_byte_level_vocabulary_is_never_uncased(tmp_path):
    byte_level(tmp_path)
    with pytest.raises(UserError, match="cannot be uncased"):
        load_tokenizer(tmp_path, lowercase=True)


def test_a_spiece_model_cut_short_anywhere(tmp_path):
    unigram(tmp_path)
    path = tmp_path / "spiece.model"
    whole = path.read_bytes()
    load_tokenizer(tmp_path)
    for size in range(len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(UserError, match=r"spiece\.model: not a complete SentencePiece model"):
            load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"model_type": 3}, "model_type of this model is 3"),
        ({"treat_whitespace_as_suffix": True}, "treat_whitespace_as_suffix of this model is True"),
        ({"byte_fallback": True}, "byte_fallback of this model is True"),
        ({"add_dummy_prefix": False}, "add_dummy_prefix of this model is False"),
        ({"special": ("<pad>", "<unk>", "[CLS]", "[SEP]")}, r"no \[MASK\]"),
        ({"pieces": ("a", "a")}, "twice"),
    ],
)
def test_a_spiece_model_of_another_kind(tmp_path, settings, says):
    unigram(tmp_path, **settings)
    with pytest.raises(UserError, match=says):
        load_tokenizer(tmp_path)


def added(**values):
    return {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False} | values


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": None}, "no 'model'"),
        (
            {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}},
            r"unknown kind of tokenizer \(WordLevel with ByteLevel",
        ),
        ({"pre_tokenizer": {"type": "Whitespace"}}, r"unknown kind of tokenizer \(BPE with Whitespace\)"),
        ({"pre_tokenizer": None}, "unknown kind of tokenizer .BPE with no pre_tokenizer."),
        ({"normalizer": {"type": "Magic"}}, "gives up on this tokenizer"),
        ({"post_processor": {"type": "Magic"}}, "unknown post_processor"),
        ({"post_processor": {"type": "BertProcessing", "cls": ["</s>", 2], "sep": ["<s>", 0]}}, "sequences like"),
        ({"added_tokens": [added(id=99, content="new")]}, "id 99 of 'new' is outside the vocabulary of"),
        ({"added_tokens": [added(id=8, content="a")]}, "the added token 'a' has another id"),
        ({"added_tokens": [{"content": "a"}]}, "cannot be read"),
    ],
)
def test_a_broken_tokenizer_json(tmp_path, change, says):
    byte_level(tmp_path)
    place = tmp_path / "broken"
    save_tokenizer(load_tokenizer(tmp_path), place)
    (place / "SHA256SUMS").unlink()
    (place / "tokenizer.json").write_text(json.dumps(saved_json(place) | change))
    with pytest.raises(UserError, match=says) as caught:
        load_tokenizer(place)
    assert str(place / "tokenizer.json") in str(caught.value)


def test_tokens_added_to_a_vocabulary(tmp_path):
    byte_level(tmp_path)
    place = tmp_path / "more"
    tokenizer = load_tokenizer(tmp_path)
    save_tokenizer(tokenizer, place)
    content = saved_json(place)
    content["added_tokens"].append(added(id=tokenizer.vocab_size, content="cab"))
    (place / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"tokenizer\.json: differs from SHA256SUMS; .* or remove SHA256SUMS"):
        load_tokenizer(place)
    (place / "SHA256SUMS").unlink()
    more = load_tokenizer(place)
    assert more.tokens == (*tokenizer.tokens, "cab")
    assert more.sha256 != tokenizer.sha256
    assert more.encode_sentences(["cab"]) == [[tokenizer.vocab_size]]


def test_files_that_contradict_each_other(tmp_path):
    tokenizer = wordpiece_tokenizer([*SPECIAL_TOKENS, *WORDS], UNCASED)
    save_tokenizer(tokenizer, tmp_path / "one")
    place = tmp_path / "one"
    (place / "SHA256SUMS").unlink()
    (place / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    with pytest.raises(UserError, match=r"do_lower_case is True in it, but False in tokenizer_config\.json"):
        load_tokenizer(place)
    (place / "tokenizer_config.json").write_text('{"strip_accents": true}')
    with pytest.raises(UserError, match="strip_accents is None in it, but True"):
        load_tokenizer(place)
    (place / "tokenizer_config.json").unlink()
    with pytest.raises(UserError, match="the file sets lowercase to True, but you asked for False"):
        load_tokenizer(place, lowercase=False)
    assert load_tokenizer(place, lowercase=True).sha256 == tokenizer.sha256
    (place / "vocab.txt").write_text("\n".join(reversed(tokenizer.tokens)), encoding="utf-8")
    with pytest.raises(UserError, match=r"vocab\.txt beside it, of 19 tokens, differs from its own vocabulary"):
        load_tokenizer(place)
    (place / "vocab.txt").unlink()
    assert load_tokenizer(place).sha256 == tokenizer.sha256


def test_cut_text_keeps_everything_and_cuts_at_spaces():
    text = "ab cde\nf" * 1000 + "x" * 500
    pieces = list(cut_text(text, 100))
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= 100
    assert all(piece[-1].isspace() for piece in pieces[:79])
