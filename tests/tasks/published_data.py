"""The real data as examples, by a minimal reader that is independent of `readers`. Cached: change only copies."""

import functools
import gzip
import json
import re

NER = {
    "wnut17": ["ner/wnut17/wnut17train.conll.gz", "ner/wnut17/emerging.dev.conll.gz"]
    + ["ner/wnut17/emerging.test.annotated.gz"],
    "wikigold": ["ner/wikigold/wikigold.conll.txt.gz"],
    "klue-ner": ["klue/klue-ner-v1.1_dev.tsv.gz"],
}


@functools.cache
def squad(path):
    data = json.loads(gzip.decompress(path.read_bytes()))["data"]
    return [
        {
            "id": question["id"],
            "question": question["question"],
            "context": paragraph["context"],
            "answers": [{"text": one["text"], "start": one["answer_start"]} for one in question["answers"]],
        }
        for article in data
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]


@functools.cache
def sentences(real_data, name):
    """Examples of token classification with names of labels instead of numbers."""
    found = []
    for file in NER[name]:
        text = gzip.decompress((real_data / file).read_bytes()).decode()
        for block in re.split(r"\n\s*\n", text):
            lines = [line for line in block.split("\n") if line and not line.startswith(("##", "-DOCSTART-"))]
            pairs = [re.fullmatch(r"(.*?)[\t ](\S+)", line).groups() for line in lines]
            if pairs:
                tokens, labels = zip(*pairs, strict=True)
                found.append({"id": f"{file}:{len(found)}", "tokens": list(tokens), "labels": list(labels)})
    return found
