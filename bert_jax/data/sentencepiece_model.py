"""SentencePiece unigram models as in ALBERT: `spiece.model`.

After Kudo and Richardson 2018 and google-research/albert, tokenization.py: quotes are made equal, accents and capitals
go, characters are mapped by the table in the model, each word gets a leading '▁' and is cut into its likeliest pieces.
"""

import base64
import importlib
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from bert_jax.data import tokenizer_json
from bert_jax.data.tokenizer_json import Definition, Special
from bert_jax.errors import UserError

SPECIAL = Special("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
SEPARATORS = 1
SPACE = "▁"
# What ALBERT's splitting takes for granted about a model.
TRAINER = {"model_type": 1, "byte_fallback": False}  # 1: unigram
NORMALIZER = {"add_dummy_prefix": True, "remove_extra_whitespaces": True, "escape_whitespaces": True}


def define(
    pieces: Sequence[tuple[str, float]],
    unk_id: int,
    character_map: bytes,
    special: Special = SPECIAL,
    lowercase: bool = True,
    keep_accents: bool = False,
) -> Definition:
    """The definition of pieces with their scores (natural logarithms) in the order of ids.

    Args:
        pieces: special tokens included.
        unk_id: of the piece that stands for what has none.
        character_map: SentencePiece's compiled normalisation; empty for none.
        special: what the special tokens are called.
        lowercase, keep_accents: what ALBERT does before that map.
    """
    normalizers: list[Definition] = [_replace({"String": "``"}, '"'), _replace({"String": "''"}, '"')]
    if not keep_accents:
        normalizers += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if lowercase:
        normalizers.append({"type": "Lowercase"})
    if character_map:
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(character_map).decode()})
    normalizers.append(_replace({"Regex": " {2,}"}, " "))
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
    return tokenizer_json.assemble(
        special,
        {piece: number for number, (piece, _) in enumerate(pieces)},
        SEPARATORS,
        mask_takes_space=True,
        normalizer={"type": "Sequence", "normalizers": normalizers},
        pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        decoder=metaspace,
        model={
            "type": "Unigram",
            "unk_id": unk_id,
            "vocab": [[piece, score] for piece, score in pieces],
            "byte_fallback": False,
        },
    )


def read(path: pathlib.Path, special: Special, config: Mapping[str, Any], lowercase: bool | None) -> Definition:
    """The definition of a `spiece.model`, normalised as `do_lower_case` and `keep_accents` of the config say.

    Raises:
        UserError: cut short, not a unigram model, settings that ALBERT's splitting does not have, or the special
            tokens are not among the pieces.
    """
    try:
        format_of = importlib.import_module("sentencepiece.sentencepiece_model_pb2")
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise UserError(f"reading it needs {error.name}; install sentencepiece and protobuf") from None
    model = format_of.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
        whole = model.pieces and model.HasField("trainer_spec") and model.HasField("normalizer_spec")
    except DecodeError:
        whole = False
    if not whole:
        raise UserError("not a SentencePiece model, or cut short; copy it again")
    for spec, wanted in ((model.trainer_spec, TRAINER), (model.normalizer_spec, NORMALIZER)):
        for name, value in wanted.items():
            if getattr(spec, name) != value:
                raise UserError(
                    f"{name} of this model is {getattr(spec, name)}; ALBERT's unigram models have {value}."
                    " Save it as tokenizer.json with transformers"
                )
    pieces = [(piece.piece, _score(piece.piece, piece.score)) for piece in model.pieces]
    lowercase = bool(config.get("do_lower_case", True if lowercase is None else lowercase))
    character_map = model.normalizer_spec.precompiled_charsmap
    keep_accents = bool(config.get("keep_accents"))
    return define(pieces, model.trainer_spec.unk_id, character_map, special, lowercase, keep_accents)


def _score(piece: str, score: float) -> float:
    """ALBERT cuts '9,' into '9' and ',' again; here such a piece is made so unlikely that it is never taken."""
    return score - 100 if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit() else score


def _replace(pattern: Mapping[str, str], new: str) -> Definition:
    return {"type": "Replace", "pattern": pattern, "content": new}
