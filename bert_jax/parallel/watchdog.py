"""A thread that ends a run without progress, and reports the process that causes it.

Every process reports the stage that it enters, and each stage has a time limit (`config.watchdog`). Every process
except process 0 sends a heartbeat to process 0 each second. Process 0 decides whether to end the run, and sends the
decision. If a connection closes, the process at the other end counts as dead.
"""

import contextlib
import os
import queue
import selectors
import sys
import threading
import time
import traceback
from typing import NamedTuple, NoReturn

from bert_jax.config import WatchdogConfig
from bert_jax.console import write_or_discard
from bert_jax.errors import shown
from bert_jax.parallel.rendezvous import Membership, Message, short_list

LOST = 124  # exit status if a process is lost or hangs
HEARTBEAT = 1.0  # seconds between two heartbeats
TICK = 0.2  # seconds between two checks of the clock
SILENCE = 3.0  # seconds without a heartbeat after which a process of a run without progress counts as stopped
GRACE = 2.0  # seconds to find the lost process that made a collective fail
ANSWER = 10.0  # seconds to wait for a message of another process


class Stage(NamedTuple):
    """The work that a process is doing; all processes enter the same stages in the same order."""

    ordinal: int  # number of the stage, counted from the start of the run
    name: str  # name of the stage: "start", "compile", "step" or "save"
    step: int | None
    began: float  # time when this process learned of the stage, on its monotonic clock

    def __str__(self) -> str:
        if self.step is None:
            return self.name
        return f"step {self.step:,}" if self.name == "step" else f"{self.name} at step {self.step:,}"


class Watchdog:
    """The watchdog of a process, which is connected to the watchdogs of all other processes."""

    def __init__(self, config: WatchdogConfig, process_id: int = 0, membership: Membership | None = None) -> None:
        self.process_id = process_id
        self.hosts, self.links = membership or Membership(("",), {})
        self._limits = {
            "start": config.start_seconds,
            "compile": config.compile_seconds,
            "step": config.step_seconds,
            "save": config.save_seconds,
        }
        self._stage = Stage(0, "start", None, time.monotonic())
        self._peer_stages = dict.fromkeys(self.links, self._stage)  # the last known stage of each peer
        self._last_message = dict.fromkeys(self.links, time.monotonic())
        self._finished = set[int]()  # peers that have closed their watchdog
        self._fingerprints: dict[int, dict[str, str]] = {}
        self._agreed, self._closing = threading.Event(), threading.Event()
        self._waiting = set[int]()  # processes that wait in `wait_for_all`
        self._met = queue.SimpleQueue[None]()
        self._outbox = queue.SimpleQueue[Message]()  # filled by the other threads of this process
        self._error: tuple[float, str] | None = None  # time when the first error counts as the cause, and its text
        self._sent = (0.0, "")  # time and stage name of the last heartbeat
        self._own_error = ""  # text that this process prints about its failure
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()

    def enter_stage(self, name: str, step: int | None = None) -> None:
        """Enter a stage; every process enters the same stages in the same order."""
        self._stage = Stage(self._stage.ordinal + 1, name, step, time.monotonic())

    def restart_clock(self) -> None:
        """Restart the time limit of the stage after a part of long work; the clock of process 0 decides."""
        self._stage = self._stage._replace(began=time.monotonic())

    def check_agreement(self, fingerprint: dict[str, str]) -> None:
        """Compare the run fingerprints of all processes; if they differ, end all processes with status 2."""
        if self.links:
            self._outbox.put({"fingerprint": fingerprint})
            self._agreed.wait()

    def wait_for_all(self) -> None:
        """Wait until every process calls this method, for at most the time limit of the stage."""
        if self.links:
            self._outbox.put({"waiting": True})
            self._met.get()

    def end_all(self, message: str, status: int) -> NoReturn:
        """End every process with `status`; the other processes print `message`, too."""
        self._own_error = "\n"
        self._outbox.put({"failed": message, "status": status})
        self._thread.join(ANSWER)
        _exit(status)

    def end_all_with_traceback(self, error: Exception) -> NoReturn:
        """End every process after an exception.

        If no process is lost, the exception is a bug, and its traceback is printed.
        """
        self._own_error = "".join(traceback.format_exception(error))
        self._outbox.put({"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"})
        self._thread.join(GRACE + ANSWER)
        write_or_discard(sys.stderr, self._own_error)
        _exit(1)

    def close(self) -> None:
        """Wait until every process has finished, and stop watching."""
        if self.links:
            self._outbox.put({"bye": True})
        self._closing.set()
        self._thread.join(ANSWER)

    # The methods below run in the watchdog's own thread.

    def _watch(self) -> None:
        """Receive, send and check until all processes have finished; this is the main function of the thread.

        In a run of one process, the thread only checks the time limits.
        """
        with selectors.DefaultSelector() as selector:
            for peer, link in self.links.items():
                link.socket.settimeout(TICK)
                selector.register(link.socket, selectors.EVENT_READ, peer)
            while not (self._closing.is_set() and (not self.links or self._all_finished())):
                for key, _ in selector.select(TICK):
                    try:
                        for message in self.links[key.data].receive():
                            self._handle_message(key.data, message)
                    except EOFError:
                        selector.unregister(key.fileobj)
                        self._handle_closed_connection(key.data)
                if self.links:
                    self._send_pending()
                self._end_run_without_progress(time.monotonic())

    def _all_finished(self) -> bool:
        """Return whether all processes have finished.

        Process 0 waits for the goodbye of every other process. After the goodbye, every other process waits for the
        answer of process 0.
        """
        if not self._finished >= set(self.links):
            return False
        if self.process_id == 0:
            self._broadcast({"bye": True})
        return True

    def _send_pending(self) -> None:
        """Send the messages of the outbox, and a heartbeat with the stage if it is due."""
        while not self._outbox.empty():
            message = self._outbox.get()
            if self.process_id == 0:
                self._handle_message(0, message)
            else:
                self._send(0, message)
        stage, now = self._stage, time.monotonic()
        if now - self._sent[0] >= HEARTBEAT or stage.name != self._sent[1]:
            self._sent = (now, stage.name)
            self._broadcast({"stage": stage[:3]})

    def _handle_message(self, peer: int, message: Message) -> None:
        self._last_message[peer] = time.monotonic()
        match message:
            case {"stage": [ordinal, name, step]}:
                if ordinal != self._peer_stages[peer].ordinal:
                    self._peer_stages[peer] = Stage(ordinal, name, step, time.monotonic())
            case {"fingerprint": fingerprint}:
                self._fingerprints[peer] = fingerprint
                if len(self._fingerprints) == len(self.hosts):
                    self._compare_fingerprints()
            case {"agreed": True}:
                self._agreed.set()
            case {"waiting": True}:
                self._waiting.add(peer)
                if len(self._waiting) == len(self.hosts):
                    self._waiting.clear()
                    self._broadcast({"met": True})
                    self._met.put(None)
            case {"met": True}:
                self._met.put(None)
            case {"bye": True}:
                self._finished.add(peer)
            case {"error": error}:
                self._error = self._error or (time.monotonic() + GRACE, f"{self._process_label(peer)} failed: {error}")
            case {"stopped": text}:  # a signal stopped the process just before all processes were present
                self._end_run(f"{self._process_label(peer)}: {text}", 0)
            case {"failed": text, "status": status}:
                self._end_run(f"{self._process_label(peer)}: {text}", status)
            case {"end": text, "status": status}:
                self._end_run(text, status)

    def _handle_closed_connection(self, peer: int) -> None:
        """End the run if the connection of a peer closed before the peer finished."""
        if self._closing.is_set():
            self._finished.add(peer)
        elif peer not in self._finished:
            role = ", the coordinator," if peer == 0 else ""
            self._end_run(f"{self._process_label(peer)}{role} died; it was in its {self._peer_stages[peer]}")

    def _end_run_without_progress(self, now: float) -> None:
        """End a run without progress, because all processes wait for the processes in the earliest stage."""
        if self.process_id > 0:
            if self._is_over_limit(self._peer_stages[0], self._last_message[0], now):
                self._end_run(self._silence_message(0, now))
            return
        if self._error and now >= self._error[0]:
            silent = [
                self._silence_message(peer, now) for peer in self.links if now - self._last_message[peer] > SILENCE
            ]
            self._end_run(short_list(silent, "; ") or self._error[1], LOST if silent else 1)
        stages = {0: self._stage} | self._peer_stages
        last = min(stages.values())
        behind = [peer for peer, stage in stages.items() if stage.ordinal == last.ordinal]
        if not all(self._is_over_limit(stages[peer], stages[peer].began, now) for peer in behind):
            return
        text = f"{last} took longer than config.watchdog.{last.name}_seconds={self._limits[last.name]:g}"
        silent = [
            self._silence_message(peer, now) for peer in behind if peer and now - self._last_message[peer] > SILENCE
        ]
        if silent:
            text = f"{short_list(silent, '; ')}; {text}"
        elif len(behind) < len(stages):
            verb = "hangs" if len(behind) == 1 else "hang"
            text = f"{short_list([*map(self._process_label, behind)])} {verb} in {last}, the others wait; {text}"
        elif self.links:
            text = f"all {len(stages)} processes answer and wait in the same stage; {text}"
        self._end_run(text)

    def _is_over_limit(self, stage: Stage, since: float, now: float) -> bool:
        limit = self._limits[stage.name]
        return limit is not None and now - since > limit

    def _silence_message(self, peer: int, now: float) -> str:
        role = ", the coordinator," if peer == 0 else ""
        seconds = now - self._last_message[peer]
        label, stage = self._process_label(peer), self._peer_stages[peer]
        return f"{label}{role} has not answered for {seconds:.0f} s; it was in its {stage}"

    def _compare_fingerprints(self) -> None:
        """End the run if a fingerprint differs from process 0's; else tell all processes to go on."""
        mine = self._fingerprints[0]
        for peer, theirs in sorted(self._fingerprints.items()):
            wrong = [key for key in sorted(mine.keys() | theirs.keys()) if mine.get(key) != theirs.get(key)]
            if wrong:
                shown = "; ".join(f"{key}: {mine.get(key)} -> {theirs.get(key)}" for key in wrong)
                self._end_run(
                    f"{self._process_label(peer)} differs from {self._process_label(0)} ({shown}); "
                    "start all processes with equal values",
                    2,
                )
        self._agreed.set()
        self._broadcast({"agreed": True})

    def _end_run(self, message: str, status: int = LOST) -> NoReturn:
        """Send and print the message, then exit.

        Process 0 exits last, because a closed connection counts as a dead process. Process 0 waits for `ANSWER` seconds
        at most, since hundreds of hosts may be unreachable.
        """
        if self.process_id == 0:
            self._broadcast({"end": message, "status": status})
            end = time.monotonic() + ANSWER
            for link in self.links.values():
                with contextlib.suppress(OSError, EOFError):
                    while True:
                        link.socket.settimeout(min(GRACE, max(end - time.monotonic(), 0.001)))
                        link.receive()
        if status == LOST or not self._own_error:
            write_or_discard(sys.stderr, f"bert-jax: {shown(message)}\n")
        elif status == 1:
            write_or_discard(sys.stderr, self._own_error)
        _exit(status)

    def _broadcast(self, message: Message) -> None:
        for peer in self.links:
            self._send(peer, message)

    def _send(self, peer: int, message: Message) -> None:
        with contextlib.suppress(OSError):  # the code that receives messages notices a lost peer
            self.links[peer].send(message)

    def _process_label(self, peer: int) -> str:
        return f"process {peer} ({self.hosts[peer]})"


def _exit(status: int) -> NoReturn:
    """Exit immediately, because the threads of a hanging run would block a normal exit of the interpreter."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)
