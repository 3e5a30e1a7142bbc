"""Save random model directories by transformers, and compare how bert_jax and transformers read them.

    python -m benchmarks.random_directories --output results.jsonl [--cases 2000] [--seed 0]

The seed and a number determine a directory (tests/helpers/random_directories.py). Every result is a line of the output
file; a second call continues after the last line. Prints tables with the fractions of directories that are read,
refused or read wrong, and with the reasons of refusals. The exit status is 1 if a directory was read wrong or caused a
traceback. Needs the packages of the tests.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable
from typing import Any

# Many directories run the same operations, so programs are cached. Set before the first import of JAX.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(pathlib.Path(tempfile.gettempdir()) / "random_directories_xla"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.02")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")

from tests.helpers.opened_by_both import CRASHED, READ, REFUSED, UNREAD, WRONG, compare_case
from tests.helpers.random_directories import draw_case, write_case

Result = dict[str, Any]


def main() -> int:
    """Compare the directories that the output file lacks, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, required=True, help="file of results, a JSON object per line")
    parser.add_argument("--cases", type=int, default=2000, help="number of directories")
    parser.add_argument("--seed", type=int, default=0, help="seed of the directories")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    results = read_results(options.output) if options.output.exists() else []
    with options.output.open("a", encoding="utf-8") as output:
        for case_number in range(len(results), options.cases):
            results.append(compare_number(options.seed, case_number))
            output.write(json.dumps(results[-1], ensure_ascii=False) + "\n")
            output.flush()
    print_tables(results)
    return int(any(result["kind"] in (WRONG, CRASHED) for result in results))


def read_results(path: pathlib.Path) -> list[Result]:
    """Return the results of earlier calls."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def compare_number(seed: int, case_number: int) -> Result:
    """Return the result of one directory."""
    case = draw_case(seed, case_number)
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory)
        write_case(case, path)
        outcome = compare_case(case, path)
    return {
        "number": case_number,
        "family": case.family,
        "task": case.task,
        "version": case.version,
        "odd": list(case.odd),
        "kind": outcome.kind,
        "reason": outcome.reason,
    }


def print_tables(results: list[Result]) -> None:
    """Print the results of all directories, the results for each property, and the reasons of refusals."""
    read_by_both = [result for result in results if result["kind"] != UNREAD]
    print("| directories | number | read | refused | read wrong | crashed |\n| --- | --- | --- | --- | --- | --- |")
    print(_row("all that transformers reads", read_by_both))
    print(_row("defaults of `save_pretrained`", [result for result in read_by_both if not result["odd"]]))
    for num_odd in (1, 2):
        rows = [result for result in read_by_both if len(result["odd"]) == num_odd]
        print(_row(f"{num_odd} odd propert{'ies' if num_odd > 1 else 'y'}", rows))
    for name in ("family", "task"):
        for value, _ in Counter(result[name] for result in read_by_both).most_common():
            print(_row(f"{name} {value}", [result for result in read_by_both if result[name] == value]))
    print(f"\n{len(results) - len(read_by_both)} directories more are not read by transformers.")
    _print_reasons(read_by_both)
    print("\n| odd property | number | read | refused | read wrong | crashed |\n| --- | --- | --- | --- | --- | --- |")
    for odd, _ in Counter(odd for result in read_by_both for odd in result["odd"]).most_common():
        rows = [result for result in read_by_both if odd in result["odd"]]
        if any(result["kind"] != READ for result in rows):
            print(_row(odd, rows))


def _row(name: str, results: Iterable[Result]) -> str:
    counts = Counter(result["kind"] for result in results)
    total = max(counts.total(), 1)
    shares = " | ".join(str(counts[kind]) for kind in (REFUSED, WRONG, CRASHED))
    return f"| {name} | {counts.total()} | {counts[READ]} ({100 * counts[READ] / total:.1f} %) | {shares} |"


def _print_reasons(results: list[Result]) -> None:
    print("\n| number | kind | reason |\n| --- | --- | --- |")
    reasons = Counter(
        (result["kind"], result["reason"].partition(":")[0] if result["kind"] == WRONG else result["reason"])
        for result in results
        if result["kind"] != READ
    )
    for (kind, reason), count in reasons.most_common():
        print(f"| {count} | {kind} | {reason.replace('|', ' ')} |")


if __name__ == "__main__":
    sys.exit(main())
