"""Start the process that runs the parts; restart it whenever it ends, until no part is waiting or the time is up."""

import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks.device.report import Report, Result


def ending(status: int) -> str:
    """Return how a process ended, in words."""
    if status >= 0:
        return f"the process ended with status {status}"
    return f"the process ended by {signal.Signals(-status).name}"


def run_until(command: Sequence[str], deadline: float) -> int | None:
    """Run a command and return its exit status; at `deadline` (of `time.monotonic`), end it and return None."""
    child = subprocess.Popen(command)
    try:
        return child.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None
    finally:  # also when a signal ends this process
        child.kill()
        child.wait()


def supervise(command: Sequence[str], report_path: pathlib.Path, deadline: float) -> int:
    """Run `command` until no part of its report is waiting; return the exit status.

    If the process ends during a part, this part has failed, and a new process runs the parts after it. If the process
    ends between two parts, a new process is started, too.
    """
    before = None
    while True:
        status = run_until(command, deadline)
        if not report_path.exists():  # the process ended before the first part, and printed the reason
            if not status or status < 0:
                print("no part began:", "no time left" if status is None else ending(status), file=sys.stderr)
            return status if status and status > 0 else 1
        report = Report.read(report_path)
        if status is None:
            report.leave_out_rest("no time left")
        elif report.running:
            report.add(Result(report.running, fault=ending(status)))
            report.end()
        elif report.waiting == before:
            report.leave_out_rest(f"{ending(status)} before it began")
        if not report.waiting:
            return report.finish()
        before = report.waiting
