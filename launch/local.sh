#!/usr/bin/env bash
# N processes of `bert-jax pretrain` on this machine, as one run.
#
#   launch/local.sh [--cpu_devices K] N [arguments of `bert-jax pretrain`...]
#
# Each process takes the GPU of its number, where there are GPUs (JAX_PLATFORMS=cpu keeps off them); on CPUs
# --cpu_devices K gives it K virtual devices. The output of process 0 appears as it is, that of process I after "[I] ".
# Ctrl-C and SIGTERM go to every process, which save and stop; none is ever killed, their own watchdog ends those that
# wait for a dead one. Exit status: 0 if all ended so, else the first that is not 0, preferably of a process that did
# not merely miss another (124).
set -uo pipefail

die() { echo "local.sh: $1" >&2; exit 2; }

devices=''
if [[ ${1-} == --cpu_devices ]]; then
    devices=${2-}
    [[ $devices =~ ^[1-9][0-9]*$ ]] || die "--cpu_devices takes a number, not '$devices'"
    shift 2
fi
count=${1-}
[[ $count =~ ^[1-9][0-9]*$ ]] || die "usage: launch/local.sh [--cpu_devices K] N [arguments of bert-jax pretrain...]"
shift

gpus=()
if [[ -z $devices && ${JAX_PLATFORMS-} != cpu ]] && command -v nvidia-smi >/dev/null; then
    if [[ -v CUDA_VISIBLE_DEVICES ]]; then
        IFS=, read -ra gpus <<<"$CUDA_VISIBLE_DEVICES"
    else
        mapfile -t gpus < <(nvidia-smi --query-gpu=index --format=csv,noheader)
    fi
    ((${#gpus[@]} >= count)) || die "$count processes, but ${#gpus[@]} GPUs; JAX_PLATFORMS=cpu runs on the CPU"
fi
if [[ $devices ]]; then
    export JAX_PLATFORMS=cpu XLA_FLAGS="${XLA_FLAGS-} --xla_force_host_platform_device_count=$devices"
    export NPROC=${NPROC:-64}  # a thread for each device of a collective, however few cores there are
fi

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])') || exit
one() {  # process I
    local i=$1
    shift
    if ((${#gpus[@]})); then export CUDA_VISIBLE_DEVICES=${gpus[i]}; fi
    exec bert-jax pretrain "$@" --coordinator "127.0.0.1:$port" --num_processes "$count" --process_id "$i"
}

set -m  # a group for each process, so that a Ctrl-C reaches it once, through the trap below
pids=()
for ((i = 0; i < count; i++)); do
    if ((i == 0)); then
        one 0 "$@" &
    else
        one "$i" "$@" > >(trap '' INT TERM; exec sed -u "s/^/[$i] /") 2>&1 &
    fi
    pids+=($!)
done
trap 'signalled=1; kill -INT "${pids[@]}" 2>/dev/null' INT
trap 'signalled=1; kill -TERM "${pids[@]}" 2>/dev/null' TERM

result=0
for pid in "${pids[@]}"; do
    signalled=1
    while ((signalled)); do  # a signal ends `wait` early
        signalled=0
        wait "$pid"
        status=$?
    done
    if ((status && (result == 0 || (result == 124 && status != 124)))); then result=$status; fi
done
exit "$result"
