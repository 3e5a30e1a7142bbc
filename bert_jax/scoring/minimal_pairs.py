"""Minimal pairs: does a model give the acceptable sentence of a pair a higher score than the other sentence?"""

import pathlib
import statistics
from collections.abc import Callable, Iterator, Sequence

from bert_jax.errors import UserError
from bert_jax.inference.inputs import read_inputs, texts_by_key
from bert_jax.scoring.benchmark import Benchmark, Figures, Item, ScoredItem, all_token_queries, file_or_files_in
from bert_jax.scoring.queries import ScoringContext

PACKAGED = {name: pathlib.Path(__file__).with_name(f"{name}.jsonl") for name in ("zorro_small",)}  # 1 % of Zorro
GOOD, BAD, PARADIGM = "sentence_good", "sentence_bad", "UID"
# Median share of common character bigrams: at least 0.5 in each paradigm of BLiMP and Zorro, 0.12 in prose.
MIN_SIMILARITY = 0.25
MIN_PAIRS_TO_JUDGE = 10  # the median of fewer pairs says little


def _read_json_lines(path: pathlib.Path) -> Iterator[Item]:
    """Yield the pairs of a file in the format of BLiMP (Warstadt 2020): a JSON object per line.

    If a line has no field `UID`, the name of the file is used as the paradigm of the pair.
    """
    for line in read_inputs(path):
        texts = texts_by_key(line, (GOOD,)) | texts_by_key(line, (BAD,))
        paradigm = line.fields.get(PARADIGM)
        yield Item(line.where, path.stem if paradigm is None else str(paradigm), (texts[GOOD], texts[BAD]))


def _read_alternating_lines(path: pathlib.Path) -> Iterator[Item]:
    """Yield the pairs of a file in the format of Zorro (Huebner 2021).

    Each odd line is the unacceptable sentence of a pair, and the next line is the acceptable sentence of this pair.
    """
    lines = [line for line in read_inputs(path) if line.fields["text"].strip()]
    if len(lines) % 2:
        raise UserError(
            f"{path}: {len(lines)} sentences, an odd number; write the unacceptable sentence of each pair first"
        )
    pairs = [
        Item(bad.where, path.stem, (good.fields["text"], bad.fields["text"]))
        for bad, good in zip(lines[::2], lines[1::2], strict=True)
    ]
    similarities = [_similarity(*pair.texts) for pair in pairs]
    if len(pairs) >= MIN_PAIRS_TO_JUDGE and statistics.median(similarities) < MIN_SIMILARITY:
        raise UserError(
            f"{path}: most pairs of lines have little in common, so these are not minimal pairs; score running text "
            "with --text"
        )
    yield from pairs


def _similarity(first: str, second: str) -> float:
    """Return the number of character bigrams that both texts have, divided by the number of bigrams in any text."""
    a, b = ({text[i : i + 2] for i in range(len(text) - 1)} for text in (first.lower(), second.lower()))
    return len(a & b) / max(1, len(a | b))


# Suffix of a file -> function that reads its pairs; the acceptable sentence of a pair comes first.
FORMATS: dict[str, Callable[[pathlib.Path], Iterator[Item]]] = {
    ".jsonl": _read_json_lines,
    ".txt": _read_alternating_lines,
}


def _read_pairs(path: pathlib.Path) -> list[Item]:
    """Return the pairs in `path`, which is a file, a directory of files, or the name of a file of the package.

    The acceptable sentence of each pair comes first.
    """
    files = file_or_files_in(PACKAGED.get(str(path), path), tuple(FORMATS))
    if files[0].suffix not in FORMATS:
        raise UserError(f"{path}: pairs are read from {' and '.join(FORMATS)} files; rename or convert it")
    return [item for file in files for item in FORMATS[file.suffix](file)]


def _accuracy_and_ties(context: ScoringContext, scored: Sequence[ScoredItem]) -> Figures:
    """Return the fraction of pairs whose acceptable sentence has the higher log-probability; a tie is half a hit."""
    sums = [pair.text_scores for pair in scored]
    ties = sum(good == bad for good, bad in sums)
    accuracy = (sum(good > bad for good, bad in sums) + ties / 2) / len(sums)
    return {"pairs": len(sums), "accuracy": accuracy, "ties": ties}


PAIRS = Benchmark(
    read=_read_pairs,
    data="sentence_good and sentence_bad in JSON lines, or alternating lines",
    unit="pairs",
    queries=all_token_queries,
    figures=_accuracy_and_ties,
    mean_over_groups=True,
)
