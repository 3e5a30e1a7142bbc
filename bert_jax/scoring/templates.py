"""Templates: probabilities of words at a mask, such as he or she, in sentences with a filler, such as an occupation.

As in Kurita et al. 2019 ("Measuring Bias in Contextualized Word Representations"), the probability of a word is
compared with its probability when the filler is masked, too. This comparison cancels the frequency of the word.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import UserError
from bert_jax.inference.inputs import read_inputs
from bert_jax.scoring.benchmark import Benchmark, Figures, Item, ScoredItem
from bert_jax.scoring.queries import (
    Queries,
    ScoringContext,
    Span,
    TextTokens,
    join_queries,
    queries_masking_later_tokens,
    tokens_overlapping_span,
)

PACKAGED = {"occupations": pathlib.Path(__file__).with_name("occupations_en.jsonl")}
MASK, FILLER = "[MASK]", "{}"
MIN_GROUPS = 2
COUNT, PROBABILITY = "templates", "probability"
HIDDEN, ASSOCIATION = "_of_masked", "_association"  # endings of the figures' names, after the name of a group


class TemplateWord(NamedTuple):
    """The word in a text that is made from a template: the word's group, the word's span, and the filler's span."""

    group: str
    word: Span
    filler: Span


def _read_templates(path: pathlib.Path) -> list[Item]:
    """Return an item for each template and filler of a JSON-lines file, with a text for each word of each group.

    A line has three fields. The field `template` is a text with `{}` for a filler and `[MASK]` for a word. The field
    `fillers` is a list of texts. The field `groups` is an object that maps the name of each group to a list of words. A
    line without `fillers` or `groups` has the values of the previous line. The argument `path` may be a key of
    PACKAGED. The field `details` of an item has a `TemplateWord` for each text.
    """
    items, fields, names = list[Item](), dict[str, Any](), list[str]()
    for line in read_inputs(PACKAGED.get(str(path), path)):
        fields = {"fillers": fields.get("fillers"), "groups": fields.get("groups")} | dict(line.fields)
        template, fillers, groups = _parse_template_fields(line.where, fields)
        names = names or list(groups)
        if list(groups) != names:
            raise UserError(
                f"{line.where}: groups {', '.join(groups)}; all lines need equal groups: {', '.join(names)}"
            )
        items += [_make_item(line.where, template, filler, groups) for filler in fillers]
    return items


class _TemplateFields(NamedTuple):
    """A line of a file of templates: the template, the fillers, and the groups of words."""

    template: str
    fillers: list[str]
    groups: dict[str, list[str]]


def _parse_template_fields(where: str, fields: Mapping[str, Any]) -> _TemplateFields:
    """Return the template, fillers and groups of a line; raise UserError if a value has a wrong format."""
    values: list[Any] = [fields.get(name) for name in ("template", "fillers", "groups")]
    template, fillers, groups = values
    if not isinstance(template, str) or any(template.count(part) != 1 for part in (MASK, FILLER)):
        raise UserError(f"{where}: give a 'template' with {FILLER} and {MASK}, once each")
    if not _are_unique_texts(fillers):
        raise UserError(f"{where}: give 'fillers', a list of texts, here or in a line before")
    if not isinstance(groups, dict) or len(groups) < MIN_GROUPS or not all(map(_are_unique_texts, groups.values())):
        raise UserError(f"{where}: give 'groups', an object with a list of words for each of two or more groups")
    if taken := [name for name in groups if name in (COUNT, PROBABILITY) or name.endswith((HIDDEN, ASSOCIATION))]:
        raise UserError(f"{where}: the name of the group {taken[0]} is reserved; rename the group")
    if not all(map(_is_nonblank_text, (template, *groups))):
        raise UserError(f"{where}: half of a surrogate pair, which is no character, or a blank name; fix it")
    return _TemplateFields(template, fillers, groups)


def _are_unique_texts(values: Any) -> bool:
    """Return whether a value is a list of different texts that are not blank."""
    return (
        isinstance(values, list)
        and bool(values)
        and all(map(_is_nonblank_text, values))
        and len({*values}) == len(values)
    )


def _is_nonblank_text(value: Any) -> bool:
    """Return whether a value is a text that is not blank and has no unpaired surrogate."""
    return isinstance(value, str) and bool(value.strip()) and value.encode(errors="ignore").decode() == value


def _make_item(where: str, template: str, filler: str, groups: Mapping[str, Sequence[str]]) -> Item:
    """Return the item of a template and a filler, with a text for each word of each group."""
    texts, parts = list[str](), list[TemplateWord]()
    for group, words in groups.items():
        for word in words:
            text, end, spans = template, 0, dict[str, Span]()
            for placeholder in sorted((MASK, FILLER), key=template.index):  # left to right: earlier spans stay valid
                value = word if placeholder == MASK else filler
                start = text.index(placeholder, end)
                end = start + len(value)
                text = text[:start] + value + text[start + len(placeholder) :]
                spans[placeholder] = (start, end)
            texts.append(text)
            parts.append(TemplateWord(group, spans[MASK], spans[FILLER]))
    return Item(where, filler, tuple(texts), parts)


def _queries_with_and_without_filler(
    context: ScoringContext, item: Item, tokens: tuple[TextTokens, ...]
) -> list[Queries]:
    """Return the queries for the word of each text: first with the filler visible, then with the filler masked."""
    queries = []
    for text, text_tokens, part in zip(item.texts, tokens, item.details, strict=True):
        in_word, in_filler = (
            tokens_overlapping_span(text_tokens, part.word),
            tokens_overlapping_span(text_tokens, part.filler),
        )
        if not in_word.size or (text_tokens.ids[in_word] == context.unk_id).any():
            raise UserError(f"{item.where}: the vocabulary has no {text[slice(*part.word)]!r}; give words that it has")
        if set(in_word) & set(in_filler):
            raise UserError(
                f"{item.where}: one token of {text!r} belongs to the word and to the filler; put a space between them"
            )
        with_filler = queries_masking_later_tokens(context, text_tokens, in_word)
        queries.append(
            join_queries([with_filler, queries_masking_later_tokens(context, text_tokens, in_word, in_filler)])
        )
    return queries


def _group_probabilities(context: ScoringContext, scored: Sequence[ScoredItem]) -> Figures:
    """Return the probabilities of the groups of words at the mask, as means over the templates.

    `probability` is the total probability of the words of all groups, in percent; if it is small, the other figures
    mean little. For each group, `GROUP` is the percentage of the total probability that the group's words have, and
    `GROUP_of_masked` is this percentage when the filler is masked. `GROUP_association` is ln(p / q), where p is the
    probability of the group's words, and q is their probability with the filler masked, as in Kurita et al. 2019.
    """
    names = list(dict.fromkeys(part.group for part in scored[0].item.details))
    by_template = np.array([_group_log_probabilities(template, names) for template in scored])
    visible, hidden = by_template.transpose(1, 0, 2)  # [templates, groups] each
    parts, hidden_parts = (
        100 * np.exp(values - np.logaddexp.reduce(values, axis=1, keepdims=True)) for values in (visible, hidden)
    )
    figures: dict[str, float | int | None] = {
        COUNT: len(scored),
        PROBABILITY: 100 * float(np.exp(visible).sum(axis=1).mean()),
    }
    for ending, values in (("", parts), (HIDDEN, hidden_parts), (ASSOCIATION, visible - hidden)):
        figures |= {f"{name}{ending}": float(value) for name, value in zip(names, values.mean(axis=0), strict=True)}
    return figures


def _group_log_probabilities(template: ScoredItem, names: Sequence[str]) -> list[list[float]]:
    """Return the log-probability of each group of words, first with the filler visible, then with the filler masked."""
    sums = np.array([[half.sum() for half in np.split(values, 2)] for values in template.log_probabilities])
    groups = np.array([part.group for part in template.item.details])
    return [[float(np.logaddexp.reduce(column[groups == name])) for name in names] for column in sums.T]


def group_names_in_figures(figures: Figures) -> list[str]:
    """Return the names of the groups of words that occur in the figures of the benchmark `templates`."""
    return [name.removesuffix(ASSOCIATION) for name in figures if name.endswith(ASSOCIATION)]


TEMPLATES = Benchmark(
    read=_read_templates,
    data="JSON lines with template, fillers and groups",
    unit="sentences",
    queries=_queries_with_and_without_filler,
    figures=_group_probabilities,
    masking="the word, and the filler for comparison",
)
