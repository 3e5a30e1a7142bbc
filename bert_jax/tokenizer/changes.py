"""Counts of the characters that the normalizer of a tokenizer changes, by kind of change."""

import collections
import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from bert_jax.tokenizer import tokenizer_json
from bert_jax.tokenizer.tokenizer import Tokenizer

MANY_CHANGED = 0.001  # a warning is given if a larger fraction of the characters has an unexpected change
NO_SPACES = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}  # pre-tokenizers that drop white space in any case
_KEEP = "one of --kind byte_level, or of --kind unigram with --normalization identity, keeps them"


class ChangeKind(NamedTuple):
    """A kind of change that a normalizer makes, such as removed accents; a row of KINDS.

    Attributes:
        project: function of a text that gives equal results for two texts which differ only by changes of this kind.
        asked_for: function of a tokenizer that returns True if the user asked for such changes and needs no warning.
        cure: advice on how to keep the characters.
    """

    project: Callable[[str], str]
    asked_for: Callable[[Tokenizer], bool]
    cure: str = _KEEP


def _has_normalizer_step(*types: str) -> Callable[[Tokenizer], bool]:
    """Return a function that tells whether the normalizer of a tokenizer has a step of one of the given types."""

    def has_step(tokenizer: Tokenizer) -> bool:
        return any(
            step.get("type") in types for step in tokenizer_json.steps_of_part(tokenizer.definition["normalizer"])
        )

    return has_step


def _without_marks(text: str) -> str:
    """Return a text without combining marks, such as accents."""
    return "".join(character for character in unicodedata.normalize("NFD", text) if not _is_mark(character))


def _without_invisible(text: str) -> str:
    """Return a text without control characters and variation selectors."""
    return "".join(
        character
        for character in text
        if unicodedata.category(character)[0] != "C" and not "\ufe00" <= character <= "\ufe0f"
    )  # variation selectors need a separate test, because Unicode counts them as marks


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "M"


def _expects_space_changes(tokenizer: Tokenizer) -> bool:
    """Return whether the user of a tokenizer expects changes of white space."""
    steps = tokenizer_json.steps_of_part(tokenizer.definition["pre_tokenizer"])
    return any(step.get("type") in NO_SPACES for step in steps) or _has_normalizer_step("NFKC")(tokenizer)


OTHER = "replaced by other characters"  # kind of the changes that no combination of the other kinds explains
# A change gets the first kind that explains the change alone; otherwise the first two kinds that explain it together,
# and so on.
KINDS = {
    "canonical form (NFC)": ChangeKind(
        functools.partial(unicodedata.normalize, "NFC"), _has_normalizer_step("NFC", "NFKC")
    ),
    "control or zero-width character removed": ChangeKind(_without_invisible, lambda tokenizer: False),
    "white space changed": ChangeKind(lambda text: "".join(text.split()), _expects_space_changes),
    "compatibility form (NFKC)": ChangeKind(
        functools.partial(unicodedata.normalize, "NFKC"), _has_normalizer_step("NFKC")
    ),
    "accent or other mark removed": ChangeKind(
        _without_marks, lambda tokenizer: False, "a tokenizer that is trained with --cased keeps accents"
    ),
    "case folded": ChangeKind(
        str.casefold, lambda tokenizer: tokenizer.lowercase, "a tokenizer that is trained with --cased keeps capitals"
    ),
    OTHER: ChangeKind(lambda text: "", lambda tokenizer: False),
}


def count_changed_characters(tokenizer: Tokenizer, texts: Sequence[str]) -> dict[str, int]:
    """Return kind of change -> number of characters of the texts that have a change of this kind, sorted by kind.

    Texts are compared by units that a normalizer maps independently of each other. A unit is a single character if
    possible. If characters depend on each other, a unit is a character with its combining marks, a Korean syllable in
    parts, a run of white space, or a quote of two characters. A unit may be counted for several kinds: if É becomes e,
    its case and its accent changed.

    Raises:
        UserError: the library `tokenizers` fails on a text.
    """
    if tokenizer.plain.normalizer is None:
        return {}
    marks = "".join(
        character for character in set().union(*texts) if _is_mark(character) or "\u1160" <= character <= "\u11ff"
    )
    pattern = re.compile(rf"\s+|``|''|.[\u0300{re.escape(marks)}]*", re.DOTALL)
    units = collections.Counter(itertools.chain.from_iterable(map(pattern.findall, texts)))
    counts: collections.Counter[str] = collections.Counter()
    for (unit, times), normal in zip(units.items(), tokenizer.normalize_parts(list(units)), strict=True):
        if unit in (normal, normal.strip()):  # BERT puts spaces around Chinese characters
            continue
        single = tokenizer.normalize_parts(list(unit)) if len(unit) > 1 else [normal]
        alone = zip(unit, single, strict=True) if "".join(single) == normal else [(unit, normal)]
        for before, after in alone:
            if before != after:
                lost = sum(max(0, before.count(character) - after.count(character)) for character in set(before))
                for kind in _kinds_explaining_change(before, after):
                    counts[kind] += times * max(1, lost)
    return dict(sorted(counts.items()))


@functools.lru_cache(1 << 12)
def _kinds_explaining_change(unit: str, normal: str) -> tuple[str, ...]:
    """Return the smallest set of kinds of change that explains why the normalizer turned a unit into `normal`.

    Spaces around `normal` are ignored, unless the unit is white space. If no set explains the change, return (OTHER,).
    """
    results = {normal} if unit.isspace() else {normal, normal.strip()}
    named = [name for name in KINDS if name != OTHER]
    for size in range(1, len(named) + 1):
        for kinds in itertools.combinations(named, size):
            if any(_text_ignoring_changes(unit, kinds) == _text_ignoring_changes(result, kinds) for result in results):
                return kinds
    return (OTHER,)


def _text_ignoring_changes(text: str, kinds: Iterable[str]) -> str:
    """Return a text without the properties that these kinds of change affect, such as accents or case."""
    for name in kinds:
        text = KINDS[name].project(text)
    return text


def changes_warning(tokenizer: Tokenizer, fractions: Mapping[str, float]) -> str:
    """Return a warning about changes that the user did not ask for; "" if there are few such changes.

    `fractions` maps each kind of change to the fraction of the characters with such a change.
    """
    unexpected = {
        name: fraction
        for name, fraction in fractions.items()
        if fraction > MANY_CHANGED and not KINDS[name].asked_for(tokenizer)
    }
    if not unexpected:
        return ""
    changed = ", ".join(f"{fraction:.2%} {name}" for name, fraction in unexpected.items())
    cures = "; ".join(dict.fromkeys(KINDS[name].cure for name in unexpected))
    return f"the tokenizer changes characters of the text: {changed}; {cures}"
