"""The parser of the command line, and errors for words that belong to no option."""

import argparse
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from bert_jax import __version__
from bert_jax.cli.command import Command


class Verb(NamedTuple):
    """A row of the table of verbs."""

    command: Command
    run: Callable[[argparse.Namespace], int | None]  # returns the exit status; None: 0
    less: str = "use a machine with more"  # advice where memory runs out


class Help(argparse.RawDescriptionHelpFormatter):
    """Help whose lines do not break inside `--options`."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


class Once(argparse.Action):
    """Store a value and refuse a second one; argparse would silently keep the last."""

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
        self.register("type", int, _whole_number)
        self.register("type", float, _number)

    def error(self, message: str) -> NoReturn:
        """Exit with status 2."""
        self.exit(2, f"{self.prog}: {message}\n`{self.prog} --help` shows how to use it\n")

    def options(self) -> list[str]:
        """Return the names of its options."""
        return [name for action in self._actions for name in action.option_strings]


def parse(verbs: Mapping[str, Verb], argv: Sequence[str]) -> argparse.Namespace:
    """Return the arguments of a verb; `overrides` holds `--config.KEY=VALUE` words, which `read_config` checks.

    Exits with status 2 for a word that belongs to no option, and for an option or an override that is given twice;
    with status 0 after printing help, also where there is no word at all.
    """
    parser = make_parser(verbs)
    if not argv:
        parser.print_help()
        parser.exit()
    overrides, others = _overrides(argv)
    args, unknown = parser.parse_known_args(others)
    command, args.overrides = verbs[args.verb].command, overrides
    if not command.kinds:
        unknown += overrides
    if unknown:
        word, following = unknown[0], next(iter(unknown[1:]), "-")
        name, equals, value = word.partition("=")
        if not word.startswith("-") and not equals:
            args.parser.error(f"'{word}' belongs to no option{command.stray.format(word)}")
        value = value if equals else "VALUE" if following.startswith("-") else following
        args.parser.error(f"'{word}' is not an option{_meant(name, value, command, args.parser)}")
    names = [override.partition("=")[0] for override in overrides]
    for number, name in enumerate(names):
        if name in names[:number]:
            args.parser.error(f"{name} is given twice")
    return args


def make_parser(verbs: Mapping[str, Verb]) -> Parser:
    """Return the parser of the whole command line."""
    summaries = "".join(f"  {name:<10}  {verb.command.summary}\n" for name, verb in verbs.items())
    examples = "".join(f"  bert-jax {name:<10} {verb.command.example}\n" for name, verb in verbs.items())
    top = Parser(
        prog="bert-jax",
        usage="bert-jax VERB ...",
        description=f"Pretrain, fine-tune, evaluate and export BERT-family encoders in JAX.\n\nverbs:\n{summaries}",
        epilog=f"examples, from text to a model:\n{examples}\n`bert-jax VERB --help` explains a verb.",
    )
    top.add_argument("--version", action="version", version=f"bert-jax {__version__}")
    subparsers = top.add_subparsers(dest="verb", required=True, metavar="VERB", prog="bert-jax", help=argparse.SUPPRESS)
    for name, verb in verbs.items():
        command = verb.command
        one = subparsers.add_parser(
            name,
            description=f"{command.summary[0].upper()}{command.summary[1:]}.\n\n"
            + textwrap.fill(command.description, 80, break_on_hyphens=False),
            epilog=f"example:\n  bert-jax {name} {command.example}",
        )
        one.add_argument("--debug", action="store_true", help="show the traceback of an error")
        command.add_options(one)
        one.set_defaults(parser=one)
    return top


def _overrides(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the overrides, `--config.KEY VALUE` as `--config.KEY=VALUE`, and the other words.

    argparse takes a value after an unknown option, and an override with a space in it, for a positional argument.
    """
    overrides: list[str] = []
    others: list[str] = []
    waits = False  # the override before has no value yet
    for word in argv:
        if word.startswith("--config."):
            overrides.append(word)
        elif waits and not word.startswith("--"):
            overrides[-1] += f"={word}"
        else:
            others.append(word)
        waits = word.startswith("--config.") and "=" not in word
    return overrides, others


def _meant(name: str, value: str, command: Command, parser: Parser) -> str:
    """Return `; did you mean ...?` with options, or keys of the config, that a word may stand for."""
    from bert_jax.config import FinetuneConfig, PretrainConfig, fields_of
    from bert_jax.config.suggestions import keys_meant

    kinds = {"pretrain": PretrainConfig, "finetune": FinetuneConfig}
    keys = dict.fromkeys(key for kind in command.kinds for key, _, _ in fields_of(kinds[kind]))
    found = [
        f"'{one}'" if one.startswith("-") else f"'--config.{one}={value}'"
        for one in keys_meant(name, [*parser.options(), *keys])
    ]
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number") from None
