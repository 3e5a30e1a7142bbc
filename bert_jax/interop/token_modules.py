"""Files of the modules of late interaction, in the form of sentence-transformers 6 and in the form of PyLate.

A MultiVectorEncoder has a Transformer, a Dense that projects each token, a MultiVectorMask and a Normalize. A ColBERT
of PyLate has a Transformer and a Dense, and `config_sentence_transformers.json` has the rules of the other modules.
Files are written in the form of sentence-transformers 6.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy

from bert_jax.errors import UserError
from bert_jax.strict_json import read_object
from bert_jax.tasks.late_interaction import PUNCTUATION, TokenRules

DENSE, MASK, NORMALIZE = "1_Dense", "2_MultiVectorMask", "3_Normalize"
TOKENS = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
IDENTITY = "torch.nn.modules.linear.Identity"
# Field of a Dense, and of a MultiVectorMask -> the values that can be read.
DENSE_FIELDS = {name: (value,) for name, value in TOKENS.items()} | {
    "bias": (False,),
    "use_residual": (False,),
    "activation_function": (IDENTITY,),
}
MASK_FIELDS = {"skiplist_tasks": (["document"],), "keep_only_token_ids": (None, [])}
# Fields of a Transformer module that a MultiVectorEncoder also has.
LENGTH_FIELDS = {"query_length": None, "document_length": None, "query_expansion": None}
PYLATE_QUERY_LENGTH = 32  # maximum tokens of a query in PyLate, unless the file has another length


def read_vector_width(folder: pathlib.Path) -> int:
    """Return the width of the vectors of a Dense; raise UserError for a Dense that is not a plain projection."""
    path = folder / "config.json"
    fields = _read_checked_fields(path, DENSE_FIELDS)
    width = fields.get("out_features")
    if type(width) is not int or width < 1:
        raise UserError(f"{path}: out_features is {width!r}; a width, at least 1, is needed")
    return width


def read_token_rules(transformer: Mapping[str, Any], mask: pathlib.Path, where: str, mask_token: object) -> TokenRules:
    """Return the rules by which a MultiVectorEncoder chooses the tokens of a query and of a document that get a vector.

    Args:
        transformer: the fields of the Transformer.
        mask: folder of the MultiVectorMask.
        where: the file of the Transformer, for messages.
        mask_token: the mask token of the tokenizer.
    """
    words = _read_checked_fields(mask / "config.json", MASK_FIELDS).get("skiplist_words") or []
    expansion = transformer.get("query_expansion")
    lengths = [transformer.get("query_length"), transformer.get("document_length")]
    attends = False
    if expansion is not None:
        if not isinstance(expansion, dict):
            raise UserError(f"{where}: query_expansion is {expansion!r:.60}; an object is needed")
        for name, values in {"strategy": ("fixed",), "token": (None, mask_token)}.items():
            if expansion.get(name) not in values:
                allowed = " or ".join(map(repr, values))
                raise UserError(
                    f"{where}: {name} of query_expansion is {expansion.get(name)!r}; only {allowed} can be read"
                )
        lengths[0], attends = expansion.get("length"), expansion.get("attend", False) is True
    return _checked_token_rules(lengths, expansion is not None, attends, words, where)


def read_pylate_rules(fields: Mapping[str, Any], where: str) -> TokenRules:
    """Return the rules in `config_sentence_transformers.json` of PyLate."""
    words = fields.get("skiplist_words")
    return _checked_token_rules(
        [fields.get("query_length") or PYLATE_QUERY_LENGTH, fields.get("document_length")],
        fields.get("do_query_expansion") is not False,
        fields.get("attend_to_expansion_tokens") is True,
        [*PUNCTUATION] if words is None else words,
        where,
    )


def token_module_files(rules: TokenRules, hidden_size: int, vector_width: int) -> dict[str, Any]:
    """Return file name -> JSON for the files of Dense, MultiVectorMask and Normalize."""
    sizes = {"in_features": hidden_size, "out_features": vector_width}
    return {
        f"{DENSE}/config.json": {**sizes, "bias": False, "activation_function": IDENTITY, **TOKENS},
        f"{MASK}/config.json": {"skiplist_words": [*rules.skipped_words], "skiplist_tasks": ["document"]},
        f"{NORMALIZE}/config.json": TOKENS,
    }


def projection_file(kernel: Any) -> dict[str, bytes]:
    """Return file name -> content for the weights of a Dense; `kernel` is an array `[hidden, outputs]`."""
    weight = np.ascontiguousarray(np.asarray(kernel, np.float32).T)
    return {f"{DENSE}/model.safetensors": safetensors.numpy.save({"linear.weight": weight})}


def token_length_fields(rules: TokenRules) -> dict[str, Any]:
    """Return the fields of a Transformer for the lengths of queries and documents."""
    expansion = {"strategy": "fixed", "attend": rules.attends, "token": None, "length": rules.query_length}
    return {
        "query_length": None if rules.expands else rules.query_length,
        "document_length": rules.document_length,
        "query_expansion": expansion if rules.expands else None,
    }


def _checked_token_rules(lengths: list[Any], expands: bool, attends: bool, words: Any, where: str) -> TokenRules:
    """Return the token rules, checked; `lengths` has the maximum lengths of queries and documents."""
    for length in lengths:
        if length is not None and (type(length) is not int or length < 1):
            raise UserError(f"{where}: a query or document has {length!r} tokens; a number, at least 1, is needed")
    if expands and lengths[0] is None:
        raise UserError(f"{where}: query_expansion has no length; add it")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise UserError(f"{where}: skiplist_words is {words!r:.60}; a list of tokens is needed")
    return TokenRules(
        query_length=lengths[0],
        document_length=lengths[1],
        expands=expands,
        attends=attends,
        skipped_words=tuple(words),
    )


def _read_checked_fields(path: pathlib.Path, known: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Return the fields of a file; raise UserError for a field with a value that cannot be read."""
    fields = read_object(path)
    for name, values in known.items():
        if name in fields and fields[name] not in values:
            allowed = " or ".join(map(repr, values))
            raise UserError(f"{path}: {name} is {fields[name]!r}; only {allowed} can be read")
    return fields
