"""Cluster environments: a process finds the other processes of its run through variables that a scheduler sets.

To add a scheduler, add a row to CLUSTERS.
"""

import glob
import importlib.util
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import NamedTuple

from bert_jax.parallel.rendezvous import Peers

Environment = Mapping[str, str]

TPU_PORT = 8482  # port of the coordinator, as in JAX
GOOGLE_PCI_VENDOR = "0x1ae0"
METADATA_SECONDS = 10.0  # limit for one answer of the metadata server of a Cloud TPU host
METADATA_TRIES = 6


class Cluster(NamedTuple):
    """A scheduler, and the way to read its environment variables.

    Attributes:
        name: name of the scheduler.
        present: function (environment) -> whether this process runs in a cluster of the scheduler.
        peers: function (environment) -> all processes of the run and the number of this process; the function raises
            KeyError or ValueError for variables that are missing or malformed.
    """

    name: str
    present: Callable[[Environment], bool]
    peers: Callable[[Environment], Peers]


def detect_peers(environment: Environment | None = None) -> Peers | None:
    """Return the peers of the first cluster that is present; None without a cluster, or for a run of one process.

    JAX_COORDINATOR_PORT overrides the port of the coordinator.
    """
    environment = os.environ if environment is None else environment
    for cluster in CLUSTERS:
        if cluster.present(environment):
            peers = cluster.peers(environment)
            if port := environment.get("JAX_COORDINATOR_PORT"):
                peers = peers._replace(coordinator=f"{peers.coordinator.rpartition(':')[0]}:{port}")
            return peers if peers.num_processes > 1 else None
    return None


# Slurm and Open MPI: one process per GPU; the index of a process on its node is the index of its GPU.


def _slurm_peers(environment: Environment) -> Peers:
    first = re.match(r"([^,\[]+)(?:\[(\d+))?", environment["SLURM_STEP_NODELIST"])  # node7,x or node[007-015,020],x
    if not first:
        raise ValueError(f"SLURM_STEP_NODELIST={environment['SLURM_STEP_NODELIST']}")
    port = _port_of_job(int(environment["SLURM_JOB_ID"]))
    return Peers(
        f"{first[1]}{first[2] or ''}:{port}",
        int(environment["SLURM_STEP_NUM_TASKS"]),  # SLURM_NTASKS can be the number of the whole job, as in `salloc`
        int(environment["SLURM_PROCID"]),
        [int(environment["SLURM_LOCALID"])],
    )


def _is_open_mpi(environment: Environment) -> bool:
    return "OMPI_MCA_orte_hnp_uri" in environment or int(environment.get("OMPI_COMM_WORLD_SIZE") or 1) > 1


def _open_mpi_peers(environment: Environment) -> Peers:
    uri = environment.get("OMPI_MCA_orte_hnp_uri")  # such as 1531576320.0;tcp://10.96.0.1,10.148.0.1:34911
    if not uri:
        raise ValueError("Open MPI 5 and newer do not tell the address of process 0")
    match = re.match(r"(\d+)\.\d+;(?:tcp://([^,:]+)|tcp6://\[([^,\]]+))", uri)
    if not match:
        raise ValueError(f"OMPI_MCA_orte_hnp_uri={uri}")
    host = match[2] or f"[{match[3]}]"
    port = _port_of_job(int(match[1]) >> 12)  # job numbers are multiples of 2^12
    return Peers(
        f"{host}:{port}",
        int(environment["OMPI_COMM_WORLD_SIZE"]),
        int(environment["OMPI_COMM_WORLD_RANK"]),
        [int(environment["OMPI_COMM_WORLD_LOCAL_RANK"])],
    )


def _port_of_job(job: int) -> int:
    """Return a port from 61,440 to 65,535 that differs between jobs."""
    return 65_536 - 4_096 + job % 4_096


# TPU slices: one process per host. In a run on several slices, processes are numbered slice by slice.


def _gke_tpu_hosts(environment: Environment) -> str | None:
    """Return the addresses of the hosts of a TPU slice on GKE, separated by commas; None outside GKE."""
    return environment.get("TPU_PROCESS_ADDRESSES") or environment.get("TPU_WORKER_HOSTNAMES")


def _gke_tpu_peers(environment: Environment) -> Peers:
    hosts = str(_gke_tpu_hosts(environment)).split(",")
    return _tpu_peers([host.partition(":")[0] for host in hosts], int(environment["TPU_WORKER_ID"]), environment)


def _cloud_tpu_peers(environment: Environment) -> Peers:
    # The attribute lists host names, or entries NAME:ID:IP.
    hosts = [endpoint.split(":")[-1] for endpoint in (_gce_metadata("worker-network-endpoints") or "").split(",")]
    entries = re.findall(r"^\s*(MEGASCALE_\w+)\s*:\s*'?([^'\n]*)'?\s*$", _gce_metadata("tpu-env") or "", re.MULTILINE)
    return _tpu_peers(hosts, int(_gce_metadata("agent-worker-number") or "0"), dict(entries) | dict(environment))


def _tpu_peers(hosts: list[str], host_index: int, environment: Environment) -> Peers:
    """Return the peers of a run on TPU slices; `hosts` and `host_index` describe the slice of this process."""
    slices = int(environment.get("MEGASCALE_NUM_SLICES") or 1)
    this_slice = int(environment.get("MEGASCALE_SLICE_ID") or 0)
    first = environment.get("MEGASCALE_COORDINATOR_ADDRESS", "").partition(":")[0] or hosts[0]
    return Peers(f"{first}:{TPU_PORT}", len(hosts) * slices, this_slice * len(hosts) + host_index)


def _has_tpu() -> bool:
    """Return whether this host has TPU chips and libtpu is installed."""
    vendors = glob.glob("/sys/bus/pci/devices/*/vendor")
    return importlib.util.find_spec("libtpu") is not None and any(
        open(path, encoding="ascii").read().strip() == GOOGLE_PCI_VENDOR for path in vendors
    )


def _gce_metadata(name: str) -> str | None:
    """Return an attribute of this virtual machine; None if the attribute or the metadata server does not exist."""
    host = os.environ.get("GCE_METADATA_IP", "metadata.google.internal")
    url = f"http://{host}/computeMetadata/v1/instance/attributes/{name}"
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(METADATA_TRIES):
        try:
            request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
            with direct.open(request, timeout=METADATA_SECONDS) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
        except OSError:
            pass
        time.sleep(0.5)
    return None


_SLURM = {"SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID"}

CLUSTERS = (
    Cluster("Open MPI", _is_open_mpi, _open_mpi_peers),
    Cluster("Slurm", lambda environment: set(environment) >= _SLURM, _slurm_peers),
    Cluster("GKE with TPUs", lambda environment: bool(_gke_tpu_hosts(environment)) and _has_tpu(), _gke_tpu_peers),
    Cluster(
        "Cloud TPU",
        lambda environment: (
            "TPU_SKIP_MDS_QUERY" not in environment and _has_tpu() and _gce_metadata("agent-worker-number") is not None
        ),
        _cloud_tpu_peers,
    ),
)
