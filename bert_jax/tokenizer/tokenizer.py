"""The class `Tokenizer`, which encodes text as ids and decodes ids, built from the content of a `tokenizer.json`."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tokenizers

from bert_jax.errors import UserError
from bert_jax.tokenizer import bounds, tokenizer_json, wordpiece
from bert_jax.tokenizer.kinds import TokenizerKind, tokenizer_kind_of
from bert_jax.tokenizer.tokenizer_json import Definition, SpecialTokens
from bert_jax.tokenizer.wordpiece import Normalizer

SPECIAL_TOKENS = tuple(wordpiece.SPECIAL)  # BERT's special tokens


class EncodedText(NamedTuple):
    """The token ids of a text, with the characters and the word of each token."""

    ids: list[int]
    offsets: list[tuple[int, int]]  # (index of the first character, index after the last character)
    words: list[int | None]  # index of the token's word; the tokenizer splits text into words, then words into tokens


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Tokenizer:
    """A tokenizer, which can be pickled.

    The functions `load_tokenizer`, `build_tokenizer` and `wordpiece_tokenizer` return a Tokenizer.

    Attributes:
        kind: the kind of the tokenizer, a row of `TOKENIZERS`.
        definition: the content of tokenizer.json.
        special: the names of the special tokens.
        tokens: all tokens in the order of ids.
        sha256: digest of everything that decides the ids of a text.
        pad_id, unk_id, cls_id, sep_id, mask_id: ids of the special tokens.
        separators: number of [SEP] tokens between the two texts of a pair.
        second_type: True if the second text of a pair has token type 1; otherwise all tokens have type 0.
        spaces_words: True if `encode_words` encodes a word like a word inside a sentence. `load_tokenizer` sets False:
            each word is encoded as a separate text, and only `add_prefix_space` adds a space before the word, as in
            transformers.
        lowercase: True if the vocabulary is uncased.
        continues: whether each token continues the word before it, bool [vocab_size]; False for special and added
            tokens.
        with_special_tokens: library tokenizer that encodes every added token spelled in a text, even '[MASK]', as that
            token.
        plain: library tokenizer that encodes a spelled '[MASK]' as a bracket, a word and a bracket. Only added tokens
            that are not in `special` are encoded as tokens.
    """

    kind: TokenizerKind
    definition: Definition
    special: SpecialTokens
    tokens: tuple[str, ...]
    sha256: str
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    separators: int
    second_type: bool
    spaces_words: bool
    lowercase: bool
    continues: np.ndarray
    with_special_tokens: tokenizers.Tokenizer
    plain: tokenizers.Tokenizer

    def __repr__(self) -> str:
        return f"<Tokenizer {self.kind.name}: {self.vocab_size:,} tokens{', uncased' if self.lowercase else ''}>"

    @property
    def vocab_size(self) -> int:
        """Number of tokens of the vocabulary; every id is smaller than this number."""
        return len(self.tokens)

    @property
    def special_ids(self) -> dict[str, int]:
        """Role of a special token (pad, unk, cls, sep, mask) -> its id."""
        return {role: getattr(self, f"{role}_id") for role in self.special._fields}

    @property
    def normalizer(self) -> Normalizer:
        """The normalization of a text before WordPiece splits the text."""
        return wordpiece.normalizer_of(self.definition)

    def encode_sentences(self, sentences: Sequence[str]) -> list[list[int]]:
        """Return the ids of each sentence of a corpus, without [CLS] and [SEP] around it.

        If a sentence spells [PAD], [UNK], [CLS], [SEP] or [MASK], the characters become ordinary tokens, so that no
        text of a corpus can forge [SEP]. If a sentence spells any other added token, the characters become that token.
        """
        return _encode_texts(self.plain, sentences)

    def encode_with_offsets(self, texts: Sequence[str]) -> list[EncodedText]:
        """Return the ids of each text as `encode_sentences` does, with the characters and the word of each id."""
        return _encode_texts_with_offsets(self.plain, texts)

    def encode_inputs(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text that a user gives a model, without [CLS] and [SEP] around it.

        As in transformers, every special or added token that is spelled in a text becomes that token.
        """
        return _encode_texts(self.with_special_tokens, texts)

    def encode_inputs_with_offsets(self, texts: Sequence[str]) -> list[EncodedText]:
        """Return the ids of each text as `encode_inputs` does, with the characters and the word of each id."""
        return _encode_texts_with_offsets(self.with_special_tokens, texts)

    def spells_special_token(self, ids: Sequence[int]) -> bool:
        """Return whether the ids of a text include [PAD], [CLS], [SEP] or [MASK]."""
        return not self._spelled_ids.isdisjoint(ids)

    def is_mostly_unknown(self, ids: Sequence[int]) -> bool:
        """Return whether the ids of a text have more unknown tokens than known tokens; special tokens do not count."""
        num_unknown = ids.count(self.unk_id)
        return num_unknown > 0 and 2 * num_unknown > sum(token not in self._spelled_ids for token in ids)

    @functools.cached_property
    def _spelled_ids(self) -> frozenset[int]:
        """Ids of the special tokens that a text contains only if the text spells the tokens."""
        return frozenset((self.pad_id, self.cls_id, self.sep_id, self.mask_id))

    def normalize_parts(self, parts: Sequence[str]) -> list[str]:
        """Return each part of a text after normalization; each part is normalized as if it were between two digits."""
        normalizer = self.plain.normalizer
        if normalizer is None:
            return list(parts)
        with _library_errors_as_user_errors():
            before = normalizer.normalize_str("00").index("0") + 1  # some normalizers begin every text with a mark
            return [normalizer.normalize_str(f"0{part}0")[before:-1] for part in parts]

    def words_as_inside_sentence(self, words: Sequence[str]) -> list[str]:
        """Return each word with the prefix that makes the tokenizer encode it like a word inside a sentence.

        An added token inside a word gets no prefix, and the characters before and after the token are treated as words,
        as with the option `is_split_into_words` of transformers.
        """
        prefix = self.kind.word_prefix
        if not prefix:
            return list(words)
        added = sorted((token["content"] for token in self.definition["added_tokens"]), key=len, reverse=True)
        parts = (re.split(f"({'|'.join(map(re.escape, added))})", word) if added else [word] for word in words)
        return [
            "".join(part if not part or part in added or part.startswith(prefix) else prefix + part for part in of_word)
            for of_word in parts
        ]

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Return the ids of each word of a sentence given as words; a word without ids becomes the unknown token."""
        texts = self.words_as_inside_sentence(words) if self.spaces_words else words
        return [ids or [self.unk_id] for ids in self.encode_inputs(texts)]

    def encode(self, text: str) -> list[int]:
        """Return the ids of [CLS], the text and [SEP]; a special token spelled in the text becomes that token."""
        with _library_errors_as_user_errors():
            return self.with_special_tokens.encode(text).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids, special tokens included.

        Raises:
            UserError: an id is outside the vocabulary.
        """
        outside = [token_id for token_id in ids if not 0 <= token_id < self.vocab_size]
        if outside:
            raise UserError(
                f"id {outside[0]} is outside the vocabulary of {self.vocab_size:,} tokens; did another "
                "tokenizer make it?"
            )
        with _library_errors_as_user_errors():
            return self.with_special_tokens.decode(list(ids), skip_special_tokens=False)

    def __reduce__(self) -> tuple[Callable[..., "Tokenizer"], tuple[Definition, SpecialTokens, bool, bool]]:
        return build_tokenizer, (self.definition, self.special, self.second_type, self.spaces_words)


def wordpiece_tokenizer(tokens: Sequence[str], normalizer: Normalizer) -> Tokenizer:
    """Return the tokenizer of a WordPiece vocabulary given in the order of ids.

    Raises:
        UserError: a special token is missing, or a token occurs twice.
    """
    return build_tokenizer(wordpiece.define_wordpiece(tokens, normalizer), wordpiece.SPECIAL)


def build_tokenizer(
    definition: Definition,
    special: SpecialTokens,
    has_token_types: bool = True,
    spaces_words: bool = False,
    kind: TokenizerKind | None = None,
    tokens: tuple[str, ...] | None = None,
) -> Tokenizer:
    """Return the tokenizer that a definition describes.

    Args:
        definition: the content of a tokenizer.json.
        special: names of the special tokens.
        has_token_types: if False, all tokens have the type 0, whatever the definition says.
        spaces_words: whether `encode_words` encodes a word like a word inside a sentence.
        kind: the kind of the definition, if the caller has already looked it up.
        tokens: the tokens of the definition in the order of ids, if the caller has already read them.

    Raises:
        UserError: the kind is unknown, or the definition is broken.
    """
    kind = kind or tokenizer_kind_of(definition)
    bounds.refuse_unsafe_definition(definition)
    tokens = tokens or tokenizer_json.tokens_in_id_order(definition)
    separators, second_type = tokenizer_json.pair_layout(definition, special)
    plain_definition = tokenizer_json.without_special_tokens(definition, special)
    with _library_errors_as_user_errors():
        with_special_tokens = tokenizers.Tokenizer.from_str(json.dumps(definition))
        plain = tokenizers.Tokenizer.from_str(json.dumps(plain_definition))
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    added_tokens = definition["added_tokens"]
    if with_special_tokens.get_vocab() != vocabulary or any(
        plain.token_to_id(token["content"]) != token["id"] for token in plain_definition["added_tokens"]
    ):
        raise UserError("the file and the library `tokenizers` give the added tokens different ids")
    digest = hashlib.sha256(json.dumps(kind.digest_content(definition, tokens, special)).encode()).hexdigest()
    continues = np.array(kind.continues(definition, tokens), bool)
    continues[[token["id"] for token in added_tokens]] = False  # the text is split around each added token
    continues.flags.writeable = False
    normalizers = list(tokenizer_json.steps_of_part(definition["normalizer"]))
    return Tokenizer(
        kind=kind,
        definition=definition,
        special=special,
        tokens=tokens,
        sha256=digest,
        **{f"{role}_id": vocabulary[token] for role, token in special._asdict().items()},
        separators=separators,
        second_type=second_type and has_token_types,
        spaces_words=spaces_words,
        lowercase=any(part.get("type") == "Lowercase" or bool(part.get("lowercase")) for part in normalizers),
        continues=continues,
        with_special_tokens=with_special_tokens,
        plain=plain,
    )


def _encode_texts(library: tokenizers.Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Return the ids of each text, without [CLS] and [SEP] around it."""
    with _library_errors_as_user_errors():
        return [encoded.ids for encoded in library.encode_batch_fast(texts, add_special_tokens=False)]


def _encode_texts_with_offsets(library: tokenizers.Tokenizer, texts: Sequence[str]) -> list[EncodedText]:
    """Return the ids of each text as `_encode_texts` does, with the characters and the word of each id."""
    with _library_errors_as_user_errors():
        encoded = library.encode_batch(texts, add_special_tokens=False)
    return [EncodedText(text.ids, text.offsets, text.word_ids) for text in encoded]


@contextlib.contextmanager
def _library_errors_as_user_errors() -> Iterator[None]:
    """Turn an error of the library `tokenizers` into a UserError.

    The library raises a bare Exception, or a PanicException, which is not a subclass of Exception.
    """
    try:
        yield
    except BaseException as error:
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        line = str(error).partition("\n")[0]
        raise UserError(f"the library tokenizers {tokenizers.__version__} gives up on this tokenizer: {line}") from None
