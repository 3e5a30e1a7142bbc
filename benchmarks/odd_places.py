"""Give odd files and odd paths to every path option of every verb, and check that each verb ends with a message.

    python -m benchmarks.odd_places --output odd_places.jsonl

A trial is a verb with one path that is odd: the path of an option, or the path of a file inside a model, tokenizer,
corpus, work directory or task that a stranger made. A trial passes if the verb ends within `SECONDS`, without a
traceback, and prints a line if its status is not 0. Most trials run in a fork of this process, which has imported all
modules; one of every `NEW_PYTHON` trials starts Python again. All trials share the programs that JAX compiles. Outcomes
are appended to --output as JSON lines, and a trial whose outcome is there is not repeated. The exit status is 1 if a
trial fails. If the program runs as root, it also tries the permissions of a user without rights, and a full disk.
"""

import argparse
import collections
import ctypes
import importlib
import itertools
import json
import os
import pathlib
import pkgutil
import re
import shutil
import socket
import stat
import sys
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax

import bert_jax
from benchmarks.faults.__main__ import in_processes
from benchmarks.faults.world import Ended, Running, World, start
from benchmarks.odd_place_commands import HONEST, INPUTS, OUTPUTS, TEXT, make_odd_world

SECONDS = 60.0  # limit of a trial
MEMORY = 8 << 30  # bytes of address space of a trial
NEW_PYTHON = 97  # one of so many trials starts Python again
# Libraries that the verbs import late.
LIBRARIES = ("datatrove.pipeline.filters", "matplotlib.pyplot", "sklearn.metrics", "tensorboardX.event_file_writer")
# JAX stores every program that it compiles.
STORE_PROGRAMS: dict[str, Any] = {
    "jax_platforms": "cpu",
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
NOBODY = 65534  # user and group of the trials of permissions
OUTCOMES = ("worked", "refused", "silent", "traceback", "hung")
FAILURES = ("silent", "traceback", "hung")
STATUSES = (0, 1, 2)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # of a terminal; a line of progress uses none elsewhere
# Part of a file name that differs from run to run; of the files that differ in such parts, the trials take the last.
KIND_OF_NAME = re.compile(r"\b[0-9a-f]{32}\b|\d{3,}|(?<=checkpoints/)\d+|events.*")


class Trial(NamedTuple):
    """A verb whose arguments contain an odd path; `user` is the user id that the verb runs as."""

    name: str
    argv: list[str]
    user: int = 0


def start_honest(world: World, scratch: pathlib.Path) -> Iterator[tuple[str, Ended]]:
    """Start the verb of each row of `HONEST`; yield the row and how the process ended."""
    for index, (row, name) in enumerate(HONEST.items()):
        here = scratch / f"trial{index}"
        here.mkdir(parents=True)
        words = [word.replace("ODD", f"{world.directory / name}") for word in INPUTS[row](world)]
        yield row, start([word.replace("OUT", f"{here}/x") for word in words], here).wait()


def odd_inputs(scratch: pathlib.Path) -> Iterator[tuple[str, str, int]]:
    """Make odd paths to read; yield the kind, the path and the user."""
    yield "absent", f"{scratch}/absent", 0
    yield "empty name", "", 0
    yield "name too long", f"{scratch}/{'n' * 300}", 0
    yield "path too long", f"{scratch}/{'n/' * 3000}x", 0
    yield "not a directory", f"{file_at(scratch / 'plain', TEXT)}/x", 0
    os.symlink("loop", scratch / "loop")
    yield "link to itself", f"{scratch}/loop", 0
    yield "link to nothing", f"{link_at(scratch / 'dangling', 'nowhere')}", 0
    yield "socket", f"{socket_at(scratch / 'socket')}", 0
    yield "/dev/null", "/dev/null", 0
    yield "/dev/full", "/dev/full", 0
    yield "/proc/self/mem", "/proc/self/mem", 0
    (scratch / "empty").mkdir()
    yield "empty directory", f"{scratch}/empty", 0
    yield "empty file", f"{file_at(scratch / 'empty.txt', '')}", 0
    yield "plain file", f"{file_at(scratch / 'plain.txt', TEXT)}", 0
    yield "name that is not UTF-8", f"{file_at(scratch / os.fsdecode(b'caf' + bytes([0xE9])), TEXT)}", 0
    yield "name with escapes", f"{file_at(scratch / chr(27) / '[31mred', TEXT)}", 0
    yield "absent name with escapes", f"{scratch}/\x1b[31mabsent\x07", 0
    yield "absent name that is not UTF-8", f"{scratch}/{os.fsdecode(bytes([0xE9, 0x9B]))}", 0
    if os.getuid() == 0:
        yield "file without permission", f"{mode_of(file_at(scratch / 'closed', TEXT), 0)}", NOBODY
        yield "directory without permission", f"{mode_of(directory_at(scratch / 'shut'), 0)}", NOBODY
        yield "below a directory without permission", f"{scratch}/shut/x", NOBODY
        yield "directory that may be listed only", f"{mode_of(directory_at(scratch / 'listed'), 0o444)}", NOBODY


def odd_outputs(scratch: pathlib.Path) -> Iterator[tuple[str, str, int]]:
    """Make odd paths to write; yield the kind, the path and the user."""
    yield "empty name", "", 0
    yield "name too long", f"{scratch}/{'n' * 300}", 0
    yield "path too long", f"{scratch}/{'n/' * 3000}x", 0
    yield "name of 250 letters", f"{scratch}/{'n' * 250}", 0
    yield "below a file", f"{file_at(scratch / 'plain', TEXT)}/x", 0
    os.symlink("loop", scratch / "loop")
    yield "link to itself", f"{scratch}/loop", 0
    yield "below a link to itself", f"{scratch}/loop/x", 0
    yield "link to nothing", f"{link_at(scratch / 'dangling', 'nowhere/x')}", 0
    yield "socket", f"{socket_at(scratch / 'socket')}", 0
    os.mkfifo(scratch / "pipe")
    yield "pipe", f"{scratch}/pipe", 0
    yield "device", f"{full_device_at(scratch / 'device')}", 0
    yield "/proc", "/proc/x", 0
    yield "directory that is not empty", f"{scratch}", 0
    yield "below an absent directory", f"{scratch}/absent/x", 0
    yield "name that is not UTF-8", f"{scratch}/{os.fsdecode(bytes([0xE9, 0x9B]))}", 0
    yield "name with escapes", f"{scratch}/\x1b[31mred", 0
    if os.getuid() == 0:
        yield "read-only directory", f"{mode_of(directory_at(scratch / 'read'), 0o555)}/x", NOBODY
        yield "directory without permission", f"{mode_of(directory_at(scratch / 'shut'), 0)}/x", NOBODY
        if full := full_disk(scratch / "full"):
            yield "full disk", f"{full}/x", 0


def file_at(path: pathlib.Path, text: str) -> pathlib.Path:
    """Write a text file, and return its path."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def link_at(path: pathlib.Path, target: str) -> pathlib.Path:
    """Make a symbolic link, and return its path."""
    path.symlink_to(target)
    return path


def directory_at(path: pathlib.Path) -> pathlib.Path:
    """Make a directory with a file in it, and return its path."""
    path.mkdir()
    (path / "config.json").write_text("{}")
    (path / "a.txt").write_text(TEXT)
    return path


def mode_of(path: pathlib.Path, mode: int) -> pathlib.Path:
    """Set the permissions of a path, and return the path."""
    path.chmod(mode)
    return path


def socket_at(path: pathlib.Path) -> pathlib.Path:
    """Make a socket file, and return its path."""
    with socket.socket(socket.AF_UNIX) as server:
        before = os.getcwd()
        os.chdir(path.parent)  # the name of a socket has at most 107 bytes
        server.bind(path.name)
        os.chdir(before)
    return path


def full_device_at(path: pathlib.Path) -> pathlib.Path:
    """Make a device that is always full, so that no trial of root replaces /dev/full; return its path."""
    if os.getuid() == 0:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 7))
    else:
        path.symlink_to("/dev/full")
    return path


def enter_own_mounts() -> None:
    """Give this process its own mounts, so that every user can enter the directories of Python; needs root.

    The modules of Python may lie in the home of root, and a user without rights must import them.
    """
    libc, private = ctypes.CDLL(None), 1 << 18 | 16384
    if os.getuid() or libc.unshare(0x20000) or libc.mount(None, b"/", None, private, None):
        return
    python = pathlib.Path(sys.base_prefix)
    handle = os.open(python, os.O_PATH)
    for directory in reversed(python.parents):
        if not directory.stat().st_mode & 1 and not libc.mount(b"tmpfs", os.fsencode(directory), b"tmpfs", 0, b""):
            directory.chmod(0o755)
            python.mkdir(parents=True, exist_ok=True)
            libc.mount(b"/proc/self/fd/%d" % handle, os.fsencode(python), None, 4096, None)
    os.close(handle)


def full_disk(path: pathlib.Path) -> pathlib.Path | None:
    """Mount a file system of 16 KiB; return its directory, or None if this user may not mount."""
    path.mkdir(exist_ok=True)
    if not os.path.ismount(path):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", 0, b"size=16k"):
            return None
        path.chmod(0o777)
    return path


# ------------------------------------------------------------------------------------- files in strangers' directories

# An option that is a short form of a setting has no row: `--init_from`, `--corpus`.
READERS: dict[str, list[str]] = {  # field of World -> rows of INPUTS that read such a directory
    "model": [
        "fill-mask --model", "attention --model", "embed --model", "score --model", "bias --model", "export --workdir",
        "compress --model", "vocabulary --model", "pretrain init_from", "finetune init_from",
        "verify DIR",
    ],
    "tokenizer": ["prepare --tokenizer", "vocabulary --tokenizer", "verify DIR"],
    "corpus": [
        "inspect CORPUS", "inspect --against", "pretrain data.corpus", "evaluate --corpus",
        "pairs --corpus", "verify DIR",
    ],
    "run": [
        "evaluate --workdir", "plot --workdir", "report WORKDIR", "export --workdir", "fill-mask --model", "verify DIR",
    ],
    "tuned": ["predict --model", "report WORKDIR", "verify DIR"],
    "task": ["finetune task.data"],
}  # fmt: skip


def make_pipe(path: pathlib.Path) -> None:
    """Make a named pipe that nobody writes to."""
    os.mkfifo(path)


def link_to_pipe(path: pathlib.Path) -> None:
    """Make a link to a named pipe."""
    make_pipe(path.with_name("a pipe"))
    path.symlink_to("a pipe")


def large_file(path: pathlib.Path) -> None:
    """Make a sparse file of 1 TiB."""
    path.touch()
    os.truncate(path, 1 << 40)


def unreadable_file(path: pathlib.Path) -> None:
    """Make a file without permissions."""
    path.touch()
    path.chmod(0)


ODD_FILES: dict[str, Callable[[pathlib.Path], object]] = {
    "pipe": make_pipe,
    "link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "socket": socket_at,
    "directory": lambda path: path.mkdir(),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to a pipe": link_to_pipe,
    "1 TiB": large_file,
    "no permission": unreadable_file,
}


def files_of(directory: pathlib.Path) -> list[pathlib.Path]:
    """Return the files of a directory that are not empty; files of later checkpoints come later."""
    paths = [path for path in directory.rglob("*") if path.is_file() and path.stat().st_size]
    # Most files of the arrays of checkpoints, which one function checks for Orbax, and the second copy of a model.
    paths = [path for path in paths if not re.search(r"/state/(?!_METADATA|manifest)|/best-", f"{path}")]
    return sorted(paths, key=lambda path: [(len(part), part) for part in path.parts])


class OddCopy(NamedTuple):
    """A copy of a directory in which a file is odd, the user of its trials, and the INPUTS that read the copy."""

    kind: str
    directory: pathlib.Path
    user: int
    readers: list[str]


def odd_copies(world: World, field: str, scratch: pathlib.Path) -> Iterator[OddCopy]:
    """Yield copies of a directory of the world, each with an odd file in the place of one of its files."""
    source = getattr(world, field)
    sums = "SHA256SUMS"
    names = {KIND_OF_NAME.sub("*", f"{path.relative_to(source)}"): path for path in files_of(source)}
    for (shown, path), (kind, make), listed in itertools.product(names.items(), ODD_FILES.items(), (True, False)):
        has_sums = (path.parent / sums).exists()
        if not listed and not has_sums:
            continue
        target = scratch / f"{field} {shown} {kind} {listed}".replace("/", "_").replace("*", "_")
        shutil.copytree(source, target, symlinks=True)
        odd = target / path.relative_to(source)
        odd.unlink()
        if not listed:
            for file in target.rglob(sums):
                file.unlink()
        if odd.name == sums and not listed:
            shutil.rmtree(target)
            continue
        make(odd)
        # Files that SHA256SUMS lists are checked in one way before any verb reads them.
        readers = [READERS[field][0], READERS[field][-1]] if listed and has_sums else READERS[field]
        user = NOBODY if kind == "no permission" else 0
        yield OddCopy(f"{shown}: {kind}{'' if listed else ', without SHA256SUMS'}", target, user, readers)
        shutil.rmtree(target)
    # Names that a stranger wrote.
    if (source / sums).exists():
        for kind, name in {
            "escapes": "\x1b[31mred\x07",
            "NUL": "a\0b",
            "not UTF-8": os.fsdecode(b"\xff"),
            "long": "n" * 300,
        }.items():
            target = scratch / f"{field} {kind}"
            shutil.copytree(source, target)
            with open(target / sums, "a", errors="surrogateescape") as sums_file:
                sums_file.write(f"{'0' * 64}  {name}\n")
            yield OddCopy(f"{sums}: a name with {kind}", target, 0, READERS[field])
            shutil.rmtree(target)


# ------------------------------------------------------------------------------------------------------------- trials


def trials(world: World, scratch: pathlib.Path) -> Iterator[Trial]:
    """Yield every trial; the odd path of a trial exists until the next trial is taken."""
    for rows, make in ((INPUTS, odd_inputs), (OUTPUTS, odd_outputs)):
        places = fresh(scratch / "places")
        for kind, odd, user in make(places):
            for name, words in rows.items():
                out = fresh(scratch / "out")
                out.chmod(0o777)
                before = {*places.rglob("*")}
                argv = [with_suffix(word, odd, places).replace("OUT", f"{out}/x") for word in words(world)]
                yield Trial(f"{name}: {kind}", argv, user)
                # The next verb finds the place as it was.
                for path in sorted({*places.rglob("*")} - before, reverse=True):
                    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        unmount(places / "full")
    for field in READERS:
        for copy in odd_copies(world, field, fresh(scratch / "places")):
            for name in copy.readers:
                out = fresh(scratch / "out")
                out.chmod(0o777)
                given = [word.replace("ODD", f"{copy.directory}") for word in INPUTS[name](world)]
                argv = [word.replace("OUT", f"{out}/x") for word in given]
                yield Trial(f"{name}: {field}/{copy.kind}", argv, copy.user)


def with_suffix(word: str, odd: str, places: pathlib.Path) -> str:
    """Return an argument with an odd path in place of ODD; "ODD.html" becomes a link to the path, named *.html."""
    name, _, suffix = word.partition("ODD.")
    if not suffix or not odd:
        return word.replace("ODD", odd)
    if not os.path.lexists(odd) or os.path.isdir(odd):
        return f"{name}{odd}.{suffix}"
    link = places / f"link.{suffix}"
    link.symlink_to(odd)
    return f"{name}{link}"


def unmount(path: pathlib.Path) -> None:
    """Unmount the full disk, if it is mounted."""
    if os.path.ismount(path):
        ctypes.CDLL(None).umount(os.fsencode(path))


def fresh(path: pathlib.Path) -> pathlib.Path:
    """Return an empty directory, in a directory that every user may write."""
    for inner in path.glob("*"):
        if inner.is_dir() and not inner.is_symlink():
            inner.chmod(0o755)
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    path.parent.chmod(0o777)
    return path


def run(trial: Trial, scratch: pathlib.Path) -> dict[str, Any]:
    """Run a trial, and return its record."""
    here = fresh(scratch / "here")
    here.chmod(0o777)
    new_python = zlib.crc32(os.fsencode(trial.name)) % NEW_PYTHON == 0
    ended = start_as(trial.user, trial.argv, here, new_python).wait(20.0 if "--follow" in trial.argv else SECONDS)
    text = ended.text
    lines = [line for line in text.splitlines() if line.strip()]
    if ended.status is None:
        outcome = "worked" if "--follow" in trial.argv and "Traceback" not in text else "hung"
    elif "Traceback (most recent" in text or ended.status not in STATUSES or "Exception ignored" in text:
        outcome = "traceback"
    elif CONTROL.search(text.replace("\r", "")) or (ended.status and not lines):
        outcome = "silent"
    else:
        outcome = "refused" if ended.status else "worked"
    record = {"trial": trial.name, "outcome": outcome, "status": ended.status, "seconds": round(ended.seconds, 2)}
    record |= {"new_python": new_python}
    return record | {"text": text[-1500:], "argv": [ascii(word)[:200] for word in trial.argv]}


def start_as(user: int, argv: list[str], scratch: pathlib.Path, new_python: bool) -> Running:
    """Start a verb in another process, as another user if `user` is not 0."""
    if not user:
        return start(argv, scratch, memory=MEMORY, new_python=new_python)
    os.setresgid(NOBODY, NOBODY, 0)
    os.setresuid(user, user, 0)  # the fork keeps these ids; this process takes its own again
    try:
        return start(argv, scratch, memory=MEMORY, new_python=new_python)
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)


def main() -> int:
    """Run the trials that have no outcome yet; print the table and the failures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default="odd_places.jsonl", help="file for the outcomes, as JSON lines")
    parser.add_argument("--world", help="directory for the inputs of all trials, made once (default: temporary)")
    parser.add_argument("--only", default="", help="pattern of the names of the trials to run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="trials at a time (default: cores)")
    args = parser.parse_args()
    enter_own_mounts()
    preload()
    output = pathlib.Path(args.output)
    with tempfile.TemporaryDirectory(prefix="bert-jax-odd.") as name:
        scratch = pathlib.Path(name).resolve()
        scratch.chmod(0o755)
        directory = pathlib.Path(args.world or scratch / "world").resolve()
        world = made_world(directory)
        output.touch()
        failed = in_processes(args.jobs, lambda job: run_trials(world, scratch / f"work{job}", output, args, job))
    records = read_records(output).values()
    return report([record for record in records if re.search(args.only, record["trial"])]) or failed


def made_world(directory: pathlib.Path) -> World:
    """Return the world in a directory, made if it does not exist, and store the compiled programs of every verb.

    Raises:
        SystemExit: a verb fails with an honest input.
    """
    is_made = (directory / "made").exists()
    if not is_made:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
    store_programs(directory / "programs")
    if not is_made:
        world = make_odd_world(directory)
        with tempfile.TemporaryDirectory() as scratch:
            for row, ended in start_honest(world, pathlib.Path(scratch)):
                if ended.status:
                    raise SystemExit(f"{row} failed with an honest input:\n{ended.text}")
        (directory / "made").touch()
    return World(directory, *(directory / part for part in World._fields[1:]))


def read_records(output: pathlib.Path) -> dict[str, dict[str, Any]]:
    """Return name of a trial -> its record."""
    return {record["trial"]: record for record in map(json.loads, output.read_text().splitlines())}


def run_trials(world: World, scratch: pathlib.Path, output: pathlib.Path, args: argparse.Namespace, job: int) -> None:
    """Run every trial of a job that has no record; append the records to `output`."""
    done = read_records(output)
    with open(output, "a") as file:
        for position, trial in enumerate(trials(world, scratch)):
            if trial.name in done or not re.search(args.only, trial.name) or position % args.jobs != job:
                continue
            file.write(json.dumps(run(trial, scratch)) + "\n")
            file.flush()


def preload(libraries: Sequence[str] = LIBRARIES) -> None:
    """Import the modules of bert_jax and libraries that the verbs import late, so that no trial imports them."""
    warnings.filterwarnings("ignore", message=r"os\.fork")  # JAX has no threads when a process forks
    modules = [module.name for module in pkgutil.walk_packages(bert_jax.__path__, "bert_jax.")]
    for name in (*modules, *libraries):
        if not re.search(r"__main__|\.beam\b", name):  # Apache Beam needs an environment of its own
            importlib.import_module(name)


def store_programs(directory: pathlib.Path) -> None:
    """Let JAX store its compiled programs in a directory, for this process and for the processes that it starts."""
    directory.mkdir(exist_ok=True)
    directory.chmod(0o777)
    for name, value in (STORE_PROGRAMS | {"jax_compilation_cache_dir": str(directory)}).items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)


def report(records: list[dict[str, Any]]) -> int:
    """Print the table and the failures; return the exit status."""
    kinds: dict[str, collections.Counter[str]] = {}
    for record in records:
        verb = record["trial"].split(" ")[0]
        kinds.setdefault(verb, collections.Counter())[record["outcome"]] += 1
    print(f"| verb | trials | {' | '.join(OUTCOMES)} |")
    print("| --- " * (2 + len(OUTCOMES)) + "|")
    total = sum(kinds.values(), collections.Counter())
    for verb, counts in [*sorted(kinds.items()), ("all", total)]:
        print(f"| {verb} | {counts.total():,} | {' | '.join(f'{counts[outcome]:,}' for outcome in OUTCOMES)} |")
    failures = [record for record in records if record["outcome"] in FAILURES]
    for record in failures:
        print(f"\n{record['outcome']} (status {record['status']}): {record['trial']}\n{record['text'][-800:]!s}")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
