"""Write the API reference, one HTML page per module: `make docs`, or `python docs/reference.py docs/api`."""

import importlib
import pathlib
import pkgutil
import sys

import pdoc

import bert_jax
from bert_jax.errors import UserError


def modules() -> list[str]:
    """Return the names of all modules, and with ! those that need an extra which is not installed."""
    names = ["bert_jax"]
    for module in pkgutil.walk_packages(bert_jax.__path__, "bert_jax."):
        try:
            if module.name != "bert_jax.__main__":
                importlib.import_module(module.name)
                names.append(module.name)
        except (ImportError, UserError) as error:
            print(f"left out: {module.name} ({error})")
            names.append(f"!{module.name}")
    return sorted(names, key=lambda name: name.startswith("!"))


def main(output: pathlib.Path) -> None:
    """Write all pages."""
    for name in bert_jax.__all__:  # a name is imported when first used; pdoc reads only imported names
        setattr(bert_jax, name, getattr(bert_jax, name))
    pdoc.render.configure(docformat="google")
    pdoc.pdoc(*modules(), output_directory=output)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
