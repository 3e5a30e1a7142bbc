"""Models, tokenizers and data sets of the Hugging Face Hub by name: `owner/name` or `owner/name@revision`.

`huggingface_hub` downloads into its cache; with HF_HUB_OFFLINE=1, only the cache is read. bert_jax reads JSON files,
vocabularies and safetensors of a repository, but no code and no pickle files. The bytes of each file are compared with
the digest that the Hub has for the file.
"""

import difflib
import hashlib
import os
import pathlib
import re
from typing import NamedTuple

from bert_jax.errors import UserError
from bert_jax.files import sha256_of

# A branch, a tag or a commit may follow the name.
NAME = re.compile(r"([A-Za-z0-9][\w.-]*/[\w.-]+?)(?:@([\w./-]+))?")
TOKENIZER_FILES = ("*.json", "*.txt", "*.model")
DATA_FILES = ("*.parquet",)
WEIGHT_FILES = ("model*.safetensors", "*/model*.safetensors", "adapter_model.safetensors")
SHA256, GIT = re.compile("[0-9a-f]{64}"), re.compile("[0-9a-f]{40}")  # digests as names of files in the cache

UNAUTHORIZED = 401  # HTTP status, which the Hub also sends for a missing repository if there is no token


class HubName(NamedTuple):
    """A repository of the Hub."""

    repository: str
    revision: str | None  # None: the newest commit

    def __str__(self) -> str:
        return f"{self.repository}{f'@{self.revision}' if self.revision else ''}"


def parse_hub_name(path: str | os.PathLike[str]) -> HubName | None:
    """Return the parsed name for a text `owner/name` or `owner/name@revision` of the Hub; return None for a path.

    A text is a path if a file or directory of this name exists, or if the part before the slash is a directory.
    """
    text = os.fspath(path)
    match = NAME.fullmatch(text)
    if not match or ".." in text or os.path.exists(text) or os.path.isdir(text.partition("/")[0]):
        return None
    return HubName(match[1], match[2])


def local_or_downloaded_model(path: str | os.PathLike[str]) -> pathlib.Path:
    """Return a path unchanged; for a name of the Hub, download the model and return its directory in the cache."""
    name = parse_hub_name(path)
    return pathlib.Path(path) if name is None else _download_repository(name, (*TOKENIZER_FILES, *WEIGHT_FILES))


def local_or_downloaded_tokenizer(path: str | os.PathLike[str]) -> pathlib.Path:
    """Return a path unchanged; for a name of the Hub, download the tokenizer and return its directory in the cache."""
    name = parse_hub_name(path)
    return pathlib.Path(path) if name is None else _download_repository(name, TOKENIZER_FILES)


def download_data_set(repository: str) -> pathlib.Path:
    """Download the Parquet files of a data set of the Hub, and return their directory in the cache."""
    return _download_repository(HubName(repository, None), DATA_FILES, "dataset")


def hub_name_of_snapshot(directory: pathlib.Path) -> HubName | None:
    """Return the Hub name and the commit of a model directory in the cache; return None for any other directory."""
    repository, folder, commit = directory.absolute().parts[-3:]
    if folder != "snapshots" or not repository.startswith("models--"):
        return None
    return HubName(repository.removeprefix("models--").replace("--", "/", 1), commit)


def make_local_path_absolute(path: str | None) -> str | None:
    """Return a path as an absolute path; return a URL, a name of the Hub, or None unchanged."""
    if not path:
        return None
    return path if "://" in path or parse_hub_name(path) else os.path.abspath(path)


def push_to_hub(directory: pathlib.Path, repository: str) -> str:
    """Upload a directory to a model repository of the Hub, which is created if missing; return the URL of the commit.

    Raises:
        UserError: the name or the token is wrong, or the Hub does not answer.
    """
    import huggingface_hub

    try:
        huggingface_hub.create_repo(repository, exist_ok=True)
        return str(
            huggingface_hub.upload_folder(
                repo_id=repository, folder_path=directory, commit_message="Upload with bert_jax"
            )
        )
    except Exception as error:  # the HTTP library raises its own types
        raise UserError(
            f"--push_to_hub {repository}: {_first_line(error)}; {directory} is complete: correct the name or the token "
            "(HF_TOKEN), and upload it again"
        ) from None


def _download_repository(name: HubName, patterns: tuple[str, ...], kind: str = "model") -> pathlib.Path:
    """Download the files of a repository that the cache lacks, and return their directory in the cache.

    Raises:
        UserError: the repository or the revision does not exist, access or connection fails, or a digest is wrong.
    """
    from huggingface_hub import errors, snapshot_download

    try:
        path = snapshot_download(name.repository, repo_type=kind, revision=name.revision, allow_patterns=[*patterns])
    except errors.GatedRepoError:
        raise UserError(
            f"{name}: the Hub asks for its terms to be accepted; accept them on the page of the model, and set HF_TOKEN"
        ) from None
    except errors.RevisionNotFoundError:
        raise UserError(f"{name}: the Hub has no revision {name.revision} of {name.repository}") from None
    except (errors.RepositoryNotFoundError, errors.HFValidationError):
        raise _not_found_error(name, kind) from None
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled):
        raise UserError(
            f"{name}: no such directory, and not in the cache of the Hub, which does not answer or is switched off "
            f"(HF_HUB_OFFLINE){_similar_cached_names_hint(name)}"
        ) from None
    except Exception as error:  # the HTTP library raises its own types
        if isinstance(error, errors.HfHubHTTPError) and error.response.status_code == UNAUTHORIZED:
            raise _not_found_error(name, kind) from None
        raise UserError(f"{name}: the download failed ({_first_line(error)}); the same command continues it") from None
    directory = pathlib.Path(path)
    _check_digests(directory, name)
    if set(WEIGHT_FILES) <= {*patterns} and not any(directory.rglob("*.safetensors")):
        raise UserError(f"{name}: no safetensors in the repository; other weights are not read from the Hub")
    return directory


def _not_found_error(name: HubName, kind: str) -> UserError:
    """Return the error for a name that is unknown to the Hub, or that the Hub shows only to users with a token."""
    return UserError(
        f"{name}: no such directory, and no such {kind} on the Hub (a private {kind} needs HF_TOKEN)"
        f"{_similar_cached_names_hint(name)}"
    )


def _check_digests(directory: pathlib.Path, name: HubName) -> None:
    """Remove a file whose digest differs from the digest of the Hub, and raise UserError.

    The name of a file in the cache is its digest: SHA-256 of a large file, git's digest of a small file.
    """
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        blob = pathlib.Path(os.path.realpath(path))
        if SHA256.fullmatch(blob.name):
            digest = sha256_of(blob)
        elif GIT.fullmatch(blob.name):
            content = blob.read_bytes()
            digest = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        else:
            continue
        if digest != blob.name:
            path.unlink()
            blob.unlink(missing_ok=True)
            raise UserError(
                f"{name}: {path.name} has another digest than the Hub says; it was removed, repeat the command"
            )


def _similar_cached_names_hint(name: HubName) -> str:
    """Return the end of a message, with the cached names that are most similar to `name`; '' if there are none."""
    from huggingface_hub import constants

    folders = pathlib.Path(constants.HF_HUB_CACHE).glob("models--*--*")
    cached = [folder.name.removeprefix("models--").replace("--", "/", 1) for folder in folders]
    near = difflib.get_close_matches(name.repository, cached, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
