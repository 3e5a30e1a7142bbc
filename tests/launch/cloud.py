"""A pretended cloud for tests: launch/tpu_pod.sh with tests/launch/bin/gcloud, and the state of the run."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "launch"
TPU_POD = ROOT / "launch" / "tpu_pod.sh"
NAME = "pod"
PYTHON = HERE / "python"  # modules that stand in for others
URL = "gs://my-bucket/runs/base"
SETTINGS = {
    "PROJECT": "my-project",
    "ZONE": "us-west4-a",
    "NAME": NAME,
    "ACCELERATOR_TYPE": "v5litepod-16",
    "SERVICE_ACCOUNT": "trainer@my-project.iam.gserviceaccount.com",
    "PROVISIONING": "spot",
}


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait far longer than the condition takes, so that only a hang is an error.

    A pause is as long as the look before it, because a look at a slice starts a dozen processes.
    """
    end = began = time.monotonic()
    end += seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(max(0.02, time.monotonic() - began))
        began = time.monotonic()


def alive(pid: int) -> bool:
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"  # a zombie has ended


class Cloud:
    """Two hosts, and a work directory on storage that both have mounted."""

    def __init__(self, place: pathlib.Path, trainer: pathlib.Path, hosts: int = 2) -> None:
        self.place, self.cloud, self.script = place, place / "cloud", place / "script"
        self.buckets = self.cloud / "buckets"
        self.started: list[subprocess.Popen] = []
        self.workdir = place / "mounted" / "run"
        for directory in (self.cloud, self.script, self.buckets, self.workdir.parent):
            directory.mkdir()
        (place / "recipe.py").write_text("# a recipe\n")
        path = f"{HERE / 'bin'}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        self.env = os.environ | {"PATH": path, "CLOUD": str(self.cloud), "HOSTS": str(hosts)}
        self.env |= {"TRAINER": str(trainer), "STANDIN_SCRIPT": str(self.script), "STANDIN_BUCKETS": str(self.buckets)}
        self.settings = SETTINGS | {"PACKAGE": "bert-jax[tpu] @ git+https://example.org/bert-jax"}
        self.settings |= {"CONFIG": str(place / "recipe.py"), "WORKDIR": str(self.workdir)}

    def use_bucket(self) -> None:
        """Give URL as the work directory; `workdir` is where the stand-ins keep it."""
        self.settings["WORKDIR"] = URL
        self.workdir = self.buckets / URL.removeprefix("gs://")

    def argv(self, verb: str, *more: str) -> list[str]:
        env = self.place / "pod.env"
        env.write_text("# a pod\n\n" + "".join(f"{key}={value}\n" for key, value in self.settings.items()))
        return [str(TPU_POD), verb, "--env", str(env), *more]

    def start(self, verb: str, *more: str) -> subprocess.Popen:
        """stdout and stderr come together."""
        process = subprocess.Popen(
            self.argv(verb, *more),
            env=self.env,
            cwd=self.place,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def kill_started(self) -> None:
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for pid in filter(alive, self.hung()):
            os.kill(pid, signal.SIGKILL)

    def interrupt(self, process: subprocess.Popen) -> str:
        """Send Ctrl-C and return the output."""
        os.killpg(process.pid, signal.SIGINT)
        return process.communicate(timeout=60)[0]

    def call(self, verb: str, *more: str, status: int = 0) -> str:
        process = self.start(verb, *more)
        out, _ = process.communicate(timeout=300)
        assert process.returncode == status, out
        return out

    def calls(self) -> list[list[str]]:
        path = self.cloud / "calls.jsonl"
        written = path.read_text() if path.exists() else ""
        finished = written[: written.rfind("\n") + 1]  # a host may be writing the last line
        return [json.loads(line) for line in finished.splitlines()]

    def verbs(self) -> list[str]:
        """What was asked of gcloud, without the looking."""
        return [call[3] for call in self.calls() if call[3] != "describe"]

    def home(self, host: int) -> pathlib.Path:
        return self.cloud / NAME / "hosts" / str(host) / "bert_jax"

    def script_of(self, *starts: tuple[int, int | None]) -> None:
        """How the stand-in's next starts end: (exit status, step)."""
        (self.script / "next").write_text(json.dumps(starts))

    def starts(self, host: int = 0) -> list[list[str]]:
        """Arguments of every start of bert-jax on a host."""
        lines = (self.script / "argv.jsonl").read_text().splitlines()
        return [argv[1:] for argv in map(json.loads, lines) if argv[0] == host]

    def steps(self) -> list[int]:
        """Every train step in the metrics, in order."""
        path = self.workdir / "metrics.jsonl"
        text = path.read_text() if path.exists() else ""
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [line["step"] for line in lines if line.get("split", "train") == "train"]

    def kill(self, host: int, number: int = signal.SIGKILL) -> None:
        """Everything that the run has on a host."""
        os.killpg(int((self.home(host) / "pid").read_text()), number)

    def hang(self, *verbs: str) -> None:
        """Let calls of these verbs never return, and all others return."""
        (self.cloud / "hanging").write_text(" ".join(verbs))

    def hung(self) -> list[int]:
        """The processes of all calls that did not return."""
        path = self.cloud / "hung"
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []

    def preempt(self) -> None:
        for host in range(int(self.env["HOSTS"])):
            self.kill(host)
        (self.cloud / NAME / "node").write_text("PREEMPTED")
        (self.cloud / NAME / "state").write_text("SUSPENDED")
