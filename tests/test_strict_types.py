"""mypy runs with `strict`; the modules with an exception are listed in setup.cfg, and the list only shrinks."""

import configparser
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
MAX_EXCEPTIONS = 34  # lower it with each module that leaves the list


def test_the_list_of_exceptions_only_shrinks() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    assert config["mypy"].getboolean("strict")
    (section,) = (name for name in config.sections() if name.startswith("mypy-"))
    assert dict(config[section]) == {"warn_return_any": "False"}
    modules = section.removeprefix("mypy-").split(",")
    assert modules == sorted(set(modules))
    assert len(modules) == MAX_EXCEPTIONS
    missing = [name for name in modules if not (ROOT / (name.replace(".", "/") + ".py")).is_file()]
    assert not missing
    assert not [path for path in (ROOT / "bert_jax").rglob("*.py") if "# mypy:" in path.read_text(encoding="utf-8")]
