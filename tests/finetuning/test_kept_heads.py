"""A trained classifier that is fine-tuned further: its rows are found by the names of their labels."""

import json

import pytest
import torch
import transformers

from bert_jax.cli.main import main
from tests.helpers.finetuning_runs import RECIPE, write_lines
from tests.helpers.tiny_models import save

TEXTS = ["abc", "defg", "a b", "jj i", "hh", "c d e", "fab", "gj"]


@pytest.fixture
def train(tmp_path, capfd):
    """Fine-tune a model at a learning rate of almost 0 on its own predictions; return the scores and what is said."""

    def train(start, kind, records, **settings):
        (tmp_path / "recipe.py").write_text(RECIPE)
        write_lines(tmp_path / "train.jsonl", records)
        settings = {"name": "custom", "kind": kind, "data": tmp_path, "dropout": 0.0, "epochs": 1} | settings
        argv = [f"--config.task.{key}={value}" for key, value in settings.items()]
        argv += ["--config.task.train=train.jsonl", "--config.task.dev=train.jsonl"]
        argv += ["--config.optimizer.peak_learning_rate=1e-12", f"--config.init_from={start}"]
        capfd.readouterr()
        assert main(["finetune", f"--config={tmp_path / 'recipe.py'}", f"--workdir={tmp_path / 'run'}", *argv]) == 0
        scores = json.loads((tmp_path / "run" / "results.json").read_text())["best"]["scores"]
        return scores, capfd.readouterr().err

    return train


@pytest.mark.parametrize(
    ("names", "spelled", "says"),
    [
        (["no", "yes", "maybe"], str, "label by label (by name): maybe -> maybe, no -> no, yes -> yes"),
        (["Yes", "MAYBE", "no"], str.casefold, "(by name): MAYBE -> maybe, no -> no, Yes -> yes"),
        pytest.param(
            *([], lambda name: name.removeprefix("LABEL_"), "the labels of the trained head have no names"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_labels_of_texts(tmp_path, train, names, spelled, says):
    """Twelve unnamed labels are numbers in the file, which sort as numbers."""
    names = names or [f"LABEL_{n}" for n in range(12)]
    model, tokenizer = save(tmp_path / "start", "bert", "ForSequenceClassification", id2label=dict(enumerate(names)))
    with torch.no_grad():
        logits = model(**tokenizer(TEXTS, return_tensors="pt", padding=True)).logits
    predicted = [spelled(names[index]) for index in logits.argmax(1).tolist()]
    records = [{"text": text, "label": label} for text, label in zip(TEXTS, predicted, strict=True)]
    known = [*map(spelled, names)] if len(names) > 3 else sorted(map(spelled, names))
    scores, said = train(tmp_path / "start", "sequence_classification", records, labels=",".join(known))
    assert scores["accuracy"] == 1.0
    assert says in said
    counts = ", ".join(f"{n} '{name}' {predicted.count(name)}" for n, name in enumerate(known))
    assert f"custom train: labels {counts}" in said
    # The export names the labels as the file does, in the order of its head.
    exported = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "run" / "model").eval()
    with torch.no_grad():
        logits = exported(**tokenizer(TEXTS, return_tensors="pt", padding=True)).logits
    assert [exported.config.id2label[index] for index in logits.argmax(1).tolist()] == predicted


def test_labels_of_words_that_begin_with_o(tmp_path, train):
    names = ["O", "B-LOC", "I-LOC"]  # sorted by name, O is the last
    model, tokenizer = save(tmp_path / "start", "bert", "ForTokenClassification", id2label=dict(enumerate(names)))
    encoded = tokenizer([text.split() for text in TEXTS], is_split_into_words=True, return_tensors="pt", padding=True)
    first = [[encoded.word_ids(n).index(word) for word in range(len(text.split()))] for n, text in enumerate(TEXTS)]
    with torch.no_grad():
        logits = model(**encoded).logits
        of_words = torch.cat([logits[n, tokens] for n, tokens in enumerate(first)])
        shift = of_words.mean(0)  # so that no label has all words; a median would make two logits of a word equal
        model.classifier.bias -= shift
        model.save_pretrained(tmp_path / "start")
    best = (logits - shift).argmax(2)
    # Each word is an entity of its own.
    tags = [[names[best[n, token]].replace("I-", "B-") for token in tokens] for n, tokens in enumerate(first)]
    records = [{"tokens": text.split(), "labels": labels} for text, labels in zip(TEXTS, tags, strict=True)]
    _, said = train(tmp_path / "start", "token_classification", records, labels="B-LOC,I-LOC,O")
    assert "(by name): B-LOC -> B-LOC, I-LOC -> I-LOC, O -> O" in said
    words = [label for record in records for label in record["labels"]]
    assert len({*words}) == 2
    predictions = (tmp_path / "run" / "predictions" / "custom-dev.jsonl").read_text().splitlines()
    predicted = [label.replace("I-", "B-") for line in predictions for label in json.loads(line)["labels"]]
    assert predicted == words


def test_transformers_reads_words_as_a_byte_level_tagger_has_learned_them(tmp_path, train):
    """With a space before each word, which the tokenizer of the starting weights does not put."""
    names = ["B-LOC", "O"]
    save(tmp_path / "start", "roberta", "ForTokenClassification", id2label=dict(enumerate(names)))
    records = [{"tokens": text.split(), "labels": ["O"] * len(text.split())} for text in TEXTS]
    train(tmp_path / "start", "token_classification", records, labels="B-LOC,O")
    model = transformers.RobertaForTokenClassification.from_pretrained(tmp_path / "run" / "model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    encoded = tokenizer([text.split() for text in TEXTS], is_split_into_words=True, return_tensors="pt", padding=True)
    assert encoded["input_ids"][0, 1] == tokenizer.convert_tokens_to_ids("Ġa")
    with torch.no_grad():
        best = model(**encoded).logits.argmax(2)
    predictions = (tmp_path / "run" / "predictions" / "custom-dev.jsonl").read_text().splitlines()
    for n, (text, line) in enumerate(zip(TEXTS, predictions, strict=True)):
        first = [encoded.word_ids(n).index(word) for word in range(len(text.split()))]
        assert json.loads(line)["labels"] == [names[best[n, token]] for token in first]
