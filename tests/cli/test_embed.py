"""`embed` through the command line: its summary, and an output that is complete or absent."""

import csv
import gzip
import io
import json
import re
import sys

import numpy as np
import pyarrow
import pytest
import safetensors.numpy
import tokenizers
from pyarrow import parquet
from tensorboardX.embedding import append_pbtxt

from tests.helpers.commands import World, is_empty, no_file_beyond, prose, vocabulary

LONGEST = 32  # tokens, of the recipe
WIDTH = 16


@pytest.fixture
def embed(world: World, tmp_path):
    """The command, for these texts, and where it writes; the texts lie beside the output's directory."""
    (tmp_path / "out").mkdir()

    def embed(lines: list[str], *more: object, name: str = "vectors.npy") -> list[object]:
        (tmp_path / "texts.txt").write_text("".join(line + "\n" for line in lines))
        usual = {"--model": world.model, "--input": tmp_path / "texts.txt", "--output": tmp_path / "out" / name}
        return ["embed", *(part for pair in usual.items() if pair[0] not in more for part in pair), *more]

    return embed


def lengths(world: World, lines: list[str]) -> list[int]:
    tokenizer = tokenizers.Tokenizer.from_file(str(world.model / "tokenizer.json"))
    return [len(tokenizer.encode(line).ids) for line in lines]


def test_embed_prints_a_summary_of_its_output(world, tmp_path, embed, run) -> None:
    """What enters the first layer at [CLS] is the same for every text."""
    lines = [*vocabulary()[:5], "", " "]
    tokens, made = sum(lengths(world, lines)), tmp_path / "out" / "vectors.npy"
    status, out, err = run(*embed(lines, "--pooling", "cls", "--layers", 0, "--batch_size", 4))
    assert (status, err) == (0, "")
    assert out == f"7 texts, 2 of them empty, {tokens} tokens, {WIDTH} features -> {made}\n"
    vectors = np.load(made)
    assert (vectors.dtype, vectors.shape) == (np.float32, (7, WIDTH))
    np.testing.assert_allclose(vectors, vectors[:1].repeat(7, 0), rtol=0, atol=1e-6)
    made.unlink()
    assert run(*embed(lines))[0] == 0
    assert len(np.unique(np.load(made).round(5), axis=0)) == 6
    status, out, _ = run(*embed(lines, "--pooling", "tokens", name="tokens.safetensors"))
    assert status == 0
    found = safetensors.numpy.load_file(tmp_path / "out" / "tokens.safetensors")
    assert np.diff(found["offsets"]).tolist() == lengths(world, lines)


def test_titles_that_are_not_read_are_counted(tmp_path, embed, run) -> None:
    lines = [{"title": "ab", "text": "cd"}, {"title": "", "text": "cd"}, {"text": "cd"}]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, lines)))
    status, _, err = run(*embed([], "--input", tmp_path / "corpus.jsonl"))
    assert (status, err.count("\n")) == (0, 1)
    assert err.startswith("warning: the field 'title' of 1 texts is not read; ")


TABLES = {
    "a.csv": lambda path, rows: write_delimited(path, rows, ","),
    "semicolons.csv": lambda path, rows: write_delimited(path, rows, ";"),
    "a.tsv": lambda path, rows: write_delimited(path, rows, "\t"),
    "a.csv.gz": lambda path, rows: path.write_bytes(gzip.compress(delimited(rows, ",").encode())),
    "a.parquet": lambda path, rows: parquet.write_table(pyarrow.Table.from_pylist(rows), path),
    "a.jsonl": lambda path, rows: path.write_text("\n".join(map(json.dumps, rows))),
    "a.json": lambda path, rows: path.write_text(json.dumps(rows)),
}


def delimited(rows: list[dict[str, str]], delimiter: str) -> str:
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, rows[0], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def write_delimited(path, rows: list[dict[str, str]], delimiter: str) -> None:
    path.write_text(delimited(rows, delimiter))


@pytest.mark.parametrize("name", TABLES)
def test_a_column_of_a_table_has_the_vectors_of_its_lines(tmp_path, embed, run, refused, name) -> None:
    words = vocabulary()
    texts = [words[0], f"{words[1]}, {words[2]}", "", words[3]]
    assert run(*embed(texts, name="lines.npy"))[0] == 0
    for field in ("text", "body"):
        TABLES[name](tmp_path / name, [{"number": str(n), field: text} for n, text in enumerate(texts)])
        argv = embed(
            [], "--input", tmp_path / name, *(["--field", field] if field == "body" else []), name=f"{field}.npy"
        )
        assert run(*argv)[0] == 0
        np.testing.assert_array_equal(*(np.load(tmp_path / "out" / f"{n}.npy") for n in ("lines", field)))
    refused(*embed([], "--input", tmp_path / name, name="no.npy"), says=("no 'text'", "with --field", "number, body"))
    argv = embed([], "--input", tmp_path / name, "--field", "boddy", name="no.npy")
    refused(*argv, says=("no 'boddy'; did you mean 'body'",))
    assert run(*embed([], "--input", tmp_path / name, "--field", "body", "--projector", tmp_path / "seen"))[0] == 0
    seen = (tmp_path / "seen" / "metadata.tsv").read_text().splitlines()
    assert seen == ["text\tnumber", *(f"{text or '(empty)'}\t{n}" for n, text in enumerate(texts))]


def test_lines_of_text_have_no_fields(tmp_path, embed, refused) -> None:
    refused(*embed(["ab"], "--field", "body"), says=("its lines are texts without fields; leave out --field body",))


def test_a_pair_with_one_text_is_not_empty(tmp_path, embed, run) -> None:
    pairs = [{"text": "", "text_pair": "ab"}, {"text": "ab", "text_pair": ""}, {"text": "", "text_pair": " "}]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    assert "3 texts, 1 of them empty, " in run(*embed([], "--input", tmp_path / "pairs.jsonl"))[1]


def test_embed_writes_smaller_vectors(world, tmp_path, embed, run, refused) -> None:
    lines, made = vocabulary()[:5], tmp_path / "out" / "vectors.npy"
    assert run(*embed(lines, "--normalize"))[0] == 0
    vectors = np.load(made)
    for form in ("8", "binary"):
        refused(*embed(lines, "--vectors", form), says=(f"{made} exists; name another file",))
    np.testing.assert_array_equal(np.load(made), vectors)
    made.unlink()
    status, out, _ = run(*embed(lines, "--normalize", "--vectors", "8"))
    assert (status, f" 8 features -> {made}" in out) == (0, True)
    wanted = vectors[:, :8] / np.linalg.norm(vectors[:, :8], axis=1, keepdims=True)
    np.testing.assert_allclose(np.load(made), wanted, rtol=0, atol=1e-6)
    made.unlink()
    assert run(*embed(lines, "--vectors", "binary"))[0] == 0
    np.testing.assert_array_equal(np.load(made), np.packbits(vectors > 0, axis=1))
    made.unlink()
    assert run(*embed(lines, "--normalize", "--vectors", "8-int8"))[0] == 0
    low, high = np.load(tmp_path / "out" / "vectors.ranges.npy")
    decoded = low + (np.load(made).astype(np.float32) + 128.5) * (high - low) / 255
    np.testing.assert_allclose(decoded, wanted, rtol=0, atol=float((high - low).max() / 255))
    made.unlink()
    refused(*embed(lines, "--vectors", "int8"), says=("vectors.ranges.npy exists; name another file",))
    (tmp_path / "out" / "vectors.ranges.npy").unlink()
    for form, says in (("int4", "int8"), ("8,int8", "one form"), ("40", f"from 1 to {WIDTH}")):
        refused(*embed(lines, "--vectors", form), says=(f"--vectors {form}", says))
        assert is_empty(tmp_path / "out")


def test_longer_texts_are_refused_or_cut_and_counted(world, tmp_path, embed, run, refused) -> None:
    lines = [prose(0, 20), vocabulary()[0], prose(1, 20)]
    short = lengths(world, lines)[1]
    refused(*embed(lines), says=("texts.txt", f"2 of 3 texts are longer than {LONGEST} tokens", "--truncate"))
    assert is_empty(tmp_path / "out")
    status, out, _ = run(*embed(lines, "--truncate"))
    assert status == 0
    assert f"3 texts, 2 of them cut, {2 * LONGEST + short} tokens" in out
    status, out, _ = run(*embed(lines, "--truncate", "--max_seq_len", 12, name="shorter.npy"))
    assert f"3 texts, 2 of them cut, {2 * 12 + short} tokens" in out


def test_texts_come_from_standard_input_and_models_from_work_directories(
    world, tmp_path, embed, run, monkeypatch
) -> None:
    lines = vocabulary()[:3]
    assert run(*embed(lines))[0] == 0
    with open(tmp_path / "texts.txt") as file:
        monkeypatch.setattr(sys, "stdin", file)
        status, out, err = run(*embed(lines, "--input", "-", "--model", world.run, name="other.npy"))
    assert status == 0, err
    assert out.startswith("3 texts, ")
    np.testing.assert_array_equal(*(np.load(tmp_path / "out" / name) for name in ("vectors.npy", "other.npy")))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--layers", "sum4"], ["this model has 2 layers, not 4"]),
        (["--layers", "3"], ["this model has 2 layers", "0 to 2"]),
        (["--max_seq_len", "33"], ["max_seq_len 33", "32"]),
        (["--batch_size", "0"], ["batch_size 0: at least 1"]),
        (["--pooling", "tokens"], ["vectors.npy", ".safetensors"]),
        (["--input", "/absent/texts"], ["/absent/texts", "No such file"]),
        (["--model", "/absent/model"], ["/absent/model", "no such directory"]),
        (["--output", "/absent/vectors.npy"], ["/absent/vectors.npy", "cannot be written"]),
    ],
)
def test_embeddings_that_cannot_be_made(tmp_path, embed, refused, more: list[str], says: list[str]) -> None:
    refused(*embed(vocabulary()[:3], *more), says=tuple(says))
    assert is_empty(tmp_path / "out")


def test_a_file_that_exists_is_kept(tmp_path, embed, refused) -> None:
    (tmp_path / "out" / "vectors.npy").write_text("mine")
    refused(*embed(vocabulary()), says=("vectors.npy exists", "remove it"))
    assert (tmp_path / "out" / "vectors.npy").read_text() == "mine"


def test_vectors_on_a_full_disk(embed, refused, small_disk) -> None:
    place = small_disk(8192)
    refused(*embed(vocabulary(), "--output", place / "a.npy"), says=(str(place / "a.npy"), "No space left"))
    assert [path.name for path in place.iterdir()] == ["filler"]


def test_vectors_that_may_not_grow(tmp_path, embed, refused) -> None:
    with no_file_beyond(8192):
        refused(*embed(vocabulary()), says=("vectors.npy", "too large", "--output"))
    assert is_empty(tmp_path / "out")


def test_ctrl_c_in_the_middle_leaves_nothing(tmp_path, embed, run, monkeypatch) -> None:
    from bert_jax.inference import embed as module

    collate_batches, seen = module.collate_batches, []

    def interrupted(*args):
        for batch in collate_batches(*args):
            seen.append([path.name for path in (tmp_path / "out").iterdir()])
            if len(seen) == 3:
                raise KeyboardInterrupt
            yield batch

    monkeypatch.setattr(module, "collate_batches", interrupted)
    status, out, err = run(*embed(vocabulary(), "--batch_size", 1))
    assert (status, out, err) == (130, "", "bert-jax embed: interrupted\n")
    (name,) = seen[-1]
    assert name.startswith(".vectors.npy.")  # which did exist
    assert name.endswith(".partial")
    assert is_empty(tmp_path / "out")


def test_a_file_that_another_command_writes_meanwhile_stays(tmp_path, embed, refused, monkeypatch) -> None:
    from bert_jax.inference import embed as module

    collate_batches, place = module.collate_batches, tmp_path / "out" / "vectors.npy"

    def beside_another_command(*args):
        place.write_text("theirs")
        return collate_batches(*args)

    monkeypatch.setattr(module, "collate_batches", beside_another_command)
    refused(*embed(vocabulary()), says=("vectors.npy exists", "name another file"))
    assert place.read_text() == "theirs"
    assert [path.name for path in place.parent.iterdir()] == ["vectors.npy"]


def test_files_of_the_embedding_projector(world, tmp_path, embed, run, refused) -> None:
    """Each line of metadata belongs to a vector; the config is what tensorboardX writes, but for the name of a file."""
    words, place = vocabulary(), tmp_path / "seen"
    objects = [{"text": words[0], "tags": ["a"]}, {"text": "", "label": "a\tb"}, {"text": words[1], "label": 3}]
    (tmp_path / "texts.jsonl").write_text("\n".join(map(json.dumps, objects)))
    argv = embed([], "--input", tmp_path / "texts.jsonl", "--projector", place)
    status, _, err = run(*argv)
    assert (status, err) == (0, "")
    vectors = np.loadtxt(place / "vectors.tsv", delimiter="\t")
    np.testing.assert_allclose(vectors, np.load(tmp_path / "out" / "vectors.npy"), rtol=1e-6, atol=1e-30)
    lines = (place / "metadata.tsv").read_text().splitlines()
    assert lines == ["text\tlabel", f"{words[0]}\t(empty)", "(empty)\ta b", f"{words[1]}\t3"]
    append_pbtxt(["a"], None, str(tmp_path), "", 0, "vectors")
    ours, theirs = (
        dict(re.findall(r'(\w+_path): "(.*)"', (directory / "projector_config.pbtxt").read_text()))
        for directory in (place, tmp_path)
    )
    assert ours == theirs | {"tensor_path": "vectors.tsv"}
    (tmp_path / "out" / "vectors.npy").unlink()
    refused(*argv, says=(str(place), "not an empty directory"))
    refused(*embed([], "--input", "-", "--projector", tmp_path / "x"), says=("give them as --input FILE",))
    tokens = embed([], "--pooling", "tokens", "--projector", tmp_path / "x", name="a.safetensors")
    refused(*tokens, says=("leave out --pooling tokens",))
    assert is_empty(tmp_path / "out")


def test_lines_of_text_need_no_header(world, tmp_path, embed, run) -> None:
    words, place = vocabulary(), tmp_path / "seen"
    assert run(*embed([words[0], "", words[1]], "--projector", place))[0] == 0
    assert (place / "metadata.tsv").read_text() == f"{words[0]}\n(empty)\n{words[1]}\n"
