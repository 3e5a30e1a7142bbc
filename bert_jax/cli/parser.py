"""Parser of the command line, and errors for words that belong to no option."""

import argparse
import functools
import itertools
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from bert_jax import __version__
from bert_jax.cli.command import Verb
from bert_jax.errors import did_you_mean, nearest

# Option -> its synonyms. In a verb without the option, the option stands for its first synonym that the verb has.
SYNONYMS = {
    "--workdir": ("--model", "--path"),
    "--model": ("--init_from", "--workdir", "--path"),
    "--path": ("--workdir", "--model"),
    "--config": ("--recipe",),
    "--recipe": ("--config",),
    "--type": ("--kind",),
}
# Words of other tools -> verbs of bert-jax.
OTHER_VERBS = {
    "train": "pretrain",
    "fine-tune": "finetune",
    "eval": "evaluate",
    "test": "evaluate",
    "tokenize": "tokenizer",
    "preprocess": "prepare",
    "encode": "embed",
    "classify": "predict",
    "infer": "predict",
    "convert": "export",
    "mask": "fill-mask",
    "ner": "finetune",
    "lora": "finetune",
    "search": "score",
    "vocab": "tokenizer",
    "prune": "compress",
    "quantize": "export",
    "benchmark": "score",
    "demo": "pretrain --config=demo",
    "dedup": "prepare --deduplicate",
    "download": "export",
}
# Words of other tools that no single verb replaces -> advice.
OTHER_TASKS = dict.fromkeys(
    ("resume", "continue", "restart"),
    "to resume a run, repeat the `bert-jax pretrain` or `bert-jax finetune` command with its --workdir",
)
# Values of options with these metavars may be empty.
MAY_BE_EMPTY = ("TEXT", "CHARACTER", "GLOB", "PATTERN")
# Words for choices in other tools -> the choices of bert-jax.
OTHER_CHOICES = {
    "sentencepiece": "unigram",
    "spm": "unigram",
    "byte-level-bpe": "byte_level",
    "gpu": "cuda",
    "average": "mean",
    **dict.fromkeys(("safetensors", "pytorch", "torch", "transformers", "hf"), "huggingface"),
}


class Help(argparse.RawDescriptionHelpFormatter):
    """A help formatter that breaks no line inside an option such as `--max_seq_len`."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


class Once(argparse.Action):
    """An action that stores a value and refuses a second value; argparse would silently keep the last value."""

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
    """A parser that reports a mistake in two lines; argparse would print the whole usage."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, formatter_class=Help, allow_abbrev=False)
        self.postponed: list[argparse.Action] = []
        self.postponed_groups: list[argparse._MutuallyExclusiveGroup] = []
        self.register("action", None, Once)
        self.register("type", int, _parse_whole_number)
        self.register("type", float, _parse_number)

    def error(self, message: str) -> NoReturn:
        """Print a message and exit with status 2."""
        self.exit(2, f"{self.prog}: {message}\n`{self.prog} --help` shows how to use it\n")

    def postpone_required(self) -> None:
        """Allow required options to be absent while arguments are parsed; the caller checks the list `postponed`."""
        self.postponed_groups = [group for group in self._mutually_exclusive_groups if group.required]
        for group in self.postponed_groups:
            group.required = False
        self.postponed = [action for action in self._actions if action.required and action.option_strings]
        for action in self.postponed:
            action.required = False

    def format_help(self) -> str:
        """Return the help, which shows the options in `postponed` as required."""
        for action in self.postponed:
            action.required = True
        for group in self.postponed_groups:
            group.required = True
        return super().format_help()

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse an empty path, name or number, and a value that is no choice of the option, and suggest a choice."""
        if value == "" and action.metavar not in MAY_BE_EMPTY:
            raise argparse.ArgumentError(action, "the value is empty, as by a shell variable that is not set")
        if action.choices is None or value in action.choices:
            return
        near = OTHER_CHOICES.get(str(value), "")
        suggested = f"; did you mean '{near}'?" if near in action.choices else did_you_mean(str(value), action.choices)
        choices = ", ".join(map(repr, action.choices))
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}{suggested} (choose from {choices})")

    def option_names(self) -> list[str]:
        """Return the names of the options, such as `--workdir`."""
        return [name for action in self._actions for name in action.option_strings]


def parse_arguments(verbs: Mapping[str, Verb], argv: Sequence[str]) -> argparse.Namespace:
    """Return the arguments of a verb; the argument `overrides` has the words `--config.KEY=VALUE`, not yet checked.

    Only the parser of the verb at the beginning of `argv` is made. If the verb is missing or wrong, the parser of all
    verbs explains the mistake. In verbs, options and keys, `-` and `_` are interchangeable.
    Words without an option become the values of the options in `Verb.bare_words`.

    Exit with status 2 for a word that belongs to no option, and for an option or an override that is given twice. Exit
    with status 0 after printing help, also if `argv` is empty. The words `help`, `help VERB` and `version` have the
    meaning of the options `--help` and `--version`.
    """
    overrides, words = _split_overrides(argv)
    if words:
        same = [name for name in verbs if _without_separators(name) == _without_separators(words[0])]
        words = [*(same or words[:1]), *words[1:]]
    if words and words[0] in verbs:
        verb = verbs[words[0]]
        parser = _make_verb_parser(Parser, words[0], verb, prog=f"bert-jax {words[0]}")
        args, unknown = _parse_verb(parser, words[1:], verb.bare_words)
    else:
        top = make_parser(verbs)
        asks_for_help = words[:1] == ["help"]
        if asks_for_help and len(words) > 1 and words[1] in verbs:
            return parse_arguments(verbs, [words[1], "--help"])
        if asks_for_help or not argv:
            top.print_help()
            top.exit()
        if words == ["version"]:
            words = ["--version"]
        if words and not words[0].startswith("-"):
            top.error(f"no verb '{words[0]}'{_suggested_verb(words[0], verbs)}")
        args, unknown = top.parse_known_args(words)
        parser = args.parser
    verb, args.overrides = verbs[args.verb], overrides
    if not verb.config_kinds:
        unknown += overrides
    if unknown:
        parser.error(_unknown_words_message(unknown, verb, parser))
    keys = [override.partition("=")[0] for override in overrides]
    for position, key in enumerate(keys):
        if key in keys[:position]:
            parser.error(f"{key} is given twice")
    return args


def _without_separators(name: str) -> str:
    """Return a name of a verb without `-` and `_`; an option such as `--help` stays unchanged."""
    return name if name.startswith("-") else re.sub("[-_]", "", name)


def _suggested_verb(word: str, verbs: Mapping[str, Verb]) -> str:
    """Return `; did you mean ...?` with the verb that a wrong word may stand for; for other words, return advice."""
    name = word.lower().replace("_", "-")
    if name in OTHER_TASKS:
        return f"; {OTHER_TASKS[name]}"
    near = OTHER_VERBS.get(name) or nearest(name, verbs, cutoff=0.6)
    return f"; did you mean '{near}'?" if near else "; `bert-jax help` lists the verbs"


def _is_option(word: str) -> bool:
    """Return whether a word begins an option; `-` (standard input) and texts with spaces do not."""
    return word.startswith("-") and word != "-" and " " not in word.partition("=")[0]


def _unknown_words_message(unknown: Sequence[str], verb: Verb, parser: Parser) -> str:
    """Return the message about words that belong to no option.

    The message names the first word. For an option in `Verb.other_options`, the message has the advice of this
    dictionary. If each wrong option has one suggestion, the message names all wrong options.
    """
    if not _is_option(unknown[0]) and "=" not in unknown[0]:
        return f"'{unknown[0]}' belongs to no option{verb.positional_hint.format(unknown[0])}"
    suggestions: dict[str, list[str]] = {}
    for word, following in itertools.pairwise([*unknown, "-"]):
        name, equals, value = word.partition("=")
        if _is_option(word) or not suggestions:
            value = value if equals else "VALUE" if following.startswith("-") else following
            if name in verb.other_options:
                return f"'{name}' is not an option; {verb.other_options[name].format(value)}"
            suggestions[word] = _suggested_options(name, value, verb, parser)
    if len(suggestions) > 1 and all(len(names) == 1 for names in suggestions.values()):
        meant = " ".join(name.strip("'") for names in suggestions.values() for name in names)
        return f"{' and '.join(map(repr, suggestions))} are not options; did you mean '{meant}'?"
    word, names = next(iter(suggestions.items()))
    meant = f"; did you mean {' or '.join(names)}?" if names else ""
    return f"'{word}' is not an option{meant}"


class _ParsedVerb(NamedTuple):
    """The arguments of a verb, and the words that belong to none of its options."""

    arguments: argparse.Namespace
    unknown_words: list[str]


def _parse_verb(parser: Parser, words: Sequence[str], bare_word_options: Sequence[str]) -> _ParsedVerb:
    """Return the arguments of a verb, and the words that belong to none of its options.

    Words without an option become the values of the options `bare_word_options`, in the order of these options. Exit
    with status 2 if a required option has no value.
    """
    parser.postpone_required()
    args, unknown = parser.parse_known_args(_with_full_option_names(words, parser))
    if unknown:
        unknown = _set_options_without_names(parser, args, unknown, bare_word_options)
    missing = [_option_and_value(action) for action in parser.postponed if getattr(args, action.dest) is None]
    for group in parser.postponed_groups:
        names = [_option_and_value(action) for action in group._group_actions]
        if all(getattr(args, action.dest) in (None, False) for action in group._group_actions):
            missing.append(" or ".join(names))
    if missing and not any(map(_is_option, unknown)):  # the cause is a wrong option, which the caller reports
        parser.error(f"give {' and '.join(missing)}")
    return _ParsedVerb(args, unknown)


def _set_options_without_names(
    parser: Parser, args: argparse.Namespace, unknown: list[str], bare_word_options: Sequence[str]
) -> list[str]:
    """Store words without an option as the values of the options `bare_word_options`; return the remaining words."""
    given: set[str] = getattr(args, "given", set())
    actions = {action.dest: action for action in parser._actions}
    for name in bare_word_options:
        if not unknown or _is_option(unknown[0]):
            break
        action = actions[name]
        if action.dest in given or isinstance(getattr(args, action.dest), list):
            continue
        if action.nargs == "+":  # takes all words up to the next option
            count = next((index for index, word in enumerate(unknown) if _is_option(word)), len(unknown))
            setattr(args, action.dest, [unknown[:count]])
            unknown = unknown[count:]
        else:
            try:
                setattr(args, action.dest, parser._get_value(action, unknown.pop(0)))
            except argparse.ArgumentError as error:
                parser.error(str(error))
    return unknown


def _option_and_value(action: argparse.Action) -> str:
    """Return an option with a placeholder for its value, such as `--output FILE.png`."""
    value = action.metavar or "|".join(map(str, action.choices or ()))
    return f"{'/'.join(action.option_strings)} {value}".strip()


def _with_full_option_names(words: Sequence[str], parser: Parser) -> list[str]:
    """Return words, in which each option has the full name that the parser knows."""
    options = parser.option_names()
    positional = {action.dest for action in parser._actions if not action.option_strings}
    spelled = []
    for word in words:
        name, equals, value = word.partition("=")
        if not word.startswith("--") or name in options:
            spelled.append(word)
            continue
        name = name.replace("-", "_").replace("__", "--", 1)
        names = [name, *SYNONYMS.get(name, ())]
        option = next((name for name in names if name in options), None)
        if option:
            spelled.append(f"{option}{equals}{value}")
        elif any(name.removeprefix("--") in positional for name in names):
            spelled += [value] * bool(equals)
        else:
            spelled.append(word)
    return spelled


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
        _make_verb_parser(functools.partial(subparsers.add_parser, name, help=verb.summary), name, verb)
    return top


def _make_verb_parser(make: Callable[..., Parser], name: str, verb: Verb, **settings: str) -> Parser:
    """Make the parser of a verb by calling `make` with the verb's help, and add the verb's options."""
    short_form = ""
    if verb.bare_words:
        short_form = f"\n\nshort form:\n  bert-jax {name} {' '.join(map(str.upper, verb.bare_words))}"
    parser = make(
        **settings,
        description=f"{verb.summary[0].upper()}{verb.summary[1:]}.\n\n"
        + textwrap.fill(verb.description, 80, break_on_hyphens=False),
        epilog=f"example:\n  bert-jax {name} {verb.example}{short_form}",
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    verb.add_options(parser)
    parser.set_defaults(parser=parser, verb=name)
    return parser


class _OverridesAndWords(NamedTuple):
    """The overrides `--config.KEY=VALUE`, and all other words."""

    overrides: list[str]
    words: list[str]


def _split_overrides(argv: Sequence[str]) -> _OverridesAndWords:
    """Return the overrides in the form `--config.KEY=VALUE`, and all other words.

    argparse would treat the value after an unknown option, and an override that contains a space, as positional
    arguments.
    """
    overrides: list[str] = []
    words: list[str] = []
    lacks_value = False  # True if the last override has no value yet
    for word in argv:
        if word.startswith("--config."):
            key, equals, value = word.partition("=")
            overrides.append(f"--{key[2:].replace('-', '_')}{equals}{value}")
        elif lacks_value and not word.startswith("--"):
            overrides[-1] += f"={word}"
        else:
            words.append(word)
        lacks_value = word.startswith("--config.") and "=" not in word
    return _OverridesAndWords(overrides, words)


def _suggested_options(name: str, value: str, verb: Verb, parser: Parser) -> list[str]:
    """Return the options, choices or config keys, in quotes, that a wrong option with a value may stand for."""
    from bert_jax.config import FinetuneConfig, PretrainConfig, fields_of
    from bert_jax.config.suggestions import ALIASES, suggest_keys

    plain = name.lstrip("-").replace("-", "_")
    if len(plain) == 1:  # a letter of other tools, such as -o
        return [f"'{option}'" for option in parser.option_names() if option.startswith(f"--{plain}")][:1]
    words = {plain, OTHER_CHOICES.get(plain, plain)}
    has_meaning = any(option in parser.option_names() for option in ALIASES.get(plain.replace("_", ""), ()))
    for action in () if has_meaning else parser._actions:
        for choice in action.choices or ():
            if choice in words or str(choice).endswith(f"_{plain}"):
                return [f"'{action.option_strings[0]} {choice}'"]
    classes = {"pretrain": PretrainConfig, "finetune": FinetuneConfig}
    keys = dict.fromkeys(key for kind in verb.config_kinds for key, _, _ in fields_of(classes[kind]))
    return [
        f"'{key}'" if key.startswith("-") else f"'--config.{key}={value}'"
        for key in suggest_keys(name, [*parser.option_names(), *keys])
    ]


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
