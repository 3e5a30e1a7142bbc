"""The one step that setup.cfg cannot state: a wheel carries configs/ as bert_jax/configs/."""

import pathlib

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithRecipes(build_py):
    """Build the package and copy the recipes into it; an editable install reads them from the checkout."""

    def run(self) -> None:
        """Copy every file."""
        super().run()
        for recipe in () if self.editable_mode else sorted(pathlib.Path("configs").rglob("*.py")):
            copy = pathlib.Path(self.build_lib, "bert_jax", recipe)
            self.mkpath(str(copy.parent))
            self.copy_file(str(recipe), str(copy))


setup(cmdclass={"build_py": BuildWithRecipes})
