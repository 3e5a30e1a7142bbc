"""Output of the command line: help, and the fields of every recipe."""

import io
import json
from contextlib import redirect_stdout, suppress
from typing import Any

from tests.record.inside import run, verbs

COLUMNS = "100"  # of the terminal for which help is wrapped


def said(*words: str) -> str:
    """What a command prints."""
    with redirect_stdout(io.StringIO()) as out, suppress(SystemExit):  # argparse's way, after help
        run(*words)
    return out.getvalue()


def helps() -> dict[str, str]:
    """Verb -> its help; the whole command line's is "bert-jax"."""
    return {"bert-jax": said("--help")} | {verb: said(verb, "--help") for verb in verbs()}


def configs() -> dict[str, Any]:
    """Each root's fields with defaults and meanings, and each recipe's values that differ from them."""
    found: dict[str, Any] = {}
    default = json.loads(said("config", "--json"))
    found["recipes"] = default["recipes"]
    for name in default["recipes"]:
        one = json.loads(said("config", name, "--json"))
        verb, fields = one.pop("verb"), one.pop("fields")
        assert one == {"recipe": name}
        described = found.setdefault(f"fields of {verb}", {})
        for field in fields:
            key, value = field.pop("key"), field.pop("value")
            text = json.dumps(field)
            assert described.setdefault(key, text) == text
            if value != field["default"] or "[" in key:
                found.setdefault(name, {"verb": verb})[key] = value
        found.setdefault(name, {"verb": verb})["number of fields"] = len(fields)
    same = "as in pretrain"
    pretraining, finetuning = found["fields of pretrain"], found["fields of finetune"]
    found["fields of finetune"] = {
        key: same if pretraining.get(key) == field else field for key, field in finetuning.items()
    }
    return found
