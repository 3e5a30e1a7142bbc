"""A `tokenizer.json` from outside: patterns without end, texts that grow, panics, values of other types."""

import base64
import copy
import json
import random

import pytest

from bert_jax.errors import UserError
from bert_jax.tokenizer import SPECIAL_TOKENS, byte_level, load_tokenizer
from bert_jax.tokenizer.bounds import PATTERNS
from bert_jax.tokenizer.tokenizer import wordpiece_tokenizer
from bert_jax.tokenizer.wordpiece import Normalizer

TOKENS = [*SPECIAL_TOKENS, "a", "##a", "b"]
WORDPIECE = wordpiece_tokenizer(TOKENS, Normalizer()).definition
BYTES = byte_level.define_byte_level({token: i for i, token in enumerate([*byte_level.SPECIAL, "a", "b"])}, ())


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def replace(content, **pattern):
    return {"type": "Replace", "pattern": pattern, "content": content}


def sequence(*parts):
    return {"type": "Sequence", "normalizers": list(parts)}


def charsmap(*texts):
    return {
        "type": "Precompiled",
        "precompiled_charsmap": base64.b64encode(bytes(4) + b"\0".join(texts)).decode(),
    }


def load(place, definition):
    (place / "tokenizer.json").write_text(json.dumps(definition))
    return load_tokenizer(place)


HARMFUL = {
    "backtracking": ({"pre_tokenizer": split("(a|aa)+$")}, r"pre_tokenizer has the regular expression '\(a\|aa\)\+\$'"),
    "in a sequence": ({"normalizer": sequence(sequence(replace("", Regex="(a*)*b")))}, "has the regular expression"),
    "in the decoder": (
        {"decoder": {"type": "Sequence", "decoders": [replace("", Regex="x*y")]}},
        "decoder has",
    ),
    "longer": ({"normalizer": replace("bb", String="a")}, "replaces .* which is longer"),
    "longer spaces": ({"normalizer": replace("bb", Regex=" {2,}")}, "replaces .* which is longer"),
    "of nothing": ({"normalizer": replace("bb", String="")}, "replaces .* which is longer"),
    "doubling": ({"normalizer": sequence(*[{"type": "ByteLevel"}] * 2)}, "2 steps, some of them repeated"),
    "many": ({"normalizer": sequence(*[{"type": "Lowercase"}] * 17)}, "17 steps"),
    "no type": ({"normalizer": {"normalizers": [{"type": "ByteLevel"}] * 2}}, "a step without a type"),
    "prefix": ({"normalizer": {"type": "Prepend", "prepend": "x" * 9}}, "begins every text with more than 8"),
    "mapped": ({"normalizer": charsmap(b"a", b"x" * 65)}, "maps a character to more than 64 bytes"),
    "no base64": ({"normalizer": charsmap(b"") | {"precompiled_charsmap": "?"}}, "that is not base64"),
    "long words": ({"model": WORDPIECE["model"] | {"max_input_chars_per_word": 10**9}}, "give an integer of at most"),
}


@pytest.mark.parametrize("name", HARMFUL)
def test_a_definition_that_may_take_for_ever_is_refused(tmp_path, name):
    change, words = HARMFUL[name]
    with pytest.raises(UserError, match=words) as refusal:
        load(tmp_path, WORDPIECE | change)
    assert str(refusal.value).startswith(f"{tmp_path}/tokenizer.json: ")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", PATTERNS)
def test_the_patterns_of_published_tokenizers_take_no_time_on_odd_texts(tmp_path, name):
    """The library gives up, with a panic, after some ten million steps."""
    splitting = {"type": "Sequence", "pretokenizers": [split(PATTERNS[name]), BYTES["pre_tokenizer"]]}
    tokenizer = load(tmp_path, BYTES | {"pre_tokenizer": splitting})
    for text in ("a", " ", "\n", "'", "1", "!", " \n", "a1", "é", "\u3000", "'s", "\ta"):
        many = text * 5_000
        encoded = tokenizer.encode_sentences([many, many + "a", many + "\n", "!" + many + "1"])
        assert len(encoded[1]) >= len(encoded[0])


def test_a_panic_of_the_library_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(PATTERNS, "harmful", "(a|aa)+$")
    tokenizer = load(tmp_path, WORDPIECE | {"pre_tokenizer": split("(a|aa)+$")})
    for call in (tokenizer.encode_sentences, tokenizer.encode_with_offsets, lambda texts: tokenizer.encode(texts[0])):
        with pytest.raises(
            UserError, match=r"the library tokenizers .* gives up on this tokenizer: .*retry-limit"
        ) as refusal:
            call(["a" * 40 + "b"])
        assert "\n" not in str(refusal.value)


def places(value, path=()):
    """The way to every value inside a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


@pytest.mark.parametrize("base", [WORDPIECE, BYTES], ids=["wordpiece", "byte_level"])
def test_a_value_of_another_type_is_refused_or_harmless(tmp_path, base):
    rng, refused = random.Random(0), list[str]()
    ways = [way for way in places(base) if way]
    trials = [(way, junk) for way in ways for junk in (None, 3, -1, "x", [], {}, [[]], {"a": 1}, True, 1e300)]
    for way, junk in rng.sample(trials, 300):
        broken = copy.deepcopy(base)
        inner = broken
        for key in way[:-1]:
            inner = inner[key]
        inner[way[-1]] = junk
        try:
            load(tmp_path, broken).encode_sentences(["a text, or two", "é [MASK] " * 9])
        except UserError as error:
            refused.append(str(error))
    assert len(refused) > 100
    assert not [message for message in refused if "\n" in message]


@pytest.mark.parametrize(
    "beside",
    [{"added_tokens_decoder": [1]}, {"added_tokens_decoder": {"1": 2}}, {"mask_token": {"content": 3}}],
    ids=str,
)
def test_values_of_another_type_beside_a_vocabulary(tmp_path, beside):
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(beside))
    with pytest.raises(UserError, match=r"vocab\.txt: "):
        load_tokenizer(tmp_path)
