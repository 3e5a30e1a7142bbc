"""Read and write the work directory of a run, a path, gs://BUCKET/NAME or s3://BUCKET/NAME, for the launchers.

python3 launch/workdir.py check WORKDIR         check whether WORKDIR can be a work directory
python3 launch/workdir.py progress WORKDIR      print the step of the newest checkpoint and the last step of the run
python3 launch/workdir.py read WORKDIR NAME     print a file; print nothing if it does not exist
python3 launch/workdir.py write WORKDIR NAME    write the standard input to a file, which appears whole or not at all

Exit status: 0 for success, 1 if the storage fails, 2 for a mistake of the user; `progress` also exits with 1 if the
last step is not saved yet. For a path, only the standard library is needed, since bert_jax may be installed elsewhere;
for gs://, gcsfs is needed, and for s3://, s3fs.
"""

from __future__ import annotations

import json
import logging
import pathlib
import re
import sys
from typing import Any

# The last file of a checkpoint in a bucket. At a path, a checkpoint is complete when its directory has its final name.
COMMITTED = "commit_success.txt"
PACKAGES = {"gs": "gcsfs", "s3": "s3fs"}  # the package for each protocol


def refusal(workdir: str) -> str:
    """Return the reason why a path or URL cannot be a work directory; "" if it can."""
    if re.match(r"\w+:/", workdir) and not re.match(r"(gs|s3)://[^/]+/+[^/]", workdir):
        return "a work directory is gs://BUCKET/NAME, s3://BUCKET/NAME or a path"
    if not in_bucket(workdir):
        return ""
    try:
        import fsspec

        fsspec.get_filesystem_class(workdir[:2])
    except ImportError as error:
        package = PACKAGES[workdir[:2]]
        return f"{workdir[:2]}:// needs {package}: pip install 'bert-jax[storage]' for {sys.executable} ({error})"
    return ""


def in_bucket(workdir: str) -> bool:
    """Return whether the work directory is a URL of a bucket."""
    return "://" in workdir


def storage(workdir: str, name: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path of a file there."""
    from fsspec.core import url_to_fs

    logging.disable()  # gcsfs would print the traceback of an error that is reported below
    system, root = url_to_fs(workdir.rstrip("/"))
    return system, f"{root}/{name}"


def read(workdir: str, name: str) -> bytes:
    """Return the content of a file, or b"" if there is no such file."""
    try:
        if in_bucket(workdir):
            system, path = storage(workdir, name)
            return bytes(system.cat_file(path))
        return pathlib.Path(workdir, name).read_bytes()
    except FileNotFoundError:
        return b""


def write(workdir: str, name: str, content: bytes) -> None:
    """Write a file, which appears complete or not at all; only one process may write a file of a given name."""
    if in_bucket(workdir):
        system, path = storage(workdir, name)
        system.pipe_file(path, content)
        return
    target = pathlib.Path(workdir, name)
    partial = target.with_name(f".{target.name}.partial")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial.write_bytes(content)
    partial.replace(target)


def saved_steps(workdir: str) -> list[int]:
    """Return the step numbers of the complete checkpoints in a work directory."""
    if in_bucket(workdir):
        system, path = storage(workdir, "checkpoints")
        found = [re.fullmatch(rf"(\d+)/{COMMITTED}", name[len(path) + 1 :]) for name in system.find(path)]
        return [int(one[1]) for one in found if one]
    directory = pathlib.Path(workdir, "checkpoints")
    return [int(path.name) for path in directory.iterdir() if path.name.isdigit()] if directory.exists() else []


def progress(workdir: str) -> tuple[int, int]:
    """Return the step of the newest checkpoint, and the last step of the run; 0 for a number that is not known yet."""
    try:
        steps = int(json.loads(read(workdir, "run.json"))["config"]["train"]["steps"])
    except (ValueError, KeyError, TypeError):
        return 0, 0
    return max(saved_steps(workdir), default=0), steps


def main(verb: str, workdir: str, name: str = "") -> int:
    """Run the verb that the command line names; return the exit status."""
    if reason := refusal(workdir):
        print(f"workdir.py: {workdir}: {reason}", file=sys.stderr)
        return 2
    try:
        if verb == "progress":
            newest, last = progress(workdir)
            print(newest, last)
            return 0 if newest >= last > 0 else 1
        if verb == "read":
            sys.stdout.buffer.write(read(workdir, name))
        if verb == "write":
            write(workdir, name, sys.stdin.buffer.read())
    except Exception as error:  # each package has its own exceptions
        print(f"workdir.py: {workdir}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) != {"check": 3, "progress": 3, "read": 4, "write": 4}.get("".join(sys.argv[1:2])):
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main(*sys.argv[1:]))
