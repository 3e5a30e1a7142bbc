"""The commands of docs/serving.md run, in the order of the page, and the scores that they print equal torch's."""

import importlib.util
import json
import pathlib
import shlex

import numpy as np
import onnxruntime
import pytest
import torch

from bert_jax.cli.main import main
from tests.helpers import tiny_models
from tests.interop.test_sentence_modules import save_theirs
from tests.test_docs import commands_of

if importlib.util.find_spec("openvino") is None:
    pytest.skip("needs openvino", allow_module_level=True)
PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "serving.md"
DEV = [(f"{'ab'[n % 2]} {'cdefghij'[n % 8]} {'hgj'[n % 3]}", n % 2) for n in range(40)]


def save_classifier(place):
    """Write `tickets/`, a task of two labels, and `topics/`, a model as `finetune` leaves it."""
    (place / "tickets").mkdir()
    for split in ("train", "dev"):
        lines = ["text\tlabel", *(f"{text}\t{label}" for text, label in DEV)]
        (place / "tickets" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    labels = {"id2label": {0: "0", 1: "1"}, "label2id": {"0": 0, "1": 1}}
    model, tokenizer = tiny_models.save(place / "topics", "bert", "ForSequenceClassification", **labels)
    settings = {"name": "custom", "kind": "sequence_classification", "train": "train.tsv", "dev": "dev.tsv"}
    config = settings | {"data": str(place / "tickets"), "max_seq_len": 8}
    described = {"name": "custom", "kind": "sequence_classification", "labels": ["0", "1"], "impossible": False}
    (place / "topics" / "task.json").write_text(json.dumps(described | {"config": config}))
    return model, tokenizer


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path, monkeypatch, capsys):
    model, tokenizer = save_classifier(tmp_path)
    tiny_models.save(tmp_path / "encoder", "bert", "Model")
    save_theirs(tmp_path / "encoder", tmp_path / "sentences", "mean", True, 12)
    monkeypatch.chdir(tmp_path)
    printed = {}
    for command in commands_of(PAGE.read_text(encoding="utf-8")):
        words = shlex.split(command, comments=True)[1:]
        capsys.readouterr()
        assert main(words) == 0, (command, capsys.readouterr().err)
        printed[command] = capsys.readouterr().out
    assert len(printed) == 9
    for command, text in printed.items():
        assert ("verify" in command) == ("largest difference" in text or "int8 changes outputs" in text)

    line = next(line for text in printed.values() for line in text.splitlines() if "accuracy" in line)
    batch = tokenizer([text for text, _ in DEV], return_tensors="pt", padding=True)
    with torch.no_grad():
        before = model(**batch).logits.argmax(-1).numpy()
    session = onnxruntime.InferenceSession("topics-int8/model.onnx", providers=["CPUExecutionProvider"])
    after = [  # 32 rows are a batch of `--original`
        session.run(["logits"], {name: x[rows].numpy() for name, x in batch.items()})[0].argmax(-1)
        for rows in (slice(0, 32), slice(32, 40))
    ]
    labels = np.array([label for _, label in DEV])
    scores = [(found == labels).mean() for found in (np.concatenate(after), before)]
    assert f"accuracy {scores[0]:.4f} on 40 examples; bert_jax {scores[1]:.4f}" in line
