"""Recipes by file or by name; the named recipes (`--config=bert_base`) are in the checkout and in the wheel."""

import pathlib

from bert_jax.errors import UserError, nearest

PACKAGE = pathlib.Path(__file__).resolve().parents[1]


def recipes() -> dict[str, pathlib.Path]:
    """Return name -> file of the recipes that come with bert_jax, such as `demo` and `finetune/glue`."""
    for folder in (PACKAGE / "configs", PACKAGE.parent / "configs"):  # in a wheel, in a checkout
        if folder.is_dir():
            files = sorted(path for path in folder.rglob("*.py") if path.stem != "__init__")
            return {path.relative_to(folder).with_suffix("").as_posix(): path for path in files}
    return {}


def find_recipe(recipe: str) -> str:
    """Return `FILE` or, for a recipe with an argument, `FILE:ARGUMENT`, the form that ml_collections reads.

    Args:
        recipe: `my/recipe.py`, `demo`, `finetune/glue` or `glue`; each may end in an argument, as `bert:tiny` does.

    Raises:
        UserError: neither a file nor a recipe has this name.
    """
    name, colon, argument = recipe.partition(":")
    if pathlib.Path(name).is_file():
        return recipe
    known = recipes()
    short = {known_name.rpartition("/")[2]: path for known_name, path in reversed(known.items())}
    wanted = name.removesuffix(".py").removeprefix("configs/")
    path = known.get(wanted) or short.get(wanted)
    if path:
        return f"{path}{colon}{argument}"
    near = nearest(pathlib.Path(name).stem, short)
    raise UserError(
        f"--config={recipe}: no such file or recipe{f'; did you mean {near}?' if near else ''} "
        f"(recipes: {', '.join(known)})"
    )
