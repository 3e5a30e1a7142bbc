"""SentencePiece models (unigram and BPE) in files `spiece.model`.

As in Kudo and Richardson 2018, a table in the model maps the characters of a text, and each word gets a leading '▁'.
A unigram model then splits each word into its likeliest pieces; a BPE model merges pairs of pieces. A unigram model of
another program, except a model of BigBird, is read like ALBERT's model (google-research/albert, tokenization.py):
quotes are unified, and accents and capitals are removed, before the table maps the text.

In models trained by bert_jax, only the table changes the text (a row of NORMALIZATIONS, with case folding if uncased).
So the saved `spiece.model` describes such a model completely, with one exception: the library's rule `nfkc` keeps tabs,
which are unknown characters in the library, but spaces in bert_jax.
"""

import base64
import contextlib
import importlib
import io
import pathlib
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bert_jax.errors import UserError, needs_packages
from bert_jax.tokenizer import pair_merging, tokenizer_json
from bert_jax.tokenizer.pair_merging import TrainedVocabulary, TrainingText
from bert_jax.tokenizer.tokenizer_json import Definition, SpecialTokens

FILE, DEBERTA = "spiece.model", "spm.model"
SPECIAL = SpecialTokens("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
SEPARATORS = 1
BIG_BIRD = ("<pad>", "</s>", "<s>")
SPACE = "▁"
UNIGRAM, BPE = 1, 2  # numbers of the model types in the library
# The settings that a model must have, so that `define_sentencepiece` can express the model.
TRAINER = {"model_type": (UNIGRAM, BPE), "byte_fallback": (False,), "treat_whitespace_as_suffix": (False,)}
NORMALIZER = {"add_dummy_prefix": (True,), "remove_extra_whitespaces": (True,), "escape_whitespaces": (True,)}
OWN = "bert_jax/"  # prefix of the table's name in a model trained by bert_jax; only the table changes its text
DOTTED_I = "\u0130"  # the only letter that `Lowercase` changes and the tables leave unchanged
COMPOSING = "nfkc"  # part of the names of the library's tables that compose characters
FOLDED = "_cf"  # suffix of the names of tables that fold case
WHITE_SPACE = "".join(filter(str.isspace, map(chr, range(0x3001)))).replace(" ", "")
NORMAL = 1  # type of a piece that is not a special token

MAX_LINE = 1024  # maximum characters of a training line, each of at most 4 bytes
MAX_BYTES = 4192  # maximum size of a line; the library drops longer lines without an error
RESERVED = "▅"  # the library's mark of an unknown character; the library drops lines that contain this mark
THREADS = 16  # a fixed number, because it affects the last bits of the scores


def parse_spiece_model(
    files: Sequence[bytes], special: SpecialTokens, config: Mapping[str, Any], lowercase: bool | None
) -> Definition:
    """Return the definition of a tokenizer from the bytes of its `spiece.model`.

    The arguments are as in `TokenizerClass.parse`. For ALBERT, the entries `do_lower_case` and `keep_accents` of the
    config decide the normalization; a table in the model decides the normalization of other models. For BigBird, only
    the table changes the text, as in the library that BigBird's authors use; this table keeps capitals.

    Raises:
        UserError: the model is cut or unsupported, a special token is missing, or `do_lower_case` contradicts the
            model's table.
    """
    model = parse_model_proto(files[0])
    asked = config.get("do_lower_case", lowercase)
    rule = model.normalizer_spec.name
    if _is_big_bird(model, config):
        normalizers = [{"type": "Lowercase"}] if asked else []
        return _with_control_pieces(define_sentencepiece(model, normalizers, special), model)
    if model.trainer_spec.model_type == UNIGRAM and not rule.startswith(OWN):
        normalizers = _albert_normalizers(asked is None or bool(asked), bool(config.get("keep_accents")))
        return _discourage_comma_pieces(define_sentencepiece(model, normalizers, special))
    if asked is not None and bool(asked) != rule.endswith(FOLDED):
        raise UserError(f"do_lower_case is {asked}, but the model's own normalization is {rule}")
    return define_sentencepiece(model, _case_folding_normalizers(rule), special)


def parse_spm_model(
    files: Sequence[bytes], special: SpecialTokens, config: Mapping[str, Any], lowercase: bool | None
) -> Definition:
    """Return the definition of a tokenizer from the bytes of the `spm.model` of DeBERTa 2 or 3.

    If the model has no mask token, a mask token is added after the pieces. Only the table of the model changes text, as
    in the library that DeBERTa's authors use. A cut or unsupported model raises UserError.
    """
    model = parse_model_proto(files[0])
    if config.get("split_by_punct"):
        raise UserError("split_by_punct is true in tokenizer_config.json; only false can be read")
    if special.mask not in {piece.piece for piece in model.pieces}:
        model.pieces.add(piece=special.mask, score=0.0)
    lower = config.get("do_lower_case", lowercase)
    return define_sentencepiece(model, [{"type": "Lowercase"}] if lower else [], special)


def parse_model_proto(data: bytes) -> Any:
    """Return the `ModelProto` in the bytes of a `spiece.model`; raise UserError for a cut or unsupported model."""
    with _needs_library():
        format_of = importlib.import_module("sentencepiece.sentencepiece_model_pb2")
        from google.protobuf.message import DecodeError
    model = format_of.ModelProto()
    try:
        model.ParseFromString(data)
        complete = model.pieces and model.HasField("trainer_spec") and model.HasField("normalizer_spec")
    except DecodeError:
        complete = False
    if not complete:
        raise UserError("not a complete SentencePiece model; copy the file again")
    for spec, supported in ((model.trainer_spec, TRAINER), (model.normalizer_spec, NORMALIZER)):
        for name, values in supported.items():
            if getattr(spec, name) not in values:
                raise UserError(
                    f"{name} of this model is {getattr(spec, name)}; supported is {' or '.join(map(str, values))}."
                    " Save it as tokenizer.json with transformers"
                )
    return model


def define_sentencepiece(model: Any, normalizers: Sequence[Definition], special: SpecialTokens = SPECIAL) -> Definition:
    """Return the definition of a tokenizer from a parsed SentencePiece model.

    Args:
        model: a parsed `ModelProto`.
        normalizers: steps that change a text before the table of the model does.
        special: names of the special tokens.

    Raises:
        UserError: a special token is not among the pieces.
    """
    table, rule = model.normalizer_spec.precompiled_charsmap, model.normalizer_spec.name
    mapped = [_precompiled_step(table)] if table else []
    if rule.startswith(OWN) and COMPOSING in rule:
        mapped = _composing_steps(table)
    spaces = _replace_step({"Regex": " {2,}"}, " ")
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
    return tokenizer_json.assemble_definition(
        special,
        {piece.piece: token_id for token_id, piece in enumerate(model.pieces)},
        SEPARATORS,
        mask_takes_space=True,
        normalizer={"type": "Sequence", "normalizers": [*normalizers, *mapped, spaces]},
        pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        decoder=metaspace,
        model=_LIBRARY_MODEL[model.trainer_spec.model_type](model),
    )


def sentencepiece_settings(definition: Definition) -> dict[str, Any]:
    """Return the settings of `tokenizer_config.json` that a SentencePiece definition implements."""
    normalizers = {step.get("type") for step in tokenizer_json.steps_of_part(definition["normalizer"])}
    pre_tokenizers = list(tokenizer_json.steps_of_part(definition["pre_tokenizer"]))
    return {
        "do_lower_case": "Lowercase" in normalizers,
        "keep_accents": "StripAccents" not in normalizers,
        "split_by_punct": any(step.get("type") == "Punctuation" for step in pre_tokenizers),
        # Files of early versions of the library have add_prefix_space instead of prepend_scheme.
        "add_prefix_space": any(
            step.get("prepend_scheme", step.get("add_prefix_space")) in ("always", True) for step in pre_tokenizers
        ),
    }


def sentencepiece_continuation_flags(definition: Definition, tokens: Sequence[str]) -> list[bool]:
    """Return, for each token, whether it continues the word before it: True without a leading '▁'."""
    return [not token.startswith(SPACE) for token in tokens]


def train_unigram(text: TrainingText, vocab_size: int, lowercase: bool, normalization: str) -> TrainedVocabulary:
    """Return a unigram vocabulary (Kudo 2018) of exactly `vocab_size` pieces, special tokens included.

    Training holds the whole text in memory. `normalization` is a row of `NORMALIZATIONS`.

    Raises:
        UserError: there is no text, the text cannot fill a vocabulary of this size, its distinct characters already
            exceed the size, or the library is missing.
    """
    return _train_sentencepiece("unigram", text, vocab_size, lowercase, normalization)


def train_sentencepiece_bpe(
    text: TrainingText, vocab_size: int, lowercase: bool, normalization: str
) -> TrainedVocabulary:
    """Return a SentencePiece BPE vocabulary of exactly `vocab_size` pieces; see `train_unigram`."""
    return _train_sentencepiece("bpe", text, vocab_size, lowercase, normalization)


def library_normalization_steps(rule: str) -> list[Definition]:
    """Return the normalizer steps that map text by the library's table `rule`, which composes characters.

    Raise UserError if the library sentencepiece is missing.
    """
    with _needs_library():
        library = importlib.import_module("sentencepiece")
        format_of = importlib.import_module("sentencepiece.sentencepiece_model_pb2")
    model = format_of.ModelProto.FromString(library.SentencePieceNormalizer(rule_name=rule).serialized_model_proto())
    return _composing_steps(model.normalizer_spec.precompiled_charsmap)


def _train_sentencepiece(
    model_type: str, text: TrainingText, vocab_size: int, lowercase: bool, normalization: str
) -> TrainedVocabulary:
    """Return a vocabulary of a SentencePiece model type ("unigram" or "bpe"), trained on a text."""
    with _needs_library():
        library = importlib.import_module("sentencepiece")
    rule = normalization + FOLDED * lowercase
    pair_merging.check_text_has_characters(text)
    written = io.BytesIO()
    try:
        with tempfile.TemporaryDirectory() as folder:
            table = NORMALIZATIONS[normalization](rule, pathlib.Path(folder, "rule.tsv"))
            replaced = _rare_characters_to_spaces(text, library.SentencePieceNormalizer(**table).normalize)
            if lowercase:
                replaced |= {ord(DOTTED_I): DOTTED_I.lower()}
            library.SentencePieceTrainer.train(
                sentence_iterator=iter(
                    sorted(_training_lines(text, replaced))
                ),  # sorted, so that the order of files has no effect
                model_writer=written,
                model_type=model_type,
                vocab_size=vocab_size,
                hard_vocab_limit=False,  # an unfilled vocabulary is refused below, in a message with the possible size
                **{f"normalization_{name}": value for name, value in table.items()},
                character_coverage=1.0,  # `replaced` has removed the rare characters
                max_sentence_length=MAX_BYTES,
                num_threads=THREADS,
                minloglevel=2,
                pad_id=0,
                unk_id=1,
                bos_id=2,
                eos_id=3,
                pad_piece=SPECIAL.pad,
                unk_piece=SPECIAL.unk,
                bos_piece=SPECIAL.cls,
                eos_piece=SPECIAL.sep,
                control_symbols=[SPECIAL.mask],
            )
    except RuntimeError as error:
        least = re.search(r"smaller than required_chars. \d+ vs (\d+)", str(error))
        if least:
            raise pair_merging.vocabulary_too_small_error(vocab_size, int(least[1])) from None
        raise UserError(f"sentencepiece cannot train on this text: {error}") from None
    model = parse_model_proto(written.getvalue())
    pair_merging.check_vocabulary_is_full(len(model.pieces), vocab_size)
    model.normalizer_spec.name = OWN + rule
    model.normalizer_spec.ClearField("normalization_rule_tsv")  # the field has the name of a deleted file
    definition = define_sentencepiece(model, _case_folding_normalizers(rule))
    return TrainedVocabulary(definition, {FILE: model.SerializeToString(deterministic=True)})


def _library_table_arguments(rule: str, path: pathlib.Path) -> dict[str, str]:
    """Return the arguments for SentencePiece's trainer that name a table of the library."""
    return {"rule_name": rule}


def _write_character_table(rule: str, path: pathlib.Path) -> dict[str, str]:
    """Write a table that changes only white space and perhaps capitals; return the trainer's arguments for the table.

    Capitals are changed if the rule folds case.
    """
    changed = dict.fromkeys(WHITE_SPACE, " ")
    if rule.endswith(FOLDED):
        changed |= {letter: letter.lower() for letter in map(chr, range(0x110000)) if letter.lower() != letter}
    lines = (
        f"{ord(character):X}\t{' '.join(f'{ord(target):X}' for target in to)}\n" for character, to in changed.items()
    )
    path.write_text("".join(lines))
    return {"rule_tsv": str(path)}


# Value of --normalization -> function (rule, path of a file to write) -> arguments for SentencePiece's trainer.
NORMALIZATIONS: dict[str, Callable[[str, pathlib.Path], dict[str, str]]] = {
    "nmt_nfkc": _library_table_arguments,
    "nfkc": _library_table_arguments,
    "identity": _write_character_table,
}


def _rare_characters_to_spaces(text: TrainingText, normalize: Callable[[str], str]) -> dict[int, str]:
    """Return a table for `str.translate` that replaces the rare characters outside the vocabulary with spaces."""
    spaces = str.maketrans(SPACE + RESERVED, "  ")  # the library puts SPACE before every text
    normal = {character: normalize(character).translate(spaces) for character in text.characters}
    known = {" ", *pair_merging.required_characters(text.characters, normal.__getitem__)}
    return {ord(character): " " for character in normal if not known.issuperset(normal[character])} | {
        ord(RESERVED): " "
    }


def _training_lines(text: TrainingText, replaced: dict[int, str]) -> Iterator[str]:
    """Yield the lines of a text, cut into parts that are short enough for the library, which drops longer lines."""
    for piece in text.pieces():
        for line in piece.translate(replaced).split("\n"):
            yield from (part for part in pair_merging.cut_text(line, MAX_LINE) if part and not part.isspace())


def _needs_library() -> contextlib.AbstractContextManager[None]:
    return needs_packages("a SentencePiece vocabulary or table", "sentencepiece protobuf")


def _case_folding_normalizers(rule: str) -> list[Definition]:
    """Return the normalizers before the table `rule`: `Lowercase`, a mark of uncased text, if the table folds case."""
    return [{"type": "Lowercase"}] if rule.endswith(FOLDED) else []


def _albert_normalizers(lowercase: bool, keep_accents: bool) -> list[Definition]:
    """Return the normalizers that ALBERT applies before the table."""
    normalizers: list[Definition] = [_replace_step({"String": "``"}, '"'), _replace_step({"String": "''"}, '"')]
    if not keep_accents:
        normalizers += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if lowercase:
        normalizers.append({"type": "Lowercase"})
    return normalizers


def _is_big_bird(model: Any, config: Mapping[str, Any]) -> bool:
    """Return whether a model has BigBird's first pieces, or a config names BigBird's tokenizer class."""
    first = tuple(piece.piece for piece in model.pieces[:3])
    return first == BIG_BIRD or str(config.get("tokenizer_class")).startswith("BigBird")


def _with_control_pieces(definition: Definition, model: Any) -> Definition:
    """Return the definition with `<s>` and `</s>` as special tokens that a text may spell, as in transformers."""
    known, ends = definition["added_tokens"], BIG_BIRD[1:]
    new = [
        {**known[0], "id": token_id, "content": piece.piece, "lstrip": False}
        for token_id, piece in enumerate(model.pieces)
        if piece.piece in ends
    ]
    return {**definition, "added_tokens": sorted([*known, *new], key=lambda token: token["id"])}


def _discourage_comma_pieces(definition: Definition) -> Definition:
    """Return the definition with negligible scores for pieces like '9,', which ALBERT splits into '9' and ','."""
    vocabulary = [[piece, score - 100 * _ends_in_comma(piece)] for piece, score in definition["model"]["vocab"]]
    return {**definition, "model": {**definition["model"], "vocab": vocabulary}}


def _ends_in_comma(piece: str) -> bool:
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def _unigram_model(model: Any) -> Definition:
    """Return the unigram model of the library for a parsed model."""
    return {
        "type": "Unigram",
        "unk_id": model.trainer_spec.unk_id,
        "vocab": [[piece.piece, piece.score] for piece in model.pieces],
        "byte_fallback": False,
    }


def _bpe_model(model: Any) -> Definition:
    """Return the BPE model of the library for a parsed model.

    The BPE model merges any two pieces that together form another piece; the merges are in the order of descending
    scores.
    """
    normal = {piece.piece: piece.score for piece in model.pieces if piece.type == NORMAL}
    merges = [
        [piece[:cut], piece[cut:]]
        for piece in sorted(normal, key=lambda piece: -normal[piece])
        for cut in range(1, len(piece))
        if piece[:cut] in normal and piece[cut:] in normal
    ]
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": model.pieces[model.trainer_spec.unk_id].piece,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": False,
        "vocab": {piece.piece: token_id for token_id, piece in enumerate(model.pieces)},
        "merges": merges,
    }


def _composing_steps(table: bytes) -> list[Definition]:
    """Return the normalizer steps that map text by a SentencePiece table that composes characters.

    The library `tokenizers` looks up a long sequence, such as a Korean syllable in parts, character by character. For a
    short sequence, `tokenizers` takes the shortest entry of the table, so that a second accent is lost. SentencePiece
    takes the longest entry. With a step NFC before and after the table, both libraries compose decomposed text alike.
    """
    return [{"type": "NFC"}, _precompiled_step(table), {"type": "NFC"}]


def _precompiled_step(table: bytes) -> Definition:
    """Return the normalizer that maps text by a SentencePiece table."""
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


def _replace_step(pattern: Mapping[str, str], new: str) -> Definition:
    """Return the normalizer that replaces a pattern with `new`."""
    return {"type": "Replace", "pattern": pattern, "content": new}


_LIBRARY_MODEL = {UNIGRAM: _unigram_model, BPE: _bpe_model}
