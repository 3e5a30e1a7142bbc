"""The rules that a recipe can name, as rows of a table."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bert_jax.corpus.build.cleaning import changes, contamination, datatrove_filters, language, repeated_lines
from bert_jax.corpus.build.cleaning.verdict import Removed


class CleaningRule(NamedTuple):
    """A row of RULES.

    Attributes:
        apply: pure function (text, parameters) -> the text, changed or not, or `Removed`.
        check: (parameters) -> None; raises UserError for wrong parameters, packages or files, before any work.
        versions: (parameters) -> versions of the files that the rule reads, or constants of the rule, as JSON.
        survey: (text, parameters) -> hashes of a text; an earlier pass counts the documents with each hash; None: the
            rule needs no earlier pass.
        describe: () -> the parameters; None: the parameters are the keyword-only arguments of `apply`.
    """

    apply: Callable[..., str | Removed]
    check: Callable[..., None] = lambda **_: None
    versions: Callable[..., Any] = lambda **_: []
    survey: Callable[..., Any] | None = None
    describe: Callable[[], Mapping[str, inspect.Parameter]] | None = None

    def parameters(self) -> dict[str, inspect.Parameter]:
        """Return the parameters that a recipe can give; raise UserError if the package of the rule is missing."""
        if self.describe:
            return dict(self.describe())
        arguments = inspect.signature(self.apply).parameters
        return {name: argument for name, argument in arguments.items() if argument.kind is argument.KEYWORD_ONLY}


def _datatrove_rule(rule: str) -> CleaningRule:
    """Return the row of RULES for a filter of datatrove."""
    return CleaningRule(
        functools.partial(datatrove_filters.apply_filter, rule=rule),
        functools.partial(datatrove_filters.check_filter, rule=rule),
        describe=functools.partial(datatrove_filters.filter_parameters, rule),
    )


RULES: dict[str, CleaningRule] = {
    "repair_encoding": CleaningRule(changes.repair_encoding, changes.check_ftfy_installed),
    "language": CleaningRule(language.remove_other_languages, language.check_language_rule),
    **{rule: _datatrove_rule(rule) for rule in datatrove_filters.FILTERS},
    "repeated_lines": CleaningRule(
        repeated_lines.remove_repeated_lines,
        repeated_lines.check_repeated_lines_rule,
        versions=repeated_lines.versions_of_words,
        survey=repeated_lines.distinct_line_hashes,
    ),
    "mask_emails": CleaningRule(changes.mask_emails),
    "mask_ip_addresses": CleaningRule(changes.mask_ip_addresses),
    "contamination": CleaningRule(
        contamination.remove_contaminated_text,
        contamination.check_evaluation_files,
        contamination.evaluation_file_versions,
    ),
}
