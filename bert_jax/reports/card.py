"""README.md of an export: metadata of the Hugging Face Hub, then what a user of the model needs to know."""

import json
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bert_jax import __version__
from bert_jax.checkpoints.load_model import Weights, weights_digest
from bert_jax.errors import UserError
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.tensors import WITHOUT_PARAMETERS, largest_class
from bert_jax.reports.card_bias import bias_sentences
from bert_jax.reports.provenance import Provenance, provenance_of
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.similarity import SIMILARITY
from bert_jax.training.metrics import WEIGHTED

LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]*")  # an identifier of the Hub, such as apache-2.0
HUB_ID = re.compile(r"([\w.-]+/)?[\w.-]+")


class Use(NamedTuple):
    """What a head is for: the Hub's name, the class that opens it, a noun phrase, and the library of the class."""

    pipeline_tag: str
    opener: str
    purpose: str
    library: str = "transformers"


# The first head of pretraining that a model has decides, then that of a kind of task.
USES = {
    "masked_token": Use("fill-mask", "AutoModelForMaskedLM", "filling masked words, and fine-tuning on a task"),
    "next_token": Use("text-generation", "AutoModelForCausalLM", "continuing texts, and fine-tuning on a task"),
    "replaced_token": Use("feature-extraction", "AutoModelForPreTraining", "fine-tuning on a task"),
}
BARE = Use("feature-extraction", "AutoModel", "vectors of texts, and fine-tuning on a task")


SENTENCES = Use(SIMILARITY.pipeline_tag, "SentenceTransformer", SIMILARITY.purpose, "sentence-transformers")


def use_of(found: Weights) -> Use:
    """Return what a model is for."""
    if found.sentences is not None:
        return SENTENCES
    heads = {head.name: head.classes for head in found.heads}
    for head, use in USES.items():
        if head in heads:
            return use
    for kind in KINDS.values():
        classes = heads.get(kind.head)
        if classes is not None and (classes > 1 if kind.classes is None else classes == kind.classes):
            one = largest_class(FAMILIES[found.config.family], {*heads} - {*WITHOUT_PARAMETERS})
            ending = "" if one is None else one.name.partition("For")[2]
            return Use(kind.pipeline_tag, f"AutoModel{'For' * bool(ending)}{ending}", kind.purpose)
    return BARE


def model_card(
    found: Weights,
    place: pathlib.Path,
    license_: str | None = None,
    base_model: str | None = None,
    bias: pathlib.Path | None = None,
) -> str:
    """Return the card of a model.

    Args:
        found: what `read_weights` returned for `place`, with the heads that are written.
        place: where it was read: a work directory, which says how the model was made, or any other directory.
        license_: identifier of the Hub, such as apache-2.0; None: the card says that there is none.
        base_model: id on the Hub of the model that this one was trained from.
        bias: file with a report of `bert-jax bias --json` on this model, for the limits.

    Raises:
        UserError: an identifier that the Hub would refuse by its form; `bias` is no report, or one on other weights.
    """
    if license_ is not None and not LICENSE.fullmatch(license_):
        raise UserError(f"--license {license_}: give an identifier of the Hugging Face Hub, such as apache-2.0")
    if base_model is not None and not HUB_ID.fullmatch(base_model):
        raise UserError(f"--base_model {base_model}: give an id of the Hugging Face Hub, such as owner/name")
    known = provenance_of(place, found.step)
    name = place.resolve().name
    use = use_of(found)
    in_transformers = FAMILIES[found.config.family].in_transformers
    metadata: dict[str, object] = {
        "language": list(known.languages),
        "license": license_,
        "library_name": use.library if in_transformers else "bert_jax",
        "pipeline_tag": use.pipeline_tag,
        "tags": [found.config.family, "bert_jax", *known.tags],
        "base_model": base_model,
        "datasets": list(known.datasets),
    }
    limits = bias_sentences(bias, weights_digest(found.params)) if bias else []
    parts = [_metadata(metadata), f"# {_inline(name)}\n", *_text(found, known, use, license_, in_transformers, limits)]
    return "\n".join(parts)


def _metadata(values: dict[str, object]) -> str:
    """YAML between rulers; each value is JSON, which is YAML as well."""
    lines = [f"{key}: {json.dumps(value)}" for key, value in values.items() if value]
    return "\n".join(["---", *lines, "---", ""])


def _text(
    found: Weights, known: Provenance, use: Use, license_: str | None, in_transformers: bool, limits: Sequence[str]
) -> Iterable[str]:
    config = found.config
    heads = ", ".join(head.name.replace("_", " ") for head in found.heads) or "none"
    yield (
        f"An encoder of the family {config.family}: {config.num_layers} layers of width {config.hidden_size}, a "
        f"vocabulary of {config.vocab_size:,} tokens, up to {config.max_positions:,} tokens a text; heads: {heads}."
        f"{_of_sentences(found)}\n"
        f"{_inline(known.made) or 'How it was trained is not recorded here.'}\n"
    )
    yield "## Intended use and limits\n"
    yield (
        f"It is meant for {use.purpose}.\nWhat it says follows the texts that it was trained on, with their errors and "
        "prejudices, and nothing but the figures on this page was measured.\n"
    )
    if limits:
        yield "Bias, measured by `bert-jax bias`:\n"
        yield "\n".join([*(f"- {_inline(one)}" for one in limits), ""])
    if license_ is None:
        yield "No license was given with this model.\n"
    yield "## Load it\n"
    yield _fenced(_loading(use, in_transformers), "python")
    if known.scores:
        yield "## Scores\n"
        shown = dict(known.scores)
        weighted = ", ".join(name for name in (one.replace("_", " ") for one in WEIGHTED) if name in shown)
        but = f", times their weight: {weighted}" if weighted else ""
        yield f"{_inline(known.measured)} Losses and entropies are in nats{but}.\n"
        yield _table(("measure", "value"), known.scores)
    if known.recipe:
        yield "## Training\n"
        if known.corpus:
            yield f"Text: {_inline(known.corpus)}\n"
        yield f"`bert-jax {known.verb} --config recipe.py --workdir DIR` trains it again, where `recipe.py` is\n"
        yield _fenced(known.recipe, "python")
        prints = [(f"fingerprint of the {name}", value) for name, value in known.fingerprints]
        yield _table(("", ""), [*prints, *((f"version of {name}", value) for name, value in known.versions)])
    if known.cost:
        yield "## Cost\n"
        yield f"Of the whole run until it was exported. {_inline(known.counted)}\n"
        yield _table(("", ""), known.cost)
    yield f"Exported by bert_jax {__version__}."
    yield ""


def _of_sentences(found: Weights) -> str:
    """A sentence on how texts become vectors, where that is known; else nothing."""
    if found.sentences is None:
        return ""
    longest, length = found.sentences.max_seq_len, " of length 1" if found.sentences.normalize else ""
    cut = "" if longest is None else f" Texts are cut at {longest:,} tokens."
    return f" A text is one vector{length}, by {found.sentences.pooling} pooling.{cut}"


def _loading(use: Use, in_transformers: bool) -> str:
    """Three lines that open the directory that they lie in."""
    if not in_transformers:
        return 'import bert_jax\n\nmodel = bert_jax.load(".")  # this directory\n'
    if use is SENTENCES:
        return (
            f"from sentence_transformers import {use.opener}\n\n"
            f'model = {use.opener}(".")  # this directory\n'
            'vectors = model.encode(["a text", "another text"])\n'
        )
    return (
        f"from transformers import AutoTokenizer, {use.opener}\n\n"
        f'model = {use.opener}.from_pretrained(".")  # this directory\n'
        'tokenizer = AutoTokenizer.from_pretrained(".")\n'
    )


def _table(head: tuple[str, str], rows: Iterable[tuple[str, str]]) -> str:
    lines = [f"| {head[0]} | {head[1]} |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {_inline(name)} | {_inline(value)} |" for name, value in rows), ""])


def _inline(text: str) -> str:
    """Text that Markdown and HTML take for text, on one line."""
    return re.sub(r"([\\`*_\[\]<>|#&!~$])", r"\\\1", " ".join(text.split()))


def _fenced(code: str, language: str) -> str:
    """A block of code whose fence is longer than any row of backticks in it."""
    longest = max((len(row) for row in re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{code}{fence}\n"
