"""Parser of the command line, and errors for words that belong to no option."""

import argparse
import functools
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from bert_jax import __version__
from bert_jax.cli.command import Verb


class Help(argparse.RawDescriptionHelpFormatter):
    """Help whose lines do not break inside `--options`."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


class Once(argparse.Action):
    """Store a value and refuse a second value; argparse alone would silently keep the last."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """Store the value."""
        given: set[str] = vars(namespace).setdefault("given", set())
        if self.dest in given:
            parser.error(f"{' or '.join(self.option_strings)} is given twice")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """A parser that reports a mistake in two lines; argparse alone prints the whole usage."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, formatter_class=Help, allow_abbrev=False)
        self.register("action", None, Once)
        self.register("type", int, _parse_whole_number)
        self.register("type", float, _parse_number)

    def error(self, message: str) -> NoReturn:
        """Exit with status 2."""
        self.exit(2, f"{self.prog}: {message}\n`{self.prog} --help` shows how to use it\n")

    def options(self) -> list[str]:
        """Return the names of the options, such as `--workdir`."""
        return [name for action in self._actions for name in action.option_strings]


def parse_arguments(verbs: Mapping[str, Verb], argv: Sequence[str]) -> argparse.Namespace:
    """Return the arguments of a verb; `overrides` holds `--config.KEY=VALUE` words, which `read_config` checks.

    Makes only the parser of the verb that `argv` begins with; the parser of all verbs explains a missing or wrong verb.

    Exits with status 2 for a word that belongs to no option, and for an option or an override that is given twice;
    with status 0 after printing help, also where there is no word at all.
    """
    overrides, words = _split_overrides(argv)
    if words and words[0] in verbs:
        parser = _make_verb_parser(Parser, words[0], verbs[words[0]], prog=f"bert-jax {words[0]}")
        args, unknown = parser.parse_known_args(words[1:])
    else:
        top = make_parser(verbs)
        if not argv:
            top.print_help()
            top.exit()
        args, unknown = top.parse_known_args(words)
        parser = args.parser
    verb, args.overrides = verbs[args.verb], overrides
    if not verb.config_kinds:
        unknown += overrides
    if unknown:
        word, following = unknown[0], next(iter(unknown[1:]), "-")
        name, equals, value = word.partition("=")
        if not word.startswith("-") and not equals:
            parser.error(f"'{word}' belongs to no option{verb.positional_hint.format(word)}")
        value = value if equals else "VALUE" if following.startswith("-") else following
        parser.error(f"'{word}' is not an option{_suggested_options(name, value, verb, parser)}")
    keys = [override.partition("=")[0] for override in overrides]
    for position, key in enumerate(keys):
        if key in keys[:position]:
            parser.error(f"{key} is given twice")
    return args


def make_parser(verbs: Mapping[str, Verb]) -> Parser:
    """Return the parser of the whole command line."""
    summaries = "".join(f"  {name:<10}  {verb.summary}\n" for name, verb in verbs.items())
    examples = "".join(f"  bert-jax {name:<10} {verb.example}\n" for name, verb in verbs.items())
    top = Parser(
        prog="bert-jax",
        usage="bert-jax VERB ...",
        description=f"Pretrain, fine-tune, evaluate and export BERT-family encoders in JAX.\n\nverbs:\n{summaries}",
        epilog=f"examples, from text to a model:\n{examples}\n`bert-jax VERB --help` explains a verb.",
    )
    top.add_argument("--version", action="version", version=f"bert-jax {__version__}")
    subparsers = top.add_subparsers(required=True, dest="verb", metavar="VERB", prog="bert-jax", help=argparse.SUPPRESS)
    for name, verb in verbs.items():
        _make_verb_parser(functools.partial(subparsers.add_parser, name), name, verb)
    return top


def _make_verb_parser(make: Callable[..., Parser], name: str, verb: Verb, **settings: str) -> Parser:
    """Return the parser that `make` returns for the help of a verb, with the verb's options."""
    parser = make(
        **settings,
        description=f"{verb.summary[0].upper()}{verb.summary[1:]}.\n\n"
        + textwrap.fill(verb.description, 80, break_on_hyphens=False),
        epilog=f"example:\n  bert-jax {name} {verb.example}",
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    verb.add_options(parser)
    parser.set_defaults(parser=parser, verb=name)
    return parser


def _split_overrides(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the overrides, `--config.KEY VALUE` as `--config.KEY=VALUE`, and the other words.

    argparse takes a value after an unknown option, and an override with a space in it, for a positional argument.
    """
    overrides: list[str] = []
    words: list[str] = []
    lacks_value = False  # the last override has no value yet
    for word in argv:
        if word.startswith("--config."):
            overrides.append(word)
        elif lacks_value and not word.startswith("--"):
            overrides[-1] += f"={word}"
        else:
            words.append(word)
        lacks_value = word.startswith("--config.") and "=" not in word
    return overrides, words


def _suggested_options(name: str, value: str, verb: Verb, parser: Parser) -> str:
    """Return `; did you mean ...?` with options, or keys of the config, that a misspelled word may stand for."""
    from bert_jax.config import FinetuneConfig, PretrainConfig, fields_of
    from bert_jax.config.suggestions import suggest_keys

    classes = {"pretrain": PretrainConfig, "finetune": FinetuneConfig}
    keys = dict.fromkeys(key for kind in verb.config_kinds for key, _, _ in fields_of(classes[kind]))
    suggested = [
        f"'{key}'" if key.startswith("-") else f"'--config.{key}={value}'"
        for key in suggest_keys(name, [*parser.options(), *keys])
    ]
    return f"; did you mean {' or '.join(suggested)}?" if suggested else ""


def _parse_whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number") from None


def _parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number") from None
