"""Contrast of the style sheet, by the formula of WCAG 2.2."""

import re

import pytest

from bert_jax.reports.html.style import STYLE

LIGHT, DARK = (dict(re.findall(r"--(\w+):(#\w+);", part)) for part in STYLE.partition("prefers-color-scheme:dark")[::2])
# Text -> what it stands on.
TEXTS = {"text": "page", "soft": "page", "good": "goodback", "bad": "badback", "read": "goodback", "line0": "page"}


def luminance(color: str) -> float:
    digits = color[1:] if len(color) == 7 else "".join(2 * digit for digit in color[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_lines_have_enough_contrast(colors: dict[str, str]) -> None:
    assert contrast("#fff", "#000") == pytest.approx(21)
    for text, ground in TEXTS.items():
        assert contrast(colors[text], colors[ground]) >= 4.5, text
    assert contrast(colors["text"], colors["changed"]) >= 4.5
    assert contrast(colors["soft"], colors["panel"]) >= 4.5
    assert contrast(colors["read"], colors["badback"]) >= 4.5
    assert contrast(colors["read"], colors["changed"]) >= 4.5
    for line in (name for name in colors if name.startswith("line")):
        assert contrast(colors[line], colors["page"]) >= 3, line
        assert contrast(colors[line], colors["band"]) >= 3, line
        assert contrast(colors["page"], colors[line]) >= 4.5, line  # a number inside a bar
