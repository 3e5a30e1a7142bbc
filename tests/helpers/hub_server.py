"""A server that answers as the Hugging Face Hub does: repositories of models, their files, uploads, and faults."""

import base64
import contextlib
import hashlib
import http.server
import json
import pathlib
import re
import threading
import urllib.parse

COMMIT = "0123456789" * 4
LARGE = 1000  # bytes from which a file has the digest of large files
TEXT = (".json", ".txt", ".md")


class Hub:
    """Repositories by name, with the requests that came, and faults by name of a repository.

    Faults: "gated" and "private" refuse; "cut" closes the connection within the first answer of a large file;
    "cut always" within each; "changed" sends other bytes than the digest says.
    """

    def __init__(self):
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.faults: dict[str, str] = {}
        self.uploads: dict[str, dict[str, bytes]] = {}
        self.requests: list[str] = []

    def add(self, name: str, directory: pathlib.Path, fault: str = "") -> None:
        paths = [path for path in directory.rglob("*") if path.is_file()]
        self.repositories[name] = {path.relative_to(directory).as_posix(): path.read_bytes() for path in paths}
        self.faults[name] = fault

    @contextlib.contextmanager
    def serving(self):
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                hub.answer(self)

            do_HEAD = do_POST = do_GET

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        server.server_close()

    def answer(self, request) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(request.path).path)
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.requests.append(f"{request.command} {path}")
        if request.command == "POST":
            send(request, json.dumps(self.post(path, body)).encode())
            return
        match = re.fullmatch(r"/api/(?:models|datasets)/([\w.-]+/[\w.-]+)/(revision|tree)/(.+)", path)
        match = match or re.fullmatch(r"(?:/datasets)?/([\w.-]+/[\w.-]+)/(resolve)/([^/]+)/(.+)", path)
        name = match[1] if match else ""
        if name not in self.repositories or self.faults[name] == "private":
            send(request, b"{}", 401)
        elif self.faults[name] == "gated" and match[2] == "resolve":
            send(request, b"{}", 403, {"X-Error-Code": "GatedRepo"})
        elif match[3].partition("/")[0] not in ("main", COMMIT):
            send(request, b"{}", 404, {"X-Error-Code": "RevisionNotFound"})
        elif match[2] == "revision":
            files = [{"rfilename": file} for file in self.repositories[name]]
            send(request, json.dumps({"id": name, "sha": COMMIT, "siblings": files}).encode())
        elif match[2] == "tree":
            send(request, json.dumps([entry(*item) for item in self.repositories[name].items()]).encode())
        elif match[4] not in self.repositories[name]:
            send(request, b"", 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        else:
            self.send_file(request, name, match[4])

    def send_file(self, request, name: str, file: str) -> None:
        content, fault = self.repositories[name][file], self.faults[name]
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{digest(content)}"', "Accept-Ranges": "bytes"}
        is_large, begin = len(content) >= LARGE, 0
        if is_large:
            headers |= {"X-Linked-Etag": f'"{digest(content)}"', "X-Linked-Size": str(len(content))}
        if fault == "changed" and is_large:
            content = content[:-1] + bytes([content[-1] ^ 1])
        if match := re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range") or ""):
            begin = int(match[1])
            headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
        if fault.startswith("cut") and is_large and request.command == "GET":
            self.faults[name] = "" if fault == "cut" else fault
            request.send_response(206 if begin else 200)
            for key, value in (headers | {"Content-Length": str(len(content) - begin)}).items():
                request.send_header(key, value)
            request.end_headers()
            request.wfile.write(content[begin : begin + 100])
            request.wfile.flush()
            request.connection.close()
            request.close_connection = True
            return
        send(request, content[begin:], 206 if begin else 200, headers)

    def post(self, path: str, body: bytes):
        if path == "/api/repos/create":
            name = "/".join(filter(None, (json.loads(body).get("organization"), json.loads(body)["name"])))
            self.uploads[name] = {}
            return {"url": f"http://127.0.0.1/{name}", "name": name}
        if path.endswith("/preupload/main"):
            files = json.loads(body)["files"]
            return {"files": [{"path": x["path"], "uploadMode": "regular", "shouldIgnore": False} for x in files]}
        if path.endswith("/commit/main"):
            name = path.removeprefix("/api/models/").removesuffix("/commit/main")
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.uploads[name][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            return {"commitOid": COMMIT, "commitUrl": f"http://127.0.0.1/{name}/commit/{COMMIT}", "hookOutput": ""}
        return {"errors": [], "warnings": []}  # of a card's metadata


def digest(content: bytes) -> str:
    """The digest of git for a small file, SHA-256 for a large one."""
    if len(content) >= LARGE:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def entry(path: str, content: bytes) -> dict[str, object]:
    """A file as the tree of a repository lists it."""
    found = {"type": "file", "path": path, "size": len(content), "oid": digest(content)[:40]}
    large = {"oid": digest(content), "size": len(content), "pointerSize": 130}
    return found | ({"lfs": large} if len(content) >= LARGE else {})


def send(request, content: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
    request.send_response(status)
    for key, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
        request.send_header(key, value)
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(content)
