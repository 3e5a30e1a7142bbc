"""Functions for Apache Beam, an optional package: pipelines, chunks for all steps, versions and errors of workers."""

import re
import socket
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax import __version__
from bert_jax.corpus.build import chunks
from bert_jax.corpus.build.chunks import Partition
from bert_jax.corpus.build.cleaning.recipe import version_of
from bert_jax.corpus.build.dedup_decisions import load_decisions
from bert_jax.corpus.build.encoding import Chunk, PrepareSettings
from bert_jax.errors import StorageError, UserError, needs_packages
from bert_jax.tokenizer import Tokenizer

with needs_packages("--runner beam", "'apache-beam>=2.77'", ", with bert_jax in an environment of its own"):
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

__all__ = [
    "as_user_error",
    "beam",
    "check_worker_versions",
    "installed_package_versions",
    "make_pipeline",
    "read_and_spread_chunks",
]

WORDED = re.compile(r"(User|Storage)Error: ")
JOB_SERVER_SECONDS = 30
URL = re.compile(r"https?://[^\s:]+")


def make_pipeline(arguments: Sequence[str]) -> beam.Pipeline:
    """Return a pipeline with options such as '--runner=FlinkRunner'; raise UserError for options that Beam refuses."""
    try:
        options = PipelineOptions(list(arguments))
        check_job_server(options.get_all_options()["job_endpoint"])  # options are parsed here, before the work begins
        return beam.Pipeline(options=options)
    except SystemExit:
        raise UserError(f"--beam_options {' '.join(arguments)}: not accepted by Apache Beam, see above") from None
    except (ImportError, ValueError) as error:  # an unknown runner, or a runner without its package or options
        raise UserError(f"--beam_options {' '.join(arguments)}: {error}") from None


def check_job_server(endpoint: str | None) -> None:
    """Raise UserError if no job server listens at `--job_endpoint=HOST:PORT`, since Beam would wait forever."""
    host, _, port = (endpoint or "").rpartition(":")
    if not port.isdecimal():  # no endpoint, or "embed"
        return
    try:
        socket.create_connection((host, int(port)), JOB_SERVER_SECONDS).close()
    except OSError as error:
        raise UserError(
            f"--job_endpoint={endpoint}: no job server listens there ({error.strerror or error}); start it, or correct "
            "--beam_options"
        ) from None


def read_and_spread_chunks(
    partitions: beam.PCollection,
    step: str,
    settings: PrepareSettings,
    tokenizer: Tokenizer | None = None,
    decided: Any = None,
) -> beam.PCollection:
    """Return the chunks of the partitions; a single worker reads a large file, and all workers process its chunks.

    Args:
        partitions: a collection of `Partition`.
        step: name of the step that takes the chunks.
        settings, tokenizer: arguments of `read_chunks`.
        decided: side input with the path of a `Decisions` file; None: no decisions.
    """
    read = beam.FlatMap(_read_chunks_of_partition, chunks.read_chunks, tokenizer, settings, decided)
    return partitions | f"read to {step}" >> read.with_output_types(Any) | f"spread to {step}" >> beam.Reshuffle()


def _read_chunks_of_partition(
    partition: Partition, read: Any, tokenizer: Tokenizer | None, settings: PrepareSettings, decided: str | None
) -> Iterator[Chunk]:
    yield from read(partition, tokenizer, settings, load_decisions(decided) if decided else None)


def installed_package_versions(packages: Sequence[str]) -> str:
    """Return the versions of bert_jax and of packages as text, 'NAME VERSION, ...'."""
    versions = ((name, version_of(name) or "not installed") for name in packages)
    return ", ".join(f"{name} {version}" for name, version in (("bert_jax", __version__), *versions))


def check_worker_versions(packages: Sequence[str], wanted: str) -> None:
    """Raise UserError on a worker that has other package versions than the machine that started the job."""
    if (versions := installed_package_versions(packages)) != wanted:
        raise UserError(
            f"a worker has {versions}, this machine has {wanted}; other versions may produce other bytes; "
            "install the same versions on the workers"
        )


def as_user_error(error: Exception) -> UserError | None:
    """Return the error of a pipeline as a UserError; return None for a bug, so that the traceback is shown.

    If an error occurred in another process, the text of a traceback contains the message of the error. If a traceback
    names no function of bert_jax, the error comes from Beam: Beam cannot download the program of a runner, or has lost
    a worker or the connection to a worker.
    """
    if isinstance(error, UserError):
        return error
    text = str(error)
    if messages := list(WORDED.finditer(text)):
        message = text[messages[-1].end() :].partition(" [while running")[0].strip()
        return (StorageError if messages[-1][1] == "Storage" else UserError)(message)
    frames = traceback.extract_tb(error.__traceback__)
    if frames and "apache_beam" in frames[-1].filename and __package__.partition(".")[0] not in text:
        if "Unable to fetch" in text:
            return UserError(
                "Apache Beam downloads the server of this runner, and cannot reach it; fetch "
                f"{URL.findall(text)[0] if URL.search(text) else 'the server'} elsewhere, and add to --beam_options "
                "--flink_job_server_jar=FILE, --spark_job_server_jar=FILE or --prism_location=FILE"
            )
        return StorageError(f"a worker of Apache Beam was lost ({' '.join(text.split())[:200]}); start again")
    return None
