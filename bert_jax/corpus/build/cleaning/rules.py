"""The rules that a recipe can name. A rule is a row: a function whose keyword arguments are the recipe's parameters."""

from collections.abc import Callable
from typing import Any, NamedTuple

from bert_jax.corpus.build.cleaning import c4, changes, contamination, fineweb, gopher, language, repeated_lines
from bert_jax.corpus.build.cleaning.texts import Removed


class Rule(NamedTuple):
    """A row of RULES.

    Attributes:
        apply: (text, parameters) -> the text or another one; or `Removed`. A pure function.
        check: (parameters) -> UserError where they, or a package or a file, are wrong; run before any work.
        versions: (parameters) -> what changes when files that it reads do, as JSON.
        survey: of a rule that counts something over all documents before: (text, parameters) -> what the text has.
    """

    apply: Callable[..., str | Removed]
    check: Callable[..., None] = lambda **_: None
    versions: Callable[..., Any] = lambda **_: []
    survey: Callable[..., Any] | None = None


RULES: dict[str, Rule] = {
    "repair_encoding": Rule(changes.repair_encoding, changes.check_repair),
    "language": Rule(language.language, language.check),
    "gopher_word_count": Rule(gopher.word_count),
    "gopher_word_length": Rule(gopher.word_length),
    "gopher_symbols": Rule(gopher.symbols),
    "gopher_bullet_lines": Rule(gopher.bullet_lines),
    "gopher_ellipsis_lines": Rule(gopher.ellipsis_lines),
    "gopher_alphabetic_words": Rule(gopher.alphabetic_words),
    "gopher_stop_words": Rule(gopher.stop_words),
    "gopher_repeated_lines": Rule(gopher.repeated_lines),
    "gopher_repeated_paragraphs": Rule(gopher.repeated_paragraphs),
    "gopher_frequent_ngrams": Rule(gopher.frequent_ngrams),
    "gopher_repeated_ngrams": Rule(gopher.repeated_ngrams),
    "c4_unfinished_lines": Rule(c4.unfinished_lines),
    "c4_short_lines": Rule(c4.short_lines),
    "c4_javascript_lines": Rule(c4.javascript_lines),
    "c4_policy_lines": Rule(c4.policy_lines),
    "c4_sentence_count": Rule(c4.sentence_count),
    "c4_lorem_ipsum": Rule(c4.lorem_ipsum),
    "c4_curly_brackets": Rule(c4.curly_brackets),
    "fineweb_finished_lines": Rule(fineweb.finished_lines),
    "fineweb_repeated_characters": Rule(fineweb.repeated_characters),
    "fineweb_short_lines": Rule(fineweb.short_lines),
    "repeated_lines": Rule(repeated_lines.remove_repeated, survey=repeated_lines.hash_lines),
    "mask_emails": Rule(changes.mask_emails),
    "mask_ip_addresses": Rule(changes.mask_ip_addresses),
    "contamination": Rule(contamination.contamination, contamination.check, contamination.versions),
}
