"""Write the Korean sentences of several data sets, each once, as training text for benchmarks/similarity_gain.py.

    python benchmarks/korean_text.py --data DATA --output korean.txt

A document is one of these: the reviews of a film (NSMC), a premise of XNLI or KLUE-NLI with its hypotheses, all
sentences of Tatoeba, or all sentences of KorSTS's training set. KorSTS's development and test sets are left out.
"""

import argparse
import gzip
import itertools
import json
import pathlib
import tarfile
from collections.abc import Iterator


def main() -> None:
    """Write the documents, separated by empty lines, and print the number of documents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="directory of nsmc, kor-nlu, klue and tatoeba")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    args = parser.parse_args()
    sources = reviews(args.data), inferences(args.data), sentences(args.data)
    documents = list(distinct(itertools.chain(*sources)))
    text = "\n\n".join("\n".join(lines) for lines in documents) + "\n"
    args.output.write_text(text, encoding="utf-8")
    print(f"{len(documents):,} documents, {len(text):,} characters: {args.output}")


def reviews(data: pathlib.Path) -> Iterator[list[str]]:
    """Yield the reviews of each film."""
    with tarfile.open(data / "nsmc" / "nsmc-raw-slice.tar.gz") as archive:
        for member in archive:
            if file := archive.extractfile(member):
                yield [" ".join(row["review"].split()) for row in json.load(file)]


def inferences(data: pathlib.Path) -> Iterator[list[str]]:
    """Yield each premise with its hypotheses."""
    pairs = [row[:2] for split in ("dev", "test") for row in rows(data / "kor-nlu" / f"xnli.{split}.ko.tsv.gz")]
    with gzip.open(data / "klue" / "klue-nli-v1.1_dev.json.gz", "rt", encoding="utf-8") as file:
        pairs += [[one["premise"], one["hypothesis"]] for one in json.load(file)]
    for premise, group in itertools.groupby(pairs, key=lambda pair: pair[0]):
        yield [premise, *(hypothesis for _, hypothesis in group)]


def sentences(data: pathlib.Path) -> Iterator[list[str]]:
    """Yield the sentences of Tatoeba, and the sentences of KorSTS's training set."""
    with tarfile.open(data / "tatoeba" / "tatoeba-v1.tar.gz") as archive:
        file = archive.extractfile("tatoeba.kor-eng.kor")
        assert file
        yield file.read().decode().splitlines()
    yield [sentence for row in rows(data / "kor-nlu" / "sts-train.tsv.gz") for sentence in row[5:7]]


def rows(path: pathlib.Path) -> list[list[str]]:
    """Return the rows of a table without its header; quotation marks are part of the text."""
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line.split("\t") for line in file.read().removesuffix("\n").split("\n")[1:]]


def distinct(documents: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield the documents without the sentences that an earlier document has."""
    seen: set[str] = set()
    for lines in documents:
        fresh = [line for line in dict.fromkeys(lines) if line and line not in seen]
        seen.update(fresh)
        if fresh:
            yield fresh


if __name__ == "__main__":
    main()
