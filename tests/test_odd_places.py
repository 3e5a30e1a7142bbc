"""Odd files and odd places: each ends in one line, with the status that launchers read."""

import errno
import io
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable

import pytest

from bert_jax import files, strict_json
from bert_jax.checkpoints.verify import verify_directory
from bert_jax.cli import main as cli
from bert_jax.errors import StorageError, UserError, escaped, file_error, reading, writing
from bert_jax.readers.archives import open_file_or_members, refuse_overlapping_members

SMALL_FILE = "config.json"


def make_socket(path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))


ODD: dict[str, Callable[[pathlib.Path], object]] = {
    "a pipe": os.mkfifo,
    "a socket": make_socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a directory": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("kind", ODD)
def test_only_regular_files_are_opened(tmp_path: pathlib.Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ODD[kind](tmp_path / SMALL_FILE)
    link = tmp_path / "link"
    link.symlink_to(SMALL_FILE)
    for path in (tmp_path / SMALL_FILE, link):
        for read in (files.open_regular_file, files.read_file, files.sha256_of, strict_json.read_object):
            with pytest.raises(UserError, match=f"{kind}, not a file; replace it by a file, or remove it"):
                read(path)


@pytest.mark.parametrize("place", [0, 1 << 29, (1 << 40) - 5])
def test_a_file_of_holes_is_refused_and_a_full_file_is_not(
    tmp_path: pathlib.Path, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "holes").touch()
    with open(tmp_path / "holes", "r+b") as file:
        file.truncate(1 << 40)
        file.seek(place)
        file.write(b"bytes")
    (tmp_path / files.SUMS).write_text(f"{'0' * 64}  holes\n")
    (line,) = verify_directory(tmp_path).damage
    assert re.fullmatch(r".*holes: 1,048,576 MiB, of which 0 MiB are on disk, .*; copy the file again, .*", line)
    monkeypatch.setattr(files, "MAX_SPARSE_BYTES", 1 << 10)
    (tmp_path / "full").write_bytes(b"x" * 5000 + bytes(100_000))
    assert files.read_file(tmp_path / "full") == b"x" * 5000 + bytes(100_000)
    os.truncate(tmp_path / "full", 400_000)  # a quarter is on disk
    assert len(files.read_file(tmp_path / "full")) == 400_000
    with monkeypatch.context() as patch:  # a file system that does not tell
        patch.setattr(files.os, "lseek", lambda handle, at, whence: at if whence == os.SEEK_SET else refuse_seek())
        files.open_regular_file(tmp_path / "holes").close()


def refuse_seek() -> int:
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


@pytest.mark.parametrize("kind", ["a pipe", "a socket", "a device"])
def test_an_output_replaces_no_device(tmp_path: pathlib.Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root, `--output /dev/null` would replace the device for all programs; a pipe would wait for a reader."""
    monkeypatch.chdir(tmp_path)
    ODD[kind](tmp_path / "odd")
    before = os.lstat(tmp_path / "odd")
    with (
        pytest.raises(UserError, match=f"{kind}, not a file; choose another name"),
        files.new_file(tmp_path / "odd") as file,
    ):
        file.write("x")
    assert os.lstat(tmp_path / "odd") == before
    assert os.listdir(tmp_path) == ["odd"]


@pytest.mark.parametrize("kind", ["a pipe", "a socket", "a device"])
def test_a_file_that_becomes_a_pipe_after_the_check_is_refused(
    tmp_path: pathlib.Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ODD[kind](tmp_path / "odd")
    (tmp_path / "right").write_text("{}")
    right = os.stat(tmp_path / "right")
    monkeypatch.setattr(files.os, "stat", lambda path: right)
    with pytest.raises((UserError, OSError)):  # a socket cannot be opened at all
        files.open_regular_file(tmp_path / "odd")


def test_names_in_sums_have_no_control_characters(tmp_path: pathlib.Path) -> None:
    for name in ("\x1b[31mred", "a\0b", "bell\x07", "\x9b1m"):
        (tmp_path / files.SUMS).write_text(f"{'0' * 64}  {name}\n")
        with pytest.raises(UserError, match="a control character; remove this file") as error:
            files.read_sums(tmp_path)
        assert str(error.value).isprintable()


def test_escapes_are_shown() -> None:
    assert escaped("a\x1b[31m\x07\x9b\r") == "a\\x1b[31m\\x07\\x9b\\x0d"
    assert escaped(os.fsdecode(b"caf\xe9")) == "caf\\xe9"
    assert escaped("tab\tand line\n, caf\u00e9 \U0001f600") == "tab\tand line\n, caf\u00e9 \U0001f600"


USER_CODES = {
    *("ENOENT", "ENOTDIR", "EISDIR", "EEXIST", "ENOTEMPTY", "EACCES", "EPERM", "EROFS", "ENAMETOOLONG", "ELOOP"),
    *("EINVAL", "ESPIPE", "ENXIO", "ENODEV", "ENOTTY", "EOPNOTSUPP", "ENOTSUP", "ETXTBSY", "EXDEV", "EILSEQ"),
    *("EFBIG", "EMLINK", "EBUSY"),
}


@pytest.mark.parametrize("code", sorted(errno.errorcode))
def test_every_error_of_the_operating_system_is_one_line(
    code: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At open, read, write, rename and listing: 2 for a wrong path, 1 where storage failed under a running job."""
    expected = 2 if errno.errorcode[code] in USER_CODES else 1

    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code), "some/path")

    def unnamed(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    (tmp_path / "a").write_text("x")
    operations: dict[str, Callable[[], object]] = {
        "open": lambda: files.open_regular_file(tmp_path / "a"),
        "read": lambda: files.read_file(tmp_path / "a"),
        "write": lambda: files.write_text(tmp_path / "b", "x"),
        "rename": lambda: files.write_text(tmp_path / "b", "x"),
        "listing": lambda: list(os.scandir(tmp_path)),
        "anything": unnamed,
    }

    class Unreadable(io.FileIO):
        """A file whose storage fails."""

        read = fail  # type: ignore[assignment]

    patches: dict[str, tuple[object, str]] = {
        "open": (files.os, "open"),
        "write": (files.os, "fsync"),
        "rename": (files.os, "replace"),
    }
    for name, operation in operations.items():
        with monkeypatch.context() as patch:
            if name in patches:
                patch.setattr(*patches[name], fail)
            if name == "read":
                patch.setattr(files.os, "fdopen", Unreadable)
            if name == "listing":
                patch.setattr(os, "scandir", fail)
            verb = cli.VERBS["verify"]
            patch.setitem(cli.VERBS, "verify", replaced(verb, lambda args, operation=operation: operation()))
            assert cli.main(["verify", "x"]) == expected, name
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("bert-jax verify: ")
        assert err.count("\n") == 1
        assert os.listdir(tmp_path) == ["a"]  # nothing half-written is left


def replaced(verb: object, run: Callable[[object], object]) -> object:
    import dataclasses

    return dataclasses.replace(verb, run=run)  # type: ignore[type-var]


def test_contexts_keep_the_status() -> None:
    for context in (reading, writing):
        for code, kind in ((errno.EIO, StorageError), (errno.ESTALE, StorageError), (errno.EACCES, UserError)):
            with pytest.raises(UserError) as error, context("x"):
                raise OSError(code, os.strerror(code))
            assert type(error.value) is kind
            assert str(error.value).startswith("x: cannot be ")
    assert file_error(OSError(errno.EMFILE, "Too many open files", "x")).status == 1


# Names of values in the help of options that are paths.
PATHS = {"GLOB", "DIR", "FILE", "PATH", "PLACE", "CORPUS", "RECIPE", "WORKDIR"}


def test_the_trials_give_odd_paths_to_every_option() -> None:
    """`benchmarks/odd_place_commands.py` has a row for each option of each verb that takes a path."""
    import argparse

    odd_places = pytest.importorskip("benchmarks.odd_place_commands")
    rows = {*odd_places.INPUTS, *odd_places.OUTPUTS}
    for name, verb in cli.VERBS.items():
        parser = argparse.ArgumentParser()
        verb.add_options(parser)
        for action in parser._actions:
            if action.metavar in PATHS:
                option = (action.option_strings or [action.metavar])[0]
                assert f"{name} {option}" in rows


def test_every_printed_name_is_escaped() -> None:
    """No module prints a text that may hold a stranger's name, except through `escaped`, `shown` or JSON."""
    plain = re.compile(r"^ +print\((?!escaped\(|json|shown\().+\)$")
    package = pathlib.Path(files.__file__).parent
    lines = {
        line.strip()
        for path in package.rglob("*.py")
        for line in path.read_text().splitlines()
        if plain.match(line) and not re.search(r"bert-jax \{|\{count:,\}", line)  # messages of the boundary; counts
    }
    assert lines == {
        "print(server.getsockname()[1], flush=True)",
        'print(completion_script(verbs, args.shell), end="")',  # names of verbs and options
        "print(error, file=sys.stderr)",  # of a UserError, whose text is escaped
        'print(f"bert-jax: the cache is {directory}, since {reason}; XDG_CACHE_HOME chooses another", file=sys.stderr)',
    }


@pytest.mark.parametrize("error", [TypeError, RuntimeError, ValueError])
def test_a_library_that_cannot_open_a_name_is_one_line(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(args: object) -> None:
        raise error("incompatible constructor arguments")

    monkeypatch.setitem(cli.VERBS, "verify", replaced(cli.VERBS["verify"], fail))
    assert cli.main(["verify", os.fsdecode(b"caf\xe9")]) == 2
    assert capsys.readouterr().err == (
        "bert-jax verify: caf\\xe9: this name is not UTF-8, and a library cannot open it; rename it (mv)\n"
    )
    with pytest.raises(error):  # a bug keeps its traceback
        cli.main(["verify", "caf\u00e9"])


def test_a_work_directory_whose_name_is_not_utf_8_is_refused(tmp_path: pathlib.Path) -> None:
    from bert_jax.training.remote_workdir import checkpoints_directory

    with pytest.raises(UserError, match=r"caf\\xe9: this name is not UTF-8; rename the directory"):
        checkpoints_directory(tmp_path / os.fsdecode(b"caf\xe9"))
    assert checkpoints_directory(tmp_path / "caf\u00e9").parent == tmp_path / "caf\u00e9"


def overlapping(count: int) -> bytes:
    """A zip archive whose entries all name the bytes of one member."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", b"a bad cab " * 1000)
    data = buffer.getvalue()
    start = data.index(b"PK\x01\x02")
    end = data.index(b"PK\x05\x06")
    entry = data[start:end]
    tail = bytearray(data[end:])
    tail[8:12] = struct.pack("<HH", count, count)
    tail[12:16] = struct.pack("<L", len(entry) * count)
    return data[:start] + entry * count + bytes(tail)


def test_members_of_a_zip_share_no_bytes() -> None:
    with (
        zipfile.ZipFile(io.BytesIO(overlapping(2))) as archive,
        pytest.raises(zipfile.BadZipFile, match="shares bytes"),
    ):
        refuse_overlapping_members(archive)
    with pytest.raises(zipfile.BadZipFile, match="shares bytes"):
        list(open_file_or_members("x.zip", io.BytesIO(overlapping(60_000))))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for index in range(100):
            archive.writestr(f"{index}.txt", b"x" * index)
    assert len(list(open_file_or_members("x.zip", buffer))) == 100


def test_members_count_as_unpacked_bytes() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for index in range(1000):
            archive.writestr(f"{index}", b"")
    with pytest.raises(UserError, match="unpack to more than"):
        list(open_file_or_members("x.zip", _Small(buffer.getvalue()), 1))


class _Small(io.BytesIO):
    """A file that says that it has a byte, so that the limit is low."""

    def seek(self, offset: int, whence: int = 0) -> int:
        """Seek as `io.BytesIO.seek`."""
        super().seek(offset, whence)
        return 1 if whence == 2 and offset == 0 else self.tell()


ENVIRONMENTS: dict[str, dict[str, str]] = {
    "no HOME": {"HOME": ""},
    "HOME that does not exist": {"HOME": "/proc/absent"},
    "cache that is a file": {"XDG_CACHE_HOME": __file__},
    "cache that cannot be made": {"XDG_CACHE_HOME": "/proc/absent"},
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_cache_is_private_where_the_user_has_none(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(files.tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for variable, value in ENVIRONMENTS[name].items():
        monkeypatch.setenv(variable, value)
    files._first_writable_cache.cache_clear()
    directory = files.user_cache()
    assert directory == files.user_cache()
    assert directory.parent == tmp_path
    assert directory.stat().st_mode & 0o777 == 0o700
    assert capsys.readouterr().err.count("\n") == 1
    # The remedy works word for word.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "chosen"))
    assert files.user_cache() == tmp_path / "chosen" / "bert_jax"
    files._first_writable_cache.cache_clear()


def test_another_user_cannot_lend_a_cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "")
    taken = tmp_path / f"bert_jax-{os.getuid()}"
    (tmp_path / "elsewhere").mkdir()
    for make in (lambda: taken.symlink_to("elsewhere"), lambda: (taken.mkdir(), taken.chmod(0o777))):
        make()
        files._first_writable_cache.cache_clear()
        directory = files.user_cache()
        assert directory != taken
        assert directory.stat().st_mode & 0o777 == 0o700
        taken.unlink() if taken.is_symlink() else taken.rmdir()
    files._first_writable_cache.cache_clear()


def test_streams_and_modules_of_the_working_directory(tmp_path: pathlib.Path) -> None:
    """Output that is full or closed is 1 with a line; modules beside the data are not imported."""
    for name in ("multiprocessing", "jax", "numpy", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the working directory')\n")
    root = pathlib.Path(files.__file__).parents[1]
    bert_jax = f"{sys.executable} -c 'import sys; sys.path.pop(0); from bert_jax.__main__ import run; sys.exit(run())'"
    bert_jax_m = f"{sys.executable} -m bert_jax"
    for command, status, says in (
        (f"{bert_jax_m} config >/dev/full", 1, "standard output: cannot be written (No space left on device)"),
        (f"{bert_jax} config >&-", 1, "standard output: cannot be written (Bad file descriptor)"),
        (f"PYTHONIOENCODING=ascii {bert_jax} verify caf\u00e9", 2, "caf\\u00e9: no such directory"),
        (f"{bert_jax} verify \"$(printf 'a\\033[31m\\377')\"", 2, "a\\x1b[31m\\xff: no such directory"),
    ):
        environment = os.environ | {"PYTHONPATH": str(root)}
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, check=False)
        assert done.returncode == status, done.stderr
        assert says in done.stderr.decode()
        assert done.stderr.count(b"\n") == 1
