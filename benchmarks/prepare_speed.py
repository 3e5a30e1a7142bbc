"""Compare the speeds of `prepare` and of `encode_batch` of `tokenizers`, on equal text with equally many threads.

    python benchmarks/prepare_speed.py --input python-docs --vocab vocab.txt

Both programs read decompressed text. The last line, the ratio of the medians, should be at least 0.70.
"""

import argparse
import os
import pathlib
import statistics
import tempfile
import time


def main() -> None:
    """Measure both programs in turn, and print the ratio of their speeds."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--input", nargs="+", required=True, help="text, as for `prepare`")
    arguments.add_argument("--vocab", required=True, help="a tokenizer directory or vocab.txt")
    arguments.add_argument(
        "--workers", type=int, default=os.cpu_count(), help="number of processes, and of threads of encode_batch"
    )
    arguments.add_argument(
        "--repeats", type=int, default=3, help="repetitions of each measurement, alternating (default: 3)"
    )
    args = arguments.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(args.workers)  # before the library is imported
    os.environ["TOKENIZERS_PARALLELISM"] = "true"

    from bert_jax.corpus.build.prepare import prepare
    from bert_jax.readers import read_documents
    from bert_jax.tokenizer import load_tokenizer

    texts = [document.text for document in read_documents(args.input) if not document.rejected]
    lines = [line for text in texts for line in text.split("\n")]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    print(f"{len(texts)} documents, {megabytes:.1f} MB, {args.workers} workers")
    library = load_tokenizer(args.vocab).plain
    speeds: dict[str, list[float]] = {"encode_batch, documents": [], "encode_batch, lines": [], "prepare": []}

    def encode(name: str, items: list[str], at_once: int) -> None:
        """Encode in batches; the results of the whole text at once would fill gigabytes and slow the library down."""
        start = time.perf_counter()
        for first in range(0, len(items), at_once):
            library.encode_batch(items[first : first + at_once], add_special_tokens=False)
        measure(name, start)

    def measure(name: str, start: float) -> None:
        speeds[name].append(megabytes / (time.perf_counter() - start))
        print(f"{name:<24} {speeds[name][-1]:6.2f} MB/s", flush=True)

    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory) / "texts"
        folder.mkdir()
        for index, text in enumerate(texts):
            (folder / f"{index:06}.txt").write_text(text, encoding="utf-8")
        for repeat in range(args.repeats):
            encode("encode_batch, documents", texts, 2 * args.workers)
            encode("encode_batch, lines", lines, 4096)
            start = time.perf_counter()
            prepare([str(folder)], args.vocab, pathlib.Path(directory) / f"corpus{repeat}", workers=args.workers)
            measure("prepare", start)
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    faster = max(medians["encode_batch, documents"], medians["encode_batch, lines"])
    print(f"ratio {medians['prepare'] / faster:.2f} (of the faster encode_batch, which is {faster:.2f} MB/s)")


if __name__ == "__main__":
    main()
