"""Text to ids and back: one small interface to vocabularies of every kind, and a directory that `AutoTokenizer` opens.

Opened are a `tokenizer.json`, and the vocabularies that models were published with before that file was: see the
table in `tokenizer_kinds`.
"""

import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tokenizers

from bert_jax.data.tokenizer import tokenizer_json
from bert_jax.data.tokenizer import wordpiece as wordpiece_files
from bert_jax.data.tokenizer.tokenizer_json import Definition, Special
from bert_jax.data.tokenizer.tokenizer_kinds import KINDS, Kind, kind_of
from bert_jax.data.tokenizer.training.algorithms import cut_text
from bert_jax.data.tokenizer.wordpiece import Normalizer
from bert_jax.errors import UserError

__all__ = [
    "SPECIAL_TOKENS",
    "Encoded",
    "Normalizer",
    "Tokenizer",
    "build",
    "copy_tokenizer",
    "cut_text",
    "load_tokenizer",
    "save",
    "tokenizer_files",
    "wordpiece",
]

DEFINITION = "tokenizer.json"
CONFIG = "tokenizer_config.json"
NAMES = "special_tokens_map.json"
ADDED = "added_tokens.json"
RAW = {kind.file: kind for kind in KINDS if kind.file}
FILES = (DEFINITION, CONFIG, NAMES, ADDED, *RAW, "merges.txt")
SPECIAL_TOKENS = tuple(wordpiece_files.SPECIAL)  # of BERT
MAX_LENGTH = 512  # tokens, for `AutoTokenizer`; an export puts that of its model


class Encoded(NamedTuple):
    """A text as ids, and where in the text each lies."""

    ids: list[int]
    offsets: list[tuple[int, int]]  # first character, and the one after the last


class Tokenizer(NamedTuple):
    """A vocabulary ready to use; made by `wordpiece`, `build` or `load_tokenizer`. Can be pickled."""

    kind: Kind
    definition: Definition  # what its tokenizer.json holds
    special: Special
    tokens: tuple[str, ...]
    sha256: str  # of all that decides which ids a text gets
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    separators: int  # [SEP]s between the two texts of a pair
    lowercase: bool  # whether the vocabulary is uncased
    continues: np.ndarray  # bool [vocab_size]: goes on with the word before it; False for special and added tokens
    reading_specials: tokenizers.Tokenizer  # '[MASK]' in a text is the special token
    plain: tokenizers.Tokenizer  # '[MASK]' in a text is a bracket, a word and a bracket

    @property
    def vocab_size(self) -> int:
        """Every id is below this."""
        return len(self.tokens)

    @property
    def normalizer(self) -> Normalizer:
        """Of a WordPiece vocabulary: what happens to text before it is split."""
        return wordpiece_files.normalizer_of(self.definition)

    @property
    def sentence_prefix(self) -> str:
        """What to put before every sentence but the first of a document, so that its words are those inside a text."""
        return self.kind.word_prefix

    def encode_sentences(self, sentences: Sequence[str]) -> list[list[int]]:
        """Ids of each text, without special tokens, even where a text spells one: a corpus cannot forge [SEP]."""
        return [found.ids for found in self.plain.encode_batch_fast(sentences, add_special_tokens=False)]

    def encode_with_offsets(self, texts: Sequence[str]) -> list[Encoded]:
        """As `encode_sentences`, with the characters of the text that each id stands for."""
        found = self.plain.encode_batch(texts, add_special_tokens=False)
        return [Encoded(one.ids, one.offsets) for one in found]

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Ids of each word of a sentence that is given as words; the unknown token for a word that has none."""
        prefix = self.kind.word_prefix
        texts = [word if word.startswith(prefix) else prefix + word for word in words]
        return [ids or [self.unk_id] for ids in self.encode_sentences(texts)]

    def encode(self, text: str) -> list[int]:
        """[CLS], the ids of the text, [SEP]; special tokens spelled in the text are taken as such."""
        return self.reading_specials.encode(text).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, special tokens included; UserError for an id beyond the vocabulary."""
        beyond = [number for number in ids if not 0 <= number < self.vocab_size]
        if beyond:
            raise UserError(f"id {beyond[0]} is beyond the vocabulary of {self.vocab_size:,} tokens: another model's?")
        return self.reading_specials.decode(list(ids), skip_special_tokens=False)

    def __reduce__(self) -> tuple[Callable[..., "Tokenizer"], tuple[Definition, Special]]:
        return build, (self.definition, self.special)


def wordpiece(tokens: Sequence[str], normalizer: Normalizer) -> Tokenizer:
    """The tokenizer of a WordPiece vocabulary in the order of its ids.

    Raises:
        UserError: a special token is missing, or a token is there twice.
    """
    return build(wordpiece_files.define(tokens, normalizer), wordpiece_files.SPECIAL)


def build(definition: Definition, special: Special) -> Tokenizer:
    """The tokenizer of what a tokenizer.json holds; UserError for a kind that is not known or a broken definition."""
    kind = kind_of(definition)
    tokens = tokenizer_json.tokens_of(definition)
    separators = tokenizer_json.separators_of(definition, special)
    try:
        reading_specials = _library_tokenizer(definition)
        plain = _library_tokenizer(tokenizer_json.without_special_tokens(definition, special))
    except Exception as error:  # the library raises nothing narrower
        raise UserError(f"the library tokenizers {tokenizers.__version__} cannot build it: {error}") from None
    vocabulary = {token: number for number, token in enumerate(tokens)}
    others = [token for token in definition["added_tokens"] if not token["special"]]
    if reading_specials.get_vocab() != vocabulary or any(
        plain.token_to_id(token["content"]) != token["id"] for token in others
    ):
        raise UserError("the added tokens have ids that the library tokenizers does not give them")
    digest = hashlib.sha256(json.dumps(kind.content(definition, tokens, special)).encode()).hexdigest()
    return Tokenizer(
        kind=kind,
        definition=definition,
        special=special,
        tokens=tokens,
        sha256=digest,
        **{f"{role}_id": vocabulary[token] for role, token in special._asdict().items()},
        separators=separators,
        lowercase=tokenizer_json.lowercases(definition),
        continues=_continues(kind, definition, tokens),
        reading_specials=reading_specials,
        plain=plain,
    )


def load_tokenizer(place: str | os.PathLike[str], lowercase: bool | None = None) -> Tokenizer:
    """The tokenizer of a directory, our own or a published one, or of a vocabulary file alone.

    A `tokenizer.json` is taken before the vocabulary beside it. How special tokens are called is read from
    `tokenizer_config.json` or `special_tokens_map.json`, else it is as in the models the kind is known from. Whether
    a raw vocabulary is uncased is read from `tokenizer_config.json`; without one it is `lowercase`, and where that is
    None too, it is as `tokenizer_kinds` says.

    Raises:
        UserError: no tokenizer there, a broken file, a kind that is not known, ids with holes, a special token missing,
            files that contradict each other, or `lowercase` against them.
    """
    path = _find(pathlib.Path(place))
    try:
        return _load(path, lowercase)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def save(tokenizer: Tokenizer, directory: str | os.PathLike[str], files: Mapping[str, bytes] = {}) -> None:
    """Writes `tokenizer.json` and `tokenizer_config.json`, which `AutoTokenizer` opens as they are, and `files`.

    A WordPiece vocabulary is also written as `vocab.txt`. The directory appears whole or not at all.

    Raises:
        OSError: the place cannot be written, or holds something.
    """
    directory = pathlib.Path(directory).absolute()
    partial = directory.with_name(f".{directory.name}.incomplete")
    try:
        partial.mkdir(parents=True, exist_ok=True)
        if tokenizer.kind.writes_file:
            (partial / tokenizer.kind.file).write_bytes("".join(token + "\n" for token in tokenizer.tokens).encode())
        for name, content in files.items():
            (partial / name).write_bytes(content)
        _write(tokenizer, partial, {})
        os.replace(partial, directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def tokenizer_files(directory: str | os.PathLike[str]) -> list[pathlib.Path]:
    """The files in a directory that belong to its tokenizer."""
    return [path for path in (pathlib.Path(directory) / name for name in FILES) if path.is_file()]


def copy_tokenizer(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copies a tokenizer's files into a directory that exists, so that `AutoTokenizer` opens it.

    A raw vocabulary gets its `tokenizer.json` and a complete `tokenizer_config.json`.

    Raises:
        UserError: as `load_tokenizer`.
        OSError: the target cannot be written.
    """
    source, target = pathlib.Path(source), pathlib.Path(target)
    tokenizer = load_tokenizer(source)
    for path in tokenizer_files(source):
        shutil.copyfile(path, target / path.name)
    if not ((source / DEFINITION).exists() and (source / CONFIG).exists()):
        _write(tokenizer, target, _json_beside(source / DEFINITION, CONFIG))


def _write(tokenizer: Tokenizer, directory: pathlib.Path, config: Mapping[str, Any]) -> None:
    """Definition and config; of the `config` given, what says nothing else than ours is kept."""
    types = ["token_type_ids"] * (tokenizer.separators == 1)
    own = {
        **tokenizer.kind.describe(tokenizer.definition, tokenizer.special),
        "model_input_names": ["input_ids", *types, "attention_mask"],
        **{f"{role}_token": token for role, token in tokenizer.special._asdict().items()},
    }
    text = json.dumps(tokenizer.definition, ensure_ascii=False, indent=2)
    (directory / DEFINITION).write_text(text, encoding="utf-8")
    text = json.dumps({"model_max_length": MAX_LENGTH, **config, **own}, indent=2)
    (directory / CONFIG).write_text(text + "\n", encoding="utf-8")


def _find(place: pathlib.Path) -> pathlib.Path:
    """The file that says what the tokenizer is."""
    opened = (DEFINITION, *RAW)
    if place.is_dir():
        found = [place / name for name in opened if (place / name).exists()]
        if len(found) > 1 and found[0].name != DEFINITION:
            raise UserError(f"{place} holds both {found[0].name} and {found[1].name}; name the file that is meant")
    else:
        found = [place] if place.exists() else []
    if not found:
        raise UserError(
            f"{place}: no such vocabulary; give a directory made by `tokenizer`, or one with {', '.join(opened[:-1])}"
            f" or {opened[-1]}"
        )
    return found[0]


def _load(path: pathlib.Path, lowercase: bool | None) -> Tokenizer:
    config = _json_beside(path, CONFIG)
    asked = config.get("do_lower_case", lowercase)
    if lowercase is not None and asked != lowercase:
        raise UserError(f"{CONFIG} says do_lower_case is {asked}, but {lowercase} was asked for")
    names = _json_beside(path, NAMES) | config
    if path.name == DEFINITION:
        return _load_definition(path, names, lowercase)
    kind = RAW.get(path.name, KINDS[0])
    special = _special(names, kind)
    assert kind.read
    try:
        tokenizer = build(kind.read(path, special, config, lowercase), special)
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})") from None
    more = {token["content"] for token in _added(config)} | _json_beside(path, ADDED).keys()
    if more - set(tokenizer.tokens):
        raise UserError(
            f"tokens were added to this vocabulary beside it ({', '.join(sorted(more - set(tokenizer.tokens)))});"
            f" save it with transformers, which writes {DEFINITION}"
        )
    return tokenizer


def _load_definition(path: pathlib.Path, config: Mapping[str, Any], lowercase: bool | None) -> Tokenizer:
    definition = tokenizer_json.checked(tokenizer_json.read_json(path))
    kind = kind_of(definition)
    special = _special(config, kind)
    tokens = tokenizer_json.tokens_of(definition)
    tokenizer_json.check_special_tokens(special, tokens)
    vocabulary = {token: number for number, token in enumerate(tokens)}
    # What transformers does for a file that leaves these out.
    definition = tokenizer_json.with_special_tokens(definition, special, vocabulary, kind.mask_takes_space)
    definition = tokenizer_json.with_post_processor(definition, special, vocabulary, kind.separators)
    tokenizer = build(definition, special)
    if lowercase is not None and lowercase != tokenizer.lowercase:
        raise UserError(f"its lower-casing is {tokenizer.lowercase}, but {lowercase} was asked for")
    for name, value in kind.settings(definition).items():
        if config.get(name, value) != value:
            raise UserError(f"{name} is {value} in it, but {config[name]} in {CONFIG}; make them agree")
    raw = path.parent / kind.file
    if kind.tokens and raw.exists():
        beside = kind.tokens(raw)
        if list(tokens[: len(beside)]) != beside:
            raise UserError(
                f"{raw.name} beside it, of {len(beside)} tokens, is not the tokenizer that is in it, of {len(tokens)};"
                " remove the wrong one, or prepare both again"
            )
    return tokenizer


def _continues(kind: Kind, definition: Definition, tokens: Sequence[str]) -> np.ndarray:
    found = np.array(kind.continues(definition, tokens), bool)
    found[[token["id"] for token in definition["added_tokens"]]] = False  # they part a text wherever they are found
    found.flags.writeable = False
    return found


def _library_tokenizer(definition: Definition) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(json.dumps(definition))


def _special(config: Mapping[str, Any], kind: Kind) -> Special:
    """What the special tokens are called; a config gives a name, or an object with the name as its `content`."""
    names: dict[str, str] = {}
    for role, usual in kind.special._asdict().items():
        found = config.get(f"{role}_token") or usual
        name = found.get("content") if isinstance(found, dict) else found
        if not isinstance(name, str):
            raise UserError(f"{CONFIG} or {NAMES} beside it gives {role}_token no name")
        names[role] = name
    return Special(**names)


def _added(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list((config.get("added_tokens_decoder") or {}).values())


def _json_beside(path: pathlib.Path, name: str) -> dict[str, Any]:
    """The object in a file beside `path`, empty where there is no such file."""
    beside = path.with_name(name)
    return tokenizer_json.read_json(beside) if beside.exists() else {}
