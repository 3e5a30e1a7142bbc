"""The model card of an export whose source has a card."""

import json
import logging
import pathlib
import shutil

import peft
import pytest
import transformers
from huggingface_hub import ModelCard

from bert_jax import strict_json
from bert_jax.checkpoints.load_model import read_task_file
from bert_jax.cli.main import main
from tests.helpers.tiny_models import save

CARD = "---\nlanguage: fi\nlicense: mit\n---\n\n# Mine\n\nMy text about the training.\n"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("source")
    save(directory, "bert", "ForPreTraining")
    (directory / "README.md").write_text(CARD)
    (directory / "task.json").write_text(json.dumps({"kind": "regression", "labels": []}))
    return directory


def card_of_export(source: pathlib.Path, output: pathlib.Path, *words: str) -> ModelCard:
    assert main(["export", "--model", str(source), "--output", str(output), *words]) == 0
    return ModelCard((output / "README.md").read_text())


def test_facts_are_added_to_the_card(
    source: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("huggingface_hub.repocard"), "handlers", [caplog.handler])
    assert str(card_of_export(source, tmp_path / "plain")) == CARD
    card = card_of_export(source, tmp_path / "more", "--base_model", "owner/name")
    assert card.data.to_dict() == {"language": "fi", "license": "mit", "base_model": "owner/name"}
    assert "My text about the training." in card.text
    unlicensed = pathlib.Path(shutil.copytree(source, tmp_path / "unlicensed"))
    (unlicensed / "README.md").write_text("# Mine\n\nNo license was given with this model.\n\nMy text.\n")
    card = card_of_export(unlicensed, tmp_path / "licensed", "--license", "apache-2.0")
    assert (card.data.license, card.text.strip()) == ("apache-2.0", "# Mine\n\nMy text.")
    assert not caplog.records
    (unlicensed / "README.md").unlink()
    new = card_of_export(unlicensed, tmp_path / "new", "--license", "apache-2.0")
    for key in ("library_name", "pipeline_tag", "tags"):
        assert card.data.get(key) == new.data.get(key), key


def test_a_task_with_100_000_long_labels_is_read(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """JSON writes six bytes for a Chinese letter."""
    many = pathlib.Path(shutil.copytree(source, tmp_path / "many"))
    task = {"kind": "regression", "labels": [f"{number:06}" + "\u6807\u7b7e" * 14 for number in range(100_000)]}
    (many / "task.json").write_text(json.dumps(task))
    assert (many / "task.json").stat().st_size > strict_json.MAX_BYTES
    card_of_export(many, tmp_path / "again", "--base_model", "owner/name")
    (many / "README.md").unlink()
    card_of_export(many, tmp_path / "again_with_new_card")
    assert (tmp_path / "again" / "task.json").read_bytes() == (many / "task.json").read_bytes()
    assert read_task_file(tmp_path / "again" / "task.json") == task


def test_other_heads_have_a_new_card_with_the_license(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    card = card_of_export(source, tmp_path / "pairs", "--head", "next_sentence")
    assert (card.data.license, card.data.language) == ("mit", "fi")
    assert "My text" not in card.text
    assert "heads: next sentence." in card.text


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_an_adapter_has_neither_the_card_nor_the_task_of_its_base_model(
    source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The library `peft` writes no tokenizer, so the tokenizer of the base model is read."""
    base = transformers.AutoModelForSequenceClassification.from_pretrained(source, num_labels=3)
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="SEQ_CLS", modules_to_save=["pooler"]))
    model.save_pretrained(tmp_path / "adapter")
    card = card_of_export(tmp_path / "adapter", tmp_path / "merged")
    assert "My text" not in card.text
    assert (card.data.license, card.data.pipeline_tag) == (None, "text-classification")
    assert not (tmp_path / "merged" / "task.json").exists()
    # The card of peft names the directory of the base model, which is no name on the Hub.
    assert card.data.base_model is None
    (tmp_path / "adapter" / "README.md").write_text("---\nlicense: mit\nlanguage: fi\nbase_model: a/b\n---\nMine\n")
    data = card_of_export(tmp_path / "adapter", tmp_path / "again").data
    assert (data.license, data.language, data.base_model) == ("mit", "fi", "a/b")
