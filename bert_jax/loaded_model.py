"""`LoadedModel`, the model of the Python API: it encodes texts, fills masks, predicts and scores."""

import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bert_jax.checkpoints.load_model import OpenModel, open_model
from bert_jax.config import EncoderConfig
from bert_jax.config.load import add_table_rows_of_recipe
from bert_jax.console import Console, notebook_table
from bert_jax.errors import UserError
from bert_jax.inference import embed, fill_mask
from bert_jax.inference.fill_mask import MaskPrediction
from bert_jax.inference.inputs import Input, list_items, texts_by_key
from bert_jax.inference.predict import Predictor, make_predictor, predict_inputs
from bert_jax.models import count_parameters
from bert_jax.scoring.log_probabilities import Progress
from bert_jax.scoring.score import (
    BenchmarkReport,
    ScoringModel,
    make_scoring_model,
    run_benchmark,
    token_log_probabilities,
)
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.table import fields_of_training
from bert_jax.tokenizer import Tokenizer


def load(directory: str | os.PathLike[str], recipe: str | os.PathLike[str] | None = None) -> "LoadedModel":
    """Load a model with its heads from a work directory, or from a directory of `bert-jax export` or of transformers.

    If the recipe of the model adds rows to tables, give the file of this recipe as `recipe`; the file is run first.

    Raises UserError if the directory has no model, or if its encoder or tokenizer is damaged.
    """
    add_table_rows_of_recipe(recipe)
    model, head_error = None, None
    try:
        model = open_model(directory)
    except UserError as error:  # if the error is only about a head, the encoder is still usable
        head_error = error
    model = model or open_model(directory, embed.HEADS)
    # The first call of `predict` reads the directories, and the working directory may have changed by then.
    adapter = model.adapter_directory and model.adapter_directory.absolute()
    model = dataclasses.replace(model, directory=model.directory.absolute(), adapter_directory=adapter)
    return LoadedModel(model, head_error)


@dataclasses.dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model and its tokenizer."""

    model: OpenModel
    head_error: UserError | None = None  # why the model's heads cannot be used; None: they can be used

    @property
    def config(self) -> EncoderConfig:
        """The architecture."""
        return self.model.config

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, which turns text into ids and back."""
        return self.model.tokenizer

    def __repr__(self) -> str:
        config = self.config
        heads = ", ".join(head.name for head in self.model.heads) or "no head"
        return (
            f"<LoadedModel {config.family}: {config.num_layers} layers x {config.hidden_size}, "
            f"{count_parameters(config, self.model.heads):,} parameters, {heads}, from {self.model.directory}>"
        )

    def _repr_html_(self) -> str:
        """Return the model as a table, which a notebook shows."""
        config, tokenizer = self.config, self.tokenizer
        rows = {
            "directory": self.model.directory,
            "encoder": f"{config.family}, {config.num_layers} layers x {config.hidden_size}, {config.num_heads} heads",
            "parameters": f"{count_parameters(config, self.model.heads):,}",
            "reads": f"up to {config.max_positions:,} tokens",
            "vocabulary": f"{tokenizer.kind.name}, {tokenizer.vocab_size:,} tokens",
            "heads": ", ".join(head.name for head in self.model.heads) or "none",
            "labels": ", ".join(self.model.labels),
        }
        return notebook_table(rows)

    def encode(
        self,
        texts: Iterable[embed.Text],
        pooling: str | None = None,
        layers: str = "last",
        batch_size: int = 32,
        max_seq_len: int | None = None,
        truncate: bool = False,
        dtype: str = "float32",
        normalize: bool | None = None,
        prompt_name: str | None = None,
    ) -> np.ndarray | Any:
        """Return the vectors of texts, float32 `[texts, width]`; `EmbedOptions` documents the arguments.

        The width of the vectors is the width of the model, or four times the width of the model with
        `layers="concat4"`.

        If the directory names a head for sparse or token vectors, the result is a container of inference/vectors.py,
        and not an array. The declared type of the result includes `Any`, because a type checker cannot know the head.
        """
        options = embed.EmbedOptions(
            pooling=pooling,
            layers=layers,
            batch_size=batch_size,
            max_seq_len=max_seq_len,
            truncate=truncate,
            dtype=dtype,
            normalize=normalize,
            prompt_name=prompt_name,
        )
        return embed.encode(self.model, texts, options)

    def fill_mask(self, text: str, top_k: int = 5) -> list[MaskPrediction]:
        """Return the `top_k` most probable tokens of each mask in `text`: mask by mask, the most probable token first.

        Raises UserError if the model has no masked-token head, or if the text has no mask.
        """
        if self.head_error:
            raise self.head_error
        texts_by_key(Input("fill_mask", 1, {"text": text}))
        return fill_mask.fill_masks(self.model, text, top_k)

    def predict(self, examples: Iterable[str | tuple[str, str] | Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the predictions of a fine-tuned model, one per example, in the form that `bert-jax predict` writes.

        An example is a text, a pair of texts, or a dict with the fields that the kind of task needs, such as `text` and
        `text_pair`. A model for labels of words splits a text into words and punctuation marks. Raises UserError if the
        model has no head of a task, if an example has another form or lacks a field, or if an example is a pair but
        training read single texts. If texts are truncated or empty, a line on stderr has their numbers.
        """
        examples = list_items(examples, "examples")
        predictor = self._predictor
        trained = fields_of_training(predictor.settings, KINDS[predictor.task.kind]).columns
        inputs = []
        for index, example in enumerate(examples):
            where = f"example {index}"
            fields = _fields_of_example(where, example)
            if isinstance(example, tuple) and "text_pair" not in trained:
                raise UserError(f"{where}: a pair of texts, but this model reads {', '.join(trained)} alone")
            inputs.append(Input(where, index, fields, has_field_names=fields is not example))
        counts = Counter[str]()
        predictions = list(predict_inputs(predictor, inputs, counts))
        del counts["examples"]
        if problems := [f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count]:
            Console().say(f"{len(inputs):,} examples, {', '.join(problems)}")
        return predictions

    def score(
        self,
        texts: Iterable[str],
        masking: str = "within_word_l2r",
        temperature: float = 1.0,
        progress: Progress = lambda done, total: None,
    ) -> np.ndarray:
        """Return the pseudo-log-likelihood of each text in nats, float64 `[texts]`.

        The score is the sum of the log-probabilities of all tokens except special tokens. The model predicts each token
        from a text in which only this token is masked (`original`, Salazar et al. 2020), or this token and the later
        tokens of its word (`within_word_l2r`, Kauf and Ivanova 2023). Raises UserError if the model has no masked-token
        head, or if a text is too long.
        """
        texts = list_items(texts, "texts")
        for index, text in enumerate(texts):
            texts_by_key(Input(f"text {index}", index, {"text": text}))
        model = self._scoring_model(masking, temperature)
        return np.array(
            [log_probabilities.sum() for log_probabilities in token_log_probabilities(model, texts, progress)]
        )

    def benchmark(
        self,
        name: str,
        source: str | os.PathLike[str],
        fraction: float = 1.0,
        masking: str = "within_word_l2r",
        temperature: float = 1.0,
        progress: Progress = lambda done, total: None,
    ) -> BenchmarkReport:
        """Return the results that `bert-jax score` prints for a benchmark: `rows` by paradigm or group, and `total`.

        `name` is a key of `bert_jax.scoring.score.BENCHMARKS`, such as `pairs` or `crows_pairs`.
        `bert_jax.scoring.score.run_benchmark` documents the other arguments and the errors.
        """
        return run_benchmark(self._scoring_model(masking, temperature), name, source, fraction, progress)[0]

    def _scoring_model(self, masking: str, temperature: float) -> ScoringModel:
        if self.head_error:
            raise self.head_error
        return make_scoring_model(self.model, masking, temperature)

    @functools.cached_property
    def _predictor(self) -> Predictor:
        if self.head_error:
            raise self.head_error
        return make_predictor(self.model)


def _fields_of_example(where: str, example: str | tuple[str, str] | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of an example of `LoadedModel.predict`; `where` names the example in messages."""
    if isinstance(example, str):
        return {"text": example}
    if isinstance(example, tuple) and len(example) == 2:
        return {"text": example[0], "text_pair": example[1]}
    if not isinstance(example, Mapping):
        raise UserError(f"{where}: give a text, a pair of texts (a tuple), or a dict of fields")
    return example
