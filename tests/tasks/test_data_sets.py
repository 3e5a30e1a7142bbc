"""A data set prepared by TFDS itself, as `tfds build` does, without a network and TensorFlow."""

import sys

import numpy as np
import pytest

from bert_jax.config import TaskConfig
from bert_jax.errors import UserError
from bert_jax.tasks.reading.data_sets import _with_class_names
from bert_jax.tasks.reading.examples import read_task_examples
from bert_jax.tasks.table import resolve_task


def load(split, **settings):
    config = TaskConfig(**settings)
    return read_task_examples(resolve_task(config), config, split)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    tfds = pytest.importorskip("tensorflow_datasets", reason="tensorflow_datasets is not installed")

    class TinyTask(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = {
                "sentence": tfds.features.Text(),
                "label": tfds.features.ClassLabel(names=["negative", "positive"]),
                "idx": tfds.features.Scalar(np.int32),
                "tokens": tfds.features.Sequence(tfds.features.Text()),
                "ner": tfds.features.Sequence(tfds.features.ClassLabel(names=["O", "I-PER", "I-LOC"])),
                "score": tfds.features.Scalar(np.float32),
                "question": tfds.features.Text(),
                "context": tfds.features.Text(),
                "answers": tfds.features.Sequence({"text": tfds.features.Text(), "answer_start": np.int32}),
            }
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager):
            return {name: self._generate_examples(name) for name in ("train", "validation", "test", "dev")}

        def _generate_examples(self, split):
            for number in range(3):
                yield (
                    number,
                    {
                        "sentence": f"{split} Satz ü {number}",
                        "label": -1 if split == "test" else number % 2,
                        "idx": number,
                        "tokens": ["Ada", "in", "Köln"],
                        "ner": [1, 0, 2],
                        "score": number / 2,
                        "question": "Who?",
                        "context": "It was Ada.",
                        "answers": {"text": ["Ada"], "answer_start": [7]},
                    },
                )

    folder = tmp_path_factory.mktemp("tfds")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TQDM_DISABLE", "1")
        TinyTask(data_dir=folder, file_format="array_record").download_and_prepare()
    return folder


def test_glue_by_name(place):
    data = f"tfds:tiny_task@{place}"
    examples = {split: load(split, name="sst2", data=data) for split in ("train", "dev", "test")}
    assert sorted(examples["dev"], key=lambda example: example["id"]) == [
        {"id": str(n), "text": f"validation Satz ü {n}", "label": n % 2} for n in range(3)
    ]
    assert not any("label" in example for example in examples["test"])
    with pytest.raises(UserError, match=r"3 rows have no label: .*test\[0-2\]"):
        load("train", name="sst2", data=data, train="test")


def test_squad_and_conll_by_name(place):
    data = f"tfds:tiny_task@{place}"
    columns = "question=question,context=context,answers=answers"
    example = load("train", name="custom", kind="question_answering", data=data, train="validation", columns=columns)[0]
    assert example["answers"] == [{"text": "Ada", "start": 7}]
    example = load("dev", name="conll2003", data=data)[0]
    assert example == {"id": "0", "tokens": ["Ada", "in", "Köln"], "labels": [1, 0, 5]}


def test_custom(place):
    data = f"tfds:tiny_task@{place}"
    settings = {"name": "custom", "data": data, "train": "train"}
    examples = load("train", **settings, kind="regression", columns="text=sentence,label=score,id=idx")
    assert {example["id"]: example["label"] for example in examples} == {"0": 0.0, "1": 0.5, "2": 1.0}
    config = TaskConfig(**settings, kind="sequence_classification", columns="text=sentence")
    assert resolve_task(config).labels == ("negative", "positive")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "rte"}, "no feature 'sentence1' for text; did you mean 'sentence'"),
        ({"name": "sst2", "dev": "valid"}, "no split 'valid'; there are "),
        ({"name": "swag"}, "task 'swag' is not read from TFDS"),
    ],
)
def test_mistakes(place, settings, message):
    with pytest.raises(UserError, match=message):
        load("dev", data=f"tfds:tiny_task@{place}", **settings)


@pytest.mark.parametrize("name", ["absent", "huggingface:glue", "../etc"])
def test_a_data_set_that_is_not_prepared_is_not_downloaded(place, name):
    with pytest.raises(UserError, match="no data set that TFDS has prepared"):
        load("dev", name="sst2", data=f"tfds:{name}@{place}")


def test_the_message_without_tfds_names_the_packages_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(UserError, match="pip install tensorflow-datasets importlib_resources"):
        load("dev", name="sst2", data="tfds:")


def test_a_class_number_below_0_is_no_label():
    assert _with_class_names([0, -1, 1], ("O", "B-PER")) == ["O", None, "B-PER"]
    assert _with_class_names(-1, ("O", "B-PER")) is None
