"""The package versions at the start of a run: `requirements.lock` of a work directory, a constraint file of pip."""

import contextlib
import functools
import importlib.metadata
import pathlib
import platform
import re
from collections.abc import Callable
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from bert_jax import strict_json
from bert_jax.errors import writing
from bert_jax.files import read_file, write_text

LOCK = "requirements.lock"
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)$", re.MULTILINE)
MAX_NAMES = 8  # maximum number of differences that are printed


def write_or_compare_versions(workdir: pathlib.Path, say: Callable[[str], None]) -> None:
    """Write the installed versions into the work directory of a new run; for a resumed run, print changed versions.

    Raises:
        UserError: the file cannot be written.
    """
    path = workdir / LOCK
    if path.exists():
        _print_changed_versions(path, say)
        return
    about = f"# This run began with these, for `pip install --constraint`, and Python {platform.python_version()}"
    pins = [f"{name}=={version}" for name, version in sorted(installed_versions("bert-jax").items())]
    with writing(path, "make room, or choose another --workdir"):
        write_text(path, "\n".join([about, *pins, ""]))


def _print_changed_versions(path: pathlib.Path, say: Callable[[str], None]) -> None:
    """Print the packages whose installed versions differ from the versions in a constraint file."""
    try:
        locked = PIN.findall(read_file(path, strict_json.MAX_BYTES).decode())
    except (OSError, ValueError) as error:  # the run continues if the file is damaged
        say(f"{path}: cannot be read ({error}); remove it, and the next start writes it again")
        return
    present = [(name, old, _public_version(name)) for name, old in locked]
    changed = [f"{name} {old} -> {new}" for name, old, new in present if new not in (old, None)]
    if changed:
        rest = f" and {len(changed) - MAX_NAMES} more" if len(changed) > MAX_NAMES else ""
        say(
            f"the run began with other versions ({', '.join(changed[:MAX_NAMES])}{rest}): install with "
            f"`--constraint {path}` to restore them, or remove this file to keep the new versions"
        )


def installed_versions(root: str) -> dict[str, str]:
    """Return canonical name -> version of the installed packages that `root` needs, directly, indirectly or for extras.

    The result includes `root` if `root` came from a package index, not from a path or a repository (PEP 610). The
    result is {} if `root` is not installed as a package.
    """
    if _public_version(root) is None:
        return {}
    versions, seen = dict[str, str](), set[_NeededPackage]()
    all_extras = importlib.metadata.metadata(root).get_all("Provides-Extra") or ()
    left = [_NeededPackage(root, frozenset(all_extras))]
    requirements_of = functools.cache(_requirements_of_package)  # packages may need one package with different extras
    while left:
        needed = left.pop()
        if needed in seen:
            continue
        seen.add(needed)
        version = _public_version(needed.name)
        if version is None:  # the package of an extra or of a different platform is not installed
            continue
        if needed.name != root or _is_from_index(root):
            versions[needed.name] = version
        left += [
            _NeededPackage(canonicalize_name(requirement.name), frozenset(requirement.extras))
            for requirement in requirements_of(needed.name)
            if _is_needed(requirement, needed.extras)
        ]
    return versions


def _public_version(name: str) -> str | None:
    """Return the public part of the version of a package; None if the package is not installed.

    The local part of a version, such as `+cpu`, may be unknown to a package index.
    """
    try:
        return importlib.metadata.version(name).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


class _NeededPackage(NamedTuple):
    """The name of a required package, and the extras that are requested of it."""

    name: str
    extras: frozenset[str]


def _is_from_index(name: str) -> bool:
    """Return whether a package came from an index; a checkout on the path has neither RECORD nor direct_url.json."""
    package = importlib.metadata.distribution(name)
    return bool(package.read_text("RECORD")) and package.read_text("direct_url.json") is None


def _requirements_of_package(name: str) -> list[Requirement]:
    """Return the requirements of an installed package, without malformed texts, which an old package may have."""
    requirements = []
    for text in importlib.metadata.requires(name) or ():
        with contextlib.suppress(InvalidRequirement):
            requirements.append(Requirement(text))
    return requirements


def _is_needed(requirement: Requirement, extras: frozenset[str]) -> bool:
    """Return whether the marker of a requirement is true on this platform, with one of the extras or without any."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))
