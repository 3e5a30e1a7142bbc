"""TFRecord files, against a data set that TensorFlow and TFDS wrote (samples/tfds/write.py)."""

import pathlib
import shutil

import pytest

from bert_jax.errors import UserError
from bert_jax.readers import ReadOptions, find_files, read_documents, read_raw_documents, total_bytes
from bert_jax.readers.formats import tfrecord

pytest.importorskip("google_crc32c")
PLACE = pathlib.Path(__file__).parents[1] / "samples" / "tfds"
FILE = PLACE / "wiki" / "small" / "1.0.0" / "wiki-train.tfrecord-00000-of-00001"
# In the order of the file, as `tfds.as_numpy` gave them.
NUMBERS = [4, 0, 3, 1, 2]
TEXTS = ["empty", "The first text.", "<script>", "Zweiter Text mit Umlaut: ä.", "三番目。"]


def read(path: object, **options: str) -> list[str]:
    return [one.text or one.rejected for one in read_documents([str(path)], ReadOptions(**options))]


def test_a_data_set_of_tfds() -> None:
    pytest.importorskip("tensorflow_datasets")
    place = f"tfds:wiki/small@{PLACE}"
    assert read(place) == TEXTS
    assert read(f"{place}#rest") == ["last"]
    assert read(place, field="meta.title") == [f"Title {number}" for number in NUMBERS]
    assert read(place, field="{meta.title}: {text}")[1] == "Title 0: The first text."
    assert total_bytes(find_files([place])) >= 453  # numBytes in dataset_info.json
    assert list(read_raw_documents([place], ReadOptions()))[-1].bytes_read == FILE.stat().st_size
    with pytest.raises(UserError, match="no feature 'txet'; did you mean 'text'"):
        read(place, field="txet")


def test_a_file_by_its_name(tmp_path: pathlib.Path) -> None:
    assert read(FILE) == TEXTS
    assert read(FILE.parent / "*.tfrecord-*") == ["last", *TEXTS]
    copy = shutil.copy(FILE, tmp_path / "a.tfrecord")
    assert read(copy, field="meta.title") == [f"Title {number}" for number in NUMBERS]
    assert read(copy, field="n") == read(copy, field="meta.tags") == ["not a text"] * 5  # a number, two texts
    (first, *_) = read_documents([str(copy)], ReadOptions(field="body"))
    assert first.rejected == "no field"
    assert sorted(first.fields.split(", ")) == ["'meta.tags'", "'meta.title'", "'n'", "'text'"]
    (tmp_path / "empty.tfrecord").write_bytes(b"")
    assert read(tmp_path / "empty.tfrecord") == ["empty"]


def test_every_damage_is_found(tmp_path: pathlib.Path) -> None:
    """Each flipped byte, and each cut that is not between two records, which the format does not show."""
    data, path = FILE.read_bytes(), tmp_path / "a.tfrecord"
    ends, place = [0], 0
    while place < len(data):
        place += 16 + int.from_bytes(data[place : place + 8], "little")
        ends.append(place)
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        with pytest.raises(UserError, match=r"a\.tfrecord:\d: "):
            read(path)
        path.write_bytes(data[:at])
        if at in ends:
            assert read(path) == (TEXTS[: ends.index(at)] or ["empty"])
        else:
            with pytest.raises(UserError, match=r"a\.tfrecord:\d: (cut short|the checksum differs)"):
                read(path)


def test_a_large_record_is_left_out_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfrecord, "MAX_RECORD_BYTES", 80)
    sizes = [len(one.data) for one in read_raw_documents([str(FILE)], ReadOptions())]
    monkeypatch.undo()
    whole = [len(one.data) for one in read_raw_documents([str(FILE)], ReadOptions())]
    assert sizes == [size if size <= 80 else 0 for size in whole]
    assert min(sizes) == 0 < max(sizes)


def test_bytes_that_are_no_example() -> None:
    with pytest.raises(tfrecord.RejectedError, match=r"no tf\.train\.Example"):
        tfrecord.tfrecord_example_to_text(b"\xff\xff", ReadOptions())
