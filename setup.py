"""The one step that setup.cfg cannot state: a wheel has configs/ as bert_jax/configs/, a source archive as configs/."""

import pathlib

from setuptools import setup
from setuptools.command.build_py import build_py


def _recipes() -> list[str]:
    """Return the files of configs/: recipes of training, and of cleaning."""
    return sorted(str(path) for suffix in ("py", "toml") for path in pathlib.Path("configs").rglob(f"*.{suffix}"))


class BuildWithRecipes(build_py):
    """Build the package and copy the recipes into it; an editable install reads them from the checkout."""

    def run(self) -> None:
        """Copy every file."""
        super().run()
        for recipe in () if self.editable_mode else _recipes():
            copy = pathlib.Path(self.build_lib, "bert_jax", recipe)
            self.mkpath(str(copy.parent))
            self.copy_file(recipe, str(copy))

    def get_source_files(self) -> list[str]:
        """Return the files of a source archive."""
        return [*super().get_source_files(), *_recipes()]


setup(cmdclass={"build_py": BuildWithRecipes})
