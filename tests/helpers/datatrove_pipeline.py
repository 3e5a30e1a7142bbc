"""Run a pipeline of datatrove's own executor, in a process of its own: the executor forks.

    python -m tests.helpers.datatrove_pipeline RECIPE.json SOURCE.jsonl DIRECTORY

The recipe is name of a filter -> its parameters. The texts that the pipeline stores are in DIRECTORY/output/.
"""

import json
import pathlib
import sys

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline import filters
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter

CLASSES = {
    "gopher_repetition": filters.GopherRepetitionFilter,
    "gopher_quality": filters.GopherQualityFilter,
    "c4_quality": filters.C4QualityFilter,
    "fineweb_quality": filters.FineWebQualityFilter,
}


def main() -> None:
    """Run the pipeline."""
    recipe, source, directory = map(pathlib.Path, sys.argv[1:])
    steps = [CLASSES[rule](**parameters) for rule, parameters in json.loads(recipe.read_text()).items()]
    reader = JsonlReader(str(source.parent), glob_pattern=source.name)
    writer = JsonlWriter(str(directory / "output"), compression=None)
    LocalPipelineExecutor([reader, *steps, writer], logging_dir=str(directory / "logs")).run()


if __name__ == "__main__":
    main()
