"""A thread that ends a run which no longer moves, and says which process is to blame.

Every process tells its watchdog what it is about to do; each stage has its budget (`config.watchdog`). Process 0 hears
from all others once a second, decides, and tells them; a process that is gone is seen by its closed connection.
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
from bert_jax.parallel.rendezvous import Membership, Message

LOST = 124  # exit status where a process is lost or hangs
BEAT = 1.0  # seconds between two signs of life
TICK = 0.2  # seconds between two looks at the clock
SILENCE = 3.0  # seconds without one after which a process is held to be stopped, where the run does not move
GRACE = 2.0  # seconds for the cause to show where only its effect, an error of a collective, was seen
ANSWER = 10.0  # seconds to wait for what another process has to say


class Stage(NamedTuple):
    """What a process does; all of them go through the same stages."""

    number: int  # counted from the start of the run
    name: str  # 'start', 'compile', 'step' or 'save'
    step: int | None
    began: float  # when this process knew of it, on its own monotonic clock

    def __str__(self) -> str:
        if self.step is None:
            return self.name
        return f"step {self.step:,}" if self.name == "step" else f"{self.name} at step {self.step:,}"


class Watchdog:
    """Of one process: alone, or with links to the others."""

    def __init__(self, config: WatchdogConfig, process_id: int = 0, roll: Membership | None = None) -> None:
        self.process_id = process_id
        self.hosts, self.links = roll or Membership(("",), {})
        self._budgets = {
            "start": config.start_seconds,
            "compile": config.compile_seconds,
            "step": config.step_seconds,
            "save": config.save_seconds,
        }
        self._stage = Stage(0, "start", None, time.monotonic())
        self._theirs = dict.fromkeys(self.links, self._stage)  # the last known stage of the others
        self._heard = dict.fromkeys(self.links, time.monotonic())
        self._done = set[int]()  # who said goodbye
        self._facts: dict[int, dict[str, str]] = {}
        self._agreed, self._closing = threading.Event(), threading.Event()
        self._outbox = queue.SimpleQueue[Message]()  # of this process's other threads
        self._error: tuple[float, str] | None = None  # what a process failed of, and when to take it for the cause
        self._beat = (0.0, "")  # when the others last heard of this one, and in which kind of stage
        self._own = ""  # what this process has to say of its own end
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()

    def stage(self, name: str, step: int | None = None) -> None:
        """Say what comes next; every process calls this as often, in the same order."""
        self._stage = Stage(self._stage.number + 1, name, step, time.monotonic())

    def check_agreement(self, facts: dict[str, str]) -> None:
        """Wait until every process has the same facts; all end with status 2 where one differs."""
        if self.links:
            self._outbox.put({"facts": facts})
            self._agreed.wait()

    def fail(self, message: str, status: int) -> NoReturn:
        """End every process with this status; the others say `message`, which this one has said."""
        self._own = "\n"
        self._outbox.put({"failed": message, "status": status})
        self._thread.join(ANSWER)
        _exit(status)

    def explain(self, error: Exception) -> NoReturn:
        """End as the cause of an error demands: another process's end, or a fault of this one, with its traceback."""
        self._own = "".join(traceback.format_exception(error))
        self._outbox.put({"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"})
        self._thread.join(GRACE + ANSWER)
        sys.stderr.write(self._own)
        _exit(1)

    def close(self) -> None:
        """Stop watching, once every other process is done as well."""
        self._outbox.put({"bye": True})
        self._closing.set()
        self._thread.join(ANSWER)

    # What follows runs in the watchdog's own thread.

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            for other, link in self.links.items():
                link.socket.settimeout(TICK)
                selector.register(link.socket, selectors.EVENT_READ, other)
            while not (self._closing.is_set() and self._is_over()):
                for key, _ in selector.select(TICK):
                    try:
                        for message in self.links[key.data].receive():
                            self._hear(key.data, message)
                    except EOFError:
                        selector.unregister(key.fileobj)
                        self._lose(key.data)
                self._speak()
                self._judge(time.monotonic())

    def _is_over(self) -> bool:
        """Process 0 waits for every goodbye and answers; the others wait for the answer."""
        if not self._done >= set(self.links):
            return False
        if self.process_id == 0:
            self._tell_all({"bye": True})
        return True

    def _speak(self) -> None:
        while not self._outbox.empty():
            message = self._outbox.get()
            if self.process_id == 0:
                self._hear(0, message)
            else:
                self._send(0, message)
        stage, now = self._stage, time.monotonic()
        if now - self._beat[0] >= BEAT or stage.name != self._beat[1]:
            self._beat = (now, stage.name)
            self._tell_all({"beat": stage[:3]})

    def _hear(self, other: int, message: Message) -> None:
        self._heard[other] = time.monotonic()
        match message:
            case {"beat": [number, name, step]}:
                if number != self._theirs[other].number:
                    self._theirs[other] = Stage(number, name, step, time.monotonic())
            case {"facts": facts}:
                self._facts[other] = facts
                if len(self._facts) == len(self.hosts):
                    self._compare()
            case {"agreed": True}:
                self._agreed.set()
            case {"bye": True}:
                self._done.add(other)
            case {"error": error}:
                self._error = self._error or (time.monotonic() + GRACE, f"{self._who(other)} failed: {error}")
            case {"failed": text, "status": status}:
                self._end(f"{self._who(other)}: {text}", status)
            case {"end": text, "status": status}:
                self._end(text, status)

    def _lose(self, other: int) -> None:
        """The connection is closed."""
        if self._closing.is_set():
            self._done.add(other)
        elif other not in self._done:
            role = ", the coordinator," if other == 0 else ""
            self._end(f"{self._who(other)}{role} died; it was in its {self._theirs[other]}")

    def _judge(self, now: float) -> None:
        """End a run that does not move. What counts is the process furthest behind: the others wait for it."""
        if self.process_id > 0:
            if self._is_late(self._theirs[0], self._heard[0], now):
                self._end(self._silence(0, now))
            return
        if self._error and now >= self._error[0]:
            silent = [self._silence(other, now) for other in self.links if now - self._heard[other] > SILENCE]
            self._end("; ".join(silent) or self._error[1], LOST if silent else 1)
        stages = {0: self._stage} | self._theirs
        last = min(stages.values())
        behind = [other for other, stage in stages.items() if stage.number == last.number]
        if not all(self._is_late(stages[other], stages[other].began, now) for other in behind):
            return
        text = f"{last} took longer than config.watchdog.{last.name}_seconds={self._budgets[last.name]:g}"
        silent = [self._silence(other, now) for other in behind if other and now - self._heard[other] > SILENCE]
        if silent:
            text = f"{'; '.join(silent)}; {text}"
        elif len(behind) < len(stages):
            verb = "hangs" if len(behind) == 1 else "hang"
            text = f"{', '.join(map(self._who, behind))} {verb} in {last}, the others wait; {text}"
        elif self.links:
            text = f"all {len(stages)} processes answer and wait in the same stage; {text}"
        self._end(text)

    def _is_late(self, stage: Stage, since: float, now: float) -> bool:
        budget = self._budgets[stage.name]
        return budget > 0 and now - since > budget

    def _silence(self, other: int, now: float) -> str:
        role = ", the coordinator," if other == 0 else ""
        seconds = now - self._heard[other]
        return f"{self._who(other)}{role} does not answer since {seconds:.0f} s; it was in its {self._theirs[other]}"

    def _compare(self) -> None:
        mine = self._facts[0]
        for other, theirs in sorted(self._facts.items()):
            wrong = [key for key in sorted(mine.keys() | theirs.keys()) if mine.get(key) != theirs.get(key)]
            if wrong:
                shown = "; ".join(f"{key}: {mine.get(key)} -> {theirs.get(key)}" for key in wrong)
                self._end(f"{self._who(other)} differs from {self._who(0)} ({shown}); start all with the same", 2)
        self._agreed.set()
        self._tell_all({"agreed": True})

    def _end(self, message: str, status: int = LOST) -> NoReturn:
        """Tell, say and go. Process 0 goes last: a closed connection would be taken for its death."""
        if self.process_id == 0:
            self._tell_all({"end": message, "status": status})
            for link in self.links.values():
                with contextlib.suppress(OSError, EOFError):
                    link.socket.settimeout(GRACE)
                    while True:
                        link.receive()
        if status == LOST or not self._own:
            sys.stderr.write(f"bert-jax: {message}\n")
        elif status == 1:
            sys.stderr.write(self._own)
        _exit(status)

    def _tell_all(self, message: Message) -> None:
        for other in self.links:
            self._send(other, message)

    def _send(self, other: int, message: Message) -> None:
        with contextlib.suppress(OSError):  # who is gone is noticed where it is listened to
            self.links[other].send(message)

    def _who(self, other: int) -> str:
        return f"process {other} ({self.hosts[other]})"


def _exit(status: int) -> NoReturn:
    """At once: the threads of a run that hangs would keep the interpreter from its end."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)
