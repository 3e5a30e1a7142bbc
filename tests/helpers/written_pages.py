"""Work directories made by hand, and a strict reader of the pages about them."""

import html.parser
import json
import pathlib
import re
from typing import Any

from bert_jax.config import PretrainConfig, pretrain_config, resolve, to_json

# Everything that a report may consist of. Nothing here loads or runs anything.
TAGS = {"html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "p", "ul", "li", "section", "div"}
TAGS |= {
    "figure",
    "details",
    "summary",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "pre",
    "code",
    "span",
    "mark",
    "bdi",
}
TAGS |= {"svg", "line", "path", "rect", "circle", "text", "defs", "g", "use", "image", "figcaption"}
TAGS |= {"i", "b", "label", "select", "option", "fieldset", "legend", "input", "dl", "dt", "dd", "nav", "a"}
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "open", "tabindex", "role", "aria-label"}
ATTRIBUTES |= {
    "aria-hidden",
    "scope",
    "dir",
    "title",
    "viewbox",
    "x",
    "y",
    "x1",
    "x2",
    "y1",
    "y2",
    "cx",
    "cy",
    "r",
    "d",
}
ATTRIBUTES |= {"width", "height", "text-anchor", "dominant-baseline", "opacity", "id", "transform", "type", "checked"}
ATTRIBUTES |= {"style"}  # only of numbers
NUMBERS = re.compile(r"(?:(?:left|width|--at):-?[\d.]+%;?)+")
LINKS = {"a": "#section", "use": "#", "image": "data:image/png;base64,"}
VOID = ("meta",)
HOSTILE = (
    "<script>alert(1)</script>",
    '<img src=x onerror="alert(2)">',
    "]]><svg onload=alert(3)>",
    "'\"--></style></title></textarea><iframe src=javascript:alert(4)>",
    "&lt;b&gt; &#60;script&#62;",
    "\u202egnitirw \u0000 \x1b[31m \ud800 end",
)


class Page(html.parser.HTMLParser):
    """The elements, attributes and text of a page; AssertionError where it holds what no report may hold."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.text = ""
        self.values: list[str] = []  # of attributes
        self.titles: list[str] = []
        self.metas: list[dict[str, str | None]] = []
        self.paths: list[dict[str, str]] = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        names = [name for name, _ in attributes]
        places = [value or "" for name, value in attributes if name == "href"]
        assert all(place.startswith(LINKS[tag]) for place in places)
        assert all(NUMBERS.fullmatch(value or "") for name, value in attributes if name == "style")
        assert set(names) - {"href"} <= ATTRIBUTES, names
        assert len(set(names)) == len(names)
        self.values += [value or "" for _, value in attributes]
        if tag == "meta":
            self.metas.append(dict(attributes))
        if tag == "path":
            self.paths.append({name: value or "" for name, value in attributes})
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_data(self, data: str) -> None:
        assert data.strip() == "" or self.open, data
        self.text += data


def write_run(
    place: pathlib.Path, lines: list[dict[str, Any]], machine: dict[str, Any] | None = None, **fields: dict[str, Any]
) -> PretrainConfig:
    """Write run.json and metrics.jsonl of a pretraining run without checkpoints; `fields` change its config."""
    made = pretrain_config()
    made.data.corpus = "nowhere"
    for name, values in fields.items():
        made[name].update(values)
    config = resolve(PretrainConfig, made)
    place.mkdir(parents=True)
    run = {"config": to_json(config), "fingerprint": {"corpus": "c0ffee", "tokenizer": "beef"}}
    run |= {} if machine is None else {"machine": machine}
    (place / "run.json").write_text(json.dumps(run))
    (place / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return config


def curve(steps: int, every: int, loss: float = 3.0, norm: float = 1.0, **more: Any) -> list[dict[str, Any]]:
    """Lines of a run whose loss falls from 9 to `loss`, with an evaluation every tenth line."""
    lines = []
    for number, step in enumerate(range(every, steps + 1, every), 1):
        now = loss + (9 - loss) * (1 - step / steps) ** 2
        line = {"step": step, "mlm_loss": now, "loss": now, "mlm_accuracy": 0.4 * step / steps, "unigram_loss": 6.0}
        rest = {"learning_rate": 1e-4 * (1 - step / steps), "grad_norm": norm, "tokens_per_second": 5000.0}
        rest |= {"model_flops_utilization": 0.4, "input_wait_fraction": 0.01, "memory_bytes": 2_000_000_000 + step}
        lines.append({"split": "train", "skipped_steps": 0, "seq_len": 128} | line | rest | more)
        if number % 10 == 0:
            lines.append({"split": "heldout", "seq_len": 128} | line)
    return lines
