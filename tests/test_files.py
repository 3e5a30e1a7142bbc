"""Files and directories appear whole, whoever else writes there, and their digests agree with sha256sum."""

import os
import pathlib
import subprocess

import pytest

from bert_jax import files
from bert_jax.errors import UserError


@pytest.fixture
def sealed(tmp_path) -> pathlib.Path:
    """A directory with two files, one below the top."""
    with files.new_directory(tmp_path / "made") as place:
        (place / "deep").mkdir()
        (place / "a.txt").write_text("one")
        (place / "deep" / "b.bin").write_bytes(bytes(range(256)))
    return tmp_path / "made"


def names(place: pathlib.Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*"))


def test_sha256sum_reads_our_sums(sealed) -> None:
    assert names(sealed) == ["SHA256SUMS", "a.txt", "deep", "deep/b.bin"]
    argv = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(argv, cwd=sealed, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["a.txt: OK", "deep/b.bin: OK"]
    assert files.damaged_files(sealed) == []


def test_sums_of_sha256sum_are_read(sealed) -> None:
    made = files.read_sums(sealed)
    for mode in ("--text", "--binary"):  # "digest  name" and "digest *name"
        argv = ["sha256sum", mode, "a.txt", "deep/b.bin"]
        text = subprocess.run(argv, cwd=sealed, capture_output=True, text=True, check=True).stdout
        (sealed / "SHA256SUMS").write_text(text)
        assert files.read_sums(sealed) == made


def test_every_kind_of_damage_is_found(sealed) -> None:
    data = bytearray((sealed / "deep" / "b.bin").read_bytes())
    data[100] ^= 4
    (sealed / "deep" / "b.bin").write_bytes(data)
    assert files.damaged_files(sealed) == [f"{sealed / 'deep' / 'b.bin'}: differs from SHA256SUMS"]
    assert files.damaged_files(sealed, {"a.txt": files.read_sums(sealed)["a.txt"]}) == []
    assert files.damaged_files(sealed, max_bytes=255) == []
    assert len(files.damaged_files(sealed, max_bytes=256)) == 1
    with pytest.raises(UserError, match=r"b.bin: differs from SHA256SUMS; copy the directory again, or remove SHA256"):
        files.check_sums(sealed)
    os.truncate(sealed / "deep" / "b.bin", 7)
    (sealed / "a.txt").unlink()
    assert [line.rpartition(": ")[2] for line in files.damaged_files(sealed)] == [
        "missing, but listed in SHA256SUMS",
        "differs from SHA256SUMS",
    ]
    (sealed / "SHA256SUMS").unlink()
    assert files.damaged_files(sealed) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "damaged"),
        ("x" * 64 + "  a.txt\n", "damaged"),
        ("0" * 63 + "  a.txt\n", "damaged"),
        ("0" * 64 + "  ../a.txt\n", "names ../a.txt, which is not in this directory"),
        ("0" * 64 + "  /etc/passwd\n", "names /etc/passwd"),
        (b"\xff", "cannot be read"),
    ],
)
def test_sums_that_are_none(sealed, text, says) -> None:
    (sealed / "SHA256SUMS").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=rf"SHA256SUMS: {says}"):
        files.check_sums(sealed)


def test_two_writers_do_not_mix(tmp_path) -> None:
    """The second to end finds the place taken; what it wrote is gone."""

    def write() -> None:
        with files.new_directory(tmp_path / "made") as slow, files.new_directory(tmp_path / "made") as fast:
            (slow / "of the slow one").touch()
            (fast / "of the fast one").touch()

    with pytest.raises(OSError, match="not empty"):
        write()
    assert names(tmp_path) == ["made", "made/SHA256SUMS", "made/of the fast one"]


def test_leftovers_of_a_killed_process_stay_outside(tmp_path) -> None:
    for name in (".made.incomplete", "made.partial", ".made.partial", ".made.00000000.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "old").touch()
    with files.new_directory(tmp_path / "made") as place:
        (place / "new").touch()
    assert names(tmp_path / "made") == ["SHA256SUMS", "new"]


def test_an_error_leaves_the_file_of_before(tmp_path) -> None:
    files.write_text(tmp_path / "a", "old")

    def interrupted() -> None:
        with files.new_file(tmp_path / "a") as file:
            file.write("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (names(tmp_path), (tmp_path / "a").read_text()) == (["a"], "old")
    with files.new_file(tmp_path / "a", binary=True) as file:
        file.write(b"\xff")
    assert (names(tmp_path), (tmp_path / "a").read_bytes()) == (["a"], b"\xff")


def test_partial_files_of_this_run_are_removed(tmp_path) -> None:
    (tmp_path / ".best-7.0123abcd.partial").mkdir()
    (tmp_path / ".best-7.0123abcd.partial" / "x").touch()
    (tmp_path / ".run.json.0123abcd.partial").touch()
    (tmp_path / ".export.0123abcd.partial").mkdir()  # perhaps another process writes it now
    files.remove_partial_files(tmp_path, ["run.json", "best-*"])
    assert names(tmp_path) == [".export.0123abcd.partial"]


def test_a_list_that_names_itself_is_read(sealed) -> None:
    """`sha256sum * > SHA256SUMS` lists the file that the shell has just emptied, `find` writes `./` before names."""
    for command in ("sha256sum *.txt SHA256SUMS", "find . -type f -exec sha256sum {} +"):
        subprocess.run(f"{command} > SHA256SUMS", shell=True, cwd=sealed, check=True)
        assert "a.txt" in files.read_sums(sealed)
        assert files.damaged_files(sealed) == []


def test_a_directory_takes_the_place_of_another(sealed) -> None:
    with pytest.raises(OSError, match="not empty"), files.new_directory(sealed) as place:
        (place / "new").write_text("two")
    assert "a.txt" in names(sealed)
    with files.new_directory(sealed, replace=True) as place:
        (place / "new").write_text("two")
        assert "a.txt" in names(sealed)
    assert names(sealed) == ["SHA256SUMS", "new"]
    assert [path.name for path in sealed.parent.iterdir()] == [sealed.name]


def test_a_link_stays_a_link(tmp_path) -> None:
    (tmp_path / "link").symlink_to("text")
    for words in ("first", "second"):
        files.write_text(tmp_path / "link", words)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "text").read_text() == words
