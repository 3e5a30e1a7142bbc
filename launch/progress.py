"""Print the step of a run's newest checkpoint and its last step; exit with status 0 if they are equal.

python3 launch/progress.py WORKDIR

The launchers run this where bert_jax may not be installed: it needs only the standard library.
"""

import json
import pathlib
import sys
from typing import Tuple  # noqa: UP035 (TPU VMs have an older Python)


def progress(workdir: pathlib.Path) -> Tuple[int, int]:  # noqa: UP006
    """Return (newest checkpoint, last step) of the run in `workdir`; 0 for what does not exist yet."""
    try:
        steps = int(json.loads((workdir / "run.json").read_text(encoding="utf-8"))["config"]["train"]["steps"])
        saved = [int(path.name) for path in (workdir / "checkpoints").iterdir() if path.name.isdigit()]
    except (OSError, ValueError, KeyError, TypeError):
        return 0, 0
    return max(saved, default=0), steps


if __name__ == "__main__":
    newest, last = progress(pathlib.Path(sys.argv[1]))
    print(newest, last)
    sys.exit(0 if newest >= last > 0 else 1)
