"""Copies planted among documents: how many `prepare --deduplicate near` finds, what it removes wrongly, what leaks.

    python benchmarks/planted_duplicates.py --input 'books/*.md' --tokenizer tok/

Cuts 1,000 documents out of the input, and plants a copy of each by each of five variations: white space and line ends;
case, punctuation and width; a word in sixty replaced; a sentence left out; an advertisement put before and after. The
similarity of two documents is computed here literally, from sets of tuples of words. Prints

    found            documents with a similarity of at least 0.8 to another one, less those with one to a kept one
                     that are kept themselves (goal: 99 %)
    removed wrongly  removed documents with a similarity below 0.8 to every kept one (goal: at most 0.5 %)
    leaked           held-out documents with a similarity of at least 0.8 to a training one (goal: 0)
    without          the same without --deduplicate
    by bytes         the same with a split by a hash of the bytes, which knows no normal form
    time             of the search for copies over that of encoding the same text, on one core (goal: at most 1.5)
    memory           of the decisions, at the peak, and the disk of the first pass, per document
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
from bert_jax.corpus.build import dedup_pass as search
from bert_jax.corpus.build.dedup_pass import FirstPass
from bert_jax.corpus.build.dedup_signatures import Signatures
from bert_jax.corpus.build.encoding import PrepareSettings, choose_split, encode_chunk
from bert_jax.corpus.build.normal_form import split_hash
from bert_jax.corpus.build.prepare import prepare
from bert_jax.errors import writing
from bert_jax.readers import read_documents, total_bytes
from bert_jax.tokenizer import load_tokenizer

DOCUMENTS, MIN_WORDS, MAX_WORDS = 1000, 50, 2000
SHINGLE, THRESHOLD = 5, 0.8
FULL_WIDTH = {ord(mark): ord(mark) + 0xFEE0 for mark in ",.!?;:"}
Vary = Callable[[str, random.Random], str]


def spaces(text: str, rng: random.Random) -> str:
    """Break the lines elsewhere and double some spaces."""
    return "".join(rng.choice((" ", " ", "  ", "\n", "\r\n")) if one.isspace() else one for one in text)


def marks(text: str, rng: random.Random) -> str:
    """Change case, drop a tenth of the punctuation, and widen the rest."""
    kept = "".join(one for one in text if one.isalnum() or one.isspace() or rng.random() > 0.1)
    return kept.upper().translate(FULL_WIDTH)


def words(text: str, rng: random.Random) -> str:
    """Replace one word in sixty."""
    return " ".join(
        rng.choice(("quartz", "wolf", "seven")) if rng.random() < 1 / 60 else one for one in text.split(" ")
    )


def sentence(text: str, rng: random.Random) -> str:
    """Leave a sentence out."""
    parts = re.split(r"(?<=[.!?])\s+", text)
    parts.pop(rng.randrange(len(parts)))
    return " ".join(parts)


def frame(text: str, rng: random.Random) -> str:
    """Put a line before and a line after."""
    return (
        f"Read more on page {rng.randrange(1000)} of our site!\n\n{text}\n\nShare this story, number {rng.random():.6f}"
    )


VARIATIONS: dict[str, Vary] = {"spaces": spaces, "marks": marks, "words": words, "sentence": sentence, "frame": frame}


def shingles(text: str) -> set[tuple[str, ...]]:
    """Return the sets of five words in a row, one character of the text at a time."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    own = "".join(
        " " if one.isspace() else "" if unicodedata.category(one)[0] in "PZC" else one for one in folded
    ).split()
    return {tuple(own[start : start + SHINGLE]) for start in range(max(1, len(own) - SHINGLE + 1))}


class Pairs:
    """The similar pairs among documents, found without hashes: by the shingles that two documents share."""

    def __init__(self, texts: Sequence[str]):
        sets = [shingles(text) for text in texts]
        holders = collections.defaultdict(list)
        for number, own in enumerate(sets):
            for one in own:
                holders[one].append(number)
        common = collections.Counter(pair for names in holders.values() for pair in itertools.combinations(names, 2))
        self._of: dict[int, set[int]] = collections.defaultdict(set)
        for (a, b), number in common.items():
            if number >= THRESHOLD * (len(sets[a]) + len(sets[b]) - number):
                self._of[a].add(b)
                self._of[b].add(a)

    def of(self, document: int) -> set[int]:
        """Return the documents that are similar to one."""
        return self._of.get(document, set())

    def leaks(self, splits: Sequence[str], kept: Iterable[int]) -> int:
        """Return the number of held-out documents that are similar to a training document."""
        train = {number for number in kept if splits[number] == "train"}
        return sum(splits[number] == "heldout" and not train.isdisjoint(self.of(number)) for number in kept)


def cut_documents(inputs: list[str]) -> list[str]:
    """Return `DOCUMENTS` texts of 50 to 2,000 words from all over the input."""
    rng = random.Random(0)
    every = [one for found in read_documents(inputs) for one in found.text.split("\n\n") if len(one.split()) > 5]
    texts: list[str] = []
    paragraphs = iter(every)
    while True:
        own: list[str] = []
        size = MIN_WORDS * (MAX_WORDS / MIN_WORDS) ** rng.random()
        while sum(len(one.split()) for one in own) < size:
            paragraph = next(paragraphs, None)
            if paragraph is None:
                return rng.sample(texts, DOCUMENTS)
            own.append(paragraph)
        texts.append("\n\n".join(own))


def reopen(directory: pathlib.Path) -> list[Signatures]:
    """Return the signatures of a first pass."""
    first_pass = FirstPass(directory, lambda: writing(directory))
    first_pass.files.resume()
    return first_pass.open_all()


def raw_hash(text: str) -> int:
    """Return the hash of a text that knows nothing of its normal form."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def search_copies(path: pathlib.Path, vocabulary: str, directory: pathlib.Path) -> search.Decisions:
    """Return the decisions about the documents of a file, made on one core; the first pass stays in the directory."""
    first_pass = FirstPass(directory, lambda: writing(directory))
    partitions = chunks.plan_partitions([str(path)], [total_bytes([str(path)])])
    settings = PrepareSettings(deduplicate="near")
    return search.find_copies(first_pass, partitions, load_tokenizer(vocabulary), settings, 1, lambda *_: None)


def encode(path: pathlib.Path, vocabulary: str) -> None:
    """Encode the documents of a file on one core."""
    settings, tokenizer = PrepareSettings(), load_tokenizer(vocabulary)
    (partition,) = chunks.plan_partitions([str(path)], [total_bytes([str(path)])])
    for chunk in chunks.read_chunks(partition, tokenizer, settings):
        encode_chunk(chunk, tokenizer, settings)


def seconds(work: Callable[[], object]) -> float:
    """Return the time of a call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Plant, prepare, print."""
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
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        path = folder / "planted.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for _, text in documents), encoding="utf-8")
        found = search_copies(path, args.tokenizer, folder / "copies")
        disk = sum(one.stat().st_size for one in (folder / "copies").iterdir())
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
        assert removed == set((found.copy_of >= 0).nonzero()[0].tolist())
        times: dict[str, list[float]] = {"search": [], "encoding": []}
        for repeat in range(args.repeats):
            again = functools.partial(search_copies, path, args.tokenizer, folder / f"again{repeat}")
            times["search"].append(seconds(again))
            times["encoding"].append(seconds(lambda: encode(path, args.tokenizer)))
        tracemalloc.start()
        search.decisions.decide(reopen(folder / "copies"), [0], True)
        memory = tracemalloc.get_traced_memory()[1]
    kept = set(range(len(documents))) - removed
    print(f"{len(documents):,} documents, {manifest['documents']['rejected']}")
    print("\nvariation   documents  similar to another  removed")
    for name in ("original", *VARIATIONS):
        own = [number for number, (kind, _) in enumerate(documents) if kind == name]
        print(f"{name:<10} {len(own):>10,} {sum(map(bool, map(pairs.of, own))):>19,} {len(removed & {*own}):>8,}")
    copies = [number for number in range(len(documents)) if pairs.of(number)]
    missed = [number for number in kept if not kept.isdisjoint(pairs.of(number))]
    wrong = [number for number in removed if kept.isdisjoint(pairs.of(number))]
    print(f"\nfound            {1 - len(missed) / len(copies):.2%} of {len(copies):,} near copies (goal: 99 %)")
    print(f"removed wrongly  {len(wrong)}, {len(wrong) / len(removed):.2%} of {len(removed):,} (goal: at most 0.5 %)")
    by_group = [choose_split(int(one), args.heldout_fraction) for one in found.split_hashes]
    by_text = [choose_split(split_hash(text), args.heldout_fraction) for _, text in documents]
    by_bytes = [choose_split(raw_hash(text), args.heldout_fraction) for _, text in documents]
    assert manifest["splits"]["heldout"]["documents"] == sum(by_group[number] == "heldout" for number in kept)
    print(f"leaked           {pairs.leaks(by_group, kept)} held-out documents (goal: 0)")
    for name, splits in {"without": by_text, "by bytes": by_bytes}.items():
        print(f"{name:<16} {pairs.leaks(splits, range(len(documents)))} of {splits.count('heldout')}")
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratio = medians["search"] / medians["encoding"]
    print(f"time             {ratio:.2f} of {medians['encoding']:.1f} s for encoding (goal: at most 1.5)")
    print(f"memory           {memory / len(documents):,.0f} bytes per document to decide, ", end="")
    print(f"{disk / len(documents):,.0f} bytes of disk while preparing")


if __name__ == "__main__":
    main()
