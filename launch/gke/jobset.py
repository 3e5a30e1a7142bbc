"""Print the JobSet manifest of a pretraining run on GKE, for `kubectl apply -f -`.

python3 launch/gke/jobset.py --name bert-base --image IMAGE --accelerator v5e --topology 16x16 \
    --service_account trainer --workdir gs://BUCKET/runs/base --config configs/bert_base.py \
    --corpus gs://BUCKET/corpus | kubectl apply -f -

The manifest is printed as JSON, which is valid YAML. Guide: docs/launch.md.
"""

import argparse
import json
import math
import re
import secrets
import sys
from typing import Any, NoReturn

# GKE's name of each generation, and the number of axes of its topology.
ACCELERATORS = {
    "v4": ("tpu-v4-podslice", 3),
    "v5e": ("tpu-v5-lite-podslice", 2),
    "v5p": ("tpu-v5p-slice", 3),
    "v6e": ("tpu-v6e-slice", 2),
    "tpu7x": ("tpu7x", 3),
}
# Kind of nodes -> the label of these nodes, which may also be their taint; the TPU generations without this kind (GKE's
# pages, 2026-11-23); the default of --max_restarts. JobSet counts the loss of a node as a restart, and never resets the
# count.
PROVISIONING: dict[str, tuple[str, tuple[str, ...], int]] = {
    "on-demand": ("", (), 50),
    "spot": ("cloud.google.com/gke-spot", (), 1000),
    "flex-start": ("cloud.google.com/gke-flex-start", ("v4",), 1000),
}
USER_MISTAKE = 2  # exit status of bert-jax for errors that a restart cannot fix


def parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    made = argparse.ArgumentParser(prog="jobset.py", description="Print the JobSet of a pretraining run.")
    add = made.add_argument
    add("--name", required=True, help="name of the JobSet: lower-case letters, digits and dashes")
    add("--namespace", default="default", help="namespace of --service_account (default: default)")
    add("--image", required=True, help="container image, built from launch/gke/Dockerfile")
    add("--accelerator", required=True, choices=sorted(ACCELERATORS), help="generation of the TPU")
    add("--topology", required=True, metavar="AxB[xC]", help="topology of the slice, such as 16x16")
    add("--chips_per_host", type=int, metavar="N", help="chips per host (default: 4, or all chips of a smaller slice)")
    add("--slices", type=int, default=1, metavar="N", help="slices of that topology, each a node pool (default: 1)")
    add("--service_account", required=True, help="Kubernetes service account with access to the bucket")
    add("--workdir", required=True, help="work directory: gs://BUCKET/NAME")
    add("--config", required=True, help="recipe in the image, such as configs/bert_base.py")
    add("--corpus", help="gs://BUCKET/NAME, which every pod copies to its node's disk")
    add("--provisioning", choices=sorted(PROVISIONING), default="on-demand", help="kind of nodes (default: on-demand)")
    add(
        "--max_restarts",
        type=int,
        metavar="N",
        help="restarts in all, including preemptions (default: 50; spot and flex-start: 1000)",
    )
    add(
        "--grace_seconds",
        type=int,
        default=120,
        metavar="S",
        help="seconds to save for an evicted pod (default: 120); a preempted spot node gives 15 by default",
    )
    add("arguments", nargs="*", help="arguments of bert-jax pretrain, after --")
    return made


def jobset(args: argparse.Namespace) -> dict[str, Any]:
    """Return the manifest; exit with status 2 and one line for invalid arguments."""
    check_label(
        "--name", args.name, longest=40
    )  # the longest pod name, NAME-slice-0-HOST-xxxxx, has at most 63 characters
    check_label("--namespace", args.namespace)
    check_label("--service_account", args.service_account)
    for option in ("workdir", "corpus"):
        value = getattr(args, option)
        if value is not None and not re.match(r"gs://[^/]+/+[^/]", value):
            refuse(f"--{option} {value!r} is not gs://BUCKET/NAME: a pod has no other storage that outlives it")
    accelerator, hosts, chips = slice_shape(args)
    if args.slices < 1 or (args.slices > 1 and hosts == 1):
        refuse(f"--slices {args.slices}: GKE joins slices of several hosts each; give 1, or a larger --topology")
    max_restarts = PROVISIONING[args.provisioning][2] if args.max_restarts is None else args.max_restarts
    restarts = {
        "maxRestarts": max_restarts,
        "rules": [{"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}],
    }
    job = {
        "parallelism": hosts,
        "completions": hosts,
        "completionMode": "Indexed",
        "backoffLimit": 0,  # a single pod cannot rejoin a run, so the JobSet restarts all pods
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": "pretrain", "operator": "In", "values": [USER_MISTAKE]},
                }
            ]
        },
        "template": {"spec": pod(args, accelerator, chips)},
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": args.name,
            "namespace": args.namespace,
            "annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"},
        },
        "spec": {
            "failurePolicy": restarts,
            "replicatedJobs": [{"name": "slice", "replicas": args.slices, "template": {"spec": job}}],
        },
    }


def manifest(args: argparse.Namespace) -> dict[str, Any]:
    """Return the JobSet and the secret of its processes, without which anyone in the cluster could join the run."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name(args), "namespace": args.namespace},
        "type": "Opaque",
        "stringData": {"token": secrets.token_hex()},
    }
    return {"apiVersion": "v1", "kind": "List", "items": [secret, jobset(args)]}


def secret_name(args: argparse.Namespace) -> str:
    """Return the name of the secret."""
    return f"{args.name}-token"


def pod(args: argparse.Namespace, accelerator: str, chips: int) -> dict[str, Any]:
    """Return the pod of one host."""
    selector = {"cloud.google.com/gke-tpu-accelerator": accelerator, "cloud.google.com/gke-tpu-topology": args.topology}
    tolerations = []
    label, absent, _ = PROVISIONING[args.provisioning]
    if args.accelerator in absent:
        refuse(f"--provisioning {args.provisioning} does not exist for {args.accelerator}")
    if label:
        selector[label] = "true"
        tolerations = [{"key": label, "operator": "Equal", "value": "true", "effect": "NoSchedule"}]
    corpus = [] if args.corpus is None else [f"--config.data.corpus={args.corpus}"]
    training = ["bash", "launch/pretrain.sh", "--keep_log", "60", args.workdir, "--config", args.config]
    return {
        "restartPolicy": "Never",
        "serviceAccountName": args.service_account,
        "terminationGracePeriodSeconds": args.grace_seconds,
        "nodeSelector": selector,
        "tolerations": tolerations,
        "containers": [
            {
                "name": "pretrain",
                "image": args.image,
                # Kubernetes expands $(NAME); $$ stands for a dollar sign.
                "command": [word.replace("$", "$$") for word in (*training, *corpus, *args.arguments)],
                "env": [
                    {
                        "name": "BERT_JAX_TOKEN",
                        "valueFrom": {"secretKeyRef": {"name": secret_name(args), "key": "token"}},
                    }
                ],
                # Ports: traffic between the hosts of a slice, metrics, traffic between slices.
                "ports": [{"containerPort": port} for port in (8471, 8431, 8080)[: 3 if args.slices > 1 else 2]],
                "resources": {"requests": {"google.com/tpu": chips}, "limits": {"google.com/tpu": chips}},
            }
        ],
    }


def slice_shape(args: argparse.Namespace) -> tuple[str, int, int]:
    """Return GKE's name of the accelerator, the number of hosts and the chips per host."""
    accelerator, dimensions = ACCELERATORS[args.accelerator]
    if not re.fullmatch("x".join(["[1-9][0-9]{0,2}"] * dimensions), args.topology):
        refuse(f"--topology {args.topology!r}: {args.accelerator} needs {'x'.join('ABC'[:dimensions])}")
    total = math.prod(map(int, args.topology.split("x")))
    chips = args.chips_per_host or min(total, 4)
    if chips < 1 or total % chips:
        refuse(f"--topology {args.topology} has {total} chips, which do not divide into hosts of {chips}")
    return accelerator, total // chips, chips


def check_label(option: str, value: str, longest: int = 63) -> None:
    """Refuse a name that is not a DNS label, as Kubernetes requires."""
    if not re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", value) or len(value) > longest:
        suggestion = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-0123456789")[:longest].strip("-") or "bert"
        refuse(f"{option} {value!r}: use at most {longest} lower-case letters, digits and dashes, such as {suggestion}")


def refuse(message: str) -> NoReturn:
    """Exit as bert-jax does for a mistake of the user."""
    print(f"jobset.py: {message}", file=sys.stderr)
    sys.exit(USER_MISTAKE)


if __name__ == "__main__":
    print(json.dumps(manifest(parser().parse_args()), indent=2))
