"""SentencePiece models, unigram and BPE: `spiece.model`.

After Kudo and Richardson 2018: characters are mapped by the table in the model, each word gets a leading '▁' and is
cut into its likeliest pieces (unigram) or by merging pairs (BPE). Unigram models that were not trained here are taken
for ALBERT's (google-research/albert, tokenization.py): before all that, quotes are made equal, accents and capitals go.
"""

import base64
import importlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.data.tokenizer import tokenizer_json
from bert_jax.data.tokenizer.tokenizer_json import Definition, Special
from bert_jax.errors import UserError

SPECIAL = Special("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
SEPARATORS = 1
SPACE = "▁"
UNIGRAM, BPE = 1, 2  # the types of models, as the library numbers them
# What splitting as below takes for granted about a model.
TRAINER = {"model_type": (UNIGRAM, BPE), "byte_fallback": (False,), "treat_whitespace_as_suffix": (False,)}
NORMALIZER = {"add_dummy_prefix": (True,), "remove_extra_whitespaces": (True,), "escape_whitespaces": (True,)}
OWN = "bert_jax/"  # before the name of the table in models trained here: nothing but it changes their text
FOLDED = "_cf"  # after the names of tables that fold case
NORMAL = 1  # the type of a piece that is no special token


def parse(data: bytes) -> Any:
    """The `ModelProto` in the bytes of a `spiece.model`; UserError for one cut short or of settings not known here."""
    try:
        format_of = importlib.import_module("sentencepiece.sentencepiece_model_pb2")
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise UserError(f"this needs {error.name}: pip install 'bert-jax[spm]'") from None
    model = format_of.ModelProto()
    try:
        model.ParseFromString(data)
        whole = model.pieces and model.HasField("trainer_spec") and model.HasField("normalizer_spec")
    except DecodeError:
        whole = False
    if not whole:
        raise UserError("not a SentencePiece model, or cut short; copy it again")
    for spec, wanted in ((model.trainer_spec, TRAINER), (model.normalizer_spec, NORMALIZER)):
        for name, values in wanted.items():
            if getattr(spec, name) not in values:
                raise UserError(
                    f"{name} of this model is {getattr(spec, name)}; known here is {' or '.join(map(str, values))}."
                    " Save it as tokenizer.json with transformers"
                )
    return model


def define(model: Any, normalizers: Sequence[Definition], special: Special = SPECIAL) -> Definition:
    """The definition of a parsed model.

    Args:
        model: from `parse`.
        normalizers: what happens to text before the model's own table.
        special: what the special tokens are called.

    Raises:
        UserError: the special tokens are not among the pieces.
    """
    table = model.normalizer_spec.precompiled_charsmap
    mapped = [{"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}] if table else []
    spaces = _replace({"Regex": " {2,}"}, " ")
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
    return tokenizer_json.assemble(
        special,
        {piece.piece: number for number, piece in enumerate(model.pieces)},
        SEPARATORS,
        mask_takes_space=True,
        normalizer={"type": "Sequence", "normalizers": [*normalizers, *mapped, spaces]},
        pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        decoder=metaspace,
        model=_CUTTING[model.trainer_spec.model_type](model),
    )


def continues(definition: Definition, tokens: Sequence[str]) -> list[bool]:
    """Whether each token goes on with the word before it."""
    return [not token.startswith(SPACE) for token in tokens]


def read(path: pathlib.Path, special: Special, config: Mapping[str, Any], lowercase: bool | None) -> Definition:
    """The definition of a `spiece.model`.

    ALBERT's are normalised as `do_lower_case` and `keep_accents` of the config say; the tables of others say it.

    Raises:
        UserError: as `parse` and `define`, or lower case is asked of a table that has it otherwise.
    """
    model = parse(path.read_bytes())
    asked = config.get("do_lower_case", lowercase)
    rule = model.normalizer_spec.name
    if _CUTTING[model.trainer_spec.model_type] is _unigram and not rule.startswith(OWN):
        normalizers = _alberts(asked is None or bool(asked), bool(config.get("keep_accents")))
        return _without_commas(define(model, normalizers, special))
    if asked is not None and bool(asked) != rule.endswith(FOLDED):
        raise UserError(f"do_lower_case is {asked}, but the model's own normalisation is {rule}")
    return define(model, folding(rule), special)


def folding(rule: str) -> list[Definition]:
    """What stands before the table called `rule`: where it folds case, a part that says so and changes nothing more."""
    return [{"type": "Lowercase"}] if rule.endswith(FOLDED) else []


def _alberts(lowercase: bool, keep_accents: bool) -> list[Definition]:
    """What ALBERT does to text before the table."""
    normalizers: list[Definition] = [_replace({"String": "``"}, '"'), _replace({"String": "''"}, '"')]
    if not keep_accents:
        normalizers += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if lowercase:
        normalizers.append({"type": "Lowercase"})
    return normalizers


def _without_commas(definition: Definition) -> Definition:
    """ALBERT cuts '9,' into '9' and ',' again; here such a piece is made so unlikely that it is never taken."""
    vocabulary = [[piece, score - 100 * _is_comma(piece)] for piece, score in definition["model"]["vocab"]]
    return {**definition, "model": {**definition["model"], "vocab": vocabulary}}


def _is_comma(piece: str) -> bool:
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def _unigram(model: Any) -> Definition:
    return {
        "type": "Unigram",
        "unk_id": model.trainer_spec.unk_id,
        "vocab": [[piece.piece, piece.score] for piece in model.pieces],
        "byte_fallback": False,
    }


def _bpe(model: Any) -> Definition:
    """Pieces as merges: SentencePiece merges whatever two pieces make the piece of the highest score."""
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
        "vocab": {piece.piece: number for number, piece in enumerate(model.pieces)},
        "merges": merges,
    }


def _replace(pattern: Mapping[str, str], new: str) -> Definition:
    return {"type": "Replace", "pattern": pattern, "content": new}


_CUTTING = {UNIGRAM: _unigram, BPE: _bpe}
