"""Functions for Apache Beam, an optional package: pipelines, chunks for all steps, versions and errors of workers."""

from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax import __version__
from bert_jax.corpus.build import chunks
from bert_jax.corpus.build.chunks import Partition
from bert_jax.corpus.build.cleaning.recipe import version_of
from bert_jax.corpus.build.dedup_decisions import load_decisions
from bert_jax.corpus.build.encoding import Chunk, PrepareSettings
from bert_jax.errors import UserError, needs_packages
from bert_jax.tokenizer import Tokenizer

with needs_packages("--runner beam", "'apache-beam>=2.77'", ", with bert_jax in an environment of its own"):
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

__all__ = [
    "beam",
    "check_versions",
    "installed_package_versions",
    "make_pipeline",
    "spread_chunks",
    "user_error_message",
]


def make_pipeline(arguments: Sequence[str]) -> beam.Pipeline:
    """Return a pipeline with options such as '--runner=FlinkRunner'; raise UserError for options that Beam refuses."""
    try:
        options = PipelineOptions(list(arguments))
        options.get_all_options()  # parsed now, not in the middle of the work
        return beam.Pipeline(options=options)
    except SystemExit:
        raise UserError(f"--beam_options {' '.join(arguments)}: not accepted by Apache Beam, see above") from None
    except (ImportError, ValueError) as error:  # an unknown runner, or a runner without its package or options
        raise UserError(f"--beam_options {' '.join(arguments)}: {error}") from None


def spread_chunks(
    partitions: beam.PCollection,
    step: str,
    settings: PrepareSettings,
    tokenizer: Tokenizer | None = None,
    decided: Any = None,
) -> beam.PCollection:
    """Return the chunks of the partitions: one worker reads a large file, all workers process its chunks.

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


def check_versions(packages: Sequence[str], wanted: str) -> None:
    """Raise UserError on a worker where `installed_package_versions` differ from the machine that started the job."""
    if (versions := installed_package_versions(packages)) != wanted:
        raise UserError(
            f"a worker has {versions}, this machine has {wanted}; other versions may produce other bytes; "
            "install the same versions on the workers"
        )


def user_error_message(error: Exception) -> str:
    """Return the message of a UserError, or ''. An error of another process has the message inside a traceback."""
    if not isinstance(error, UserError) and "UserError: " not in str(error):
        return ""
    return str(error).rpartition("UserError: ")[2].partition(" [while running")[0].strip()
