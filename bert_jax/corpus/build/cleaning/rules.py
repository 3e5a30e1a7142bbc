"""The rules that a recipe can name; a row has a function whose keyword arguments are the parameters in the recipe."""

from collections.abc import Callable
from typing import Any, NamedTuple

from bert_jax.corpus.build.cleaning import c4, changes, contamination, fineweb, gopher, language, repeated_lines
from bert_jax.corpus.build.cleaning.texts import Removed


class CleaningRule(NamedTuple):
    """A row of RULES.

    Attributes:
        apply: pure function (text, parameters) -> the text, changed or not, or `Removed`.
        check: (parameters) -> None; raises UserError for wrong parameters, packages or files, before any work.
        versions: (parameters) -> versions of the files that the rule reads, as JSON.
        survey: (text, parameters) -> hashes of a text, for a rule that counts hashes over all documents first.
    """

    apply: Callable[..., str | Removed]
    check: Callable[..., None] = lambda **_: None
    versions: Callable[..., Any] = lambda **_: []
    survey: Callable[..., Any] | None = None


RULES: dict[str, CleaningRule] = {
    "repair_encoding": CleaningRule(changes.repair_encoding, changes.check_repair),
    "language": CleaningRule(language.language, language.check_language_rule),
    "gopher_word_count": CleaningRule(gopher.word_count),
    "gopher_word_length": CleaningRule(gopher.word_length),
    "gopher_symbols": CleaningRule(gopher.symbols),
    "gopher_bullet_lines": CleaningRule(gopher.bullet_lines),
    "gopher_ellipsis_lines": CleaningRule(gopher.ellipsis_lines),
    "gopher_alphabetic_words": CleaningRule(gopher.alphabetic_words),
    "gopher_stop_words": CleaningRule(gopher.stop_words),
    "gopher_repeated_lines": CleaningRule(gopher.repeated_lines),
    "gopher_repeated_paragraphs": CleaningRule(gopher.repeated_paragraphs),
    "gopher_frequent_ngrams": CleaningRule(gopher.frequent_ngrams),
    "gopher_repeated_ngrams": CleaningRule(gopher.repeated_ngrams),
    "c4_unfinished_lines": CleaningRule(c4.unfinished_lines),
    "c4_short_lines": CleaningRule(c4.short_lines),
    "c4_javascript_lines": CleaningRule(c4.javascript_lines),
    "c4_policy_lines": CleaningRule(c4.policy_lines),
    "c4_sentence_count": CleaningRule(c4.sentence_count),
    "c4_lorem_ipsum": CleaningRule(c4.lorem_ipsum),
    "c4_curly_brackets": CleaningRule(c4.curly_brackets),
    "fineweb_finished_lines": CleaningRule(fineweb.finished_lines),
    "fineweb_repeated_characters": CleaningRule(fineweb.repeated_characters),
    "fineweb_short_lines": CleaningRule(fineweb.mostly_short_lines),
    "repeated_lines": CleaningRule(repeated_lines.remove_repeated_lines, survey=repeated_lines.hash_lines),
    "mask_emails": CleaningRule(changes.mask_emails),
    "mask_ip_addresses": CleaningRule(changes.mask_ip_addresses),
    "contamination": CleaningRule(
        contamination.contamination, contamination.check_evaluation_files, contamination.evaluation_file_versions
    ),
}
