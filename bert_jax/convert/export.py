"""Export of the model of any model directory to the formats of other programs."""

import dataclasses
import functools
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Mapping

import jax

from bert_jax import files, strict_json
from bert_jax.checkpoints.load_model import Weights, read_weights, task_file_path
from bert_jax.console import Console
from bert_jax.convert.expected_outputs import add_vectors, has_vectors, heads_of_exported_program
from bert_jax.convert.program import move_files_to_parent, write_program
from bert_jax.errors import UserError, check_output, did_you_mean
from bert_jax.files import read_file
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.huggingface import CARD, TASK_FILE, export_model
from bert_jax.interop.huggingface.peft import CONFIG as PEFT_CONFIG
from bert_jax.interop.huggingface.peft import FOLDER
from bert_jax.interop.onnx_file import convert_to_openvino, export_onnx, quantize_onnx
from bert_jax.interop.sentence_modules import sentence_module_files
from bert_jax.interop.stablehlo import export_stablehlo
from bert_jax.interop.tensors import PROJECTION, first_path_part, largest_class_of_heads, parameter_shapes
from bert_jax.interop.token_modules import projection_file
from bert_jax.reports.card import card_with_facts, model_card, parse_card
from bert_jax.tokenizer import copy_tokenizer
from bert_jax.training.checkpoint import read_record
from bert_jax.training.metrics import begins_with_digest, read_metrics
from bert_jax.training.remote_workdir import checkpoints_directory
from bert_jax.training.workdir import resolve_model_dir


@dataclasses.dataclass(frozen=True)
class CardFacts:
    """Facts for a model card that the files of the model do not contain."""

    license: str | None = None
    base_model: str | None = None  # id on the Hugging Face Hub of the model from which the training started
    bias: pathlib.Path | None = None  # file with a report of `bert-jax bias --json` on the model
    retrieval: pathlib.Path | None = None  # file with the output of `bert-jax score --retrieval DIR --json`


def export_directory(
    model: pathlib.Path,
    output: pathlib.Path,
    target: str,
    console: Console,
    *,
    step: int | None = None,
    head: str | None = None,
    part: str | None = None,
    card_facts: CardFacts = CardFacts(),
    measure: bool = False,
) -> None:
    """Write a model to the directory `output` atomically.

    Args:
        model: a work directory, a model directory, or Google's TensorFlow checkpoint of a BERT.
        output: a directory that does not exist or is empty.
        target: a row of FORMATS.
        console: console that prints the result, and the heads that are left out.
        step: step of the checkpoint in a work directory of `pretrain`; None: the newest undamaged checkpoint.
        head: the only head to write; None: all heads. If no class of transformers has all heads, the heads of the class
        with the most heads are written.
        part: an auxiliary model that a run of `pretrain` trains, such as "generator".
        card_facts: facts for the model card, which only the format "huggingface" has.
        measure: True to write to README.md the output of its code, and the latency of each installed runtime.

    Raises:
        UserError: the format is unknown, `model` holds no model, the format cannot express the model, has no runtime
            to measure or has no model card, or `output` exists and is not empty.
    """
    check_output(output)
    if target not in FORMATS:
        raise UserError(f"--format {target}: unknown; known are {', '.join(FORMATS)}{did_you_mean(target, FORMATS)}")
    if measure and not FORMATS[target].title:
        programs = ", ".join(name for name, row in FORMATS.items() if row.title)
        raise UserError(f"--measure: only for the formats {programs}")
    is_huggingface = FORMATS[target].write is write_huggingface
    given = [f"--{name}" for name, value in vars(card_facts).items() if value is not None]
    if given and not is_huggingface:
        raise UserError(f"{given[0]}: only for --format huggingface, whose README.md is a model card")
    sealed = resolve_model_dir(model)
    # Every byte of the model is checked, because the output gets new digests.
    files.check_sums(sealed, [name for name in files.read_sums(sealed) if name != CARD], None)
    row, weights = FORMATS[target], read_weights(model, console=console, step=step, part=part)
    chosen = _model_of_vectors_or_head(weights, head) if row.title else weights
    exported = with_exported_heads(chosen, row.is_class, head)
    if is_huggingface:
        row.write(exported, output, {CARD: card_text(exported, weights, model, card_facts)})
    elif row.title:
        one_class, has_torch = (
            with_exported_heads(exported, is_class=True),
            FAMILIES[exported.config.family].in_transformers,
        )
        write_program(
            exported,
            output,
            lambda weights, directory: row.write(weights, directory, {}),
            format_name=target,
            runtimes=row.runtimes,
            title=f"{model.resolve().name}: {row.title}",
            is_int8=row.tolerance is None,
            write_for_torch=functools.partial(write_huggingface, one_class, extra={}) if has_torch else None,
            measure=measure,
            console=console,
        )
    else:
        row.write(exported, output, {})
    if is_huggingface and exported.step is not None:
        _warn_if_metrics_changed(model, exported.step, console)
    if exported.sentences is not None and row.title:
        console.say(f"length, lower case and prompt are in the code of {CARD}; the program starts from token ids")
    family = FAMILIES[exported.config.family]
    if left_out := left_out_heads(weights, exported):
        has_class = any(left_out[0] in model_class.heads for model_class in family.classes)
        advice = f"; export it by itself with --head {left_out[0]}" if has_class and not head else ""
        console.say(f"left out: the head {', '.join(left_out)}{advice}")
    if is_huggingface and not family.in_transformers:
        console.say("bert_jax reads this directory, transformers does not: it has no such architecture")
    names = ", ".join(head.name for head in exported.heads) or "no head"
    console.say(f"{exported.config.family} with {names} -> {output}")


def with_exported_heads(weights: Weights, is_class: bool, head: str | None = None) -> Weights:
    """Return the model with all heads, or only with `head`; raise UserError if it lacks `head`.

    With `is_class`, return only the heads of one class of transformers.
    """
    names = {head.name for head in weights.heads}
    if head is not None:
        if head not in names:
            available = ", ".join(head.name for head in weights.heads) or "none"
            raise UserError(f"--head {head}: this model has no such head; it has {available}")
        names = {head}
    elif is_class and (model_class := largest_class_of_heads(FAMILIES[weights.config.family], names)):
        names &= {*model_class.heads}
    return _with_heads(weights, names)


def _model_of_vectors_or_head(weights: Weights, head: str | None) -> Weights:
    """Return the model that a program computes: the vectors of texts without further heads, or only the head `head`.

    A directory of sentence-transformers may have a masked-token head, which sentence-transformers does not read either.
    """
    if weights.sentences is None or not has_vectors(weights.sentences) or weights.sentences.is_sparse:
        return weights
    if head is not None:
        return dataclasses.replace(weights, sentences=None)
    return _with_heads(weights, {PROJECTION, "pooled"})


def _with_heads(weights: Weights, names: set[str]) -> Weights:
    """Return the model with the heads of these names, and without the parameters of other heads."""
    heads = tuple(head for head in weights.heads if head.name in names)
    parts = {first_path_part(path) for path in parameter_shapes(weights.config, heads)}
    params = {name: x for name, x in weights.params.items() if name in parts}
    return dataclasses.replace(weights, heads=heads, params=params)


def left_out_heads(weights: Weights, exported: Weights) -> list[str]:
    """Return the names of the heads that an export lacks."""
    return [head.name for head in weights.heads if head not in exported.heads]


def card_text(weights: Weights, original: Weights, model: pathlib.Path, facts: CardFacts = CardFacts()) -> str:
    """Return the model card of `weights`, a form of the model `original` that was read from the directory `model`.

    The card of the directory is kept, and gets the facts, if the card describes `weights`. For other heads, for another
    family, and for an adapter that was merged into its base model, a new card is made. The new card keeps the license
    and other facts of the directory's card or, for a merged adapter, of the adapter's card.
    """
    path = (original.adapter_directory or original.directory) / CARD
    given = (facts.license, facts.base_model, facts.bias, facts.retrieval)
    if not path.is_file():
        return model_card(weights, model, *given)
    text = read_file(path, strict_json.MAX_BYTES).decode(errors="replace")
    form, original_form = (weights.heads, weights.config.family), (original.heads, original.config.family)
    is_described = form == original_form and not original.adapter_directory
    if is_described and facts == CardFacts():
        return text
    card = parse_card(text)
    if is_described and card:
        return card_with_facts(card, weights, *given)
    return model_card(weights, model, *given, earlier=card)


def _warn_if_metrics_changed(workdir: pathlib.Path, step: int, console: Console) -> None:
    """Warn if metrics.jsonl, whose scores the model card contains, differs from the checkpoint's record."""
    path, digest = workdir / "metrics.jsonl", read_record(checkpoints_directory(workdir), step).get("metrics")
    if digest and not begins_with_digest(read_metrics(path), digest):
        console.say(
            f"{path}: differs from the record of the checkpoint of step {step:,}; the scores in {CARD} may be wrong"
        )


def write_huggingface(weights: Weights, output: pathlib.Path, extra: Mapping[str, str]) -> None:
    """Write a directory of transformers; `extra` maps the names of further files to their texts."""
    export_model(
        jax.device_get(weights.params),
        weights.config,
        weights.heads,
        weights.directory,
        output,
        weights.labels,
        {**extra, **usage_files(weights)},
        activation=weights.activation,
        problem=weights.problem,
    )


def usage_files(weights: Weights) -> dict[str, str]:
    """Return name -> text of the files about the use of a model: its task, and modules of sentence-transformers."""
    path = task_file_path(weights)
    usage = {TASK_FILE: read_file(path, strict_json.MAX_TABLE_BYTES).decode()} if path.is_file() else {}
    if weights.sentences is not None:
        usage |= sentence_module_files(weights.sentences, weights.config)
    return usage


def write_stablehlo(weights: Weights, output: pathlib.Path, extra: Mapping[str, str]) -> None:
    """Write a StableHLO program and the tokenizer; an encoder without a head returns hidden states, or text vectors."""
    sentences = weights.sentences if has_vectors(weights.sentences) else None
    with files.output_directory(output) as partial:
        export_stablehlo(
            weights.params,
            weights.config,
            heads_of_exported_program(weights.heads, sentences),
            partial / "program",
            weights.labels,
            (
                lambda outputs, inputs: add_vectors(
                    outputs, inputs["attention_mask"], sentences, weights.config.vocab_size
                )
            )
            if sentences
            else (lambda outputs, inputs: outputs),
        )
        move_files_to_parent(partial / "program")
        copy_tokenizer(weights.directory, partial)
    del extra


def write_onnx(weights: Weights, output: pathlib.Path, extra: Mapping[str, str]) -> None:
    """Write a directory with an ONNX file."""
    if not FAMILIES[weights.config.family].in_transformers:
        raise UserError(
            f"transformers computes the program, and transformers has no model.family={weights.config.family}; "
            "use --format stablehlo, or --format huggingface for bert_jax itself"
        )
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "model"
        write_huggingface(weights, path, extra)
        export_onnx(path, output)


def _write_from_onnx(
    convert: Callable[[pathlib.Path, pathlib.Path], None],
    weights: Weights,
    output: pathlib.Path,
    extra: Mapping[str, str],
) -> None:
    """Write an ONNX file in float32 to a temporary directory, and convert this directory to `output`."""
    with tempfile.TemporaryDirectory() as directory:
        float32 = pathlib.Path(directory) / "float32"
        write_onnx(weights, float32, extra)
        convert(float32, output)


def write_peft(weights: Weights, output: pathlib.Path, extra: Mapping[str, str]) -> None:
    """Write the adapter of a fine-tuned model as a directory of `peft`, with the tokenizer and the task.

    Earlier versions wrote an adapter of vectors without the projection and the modules of sentence-transformers, so the
    files that the adapter lacks come from the model.
    """
    del extra
    source = weights.directory / FOLDER
    if not (source / PEFT_CONFIG).is_file():
        raise UserError(
            f"{weights.directory} has no {FOLDER}/, which `finetune --config.adapter.rank=8` writes for a head of a "
            "task over an exported model of transformers"
        )
    with files.output_directory(output) as partial:
        shutil.copytree(source, partial, dirs_exist_ok=True)
        copy_tokenizer(weights.directory, partial)
        contents: dict[str, bytes] = {name: text.encode() for name, text in usage_files(weights).items()}
        if PROJECTION in weights.params:
            contents |= projection_file(weights.params[PROJECTION]["kernel"])
        for name, content in contents.items():
            if not (partial / name).exists():
                (partial / name).parent.mkdir(exist_ok=True)
                (partial / name).write_bytes(content)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportFormat:
    """A row of FORMATS."""

    write: Callable[[Weights, pathlib.Path, Mapping[str, str]], None]  # function (model, directory, extra files)
    is_class: bool = True  # whether only the heads of one class of transformers are written
    runtimes: tuple[str, ...] = ()  # rows of RUNTIMES that run an export; README.md has the code of the first row
    tolerance: float | None = 1e-5  # limit of `largest_relative_difference` to bert_jax; None: no limit (int8)
    title: str = ""  # end of the title of README.md; "": the directory has a model card instead


FORMATS: dict[str, ExportFormat] = {
    "huggingface": ExportFormat(write=write_huggingface, runtimes=("transformers", "sentence-transformers")),
    "stablehlo": ExportFormat(
        write=write_stablehlo, is_class=False, runtimes=("jax",), title="a StableHLO program in float32"
    ),
    "onnx": ExportFormat(write=write_onnx, runtimes=("onnxruntime", "openvino"), title="an ONNX file in float32"),
    "onnx_int8": ExportFormat(
        write=functools.partial(_write_from_onnx, quantize_onnx),
        runtimes=("onnxruntime",),
        tolerance=None,
        title="an ONNX file with int8 weights",
    ),
    "openvino": ExportFormat(
        write=functools.partial(_write_from_onnx, convert_to_openvino),
        runtimes=("openvino",),
        title="an OpenVINO model in float32",
    ),
    "peft": ExportFormat(write=write_peft),
}
