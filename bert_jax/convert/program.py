"""Directory of an exported program: the program, its expected outputs, and README.md with the code that runs it."""

import math
import pathlib
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from bert_jax import files
from bert_jax.checkpoints.load_model import Weights, read_task_file, task_file_path
from bert_jax.config import TaskConfig, section_from_values
from bert_jax.console import Console
from bert_jax.convert.expected_outputs import (
    FILE,
    compute_outputs_of_bert_jax,
    serialize_expected_outputs,
)
from bert_jax.convert.export_readme import FENCE, answer_kind, measurements_text, readme_text, usage_code
from bert_jax.convert.latency import LENGTH, measure_latency
from bert_jax.convert.runtimes import RUNTIMES
from bert_jax.errors import UserError
from bert_jax.interop.huggingface import CARD, TASK_FILE
from bert_jax.interop.sentence_modules import TOKEN_VECTORS, VECTORS
from bert_jax.models.heads import OF_PRETRAINING
from bert_jax.tasks.kinds import KINDS
from bert_jax.tasks.table import fields_of_training
from bert_jax.tokenizer import load_tokenizer


def write_program(
    weights: Weights,
    output: pathlib.Path,
    write: Callable[[Weights, pathlib.Path], None],
    *,
    format_name: str,
    runtimes: tuple[str, ...],
    title: str,
    is_int8: bool,
    write_for_torch: Callable[[pathlib.Path], None] | None,
    measure: bool,
    console: Console,
) -> None:
    """Write a model as a program for a runtime, and beside it `expected_outputs.safetensors` and README.md.

    Args:
        weights: the model.
        output: a directory that does not exist or is empty.
        write: function that writes the program and its small files to a new directory.
        format_name: row of export.FORMATS.
        runtimes: rows of RUNTIMES that run the program; README.md has the code of the first.
        title: title of README.md.
        is_int8: whether the program multiplies int8 numbers.
        write_for_torch: function that writes the model for transformers to a new directory; None: transformers has no
            such model.
        measure: True to write to README.md the output of its code, and the latency of installed runtimes and torch.
        console: console that prints progress.

    Raises:
        UserError: the program cannot be written, or `measure` needs a runtime that is not installed.
    """
    if measure and not RUNTIMES[runtimes[0]].is_installed:
        raise UserError(f"--measure runs the program: pip install {RUNTIMES[runtimes[0]].package}")
    with files.output_directory(output) as partial:
        write(weights, partial / "program")
        move_files_to_parent(partial / "program")
        (partial / FILE).write_bytes(serialize_expected_outputs(compute_outputs_of_bert_jax(weights, format_name)))
        readme = program_readme(weights, title, runtimes[0], is_int8)
        if measure:
            printed = run_readme_code(readme, partial)
            console.say("measuring the latency on one core")
            latency = _measure_latencies(runtimes, partial, weights.config.max_positions, write_for_torch)
            length = min(LENGTH, weights.config.max_positions)
            readme += "\n" + measurements_text(printed, latency, processor_name(), length)
        if _template(weights):
            console.say(f"the code of {CARD} does not fill the template of the task; a note there says how")
        (partial / CARD).write_text(readme, encoding="utf-8")


def program_readme(weights: Weights, title: str, runtime: str, is_int8: bool) -> str:
    """Return README.md of a program that the row `runtime` of RUNTIMES runs."""
    sentences, max_positions = weights.sentences, weights.config.max_positions
    task_file = read_task_file(task_file_path(weights))
    settings, null_threshold = task_file.get("config", {}), task_file.get("null_threshold")
    max_length = min(settings.get("max_seq_len") or max_positions, max_positions)  # the maximum length in `predict`
    kind = answer_kind(weights.heads, weights.problem, weights.activation, sentences)
    classes = max((head.classes for head in weights.heads), default=0)
    code = usage_code(
        runtime,
        kind,
        load_tokenizer(weights.directory),
        has_token_types=weights.config.num_token_types > 1,
        max_length=sentences.max_tokens(max_positions) if sentences else max_length,
        labels=weights.labels or [f"LABEL_{i}" for i in range(classes)],
        thresholds=task_file.get("thresholds"),
        max_answer_length=section_from_values(TaskConfig, settings, TASK_FILE).max_answer_length,
        null_threshold=null_threshold if isinstance(null_threshold, int | float) else math.inf,
        sentences=sentences,
        reads_pairs=_reads_pairs(task_file),
        # Classes of transformers with two heads of pretraining return `prediction_logits` instead of `logits`.
        logits="prediction_logits" if len({head.name for head in weights.heads} & OF_PRETRAINING) > 1 else "logits",
    )
    notes = []
    if template := _template(weights):
        notes.append(
            f"This model labels texts by the word at the mask of a template, and the code below has no template. Fill "
            f"`{template}`, and compare the logits of the words at the mask: "
            f"`{settings.get('verbalizers')}` (label=word). `bert-jax predict` does both."
        )
    if sentences and sentences.is_sparse:
        notes.append(f"The output `{VECTORS}` has a weight for each token of the vocabulary, and most weights are 0.")
    elif sentences and sentences.has_token_vectors:
        notes.append(
            f"The output `{TOKEN_VECTORS}` has a vector of length 1 for each token. The score of a document is the "
            "sum, over the tokens of the query, of the largest product with a token of the document."
        )
    elif sentences and sentences.has_pooling:
        unit = " and scaled to length 1" if sentences.normalize else ""
        notes.append(f"The output `{VECTORS}` is a vector for each text, by {sentences.pooling} pooling{unit}.")
    if is_int8:
        notes.append(
            "Inference computes a scale for the activations of a whole batch. So the outputs for a text depend on the "
            "other texts of the batch and on its padding. A batch of texts of equal length has no padding."
        )
    if runtime == "openvino":
        notes.append("`import openvino` reports its use to Intel unless the command `opt_in_out --opt_out` ran before.")
    return readme_text(title, notes, RUNTIMES[runtime].package, code)


def _reads_pairs(task_file: dict[str, Any]) -> bool:
    """Return whether `finetune` trained a model with one answer for each pair of texts."""
    kind = KINDS.get(task_file.get("kind", ""))
    if kind is None or kind.loss.whole_batch:  # a vector belongs to a single text
        return False
    return (
        "text_pair" in fields_of_training(section_from_values(TaskConfig, task_file["config"], TASK_FILE), kind).columns
    )


def _template(weights: Weights) -> str | None:
    """Return the template of a model that labels texts by the word at a mask; None for other models."""
    template: str | None = read_task_file(task_file_path(weights)).get("config", {}).get("template")
    return template


def run_readme_code(readme: str, directory: pathlib.Path) -> str:
    """Run the Python code of a README.md in a directory, in a separate process; return the printed text."""
    code = 'import sys\nsys.modules["openvino_telemetry"] = None\n' + FENCE.findall(readme)[0]  # no telemetry
    done = subprocess.run([sys.executable, "-c", code], cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"the code of {CARD} fails: {''.join(done.stderr.strip().splitlines()[-1:])}")
    return done.stdout


def _measure_latencies(
    runtimes: tuple[str, ...],
    directory: pathlib.Path,
    max_length: int,
    write_for_torch: Callable[[pathlib.Path], None] | None,
) -> Mapping[str, Mapping[int, float]]:
    """Return runtime and version -> batch size -> milliseconds, for the installed runtimes of a program and torch."""
    directories = dict.fromkeys(runtimes, directory)
    with tempfile.TemporaryDirectory() as scratch:
        if write_for_torch and RUNTIMES["transformers"].is_installed:
            directories["transformers"] = pathlib.Path(scratch) / "transformers"
            write_for_torch(directories["transformers"])
        return {
            RUNTIMES[name].label: measure_latency(name, path, directory / FILE, max_length)
            for name, path in directories.items()
            if RUNTIMES[name].is_installed
        }


def processor_name() -> str:
    """Return the name of this machine's processor."""
    path = pathlib.Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def move_files_to_parent(directory: pathlib.Path) -> None:
    """Move the files of a directory into its parent, without their digests, and remove the directory."""
    (directory / files.SUMS).unlink(missing_ok=True)
    for path in directory.iterdir():
        path.rename(directory.parent / path.name)
    directory.rmdir()
