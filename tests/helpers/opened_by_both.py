"""A random directory opened by transformers and by bert_jax: ids, token types, arrays and answers are compared.

bert_jax is called as a user calls it (`load`, then `predict`, `fill_mask` or `encode`). Its functions run without
compilation, and each call of the model is recorded.
"""

import contextlib
import dataclasses
import inspect
import pathlib
import random
import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np
import sentence_transformers
import tokenizers
import torch
import transformers

from bert_jax.config import ComputeConfig
from bert_jax.errors import UserError
from bert_jax.inference import embed, fill_mask, predict
from bert_jax.loaded_model import load
from bert_jax.models import make_model
from tests.helpers import random_tokenizers
from tests.helpers.directory_cases import ANSWERS, BARE, CHOICES, MASKS, PRETRAINING, SEQUENCES, TOKENS, Case

READ, REFUSED, WRONG, CRASHED = "read", "refused", "read wrong", "crashed"
UNREAD = "unread by transformers"  # an error, or weights of the encoder that are drawn at random
TOLERANCE = 1e-4
IMPOSSIBLE = -1e5  # logits below: no answer begins at a token of the question
ROLES = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")
# Task -> the arrays of bert_jax, and of transformers.
ARRAYS = {
    SEQUENCES: {"sequence_logits": "logits"},
    TOKENS: {"token_logits": "logits"},
    CHOICES: {"choice_logits": "logits"},
    ANSWERS: {"start_logits": "start_logits", "end_logits": "end_logits"},
    MASKS: {"mlm_logits": "logits"},
    PRETRAINING: {"mlm_logits": "prediction_logits"},
}


class Outcome(NamedTuple):
    """The result for a directory; `reason` is '' for a directory that is read right."""

    kind: str
    reason: str = ""


class Difference(Exception):
    """bert_jax computes another result than transformers."""


class Reference(NamedTuple):
    """A directory as transformers opens it."""

    model: Any  # of the class of the case; of the encoder alone if the weights of the head are not in the file
    tokenizer: Any
    has_head: bool


class Row(NamedTuple):
    """The inputs of one sequence of tokens by the tokenizer of transformers."""

    ids: tuple[int, ...]
    types: tuple[int, ...]
    words: tuple[int | None, ...]


def compare_case(case: Case, directory: pathlib.Path) -> Outcome:
    """Open the directory of a case by both, and compare."""
    try:
        reference = _open_reference(case, directory)
        reference.tokenizer.model_input_names = _input_names(case, reference.tokenizer)
    except Exception as error:
        return Outcome(UNREAD, general(f"{type(error).__name__}: {error}"))
    try:
        with _recorded_calls() as calls:
            _compare_answers(case, directory, reference, calls)
    except UserError as error:
        if str(error).count("\n") > 1:
            return Outcome(CRASHED, f"a message of many lines: {general(str(error))}")
        return Outcome(REFUSED, general(str(error)))
    except Difference as error:
        return Outcome(WRONG, str(error))
    except Exception as error:
        return Outcome(CRASHED, general(f"{type(error).__name__}: {error}"))
    return Outcome(READ)


def general(message: str) -> str:
    """Return a message in one line without paths, names and numbers: equal reasons are counted together."""
    text = re.sub(r"\S*/[\w./-]*", "PATH", message)
    text = re.sub(r"'[^']*'|\"[^\"]*\"|\{[^}]*\}|\[[^\]]*\]", "...", text)
    return re.sub(r"\s+", " ", re.sub(r"\d+(\.\d+)*", "N", text))[:140]


def _open_reference(case: Case, directory: pathlib.Path) -> Reference:
    """Open a directory with transformers; ValueError if weights of the encoder are drawn at random."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    if case.version == 4 and (directory / "tokenizer.json").exists():
        # transformers 4 applied every normalizer of the file but a BertNormalizer, which it built from settings.
        saved = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
        if saved.normalizer is not None and not isinstance(saved.normalizer, tokenizers.normalizers.BertNormalizer):
            tokenizer.backend_tokenizer.normalizer = saved.normalizer
    for task in (case.task, BARE):
        kind = getattr(transformers, case.class_prefix + task)
        model, loading = kind.from_pretrained(directory, output_loading_info=True, dtype=torch.float32)
        missing = [name for name in loading["missing_keys"] if task != BARE or "pooler" not in name]
        if not missing:
            return Reference(model.eval(), tokenizer, task == case.task)
    raise ValueError("weights of the encoder are drawn at random")


def _input_names(case: Case, tokenizer: Any) -> list[str]:
    """Return the inputs that the tokenizer gave to the model in the version of transformers that the layout is of.

    ALBERT's tokenizer and the general class returned token types in transformers 4. In transformers 5 they do not.
    """
    names = [*tokenizer.model_input_names]
    is_changed = type(tokenizer).__name__ in ("AlbertTokenizer", "TokenizersBackend")
    return [*names, "token_type_ids"] if case.version == 4 and is_changed and "token_type_ids" not in names else names


@contextlib.contextmanager
def _recorded_calls() -> Iterator[list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]]:
    """Run bert_jax without compilation; yield the (batch, arrays) of each call of a model."""
    calls: list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]] = []

    def make(config: Any, compute: Any, heads: Any) -> Any:
        model = make_model(config, ComputeConfig(attention="xla", scan_layers=False), heads)

        def apply(params: Any, batch: Any, rng: Any) -> Any:
            arrays = model.apply(params, batch, rng)
            calls.append(({name: np.asarray(x) for name, x in batch.items()}, jax.device_get(arrays)))
            return arrays

        return dataclasses.replace(model, apply=apply)

    embed._make_feature_function.cache_clear()
    fill_mask._make_mask_probabilities_function.cache_clear()
    with contextlib.ExitStack() as stack:
        for module in (embed, fill_mask, predict):
            stack.enter_context(mock.patch.object(module, "make_model", make))
        stack.enter_context(mock.patch.object(jax, "jit", lambda function, **options: function))
        yield calls


def _compare_answers(case: Case, directory: pathlib.Path, reference: Reference, calls: list[Any]) -> None:
    """Raise Difference if ids, types, arrays or answers differ."""
    rng = random.Random(f"{case.seed} {case.number} texts")
    roles = {getattr(reference.tokenizer, f"{role}_token") for role in ROLES}
    # A text may spell any added token but the tokens with a role, which no text can forge here.
    words = [token for token in reference.tokenizer.get_added_vocab() if token not in roles and "NOTUSED" not in token]
    texts = [random_tokenizers.random_text(rng, words) for _ in range(6)]
    long_text = random_tokenizers.random_text(rng, words, max_words=60)
    model = load(directory)
    limit = {"truncation": True, "max_length": model.model.sentences.max_seq_len or model.model.config.max_positions}
    if not reference.has_head or case.task == BARE or (case.task, case.family) == (PRETRAINING, "electra"):
        return _compare_vectors(directory, model, reference, [long_text, *texts], limit, calls)
    if case.task in (MASKS, PRETRAINING):
        text = f"{texts[0]} {reference.tokenizer.mask_token} {texts[1]}"
        answers: list[Any] = list(model.fill_mask(text))
        rows = [_row(reference.tokenizer(text))]
    elif case.task == TOKENS:
        examples = [{"tokens": text.split()} for text in texts[:3]]
        answers = model.predict(examples)
        tokenizer = reference.tokenizer
        rows = [_row(tokenizer(example["tokens"], is_split_into_words=True)) for example in examples]
    elif case.task == CHOICES:
        choices = [texts[1:3], texts[4:6]]
        answers = model.predict([{"text": texts[3 * i], "choices": choices[i]} for i in range(2)])
        rows = [_row(reference.tokenizer(texts[3 * i], choice)) for i in range(2) for choice in choices[i]]
    elif case.task == ANSWERS:
        answers = model.predict([{"question": texts[2 * i], "context": texts[2 * i + 1]} for i in range(3)])
        rows = [_row(reference.tokenizer(texts[2 * i], texts[2 * i + 1])) for i in range(3)]
    else:
        pairs = [(texts[0], texts[1]), (long_text, None), (texts[3], texts[4])]
        answers = model.predict([{"text": a} | ({} if b is None else {"text_pair": b}) for a, b in pairs])
        rows = [_row(reference.tokenizer(*pair, **limit)) for pair in pairs]
    outputs = _compare_arrays(case.task, reference, rows, calls)
    if case.task == SEQUENCES:
        _compare_labels(directory, reference, answers, outputs, pairs)
    if case.task == TOKENS:
        _compare_tags(reference, answers, outputs, rows)


def _row(encoding: Any) -> Row:
    ids = tuple(encoding["input_ids"])
    return Row(ids, tuple(encoding.get("token_type_ids", [0] * len(ids))), tuple(encoding.word_ids()))


def _recorded_row(row: Row, calls: list[Any], reads_types: bool) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Return the recorded batch and arrays with the ids of `row`, and the index of the sequence in the flat batch."""
    with_ids = None
    for batch, arrays in calls:
        length = batch["input_ids"].shape[-1]
        ids, mask, types = (
            batch[name].reshape(-1, length) for name in ("input_ids", "attention_mask", "token_type_ids")
        )
        for index in range(len(ids)):
            if tuple(ids[index][mask[index] > 0].tolist()) == row.ids:
                with_ids = tuple(types[index][mask[index] > 0].tolist())
                if with_ids == row.types or not reads_types:
                    return batch, arrays, index
    if with_ids is not None:
        raise Difference(f"token types: {with_ids}, in transformers {row.types}")
    recorded = [batch["input_ids"].reshape(-1, batch["input_ids"].shape[-1])[0].tolist() for batch, _ in calls]
    raise Difference(f"ids: transformers has {list(row.ids)}, the first recorded are {recorded[:1]}")


def _run_reference(model: Any, batch: dict[str, Any], index: int) -> Any:
    """Run a model of transformers on a sequence of a recorded batch, with padding only if bert_jax read the padding.

    The padding makes a difference: the last token of a MobileBERT reads the padding behind it, and BigBird has blocks.
    """
    attention_type = getattr(model.config, "attention_type", None)
    if attention_type and hasattr(model.base_model, "set_attention_type"):
        model.base_model.set_attention_type(attention_type)  # a short input changes the type for good
    names = [name for name in ("input_ids", "attention_mask", "token_type_ids") if _reads(model, name)]
    real = _flat(batch, "attention_mask")[index] > 0
    read = real if {"row_tokens", "segment_ids"} & batch.keys() else slice(None)
    inputs = {name: torch.tensor(_flat(batch, name)[index][read]).long()[None] for name in names}
    if type(model).__name__.endswith(CHOICES):
        inputs = {name: x[None] for name, x in inputs.items()}  # an example with one choice
    with torch.no_grad():
        return model(**inputs)


def _flat(batch: dict[str, Any], name: str) -> np.ndarray:
    """Return an array of a batch, `[sequences, length]`; each choice of an example is a sequence."""
    return np.asarray(batch[name]).reshape(-1, batch["input_ids"].shape[-1])


def _reads(model: Any, name: str) -> bool:
    return name in inspect.signature(model.forward).parameters


def _reads_types(model: Any) -> bool:
    return _reads(model, "token_type_ids") and getattr(model.config, "type_vocab_size", 0) > 1


def _compare_arrays(task: str, reference: Reference, rows: list[Row], calls: list[Any]) -> list[dict[str, np.ndarray]]:
    """Compare the arrays of each row; return the arrays of transformers, a dict for each row."""
    outputs = []
    for row in rows:
        batch, arrays, index = _recorded_row(row, calls, _reads_types(reference.model))
        theirs = _run_reference(reference.model, batch, index)
        real = _flat(batch, "attention_mask")[index] > 0
        output = {}
        for our_name, name in ARRAYS[task].items():
            expected = theirs[name].numpy()[0]
            computed = np.asarray(arrays[our_name])
            computed = computed.reshape(-1, 1)[index] if task == CHOICES else computed[index]
            if our_name == "mlm_logits":
                positions = batch["masked_positions"][index][:1]
                computed, expected = computed[:1, : expected.shape[-1]], expected[positions]
            elif task in (TOKENS, ANSWERS):
                computed, expected = computed[real], expected[: real.sum()]
            _check_equal(our_name, computed, expected)
            output[name] = expected
        outputs.append(output)
    return outputs


def _check_equal(name: str, computed: np.ndarray, expected: np.ndarray) -> None:
    if computed.shape != expected.shape:
        raise Difference(f"{name} of shape {computed.shape}, in transformers {expected.shape}")
    possible = expected > IMPOSSIBLE
    if (possible != (computed > IMPOSSIBLE)).any():
        raise Difference(f"{name}: other tokens are excluded than in transformers")
    # A difference of all logits by one number is a difference.
    distance = np.abs(computed - expected)[possible].max(initial=0.0)
    if not distance <= TOLERANCE * max(1.0, np.abs(expected[possible]).max(initial=0.0)):
        raise Difference(f"{name} differs by {distance:.2g}")


def _compare_labels(
    directory: pathlib.Path,
    reference: Reference,
    answers: list[Any],
    outputs: list[dict[str, np.ndarray]],
    pairs: list[tuple[str, str | None]],
) -> None:
    """Compare the labels or values that `predict` gives."""
    config = reference.model.config
    if _is_cross_encoder(directory):
        scorer = sentence_transformers.CrossEncoder(str(directory), device="cpu")
        expected = [float(np.ravel(scorer.predict([[a, b]]))[0]) for a, b in pairs if b is not None]
        values = [answers[i].get("label") for i, (_, b) in enumerate(pairs) if b is not None]
        if config.num_labels == 1 and not np.allclose(np.array(values, float), expected, atol=1e-4):
            raise Difference(f"scores {values}, in sentence-transformers {expected}")
        return
    for answer, output in zip(answers, outputs, strict=True):
        logits = output["logits"]
        if len(logits) == 1:
            if not np.allclose(float(answer["label"]), logits[0], atol=1e-4):
                raise Difference(f"value {answer['label']}, in transformers {logits[0]}")
            continue
        label = str(config.id2label[int(logits.argmax())])
        if config.problem_type != "multi_label_classification" and answer["label"] != label:
            raise Difference(f"label {answer['label']}, in transformers {label}")


def _compare_tags(
    reference: Reference, answers: list[Any], outputs: list[dict[str, np.ndarray]], rows: list[Row]
) -> None:
    """Compare the label of each word, at its first token."""
    labels = reference.model.config.id2label
    for answer, output, row in zip(answers, outputs, rows, strict=True):
        first: dict[int, str] = {}
        for position, word in enumerate(row.words):
            if word is not None and word not in first:
                first[word] = str(labels[int(output["logits"][position].argmax())])
        for word, label in first.items():
            if answer["labels"][word] != label:
                raise Difference(f"label {answer['labels'][word]} of a word, in transformers {label}")


def _compare_vectors(
    directory: pathlib.Path,
    model: Any,
    reference: Reference,
    texts: list[str],
    limit: dict[str, Any],
    calls: list[Any],
) -> None:
    """Compare the states of the last layer, and the vectors of `encode`; `limit` holds arguments of the tokenizer."""
    is_bi_encoder = (directory / "modules.json").is_file()
    items: list[Any] = [*texts[:2]] if is_bi_encoder else [*texts[:2], (texts[2], texts[3])]
    # Together, short texts would share a row.
    vectors = np.concatenate([model.encode([item], truncate=True) for item in items])
    rows = [_row(reference.tokenizer(*((item,) if isinstance(item, str) else item), **limit)) for item in items]
    means = []
    for row in rows:
        batch, arrays, index = _recorded_row(row, calls, _reads_types(reference.model.base_model))
        real = batch["attention_mask"][index] > 0
        outputs = _run_reference(reference.model.base_model, batch, index)
        states = outputs.last_hidden_state.numpy()[0, : real.sum()]
        _check_equal("hidden states", arrays["hidden_states"][-1][index][real], states)
        means.append(states.mean(0))
    expected = np.array(means)
    if is_bi_encoder:
        encoder = sentence_transformers.SentenceTransformer(str(directory), device="cpu")
        # A longer third text pads both: in a MobileBERT the last token reads the padding behind it.
        longer = [" ".join(texts)] if reference.model.config.model_type == "mobilebert" else []
        expected = encoder.encode([*items, *longer], convert_to_numpy=True)[:2]
    if not np.allclose(vectors, expected, atol=TOLERANCE):
        raise Difference(f"vectors differ by {np.abs(vectors - expected).max():.2g}")


def _is_cross_encoder(directory: pathlib.Path) -> bool:
    """Return whether sentence-transformers wrote a mark of a CrossEncoder into the directory."""
    text = (directory / "config.json").read_text(encoding="utf-8")
    return '"sbert_ce' in text or '"sentence_transformers"' in text or (directory / "modules.json").is_file()
