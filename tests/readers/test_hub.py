"""Data sets of the Hugging Face Hub by name, from a server that answers as the Hub does."""

import http.server
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import threading

import pytest

pytest.importorskip("huggingface_hub")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = """
import sys
from bert_jax.readers import find_files, read_documents, total_bytes
from bert_jax.errors import UserError

files = find_files([sys.argv[1]])
print(files, total_bytes(files), [document.text for document in read_documents(files)])
try:
    find_files(["hf://datasets/owner/other/*.parquet"])
except UserError as error:
    print(error)
"""


def table():
    written = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": ["One.", "Two."]}), written)
    return written.getvalue()


class Hub(http.server.BaseHTTPRequestHandler):
    """The data set owner/name: its commit, the tree of its files, and ranges of their bytes."""

    files = {"README.md": b"# Not read", "data/train-00000.parquet": table()}  # noqa: RUF012

    def do_GET(self):
        path = self.path.partition("?")[0]
        if re.fullmatch("/api/datasets/owner/name(/revision/main)?", path):
            self.answer(json.dumps({"id": "owner/name", "sha": "0" * 40, "siblings": []}).encode())
        elif found := re.fullmatch("/api/datasets/owner/name/tree/main(/data)?", path):
            self.answer(json.dumps([*self.below(found[1] or "")]).encode())
        elif found := re.fullmatch("/datasets/owner/name/resolve/main/(.*)", path):
            first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
            self.answer(self.files[found[1]][first : last + 1], 206)
        else:
            self.answer(b"{}", 404, {"X-Error-Code": "RepoNotFound" if "/other" in path else "EntryNotFound"})

    def below(self, folder):
        for name, content in self.files.items():
            if name.startswith(folder.removeprefix("/")):
                yield {"type": "file", "path": name, "oid": "0", "size": len(content)}
        if not folder:
            yield {"type": "directory", "path": "data", "oid": "0", "size": 0}

    def answer(self, body, status=200, headers=()):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **dict(headers)}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


def test_a_data_set_by_its_name():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}
        command = [sys.executable, "-c", CODE, "hf://datasets/owner/name/**/*.parquet"]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        server.shutdown()
    assert done.returncode == 0, done.stderr
    found, refused = done.stdout.splitlines()
    expected = ["hf://datasets/owner/name/data/train-00000.parquet"]
    assert found == f"{expected} {len(Hub.files['data/train-00000.parquet'])} ['One.', 'Two.']"
    assert refused.startswith("hf://datasets/owner/other/*.parquet: cannot be reached (")
