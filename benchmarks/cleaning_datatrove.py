"""Compare cleaning with datatrove's executor: the stored documents (also after a kill), time and memory.

    python benchmarks/cleaning_datatrove.py --data DATA [--before CHECKOUT]

DATA has the data sets under the names of tests/samples/README.md. 5,000 documents come from books (English), a treebank
(German) and translations (French); two thirds of the documents have a fault that a
filter finds. For each language, the program takes four steps:

1. Run the filters by datatrove's executor, in one process.
2. Run `bert-jax clean` with two workers, kill all its processes when three blocks are finished, and run it again.
3. Compare the documents that both programs stored, in order.
4. Print the CPU seconds and the memory of the largest process, for datatrove, for `clean` with one worker, and for
   `clean` of an earlier CHECKOUT, whose recipe is written in the format of that version.

datatrove's reader needs `pip install orjson`.
"""

import argparse
import gzip
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

FAULTS: dict[str, Callable[[str], str]] = {
    "repeated lines": lambda text: "\n".join([text[:80]] * 9 + [text]),
    "repeated paragraphs": lambda text: "\n\n".join([text[:200]] * 4 + [text]),
    "repeated words": lambda text: text + " so it goes on and on" * 60,
    "short": lambda text: text[:150],
    "bullets": lambda text: "- " + text.replace(". ", ".\n- "),
    "ellipses": lambda text: text.replace(". ", "...\n"),
    "hash signs": lambda text: text.replace(" ", " # "),
    "numbers": lambda text: re.sub(r"(\w+) (\w+)", r"\1 12", text),
    "program": lambda text: text + "\nif (x) { return; }",
    "placeholder": lambda text: "Lorem ipsum dolor sit amet.\n" + text,
    "notices": lambda text: "Please turn on Javascript now.\n" + text + "\nWe use cookies, see our privacy policy.",
    "short lines": lambda text: text.replace(" ", "\n"),
    "no sentences": lambda text: text.replace(".", "").replace("!", "").replace("?", ""),
}
STOP_WORDS = {
    "en": ["the", "be", "to", "of", "and", "that", "have", "with"],
    "de": ["der", "die", "und", "in"],
    "fr": ["le", "la", "de", "et", "est"],
}
COUNTS = {"en": 2000, "de": 1500, "fr": 1500}
BEFORE = """
[gopher_repeated_paragraphs]
[gopher_repeated_lines]
[gopher_frequent_ngrams]
[gopher_repeated_ngrams]
[gopher_word_count]
[gopher_word_length]
min_mean = 2
[gopher_symbols]
[gopher_bullet_lines]
[gopher_ellipsis_lines]
[gopher_alphabetic_words]
[gopher_stop_words]
words = {words}
[c4_short_lines]
min_words = 3
[c4_javascript_lines]
[c4_policy_lines]
[c4_lorem_ipsum]
[c4_curly_brackets]
[c4_sentence_count]
min_sentences = 5
[fineweb_finished_lines]
[fineweb_short_lines]
[fineweb_repeated_characters]
"""
DATATROVE = """
import json, sys
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline import filters
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
source, output, recipe = sys.argv[1:]
classes = {
    "gopher_repetition": filters.GopherRepetitionFilter,
    "gopher_quality": filters.GopherQualityFilter,
    "c4_quality": filters.C4QualityFilter,
    "fineweb_quality": filters.FineWebQualityFilter,
}
steps = [classes[rule](**parameters) for rule, parameters in json.loads(recipe).items()]
pipeline = [JsonlReader(source), *steps, JsonlWriter(output, compression=None)]
LocalPipelineExecutor(pipeline, logging_dir=output + "-logs").run()
"""
# Blocks of 40 KB, so that some blocks are finished when the processes are killed.
CLEAN = """
import sys
from bert_jax.corpus.build import chunks
from bert_jax.corpus.build.clean import clean_texts
if __name__ == "__main__":
    if sys.argv[5] == "small":
        chunks.CHUNK_BYTES, chunks.CHUNKS_PER_BLOCK = 20_000, 2
    source, recipe, output, workers = sys.argv[1:5]
    clean_texts([source], recipe, output, workers=int(workers), max_rejected_fraction=1.0, say=print)
"""


def main() -> None:
    """Compare the cleaning of every language, and print the results."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--data", type=pathlib.Path, required=True, help="directory of the data sets")
    arguments.add_argument("--before", type=pathlib.Path, help="checkout of an earlier commit")
    args = arguments.parse_args()
    checkout = pathlib.Path(__file__).resolve().parents[1]
    for language, count in COUNTS.items():
        with tempfile.TemporaryDirectory() as directory:
            compare(
                language, list(make_documents(SENTENCES[language](args.data), count)), directory, checkout, args.before
            )


def compare(
    language: str, documents: Sequence[str], directory: str, checkout: pathlib.Path, before: pathlib.Path | None
) -> None:
    """Clean the documents of a language with each program, and print a line for each program."""
    work, recipe = pathlib.Path(directory), recipe_of(language)
    source = work / "source" / "source.jsonl"
    source.parent.mkdir()
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents), encoding="utf-8")
    (work / "recipe.toml").write_text(toml_of(recipe), encoding="utf-8")
    (work / "before.toml").write_text(BEFORE.format(words=json.dumps(STOP_WORDS[language])), encoding="utf-8")
    (work / "clean.py").write_text(CLEAN)
    print(f"{language}: {len(documents):,} documents, {source.stat().st_size / 1e6:.1f} MB", flush=True)
    command = [sys.executable, "-c", DATATROVE, str(source.parent), str(work / "datatrove"), json.dumps(recipe)]
    run("datatrove's executor", command, checkout)
    expected = read_texts(work / "datatrove" / "00000.jsonl")

    def clean(name: str, workers: int, size: str, recipe_name: str = "recipe.toml") -> list[str]:
        files = [str(source), str(work / recipe_name), str(work / name)]
        return [sys.executable, str(work / "clean.py"), *files, str(workers), size]

    command = clean("killed.jsonl", 2, "small")
    num_finished = kill_after_blocks(command, checkout, work / ".killed.jsonl.incomplete" / "cleaned")
    resumed = subprocess.run(command, env=environment(checkout), capture_output=True, text=True, check=True)
    assert "resumes after" in resumed.stdout, resumed.stdout
    run("clean", clean("cleaned.jsonl", 1, "usual"), checkout)
    if before:
        run(f"clean of {before.name}", clean("before.jsonl", 1, "usual", "before.toml"), before)
    for name in ("killed.jsonl", "cleaned.jsonl"):
        assert read_texts(work / name) == expected, name
    print(f"  killed after {num_finished} blocks, resumed: the same {len(expected):,} documents", flush=True)


def run(name: str, command: Sequence[str], checkout: pathlib.Path) -> None:
    """Run a command, and print its CPU seconds and the memory of its largest process."""
    process = subprocess.Popen(command, env=environment(checkout), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, (name, process.returncode)
    seconds = usage.ru_utime + usage.ru_stime
    print(f"  {name:<24} {seconds:7.1f} CPU seconds, {usage.ru_maxrss / 1024:6.0f} MiB", flush=True)


def kill_after_blocks(command: Sequence[str], checkout: pathlib.Path, blocks: pathlib.Path) -> int:
    """Start a cleaning, kill all its processes when three blocks are finished, and return the number of blocks."""
    process = subprocess.Popen(command, env=environment(checkout), stdout=subprocess.DEVNULL, start_new_session=True)
    while process.poll() is None and len(list(blocks.glob("*.json"))) < 3:
        time.sleep(0.02)
    assert process.poll() is None, "the cleaning ended before the kill"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return len(list(blocks.glob("*.json")))


def environment(checkout: pathlib.Path) -> dict[str, str]:
    """Return the environment of a program that imports the package of a checkout."""
    return {**os.environ, "PYTHONPATH": str(checkout)}


def read_texts(path: pathlib.Path) -> list[str]:
    """Return the texts of a file of JSON lines."""
    return [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").split("\n") if line]


def recipe_of(language: str) -> dict[str, dict[str, object]]:
    """Return the rules for a language, with the parameters that differ from datatrove's defaults."""
    return {
        "gopher_repetition": {"language": language},
        "gopher_quality": {"language": language, "stop_words": STOP_WORDS[language], "min_avg_word_length": 2},
        "c4_quality": {"language": language, "filter_no_terminal_punct": False},
        "fineweb_quality": {"language": language, "char_duplicates_ratio": 0.1},
    }


def toml_of(recipe: dict[str, dict[str, object]]) -> str:
    """Return a recipe as TOML. TOML writes strings, numbers, booleans and lists as JSON does."""
    tables = (
        f"[{rule}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in table.items()) for rule, table in recipe.items()
    )
    return "\n".join(tables)


def make_documents(sentences: Sequence[str], count: int) -> Iterator[str]:
    """Yield documents of 10 to 40 sentences, as lines, paragraphs or one paragraph; two thirds have a fault."""
    rng = random.Random(0)
    for index in range(count):
        text = rng.choice(["\n", " ", "\n\n"]).join(rng.sample(sentences, rng.randint(10, 40)))
        fault = list(FAULTS.values())[index // 3 % len(FAULTS)]
        yield fault(text) if index % 3 else text


def english(data: pathlib.Path) -> list[str]:
    """Return sentences of the books."""
    sentences: list[str] = []
    with tarfile.open(data / "books" / "classic-books-md.tar.xz") as archive:
        for member in archive:
            if member.isfile() and len(sentences) < 60_000:
                text = archive.extractfile(member).read().decode("utf-8", "replace")  # type: ignore[union-attr]
                text = text.replace("\r\n", "\n")  # as our reader does, and datatrove's does not
                sentences += [part for part in re.split(r"(?<=[.!?])\s+", text) if len(part) > 30]
    return sentences


def german(data: pathlib.Path) -> list[str]:
    """Return sentences of the treebanks."""
    sentences = []
    for path in sorted((data / "ud").glob("de_*.conllu.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            sentences += [line[9:].strip() for line in file if line.startswith("# text = ")]
    return sentences


def french(data: pathlib.Path) -> list[str]:
    """Return sentences of Tatoeba."""
    with tarfile.open(data / "tatoeba" / "tatoeba-v1.tar.gz") as archive:
        (member,) = (member for member in archive if member.name.endswith("tatoeba.fra-eng.fra"))
        return archive.extractfile(member).read().decode().splitlines()  # type: ignore[union-attr]


SENTENCES = {"en": english, "de": german, "fr": french}


if __name__ == "__main__":
    main()
