"""The tokenizer classes of transformers: their vocabulary files, rules and settings.

The rules follow transformers 4.57.1 and 5.24.0. A class builds its tokenizer from the vocabulary and from settings of
`tokenizer_config.json`, so these settings and `tokenizer.json` must agree.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert_jax.errors import UserError
from bert_jax.tokenizer import byte_level, sentencepiece, wordpiece
from bert_jax.tokenizer.tokenizer_json import Definition, SpecialTokens, steps_of_part

# (contents of the files, special tokens, tokenizer_config.json, lowercase or None) -> definition
Parse = Callable[[Sequence[bytes], SpecialTokens, Mapping[str, Any], bool | None], Definition]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerClass:
    """A tokenizer class of transformers; a row of CLASSES.

    Attributes:
        files: names of the vocabulary files of a directory without `tokenizer.json`; the first name identifies the row.
        parse: function (contents of `files`, special tokens, tokenizer_config.json, lowercase) -> definition; the
            function may raise UserError. `lowercase` is True, False, or None if the caller has no preference. If
            `parse` is None, bert_jax reads this class only from `tokenizer.json`.
        special: names of the special tokens if the directory does not give them.
        settings: the entries of `tokenizer_config.json` that the class follows, with their defaults.
        has_token_types: True if the class returns token types for a directory without `model_input_names`.
        has_token_types_in_5: value of `has_token_types` for transformers 5; None: equal to `has_token_types`.
        normalizer: type of the normalizer that the class builds in transformers 5, which ignores the normalizer of
            `tokenizer.json`; "" for a class without a normalizer; None if `settings` determine the normalizer.
    """

    files: tuple[str, ...] = ()
    parse: Parse | None = None
    special: SpecialTokens | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    has_token_types: bool = True
    has_token_types_in_5: bool | None = None
    normalizer: str | None = None


_GENERAL = TokenizerClass(has_token_types_in_5=False)  # the general class, which takes tokenizer.json as it is
_BERT = TokenizerClass(
    files=("vocab.txt",),
    parse=wordpiece.parse_vocab_txt,
    special=wordpiece.SPECIAL,
    settings=wordpiece.Normalizer()._asdict(),
    normalizer=wordpiece.NORMALIZER,
)
_ROBERTA = TokenizerClass(
    files=(byte_level.VOCABULARY, byte_level.MERGES),
    parse=byte_level.parse_vocab_json,
    special=byte_level.SPECIAL,
    settings={"add_prefix_space": False},
    has_token_types=False,
    normalizer="",
)
_ALBERT = TokenizerClass(
    files=(sentencepiece.FILE,),
    parse=sentencepiece.parse_spiece_model,
    special=sentencepiece.SPECIAL,
    settings={"do_lower_case": True, "keep_accents": False, "add_prefix_space": True},
    has_token_types_in_5=False,
)
GENERAL_CLASS = "PreTrainedTokenizerFast"  # name of the general class in files; transformers 4 and 5 know this name
CLASSES: dict[str, TokenizerClass] = {
    **dict.fromkeys(("BertTokenizer", "ElectraTokenizer", "MobileBertTokenizer", "ConvBertTokenizer"), _BERT),
    **dict.fromkeys(("SqueezeBertTokenizer", "LayoutLMTokenizer"), _BERT),
    "DistilBertTokenizer": dataclasses.replace(_BERT, has_token_types=False),
    "MPNetTokenizer": dataclasses.replace(
        _BERT,
        parse=functools.partial(wordpiece.parse_vocab_txt, separators=2, mask_takes_space=True),
        special=SpecialTokens("<pad>", "[UNK]", "<s>", "</s>", "<mask>"),
        has_token_types=False,
    ),
    **dict.fromkeys(("RobertaTokenizer", "LongformerTokenizer", "BartTokenizer"), _ROBERTA),
    **dict.fromkeys(
        ("XLMRobertaTokenizer", "CamembertTokenizer"),
        TokenizerClass(
            settings={"do_lower_case": False, "keep_accents": True, "add_prefix_space": True},
            special=byte_level.SPECIAL,
            has_token_types=False,
        ),
    ),
    "AlbertTokenizer": _ALBERT,
    "BigBirdTokenizer": dataclasses.replace(_ALBERT, settings={"add_prefix_space": True}, has_token_types=False),
    "DebertaV2Tokenizer": TokenizerClass(
        files=(sentencepiece.DEBERTA,),
        parse=sentencepiece.parse_spm_model,
        special=wordpiece.SPECIAL,
        settings={"do_lower_case": False, "split_by_punct": False, "add_prefix_space": True},
    ),
    **dict.fromkeys(("", "PreTrainedTokenizer", "TokenizersBackend"), _GENERAL),
}
# For a directory that names no class: `model_type` in the model's config.json -> class. If the model type is unknown,
# CLASS_OF_FILE gives the class by the name of the vocabulary file.
CLASS_OF_MODEL = {
    **dict.fromkeys(("bert", "electra", "mobilebert", "nomic_bert"), "BertTokenizer"),
    **dict.fromkeys(("roberta", "longformer"), "RobertaTokenizer"),
    **dict.fromkeys(("xlm-roberta", "camembert"), "XLMRobertaTokenizer"),
    "distilbert": "DistilBertTokenizer",
    "mpnet": "MPNetTokenizer",
    "albert": "AlbertTokenizer",
    "big_bird": "BigBirdTokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
}
CLASS_OF_FILE = {
    CLASSES[name].files[0]: name
    for name in ("BertTokenizer", "RobertaTokenizer", "AlbertTokenizer", "DebertaV2Tokenizer")
}


def tokenizer_class_name(config: Mapping[str, Any], model_config: Mapping[str, Any]) -> str:
    """Return the name of a directory's tokenizer class, without the suffix Fast; "" if the directory names no class.

    Args:
        config: content of `tokenizer_config.json`.
        model_config: content of the `config.json` of a model in the same directory.
    """
    name = config.get("tokenizer_class") or model_config.get("tokenizer_class")
    return str(name or CLASS_OF_MODEL.get(str(model_config.get("model_type")), "")).removesuffix("Fast")


def tokenizer_class_of_vocabulary_file(class_name_in_config: str, file_name: str) -> TokenizerClass:
    """Return the row of CLASSES for a vocabulary file, given the class name in the config of its directory.

    Raises:
        UserError: the class is unknown, or reads a different file.
    """
    by_file = CLASSES[CLASS_OF_FILE[file_name]]
    row = CLASSES.get(class_name_in_config)
    if row is _GENERAL:
        return by_file
    if row is None or row.files != by_file.files:
        reason = "is unknown here" if row is None else f"reads {row.files[0] if row.files else 'another file'}"
        raise UserError(
            f"its tokenizer_class {class_name_in_config} {reason}, so the rules of this vocabulary are unknown; save "
            "it with transformers, which writes tokenizer.json"
        )
    return row


def has_token_types(class_name: str, config: Mapping[str, Any]) -> bool:
    """Return whether a tokenizer of a class returns the token types of its post-processor; otherwise, all types are 0.

    Versions 4 and 5 of transformers differ for some classes. Only version 5 of transformers writes the entry `backend`
    into `tokenizer_config.json`.
    """
    row = CLASSES.get(class_name, _GENERAL)
    names = config.get("model_input_names")
    if names is not None:
        return "token_type_ids" in names
    if "backend" in config and row.has_token_types_in_5 is not None:
        return row.has_token_types_in_5
    return row.has_token_types


def check_settings_agree(
    class_name: str, config: Mapping[str, Any], definition: Definition, in_definition: Mapping[str, Any]
) -> None:
    """Raise UserError if transformers would open the directory with rules that contradict `tokenizer.json`.

    Version 5 of transformers, which writes `backend` into a config, builds a normalizer from the class and its
    settings. Version 4 builds a normalizer only if the normalizer of `tokenizer.json` is a `BertNormalizer`; version 4
    applies any other normalizer of `tokenizer.json`.

    Args:
        class_name: name of the class; with "", every setting in the config is compared.
        config: content of `tokenizer_config.json`.
        definition: content of `tokenizer.json`.
        in_definition: the settings that `tokenizer.json` implements.
    """
    row = CLASSES.get(class_name, _GENERAL)
    for name, default in (row.settings if class_name else in_definition).items():
        is_followed = "backend" in config or _transformers_4_follows_setting(name, definition)
        if is_followed and name in in_definition and config.get(name, default) != in_definition[name]:
            value = config.get(name, f"missing, which means {default},")
            raise UserError(
                f"{name} is {in_definition[name]} in it, but {value} in tokenizer_config.json; make them equal"
            )
    if "backend" in config and row.normalizer not in (None, _normalizer_type(definition)):
        raise UserError(
            f"{class_name} of transformers 5 ignores the normalizer in it; remove the normalizer, or set "
            f"tokenizer_class to {GENERAL_CLASS} in tokenizer_config.json, which applies it"
        )


def opens_alike_in_transformers_5(
    class_name: str, config: Mapping[str, Any], definition: Definition, in_definition: Mapping[str, Any]
) -> bool:
    """Return whether transformers 5 opens the directory with the rules of `tokenizer.json`.

    The arguments are as in `check_settings_agree`.
    """
    try:
        check_settings_agree(class_name, {**config, "backend": "tokenizers"}, definition, in_definition)
    except UserError:
        return False
    return True


def _transformers_4_follows_setting(name: str, definition: Definition) -> bool:
    """Return whether transformers 4 follows a setting if `tokenizer.json` contradicts the setting."""
    if name == "add_prefix_space":
        return any(step.get("type") == "ByteLevel" for step in steps_of_part(definition["pre_tokenizer"]))
    return _normalizer_type(definition) == wordpiece.NORMALIZER


def _normalizer_type(definition: Definition) -> str:
    return str((definition["normalizer"] or {"type": ""})["type"])
