"""Connect many strange clients to the ports of bert_jax: do runs start and end as usual, and what does a page cost?

    python -m benchmarks.port_strangers

1. Three processes meet at a port while 1,000 strangers of every kind connect to it: silent, trickling, wrong, closing,
   endless, and of another run. Prints the seconds from the last member's start to the start of the run.
2. Three processes of `pretrain` start among 1,000 strangers. Prints whether the losses equal the losses of a run
   without strangers.
3. 500 clients of `report --follow` connect again and again. Prints the CPU time of the server.

The exit status is 1 if the run starts more than 2 s after its last member, if its losses differ from the run without
strangers, or if the server takes more than 1 % of a core.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

from benchmarks.faults.world import World, make_world, pretrain
from bert_jax.parallel.rendezvous import Peers, rendezvous
from tests.helpers.strangers import Strangers

NUM_STRANGERS, NUM_CLIENTS = 1_000, 500
MAX_START_SECONDS, MAX_CPU = 2.0, 0.01
FOLLOW_SECONDS = 20.0
TOKEN = "secret of the run"
BERT_JAX = (sys.executable, "-m", "bert_jax")


def free_port() -> int:
    """Return a port that no process listens to."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def crowd(address: str, count: int) -> Iterator[None]:
    """Keep `count` strangers connected, in equal numbers of each kind."""
    with contextlib.ExitStack() as stack:
        for kind in Strangers.KINDS:
            stack.enter_context(Strangers(address, kind, count // len(Strangers.KINDS)))
        yield


Times = tuple[int, float, float]


def meet(coordinator: str, rank: int, times: "multiprocessing.Queue[Times]") -> None:
    """Join a run of three processes; put the times before and after the meeting into the queue `times`."""
    began = time.monotonic()
    membership = rendezvous(Peers(coordinator, 3, rank, token=TOKEN), 120)
    times.put((len(membership.hosts), began, time.monotonic()))


def start_seconds() -> float:
    """Return the seconds from the start of the last of three members to the start of the run, among strangers."""
    context = multiprocessing.get_context("fork")
    times: multiprocessing.Queue[Times] = context.Queue()
    coordinator = f"127.0.0.1:{free_port()}"
    members = [context.Process(target=meet, args=(coordinator, rank, times)) for rank in range(3)]
    members[0].start()
    with crowd(coordinator, NUM_STRANGERS):
        for member in members[1:]:
            time.sleep(1.0)
            member.start()
        ends = [times.get(timeout=120) for _ in members]
    for member in members:
        member.join()
    assert all(count == 3 for count, _, _ in ends)
    return max(end for _, _, end in ends) - max(began for _, began, _ in ends)


def losses_of_run(world: World, workdir: pathlib.Path, num_strangers: int) -> list[float]:
    """Return the losses of a run of three processes, which starts among strangers."""
    coordinator = f"127.0.0.1:{free_port()}"
    environment = os.environ | {"BERT_JAX_TOKEN": TOKEN, "JAX_PLATFORMS": "cpu"}
    words = [*BERT_JAX, *pretrain(world, workdir, "--config.train.batch_size=9", "--config.evaluate.batch_size=9")]
    processes = []
    with contextlib.ExitStack() as stack:
        for rank in range(3):
            joining = [f"--coordinator={coordinator}", "--num_processes=3", f"--process_id={rank}"]
            processes.append(
                subprocess.Popen(
                    [*words, *joining], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
            )
            if rank == 0 and num_strangers:
                stack.enter_context(crowd(coordinator, num_strangers))
        statuses = [process.wait() for process in processes]
    assert statuses == [0, 0, 0], statuses
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if "loss" in line]


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has taken."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def server_share(run: pathlib.Path) -> float:
    """Return the CPU time of `report --follow` as a fraction of a core, while clients connect again and again."""
    command = [*BERT_JAX, "report", str(run), "--follow", "--port=0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        port = int(re.findall(r"http://127.0.0.1:(\d+)/", server.stderr.readline())[0])
        ended = threading.Event()

        def call(index: int) -> None:
            while not ended.wait(1.0):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as sock:
                    if index % 3 == 0:
                        sock.sendall(b"GET /?token=wrong HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                    elif index % 3 == 1:
                        sock.sendall(b"G")
                    ended.wait(5.0)

        began, before = time.monotonic(), cpu_seconds(server.pid)
        clients = [threading.Thread(target=call, args=(index,)) for index in range(NUM_CLIENTS)]
        for client in clients:
            client.start()
        time.sleep(FOLLOW_SECONDS)
        share = (cpu_seconds(server.pid) - before) / (time.monotonic() - began)
        ended.set()
        server.terminate()
        for client in clients:
            client.join()
    return share


def main() -> int:
    """Print the three results, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", help="directory made by benchmarks.odd_places --world (default: made anew)")
    args = parser.parse_args()
    seconds = start_seconds()
    print(f"the run started {seconds:.2f} s after its last member, among {NUM_STRANGERS:,} strangers", flush=True)
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        directory = pathlib.Path(args.world or scratch / "world")
        if args.world:
            world = World(directory, *(directory / part for part in World._fields[1:]))
        else:
            directory.mkdir()
            world = make_world(directory)
        share = server_share(world.run)
        print(f"report --follow with {NUM_CLIENTS} clients: {share:.2%} of a core", flush=True)
        alone = losses_of_run(world, scratch / "alone", 0)
        among = losses_of_run(world, scratch / "among", NUM_STRANGERS)
        print(f"losses of {len(alone)} steps: {'equal' if alone == among else 'different'}", flush=True)
    return int(seconds > MAX_START_SECONDS or share > MAX_CPU or alone != among)


if __name__ == "__main__":
    sys.exit(main())
