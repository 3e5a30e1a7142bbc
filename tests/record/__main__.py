"""Write the record anew, on purpose: `python -m tests.record`, or with `-k help` one part; read `git diff` after it."""

import os
import sys

import pytest

from tests.record.compare import WRITE

if __name__ == "__main__":
    os.environ[WRITE] = "1"
    raise SystemExit(pytest.main(["-q", "-m", "", "-p", "no:cacheprovider", "tests/record", *sys.argv[1:]]))
