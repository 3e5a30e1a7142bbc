"""launch/gke/jobset.py: the manifest's structure, and its pods run by a stand-in kubectl."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml

from tests.launch.cloud import HERE, PYTHON, ROOT

JOBSET = ROOT / "launch" / "gke" / "jobset.py"
OPTIONS = {
    "name": "bert-base",
    "image": "example.org/bert-jax:1",
    "accelerator": "v5e",
    "topology": "16x16",
    "service_account": "trainer",
    "workdir": "gs://my-bucket/runs/base",
    "config": "configs/bert_base.py",
}
HOSTILE = [
    "a b",
    'it\'s "quoted"',
    "$(touch canary)",
    "$$(HOME) $HOME $(HOME)",
    "; touch canary",
    "- a: b",
    "two\nlines",
    "",
]


def jobset(*more: str, **options: str) -> subprocess.CompletedProcess:
    words = [word for name, value in (OPTIONS | options).items() for word in (f"--{name}={value}",)]
    return subprocess.run([sys.executable, JOBSET, *words, *more], capture_output=True, text=True)


def manifest(*more: str, **options: str) -> dict:
    done = jobset(*more, **options)
    assert done.returncode == 0, done.stderr
    secret, made = yaml.safe_load(done.stdout)["items"]
    assert secret["kind"] == "Secret"
    return made


def job_of(made: dict) -> dict:
    (replicated,) = made["spec"]["replicatedJobs"]
    return replicated["template"]["spec"]


def test_the_token_is_a_secret_that_each_manifest_draws() -> None:
    lists = [yaml.safe_load(jobset(name="x").stdout) for _ in range(2)]
    secrets = [made["items"][0] for made in lists]
    tokens = {secret["stringData"]["token"] for secret in secrets}
    assert {len(token) for token in tokens} == {64}
    assert len(tokens) == 2
    for made in lists:
        secret, jobs = made["items"]
        assert secret["metadata"] == {"name": "x-token", "namespace": jobs["metadata"]["namespace"]}
        assert secret["stringData"]["token"] not in json.dumps(jobs)
        (container,) = job_of(jobs)["template"]["spec"]["containers"]
        (variable,) = container["env"]
        assert variable["name"] == "BERT_JAX_TOKEN"
        assert variable["valueFrom"]["secretKeyRef"] == {"name": "x-token", "key": "token"}


def test_several_slices_are_replicas_with_a_port_between_them() -> None:
    one, two = manifest(), manifest(slices="2")
    assert [made["spec"]["replicatedJobs"][0]["replicas"] for made in (one, two)] == [1, 2]
    (container,) = job_of(two)["template"]["spec"]["containers"]
    assert {"containerPort": 8080} in container["ports"]
    job_of(two)["template"]["spec"]["containers"][0]["ports"].remove({"containerPort": 8080})
    two["spec"]["replicatedJobs"][0]["replicas"] = 1
    assert one == two
    done = jobset(slices="2", topology="2x2")
    assert done.returncode == 2
    assert done.stderr.startswith("jobset.py: --slices 2: GKE joins slices of several hosts each")


def test_the_manifest() -> None:
    made = manifest("--provisioning=spot", "--max_restarts", "9", "--grace_seconds", "60", "--", "--config.seed=1")
    assert (made["apiVersion"], made["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert made["metadata"]["name"] == "bert-base"
    assert made["spec"]["failurePolicy"]["maxRestarts"] == 9
    (rule,) = made["spec"]["failurePolicy"]["rules"]
    assert rule == {"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    job = job_of(made)
    assert job["parallelism"] == job["completions"] == 64  # 256 chips, 4 a host
    assert (job["completionMode"], job["backoffLimit"]) == ("Indexed", 0)
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob"
    assert rule["onExitCodes"] == {"containerName": "pretrain", "operator": "In", "values": [2]}
    spec = job["template"]["spec"]
    assert spec["restartPolicy"] == "Never"  # what podFailurePolicy asks for
    assert spec["terminationGracePeriodSeconds"] == 60
    assert spec["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "16x16",
        "cloud.google.com/gke-spot": "true",
    }
    (container,) = spec["containers"]
    assert container["name"] == "pretrain"
    assert container["resources"] == {"requests": {"google.com/tpu": 4}, "limits": {"google.com/tpu": 4}}
    assert container["command"][2:] == [
        "--keep_log",
        "60",
        OPTIONS["workdir"],
        "--config",
        OPTIONS["config"],
        "--config.seed=1",
    ]


@pytest.mark.parametrize("kind", ["spot", "flex-start"])
def test_kinds_of_nodes(kind) -> None:
    spec = job_of(manifest(provisioning=kind))["template"]["spec"]
    label = f"cloud.google.com/gke-{kind}"
    assert spec["nodeSelector"][label] == "true"
    assert spec["tolerations"] == [{"key": label, "operator": "Equal", "value": "true", "effect": "NoSchedule"}]
    done = jobset(provisioning="flex-start", accelerator="v4", topology="2x2x2")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "jobset.py: --provisioning flex-start does not exist for v4\n"


@pytest.mark.parametrize(("kind", "restarts"), [("on-demand", 50), ("spot", 1000), ("flex-start", 1000)])
def test_nodes_that_are_lost_often_have_more_restarts(kind, restarts) -> None:
    assert manifest(provisioning=kind)["spec"]["failurePolicy"]["maxRestarts"] == restarts
    assert manifest("--max_restarts=0", provisioning=kind)["spec"]["failurePolicy"]["maxRestarts"] == 0


def test_the_help_promises_no_more_than_spot_nodes_give() -> None:
    done = subprocess.run([sys.executable, JOBSET, "--help"], capture_output=True, text=True, check=True)
    assert "a preempted spot node gives 15 by default" in " ".join(done.stdout.split())


def test_the_corpus_is_the_first_argument() -> None:
    corpus = "gs://my-bucket/$HOME"
    (container,) = job_of(manifest("--", "--config.seed=1", corpus=corpus))["template"]["spec"]["containers"]
    given = corpus.replace("$", "$$")
    assert container["command"][-2:] == [f"--config.data.corpus={given}", "--config.seed=1"]


@pytest.mark.parametrize(
    ("accelerator", "topology", "label", "hosts", "chips"),
    [
        ("v5e", "1x1", "tpu-v5-lite-podslice", 1, 1),
        ("v5e", "4x4", "tpu-v5-lite-podslice", 4, 4),
        ("v6e", "8x8", "tpu-v6e-slice", 16, 4),
        ("v5p", "4x4x8", "tpu-v5p-slice", 32, 4),
        ("v4", "2x2x2", "tpu-v4-podslice", 2, 4),
        ("tpu7x", "2x2x1", "tpu7x", 1, 4),
        ("tpu7x", "4x4x8", "tpu7x", 32, 4),
    ],
)
def test_slices(accelerator, topology, label, hosts, chips) -> None:
    job = job_of(manifest(accelerator=accelerator, topology=topology))
    spec = job["template"]["spec"]
    assert job["parallelism"] == hosts
    assert spec["containers"][0]["resources"]["limits"] == {"google.com/tpu": chips}
    assert spec["nodeSelector"]["cloud.google.com/gke-tpu-accelerator"] == label
    assert "cloud.google.com/gke-spot" not in spec["nodeSelector"]


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("name", "my run; $(touch canary)", "such as my-run-touch-canary"),
        ("name", "Bert_Base", "such as bert-base"),
        ("name", "a\nb: c", "such as a-b-c"),
        ("name", "'\"{}", "such as bert"),
        ("name", "b" * 41, "at most 40"),
        ("service_account", "a/b", "--service_account"),
        ("workdir", "/elsewhere/run", "--workdir '/elsewhere/run' is not gs://BUCKET/NAME"),
        ("workdir", "s3://bucket/run", "--workdir 's3://bucket/run' is not gs://BUCKET/NAME"),
        ("workdir", "gs://bucket", "--workdir 'gs://bucket' is not gs://BUCKET/NAME"),
        ("workdir", "gs://bucket/", "--workdir 'gs://bucket/' is not gs://BUCKET/NAME"),
        ("workdir", "gs:/bucket/run", "--workdir 'gs:/bucket/run' is not gs://BUCKET/NAME"),
        ("corpus", "/elsewhere/corpus", "--corpus '/elsewhere/corpus' is not gs://BUCKET/NAME"),
        ("topology", "4x4x4", "v5e needs AxB"),
        ("topology", "$(x)", "--topology"),
        ("topology", "3x3", "do not divide into hosts of 4"),
    ],
)
def test_invalid_arguments_are_refused(option, value, says) -> None:
    done = jobset(**{option: value})
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def run_pods(place: pathlib.Path, starts: list, *arguments: str) -> subprocess.CompletedProcess:
    """jobset.py | kubectl apply -f -, on a slice of two hosts, with `place` as the bucket."""
    (place / "bin").mkdir()
    (place / "bin" / "bert-jax").symlink_to(HERE / "trainer.py")
    (place / "next").write_text(json.dumps(starts))
    made = manifest("--max_restarts", "3", "--", *arguments, accelerator="v4", topology="2x2x2")
    python = pathlib.Path(sys.executable).parent
    path = f"{place / 'bin'}:{HERE / 'bin'}:{HERE / 'worker_bin'}:{python}:{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "CLOUD": str(place), "STANDIN_SCRIPT": str(place)}
    env |= {"STANDIN_BUCKETS": str(place), "PYTHONPATH": str(PYTHON)}
    return subprocess.run(
        ["kubectl", "apply", "-f", "-"], input=json.dumps(made), env=env, capture_output=True, text=True
    )


def test_restarted_until_finished(tmp_path) -> None:
    done = run_pods(tmp_path, [[124, 12], [1, 23]], *HOSTILE)
    assert done.returncode == 0, done.stderr
    starts = [json.loads(line) for line in (tmp_path / "argv.jsonl").read_text().splitlines()]
    expected = ["pretrain", "--workdir", OPTIONS["workdir"], "--config", OPTIONS["config"], *HOSTILE]
    assert [argv for _, *argv in starts] == [expected] * 6
    run = tmp_path / "my-bucket" / "runs" / "base"
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 41))
    kept = sorted((run / "logs").glob("*_host-0.log"))
    assert [one.read_text().splitlines()[-1] for one in kept] == ["ending with 124", "ending with 1", "step 40/40"]
    assert not list(tmp_path.rglob("canary*"))
    assert not (ROOT / "canary").exists()


def test_an_interrupted_pod_is_restarted(tmp_path) -> None:
    """Kubernetes would take exit status 0 of a preempted pod for the end of the run."""
    done = run_pods(tmp_path, [[0, 12]])
    assert done.returncode == 0, done.stderr
    starts = (tmp_path / "argv.jsonl").read_text().splitlines()
    assert len(starts) == 4
    assert (tmp_path / "my-bucket" / "runs" / "base" / "checkpoints" / "40").is_dir()


def test_a_mistake_of_the_user_ends_the_jobset(tmp_path) -> None:
    done = run_pods(tmp_path, [[2, None]])
    assert "FailJobSet" in done.stderr
    assert len((tmp_path / "argv.jsonl").read_text().splitlines()) == 2
