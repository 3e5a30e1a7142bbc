"""The files that each verb writes, from one small run each: names, and keys of JSON."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

from tests.record import training
from tests.record.inside import run
from tests.record.values import formats
from tests.record.world import prepare


def _tokenizers(world: pathlib.Path) -> dict[str, pathlib.Path]:
    found = {}
    for kind, size in (
        ("wordpiece", 200),
        ("bpe", 200),
        ("byte_level", 300),
        ("unigram", 150),
        ("sentencepiece_bpe", 150),
    ):
        found[kind] = world / "formats" / f"tokenizer-{kind}"
        words = ["--input", world / "texts", "--kind", kind, "--vocab_size", size]
        run("tokenizer", *words, "--output", found[kind])
    return found


def _corpora(world: pathlib.Path) -> dict[str, pathlib.Path]:
    place = world / "formats"
    place.mkdir(exist_ok=True)
    texts = sorted((world / "texts").iterdir())[:12]
    copies = [{"text": path.read_text()} for path in [*texts, *texts[:3]]]
    (place / "texts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in copies))
    (place / "rules.toml").write_text('[[rule]]\nuse = "characters"\nminimum = 10\n')
    words = ["--input", place / "texts.jsonl", "--tokenizer", world / "tokenizer", "--workers", 1]
    words += ["--deduplicate", "near", "--keep_removed", place / "removed.jsonl"]
    run("prepare", *words, "--output", place / "corpus-deduplicated")
    prepare(world, place / "corpus")
    return {name: place / name for name in ("corpus", "corpus-deduplicated", "removed.jsonl")}


def _runs(world: pathlib.Path) -> dict[str, pathlib.Path]:
    return {name: training.pretrained(name, world) for name in ("next_sentence", "replaced_tokens")}


def _finetunings(world: pathlib.Path) -> dict[str, pathlib.Path]:
    return {kind: training.finetuned(kind, world) for kind in training.TASKS}


def _exports(world: pathlib.Path) -> dict[str, pathlib.Path]:
    return {
        "of a run": training.exported("next_sentence", world),
        "of a generator": training.exported("replaced_tokens", world, "--part", "generator"),
        "stablehlo": _program(world, "stablehlo"),
    }


def _program(world: pathlib.Path, kind: str) -> pathlib.Path:
    output = world / "formats" / kind
    run("export", "--workdir", world / "start", "--format", kind, "--output", output)
    return output


def _onnx(world: pathlib.Path) -> dict[str, pathlib.Path]:
    return {"onnx": _program(world, "onnx")}


def _predictions(world: pathlib.Path) -> dict[str, pathlib.Path]:
    found = {}
    for kind in training.TASKS:
        if kind != "similarity":
            found[kind] = world / "formats" / f"predicted-{kind}.jsonl"
            words = ["--input", world / "tasks" / kind / "test.jsonl", "--output", found[kind]]
            run("predict", "--model", training.finetuned(kind, world), *words)
    return found


def _embeddings(world: pathlib.Path) -> dict[str, pathlib.Path]:
    place = world / "formats"
    (place / "texts.txt").write_text("badu\nfonu kidu.\nbanu, badu\n")
    words = ["--model", world / "start", "--input", place / "texts.txt"]
    run("embed", *words, "--output", place / "texts.npy", "--projector", place / "projector")
    run("embed", *words, "--output", place / "tokens.safetensors", "--pooling", "tokens")
    return {name: place / name for name in ("texts.npy", "tokens.safetensors", "projector")}


# Verb -> the files of its runs, by name.
VERBS: dict[str, Callable[[pathlib.Path], dict[str, pathlib.Path]]] = {
    "tokenizer": _tokenizers,
    "prepare": _corpora,
    "pretrain": _runs,
    "finetune": _finetunings,
    "export": _exports,
    "predict": _predictions,
    "embed": _embeddings,
}
SLOW = {"export to ONNX": _onnx}
QUICK = ("tokenizer", "prepare", "embed")  # the other verbs train models of each kind first


def of_verb(verb: str, world: pathlib.Path) -> dict[str, Any]:
    """Name of a run -> its files; of all runs but the first, what is otherwise than there."""
    (world / "formats").mkdir(exist_ok=True)
    found = {name: formats(place) for name, place in (VERBS | SLOW)[verb](world).items()}
    first, *others = found
    return {first: found[first]} | {f"{name}, unlike {first}": _unlike(found[first], found[name]) for name in others}


def _unlike(first: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    told = {name: "no such file" for name in first if name not in other}
    for name, content in other.items():
        before = first.get(name)
        if isinstance(before, list) and isinstance(content, list) and content != before:
            lost, new = (sorted({*x} - {*y}) for x, y in ((before, content), (content, before)))
            told[name] = {"without": lost, "and with": new}
        elif content != before:
            told[name] = content
    return told
