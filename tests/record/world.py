"""Inputs of the recorded runs: a vocabulary, texts, tasks and a model, all written here by fixed formulas."""

import json
import pathlib
import random

import numpy as np
import safetensors.numpy

from tests.record.inside import run
from tests.record.values import drawn

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = [first + vowel + last + "u" for first in "bdfgklmnpr" for vowel in "aeiou" for last in "dnst"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# Two words of three are a token, the rest are spelled: words of several tokens for whole-word masking.
VOCABULARY = [*SPECIAL, ".", ",", *LETTERS, *(f"##{x}" for x in LETTERS), *(w for n, w in enumerate(WORDS) if n % 3)]
MAX_POSITIONS = 384  # of the model that tasks start from; squad's recipe reads as many
KINDS = (
    "sequence_classification",
    "regression",
    "token_classification",
    "question_answering",
    "multiple_choice",
    "similarity",
    "reranking",
)
LABELS = {"sequence_classification": "no,yes", "token_classification": "O,B-X,I-X"}


def write_vocabulary(place: pathlib.Path, special: list[str] = SPECIAL) -> None:
    place.mkdir(parents=True, exist_ok=True)
    tokens = [*special, *(token for token in VOCABULARY if token not in special)]
    (place / "vocab.txt").write_text("\n".join(tokens) + "\n")
    settings = {"do_lower_case": True, "model_max_length": MAX_POSITIONS, "tokenizer_class": "BertTokenizer"}
    (place / "tokenizer_config.json").write_text(json.dumps(settings))


def _sentence(rng: random.Random, most: int = 14) -> str:
    return " ".join(rng.choices(WORDS[:: rng.randint(1, 7)], k=rng.randint(2, most))).capitalize() + "."


def write_texts(place: pathlib.Path, documents: int = 60) -> None:
    place.mkdir(parents=True)
    for number in range(documents):
        rng = random.Random(number)
        text = " ".join(_sentence(rng) for _ in range(rng.randint(10, 90)))
        (place / f"{number:03}.txt").write_text(text + "\n")


def _example(kind: str, rng: random.Random) -> dict[str, object]:
    text, other = _sentence(rng), _sentence(rng)
    if kind == "sequence_classification":
        return {"text": text, "text_pair": other, "label": ("no", "yes")[text[0] < "H"]}
    if kind == "regression":
        return {"text": text, "label": round(text.count("a") - 0.25 * len(text.split()), 2)}
    if kind == "token_classification":
        tokens = text.split()
        return {"tokens": tokens, "labels": [("O", "B-X")[token[0] in "bdf"] for token in tokens]}
    if kind == "question_answering":
        context = " ".join(_sentence(rng) for _ in range(rng.randint(1, 12)))
        answer = rng.choice(context.split())
        answers = [{"text": answer, "answer_start": context.index(answer)}] if rng.random() < 0.8 else []
        return {"question": other, "context": context, "answers": answers}
    if kind == "multiple_choice":
        return {"text": text, "choices": [_sentence(rng, 5) for _ in range(3)], "label": rng.randrange(3)}
    if kind == "reranking":
        return {"text": text, "text_pair": other, "negative": [_sentence(rng) for _ in range(2)]}
    return {"text": text, "text_pair": other, "label": float(rng.randint(1, 5))}


def write_tasks(place: pathlib.Path) -> None:
    """Of each kind 20 examples to train on, 12 as a dev set, 5 without labels as a test set."""
    for kind in KINDS:
        (place / kind).mkdir(parents=True)
        for seed, (split, count) in enumerate({"train": 20, "dev": 12, "test": 5}.items()):
            rng = random.Random(1000 * seed)
            records = [_example(kind, rng) for _ in range(count)]
            if split == "train" and kind == "similarity":
                records = [{key: x for key, x in one.items() if key != "label"} for one in records]
            if split == "test":
                hidden = ("label", "labels", "answers", "negative")
                records = [{key: x for key, x in one.items() if key not in hidden} for one in records]
            (place / kind / f"{split}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))


def task_overrides(tasks: pathlib.Path, kind: str) -> list[str]:
    data = tasks / kind
    words = ["task.name=custom", f"task.kind={kind}", f"task.data={data}", "task.train=train.jsonl"]
    words += ["task.dev=dev.jsonl", f"init_from={tasks.parent / 'start'}"]
    return words + ([f"task.labels={LABELS[kind]}"] if kind in LABELS else [])


def write_start(place: pathlib.Path) -> None:
    """A BERT of 2 layers x 16, as transformers writes it."""
    write_vocabulary(place)
    size, layers, mlp = 16, 2, 24
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": len(VOCABULARY),
        "hidden_size": size,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "intermediate_size": mlp,
        "max_position_embeddings": MAX_POSITIONS,
        "type_vocab_size": 2,
        "pad_token_id": 0,
    }
    (place / "config.json").write_text(json.dumps(config))
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(VOCABULARY), size),
        "embeddings.position_embeddings.weight": (MAX_POSITIONS, size),
        "embeddings.token_type_embeddings.weight": (2, size),
    }
    linear = {"pooler.dense": (size, size)}
    norms = ["embeddings.LayerNorm"]
    for layer in (f"encoder.layer.{n}" for n in range(layers)):
        linear |= {f"{layer}.attention.self.{name}": (size, size) for name in ("query", "key", "value")}
        linear |= {f"{layer}.attention.output.dense": (size, size)}
        linear |= {f"{layer}.intermediate.dense": (mlp, size), f"{layer}.output.dense": (size, mlp)}
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    for name, shape in linear.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    tensors = {name: drawn(name, shape, 0.6) for name, shape in shapes.items()}
    for name in norms:
        tensors |= {f"{name}.weight": 1 + drawn(f"{name}.weight", (size,)), f"{name}.bias": drawn(name, (size,))}
    safetensors.numpy.save_file({k: np.ascontiguousarray(x) for k, x in tensors.items()}, place / "model.safetensors")


def make_world(place: pathlib.Path) -> pathlib.Path:
    """Write all of it, and prepare the corpus."""
    write_vocabulary(place / "tokenizer")
    write_texts(place / "texts")
    write_tasks(place / "tasks")
    write_start(place / "start")
    prepare(place, place / "corpus")
    return place


def prepare(world: pathlib.Path, output: pathlib.Path) -> None:
    words = ["--input", world / "texts", "--tokenizer", world / "tokenizer", "--heldout_fraction", 0.2]
    run("prepare", *words, "--output", output, "--workers", 1)
