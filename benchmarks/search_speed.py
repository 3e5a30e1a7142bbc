"""Compare the time of our exact search with the flat index of faiss, in one process.

    pip install faiss-cpu
    python benchmarks/search_speed.py --queries 10000 --documents 1000000 --width 384

Both programs search the same random vectors of length 1 for the 50 largest inner products. The two programs take turns
for each part of the queries, so that other load affects both. The last lines compare the times and the CPU seconds.
faiss computes its products by OpenBLAS; if its OpenBLAS does not know the processor, the environment variable
`OPENBLAS_CORETYPE` names the instructions.
"""

import argparse
import time

import faiss
import numpy as np

from bert_jax.search.top_documents import top_documents


def unit_vectors(random: np.random.Generator, count: int, width: int) -> np.ndarray:
    """Return random vectors of length 1."""
    vectors = random.standard_normal((count, width), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def main() -> None:
    """Print the seconds of both programs for each part of the queries, and the ratio of the sums."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--depth", type=int, default=50)
    parser.add_argument("--part", type=int, default=2_048, help="queries of a turn")
    args = parser.parse_args()
    random = np.random.default_rng(0)
    documents, queries = (unit_vectors(random, count, args.width) for count in (args.documents, args.queries))
    index = faiss.IndexFlatIP(args.width)
    index.add(documents)
    top_documents(queries[: args.part], documents[:8_192], args.depth)  # compiles
    index.search(queries[:8], args.depth)
    ours_total = faiss_total = ours_cpu = faiss_cpu = num_equal = 0.0
    for turn, start in enumerate(range(0, args.queries, args.part)):
        part = queries[start : start + args.part]

        def search_ours(part: np.ndarray = part) -> np.ndarray:
            return top_documents(part, documents, args.depth).indices

        def search_faiss(part: np.ndarray = part) -> np.ndarray:
            indices: np.ndarray = index.search(part, args.depth)[1]
            return indices

        seconds, cpu_seconds, results = {}, {}, {}
        for search in (search_ours, search_faiss)[:: 1 if turn % 2 else -1]:
            begin, cpu_begin = time.perf_counter(), time.process_time()
            results[search.__name__] = search()
            seconds[search.__name__] = time.perf_counter() - begin
            cpu_seconds[search.__name__] = time.process_time() - cpu_begin
        ours_total += seconds["search_ours"]
        faiss_total += seconds["search_faiss"]
        ours_cpu += cpu_seconds["search_ours"]
        faiss_cpu += cpu_seconds["search_faiss"]
        num_equal += float((results["search_ours"] == results["search_faiss"]).sum())
        print(f"{len(part):,} queries: bert_jax {seconds['search_ours']:.2f} s, faiss {seconds['search_faiss']:.2f} s")
    equal, ratio = num_equal / (args.queries * args.depth), ours_total / faiss_total
    print(
        f"{args.queries:,} x {args.documents:,} x {args.width}: bert_jax {ours_total:.1f} s, "
        f"faiss {faiss_total:.1f} s; "
        f"{ratio:.2f} times as long; {equal:.4%} of the documents are equal"
    )
    print(f"CPU seconds: bert_jax {ours_cpu:.2f}, faiss {faiss_cpu:.2f}; {ours_cpu / faiss_cpu:.2f} times as many")


if __name__ == "__main__":
    main()
