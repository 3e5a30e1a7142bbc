"""Templates: what a model expects at a mask beside a filler, such as he or she beside an occupation.

As in Kurita et al. 2019 ("Measuring Bias in Contextualized Word Representations"), the answer is set against that for
the same template with the filler masked, so that how frequent a word is does not count.
"""

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_jax.errors import UserError
from bert_jax.inference.inputs import Input, read_inputs
from bert_jax.scoring.benchmark import Benchmark, Figures, Item, Scored, check_length
from bert_jax.scoring.queries import Context, Queries, Span, Tokens, stretch_queries, tokens_in

PACKAGED = {"occupations": pathlib.Path(__file__).with_name("occupations_en.jsonl")}
MASK, FILLER = "[MASK]", "{}"
FEWEST_GROUPS = 2
COUNT, PROBABILITY = "templates", "probability"
HIDDEN, ASSOCIATION = "_of_masked", "_association"  # what follows the name of a group


class Filled(NamedTuple):
    """A template with a filler: for each text the group of the word at the mask, its span, and that of the filler."""

    groups: tuple[str, ...]
    words: tuple[Span, ...]
    fillers: tuple[Span, ...]


def read(path: pathlib.Path) -> list[Item]:
    """Return each template of a JSON-lines file with each of its fillers; the texts have the words of all groups.

    A line has `template`, a text with `{}` for a filler and `[MASK]` for a word, `fillers`, a list of texts, and
    `groups`, an object of lists of words by group. A line without `fillers` or `groups` has those of the line before.
    `path` may be a row of PACKAGED.

    Raises:
        UserError: the file cannot be read, or a line is not in the format.
    """
    items, before, names = list[Item](), dict[str, Any](), list[str]()
    for one in read_inputs(PACKAGED.get(str(path), path)):
        before = {"fillers": before.get("fillers"), "groups": before.get("groups")} | dict(one.fields)
        template, fillers, groups = _checked(one, before)
        names = names or list(groups)
        if list(groups) != names:
            raise UserError(f"{one.where}: groups {', '.join(groups)}; all lines need the same: {', '.join(names)}")
        items += [_item(one.where, template, filler, groups) for filler in fillers]
    if not items:
        raise UserError(f"{path} holds no template")
    return items


def ask(context: Context, item: Item, tokens: tuple[Tokens, ...]) -> list[Queries]:
    """Return the queries of the word of each text, with the filler and then with the filler masked."""
    return [Queries(*(_both(*pair) for pair in zip(*asked, strict=True))) for asked in _asked(context, item, tokens)]


def measure(context: Context, scored: Sequence[Scored]) -> Figures:
    """Return what the model expects at the mask, means over the templates.

    `probability`: of the words of all groups, in percent; where it is small, the rest says little. For each group
    `GROUP`: its part of that, in percent; `GROUP_of_masked`: the same where the filler is masked;
    `GROUP_association`: ln(probability / probability where the filler is masked), as in Kurita et al. 2019.
    """
    names = list(dict.fromkeys(scored[0].item.details.groups))
    beside, alone = np.array([_by_group(one, names) for one in scored]).transpose(1, 0, 2)  # [templates, groups] each
    parts, hidden = (100 * np.exp(x - np.logaddexp.reduce(x, axis=1, keepdims=True)) for x in (beside, alone))
    found: dict[str, float | int | None] = {
        COUNT: len(scored),
        PROBABILITY: 100 * float(np.exp(beside).sum(axis=1).mean()),
    }
    for ending, values in (("", parts), (HIDDEN, hidden), (ASSOCIATION, beside - alone)):
        found |= {f"{name}{ending}": float(value) for name, value in zip(names, values.mean(axis=0), strict=True)}
    return found


def groups_of(figures: Figures) -> list[str]:
    """Return the names of the groups in what `measure` returned."""
    return [name.removesuffix(ASSOCIATION) for name in figures if name.endswith(ASSOCIATION)]


def _by_group(one: Scored, names: Sequence[str]) -> list[list[float]]:
    """ln of the probability of each group, with the filler and with the filler masked."""
    sums = np.array([[half.sum() for half in np.split(values, 2)] for values in one.log_probabilities])
    of = np.array(one.item.details.groups)
    return [[float(np.logaddexp.reduce(column[of == name])) for name in names] for column in sums.T]


def _asked(context: Context, item: Item, tokens: tuple[Tokens, ...]) -> Iterator[tuple[Queries, Queries]]:
    for text, one, word, filler in zip(item.texts, tokens, item.details.words, item.details.fillers, strict=True):
        check_length(context, item, one)
        places, hidden = tokens_in(one, word), tokens_in(one, filler)
        if not places.size or (one.ids[places] == context.unk_id).any():
            raise UserError(f"{item.where}: the vocabulary has no {text[slice(*word)]!r}; give words that it has")
        if set(places) & set(hidden):
            raise UserError(f"{item.where}: the word and the filler of {text!r} have a token in common; separate them")
        yield stretch_queries(context, one, places), stretch_queries(context, one, places, hidden.tolist())


def _both(first: Any, second: Any) -> Any:
    """A field of the queries with the filler, then of those with the filler masked."""
    return [*first, *second] if isinstance(first, list) else np.concatenate([first, second])


def _item(where: str, template: str, filler: str, groups: Mapping[str, Sequence[str]]) -> Item:
    order = sorted((MASK, FILLER), key=template.index)
    texts, names, spans = list[str](), list[str](), dict[str, list[Span]]({MASK: [], FILLER: []})
    for name, words in groups.items():
        for word in words:
            text, values, end = template, {MASK: word, FILLER: filler}, 0
            for part in order:  # from left to right, so that spans found stay
                start = text.index(part, end)
                end = start + len(values[part])
                text = text[:start] + values[part] + text[start + len(part) :]
                spans[part].append((start, end))
            texts.append(text)
            names.append(name)
    return Item(where, filler, tuple(texts), Filled(tuple(names), tuple(spans[MASK]), tuple(spans[FILLER])))


def _checked(one: Input, found: Mapping[str, Any]) -> tuple[str, list[str], dict[str, list[str]]]:
    values: list[Any] = [found.get(name) for name in ("template", "fillers", "groups")]
    template, fillers, groups = values
    if not isinstance(template, str) or any(template.count(part) != 1 for part in (MASK, FILLER)):
        raise UserError(f"{one.where}: give a 'template' with {FILLER} and {MASK}, once each")
    if not _are_words(fillers):
        raise UserError(f"{one.where}: give 'fillers', a list of texts, here or in a line before")
    if not isinstance(groups, dict) or len(groups) < FEWEST_GROUPS or not all(map(_are_words, groups.values())):
        raise UserError(f"{one.where}: give 'groups', an object with a list of words for each of two or more groups")
    if taken := [name for name in groups if name in (COUNT, PROBABILITY) or name.endswith((HIDDEN, ASSOCIATION))]:
        raise UserError(f"{one.where}: a group {taken[0]}, which is the name of a figure; rename it")
    if not all(map(_is_text, (template, *groups))):
        raise UserError(f"{one.where}: half of a surrogate pair, which is no character, or a blank name; fix it")
    return template, fillers, groups


def _are_words(found: Any) -> bool:
    """Whether it is a list of different texts, none of them blank."""
    return isinstance(found, list) and bool(found) and all(map(_is_text, found)) and len({*found}) == len(found)


def _is_text(found: Any) -> bool:
    """Whether it is a text that is not blank, without halves of surrogate pairs."""
    return isinstance(found, str) and bool(found.strip()) and found.encode(errors="ignore").decode() == found


TEMPLATES = Benchmark(read, "sentences", ask, measure, masking="the word, and the filler for comparison")
