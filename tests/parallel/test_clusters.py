"""Detection of the cluster: environments of schedulers against JAX's own reading of them, and against known answers."""

import importlib
import pathlib

import pytest

from bert_jax.errors import UserError
from bert_jax.parallel import clusters
from bert_jax.parallel.joining import find_peers
from bert_jax.parallel.rendezvous import Peers

SLURM = {
    "SLURM_JOB_ID": "123456",
    "SLURM_STEP_NODELIST": "gpu[007-015,020],other",
    "SLURM_NTASKS": "16",
    "SLURM_STEP_NUM_TASKS": "16",
    "SLURM_PROCID": "9",
    "SLURM_LOCALID": "1",
}
OPEN_MPI = {
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1,10.108.0.1:34911",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
}
OPEN_MPI_5 = {
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "PRTE_LAUNCHED": "1",
}
GKE = {"TPU_WORKER_HOSTNAMES": "host-0.svc,host-1.svc", "TPU_WORKER_ID": "1"}
SLICES = {"MEGASCALE_NUM_SLICES": "3", "MEGASCALE_SLICE_ID": "2", "MEGASCALE_COORDINATOR_ADDRESS": "first.svc:8080"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        (SLURM, Peers("gpu007:62016", 16, 9, [1])),
        (SLURM | {"SLURM_STEP_NODELIST": "node7,node9"}, Peers("node7:62016", 16, 9, [1])),
        (SLURM | {"JAX_COORDINATOR_PORT": "1234"}, Peers("gpu007:1234", 16, 9, [1])),
        # The shell of `salloc --ntasks=16` in Slurm 22.05 is a step of one task.
        (SLURM | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}, None),
        ({key: value for key, value in SLURM.items() if key != "SLURM_PROCID"}, None),
        (OPEN_MPI, Peers("10.96.0.1:62624", 4, 3, [1])),
        (
            OPEN_MPI | {"OMPI_MCA_orte_hnp_uri": "1314521088.0;tcp6://[fe80::b9b,2620::2]:43370"},
            Peers("[fe80::b9b]:62880", 4, 3, [1]),
        ),
        (OPEN_MPI_5 | {"OMPI_COMM_WORLD_SIZE": "1"}, None),
    ],
)
def test_schedulers_of_gpus(environment: dict[str, str], expected: Peers | None) -> None:
    assert clusters.detect_peers(environment) == expected


@pytest.mark.parametrize("environment", [SLURM, SLURM | {"SLURM_STEP_NODELIST": "a-1"}, OPEN_MPI])
def test_detected_peers_equal_the_peers_that_jax_detects(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        theirs = importlib.import_module("jax._src.clusters").ClusterEnv
    except (ImportError, AttributeError):
        pytest.skip("JAX's detection, which has no public name, has moved")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = theirs.auto_detect_unset_distributed_params(None, None, None, None, None, 1)
    assert tuple(clusters.detect_peers(environment) or ())[:4] == found


def test_tpu_slices_on_gke(monkeypatch: pytest.MonkeyPatch) -> None:
    assert clusters.detect_peers(GKE) is None, "the variables alone do not make a TPU host"
    monkeypatch.setattr(clusters, "_has_tpu", lambda: True)
    assert clusters.detect_peers(GKE) == Peers("host-0.svc:8482", 2, 1)
    assert clusters.detect_peers(GKE | {"TPU_PROCESS_ADDRESSES": "a:8471,b:8471,c:8471"}) == Peers("a:8482", 3, 1)
    assert clusters.detect_peers(GKE | SLICES) == Peers("first.svc:8482", 6, 5)


@pytest.mark.parametrize("endpoints", ["10.0.0.1,10.0.0.2", "one:17:10.0.0.1,two:18:10.0.0.2"])
def test_cloud_tpu_hosts_ask_their_metadata_server(monkeypatch: pytest.MonkeyPatch, endpoints: str) -> None:
    answers = {"agent-worker-number": "1", "worker-network-endpoints": endpoints, "tpu-env": "ZONE: 'us-west4-a'\n"}
    monkeypatch.setattr(clusters, "_has_tpu", lambda: True)
    monkeypatch.setattr(clusters, "_gce_metadata", answers.get)
    assert clusters.detect_peers({}) == Peers("10.0.0.1:8482", 2, 1)
    assert clusters.detect_peers({"TPU_SKIP_MDS_QUERY": "1"}) is None
    answers["tpu-env"] += "MEGASCALE_NUM_SLICES: '2'\nMEGASCALE_SLICE_ID: '1'\n"
    assert clusters.detect_peers({}) == Peers("10.0.0.1:8482", 4, 3)
    del answers["agent-worker-number"]
    assert clusters.detect_peers({}) is None


@pytest.mark.parametrize(
    ("environment", "says"),
    [(SLURM | {"SLURM_STEP_NUM_TASKS": "many"}, "many"), (OPEN_MPI_5, "Open MPI 5 and newer do not tell the address")],
)
def test_a_malformed_environment_is_refused(
    environment: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=rf"\(ValueError: .*{says}.*pass --coordinator, .* or --num_processes 1 alone"):
        find_peers(None, None, None)
    assert find_peers(None, 1, None) is None


def test_nothing_private_of_jax_is_imported() -> None:
    package = pathlib.Path(clusters.__file__).parents[1]
    for path in package.rglob("*.py"):
        assert "jax._src" not in path.read_text(encoding="utf-8"), path
