"""A stand-in of Cloud Storage on this machine: the part of its JSON API that a run uses, with answers that fail.

It runs in the tests' process and serves other processes as well; TensorStore, gcsfs and google-cloud-storage find it by
the environment. Writes and reads honor generations, without which TensorStore cannot update a file that two threads
write: gcp-storage-emulator 2026.7.19 ignores them.
"""

import contextlib
import http.server
import itertools
import json
import os
import re
import threading
import types
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

NAME = "bucket"
OBJECT = re.compile(rf"(?:/download|/upload)?/storage/v1/b/{NAME}/o(?:/([^/]+))?(?:/rewriteTo/b/{NAME}/o/([^/]+))?")
HEAD = re.compile(rb"\r?\n\r?\n")  # what ends the headers of a part


class Answer(NamedTuple):
    """Of a request."""

    status: int
    content: bytes = b""
    headers: Mapping[str, str] = types.MappingProxyType({})


def as_json(content: dict[str, Any]) -> Answer:
    return Answer(200, json.dumps(content).encode(), {"Content-Type": "application/json"})


class Bucket:
    """The bucket gs://bucket."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, int]] = {}  # name -> content, generation
        self.failing: list[tuple[re.Pattern[str], int]] = []  # requests that fail, and how many times; -1: always
        self.requests: list[str] = []
        self.uploads: dict[str, bytes] = {}  # name -> what has arrived
        self.generations = itertools.count(1)
        self.lock = threading.RLock()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def fail(self, pattern: str, times: int = -1) -> None:
        """Answer requests with 503."""
        self.failing.append((re.compile(pattern), times))

    def files(self, directory: str) -> dict[str, bytes]:
        """Name -> content of the objects below a directory."""
        return {
            name.removeprefix(f"{directory}/"): content
            for name, (content, _) in sorted(self.objects.items())
            if name.startswith(f"{directory}/")
        }

    def write(self, name: str, content: bytes) -> Answer:
        self.objects[name] = content, next(self.generations)
        return as_json(self.resource(name))

    def resource(self, name: str) -> dict[str, Any]:
        content, generation = self.objects[name]
        times = {"timeCreated": "2026-11-23T00:00:00.000Z", "updated": "2026-11-23T00:00:00.000Z"}
        found = {"kind": "storage#object", "bucket": NAME, "name": name, "size": str(len(content)), **times}
        return found | {"generation": str(generation), "metageneration": "1", "id": f"{NAME}/{name}/{generation}"}

    def answer(self, method: str, target: str, headers: Any, content: bytes) -> Answer:
        """The answer to a request, after what was asked to fail."""
        with self.lock:
            line = f"{method} {urllib.parse.unquote(target)}"
            self.requests.append(line)
            for number, (pattern, left) in enumerate(self.failing):
                if left and pattern.search(line):
                    self.failing[number] = pattern, left - 1
                    return Answer(503)
            url = urllib.parse.urlsplit(target)
            query = dict(urllib.parse.parse_qsl(url.query))
            if url.path.startswith("/batch"):
                return self.batch(content)
            if url.path == f"/storage/v1/b/{NAME}":
                return as_json({"kind": "storage#bucket", "name": NAME, "id": NAME, "location": "US"})
            found = OBJECT.fullmatch(url.path)
            assert found, line
            name, copy = (urllib.parse.unquote(one) if one else "" for one in found.groups())
            if method == "POST":
                if copy:
                    self.write(copy, self.objects[name][0])
                    return as_json({"done": True, "resource": self.resource(copy)})
                return self.upload(query, headers, content)
            if not name:
                return self.list(query)
            if refusal := self.mismatch(name, query):
                return refusal
            if name not in self.objects:
                return Answer(404)
            if method == "DELETE":
                del self.objects[name]
                return Answer(204)
            return self.read(name, headers) if query.get("alt") == "media" else as_json(self.resource(name))

    def mismatch(self, name: str, query: dict[str, str]) -> Answer | None:
        generation = self.objects.get(name, (b"", 0))[1]
        if int(query.get("ifGenerationMatch", generation)) != generation:
            return Answer(412)
        return Answer(304) if generation and query.get("ifGenerationNotMatch") == str(generation) else None

    def read(self, name: str, headers: Any) -> Answer:
        content, generation = self.objects[name]
        more = {"x-goog-generation": str(generation), "Content-Type": "application/octet-stream"}
        if not (found := re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("Range") or "")):
            return Answer(200, content, more)
        first, last = int(found[1]), min(int(found[2] or len(content)), len(content) - 1)
        if first >= len(content):
            return Answer(416)
        return Answer(206, content[first : last + 1], more | {"Content-Range": f"bytes {first}-{last}/{len(content)}"})

    def list(self, query: dict[str, str]) -> Answer:
        prefix, end = query.get("prefix", ""), query.get("delimiter", "")
        below = [name for name in sorted(self.objects) if name.startswith(prefix)]
        direct = [name for name in below if not end or end not in name[len(prefix) :]]
        folders = {prefix + name[len(prefix) :].partition(end)[0] + end for name in below if name not in direct}
        items = [self.resource(name) for name in direct]
        return as_json({"kind": "storage#objects", "items": items, "prefixes": sorted(folders)})

    def upload(self, query: dict[str, str], headers: Any, content: bytes) -> Answer:
        kind, name = query["uploadType"], query.get("name", "")
        if kind == "multipart":
            boundary = headers["Content-Type"].partition("boundary=")[2].strip('"').encode()
            described, content = (HEAD.split(part, 1)[1] for part in content.split(b"--" + boundary)[1:3])
            name, content = json.loads(described)["name"], content.removesuffix(b"\n").removesuffix(b"\r")
        elif kind == "resumable" and "upload_id" not in query:
            name = name or json.loads(content)["name"]
            self.uploads[name] = b""
            place = f"/upload/storage/v1/b/{NAME}/o?{urllib.parse.urlencode({'upload_id': name, **query})}"
            return Answer(200, b"", {"Location": f"{self.address}{place}"})
        elif kind == "resumable":
            name = query["upload_id"]
            self.uploads[name] += content
            if headers["Content-Range"].endswith("/*"):
                return Answer(308, b"", {"Range": f"bytes=0-{len(self.uploads[name]) - 1}"})
            content = self.uploads.pop(name)
        return self.mismatch(name, query) or self.write(name, content)

    def batch(self, content: bytes) -> Answer:
        parts = []
        for target in re.findall(rb"DELETE (\S+) HTTP/1.1", content):
            status = self.answer("DELETE", target.decode(), {}, b"").status
            parts.append(f"--part\r\nContent-Type: application/http\r\n\r\nHTTP/1.1 {status} X\r\n\r\n\r\n")
        text = "".join(parts) + "--part--"
        return Answer(200, text.encode(), {"Content-Type": "multipart/mixed; boundary=part"})

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """What makes the packages use this server; the last keeps gcsfs from asking Google for the kind of bucket."""
        return {
            "STORAGE_EMULATOR_HOST": self.address,
            "TENSORSTORE_GCS_HTTP_URL": self.address,
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "test",
            "FSSPEC_GCS_TOKEN": "anon",
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        }

    def process_environment(self, cache: Any) -> dict[str, str]:
        """The environment of a process on another machine, which has its own cache."""
        return os.environ | self.environment | {"XDG_CACHE_HOME": str(cache)}


def handler(bucket: Bucket) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        """Hands each request to the bucket."""

        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, content, headers = bucket.answer(self.command, self.path, self.headers, content)
            self.send_response(status)
            for name, value in ({**headers, "Content-Length": str(len(content))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = respond

        def handle_one_request(self) -> None:
            with contextlib.suppress(ConnectionError):
                super().handle_one_request()

        def log_message(self, *words: Any) -> None:
            """Say nothing of a request."""

    return Handler


@contextlib.contextmanager
def served() -> Iterator[Bucket]:
    """A new bucket, which this process uses, and those that it starts."""
    bucket = Bucket()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in bucket.environment.items():
            patch.setenv(name, value)
        import fsspec
        import gcsfs  # which reads the environment

        patch.setitem(fsspec.config.conf, "gcs", {"token": "anon", "use_listings_cache": False})
        gcsfs.GCSFileSystem.clear_instance_cache()
        yield bucket
    bucket.server.shutdown()
    bucket.server.server_close()
