"""Special tokens that texts spell, and token types: predictions and vectors against transformers, whole commands."""

import json
import pathlib
from typing import Any

import numpy as np
import pytest
import sentence_transformers
import torch
import transformers
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from bert_jax.cli.main import main
from tests.helpers.finetuning_runs import finetune, make_world, read_lines, write_lines
from tests.helpers.tiny_models import CLASSES, config_of, save, tokenizer_of

MARKED = [
    {"text": "ab [E1] c [/E1] d", "text_pair": "e f"},
    {"text": "[E1]ab[/E1]", "text_pair": "a b c [E1] j [/E1]"},
    {"text": "a[SEP]b</s>c", "text_pair": "d"},
    {"text": "h i j", "text_pair": "[MASK]<mask> a"},
]


def with_added_tokens(directory: pathlib.Path, family: str, **fields: Any) -> None:
    """A classifier of pairs whose tokenizer has two added special tokens."""
    tokenizer = tokenizer_of(family)
    tokenizer.add_tokens(["[E1]", "[/E1]"], special_tokens=True)
    torch.manual_seed(1)
    config = config_of(family, tokenizer, num_labels=3)
    config.update(fields)
    model = getattr(transformers, f"{CLASSES[family]}ForSequenceClassification")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def assert_predictions_equal(directory: pathlib.Path, records: list[dict[str, str]], capsys: Any) -> None:
    """The probabilities of `predict` equal those of AutoModel with the inputs of AutoTokenizer."""
    write_lines(directory / "input.jsonl", records)
    argv = ["predict", "--model", str(directory), "--input", str(directory / "input.jsonl")]
    assert main([*argv, "--output", str(directory / "output.jsonl")]) == 0
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(directory).eval()
    for record, made in zip(records, read_lines(directory / "output.jsonl"), strict=True):
        inputs = tokenizer(record["text"], record.get("text_pair"), return_tensors="pt")
        with torch.no_grad():
            wanted = model(**inputs).logits.softmax(-1)[0].numpy()
        np.testing.assert_allclose(list(made["probabilities"].values()), wanted, rtol=0, atol=2e-5)
        assert made["label"] == model.config.id2label[int(wanted.argmax())]
    special = {tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.mask_token_id}
    texts = [[record["text"], record.get("text_pair", "")] for record in records]
    ids = [tokenizer(pair, add_special_tokens=False)["input_ids"] for pair in texts]
    spelled = sum(not special.isdisjoint(first + second) for first, second in ids)
    assert (f"{spelled} texts with spelled special tokens" in capsys.readouterr().err) == (spelled > 0)


@pytest.mark.parametrize(
    ("family", "fields"),
    [("bert", {}), ("roberta", {"type_vocab_size": 2}), ("albert", {}), ("distilbert", {})],
)
def test_predictions_equal_the_predictions_of_transformers(
    family: str, fields: dict[str, int], tmp_path: pathlib.Path, capsys: Any
) -> None:
    """With added tokens, spelled separators and pairs; RoBERTa's tokenizer gives no types to a model that has two."""
    with_added_tokens(tmp_path, family, **fields)
    assert_predictions_equal(tmp_path, MARKED, capsys)


@pytest.mark.slow
def test_an_export_of_finetune_has_the_predictions_of_transformers(tmp_path: pathlib.Path, capsys: Any) -> None:
    world = make_world(tmp_path)
    with_added_tokens(tmp_path / "marked", "bert", num_labels=3)
    records = read_lines(world / "sequence_classification" / "train.jsonl")
    records = [{**record, "text": f"[E1]{record['text'][:8]}[/E1][SEP]a"} for record in records]
    for split in ("train", "dev"):
        write_lines(world / "sequence_classification" / f"{split}.jsonl", records)
    finetune(world, tmp_path / "run", "sequence_classification", start=tmp_path / "marked")
    assert "custom train: 37 texts have a spelled [SEP]" in capsys.readouterr().err
    unlabeled = [{key: record[key] for key in ("text", "text_pair")} for record in records]
    assert_predictions_equal(tmp_path / "run" / "model", unlabeled, capsys)


def test_a_spelled_separator_has_the_vector_of_sentence_transformers(tmp_path: pathlib.Path, capsys: Any) -> None:
    """As "title[SEP]abstract" is written for SPECTER."""
    save(tmp_path / "encoder", "bert", "Model")
    transformer = Transformer(str(tmp_path / "encoder"), max_seq_length=24)
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), "cls")]
    model = sentence_transformers.SentenceTransformer(modules=modules, device="cpu")
    model.save(str(tmp_path / "model"))
    texts = ["ab c[SEP]d e f", "[CLS] a [PAD] b", "h i j"]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    vectors = tmp_path / "vectors.npy"
    argv = ["embed", "--model", str(tmp_path / "model"), "--input", str(tmp_path / "texts.txt")]
    assert main([*argv, "--output", str(vectors)]) == 0
    np.testing.assert_allclose(np.load(vectors), model.encode(texts), rtol=0, atol=1e-5)
    assert "3 texts, 2 of them with a spelled special token, " in capsys.readouterr().out


def test_a_class_in_the_config_of_the_model_decides_the_separators(tmp_path: pathlib.Path, capsys: Any) -> None:
    """MPNet with vocab.txt alone, whose class only `model_type` names."""
    tokens = ["<s>", "<pad>", "</s>", "[UNK]", *"abcdefghij", *(f"##{letter}" for letter in "abcdefghij"), "<mask>"]
    tokenizer = transformers.MPNetTokenizer(vocab={token: token_id for token_id, token in enumerate(tokens)})
    torch.manual_seed(2)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.MPNetConfig(vocab_size=len(tokenizer), max_position_embeddings=34, **sizes)
    model = transformers.MPNetForSequenceClassification(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    records = [{"text": "ab c", "text_pair": "d e"}, {"text": "a", "text_pair": "b c d e f"}]
    answers = []
    for layout in ("tokenizer.json", "vocab.txt"):
        directory = tmp_path / layout
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)
        if layout == "tokenizer.json":
            assert_predictions_equal(directory, records, capsys)
        else:
            (directory / "vocab.txt").write_text("\n".join(tokens))
            for name in ("tokenizer.json", "tokenizer_config.json"):
                (directory / name).unlink()
            write_lines(directory / "input.jsonl", records)
            argv = ["predict", "--model", str(directory), "--input", str(directory / "input.jsonl")]
            assert main([*argv, "--output", str(directory / "output.jsonl")]) == 0
        answers.append(json.dumps(read_lines(directory / "output.jsonl")))
    assert answers[0] == answers[1]
