"""A gray picture as a PNG data URI, for a page that loads no other file."""

import base64
import struct
import zlib

import numpy as np


def png_data_uri(gray: np.ndarray) -> str:
    """Return a gray picture, uint8 `[height, width]`, as a PNG data URI (8 bits, no filter); 0 is black."""
    height, width = gray.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), gray.astype(np.uint8)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n" + _png_chunk(b"IHDR", header) + _png_chunk(b"IDAT", zlib.compress(rows.tobytes(), 9))
    return "data:image/png;base64," + base64.b64encode(content + _png_chunk(b"IEND", b"")).decode("ascii")


def _png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
