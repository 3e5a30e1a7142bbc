"""A pretraining run as a JobSet for GKE: prints the manifest, to be piped into `kubectl apply -f -`.

python3 launch/gke/jobset.py --name bert-base --image IMAGE --accelerator v5e --topology 16x16 --bucket BUCKET \
    --service_account trainer --workdir /mnt/BUCKET/runs/base --config configs/bert_base.py \
    -- --config.data.corpus=/mnt/BUCKET/corpus | kubectl apply -f -

JSON is YAML, and here nothing that a user writes needs to be quoted for either. docs/launch.md leads through the rest.
"""

import argparse
import json
import math
import re
import sys
from typing import Any, NoReturn

# What GKE calls a slice of each generation, and how many numbers its topology has.
ACCELERATORS = {
    "v4": ("tpu-v4-podslice", 3),
    "v5e": ("tpu-v5-lite-podslice", 2),
    "v5p": ("tpu-v5p-slice", 3),
    "v6e": ("tpu-v6e-slice", 2),
}
USER_MISTAKE = 2  # bert-jax's exit status for what a restart cannot mend


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="jobset.py", description="Print the JobSet of a pretraining run.")
    add = made.add_argument
    add("--name", required=True, help="of the JobSet: lower-case letters, digits and dashes")
    add("--namespace", default="default", help="where --service_account lives (default: default)")
    add("--image", required=True, help="made of launch/gke/Dockerfile")
    add("--accelerator", required=True, choices=sorted(ACCELERATORS), help="generation of the TPU")
    add("--topology", required=True, metavar="AxB[xC]", help="of the slice, such as 16x16")
    add("--chips_per_host", type=int, metavar="N", help="default: 4, or all of a smaller slice")
    add("--bucket", required=True, help="mounted at /mnt/BUCKET in every pod")
    add("--service_account", required=True, help="of Kubernetes, with access to the bucket")
    add("--workdir", required=True, help="below /mnt/BUCKET")
    add("--config", required=True, help="recipe inside the image, such as configs/bert_base.py")
    add("--spot", action="store_true", help="on spot nodes")
    add("--max_restarts", type=int, default=50, metavar="N", help="preemptions included (default: 50)")
    add("--grace_seconds", type=int, default=120, metavar="S", help="to save before a pod is killed (default: 120)")
    add("arguments", nargs="*", help="of bert-jax pretrain, after --")
    return made


def jobset(args: argparse.Namespace) -> dict[str, Any]:
    """The manifest; exits with status 2 and one line on what does not fit."""
    check_label("--name", args.name, longest=40)  # pods are called NAME-slice-0-HOST-xxxxx, in at most 63 characters
    check_label("--namespace", args.namespace)
    check_label("--service_account", args.service_account)
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", args.bucket):
        refuse(f"--bucket {args.bucket!r} is no name of a bucket (without gs://)")
    if not args.workdir.startswith(f"/mnt/{args.bucket}/"):
        refuse(f"--workdir {args.workdir!r} is not below /mnt/{args.bucket}/, the one place that all pods share")
    accelerator, hosts, chips = slice_shape(args)
    restarts = {
        "maxRestarts": args.max_restarts,
        "rules": [{"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}],
    }
    job = {
        "parallelism": hosts,
        "completions": hosts,
        "completionMode": "Indexed",
        "backoffLimit": 0,  # one pod alone cannot come back into a run: the JobSet restarts them all
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": "pretrain", "operator": "In", "values": [USER_MISTAKE]},
                }
            ]
        },
        "template": {
            "metadata": {"annotations": {"gke-gcsfuse/volumes": "true"}},
            "spec": pod(args, accelerator, chips),
        },
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
            "replicatedJobs": [{"name": "slice", "replicas": 1, "template": {"spec": job}}],
        },
    }


def pod(args: argparse.Namespace, accelerator: str, chips: int) -> dict[str, Any]:
    """One host of the slice."""
    selector = {"cloud.google.com/gke-tpu-accelerator": accelerator, "cloud.google.com/gke-tpu-topology": args.topology}
    tolerations = []
    if args.spot:
        selector["cloud.google.com/gke-spot"] = "true"
        tolerations = [
            {"key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
        ]
    # No cache of names: the hosts wait for each other's files. The limit lets a checkpoint's directory be renamed.
    mount = "implicit-dirs,metadata-cache:ttl-secs:0,rename-dir-limit=100000"
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
                # Kubernetes would expand $(NAME) in it: $$ is a dollar sign.
                "command": [
                    word.replace("$", "$$")
                    for word in ["bash", "launch/pretrain.sh", args.workdir, "--config", args.config, *args.arguments]
                ],
                "ports": [{"containerPort": 8471}, {"containerPort": 8431}],  # between TPU hosts; their metrics
                "resources": {"requests": {"google.com/tpu": chips}, "limits": {"google.com/tpu": chips}},
                "volumeMounts": [{"name": "bucket", "mountPath": f"/mnt/{args.bucket}"}],
            }
        ],
        "volumes": [
            {
                "name": "bucket",
                "csi": {
                    "driver": "gcsfuse.csi.storage.gke.io",
                    "volumeAttributes": {"bucketName": args.bucket, "mountOptions": mount},
                },
            }
        ],
    }


def slice_shape(args: argparse.Namespace) -> tuple[str, int, int]:
    """GKE's name of the accelerator, hosts of the slice, chips a host."""
    accelerator, dimensions = ACCELERATORS[args.accelerator]
    if not re.fullmatch("x".join(["[1-9][0-9]{0,2}"] * dimensions), args.topology):
        refuse(f"--topology {args.topology!r}: {args.accelerator} takes {'x'.join('ABC'[:dimensions])}")
    total = math.prod(map(int, args.topology.split("x")))
    chips = args.chips_per_host or min(total, 4)
    if chips < 1 or total % chips:
        refuse(f"--topology {args.topology} has {total} chips: they do not divide into hosts of {chips}")
    return accelerator, total // chips, chips


def check_label(option: str, value: str, longest: int = 63) -> None:
    """Kubernetes takes DNS labels for names."""
    if not re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", value) or len(value) > longest:
        near = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-0123456789")[:longest].strip("-") or "bert"
        refuse(f"{option} {value!r}: at most {longest} lower-case letters, digits and dashes, such as {near}")


def refuse(message: str) -> NoReturn:
    """End as bert-jax does for a user's mistake."""
    print(f"jobset.py: {message}", file=sys.stderr)
    sys.exit(USER_MISTAKE)


if __name__ == "__main__":
    print(json.dumps(jobset(parser().parse_args()), indent=2))
