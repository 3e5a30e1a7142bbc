"""Cut the samples of this directory out of the whole data sets.

    python tests/samples/cut.py DATA

DATA has the data sets under the names of README.md. Vocabularies and vectors are copied whole, all others are cut.
"""

import bz2
import collections
import gzip
import io
import json
import lzma
import pathlib
import re
import shutil
import string
import sys
import tarfile
from typing import Any

SAMPLES = pathlib.Path(__file__).parent
WHOLE = [
    *("vectors/rust-tokenizers.json", "vectors/google-bert-and-hf.json"),
    *(f"vectors/transformers.js/{name}.json" for name in ("bert", "distilbert", "roberta", "albert", "gpt2", "mpnet")),
    *(f"vocab/bert-base-{name}/vocab.txt" for name in ("uncased", "cased", "multilingual-cased", "chinese")),
    *("vocab/koelectra/vocab.txt", "vocab/roberta-base/vocab.json", "vocab/roberta-base/merges.txt"),
    *("vocab/albert-base/spiece.model", "enwiki-sample/wiki_00"),
]
LINES = {
    "glue/QNLI/dev.tsv.gz": 1_201,
    "glue/QNLI/test.tsv.gz": 101,
    "kor-nlu/sts-train.tsv.gz": 101,
    "kor-nlu/sts-dev.tsv.gz": 81,
    "kor-nlu/sts-test.tsv.gz": 61,
    "kor-nlu/xnli.dev.ko.tsv.gz": 91,
    "kor-nlu/xnli.test.ko.tsv.gz": 71,
    "sentencepiece-texts/botchan.txt.gz": 1_200,
    "sentencepiece-texts/wagahaiwa_nekodearu.txt.gz": 300,
}
BLOCKS = {  # sentences, which empty lines separate
    "ner/wnut17/wnut17train.conll.gz": 400,
    "ner/wnut17/emerging.dev.conll.gz": 250,
    "ner/wnut17/emerging.test.annotated.gz": 250,
    "ner/wikigold/wikigold.conll.txt.gz": 250,
    "klue/klue-ner-v1.1_dev.tsv.gz": 120,
    "ud/en_ewt-ud-dev.conllu.gz": 60,
}
TREEBANKS = {"ud/ko_gsd-ud-dev.conllu.gz": 60, "ud/ja_gsd-ud-dev.conllu.gz": 60, "ud/de_gsd-ud-dev.conllu.gz": 60}
LISTS = {"klue/klue-nli-v1.1_dev.json.gz": 100, "klue/klue-sts-v1.1_dev.json.gz": 80}
ARTICLES = {
    "squad/dev-v1.1.recon.json.gz": (2, 25),
    "squad/dev-v2.0.recon.json.gz": (3, 20),
    "squad/train-v2.0.first10.json.gz": (2, 20),
    "squad/cs224n-dev-v2.0.json.gz": (2, 5),
    "squad/train-v1.1.recon.json.gz": (2, 10),
}
MEMBERS = {
    "books/classic-books-md.tar.xz": (
        *("Ambrose Bierce/An Occurrence at Owl Creek Bridge.md", "Edgar Allan Poe/The Black Cat.md"),
        *("Edgar Allan Poe/The Pit and the Pendulum.md", "Jonathan Swift/A Modest Proposal.md"),
        *("Edgar Allan Poe/The Murders in the Rue Morgue.md", "Herman Melville/Bartleby, the Scrivener.md"),
    ),
    "tatoeba/tatoeba-v1.tar.gz": ("tatoeba.cmn-eng.cmn",),
    "nsmc/nsmc-raw-slice.tar.gz": 60,
}
CODAH = {"train": 120, "dev": 40, "test": 30}


def lines_of(data: pathlib.Path, name: str) -> list[str]:
    """Return the lines of a compressed file, with their ends."""
    with gzip.open(data / name, "rt", encoding="utf-8", newline="") as file:
        return list(file)


def write(name: str, content: bytes | str) -> None:
    """Write a sample: compressed where its name ends in .gz, .xz or .bz2."""
    path = SAMPLES / name
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = content.encode() if isinstance(content, str) else content
    packers = {".xz": lambda raw: lzma.compress(raw, preset=9 | lzma.PRESET_EXTREME), ".bz2": bz2.compress}
    packers[".gz"] = lambda raw: gzip.compress(raw, 9, mtime=0)
    path.write_bytes(packers[path.suffix](raw))


def first_blocks(lines: list[str], number: int, keep: str = "\0") -> str:
    """Return the first blocks of lines whole, and of the others the lines that begin with `keep`."""
    found: list[str] = []
    blocks = 0
    for before, line in zip(["\n", *lines], lines, strict=False):
        if blocks < number or line.startswith(keep):
            found.append(line)
            if blocks >= number:
                found.append("\n")
        if not line.strip() and before.strip():
            blocks += 1
    return "".join(found)


def tar_of(members: dict[str, bytes]) -> bytes:
    """Return an uncompressed tar file, the same bytes each time."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    return packed.getvalue()


def members_of(path: pathlib.Path, wanted: tuple[str, ...] | int) -> dict[str, bytes]:
    """Return members of a tar file by name, or the first of them that are not large."""
    with tarfile.open(path) as archive:
        if isinstance(wanted, int):
            names = [one.name for one in archive if one.isfile() and one.size < 4_000][:wanted]
        else:
            names = [one.name for one in archive if one.isfile() and one.name.endswith(wanted)]
        return {name: archive.extractfile(name).read() for name in names}  # type: ignore[union-attr]


def texts_of(squad: dict[str, Any]) -> dict[str, list[str]]:
    """Return the answers of each question of a SQuAD file by the question's id."""
    return {
        question["id"]: [answer["text"] for answer in question["answers"]]
        for article in squad["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    }


def words_of(text: str) -> list[str]:
    """Return the words that SQuAD's rule compares: lower case, without punctuation and articles."""
    plain = "".join(mark for mark in text.lower() if mark not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


def exact(gold: str, said: str) -> float:
    """Return 1 where two answers have the same words."""
    return float(words_of(gold) == words_of(said))


def f1(gold: str, said: str) -> float:
    """Return the harmonic mean of precision and recall of the words of an answer."""
    a, b = collections.Counter(words_of(gold)), collections.Counter(words_of(said))
    same = (a & b).total()
    return float(a == b) if not (a and b) else 2 * same / (a.total() + b.total())


def scored(row: dict[str, Any], asked: dict[str, list[str]], said: dict[str, str]) -> dict[str, Any]:
    """Return a row of published-predictions.scores.json: the scores that it names, of these questions and answers."""
    groups = {"": list(asked), "HasAns_": [one for one in asked if asked[one]]}
    groups["NoAns_"] = [one for one in asked if not asked[one]]
    found = row | {"n": len(asked), "missing": len(asked.keys() - said.keys())}
    for name, rule in (("exact", exact), ("f1", f1)):
        best = {
            one: max(rule(gold, said[one]) for gold in [g for g in golds if words_of(g)] or [""])
            if one in said
            else 0.0
            for one, golds in asked.items()
        }
        for group, ids in groups.items():
            if group + name in row:
                found[group + name] = 100 * sum(best[one] for one in ids) / len(ids)
    return found


def cut_squad(data: pathlib.Path) -> None:
    """Cut articles, and the published predictions and scores of their questions.

    The scores of the whole files come from another implementation; `scored` must give the same before it is used.
    """
    whole, cut = {}, {}
    for name, (articles, paragraphs) in ARTICLES.items():
        official = pathlib.Path(name).name.replace(".recon.json.gz", ".json")
        squad = json.loads(gzip.decompress((data / name).read_bytes()))
        whole[official] = texts_of(squad)
        squad["data"] = [
            article | {"paragraphs": article["paragraphs"][:paragraphs]} for article in squad["data"][:articles]
        ]
        cut[official] = texts_of(squad)
        write(name, json.dumps(squad))
    members = {}
    rows = json.loads((data / "squad/published-predictions.scores.json").read_text())
    published = members_of(data / "squad/published-predictions.tar.gz", (".json",))
    for number, row in enumerate(rows):
        name = row["predictions"].removeprefix("models/")
        said = json.loads(published[name])
        again = scored(row, whole[row["set"]], said)
        assert all(isinstance(row[key], str) or abs(row[key] - again[key]) < 5e-5 for key in row), (row, again)
        said = {key: text for key, text in said.items() if key in cut[row["set"]]}
        members[name] = json.dumps(said).encode()
        rows[number] = scored(row, cut[row["set"]], said)
    write("squad/published-predictions.tar.gz", tar_of(members))
    (SAMPLES / "squad/published-predictions.scores.json").write_text(json.dumps(rows, indent=1) + "\n")


def cut_codah(data: pathlib.Path) -> None:
    """Cut the beginning of each part of a fold, and the lines of the whole file that are in one."""
    folder = "multiple-choice/codah"
    fold = {
        split: members_of(data / folder / "cv_split-fold_0.tar.gz", (f"/{split}.tsv",))[f"fold_0/{split}.tsv"]
        for split in CODAH
    }
    kept = {split: fold[split].splitlines(keepends=True)[:number] for split, number in CODAH.items()}
    ends = [line.strip() for lines in kept.values() for line in lines]
    whole = gzip.decompress((data / folder / "full_data.tsv.gz").read_bytes()).splitlines(keepends=True)
    write(f"{folder}/full_data.tsv.gz", b"".join(line for line in whole if line.strip() in ends))
    members = {f"fold_0/{split}.tsv": b"".join(lines) for split, lines in kept.items()}
    write(f"{folder}/cv_split-fold_0.tar.gz", tar_of(members))


def main(data: pathlib.Path) -> None:
    """Write every sample anew."""
    for folder in SAMPLES.iterdir():
        if folder.is_dir():
            shutil.rmtree(folder)
    for name in WHOLE:
        write(f"{name}.xz", (data / name).read_bytes())
    for name, number in LINES.items():
        write(name, "".join(lines_of(data, name)[:number]))
    for name, number in BLOCKS.items():
        write(name, first_blocks(lines_of(data, name), number))
    for name, number in TREEBANKS.items():
        write(name, first_blocks(lines_of(data, name), number, keep="# text = "))
    for name, number in LISTS.items():
        write(name, json.dumps(json.loads("".join(lines_of(data, name)))[:number], ensure_ascii=False))
    for name, wanted in MEMBERS.items():
        write(name, tar_of(members_of(data / name, wanted)))
    cut_squad(data)
    cut_codah(data)
    dump = "enwiki-sample/enwiki-pages-articles-shortened.xml.bz2"
    head, *pages = bz2.decompress((data / dump).read_bytes()).split(b"  <page>\n")
    redirects = [page for page in pages if b"<redirect" in page]
    articles = sorted((page for page in pages if b"<redirect" not in page), key=len)
    cut = [pages[1], *redirects[:8], *articles[:6]]
    write(dump, b"  <page>\n".join([head, *cut]).removesuffix(b"</mediawiki>\n") + b"</mediawiki>\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
