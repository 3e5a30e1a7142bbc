#!/usr/bin/env python3
"""A stand-in for bert-jax: counts steps, saves and resumes like it, and exits as the files in $STANDIN_SCRIPT say.

$STANDIN_SCRIPT/argv.jsonl   arguments of each start; only host 0 writes metrics and checkpoints
$STANDIN_SCRIPT/tokens       BERT_JAX_TOKEN of each start
$STANDIN_BUCKETS             a directory, which is gs://
$STANDIN_SCRIPT/next         a list of [exit status, step], one per start: exit there; empty: run to the end
"""

import json
import os
import pathlib
import signal
import sys
import time

STEPS, EVERY, SECONDS = 40, 10, float(os.environ.get("STANDIN_SECONDS", "0.01"))
SCRIPT = pathlib.Path(os.environ["STANDIN_SCRIPT"])
stopped = False


def stop(*_: object) -> None:
    global stopped
    stopped = True


def main() -> int:
    signal.signal(signal.SIGTERM, stop)
    numbered = sys.argv[sys.argv.index("--process_id") + 1] if "--process_id" in sys.argv else "0"
    host = int(os.environ.get("HOST", numbered))
    with open(SCRIPT / "argv.jsonl", "a") as file:
        file.write(json.dumps([host, *sys.argv[1:]]) + "\n")
    with open(SCRIPT / "tokens", "a") as file:
        file.write(os.environ.get("BERT_JAX_TOKEN", "none") + "\n")
    url = sys.argv[sys.argv.index("--workdir") + 1]
    in_bucket = url.startswith("gs://")
    workdir = pathlib.Path(os.environ["STANDIN_BUCKETS"], url.removeprefix("gs://")) if in_bucket else pathlib.Path(url)
    status, end = ending(host)
    if status == 2:
        print("bert-jax pretrain: config.data.corpus: no such directory; prepare one", file=sys.stderr)
        return status
    if host:  # the others wait for host 0, as for any peer
        return follow(workdir, status, end)
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / "run.json").write_text(json.dumps({"config": {"train": {"steps": STEPS}}}))
    (workdir / "checkpoints").mkdir(exist_ok=True)
    step = max((int(path.name) for path in (workdir / "checkpoints").iterdir()), default=0)
    metrics = workdir / "metrics.jsonl"
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    metrics.write_text("".join(line + "\n" for line in lines if json.loads(line)["step"] <= step))
    with open(metrics, "a") as file:
        while step < STEPS:
            time.sleep(SECONDS)
            step += 1
            file.write(json.dumps({"step": step}) + "\n")
            file.flush()
            print(f"step {step}/{STEPS}", file=sys.stderr, flush=True)
            if step % EVERY == 0 or stopped:
                (workdir / "checkpoints" / str(step)).mkdir(exist_ok=True)
                if in_bucket:
                    (workdir / "checkpoints" / str(step) / "commit_success.txt").touch()
            if stopped:
                return 0
            if step == end:
                print(f"ending with {status}", file=sys.stderr)
                return status
    return 0


def ending(host: int) -> tuple[int, int | None]:
    """Each host reads its own line of the script: what is to become of this start."""
    path = SCRIPT / f"next-{host}"
    source = path if path.exists() else SCRIPT / "next"
    left = json.loads(source.read_text()) if source.exists() else []
    (status, end), *left = left or [(0, None)]
    path.write_text(json.dumps(left))
    return status, end


def follow(workdir: pathlib.Path, status: int, end: int | None) -> int:
    until = STEPS if end is None else end
    metrics = workdir / "metrics.jsonl"
    while not stopped:
        time.sleep(SECONDS)
        lines = metrics.read_text().splitlines() if metrics.exists() else []
        if lines and any(f'"step": {until}}}' in line for line in lines[-1:]):
            break
    time.sleep(0.05)  # host 0 saves
    return 0 if stopped else status


status = main()
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a group has it twice, and Python forgets its own handler at the end
sys.exit(status)
