#!/usr/bin/env bash
# `bert-jax pretrain` for launchers, with exit statuses that distinguish "finished" from "saved and stopped": 0 means that
# the last step is saved, 75 that a signal stopped the run earlier; other statuses are as of bert-jax (docs/launch.md).
#
#   launch/pretrain.sh [--keep_log SECONDS] WORKDIR [other arguments of `bert-jax pretrain`...]
#
# --keep_log copies the output to WORKDIR/logs/TIME_HOST.log, every SECONDS and at the end, since a preempted host loses
# its disk and a pod its log; HOST is $HOST_NAME, or the output of `hostname`. A copy that fails is reported once and tried
# again; it never ends the run. WORKDIR is a path, gs://BUCKET/NAME or s3://BUCKET/NAME; for a URL, python3 must be
# the Python that bert-jax is installed in.
set -uo pipefail
{  # bash reads the whole block before it runs it: the file may change during the run
    here=$(dirname "${BASH_SOURCE[0]}")
    in_workdir() { timeout --signal=KILL 60 python3 "$here/workdir.py" "$@"; }  # storage may not answer
    keep_log() {  # SECONDS LOG WORKDIR NAME; until the standard input ends
        local log=$2 ended=0 size=0 now error said=''
        trap '' TERM INT  # the run may save for minutes after it
        while ((!ended)); do
            read -r -t "$1" || (($? > 128)) || ended=1
            now=$(stat --format=%s "$log")
            ((now > size)) || continue
            if error=$(in_workdir write "$3" "$4" <"$log" 2>&1); then
                size=$now said=''
            elif [[ ! $said ]]; then
                said=${error:-no answer in 60 s}
                echo "pretrain.sh: the log is not copied to $3/$4 for now: $said"
            fi
        done
    }

    every=''
    if [[ ${1-} == --keep_log ]]; then
        every=${2:?}
        shift 2
    fi
    workdir=${1:?"usage: $0 [--keep_log SECONDS] WORKDIR [arguments of bert-jax pretrain...]"}
    shift
    in_workdir check "$workdir" || exit

    if [[ $every ]] && log=$(mktemp); then
        exec 3> >(keep_log "$every" "$log" "$workdir" "logs/$(date --utc +%Y%m%d-%H%M%S.%3N)_${HOST_NAME-$(hostname)}.log")
        keeper=$!
        bert-jax pretrain --workdir "$workdir" "$@" >"$log" 2>&1 3>&- &
    else
        every=''
        bert-jax pretrain --workdir "$workdir" "$@" &
    fi
    child=$!
    trap 'kill -TERM "$child" 2>/dev/null' TERM INT
    if [[ $every ]]; then
        (trap '' TERM INT; exec tail --lines=+1 --follow --sleep-interval=0.2 --pid="$child" "$log" 3>&-) &
        relay=$!
    fi
    # Not `wait` alone: a signal that interrupts it just when the child ends loses the child's status.
    exec {nothing}<> <(:)  # `read` on it sleeps, and lets a trap run at once
    while kill -0 "$child" 2>/dev/null; do read -r -t 0.2 -u "$nothing"; done
    wait "$child"
    status=$?
    if [[ $every ]]; then
        wait "$relay"
        exec 3>&-
        wait "$keeper"
        rm -f "$log"
    fi

    if ((status == 0)) && ! in_workdir progress "$workdir" >/dev/null; then
        status=75
    fi
    exit "$status"
}
