"""WordPiece: training, loading published vocabularies, and a directory that `AutoTokenizer` opens as it is.

After google-research/bert, tokenization.py: text is cleaned, Chinese characters are parted, words are split at
whitespace and punctuation and then into the longest pieces of the vocabulary, a piece inside a word marked '##'.
"""

import collections
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from bert_jax.errors import UserError

VOCABULARY = "vocab.txt"
CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LIMIT_ALPHABET = 1000  # characters that a trained vocabulary knows one by one; rarer ones become [UNK]
MIN_FREQUENCY = 2  # of a piece that training makes
MAX_WORD = 100  # characters; a longer word is [UNK]
MAX_TEXT = 8192  # characters that the library is given at once; its memory is a hundred times that


class Normalizer(NamedTuple):
    """What happens to text before it is split; the field names are those of `tokenizer_config.json`."""

    do_lower_case: bool = True
    strip_accents: bool | None = None  # None: as do_lower_case
    tokenize_chinese_chars: bool = True


class Tokenizer(NamedTuple):
    """A vocabulary ready to use; made by `wordpiece`, `train_wordpiece` or `load_tokenizer`."""

    tokens: tuple[str, ...]
    normalizer: Normalizer
    sha256: str  # of the tokens in order and the normaliser
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    reading_specials: tokenizers.Tokenizer  # '[MASK]' in a text is the special token
    plain: tokenizers.Tokenizer  # '[MASK]' in a text is a bracket, a word and a bracket

    @property
    def vocab_size(self) -> int:
        """Every id is below this."""
        return len(self.tokens)

    @property
    def lowercase(self) -> bool:
        """Whether the vocabulary is uncased."""
        return self.normalizer.do_lower_case

    def encode_sentences(self, sentences: Sequence[str]) -> list[list[int]]:
        """Ids of each text, without special tokens, even where a text spells one: a corpus cannot forge [SEP]."""
        return [found.ids for found in self.plain.encode_batch_fast(sentences, add_special_tokens=False)]

    def encode(self, text: str) -> list[int]:
        """[CLS], the ids of the text, [SEP]; special tokens spelled in the text are taken as such."""
        return self.reading_specials.encode(text).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, special tokens included."""
        return self.reading_specials.decode(list(ids), skip_special_tokens=False)


def wordpiece(tokens: Sequence[str], normalizer: Normalizer) -> Tokenizer:
    """The tokenizer of a vocabulary in the order of its ids.

    Raises:
        UserError: a special token is missing.
    """
    vocabulary = {token: number for number, token in enumerate(tokens)}
    missing = [token for token in SPECIAL_TOKENS if token not in vocabulary]
    if missing:
        raise UserError(
            f"the vocabulary has no {' '.join(missing)}; a BERT vocabulary holds {' '.join(SPECIAL_TOKENS)}"
        )
    content = ["wordpiece", list(tokens), normalizer._asdict(), MAX_WORD]
    sha256 = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    plain = _library_tokenizer(normalizer, vocabulary)
    plain.encode_special_tokens = True
    return Tokenizer(
        tokens=tuple(tokens),
        normalizer=normalizer,
        sha256=sha256,
        pad_id=vocabulary["[PAD]"],
        unk_id=vocabulary["[UNK]"],
        cls_id=vocabulary["[CLS]"],
        sep_id=vocabulary["[SEP]"],
        mask_id=vocabulary["[MASK]"],
        reading_specials=_library_tokenizer(normalizer, vocabulary),
        plain=plain,
    )


def train_wordpiece(documents: Callable[[], Iterable[str]], vocab_size: int, lowercase: bool = True) -> Tokenizer:
    """A vocabulary of exactly `vocab_size` tokens made from text; the same text gives the same vocabulary.

    Memory grows with the number of different words, not with the text.

    Args:
        documents: gives the texts from the first on each time it is called, which is twice.
        vocab_size: special tokens included.
        lowercase: uncased, which also strips accents.

    Raises:
        UserError: no text, or a size that the text cannot fill or that its characters alone overflow.
    """
    normalizer = Normalizer(do_lower_case=lowercase)
    untrained = _library_tokenizer(normalizer, {})
    characters, inside_words = _alphabet(documents(), untrained)
    if not characters:
        raise UserError("the text to train a vocabulary from is empty; give files with words in them")
    # The library numbers inner characters in the order of a hash map, and ties between pieces are broken by number.
    # Listed among the special tokens they have a fixed order, and two runs agree.
    first = [*SPECIAL_TOKENS, *("##" + character for character in inside_words)]
    least = len(first) + len(characters)
    if vocab_size < least:
        raise UserError(f"--vocab_size {vocab_size:,} is too small: special tokens and characters alone are {least:,}")
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=MIN_FREQUENCY,
        show_progress=False,
        special_tokens=first,
        initial_alphabet=characters,
        limit_alphabet=len(characters),
    )
    pieces = (piece for text in documents() for piece in cut_text(text))
    untrained.train_from_iterator(pieces, trainer)
    numbers = untrained.get_vocab()
    if len(numbers) < vocab_size:
        raise UserError(
            f"the text fills a vocabulary of {len(numbers):,} tokens, not of {vocab_size:,};"
            f" give more text or --vocab_size {len(numbers)}"
        )
    return wordpiece(sorted(numbers, key=numbers.__getitem__), normalizer)


def save(tokenizer: Tokenizer, directory: str | os.PathLike[str]) -> None:
    """Writes `vocab.txt`, `tokenizer.json` and `tokenizer_config.json`, which `AutoTokenizer` opens as they are.

    The directory appears whole or not at all.

    Raises:
        OSError: the place cannot be written, or holds something.
    """
    directory = pathlib.Path(directory).absolute()
    config = {
        "tokenizer_class": "BertTokenizer",
        **tokenizer.normalizer._asdict(),
        "model_max_length": 512,
        **{f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS},
    }
    partial = directory.with_name(f".{directory.name}.incomplete")
    try:
        partial.mkdir(parents=True, exist_ok=True)
        (partial / VOCABULARY).write_bytes("".join(token + "\n" for token in tokenizer.tokens).encode())
        (partial / "tokenizer.json").write_text(tokenizer.reading_specials.to_str(pretty=True), encoding="utf-8")
        (partial / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        os.replace(partial, directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def load_tokenizer(place: str | os.PathLike[str], lowercase: bool | None = None) -> Tokenizer:
    """The tokenizer of a directory, our own or a published one, or of a `vocab.txt` alone.

    Whether it is uncased is read from the `tokenizer_config.json` beside the vocabulary; without one it is
    `lowercase`, and where that is None too, uncased unless the vocabulary holds a capital letter.

    Raises:
        UserError: no vocabulary there, not UTF-8, a special token missing, or `lowercase` against the config.
    """
    place = pathlib.Path(place)
    path = place / VOCABULARY if place.is_dir() else place
    try:
        text = path.read_bytes().decode()
    except OSError:
        raise UserError(
            f"{path}: no such vocabulary; give a directory made by `tokenizer`, or a published vocab.txt"
        ) from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a UTF-8 text, so not a vocabulary") from None
    # Not splitlines: a vocabulary may hold the other characters that end a line in Unicode.
    tokens = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
    try:
        return wordpiece(tokens, _normalizer(path, tokens, lowercase))
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def cut_text(text: str, limit: int = MAX_TEXT) -> Iterator[str]:
    """The text in pieces of at most `limit` characters, cut after a space or line end where there is one."""
    start = 0
    while len(text) - start > limit:
        end = start + limit
        space = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
        end = space + 1 if space > start else end
        yield text[start:end]
        start = end
    yield text[start:]


def _normalizer(path: pathlib.Path, tokens: Sequence[str], lowercase: bool | None) -> Normalizer:
    config_path = path.parent / CONFIG
    if config_path.exists():
        try:
            config = json.loads(config_path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"{CONFIG} beside it is not a JSON file ({error})") from None
        known = {name: config[name] for name in Normalizer._fields if name in config}
        if lowercase is not None and known.get("do_lower_case", lowercase) != lowercase:
            raise UserError(f"{CONFIG} says do_lower_case is {not lowercase}, but {lowercase} was asked for")
        if "do_lower_case" in known:
            return Normalizer(**known)
    else:
        known = {}
    if lowercase is None:
        words = (token for token in tokens if token not in SPECIAL_TOKENS and not token.startswith("[unused"))
        lowercase = not any(token != token.lower() for token in words)
    return Normalizer(**known | {"do_lower_case": lowercase})


def _alphabet(documents: Iterable[str], tokenizer: tokenizers.Tokenizer) -> tuple[list[str], list[str]]:
    """The commonest `LIMIT_ALPHABET` characters after normalising, and those of them that can stand inside a word."""
    raw: collections.Counter[str] = collections.Counter()
    for text in documents:
        raw.update(text)
    counts: collections.Counter[str] = collections.Counter()
    for character, count in raw.items():
        for normal in tokenizer.normalizer.normalize_str(character):
            if not normal.isspace():
                counts[normal] += count
    common = sorted(counts, key=lambda character: (-counts[character], character))[:LIMIT_ALPHABET]
    inside = [c for c in common if len(tokenizer.pre_tokenizer.pre_tokenize_str("x" + c)) == 1]
    return sorted(common), sorted(inside)


def _library_tokenizer(normalizer: Normalizer, vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
    model = models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=MAX_WORD)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=normalizer.tokenize_chinese_chars,
        strip_accents=normalizer.strip_accents,
        lowercase=normalizer.do_lower_case,
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    if vocabulary:
        tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
        ends = [(token, vocabulary[token]) for token in ("[SEP]", "[CLS]")]
        tokenizer.post_processor = processors.BertProcessing(*ends)
    return tokenizer
