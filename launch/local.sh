#!/usr/bin/env bash
# One run of `bert-jax pretrain` in N processes on this machine.
#
#   launch/local.sh [--cpu_devices K] N [arguments of `bert-jax pretrain`...]
#
# If there are GPUs, process I uses GPU I (JAX_PLATFORMS=cpu prevents that). On CPUs, --cpu_devices K gives each process
# K virtual devices. The output of process 0 is printed unchanged, the output of process I with the prefix "[I] ".
# Ctrl-C and SIGTERM are passed to every process, and all save and stop, also when the terminal closes (SIGHUP). No
# process is killed: those that wait for a dead process are ended by their own watchdog. Exit status: 0 if all processes
# end with 0; otherwise the first other status, preferably not 124, the status of a process that only lost another process.
set -uo pipefail

die() { echo "local.sh: $1" >&2; exit 2; }

devices=''
if [[ ${1-} == --cpu_devices ]]; then
    devices=${2-}
    [[ $devices =~ ^[1-9][0-9]*$ ]] || die "--cpu_devices takes a positive number, not '$devices'"
    shift 2
fi
count=${1-}
[[ $count =~ ^[1-9][0-9]*$ ]] || die "give the number of processes first, as in: launch/local.sh [--cpu_devices 4] 2 --config=demo --workdir runs/two"
shift

gpus=()
if [[ -z $devices && ${JAX_PLATFORMS-} != cpu ]] && command -v nvidia-smi >/dev/null; then
    if [[ -v CUDA_VISIBLE_DEVICES ]]; then
        IFS=, read -ra gpus <<<"$CUDA_VISIBLE_DEVICES"
    else
        # Without a GPU, nvidia-smi prints a sentence.
        mapfile -t gpus < <(nvidia-smi --query-gpu=index --format=csv,noheader | grep -x '[0-9]\+')
    fi
    ((${#gpus[@]} == 0 || ${#gpus[@]} >= count)) || die "$count processes need as many GPUs, but there are ${#gpus[@]}; set JAX_PLATFORMS=cpu to use the CPU"
fi
if [[ $devices ]]; then
    export JAX_PLATFORMS=cpu XLA_FLAGS="${XLA_FLAGS-} --xla_force_host_platform_device_count=$devices"
    export NPROC=${NPROC:-64}  # a thread for each device of a collective, even on few cores
fi

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])') || exit
# shellcheck source=launch/draw_token.sh
source "$(dirname "${BASH_SOURCE[0]}")/draw_token.sh"  # other runs are strangers
one() {  # process I
    local i=$1
    shift
    if ((${#gpus[@]})); then export CUDA_VISIBLE_DEVICES=${gpus[i]}; fi
    exec bert-jax pretrain "$@" --coordinator "127.0.0.1:$port" --num_processes "$count" --process_id "$i"
}

set -m  # a process group for each process: Ctrl-C reaches it once, through the trap below
pids=()
early=''  # a signal that arrives before all processes are started
trap 'early=INT' INT
trap 'early=TERM' TERM HUP
for ((i = 0; i < count; i++)); do
    if ((i == 0)); then
        one 0 "$@" &
    else
        one "$i" "$@" > >(trap '' INT TERM HUP; exec sed -u "s/^/[$i] /") 2>&1 &
    fi
    pids+=($!)
done
trap 'kill -INT "${pids[@]}" 2>/dev/null' INT
trap 'kill -TERM "${pids[@]}" 2>/dev/null' TERM HUP
[[ ! $early ]] || kill "-$early" "${pids[@]}"

exec {nothing}<> <(:)  # `read` on it sleeps, and lets a trap run at once
result=0
for pid in "${pids[@]}"; do
    # Not `wait` alone: a signal that interrupts it just when a process ends loses the status of the process.
    while kill -0 "$pid" 2>/dev/null; do read -r -t 0.2 -u "$nothing"; done
    wait "$pid"
    status=$?
    if ((status && (result == 0 || (result == 124 && status != 124)))); then result=$status; fi
done
exit "$result"
