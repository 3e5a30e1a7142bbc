"""Plant copies of documents: count how many `prepare --deduplicate near` finds, removes wrongly, or lets leak.

    python benchmarks/planted_duplicates.py --input 'books/*.md' --tokenizer tok/

Cuts 1,000 documents out of the input, and plants five copies of each document, each with another variation: white space
and line ends; case, punctuation and width; a word in sixty replaced; a sentence left out; an advertisement put before
and after. The exact similarity of two documents is computed here, without hashes, from sets of word 5-tuples. Prints

    - found: fraction of the near copies (documents with a similarity of at least 0.8 to another document) that are
      removed, or are kept without a similar kept document (goal: 99 %)
    - removed wrongly: removed documents with a similarity below 0.8 to every kept document (goal: at most 0.5 %)
    - leaked: held-out documents with a similarity of at least 0.8 to a training document (goal: 0)
    - without: leaked documents without --deduplicate
    - by bytes: leaked documents if the split is chosen by a hash of the bytes instead of the normal form
    - time: duration of the search for copies, relative to encoding the text, on one core (goal: at most 1.5)
    - memory: peak memory of the decisions, and disk space of the first pass, both per document
"""

import argparse
import collections
import functools
import hashlib
import itertools
import json
import os
import pathlib
import random
import re
import statistics
import tempfile
import time
import tracemalloc
import unicodedata
from collections.abc import Callable, Iterable, Sequence

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from bert_jax.corpus.build import chunks
from bert_jax.corpus.build.dedup_decisions import Decisions, decide_copies
from bert_jax.corpus.build.dedup_pass import find_copies, load_signatures
from bert_jax.corpus.build.encoding import PrepareSettings, encode_chunk
from bert_jax.corpus.build.passes import FinishedBlocks, PassProgress
from bert_jax.corpus.build.prepare import prepare
from bert_jax.corpus.build.signatures import Signatures, choose_split, split_hash
from bert_jax.errors import writing
from bert_jax.readers import read_documents, total_bytes
from bert_jax.tokenizer import load_tokenizer

DOCUMENTS, MIN_WORDS, MAX_WORDS = 1000, 50, 2000
SHINGLE, THRESHOLD = 5, 0.8
FULL_WIDTH = {ord(mark): ord(mark) + 0xFEE0 for mark in ",.!?;:"}
Vary = Callable[[str, random.Random], str]


def spaces(text: str, rng: random.Random) -> str:
    """Return the text with other line breaks and some doubled spaces."""
    return "".join(rng.choice((" ", " ", "  ", "\n", "\r\n")) if one.isspace() else one for one in text)


def marks(text: str, rng: random.Random) -> str:
    """Return the text with changed case, without a tenth of its punctuation, and with wide forms of the rest."""
    kept = "".join(one for one in text if one.isalnum() or one.isspace() or rng.random() > 0.1)
    return kept.upper().translate(FULL_WIDTH)


def words(text: str, rng: random.Random) -> str:
    """Return the text with one word in sixty replaced."""
    return " ".join(
        rng.choice(("quartz", "wolf", "seven")) if rng.random() < 1 / 60 else one for one in text.split(" ")
    )


def sentence(text: str, rng: random.Random) -> str:
    """Return the text without one of its sentences."""
    parts = re.split(r"(?<=[.!?])\s+", text)
    parts.pop(rng.randrange(len(parts)))
    return " ".join(parts)


def frame(text: str, rng: random.Random) -> str:
    """Return the text with a line before it and a line after it."""
    return (
        f"Read more on page {rng.randrange(1000)} of our site!\n\n{text}\n\nShare this story, number {rng.random():.6f}"
    )


VARIATIONS: dict[str, Vary] = {"spaces": spaces, "marks": marks, "words": words, "sentence": sentence, "frame": frame}


def shingles(text: str) -> set[tuple[str, ...]]:
    """Return the set of all tuples of five words in a row; case, width and punctuation are ignored."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    own = "".join(
        " " if one.isspace() else "" if unicodedata.category(one)[0] in "PZC" else one for one in folded
    ).split()
    return {tuple(own[start : start + SHINGLE]) for start in range(max(1, len(own) - SHINGLE + 1))}


class Pairs:
    """Similar pairs of documents, found without hashes: by counting the shingles that two documents share."""

    def __init__(self, texts: Sequence[str]):
        sets = [shingles(text) for text in texts]
        holders = collections.defaultdict(list)
        for document, members in enumerate(sets):
            for shingle in members:
                holders[shingle].append(document)
        common = collections.Counter(pair for names in holders.values() for pair in itertools.combinations(names, 2))
        self._of: dict[int, set[int]] = collections.defaultdict(set)
        for (a, b), num_common in common.items():
            if num_common >= THRESHOLD * (len(sets[a]) + len(sets[b]) - num_common):
                self._of[a].add(b)
                self._of[b].add(a)

    def of(self, document: int) -> set[int]:
        """Return the documents that are similar to a document."""
        return self._of.get(document, set())

    def leaks(self, splits: Sequence[str], documents: Iterable[int]) -> int:
        """Return the number of held-out documents that are similar to a training document."""
        train = {document for document in documents if splits[document] == "train"}
        return sum(splits[document] == "heldout" and not train.isdisjoint(self.of(document)) for document in documents)


def cut_documents(inputs: list[str]) -> list[str]:
    """Return `DOCUMENTS` texts of 50 to 2,000 words drawn from the whole input."""
    rng = random.Random(0)
    every = (part for document in read_documents(inputs) for part in document.text.split("\n\n"))
    paragraphs = iter([part for part in every if len(part.split()) > 5])
    texts: list[str] = []
    while True:
        parts: list[str] = []
        size = MIN_WORDS * (MAX_WORDS / MIN_WORDS) ** rng.random()
        while sum(len(part.split()) for part in parts) < size:
            paragraph = next(paragraphs, None)
            if paragraph is None:
                return rng.sample(texts, DOCUMENTS)
            parts.append(paragraph)
        texts.append("\n\n".join(parts))


def reopen(directory: pathlib.Path) -> list[Signatures]:
    """Open the signatures that a first pass has written."""
    signed = FinishedBlocks(directory, lambda: writing(directory))
    signed.resume()
    return load_signatures(signed)


def raw_hash(text: str) -> int:
    """Return the split hash of the raw bytes of a text, without its normal form."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def search_copies(path: pathlib.Path, directory: pathlib.Path) -> Decisions:
    """Decide on one core which documents of a file are copies; the files of the first pass stay in the directory."""
    signed = FinishedBlocks(directory, lambda: writing(directory))
    partitions = chunks.plan_partitions([str(path)], [total_bytes([str(path)])])
    settings = PrepareSettings(deduplicate="near")
    return find_copies(signed, partitions, settings, 1, PassProgress(None, 0, 1))


def encode(path: pathlib.Path, vocabulary: str) -> None:
    """Encode the documents of a file on one core."""
    settings, tokenizer = PrepareSettings(), load_tokenizer(vocabulary)
    (partition,) = chunks.plan_partitions([str(path)], [total_bytes([str(path)])])
    for chunk in chunks.read_chunks(partition, tokenizer, settings):
        encode_chunk(chunk, tokenizer, settings)


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Plant the copies, search for them, and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--input", nargs="+", required=True, help="text, as for `prepare`")
    arguments.add_argument("--tokenizer", required=True, help="a tokenizer directory or vocab.txt")
    arguments.add_argument("--heldout_fraction", type=float, default=0.1, help="of the documents (default: 0.1)")
    arguments.add_argument("--repeats", type=int, default=5, help="repetitions of the times, alternating (default: 5)")
    args = arguments.parse_args()
    rng = random.Random(1)
    documents = [("original", text) for text in cut_documents(args.input)]
    documents += [(name, vary(text, rng)) for name, vary in VARIATIONS.items() for _, text in documents[:DOCUMENTS]]
    documents = [(name, text) for name, text in documents if text]  # a single sentence was left out
    rng.shuffle(documents)
    pairs = Pairs([text for _, text in documents])
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        path = folder / "planted.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for _, text in documents), encoding="utf-8")
        copies_found = search_copies(path, folder / "copies")
        disk = sum(item.stat().st_size for item in (folder / "copies").iterdir())
        settings = {"heldout_fraction": args.heldout_fraction, "workers": 1}
        manifest = prepare(
            [str(path)],
            args.tokenizer,
            folder / "corpus",
            **settings,
            deduplicate="near",
            keep_removed=folder / "removed",
        )
        lines = [json.loads(line) for line in (folder / "removed").read_text(encoding="utf-8").splitlines()]
        removed = {int(line["name"].rpartition(":")[2]) - 1 for line in lines}
        assert removed == set((copies_found.copy_of >= 0).nonzero()[0].tolist())
        times: dict[str, list[float]] = {"search": [], "encoding": []}
        for repeat in range(args.repeats):
            again = functools.partial(search_copies, path, folder / f"again{repeat}")
            times["search"].append(seconds(again))
            times["encoding"].append(seconds(lambda: encode(path, args.tokenizer)))
        tracemalloc.start()
        decide_copies(reopen(folder / "copies"), [0], True)
        memory = tracemalloc.get_traced_memory()[1]
    remaining = set(range(len(documents))) - removed
    print(f"{len(documents):,} documents, {manifest['documents']['rejected']}")
    print("\nvariation   documents  similar to another  removed")
    for name in ("original", *VARIATIONS):
        of_kind = [index for index, (kind, _) in enumerate(documents) if kind == name]
        num_similar = sum(bool(pairs.of(index)) for index in of_kind)
        print(f"{name:<10} {len(of_kind):>10,} {num_similar:>19,} {len(removed & {*of_kind}):>8,}")
    copies = [index for index in range(len(documents)) if pairs.of(index)]
    missed = [index for index in remaining if not remaining.isdisjoint(pairs.of(index))]
    wrong = [index for index in removed if remaining.isdisjoint(pairs.of(index))]
    print(f"\nfound            {1 - len(missed) / len(copies):.2%} of {len(copies):,} near copies (goal: 99 %)")
    print(f"removed wrongly  {len(wrong)}, {len(wrong) / len(removed):.2%} of {len(removed):,} (goal: at most 0.5 %)")
    by_group = [choose_split(int(item), args.heldout_fraction) for item in copies_found.split_hashes]
    by_text = [choose_split(split_hash(text), args.heldout_fraction) for _, text in documents]
    by_bytes = [choose_split(raw_hash(text), args.heldout_fraction) for _, text in documents]
    assert manifest["splits"]["heldout"]["documents"] == sum(by_group[index] == "heldout" for index in remaining)
    print(f"leaked           {pairs.leaks(by_group, remaining)} held-out documents (goal: 0)")
    for name, splits in {"without": by_text, "by bytes": by_bytes}.items():
        print(f"{name:<16} {pairs.leaks(splits, range(len(documents)))} of {splits.count('heldout')}")
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratio = medians["search"] / medians["encoding"]
    print(f"time             {ratio:.2f} of {medians['encoding']:.1f} s for encoding (goal: at most 1.5)")
    print(f"memory           {memory / len(documents):,.0f} bytes per document to decide_copies, ", end="")
    print(f"{disk / len(documents):,.0f} bytes of disk while preparing")


if __name__ == "__main__":
    main()
