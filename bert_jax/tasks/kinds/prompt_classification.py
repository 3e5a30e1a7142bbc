"""Prompt classification: a label for a text or a pair of texts, predicted as the word at the mask of a template.

The encoder keeps its masked-token head. A template turns an example into one text with one mask. Each label has one or
several words, and each word is a single token. The logit of a label is the mean of the logits of its words at the mask
(PET, Schick and Schütze 2021; LM-BFF, Gao et al. 2021).
"""

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence

import numpy as np

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError, did_you_mean
from bert_jax.tasks.features import SPELLED, Features, FeaturesAndCounts, encode_distinct
from bert_jax.tasks.kinds.kind import Examples, Loss
from bert_jax.tasks.kinds.sequence_classification import OUTPUT, SEQUENCE_CLASSIFICATION
from bert_jax.tasks.kinds.texts import make_label_target, truncated_pair_lengths
from bert_jax.tasks.labels import labels_text
from bert_jax.tasks.task import Example
from bert_jax.tokenizer import Tokenizer

MASK = "[MASK]"  # the mask in a template, for every tokenizer
TEXT, TEXT_PAIR = "{text}", "{text_pair}"
SLOT = re.compile(r"(\{[^{}]*\}|\[MASK\])")
EXAMPLE = "'{text} It was [MASK].'"
NO_WORD = -1  # fills the rows of labels with fewer words than other labels


def parse_template(template: str | None) -> list[str]:
    """Return the parts of a template in order: plain texts, `MASK`, `TEXT` and perhaps `TEXT_PAIR`.

    Raises:
        UserError: the template is missing, a name in braces is unknown, or the number of masks or texts is wrong.
    """
    if template is None:
        raise UserError(f"kind prompt_classification needs config.task.template, such as {EXAMPLE}")
    parts, where = [part for part in SLOT.split(template) if part], f"config.task.template='{template}'"
    for part in parts:
        if SLOT.fullmatch(part) and part not in (MASK, TEXT, TEXT_PAIR):
            raise UserError(f"{where}: no field {part}{did_you_mean(part, (TEXT, TEXT_PAIR))}; use {TEXT}, {TEXT_PAIR}")
    for slot, fewest in ((MASK, 1), (TEXT, 1), (TEXT_PAIR, 0)):
        if not fewest <= parts.count(slot) <= 1:
            raise UserError(f"{where} has {slot} {parts.count(slot)} times; write it once, such as in {EXAMPLE}")
    return parts


def parse_verbalizers(verbalizers: str | None) -> dict[str, list[str]]:
    """Return a dict from each label to its words, parsed from a text such as 'positive=great|good,negative=terrible'.

    Raises:
        UserError: a part of the text is not of the form 'label=word|word', or a label is named twice.
    """
    words: dict[str, list[str]] = {}
    for part in verbalizers.split(",") if verbalizers else ():
        label, equals, of_label = (piece.strip() for piece in part.rpartition("="))
        listed = [word.strip() for word in of_label.split("|")]
        if not equals or label in words or not all(listed):
            raise UserError(
                f"config.task.verbalizers: '{part.strip()}' is not 'label=word' or 'label=word|word', "
                "or repeats a label"
            )
        words[label] = listed
    return words


def fill_verbalizers(settings: TaskConfig, labels: Sequence[str], tokenizer: Tokenizer) -> TaskConfig:
    """Return the settings with words (verbalizers) for all labels; the default word of a label is its name.

    Raises:
        UserError: the template is wrong, a label is unknown, a word is not one token, or two labels share a word.
    """
    parse_template(settings.template)
    given = parse_verbalizers(settings.verbalizers)
    for label in given:
        if label not in labels:
            known = labels_text(labels)
            raise UserError(f"config.task.verbalizers: '{label}' is not among {known}{did_you_mean(label, labels)}")
    if odd := [label for label in labels if "," in label]:
        raise UserError(f"config.task.template: the label '{odd[0]}' has a comma, which no verbalizer has; rename it")
    words = {label: given.get(label, [label]) for label in labels}
    filled = ",".join(f"{label}={'|'.join(of_label)}" for label, of_label in words.items())
    settings = dataclasses.replace(settings, verbalizers=filled)
    label_of_id: dict[int, str] = {}
    for label, ids in verbalizer_ids(settings, tokenizer).items():
        for token_id in ids:
            if label_of_id.setdefault(token_id, label) != label:
                raise UserError(
                    f"config.task.verbalizers: the word '{tokenizer.tokens[token_id]}' is of '{label_of_id[token_id]}' "
                    f"and of '{label}'; give each label words of its own"
                )
    return settings


def verbalizer_ids(settings: TaskConfig, tokenizer: Tokenizer) -> dict[str, list[int]]:
    """Return a dict from each label to the token ids of its words, encoded as at the position of the mask.

    Raises:
        UserError: a word is not one token of the vocabulary.
    """
    template, words = settings.template or "", parse_verbalizers(settings.verbalizers)
    inside = template[: template.index(MASK)][-1:].isspace()  # the mask of a byte-level tokenizer includes the space
    ids: dict[str, list[int]] = {}
    for label, of_label in words.items():
        encoded = tokenizer.encode_inputs(tokenizer.words_as_inside_sentence(of_label) if inside else of_label)
        for word, tokens in zip(of_label, encoded, strict=True):
            if len(tokens) != 1 or tokens[0] == tokenizer.unk_id:
                pieces = " ".join(tokenizer.tokens[token_id] for token_id in tokens)
                raise UserError(
                    f"the word '{word}' of label '{label}' is not one token of the vocabulary, but '{pieces}'; name "
                    f"one for each such label: config.task.verbalizers='{label}=WORD,...'"
                )
        ids[label] = [tokens[0] for tokens in encoded]
    return ids


def _features(examples: Examples, tokenizer: Tokenizer, settings: TaskConfig) -> FeaturesAndCounts:
    """Return the features of the templates that are filled with the examples, and counts as in `text_features`.

    A text that is too long loses its last tokens; in a pair, the longer text is cut first. The words of the template
    are never cut. The targets `masked_positions`, int32 `[1, 1]`, and `verbalizers`, int32 `[1, labels, words]`, are
    inputs of the head, so unlabeled examples have both targets, too.
    """
    parts = parse_template(settings.template)
    ids = [*verbalizer_ids(settings, tokenizer).values()]
    words = np.full((1, len(ids), max(map(len, ids))), NO_WORD, np.int32)
    for label, of_label in enumerate(ids):
        words[0, label, : len(of_label)] = of_label
    filled = [_filled_text_and_spans(parts, example, tokenizer.tokens[tokenizer.mask_id]) for example in examples]
    encoded = encode_distinct((text for text, _ in filled), tokenizer.encode_inputs_with_offsets)
    target, counts, features = make_label_target("labels", np.int32), {"truncated_texts": 0, SPELLED: 0}, []
    for example_index, (example, (text, spans)) in enumerate(zip(examples, filled, strict=True)):
        token_ids, ends = np.array(encoded[text].ids, np.int32), np.array([end for _, end in encoded[text].offsets])
        in_span = {slot: (ends > start) & (ends <= end) for slot, (start, end) in spans.items()}
        is_mask = in_span[MASK] & (token_ids == tokenizer.mask_id)
        counts[SPELLED] += tokenizer.spells_special_token(token_ids[~is_mask].tolist())
        stays = _kept_tokens_mask(in_span, settings.max_seq_len - 2)
        counts["truncated_texts"] += not stays.all()
        input_ids = np.array([tokenizer.cls_id, *token_ids[stays], tokenizer.sep_id], np.int32)
        position = 1 + np.flatnonzero(is_mask[stays]).astype(np.int32)[None]
        targets = {"masked_positions": position, "verbalizers": words} | target(example)
        features.append(Features(input_ids, len(input_ids), example_index, targets))
    return FeaturesAndCounts(features, counts)


def _filled_text_and_spans(parts: Sequence[str], example: Example, mask: str) -> tuple[str, dict[str, tuple[int, int]]]:
    """Return the filled template, and a dict from each slot to (first, last + 1) character of the slot's value."""
    values = {TEXT: example["text"], MASK: mask}
    if "text_pair" in example:
        values[TEXT_PAIR] = example["text_pair"]
    if (TEXT_PAIR in parts) != (TEXT_PAIR in values):
        has, lacks = ("the template", "the example") if TEXT_PAIR in parts else ("the example", "the template")
        raise UserError(
            f"example '{example['id']}' and config.task.template: {has} has a text_pair and {lacks} has none; change "
            "the template, or config.task.columns"
        )
    text, spans = "", {}
    for part in parts:
        value = values.get(part, part)
        if part in values:
            spans[part] = (len(text), len(text) + len(value))
        text += value
    return text, spans


def _kept_tokens_mask(in_span: Mapping[str, np.ndarray], limit: int) -> np.ndarray:
    """Return a mask, bool `[tokens]`, of the tokens that stay if a filled template is cut to `limit` tokens.

    Only the texts of the example lose tokens, not the words of the template.
    """
    first, second = in_span[TEXT], in_span.get(TEXT_PAIR, np.zeros_like(in_span[TEXT]))
    num_fixed = int((~first & ~second).sum())
    if limit - num_fixed < 2:
        raise UserError(
            f"config.task.template has {num_fixed} tokens, which leaves no room for a text in config.task.max_seq_len="
            f"{limit + 2}; raise it, or shorten the template"
        )
    lengths = truncated_pair_lengths(int(first.sum()), int(second.sum()), limit - num_fixed)
    return functools.reduce(
        np.logical_and,
        (~field | (np.cumsum(field) <= length) for field, length in zip((first, second), lengths, strict=True)),
    )


def _usage_code(settings: TaskConfig, tokenizer: Tokenizer) -> str:
    """Return Python code that predicts the label of a text with transformers."""
    pair = ".replace('{text_pair}', 'another text')" if TEXT_PAIR in (settings.template or "") else ""
    return f"""import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

model = AutoModelForMaskedLM.from_pretrained(".").eval()  # this directory
tokenizer = AutoTokenizer.from_pretrained(".")

# Label -> token ids of its words at the mask: {settings.verbalizers}
words = {verbalizer_ids(settings, tokenizer)!r}
template = {settings.template!r}
prompt = template.replace("[MASK]", tokenizer.mask_token).replace('{{text}}', 'a text'){pair}
inputs = tokenizer(prompt, return_tensors="pt")
position = inputs["input_ids"][0].tolist().index(tokenizer.mask_token_id)
with torch.no_grad():
    logits = model(**inputs).logits[0, position]
label_logits = torch.stack([logits[ids].mean() for ids in words.values()])
probabilities = dict(zip(words, label_logits.softmax(0).tolist()))
"""


PROMPT_CLASSIFICATION = dataclasses.replace(
    SEQUENCE_CLASSIFICATION,
    features=_features,
    head="masked_token",
    classes=0,
    settings=("template", "verbalizers", *SEQUENCE_CLASSIFICATION.settings),
    fill_settings=fill_verbalizers,
    prompt_kind="",
    fits_file=lambda text, labels, separator: False,  # a template has to be given
    loss=Loss("cross_entropy", ((OUTPUT, "labels"),)),
    pipeline_tag="fill-mask",
    purpose="classifying texts like those it was trained on, by the words at the mask of a template",
    usage_code=_usage_code,
)
