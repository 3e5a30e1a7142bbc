"""The README.md of an exported model: metadata for the Hugging Face Hub, use, limits, scores, training and cost."""

import logging
import os
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from bert_jax import __version__
from bert_jax.checkpoints.load_model import Weights, read_task_file, task_file_path, weights_digest
from bert_jax.config import TaskConfig, section_from_values
from bert_jax.errors import UserError, file_error
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.sentence_modules import SentenceModules
from bert_jax.interop.tensors import WITHOUT_PARAMETERS, largest_class_of_heads
from bert_jax.readers.rows import parse_json
from bert_jax.reports.provenance import NamedValues, Provenance, provenance_of
from bert_jax.search.text_vectors import DOCUMENTS, QUERIES, prompt_of_role
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.kinds.kind import TaskKind
from bert_jax.tasks.kinds.similarity import SIMILARITY
from bert_jax.tasks.vector_heads import VECTOR_HEADS
from bert_jax.tokenizer import load_tokenizer
from bert_jax.training.metrics import WEIGHTED

LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]*")  # an identifier of the Hub, such as apache-2.0
NO_LICENSE = "No license was given with this model.\n"
HUB_ID = re.compile(r"([\w.-]+/)?[\w.-]+")


class ModelUse(NamedTuple):
    """The use of an output head: the Hub's name of its task, the class that opens the model, purpose and library."""

    pipeline_tag: str
    opener: str
    purpose: str
    library: str = "transformers"


# Head of pretraining -> use of the model. The first row whose head a model has decides on the use; without such a row,
# the head of the model's task decides.
USES = {
    "masked_token": ModelUse("fill-mask", "AutoModelForMaskedLM", "filling masked words, and fine-tuning on a task"),
    "next_token": ModelUse("text-generation", "AutoModelForCausalLM", "continuing texts, and fine-tuning on a task"),
    "replaced_token": ModelUse("feature-extraction", "AutoModelForPreTraining", "fine-tuning on a task"),
}
BARE = ModelUse("feature-extraction", "AutoModel", "vectors of texts, and fine-tuning on a task")
SENTENCES = ModelUse(
    SIMILARITY.pipeline_tag, "SentenceTransformer", SIMILARITY.purpose, library="sentence-transformers"
)


def model_card(
    weights: Weights,
    directory: pathlib.Path,
    license_: str | None = None,
    base_model: str | None = None,
    bias: pathlib.Path | None = None,
    retrieval: pathlib.Path | None = None,
    earlier: ModelCard | None = None,
) -> str:
    """Return the text of the model card, in Markdown.

    Args:
        weights: the weights of `directory` from `read_weights`, with the exported heads.
        directory: a work directory, which records the origin of the model, or any model directory.
        license_: license identifier of the Hub, such as apache-2.0; None: the card says that no license was given.
        base_model: id on the Hub of the model from which the training of this model started.
        bias: output file of `bert-jax bias --json` for this model, for the section on limits.
        retrieval: output file of `bert-jax score --retrieval DIR --json` for this model, for the section on retrieval.
        earlier: the card of `directory`, whose license, languages, base model and data sets the new card keeps.

    Raises:
        UserError: an identifier has a form that the Hub refuses, or one of the files `bias` and `retrieval` is not a
            report or is about other weights.
    """
    _check_identifiers(license_, base_model)
    earlier_data = vars(earlier.data) if earlier else {}
    license_ = license_ or earlier_data.get("license")
    provenance, use = provenance_of(directory, weights.step), _choose_model_use(weights)
    code = _prediction_code(weights)
    in_transformers = FAMILIES[weights.config.family].in_transformers
    name = os.path.basename(os.path.realpath(directory))
    metadata = ModelCardData(
        language=[*provenance.languages] or earlier_data.get("language"),
        license=license_,
        **_use_metadata(weights, use, provenance.tags),
        base_model=base_model or _hub_ids(earlier_data.get("base_model")),
        datasets=[*provenance.datasets] or earlier_data.get("datasets"),
        model_name=name if provenance.task_scores else None,
        eval_results=_evaluation_results(provenance, use.pipeline_tag) or None,
    )
    digest = weights_digest(weights.params) if bias or retrieval else ""
    limits = _bias_section(bias, digest) if bias else []
    if license_ is None:
        limits.append(NO_LICENSE)
    parts = [
        *_introduction(weights, provenance, use),
        *limits,
        "## Load it\n",
        _code_block(code or _loading_code(use, in_transformers, weights.sentences), "python"),
        *(_retrieval_section(retrieval, digest) if retrieval else []),
        *_training_sections(provenance),
    ]
    title = f"# {_escaped_markdown_line(name)}\n"
    # The metadata is YAML between two lines of hyphens.
    return "\n".join(["---", metadata.to_yaml(), "---", "", title, *parts, f"Exported by bert_jax {__version__}.", ""])


def parse_card(text: str) -> ModelCard | None:
    """Return the metadata and the text of a model card; None if its metadata cannot be read."""
    logging.getLogger("huggingface_hub.repocard").setLevel(logging.ERROR)  # the logger warns of a card without metadata
    try:
        return ModelCard(text, ignore_metadata_errors=True)
    except Exception:  # the parser of YAML is a package of huggingface_hub, and has its own exceptions
        return None


def card_with_facts(
    card: ModelCard,
    weights: Weights,
    license_: str | None,
    base_model: str | None,
    bias: pathlib.Path | None,
    retrieval: pathlib.Path | None,
) -> str:
    """Return the text of the card with further facts; `model_card` documents the arguments and the errors.

    The metadata gets the license and the base model. If the card has no metadata, the metadata also gets the entries of
    `_use_metadata`. The sections on bias and retrieval are at the end of the text.
    """
    _check_identifiers(license_, base_model)
    if not card.data.to_dict():  # type: ignore[no-untyped-call]
        vars(card.data).update(_use_metadata(weights, _choose_model_use(weights)))
    for name, value in (("license", license_), ("base_model", base_model)):
        if value:
            setattr(card.data, name, value)
    if license_:
        card.text = card.text.replace(f"{NO_LICENSE}\n", "")
    digest = weights_digest(weights.params) if bias or retrieval else ""
    sections = [
        *(_bias_section(bias, digest) if bias else ()),
        *(_retrieval_section(retrieval, digest) if retrieval else ()),
    ]
    return "\n".join([str(card), *sections])


def _check_identifiers(license_: str | None, base_model: str | None) -> None:
    """Raise UserError if the Hub refuses the form of a license or of the id of a base model."""
    if license_ is not None and not LICENSE.fullmatch(license_):
        raise UserError(f"--license {license_}: give an identifier of the Hugging Face Hub, such as apache-2.0")
    if base_model is not None and not HUB_ID.fullmatch(base_model):
        raise UserError(f"--base_model {base_model}: give an id of the Hugging Face Hub, such as owner/name")


def _use_metadata(weights: Weights, use: ModelUse, tags: Sequence[str] = ()) -> dict[str, Any]:
    """Return the metadata with which the Hub shows how a model is used: library, task and tags."""
    in_transformers = FAMILIES[weights.config.family].in_transformers
    return {
        "library_name": use.library if in_transformers else "bert_jax",
        "pipeline_tag": use.pipeline_tag,
        "tags": [weights.config.family, "bert_jax", *tags],
    }


def _hub_ids(base_model: str | list[str] | None) -> str | list[str] | None:
    """Return the base models of a card; None if a base model is not an id of the Hub, but a path that peft writes."""
    ids = [base_model] if isinstance(base_model, str) else base_model
    return base_model if ids and all(HUB_ID.fullmatch(str(name)) for name in ids) else None


def _evaluation_results(provenance: Provenance, task_type: str) -> list[EvalResult]:
    """Return the scores of a task in the form in which the Hub shows and compares scores."""
    return [
        EvalResult(
            task_type=task_type,
            dataset_type=next(iter(provenance.datasets), provenance.task),
            dataset_name=provenance.task,
            dataset_split="validation",
            metric_type=metric,
            metric_value=value,
        )
        for metric, value in provenance.task_scores.items()
    ]


def _choose_model_use(weights: Weights) -> ModelUse:
    """Return the use of a model, which depends on its pooling and its heads."""
    if weights.sentences is not None:
        return SENTENCES._replace(opener=VECTOR_HEADS[weights.sentences.vector_head].opener)
    heads = {head.name: head.classes for head in weights.heads}
    of_task, _ = _task_kind_and_settings(weights)
    for head, use in USES.items():
        if head in heads:
            return use._replace(purpose=of_task.purpose) if of_task and of_task.head == head else use
    for kind in (*([of_task] if of_task else []), *KINDS.values()):
        classes = heads.get(kind.head)
        if classes is not None and (classes > 1 if kind.classes is None else classes == kind.classes):
            opener = largest_class_of_heads(FAMILIES[weights.config.family], {*heads} - {*WITHOUT_PARAMETERS})
            _, with_for, task = opener.name.partition("For") if opener else ("", "", "")
            return ModelUse(kind.pipeline_tag, f"AutoModel{with_for}{task}", kind.purpose)
    return BARE


def _task_kind_and_settings(weights: Weights) -> tuple[TaskKind | None, TaskConfig]:
    """Return the kind and the settings of the task in a model's directory; without a task, (None, default settings)."""
    path = task_file_path(weights)
    described = read_task_file(path)
    return KINDS.get(described.get("kind", "")), section_from_values(TaskConfig, described.get("config", {}), str(path))


def _prediction_code(weights: Weights) -> str:
    """Return Python code that predicts with transformers; "" if the task has no code or the model no head for it."""
    kind, settings = _task_kind_and_settings(weights)
    if not kind or not kind.usage_code or kind.head not in {head.name for head in weights.heads}:
        return ""
    return kind.usage_code(settings, load_tokenizer(weights.directory))


def _introduction(weights: Weights, provenance: Provenance, use: ModelUse) -> Iterable[str]:
    """Yield the paragraphs on architecture, origin, intended use and limits."""
    config, sentences = weights.config, weights.sentences
    heads = ", ".join(head.name.replace("_", " ") for head in weights.heads) or "none"
    pooling = ""
    if sentences is not None:
        length = " of length 1" if sentences.normalize else ""
        pooling = f" {VECTOR_HEADS[sentences.vector_head].description}"
        if sentences.has_pooling:
            pooling = f" A text is one vector{length}, by {sentences.pooling} pooling."
        if sentences.max_seq_len is not None:
            pooling += f" Texts are cut at {sentences.max_seq_len:,} tokens."
    yield (
        f"An encoder of the family {config.family}: {config.num_layers} layers of width {config.hidden_size}, a "
        f"vocabulary of {config.vocab_size:,} tokens, up to {config.max_positions:,} tokens a text; heads: {heads}."
        f"{pooling}\n"
        f"{_escaped_markdown_line(provenance.origin) or 'How it was trained is not recorded here.'}\n"
    )
    yield "## Intended use and limits\n"
    purpose = use.purpose if provenance.fills_masks else BARE.purpose
    yield (
        f"It is meant for {purpose}.\nIts answers follow the texts that it was trained on, with their errors and "
        "prejudices. Only the figures on this page were measured.\n"
    )


def _training_sections(provenance: Provenance) -> Iterable[str]:
    """Yield the sections on scores, training and cost, and leave out unknown values."""
    if provenance.scores:
        names = {name for name, _ in provenance.scores}
        weighted = ", ".join(name for name in (loss.replace("_", " ") for loss in WEIGHTED) if name in names)
        unit = f"nats, times their weight: {weighted}" if weighted else "nats"
        yield "## Scores\n"
        yield f"{_escaped_markdown_line(provenance.eval_set)} Losses and entropies are in {unit}.\n"
        yield _markdown_table(("measure", "value"), provenance.scores)
    if provenance.recipe:
        yield "## Training\n"
        if provenance.corpus:
            yield f"Text: {_escaped_markdown_line(provenance.corpus)}\n"
        yield f"`bert-jax {provenance.verb} --config recipe.py --workdir DIR` trains it again, where `recipe.py` is\n"
        yield _code_block(provenance.recipe, "python")
        fingerprints = [(f"fingerprint of the {name}", value) for name, value in provenance.fingerprints]
        versions = [(f"version of {name}", value) for name, value in provenance.versions]
        yield _markdown_table(("", ""), [*fingerprints, *versions])
    if provenance.cost:
        yield "## Cost\n"
        yield f"Of the whole run until it was exported. {_escaped_markdown_line(provenance.cost_note)}\n"
        yield _markdown_table(("", ""), provenance.cost)


def _bias_section(report: pathlib.Path, weights: str) -> list[str]:
    """Return a title and a Markdown list with the meaning and the limits of each figure in a bias report.

    Args:
        report: a file with the output of `bert-jax bias --json`.
        weights: the `weights_digest` of the model that the card describes.

    Raises:
        UserError: the file cannot be read, is not a report of this kind, or is about other weights.
    """
    try:
        values = parse_json(str(report), report.read_text(encoding="utf-8"))
        measured, lines = values["weights"], list[str]()
        for result in values["results"]:
            for figure in result["readings"]:
                says, limits = figure["says"], figure["does_not_say"]
                if not isinstance(says, str) or not isinstance(limits, str):
                    raise TypeError("a sentence is no text")
                lines.append(f"- {_escaped_markdown_line(f'{says} {limits}')}")
    except OSError as error:
        raise file_error(error, f"--bias {report}", "cannot be read") from None
    except (KeyError, TypeError, UnicodeDecodeError):
        raise UserError(f"--bias {report}: not a bias report; give the output of `bert-jax bias --json`") from None
    if measured != weights:
        raise UserError(f"--bias {report}: measured with other weights than these; run `bert-jax bias --json` again")
    return ["Bias, measured by `bert-jax bias`:\n", "\n".join([*lines, ""])] if lines else []


def _retrieval_section(report: pathlib.Path, weights: str) -> list[str]:
    """Return a title and Markdown tables with the measures of each collection and of each form of stored vectors.

    Args:
        report: a file with the output of `bert-jax score --retrieval DIR --json`.
        weights: the `weights_digest` of the model that the card describes.

    Raises:
        UserError: the file cannot be read, is not a report of this kind, or is about other weights.
    """
    command = "bert-jax score --retrieval DIR --json"
    try:
        values, parts = parse_json(str(report), report.read_text(encoding="utf-8")), ["## Retrieval\n"]
        results = [result for result in values["results"] if result["benchmark"] == "retrieval"]
        measured = {result["weights"] for result in results}
        for result in results:
            name = os.path.basename(os.path.normpath(result["source"]))
            counts = f"{result['queries']:,} queries, {result['documents']:,} documents"
            parts.append(_escaped_markdown_line(f"{name}, {result['split']}: {counts}") + "\n")
            for system, row in result["rows"].items():
                measures = [(measure, f"{value:.4f}") for measure, value in row.items()]
                parts.append(_markdown_table((_escaped_markdown_line(system), ""), measures))
            forms = [
                (name, f"{form['num_bytes'] / 2**20:.2f} MiB, nDCG@10 {form['ndcg']:.4f} ({-form['lost']:+.4f})")
                for name, form in result.get("vectors", {}).items()
            ]
            parts += [_markdown_table(("stored vectors", "size and quality"), forms)] if forms else []
    except OSError as error:
        raise file_error(error, f"--retrieval {report}", "cannot be read") from None
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UserError(f"--retrieval {report}: not a report of retrieval; give the output of `{command}`") from None
    if measured != {weights}:
        raise UserError(f"--retrieval {report}: measured with other weights than these; run `{command}` again")
    return parts


def _loading_code(use: ModelUse, in_transformers: bool, sentences: SentenceModules | None) -> str:
    """Return Python code that opens the model in the current directory, and makes vectors with the role's prompt."""
    if not in_transformers:
        return 'import bert_jax\n\nmodel = bert_jax.load(".")  # this directory\n'
    if sentences and use.library == SENTENCES.library:
        query, document = (prompt_of_role(sentences.prompts, sentences.prompt, role) for role in (QUERIES, DOCUMENTS))
        has_roles = query != document or VECTOR_HEADS[sentences.vector_head].has_token_vectors
        return (f'from sentence_transformers import {use.opener}\n\nmodel = {use.opener}(".")  # this directory\n') + (
            'queries = model.encode_query(["a query"])\n'
            'documents = model.encode_document(["a document", "another document"])\n'
            if has_roles
            else 'vectors = model.encode(["a text", "another text"])\n'
        )
    return (
        f"from transformers import AutoTokenizer, {use.opener}\n\n"
        f'model = {use.opener}.from_pretrained(".")  # this directory\n'
        'tokenizer = AutoTokenizer.from_pretrained(".")\n'
    )


def _markdown_table(head: tuple[str, str], rows: NamedValues) -> str:
    lines = [f"| {head[0]} | {head[1]} |", "| --- | --- |"]
    return "\n".join(
        [*lines, *(f"| {_escaped_markdown_line(name)} | {_escaped_markdown_line(value)} |" for name, value in rows), ""]
    )


def _escaped_markdown_line(text: str) -> str:
    """Return the text as one line, with the special characters of Markdown and HTML escaped."""
    return re.sub(r"([\\`*_\[\]<>|#&!~$])", r"\\\1", " ".join(text.split()))


def _code_block(code: str, language: str) -> str:
    """Return a Markdown code block, whose fence is longer than any sequence of backticks in the code."""
    longest = max((len(row) for row in re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{code}{fence}\n"
