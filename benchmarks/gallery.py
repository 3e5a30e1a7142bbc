"""Draw the pictures of docs/gallery.md from pages about a demo, in Chromium.

    make demo && python benchmarks/gallery.py demo [--bias_model DIR] [--books_run DIR]

The demo has the directories `run`, `corpus` and `model`. bias.png needs a model that expects pronouns beside
occupations, which the demo's model does not; predictions.png is about a longer run on books. Without --bias_model and
--books_run, bias.png and predictions.png stay unchanged.
"""

import argparse
import pathlib
import sys
import tempfile
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from bert_jax.cli.main import main as bert_jax
from tests.helpers.browser import Browser, open_browser

PICTURES = pathlib.Path(__file__).resolve().parents[1] / "docs" / "pictures"
TEXT = "Return a new [MASK] with the same values."
BY_TIME = "document.querySelector('#by-time')?.click()"


class Shot(NamedTuple):
    """A picture of a page: the window, and the element at its top."""

    page: str
    width: int
    height: int
    top: str = ""  # CSS selector; "": the top of the page
    dark: bool = False
    script: str = ""  # run before the picture is taken
    pointer: str = ""  # CSS selector of the element under the pointer


SHOTS = {
    "report.png": Shot("run", 1100, 780),
    "report_phone.png": Shot("run", 390, 780, dark=True),
    "values.png": Shot("run", 1100, 440, ".filters", script=BY_TIME, pointer=".by-time label:nth-of-type(12)"),
    "attention.png": Shot("attention", 1100, 620),
    "inspect.png": Shot("corpus", 1100, 700),
    "predictions.png": Shot("books", 1000, 560, "details[open]:has(mark)", dark=True),
    "bias.png": Shot("bias", 900, 1200),
}


def main() -> None:
    """Write the pages to a temporary directory, and the pictures to docs/pictures."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("demo", type=pathlib.Path, help="directory of `make demo`")
    arguments.add_argument("--bias_model", help="model of bias.png")
    arguments.add_argument("--books_run", help="work directory of predictions.png")
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        output = pathlib.Path(directory)
        masking = ("--config.data.packing=4", "--config.data.masking=whole_word")
        commands: dict[str, tuple[object, ...]] = {
            "run": ("report", args.demo / "run", "--output"),
            "attention": ("attention", "--model", args.demo / "model", TEXT, "--output"),
            "corpus": ("inspect", args.demo / "corpus", *masking, "--html"),
        }
        if args.books_run:
            commands["books"] = ("report", args.books_run, "--output")
        if args.bias_model:
            commands["bias"] = ("bias", "--model", args.bias_model, "--output")
        for name, words in commands.items():
            assert bert_jax([str(word) for word in (*words, output / f"{name}.html")]) == 0
        (output / "browser").mkdir()
        with open_browser(output / "browser") as browser:
            for name, shot in SHOTS.items():
                if shot.page in commands:
                    _take(browser, output / f"{shot.page}.html", shot, PICTURES / name)
                    print(f"{PICTURES / name}: {(PICTURES / name).stat().st_size:,} bytes")


def _take(browser: Browser, page: pathlib.Path, shot: Shot, output: pathlib.Path) -> None:
    """Save the picture of a page."""
    browser.open(page.as_uri(), wide=shot.width, high=shot.height, dark=shot.dark)
    if shot.script:
        browser.run(shot.script)
    if shot.top:
        browser.run(f"document.querySelector({shot.top!r}).scrollIntoView()")
        browser.run("scrollBy(0, -(document.querySelector('.contents')?.offsetHeight ?? 0))")
    if shot.pointer:
        box = browser.run(f"document.querySelector({shot.pointer!r}).getBoundingClientRect().toJSON()")
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    browser.picture(output)


if __name__ == "__main__":
    main()
