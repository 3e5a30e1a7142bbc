"""Held-out sequences as the model reads them, with its guesses."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from bert_jax.batches.masking import evaluated_data, phase_masking
from bert_jax.batches.pipeline import make_sequences, symbols_of
from bert_jax.batches.sentence_pairs import SENTENCE_PAIRS
from bert_jax.checkpoints.load_model import read_weights
from bert_jax.config import ComputeConfig, PretrainConfig
from bert_jax.console import Console
from bert_jax.corpus.mixture import Mixture
from bert_jax.corpus.statistics import token_fractions
from bert_jax.errors import UserError
from bert_jax.models import Head, make_model
from bert_jax.objectives import OBJECTIVES, Batch, Params
from bert_jax.reports.corpus.sequences_text import Example, Piece, examples_of, printable, vocabulary_entry
from bert_jax.reports.html.markup import Html, element, escaped, folded, joined, section
from bert_jax.reports.run.record import Run
from bert_jax.tokenizer import Tokenizer

HEAD = Head("masked_token")
NUM_OPEN = 2  # sequences that are unfolded
PREDICTED = ("mask", "random", "kept")  # styles of tokens to predict


class Slot(NamedTuple):
    """A token to predict: what the model reads there, what is right, its guess, and the probability of the right one.

    `guess` and `probability` are None where there is no model.
    """

    read: int
    right: int
    guess: int | None = None
    probability: float | None = None


def sequences_section(run: Run, corpus: Mixture | str, number: int, console: Console) -> Html:
    """Return `number` held-out sequences with masks and guesses, or the reason why there are none."""
    title = "What the model reads and guesses"
    if isinstance(corpus, str) or not isinstance(run.config, PretrainConfig):
        why = corpus if isinstance(corpus, str) else "this is no pretraining run"
        return section(title, element("p", f"No sequences: {why}.", class_="note"))
    try:
        batch = heldout_batch(run, run.config, corpus, number)
    except UserError as error:
        return section(title, element("p", f"No sequences: {error}.", class_="note"))
    tokenizer = corpus.tokenizer()
    try:
        slots, why = guesses_of(run, batch, tokenizer, console), ""
    except UserError as error:
        slots, why = slots_of(batch), f" The guesses are left out: {error}."
    rows = range(len(slots))
    all_slots = [slot for row in slots for slot in row]
    hidden = [slot for slot in all_slots if slot.read == tokenizer.mask_id]
    total = "" if why else f" Right of all that are marked: {_right(all_slots)}; of the masked: {_right(hidden)}."
    fractions = token_fractions(corpus.split("heldout"), corpus.vocab_size)
    said = (
        f"The first {len(slots)} sequences of {batch['input_ids'].shape[1]} tokens from documents that are not trained "
        "on. Shading marks a token to predict: ✓ a right guess; ✗ a wrong guess, then the right token. Most are "
        "masked; a small word before the guess says what the model reads instead: kept, the right token itself, or a "
        f"random token. ## continues a word.{total}{why} The commonest token, "
        f"“{_word(int(fractions.argmax()), tokenizer)}”, is {fractions.max():.1%} of these documents."
    )
    pairs = run.config.data.sentence_pairs
    shown = [_sequence(row, examples_of(batch, row, tokenizer), slots[row], pairs, tokenizer) for row in rows]
    return section(title, element("p", said), *shown)


def _right(slots: Sequence[Slot]) -> str:
    guessed = sum(slot.guess == slot.right for slot in slots)
    return f"{guessed:,} of {len(slots):,} ({guessed / max(1, len(slots)):.1%})"


def heldout_batch(run: Run, config: PretrainConfig, corpus: Mixture, number: int) -> Batch:
    """Return the first held-out sequences as an evaluation of the run's last step reads them, with two token types.

    Raises UserError where nothing is held out.
    """
    rule = SENTENCE_PAIRS[config.data.sentence_pairs]
    held = corpus.split("heldout", rule.min_documents)
    if held.num_documents < rule.min_documents:
        raise UserError("too few documents are held out")
    step = run.trainings[0].last_step
    phase = next((one for one in run.phases if step <= one.end), run.phases[-1])
    masked = phase_masking(config.data, config.train.phases[phase.number])
    data = evaluated_data(masked, OBJECTIVES[config.objective].own_mix)
    source = make_sequences(held, symbols_of(corpus.tokenizer()), phase.seq_len, config.seed, data, num_token_types=2)
    return source.batch(np.arange(min(number, source.num_per_epoch)))


def slots_of(batch: Batch, probabilities: Sequence[np.ndarray] | None = None) -> list[list[Slot]]:
    """Return the tokens to predict of each sequence, in the order of the text.

    Args:
        batch: of `make_sequences`.
        probabilities: of each sequence, float32 [predictions, vocab_size]; None: there is no model.
    """
    found = []
    for row, ids in enumerate(batch["input_ids"]):
        positions, labels = batch["masked_positions"][row], batch["masked_labels"][row]
        used = np.flatnonzero(batch["masked_weights"][row] > 0)
        used = used[np.argsort(positions[used], kind="stable")]
        slots = [Slot(int(ids[positions[at]]), int(labels[at])) for at in used]
        if probabilities is not None:
            likely = probabilities[row][used]
            slots = [
                slot._replace(guess=int(one.argmax()), probability=float(one[slot.right]))
                for slot, one in zip(slots, likely, strict=True)
            ]
        found.append(slots)
    return found


def guesses_of(run: Run, batch: Batch, tokenizer: Tokenizer, console: Console) -> list[list[Slot]]:
    """Return `slots_of` with the guesses of the newest checkpoint; UserError without a checkpoint or a head."""
    found = read_weights(run.place, console=console)
    if HEAD not in found.heads:
        names = ", ".join(head.name for head in found.heads) or "none"
        raise UserError(f"the model has no masked-token head (its heads: {names})")
    if found.config.num_token_types < 2:
        batch = batch | {"token_type_ids": np.zeros_like(batch["token_type_ids"])}
    model = make_model(found.config, ComputeConfig(), (HEAD,))

    @jax.jit
    def probabilities(params: Params, batch: Batch) -> jax.Array:
        return jax.nn.softmax(model.apply(params, batch, None)["mlm_logits"][..., : tokenizer.vocab_size])

    # One by one: the logits of a sequence are large enough.
    params = jax.device_put(found.params)
    rows = [{name: x[row : row + 1] for name, x in batch.items()} for row in range(len(batch["input_ids"]))]
    return slots_of(batch, [np.asarray(probabilities(params, one))[0] for one in rows])


def _sequence(
    number: int, examples: Sequence[Example], slots: list[Slot], sentence_pairs: str, tokenizer: Tokenizer
) -> Html:
    left, parts = iter(slots), []
    meanings = SENTENCE_PAIRS[sentence_pairs].label_meanings or ("", "")
    for example in examples:
        if example.label is not None:
            parts.append(element("p", f"label {example.label}: {meanings[example.label]}", class_="note"))
        for order, pieces in enumerate(example.texts):
            spans = [_piece(piece, left, tokenizer) for piece in pieces]
            parts.append(element("p", *spans, class_="sequence pair" if order else "sequence", dir="auto"))
    score = "" if not slots or slots[0].guess is None else f", {sum(slot.guess == slot.right for slot in slots)} right"
    return folded(f"Sequence {number}: {len(slots)} to predict{score}", *parts, open_=number < NUM_OPEN)


def _piece(piece: Piece, slots: Iterator[Slot], tokenizer: Tokenizer) -> Html:
    if piece.style not in PREDICTED:
        return (
            element("span", printable(piece.text), class_="special")
            if piece.style == "special"
            else escaped(printable(piece.text))
        )
    slot = next(slots)
    right = element("bdi", _word(slot.right, tokenizer))
    kept = slot.read == slot.right
    shown = "kept " if kept else f"{_word(slot.read, tokenizer)} " if slot.read != tokenizer.mask_id else ""
    read = element("span", shown, class_="read") if shown else ""
    space = " " * piece.text.startswith(" ")
    if slot.guess is None:
        return joined([space, element("mark", read, right)])
    tip = f"probability of the right token: {slot.probability:.1%}"
    if slot.guess == slot.right:
        return joined([space, element("mark", read, "✓ ", right, class_="hit", title=tip)])
    guess = element("bdi", _word(slot.guess, tokenizer))
    return joined([space, element("mark", read, "✗ ", guess, " → ", right, class_="miss", title=tip)])


def _word(token: int, tokenizer: Tokenizer) -> str:
    return printable(vocabulary_entry(token, tokenizer))
