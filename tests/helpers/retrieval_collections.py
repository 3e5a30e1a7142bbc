"""A small collection of random texts in the layout of BEIR."""

import json
from typing import NamedTuple

import numpy as np

from tests.helpers.tiny_models import LETTERS


class WrittenCollection(NamedTuple):
    corpus: dict[str, str]
    queries: dict[str, str]
    relevant: dict[str, set[str]]


def write_collection(directory, documents=60, queries=15):
    random = np.random.default_rng(0)
    corpus, texts = (
        {f"{kind}{number}": " ".join(random.choice(list(LETTERS), 8)) for number in range(count)}
        for kind, count in (("d", documents), ("q", queries))
    )
    relevant = {query: {f"d{number}" for number in random.choice(documents, 5, replace=False)} for query in texts}
    (directory / "qrels").mkdir()
    for name, lines in (("corpus", corpus), ("queries", texts)):
        rows = [json.dumps({"_id": identifier, "text": text}) for identifier, text in lines.items()]
        (directory / f"{name}.jsonl").write_text("\n".join(rows))
    judged = [f"{query}\t{document}\t1" for query, found in relevant.items() for document in sorted(found)]
    (directory / "qrels" / "test.tsv").write_text("\n".join(judged))
    return WrittenCollection(corpus, texts, relevant)
