"""The verb completion: a script that lets a shell complete verbs, options, recipes and config keys."""

import argparse
from collections.abc import Mapping

from bert_jax.cli.command import Verb
from bert_jax.cli.parser import make_parser
from bert_jax.errors import needs_packages

SHELLS = ("bash", "zsh", "tcsh")
DIRECTORIES = ("DIR", "WORKDIR")  # metavars of options that take a directory
FILES = ("FILE", "PATH", "GLOB", "PLACE")  # metavars of options that take a file or a directory


def completion_script(verbs: Mapping[str, Verb], shell: str) -> str:
    """Return the completion script of a shell; raise UserError if shtab is not installed."""
    with needs_packages("completion", "shtab"):
        import shtab
    from bert_jax.config import FinetuneConfig, PretrainConfig, fields_of
    from bert_jax.config.load import recipes

    top = make_parser(verbs)
    (all_verbs,) = (action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    all_verbs.help = "verb"  # shtab omits an action without help
    classes = {"pretrain": PretrainConfig, "finetune": FinetuneConfig}
    names = sorted(name.rpartition("/")[2] for name in recipes())
    for verb_name, parser in all_verbs.choices.items():
        for kind in verbs[verb_name].config_kinds:
            for key, _, _ in fields_of(classes[kind]):
                if f"--config.{key}" not in parser.option_names():
                    parser.add_argument(f"--config.{key}", metavar="VALUE")
        for action in parser._actions:
            metavar = str(action.metavar or "")
            if metavar == "RECIPE":
                action.choices = names
            elif metavar in (*DIRECTORIES, *FILES):
                kind_of_path = shtab.DIRECTORY if metavar in DIRECTORIES else shtab.FILE
                action.complete = kind_of_path
    script: str = shtab.complete(top, shell)
    return script


def make_completion_verb(verbs: Mapping[str, Verb]) -> Verb:
    """Return the verb that prints completion scripts for `verbs`."""

    def add_options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"shell: {', '.join(SHELLS)}")

    def run(args: argparse.Namespace) -> None:
        print(completion_script(verbs, args.shell), end="")

    return Verb(
        summary="print a script that lets the shell complete commands",
        description=(
            "The Tab key then completes verbs, options, recipes, config keys and paths. Needs pip install shtab. "
            "For bash, write the script to ~/.local/share/bash-completion/completions/bert-jax. For zsh, write the "
            "script to a file _bert-jax in a directory of $fpath."
        ),
        example="bash > ~/.local/share/bash-completion/completions/bert-jax",
        add_options=add_options,
        run=run,
    )
