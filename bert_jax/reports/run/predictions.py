"""Held-out sequences of a run, shown with masks and the model's predictions."""

import pathlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from bert_jax.batches.pipeline import make_sequences, special_ids_and_vocabulary
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.checkpoints.load_model import read_weights
from bert_jax.config import ComputeConfig
from bert_jax.console import Console
from bert_jax.corpus.mixture import Mixture
from bert_jax.corpus.statistics import token_fractions
from bert_jax.errors import UserError
from bert_jax.models import Head, make_model
from bert_jax.objectives import Batch, Params
from bert_jax.reports.corpus.examples import (
    SequenceExample,
    TextPiece,
    replace_control_characters,
    sequence_examples,
    vocabulary_entry,
)
from bert_jax.reports.html.markup import Html, collapsible, element, escape_html, join_html, section, small_paragraph
from bert_jax.reports.run.record import PretrainingFacts
from bert_jax.tokenizer import Tokenizer
from bert_jax.training.schedules import phase_after_step

HEAD = Head("masked_token")
NUM_UNFOLDED = 2  # sequences that are shown unfolded
PREDICTED = ("mask", "random", "kept")  # styles of tokens to predict


class Prediction(NamedTuple):
    """A token to predict: the token ids of the input, the label and the prediction, and the label's probability.

    Without a model, `predicted` and `probability` are None.
    """

    input: int
    label: int
    predicted: int | None = None
    probability: float | None = None

    @property
    def is_right(self) -> bool:
        """True if the model's prediction is the label."""
        return self.predicted == self.label


def predictions_section(
    workdir: pathlib.Path,
    facts: PretrainingFacts,
    seed: int,
    step: int,
    mixture: Mixture | str,
    num_sequences: int,
    console: Console,
) -> Html:
    """Return held-out sequences with masks and predictions, or the reason for their absence.

    Args:
        workdir: the work directory with the checkpoints.
        facts: values of the run's config.
        seed: seed of the run.
        step: step of the run; the phase of this step determines the length and the masks of the sequences.
        mixture: the corpus of the run, or the reason for its absence.
        num_sequences: maximum number of sequences.
        console: console that prints messages about checkpoints.
    """
    title = "Inputs and predictions of the model"
    try:
        if isinstance(mixture, str):
            raise UserError(mixture)
        batch = heldout_batch(facts, seed, step, mixture, num_sequences)
    except UserError as error:
        return section(title, small_paragraph(f"No sequences: {error}."))
    tokenizer = mixture.tokenizer()
    try:
        rows = predict_batch(workdir, batch, tokenizer, console)
        predictions = [prediction for row in rows for prediction in row]
        masked = [prediction for prediction in predictions if prediction.input == tokenizer.mask_id]
        right, right_masked = _fraction_right_text(predictions), _fraction_right_text(masked)
        score = f" Right of all that are marked: {right}; of the masked: {right_masked}."
    except UserError as error:
        rows, score = predictions_by_sequence(batch), f" The predictions are left out: {error}."
    fractions = token_fractions(mixture.split("heldout"), mixture.vocab_size)
    explanation = (
        f"The first {len(rows)} sequences of {batch['input_ids'].shape[1]} tokens from documents that are not trained "
        "on. Shading marks a token to predict: ✓ a right prediction; ✗ a wrong prediction, then the right token. Most "
        "are masked; a small word before the prediction is the token that the model reads instead: kept (the right "
        f"token) or a random token. ## continues a word.{score} The commonest token, "
        f"“{_token_text(int(fractions.argmax()), tokenizer)}”, is {fractions.max():.1%} of these documents."
    )
    meanings = SENTENCE_PAIRS[facts.data.sentence_pairs].label_meanings or ("", "")
    sequences = [
        sequence_html(index, sequence_examples(batch, index, tokenizer), row, meanings, tokenizer)
        for index, row in enumerate(rows)
    ]
    return section(title, element("p", explanation), *sequences)


def _fraction_right_text(predictions: Sequence[Prediction]) -> str:
    """Return a text with the number and the percentage of right predictions."""
    num_right = sum(prediction.is_right for prediction in predictions)
    return f"{num_right:,} of {len(predictions):,} ({num_right / max(1, len(predictions)):.1%})"


def heldout_batch(facts: PretrainingFacts, seed: int, step: int, mixture: Mixture, num_sequences: int) -> Batch:
    """Return a batch, with two token types, of the first held-out sequences of an evaluation at a step.

    Raise UserError if too few documents are held out.
    """
    rule = SENTENCE_PAIRS[facts.data.sentence_pairs]
    split = mixture.split("heldout", rule.min_documents)
    if split.num_documents < rule.min_documents:
        raise UserError("too few documents are held out")
    phase = phase_after_step(facts.phases, step)
    data, symbols = facts.eval_data[phase.index], special_ids_and_vocabulary(mixture.tokenizer())
    sequences = make_sequences(split, symbols, phase.seq_len, seed, data, num_token_types=2)
    return sequences.batch(np.arange(min(num_sequences, sequences.num_per_epoch)))


def predictions_by_sequence(batch: Batch, probabilities: Sequence[np.ndarray] | None = None) -> list[list[Prediction]]:
    """Return a list of the tokens to predict for each sequence, in the order of the text.

    Args:
        batch: a batch of `make_sequences`.
        probabilities: float32 [predictions, vocab_size] for each sequence; None if there is no model.
    """
    rows = []
    for row, ids in enumerate(batch["input_ids"]):
        positions, labels = batch["masked_positions"][row], batch["masked_labels"][row]
        used = np.flatnonzero(batch["masked_weights"][row] > 0)
        predictions = []
        for index in used[np.argsort(positions[used], kind="stable")]:
            token, label = int(ids[positions[index]]), int(labels[index])
            if probabilities is None:
                predictions.append(Prediction(token, label))
            else:
                of_tokens = probabilities[row][index]
                predictions.append(Prediction(token, label, int(of_tokens.argmax()), float(of_tokens[label])))
        rows.append(predictions)
    return rows


def predict_batch(
    workdir: pathlib.Path, batch: Batch, tokenizer: Tokenizer, console: Console
) -> list[list[Prediction]]:
    """Return the predictions of a run's newest checkpoint; raise UserError if no checkpoint or no head is there."""
    weights = read_weights(workdir, console=console)
    if HEAD not in weights.heads:
        names = ", ".join(head.name for head in weights.heads) or "none"
        raise UserError(f"the model has no masked-token head (its heads: {names})")
    if weights.config.num_token_types < 2 or not tokenizer.second_type:
        batch = batch | {"token_type_ids": np.zeros_like(batch["token_type_ids"])}
    model = make_model(weights.config, ComputeConfig(), (HEAD,))

    @jax.jit
    def probabilities(params: Params, batch: Batch) -> jax.Array:
        return jax.nn.softmax(model.apply(params, batch, None)["mlm_logits"][..., : tokenizer.vocab_size])

    # One sequence at a time: the logits of a sequence fill much memory.
    params = jax.device_put(weights.params)
    singles = [{name: x[row : row + 1] for name, x in batch.items()} for row in range(len(batch["input_ids"]))]
    return predictions_by_sequence(batch, [np.asarray(probabilities(params, single))[0] for single in singles])


def sequence_html(
    index: int,
    examples: Sequence[SequenceExample],
    predictions: Sequence[Prediction],
    label_meanings: Sequence[str],
    tokenizer: Tokenizer,
) -> Html:
    """Return a sequence as a collapsible element, with the labels, the texts and the predictions of its examples."""
    remaining, parts = iter(predictions), []
    for example in examples:
        if example.label is not None:
            parts.append(small_paragraph(f"label {example.label}: {label_meanings[example.label]}"))
        for order, pieces in enumerate(example.texts):
            spans = [_piece_html(piece, remaining, tokenizer) for piece in pieces]
            parts.append(element("p", *spans, class_="sequence pair" if order else "sequence", dir="auto"))
    score = ""
    if predictions and predictions[0].predicted is not None:
        score = f", {sum(prediction.is_right for prediction in predictions)} right"
    return collapsible(f"Sequence {index}: {len(predictions)} to predict{score}", *parts, open_=index < NUM_UNFOLDED)


def _piece_html(piece: TextPiece, predictions: Iterator[Prediction], tokenizer: Tokenizer) -> Html:
    """Return a piece of a text as HTML; a token to predict shows the next prediction, marked as right or wrong."""
    if piece.style == "special":
        return element("span", replace_control_characters(piece.text), class_="special")
    if piece.style not in PREDICTED:
        return escape_html(replace_control_characters(piece.text))
    prediction = next(predictions)
    label = element("bdi", _token_text(prediction.label, tokenizer))
    replaced = ""
    if prediction.input == prediction.label:
        replaced = "kept "
    elif prediction.input != tokenizer.mask_id:
        replaced = f"{_token_text(prediction.input, tokenizer)} "
    read = element("span", replaced, class_="read") if replaced else ""
    tip = class_ = None
    mark: tuple[object, ...] = (read, label)
    if prediction.predicted is not None:
        tip = f"probability of the right token: {prediction.probability:.1%}"
        class_ = "hit" if prediction.is_right else "miss"
        wrong = (element("bdi", _token_text(prediction.predicted, tokenizer)), " → ")
        mark = (read, "✓ ", label) if prediction.is_right else (read, "✗ ", *wrong, label)
    space = " " * piece.text.startswith(" ")
    return join_html([space, element("mark", *mark, class_=class_, title=tip)])


def _token_text(token: int, tokenizer: Tokenizer) -> str:
    return replace_control_characters(vocabulary_entry(token, tokenizer))
