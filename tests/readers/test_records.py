"""Records: JSON, CSV, Parquet, TFDS and web data sets; paths and templates of fields; broken records."""

import csv
import gzip
import io
import json
import random
import tarfile
import zipfile
from collections import Counter

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from bert_jax.errors import UserError
from bert_jax.readers import (
    ReadOptions,
    check_read_options,
    data_sets,
    find_files,
    read_documents,
    read_raw_documents,
    total_bytes,
)
from bert_jax.readers.documents import MAX_RECORD_BYTES

TEXTS = ["Füße on the ground.", 'a "quote", a\ttab', "two\nlines", "\u732b\u3002"]


def read(path, **options):
    return [(d.text or d.rejected) for d in read_documents([str(path)], ReadOptions(**options))]


def write(path, data):
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def test_json_lines(tmp_path):
    lines = [json.dumps({"text": text, "meta": {"body": text[::-1]}, "a.b": text}) for text in TEXTS]
    path = write(tmp_path / "a.jsonl", "\ufeff" + "\r\n\n".join(lines))
    assert read(path) == TEXTS
    assert read(path, field="meta.body") == [text[::-1] for text in TEXTS]
    assert read(path, field="a.b") == TEXTS
    assert read(write(tmp_path / "a.jsonl.gz", gzip.compress(path.read_bytes()))) == TEXTS
    assert read(path, format="text") != TEXTS


@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_list(tmp_path, indent):
    items = [{"text": text, "n": number} for number, text in enumerate(TEXTS * 9000)]
    path = write(tmp_path / "a.json", json.dumps(items, indent=indent, ensure_ascii=False))
    assert read(path) == TEXTS * 9000
    assert read(write(path, " [] ")) == ["empty"]
    for broken in ('[{"text": "a"}', '[{"text": "a"} 1]', "[1] x", '[{"text"]', "[" * 100_000):
        with pytest.raises(UserError, match=r"a\.json: broken JSON after item"):
            read(write(path, broken))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"text": "x"', "broken JSON"),
        (b"[" * 100_000, "broken JSON"),
        (b'{"text": ' + b"1" * 10_000 + b"}", "broken JSON"),
        (b'{"texts": "x"}', "no field"),
        (b'"text"', "not an object"),
        (b"[1]", "not an object"),
        (b'{"text": null}', "not a text"),
        (b'{"text": ["x"]}', "not a text"),
        (b'{"text": " \\n"}', "empty"),
        (b'{"text": "\xff"}', "invalid UTF-8"),
        (b'{"text": "\\ud800 x"}', "invalid UTF-8"),
        (b'{"text": "a\\u0000"}', "binary"),
        (b'{"text": "' + b"x" * MAX_RECORD_BYTES + b'"}', "too large"),
    ],
)
def test_only_the_bad_line_is_rejected(tmp_path, line, reason):
    path = write(tmp_path / "a.jsonl", b'{"text": "one"}\n' + line + b'\n{"text": "two"}')
    assert read(path) == ["one", reason, "two"]


@pytest.mark.parametrize("indent", [2, 4, "\t"])
def test_one_object_in_several_lines_is_a_document(tmp_path, indent):
    for number, text in enumerate(TEXTS):
        own = {"list": [number, {}], "meta": {"body": text[::-1]}, "text": text}
        write(tmp_path / f"{number}.json", "\ufeff\n" * (number % 2) + json.dumps(own, indent=indent) + "\n")
    assert read(tmp_path) == TEXTS
    assert read(tmp_path, field="meta.body") == [text[::-1] for text in TEXTS]
    several = "\n".join(json.dumps({"text": text}, indent=indent) for text in TEXTS)
    assert read(write(tmp_path / "a.json", several)) == TEXTS
    with pytest.raises(UserError, match=r"a\.json: broken JSON after item 4"):
        read(write(tmp_path / "a.json", several + "\n{"))
    assert read(write(tmp_path / "a.json", several[: len(several) // 9])) == ["broken JSON"]
    with pytest.raises(UserError, match=r"a\.json: broken JSON after item 0"):  # it is not one document that is lost
        read(write(tmp_path / "a.json", '{"text":\n' + '{"text": "one"}\n' * 9))
    cut_first_line = '{\r\n\n{"text": "one"}\n{"text": "two"}\n'  # no object follows the "{" of an object
    assert read(write(tmp_path / "a.jsonl", cut_first_line)) == ["broken JSON", "one", "two"]
    large = json.dumps({"text": "x" * MAX_RECORD_BYTES}, indent=indent)
    assert read(write(tmp_path / "a.json", large)) == ["too large"]


@pytest.mark.parametrize(
    ("path", "texts_of"),
    [
        ("data[].paragraphs[].context", lambda own: [p["context"] for one in own["data"] for p in one["paragraphs"]]),
        ("data[].titles[]", lambda own: [title for one in own["data"] for title in one["titles"]]),
        ("meta.parts[][]", lambda own: [part for one in own["meta"]["parts"] for part in one]),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_path_leads_into_lists(tmp_path, path, texts_of, indent):
    paragraphs = [[{"context": f"{text} {n}", "qas": []} for n in range(3)] for text in TEXTS]
    data = [{"titles": [f"title {n}"] * n, "paragraphs": each} for n, each in enumerate(paragraphs)]
    record = {"version": "1", "data": data, "meta": {"parts": [["a", "b"], [], ["c"]]}}
    file = write(tmp_path / "a.json", json.dumps(record, indent=indent))
    expected = texts_of(record)
    assert len(expected) > 2
    assert read(file, field=path) == expected
    assert read(write(tmp_path / "a.json", json.dumps([record] * 2, indent=indent)), field=path) == expected * 2
    lines = write(tmp_path / "a.jsonl", "\n".join([json.dumps(record), "{", json.dumps(record)]))
    assert read(lines, field=path) == [*expected, "broken JSON", *expected]


def test_a_path_that_ends_early_is_a_rejection(tmp_path):
    record = {"data": [{"text": "one"}, {"no": "x"}, 5, {"text": 7}, {"text": "a\0"}, {"text": " "}]}
    record |= {"empty": [], "n": 1}
    file = write(tmp_path / "a.json", json.dumps(record))
    found = ["one", "no field", "no field", "not a text", "binary", "empty"]
    assert read(file, field="data[].text") == found
    assert read(file, field="empty[]") == ["empty"]
    assert read(file, field="n[]") == ["not a list"]
    assert read(file, field="data.text[]") == ["no field"]
    (first,) = read_documents([str(file)], ReadOptions(field="other[]"))
    assert first.fields == "'data', 'empty', 'n'"
    bad = write(tmp_path / "a.json", b'{"data": [{"text": "caf\xe9"}]}')
    assert read(bad, field="data[].text") == ["invalid UTF-8"]
    assert read(bad, field="data[].text", encoding_errors="replace") == ["caf\ufffd"]
    one = write(tmp_path / "a.json", json.dumps({"data": ["x" * (MAX_RECORD_BYTES + 1), "one"]}))
    assert read(one, field="data[]") == ["too large", "one"]
    large = {"data": [{"text": "x" * (1 << 20)}] * 17}  # larger than a record may be
    assert read(write(tmp_path / "a.json", json.dumps(large)), field="data[].text") == ["x" * (1 << 20)] * 17


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{title}\\n\\n{text}", "T\n\nbody"),
        ("{title}: {meta.by} ({{x}})", "T: me ({x})"),
        ("<{a.b}>", "<dot>"),
        ("{title}: {{x}} {text}", "T: {x} body"),
        ("{{n}} {title}", "{n} T"),
        ("{title}{title}", "TT"),
    ],
)
def test_a_template_joins_fields(tmp_path, template, expected):
    record = {"title": "T", "text": "body", "meta": {"by": "me"}, "a.b": "dot"}
    assert read(write(tmp_path / "a.jsonl", json.dumps(record)), field=template) == [expected]
    if "meta" not in template:
        rows = "title,text,a.b\nT,body,dot\nonly one\n"
        assert read(write(tmp_path / "a.csv", rows), field=template) == [expected, "wrong number of columns"]


def test_a_template_names_fields_alone(tmp_path):
    file = write(tmp_path / "a.jsonl", '{"title": "T", "n": 1}')
    assert read(file, field="{title.__class__}") == ["no field"]
    assert read(file, field="{title} {n}") == ["not a text"]
    for field in ("{title!r}", "{title:>9}", "{}", "{title", "title}", "{a[0]}", "{a[]}", "{{x}}"):
        with pytest.raises(UserError, match=r"--field '.*': |no column|no input") as error:
            read(file, field=field)
        assert str(error.value).startswith("--field")
    with pytest.raises(UserError, match=r"no column 'titel'; did you mean 'title'"):
        read(write(tmp_path / "a.csv", "title,text\nT,body\n"), field="{titel} {text}")


def test_a_record_without_the_field_lists_its_fields(tmp_path):
    record = {"\ud800\n": 1, "x" * 99: 2, **{key: {"b": "text"} for key in "abcdef"}}
    path = write(tmp_path / "a.json", json.dumps([record, "text"]))
    names = [repr("\ud800\n"), repr("x" * 40), "'a'", "'b'", "'c'"]
    for field in ("text", "a.c", "a.b.c"):
        first, second = read_documents([str(path)], ReadOptions(field=field))
        assert first == (f"{path}:1", "", "no field", ", ".join(names) + " and 3 more")
        assert second == (f"{path}:2", "", "not an object", "")


@pytest.mark.parametrize(
    ("name", "header", "message"),
    [
        ("a.csv", "id;body", r"no column 'text' \(there are 'id', 'body'\); give a column with --field"),
        ("a.tsv", "id;text", "separated by semicolons: read it with --format csv"),
        ("a.csv", "id\ttext", "separated by tabs: read it with --format tsv"),
        ("a.tsv", "id,text", "separated by commas: read it with --format csv"),
        ("a.csv", '"a, b"', r"\(there are 'a, b'\); give a column"),
        ("a.tsv", "a, b\tc", r"\(there are 'a, b', 'c'\); give a column"),
        ("a.csv", "texts,b,c,d,e,f," + "g" * 99, r"did you mean 'texts'\? \(there are 'texts', .*'e' and 2 more\)"),
        ("a.csv", "g" * 99, rf"\(there are '{'g' * 40}'\)"),
    ],
)
def test_missing_columns(tmp_path, name, header, message):
    with pytest.raises(UserError, match=message):
        read(write(tmp_path / name, f"{header}\nx\n"))


def test_half_a_surrogate_pair_is_replaced(tmp_path):
    path = write(tmp_path / "a.jsonl", r'{"text": "\ud83d\ude00 \ud800 x"}')
    assert read(path, encoding_errors="replace") == ["\U0001f600 \ufffd x"]


def test_csv_and_tsv(tmp_path):
    quoted = "\n".join('{},"{}"'.format(n, text.replace('"', '""')) for n, text in enumerate(TEXTS))
    path = write(tmp_path / "a.csv", f"\ufeffid,text\r\n\n{quoted}\n")
    assert read(path) == TEXTS
    assert [raw.name for raw in read_raw_documents([str(path)])] == [f"{path}:{line}" for line in (3, 4, 5, 7)]
    assert read(path, field="id") == ["0", "1", "2", "3"]
    plain = write(tmp_path / "a.tsv", 'id\ttext\n1\tan "unbalanced\n2\tx\ty\n3\n4\t\n5\tz\n')
    assert read(plain) == ['an "unbalanced', "wrong number of columns", "wrong number of columns", "empty", "z"]
    assert read(write(tmp_path / "b.tsv", "1\tone\n2\ttwo\n"), field="1") == ["one", "two"]
    assert read(write(tmp_path / "c.csv", "")) == read(write(tmp_path / "c.csv", "text\n")) == ["empty"]


def test_semicolons_separate_columns_where_commas_do_not(tmp_path):
    """The header decides; a header that has the column with commas keeps commas. The csv module is the reference."""
    rows = [[str(n), text, "1,5"] for n, text in enumerate(TEXTS)]
    for mark, names in ((";", ["id", "text", "size"]), (",", ["id", "text", "a;b;c;d;e"])):
        with (tmp_path / "a.csv").open("w", newline="") as file:
            csv.writer(file, delimiter=mark).writerows([names, *rows])
        assert read(tmp_path / "a.csv") == TEXTS
        assert read(tmp_path / "a.csv", field="{id}: {text}") == [f"{n}: {text}" for n, text in enumerate(TEXTS)]
        assert read(tmp_path / "a.csv", field="1") == ["text", *TEXTS]
    assert read(write(tmp_path / "a.csv", "\ufefftext;id\na;1\nb\n")) == ["a", "wrong number of columns"]
    assert read(write(tmp_path / "a.csv", "text\na;b\n")) == ["a;b"]


def test_broken_csv(tmp_path):
    path = write(tmp_path / "a.csv", b'text\n"a"b\nc\n"\xff"\n' + b"x" * MAX_RECORD_BYTES + b"\nd\n")
    assert read(path) == ["broken CSV", "c", "invalid UTF-8", "too large", "d"]
    with pytest.raises(
        UserError, match=r"a\.csv: no column 'body'; did you mean 'boxy'\? \(there are 'boxy'\)|no column"
    ):
        read(write(path, "boxy\nx\n"), field="body")
    with pytest.raises(UserError, match=r"a\.csv:3: an unterminated quote"):
        read(write(path, 'text\na\n"b\nc\n'))
    with pytest.raises(UserError, match=r"a\.csv:3: an unterminated quote"):
        read(write(path, 'text\na\n"b\n' + ("c" * 1000 + "\n") * (MAX_RECORD_BYTES // 1000)))


@pytest.mark.parametrize("where", ["plain", "compressed", "member"])
def test_parquet(tmp_path, where):
    rows = [*TEXTS, None, "", *[f"row {number}" for number in range(20_000)]]
    table = pyarrow.table(
        {
            "text": pyarrow.array(rows).dictionary_encode(),
            "inner": pyarrow.array([{"body": row, "n": 1} for row in rows]),
            "large": pyarrow.array(rows, pyarrow.large_string()),
            "n": list(range(len(rows))),
        }
    )
    path = tmp_path / "a.parquet"
    parquet.write_table(table, path, row_group_size=7000)
    data = path.read_bytes()
    if where == "compressed":
        path = write(tmp_path / "b.parquet.gz", gzip.compress(data))
    elif where == "member":
        path = tmp_path / "b.tar"
        with tarfile.open(path, "w") as archive:
            info = tarfile.TarInfo("c.parquet")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    for field in ("text", "large", "inner.body"):
        assert read(path, field=field) == [*TEXTS, "not a text", "empty", *rows[len(TEXTS) + 2 :]]
    with pytest.raises(UserError, match="holds int64, not text"):
        read(path, field="n")
    with pytest.raises(UserError, match=r"no column 'inner\.bodi'; did you mean 'body'"):
        read(path, field="inner.bodi")


def test_damaged_parquet_is_named_or_read(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["one", "two"]}), path)
    data = path.read_bytes()
    for broken in (b"", b"PAR1", data[:-9], data[:40]):
        with pytest.raises(UserError, match=r"a\.parquet: broken Parquet"):
            read(write(path, broken))


@pytest.fixture(scope="module")
def builder():
    """A data set of TFDS."""
    tfds = pytest.importorskip("tensorflow_datasets")

    class Wiki(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        BUILDER_CONFIGS = [tfds.core.BuilderConfig(name="20230601.en")]  # noqa: RUF012

        def _info(self):
            features = {"text": tfds.features.Text(), "n": tfds.features.Scalar(np.int64)}
            return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

        def _split_generators(self, _):
            return {"train": self._generate_examples(TEXTS), "rest": self._generate_examples(["", "last"])}

        def _generate_examples(self, texts):
            yield from ((number, {"text": text, "n": number}) for number, text in enumerate(texts))

    return Wiki


@pytest.fixture(scope="module")
def prepared(builder, tmp_path_factory):
    place = tmp_path_factory.mktemp("tfds")
    builder(data_dir=place, config="20230601.en", file_format="array_record").download_and_prepare()
    return place


def test_a_data_set_of_tfds(prepared):
    place = f"tfds:wiki/20230601.en:1.0.0@{prepared}"
    assert sorted(read(place)) == sorted(TEXTS)
    assert sorted(read(f"tfds:wiki/20230601.en@{prepared}#rest")) == ["empty", "last"]
    assert total_bytes(find_files([place])) >= list(read_raw_documents([place]))[-1].bytes_read > 0
    with pytest.raises(UserError, match="no split 'test'; there are"):
        read(place + "#test")
    with pytest.raises(UserError, match="no feature 'txet'; did you mean 'text'"):
        read(place, field="txet")
    assert read(place, field="n") == ["not a text"] * len(TEXTS)
    with pytest.raises(UserError, match="no data set that TFDS has prepared"):
        read(f"tfds:other@{prepared}")


def test_tfds_prepares_a_missing_data_set(builder, tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    def known(name, data_dir, file_format):
        assert name == "wiki/20230601.en"
        return builder(data_dir=data_dir, config="20230601.en", file_format=file_format)

    monkeypatch.setattr(tfds, "list_builders", lambda with_community_datasets: ["wiki"])
    monkeypatch.setattr(tfds, "builder", known)
    assert sorted(read(f"tfds:wiki/20230601.en@{tmp_path}")) == sorted(TEXTS)
    monkeypatch.setattr(tfds, "builder", lambda *_, **__: 1 / 0)
    data_sets.open_tfds_builder.cache_clear()
    assert sorted(read(f"tfds:wiki/20230601.en@{tmp_path}#rest")) == ["empty", "last"]  # it is there
    with pytest.raises(
        UserError, match=r"TFDS cannot prepare it here \(division by zero\); run tfds build wiki"
    ) as refused:
        read(f"tfds:wiki@{tmp_path / 'elsewhere'}")
    assert "\n" not in str(refused.value)


def test_members_of_a_web_dataset(tmp_path):
    """Files of one sample beside each other; those that are not asked for are neither read nor counted."""
    files = {}
    for number in range(3):
        files[f"{number:06}.txt"] = f"text {number}".encode()
        files[f"{number:06}.json"] = json.dumps({"text": f"field {number}"}).encode()
        files[f"{number:06}.jpg"] = b"\0\xff"
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar, zipfile.ZipFile(tmp_path / "a.zip", "w") as zipped:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
            zipped.writestr(name, data)
    for archive in (tmp_path / "a.tar.gz", tmp_path / "a.zip"):
        assert read(archive, members="*.txt") == [f"text {number}" for number in range(3)]
        assert read(archive, members="*.json") == [f"field {number}" for number in range(3)]
        assert read(archive, members="*.md") == []
        assert len(read(archive)) == 9
    with pytest.raises(UserError, match=r"--members \*\.txt: no input is a tar or zip archive"):
        check_read_options([str(write(tmp_path / "a.jsonl", "{}"))], ReadOptions(members="*.txt"))


def test_reviews_of_a_tar_of_json_lists(real_data):
    archive = real_data / "nsmc" / "nsmc-raw-slice.tar.gz"
    with tarfile.open(archive) as members:
        wanted = [
            item["review"]
            for member in members
            if member.name.endswith(".json")
            for item in json.load(members.extractfile(member))
        ]
    found = list(read_documents([str(archive)], ReadOptions(field="review")))
    assert [d.text for d in found if not d.rejected] == [text.replace("\r\n", "\n") for text in wanted if text.strip()]
    assert len(found) == len(wanted)


def test_every_document_of_damaged_records_is_counted(tmp_path):
    generator = random.Random(0)
    good = {
        "a.jsonl": b"".join(json.dumps({"text": t}).encode() + b"\n" for t in TEXTS * 5),
        "a.tsv": b"text\n" + b"words of text\n" * 20,
    }
    for name, data in good.items():
        for _ in range(100):
            damaged = bytearray(data)
            for _ in range(generator.randint(1, 9)):
                damaged[generator.randrange(5, len(damaged))] = generator.choice(b'\0\xff\xed"{}[]\\ax ')
            lines = sum(bool(line.strip(b"\r\n" if name == "a.tsv" else None)) for line in damaged.split(b"\n"))
            found = Counter(
                bool(d.text) != bool(d.rejected) for d in read_documents([str(write(tmp_path / name, damaged))])
            )
            assert found == {True: lines - (name == "a.tsv")}
