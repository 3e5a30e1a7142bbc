"""Every page, drawn from small real runs, in Chromium: wide and narrow, light and dark.

The tests measure the layout: overflow, contrast, texts that cover each other, the focus, the values under the pointer.
Pictures are also compared with kept pictures, reduced to a sixteenth, on machines with the fonts of the kept pictures.
`KEEP_PICTURES=1 pytest tests/cli/test_pages.py -k kept_picture` writes them again.
"""

import itertools
import json
import os
import pathlib
import shutil
from collections.abc import Iterator

import numpy as np
import PIL.Image
import pytest

from bert_jax.cli.main import main
from tests.helpers.browser import TAB, Browser, Opened, open_browser
from tests.helpers.commands import World
from tests.helpers.finetuning_runs import finetune_command, make_world

WIDE, NARROW = 1280, 390
LEAST_CONTRAST = 4.5  # WCAG 2.2, level AA
# Texts below this contrast with the color behind them, as [contrast, class, text]. A number in a bar stands on the bar.
LOW_CONTRAST = """(() => {
  const parts = color => (color.match(/[\\d.]+/g) || []).map(Number);
  const blend = (top, below) => {
    const alpha = top.length > 3 ? top[3] : 1;
    return [0, 1, 2].map(at => alpha * top[at] + (1 - alpha) * below[at]);
  };
  const luminance = rgb => {
    const [r, g, b] = rgb.map(x => x / 255).map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = node => {
    if (node.matches && node.matches('.inside')) return parts(getComputedStyle(node.previousElementSibling).fill);
    const above = [];
    for (let each = node; each; each = each.parentElement) above.push(parts(getComputedStyle(each).backgroundColor));
    return above.reverse().reduce((below, color) => color.length ? blend(color, below) : below, [255, 255, 255]);
  };
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let count = 0;
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    const isText = walker.currentNode.data.trim() && !node.closest('title, style, option, defs');
    if (!isText || !node.checkVisibility()) continue;
    count += 1;
    const style = getComputedStyle(node), back = behind(node);
    const color = blend(parts(node.closest('svg') ? style.fill : style.color), back);
    const [low, high] = [luminance(color), luminance(back)].sort((a, b) => a - b);
    const contrast = (high + 0.05) / (low + 0.05);
    const name = node.className.baseVal ?? node.className;
    if (contrast < LEAST) found.push([contrast, name, node.textContent.slice(0, 40)]);
  }
  return {count, found};
})()""".replace("LEAST)", f"{LEAST_CONTRAST})")
# Pairs of texts of a drawing that cover each other by more than a pixel.
COVERED = """[...document.querySelectorAll('svg')].filter(svg => svg.checkVisibility()).flatMap(svg => {
  const drawn = [...svg.querySelectorAll('text:not(defs text)')];
  const texts = drawn.map(text => [text.textContent, text.getBoundingClientRect()]);
  return texts.flatMap(([name, one], at) => texts.slice(at + 1).filter(([_, two]) =>
    Math.min(one.right, two.right) - Math.max(one.left, two.left) > 1 &&
    Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top) > 4).map(([other]) => [name, other]));
})"""
OPEN_ALL = "document.querySelectorAll('details').forEach(each => each.open = true)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(world: World, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pathlib.Path]:
    """The page of each verb that writes pages."""
    place = tmp_path_factory.mktemp("pages")
    tasks = make_world(place)
    other = pathlib.Path(shutil.copytree(world.run, place / "other"))
    values = json.loads((other / "run.json").read_text())
    values["fingerprint"]["tokenizer"] = "0" * 64
    (other / "run.json").write_text(json.dumps(values))
    templates = {"template": "{} [MASK] ab.", "fillers": ["ab", "c"], "groups": {"vowels": ["a", "e"], "b": ["b", "c"]}}
    (place / "templates.jsonl").write_text(json.dumps(templates) + "\n")
    files = {name: place / f"{name}.html" for name in ("run", "runs", "tuned", "attention", "corpus", "bias")}
    for argv in (
        finetune_command(tasks, place / "tuned", "sequence_classification"),
        ["report", world.run, "--output", files["run"]],
        ["report", world.run, other, "--output", files["runs"]],
        ["report", place / "tuned", "--output", files["tuned"]],
        ["attention", "--model", world.model, "--output", files["attention"], "--layer", 1, "--head", 0, "a [MASK] b"],
        ["inspect", world.corpus, "--html", files["corpus"], "--config.data.packing=2"],
        ["bias", "--model", world.model, "--templates", place / "templates.jsonl", "--output", files["bias"]],
    ):
        assert main([str(word) for word in argv]) == 0
    return files


PAGES = ("run", "runs", "tuned", "attention", "corpus", "bias")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_and_can_be_read(name: str, pages: dict[str, pathlib.Path], browser: Browser) -> None:
    for wide, dark in itertools.product((WIDE, NARROW), (False, True)):
        assert browser.open(pages[name].as_uri(), wide=wide, dark=dark) == Opened([], [])
        browser.run(OPEN_ALL)
        assert browser.run("document.documentElement.scrollWidth") == wide
        contrast = browser.run(LOW_CONTRAST)
        assert contrast["count"] > 20
        assert contrast["found"] == []
        assert browser.run(COVERED) == []


PICTURES = pathlib.Path(__file__).parent / "page_pictures"
REDUCTION, HEIGHT = 16, 800
# Gray levels (0 to 255) of a reduced picture: mean difference, and largest mean difference of a block of 5 x 5 pixels.
MAX_DIFFERENCE, MAX_BLOCK_DIFFERENCE = 4.0, 40.0
FONT_WIDTH = "(c => (c.font = '16px system-ui', c.measureText('Pages of a run: 0123456789 abcdefg').width))(%s)"
CANVAS = "document.createElement('canvas').getContext('2d')"
KEPT_FONT_WIDTH = 296.3203125


def reduced(browser: Browser, path: pathlib.Path) -> np.ndarray:
    """The picture of the window in gray, float [height, width], reduced by the mean of squares of pixels."""
    browser.picture(path)
    with PIL.Image.open(path) as picture:
        return np.asarray(picture.convert("L").reduce(REDUCTION), float)


def differences(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """The mean difference of two pictures, and the largest mean difference of a block."""
    apart = np.abs(one - other)
    rows, columns = (length // 5 * 5 for length in apart.shape)
    blocks = apart[:rows, :columns].reshape(rows // 5, 5, columns // 5, 5).mean((1, 3))
    return apart.mean(), blocks.max()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_looks_like_its_kept_picture(
    name: str, pages: dict[str, pathlib.Path], browser: Browser, tmp_path: pathlib.Path
) -> None:
    """A page without its style, and a page without drawings and tables, differ from the kept picture by more."""
    browser.open(pages[name].as_uri(), wide=WIDE)
    if abs(browser.run(FONT_WIDTH % CANVAS) - KEPT_FONT_WIDTH) > 0.5:
        pytest.skip("other fonts than those of the kept pictures")
    for wide, dark in itertools.product((WIDE, NARROW), (False, True)):
        kept = PICTURES / f"{name}_{wide}_{'dark' if dark else 'light'}.png"
        browser.open(pages[name].as_uri(), wide=wide, high=HEIGHT, dark=dark)
        seen = reduced(browser, tmp_path / "seen.png")
        if "KEEP_PICTURES" in os.environ:
            PIL.Image.fromarray(seen.astype(np.uint8)).save(kept)
        with PIL.Image.open(kept) as picture:
            expected = np.asarray(picture, float)
        mean, block = differences(seen, expected)
        assert mean <= MAX_DIFFERENCE
        assert block <= MAX_BLOCK_DIFFERENCE
        for fault in ("style", "svg, table, mark, .tiles"):
            browser.run(f"document.querySelectorAll('{fault}').forEach(each => each.remove())")
            mean, block = differences(reduced(browser, tmp_path / "faulty.png"), expected)
            assert mean > MAX_DIFFERENCE or block > MAX_BLOCK_DIFFERENCE


@pytest.mark.parametrize("name", PAGES)
def test_keys_reach_all_of_a_page_in_order(name: str, pages: dict[str, pathlib.Path], browser: Browser) -> None:
    browser.open(pages[name].as_uri(), wide=WIDE)
    browser.run(OPEN_ALL)
    reached = browser.reached()
    assert reached == list(range(len(reached)))
    assert len(reached) > 2


def test_the_figures_of_a_run_are_seen_first(pages: dict[str, pathlib.Path], browser: Browser) -> None:
    """Five tiles in a row, or two in a row on a phone; the contents stay at the top; a link shows its section."""
    tiles = "[...document.querySelectorAll('.tiles > div')].map(tile => tile.getBoundingClientRect().top)"
    for wide, rows in ((WIDE, 1), (NARROW, 3)):
        browser.open(pages["run"].as_uri(), wide=wide, high=800)
        tops = browser.run(tiles)
        assert len(tops) == 5
        assert len(set(tops)) == rows
        assert max(tops) < 500
        assert browser.run("document.querySelector('.health').getBoundingClientRect().bottom") < 800
        browser.run("[...document.querySelectorAll('.contents a')].at(-2).click()")
        shown = browser.run("document.querySelector('section:nth-last-of-type(2) h2').getBoundingClientRect().top")
        contents = browser.run("document.querySelector('.contents').getBoundingClientRect().toJSON()")
        assert contents["top"] == 0
        assert contents["bottom"] <= shown < 800


def test_charts_show_values_and_other_axes(world: World, pages: dict[str, pathlib.Path], browser: Browser) -> None:
    """The pointer and the arrow keys show the values of metrics.jsonl; the buttons show other axes."""
    browser.open(pages["run"].as_uri(), wide=WIDE, high=900)
    metrics = [json.loads(line) for line in (world.run / "metrics.jsonl").read_text().splitlines()]
    losses = {line["step"]: line["mlm_loss"] for line in metrics if line["split"] == "train"}
    shown = (
        "[...document.querySelectorAll('.values span')].filter(each => getComputedStyle(each).visibility == 'visible')"
    )
    texts = f"{shown}.map(each => each.textContent)"
    chart = "document.querySelector('.by-steps .values')"
    assert browser.run(texts) == []
    browser.run(f"{chart}.scrollIntoView({{block: 'center'}})")
    box = browser.run(f"{chart}.querySelectorAll('label')[1].getBoundingClientRect().toJSON()")
    middle = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", **middle)
    (text,) = browser.run(texts)
    assert text == f"step 2\ntraining: {losses[2]:.4g}"
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=500)
    assert browser.run(texts) == []
    browser.run("document.querySelector('#by-steps').focus()")
    browser.press(**TAB)
    for step in (4, 3, 2):
        (text,) = browser.run(texts)
        assert text.startswith(f"step {step}\ntraining: {losses[step]:.4g}")
        browser.press(key="ArrowLeft", code="ArrowLeft", windowsVirtualKeyCode=37)
    visible = (
        "[...document.querySelectorAll('.charts')].filter(each => each.checkVisibility()).map(each => each.className)"
    )
    for axis in ("steps", "tokens", "time"):
        browser.run(f"document.querySelector('#by-{axis}').click()")
        assert browser.run(visible) == [f"charts by-{axis}"]
