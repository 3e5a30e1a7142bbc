"""What a directory says beside its vocabulary, read as transformers reads it: added tokens, class, types, settings."""

import dataclasses
import json
import pathlib
from typing import Any

import pytest
import tokenizers

from bert_jax.errors import UserError
from bert_jax.tasks.kinds.texts import text_features
from bert_jax.tokenizer import Tokenizer, copy_tokenizer, load_tokenizer

transformers = pytest.importorskip("transformers")

WORDS = ["the", "baker", "sells", "bread", "un", "##known", "##s", "e", "##1", "[", "]", "/", "<", ">", "sep"]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", *WORDS]
MPNET = ["<s>", "<pad>", "</s>", "[UNK]", *WORDS, "<mask>"]
LETTERS = [*map(chr, range(ord("!"), ord("~") + 1)), "Ġ"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", *LETTERS, "th", "the", "<mask>"]
MERGES = [("t", "h"), ("th", "e")]
ROLES = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "cls_token": "<s>",
    "mask_token": "<mask>",
}
TEXTS = [
    "the [E1]baker[/E1] sells",
    "[E1] <SUBJ>bread <SUBJ>",
    "the [e1] Baker sells [UNK]",
    "the baker[SEP]sells bread",
    "the <mask> [MASK] </s> <s> bread",
    "[E1]",
    "",
]
PAIRS = [("the baker", "sells [E1] bread"), ("[SEP]", "the"), ("", "bread")]


def vocabulary(tokens: list[str]) -> dict[str, int]:
    return {token: token_id for token_id, token in enumerate(tokens)}


def bert(**settings: Any) -> Any:
    return transformers.BertTokenizer(vocab=vocabulary(BERT), **settings)


def roberta(**settings: Any) -> Any:
    return transformers.RobertaTokenizer(vocab=vocabulary(ROBERTA), merges=MERGES, **settings)


def mpnet(**settings: Any) -> Any:
    return transformers.MPNetTokenizer(vocab=vocabulary(MPNET), **settings)


def saved(theirs: Any, place: pathlib.Path, **config: Any) -> Any:
    """The tokenizer that AutoTokenizer opens after these entries of tokenizer_config.json; None removes an entry."""
    theirs.save_pretrained(place)
    path = place / "tokenizer_config.json"
    values = json.loads(path.read_text()) | config
    path.write_text(json.dumps({name: value for name, value in values.items() if value is not None}))
    return transformers.AutoTokenizer.from_pretrained(place)


def assert_equal_inputs(ours: Tokenizer, theirs: Any, texts: list[str] = TEXTS) -> None:
    """Ids of texts, ids and token types of pairs, as the tasks of bert_jax build them."""
    assert ours.encode_inputs(texts) == theirs(texts, add_special_tokens=False)["input_ids"]
    examples = [{"id": "", "text": first, "text_pair": second} for first, second in PAIRS]
    for made, (first, second) in zip(text_features(examples, ours, 64)[0], PAIRS, strict=True):
        expected = theirs(first, second)
        assert list(made.input_ids) == expected["input_ids"]
        types = [int(index >= made.type_1_start) for index in range(made.length)]
        assert types == expected.get("token_type_ids", [0] * made.length)


@pytest.mark.parametrize("make", [bert, roberta, mpnet])
@pytest.mark.parametrize("special", [True, False])
def test_added_tokens_are_found_in_texts(make: Any, special: bool, tmp_path: pathlib.Path) -> None:
    theirs = make()
    added = transformers.AddedToken
    theirs.add_tokens(
        [added("[E1]", lstrip=True), added("[/E1]"), added("<SUBJ>", rstrip=True)], special_tokens=special
    )
    theirs = saved(theirs, tmp_path)
    ours = load_tokenizer(tmp_path)
    assert_equal_inputs(ours, theirs)
    ids = [ours.tokens.index(token) for token in ("[E1]", "[/E1]", "<SUBJ>")]
    (text, other) = ours.encode_sentences(["the [E1]baker[/E1]", "<SUBJ>bread"])  # of a corpus
    assert [token for token in (*text, *other) if token in ids] == ids
    (offsets,) = ours.encode_inputs_with_offsets(["the [E1]baker"])
    expected = theirs("the [E1]baker", add_special_tokens=False, return_offsets_mapping=True)
    assert (offsets.ids, offsets.offsets) == (expected["input_ids"], expected["offset_mapping"])


@pytest.mark.parametrize("make", [bert, mpnet])
def test_words_of_a_sentence_may_be_added_tokens(make: Any, tmp_path: pathlib.Path) -> None:
    theirs = make()
    theirs.add_tokens(["[E1]"], special_tokens=True)
    theirs = saved(theirs, tmp_path)
    words = ["the", "[E1]", "baker", str(theirs.sep_token)]
    expected = theirs(words, is_split_into_words=True, add_special_tokens=False)["input_ids"]
    assert [i for word in load_tokenizer(tmp_path).encode_words(words) for i in word] == expected


def test_words_of_a_byte_level_sentence_may_be_added_tokens(tmp_path: pathlib.Path) -> None:
    theirs = roberta(add_prefix_space=True)  # which transformers asks for with words
    theirs.add_tokens(["[E1]"], special_tokens=True)
    theirs = saved(theirs, tmp_path)
    words = ["the", "[E1]", "baker", "[E1].", "the[E1]", "a[E1]b[E1]", "[E1][E1]the", " the", "the [E1] x"]
    expected = theirs(words, is_split_into_words=True, add_special_tokens=False)["input_ids"]
    assert [i for word in load_tokenizer(tmp_path).encode_words(words) for i in word] == expected


@pytest.mark.parametrize("key", ["additional_special_tokens", "extra_special_tokens", "added_tokens_decoder"])
def test_a_token_that_a_config_adds_is_found(key: str, tmp_path: pathlib.Path) -> None:
    """[unused0] is in the vocabulary, and no added token of tokenizer.json."""
    token = {"content": "[unused0]", "lstrip": True, "rstrip": False, "single_word": False, "normalized": False}
    value = {"5": {**token, "special": True}} if key == "added_tokens_decoder" else ["[unused0]"]
    theirs = saved(bert(), tmp_path, **{key: value})
    texts = ["the [unused0] baker", "bread[unused0]"]
    assert_equal_inputs(load_tokenizer(tmp_path), theirs, texts)
    assert load_tokenizer(tmp_path).encode_sentences(texts)[1] == [BERT.index("bread"), 5]
    (tmp_path / "vocab.txt").write_text("\n".join(BERT))
    (tmp_path / "tokenizer.json").unlink()
    assert load_tokenizer(tmp_path).encode_sentences(texts)[1] == [BERT.index("bread"), 5]


def test_a_token_that_only_a_config_has_is_refused(tmp_path: pathlib.Path) -> None:
    saved(bert(), tmp_path, extra_special_tokens=["[E9]"])
    with pytest.raises(UserError, match=r"tokens were added to this vocabulary in other files \(\[E9\]\)"):
        load_tokenizer(tmp_path)


def test_no_text_of_a_corpus_forges_a_role_and_an_input_may_spell_every_role(tmp_path: pathlib.Path) -> None:
    for make in (bert, roberta, mpnet):
        theirs = saved(make(), tmp_path / make.__name__)
        ours = load_tokenizer(tmp_path / make.__name__)
        for role in ours.special:
            token_id = ours.tokens.index(role)
            assert ours.encode_inputs([f"the{role}"])[0][-1] == token_id == theirs.convert_tokens_to_ids(role)
            assert role == ours.special.unk or token_id not in ours.encode_sentences([f"the{role}"])[0]
            assert ours.spells_special_token(ours.encode_inputs([role])[0]) == (role != ours.special.unk)


def test_the_digest_of_ids_includes_added_special_tokens(tmp_path: pathlib.Path) -> None:
    saved(bert(), tmp_path / "plain")
    theirs = bert()
    theirs.add_tokens(["[E1]"], special_tokens=True)
    saved(theirs, tmp_path / "added")
    assert load_tokenizer(tmp_path / "plain").sha256 != load_tokenizer(tmp_path / "added").sha256


CLASSES = [
    (bert, "BertTokenizer"),
    (bert, "ElectraTokenizerFast"),
    (bert, "DistilBertTokenizer"),
    (mpnet, "MPNetTokenizer"),
    (mpnet, "MPNetTokenizerFast"),
    (roberta, "RobertaTokenizer"),
    (roberta, "LongformerTokenizerFast"),
]


@pytest.mark.parametrize(("make", "name"), CLASSES)
@pytest.mark.parametrize("named", ["tokenizer_class", "model_type", "tokenizer_class of the model"])
def test_a_vocabulary_is_read_by_the_rules_of_its_class(
    make: Any, name: str, named: str, tmp_path: pathlib.Path
) -> None:
    """A vocabulary file without tokenizer.json, with its class in either config."""
    model_type = name.removesuffix("Fast").removesuffix("Tokenizer").lower()
    config = {"tokenizer_class": name} if named == "tokenizer_class" else {}
    theirs = saved(make(), tmp_path, **{"tokenizer_class": name, "backend": None})
    (tmp_path / "tokenizer.json").unlink()
    if make is roberta:
        (tmp_path / "vocab.json").write_text(json.dumps(vocabulary(ROBERTA)))
        (tmp_path / "merges.txt").write_text("\n".join(map(" ".join, MERGES)))
    else:
        (tmp_path / "vocab.txt").write_text("\n".join(BERT if make is bert else MPNET))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    of_model = {"model_type": model_type} if named == "model_type" else {"tokenizer_class": name}
    if named != "tokenizer_class":
        (tmp_path / "config.json").write_text(json.dumps(of_model))
    ours = load_tokenizer(tmp_path)
    assert_equal_inputs(ours, theirs, ["the Baker sells", "unknowns", ""])
    (tmp_path / "copy").mkdir()
    copy_tokenizer(tmp_path, tmp_path / "copy")
    again = load_tokenizer(tmp_path / "copy")
    assert (again.sha256, again.separators, again.second_type) == (ours.sha256, ours.separators, ours.second_type)
    assert_equal_inputs(again, transformers.AutoTokenizer.from_pretrained(tmp_path / "copy"), ["the Baker", ""])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("BertJapaneseTokenizer", "its tokenizer_class BertJapaneseTokenizer is unknown here"),
        ("FunnelTokenizerFast", "its tokenizer_class FunnelTokenizer is unknown here"),
        ("RobertaTokenizer", "its tokenizer_class RobertaTokenizer reads vocab.json"),
        ("XLMRobertaTokenizer", "its tokenizer_class XLMRobertaTokenizer reads another file"),
    ],
)
def test_a_vocabulary_of_another_class_is_refused_by_name(name: str, message: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(BERT))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    with pytest.raises(UserError, match=message):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("make", [bert, roberta, mpnet])
@pytest.mark.parametrize("names", [None, ["input_ids", "attention_mask"], ["input_ids", "token_type_ids"]])
@pytest.mark.parametrize("name", ["", "PreTrainedTokenizerFast", "DistilBertTokenizer"])
def test_token_types_equal_the_types_of_transformers(
    make: Any, names: list[str] | None, name: str, tmp_path: pathlib.Path
) -> None:
    """Also in a copy, as an export has it."""
    if name == "DistilBertTokenizer" and make is not bert:
        return
    entries = {"model_input_names": names} | ({"tokenizer_class": name} if name else {})
    theirs = saved(make(), tmp_path, **entries)
    assert_equal_inputs(load_tokenizer(tmp_path), theirs)
    (tmp_path / "copy").mkdir()
    copy_tokenizer(tmp_path, tmp_path / "copy")
    assert_equal_inputs(load_tokenizer(tmp_path / "copy"), theirs)
    assert_equal_inputs(
        load_tokenizer(tmp_path / "copy"), transformers.AutoTokenizer.from_pretrained(tmp_path / "copy")
    )


def test_a_class_of_version_4_has_the_token_types_of_version_4(tmp_path: pathlib.Path) -> None:
    """Version 4 gives them for its general class, version 5 does not; a copy gives them in both."""
    saved(bert(), tmp_path, tokenizer_class="PreTrainedTokenizerFast", backend=None)
    ours = load_tokenizer(tmp_path)
    assert ours.second_type
    (tmp_path / "copy").mkdir()
    copy_tokenizer(tmp_path, tmp_path / "copy")
    assert_equal_inputs(ours, transformers.AutoTokenizer.from_pretrained(tmp_path / "copy"))


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (bert, {"do_lower_case": False}, "do_lower_case is True in it, but False in"),
        (bert, {"strip_accents": False}, "strip_accents is None in it, but False in"),
        (mpnet, {"tokenize_chinese_chars": False}, "tokenize_chinese_chars is True in it, but False in"),
        (roberta, {"add_prefix_space": True}, "add_prefix_space is False in it, but True in"),
    ],
)
def test_a_setting_that_contradicts_the_definition_is_refused(
    make: Any, settings: dict[str, Any], message: str, tmp_path: pathlib.Path
) -> None:
    theirs = make()
    expected = theirs(TEXTS[2] + "Été", add_special_tokens=False)["input_ids"]
    saved(theirs, tmp_path, **settings)
    with pytest.raises(UserError, match=message):
        load_tokenizer(tmp_path)
    # A class that does not follow the setting is read as transformers reads it.
    theirs = saved(make(), tmp_path / "general", tokenizer_class="PreTrainedTokenizerFast", **settings)
    ours = load_tokenizer(tmp_path / "general")
    assert_equal_inputs(ours, theirs)
    assert ours.encode_inputs([TEXTS[2] + "Été"]) == [expected]


@pytest.mark.parametrize(
    ("make", "settings"), [(bert, {"do_lower_case": False}), (roberta, {"add_prefix_space": True})]
)
def test_a_missing_setting_means_the_default_of_the_class(
    make: Any, settings: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    (name,) = settings
    changed = make(**settings)
    theirs = saved(changed, tmp_path, **{name: None})
    assert theirs("The baker")["input_ids"] != changed("The baker")["input_ids"]
    with pytest.raises(UserError, match=f"{name} is .* in it, but missing, which means .*, in tokenizer_config.json"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b""])
def test_a_byte_order_mark_and_spaces_after_a_token_are_no_part_of_it(mark: bytes, tmp_path: pathlib.Path) -> None:
    """As the library reads such a file; only the mark it takes for a part of the first token."""
    import tokenizers

    lines = [token + " \t" * (index % 3 == 1) for index, token in enumerate(BERT)]
    (tmp_path / "vocab.txt").write_bytes(mark + "\r\n".join(lines).encode())
    library = tokenizers.models.WordPiece.read_file(str(tmp_path / "vocab.txt"))
    ours = load_tokenizer(tmp_path)
    assert ours.tokens == tuple(BERT)
    assert {token.removeprefix("\ufeff"): token_id for token, token_id in library.items()} == vocabulary(BERT)


@pytest.mark.parametrize("general", [True, False])
def test_words_are_taken_as_they_are_without_add_prefix_space(general: bool, tmp_path: pathlib.Path) -> None:
    theirs = roberta()
    if general:
        theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=theirs._tokenizer, **ROLES)
    theirs = saved(theirs, tmp_path)
    words = ["the", "baker", "the"]
    expected = theirs(words, is_split_into_words=True, add_special_tokens=False)["input_ids"]
    assert [i for word in load_tokenizer(tmp_path).encode_words(words) for i in word] == expected


@pytest.mark.parametrize("general", [True, False])
def test_a_copy_for_words_encodes_them_as_the_model_learned_them(general: bool, tmp_path: pathlib.Path) -> None:
    """With a space before each word, in transformers as here, although the source has no `add_prefix_space`."""
    theirs = roberta()
    if general:
        theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=theirs._tokenizer, **ROLES)
    theirs.add_tokens(["[E1]"], special_tokens=True)
    for name in ("source", "copy"):
        (tmp_path / name).mkdir()
    saved(theirs, tmp_path / "source")
    source = load_tokenizer(tmp_path / "source")
    words = ["the", "baker", "[E1]", "[E1].", "a[E1]b[E1]", " the"]
    learned = dataclasses.replace(source, spaces_words=True).encode_words(words)
    assert learned == source.encode_inputs([" the", " baker", "[E1]", "[E1] .", " a[E1] b[E1]", " the"])
    copy_tokenizer(tmp_path / "source", tmp_path / "copy", spaces_words=True)
    copy = transformers.AutoTokenizer.from_pretrained(tmp_path / "copy")
    encoded = copy(words, is_split_into_words=True, add_special_tokens=False)["input_ids"]
    assert encoded == [i for word in learned for i in word]
    assert load_tokenizer(tmp_path / "copy").encode_words(words) == learned


NORMALIZERS = tokenizers.normalizers
CHAIN = NORMALIZERS.Sequence([NORMALIZERS.Lowercase(), NORMALIZERS.BertNormalizer(lowercase=False)])


@pytest.mark.parametrize(
    ("make", "name", "config", "normalizer"),
    [
        (roberta, "RobertaTokenizer", {"add_prefix_space": False}, NORMALIZERS.Lowercase()),
        (roberta, "RobertaTokenizer", {}, NORMALIZERS.Sequence([NORMALIZERS.Lowercase(), NORMALIZERS.NFKC()])),
        (bert, "BertTokenizer", {"do_lower_case": True}, CHAIN),
        (mpnet, "MPNetTokenizer", {"do_lower_case": True}, NORMALIZERS.Lowercase()),
    ],
)
def test_a_normalizer_that_version_5_ignores_is_applied_as_by_version_4(
    make: Any, name: str, config: dict[str, Any], normalizer: Any, tmp_path: pathlib.Path
) -> None:
    """Version 4 opened tokenizer.json with the library alone, and so does the general class of both versions."""
    (source := tmp_path / "source").mkdir()
    (copy := tmp_path / "copy").mkdir()
    library = make().backend_tokenizer
    library.normalizer = normalizer
    library.save(str(source / "tokenizer.json"))
    roles = {role: str(token) for role, token in make().special_tokens_map.items()}
    config = {"tokenizer_class": f"{name}Fast", **config, **roles}
    (source / "tokenizer_config.json").write_text(json.dumps(config))
    ours = load_tokenizer(source)
    copy_tokenizer(source, copy)
    theirs = transformers.AutoTokenizer.from_pretrained(copy)
    for text in ("THE Baker", "ﬁne THÉ 中", "the"):
        expected = library.encode(text, add_special_tokens=False).ids
        assert ours.encode_inputs([text])[0] == expected
        assert theirs(text, add_special_tokens=False)["input_ids"] == expected
    assert theirs.mask_token == roles["mask_token"]

    (source / "tokenizer_config.json").write_text(json.dumps({**config, "backend": "tokenizers"}))
    with pytest.raises(UserError, match=r"of transformers 5 ignores the normalizer|make them equal"):
        load_tokenizer(source)


def test_the_mask_token_of_version_5_leaves_the_space_before_it(tmp_path: pathlib.Path) -> None:
    """In a directory with the vocabulary alone; version 4 took the space into the mask token."""
    theirs = saved(roberta(), tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary(ROBERTA)))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in MERGES))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "the <mask> bread"
    assert load_tokenizer(tmp_path).encode_inputs([text])[0] == theirs(text, add_special_tokens=False)["input_ids"]
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != "backend"}))
    without_space = theirs("the<mask> bread", add_special_tokens=False)["input_ids"]
    assert load_tokenizer(tmp_path).encode_inputs([text])[0] == without_space
