"""Stands in for gcsfs: gs:// is the directory $STANDIN_BUCKETS. As in Cloud Storage, a file appears whole."""

import os
import secrets

from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem


class GCSFileSystem(DirFileSystem):
    protocol = ("gs", "gcs")

    def __init__(self, **options: object) -> None:
        super().__init__(os.environ["STANDIN_BUCKETS"], LocalFileSystem(auto_mkdir=True))

    def pipe_file(self, path: str, value: bytes, **options: object) -> None:
        partial = f".{secrets.token_hex(8)}.partial"
        super().pipe_file(partial, value)
        self.fs.makedirs(os.path.dirname(self._join(path)), exist_ok=True)
        os.replace(self._join(partial), self._join(path))
