"""Write the data set beside this file again: pip install tensorflow-cpu tensorflow-datasets; python write.py DIR."""

import sys

import numpy as np
import tensorflow_datasets as tfds

TEXTS = ["The first text.", "Zweiter Text mit Umlaut: ä.", "三番目。", "<script>", ""]


class Wiki(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name="small")]  # noqa: RUF012

    def _info(self):
        kinds = tfds.features
        meta = kinds.FeaturesDict({"title": kinds.Text(), "tags": kinds.Sequence(kinds.Text())})
        features = kinds.FeaturesDict({"text": kinds.Text(), "n": kinds.Scalar(np.int64), "meta": meta})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, _):
        return {"train": self._generate_examples(TEXTS), "rest": self._generate_examples(["last"])}

    def _generate_examples(self, texts):
        for number, text in enumerate(texts):
            yield number, {"text": text, "n": number, "meta": {"title": f"Title {number}", "tags": ["a", "b"]}}


Wiki(data_dir=sys.argv[1], config="small").download_and_prepare()
