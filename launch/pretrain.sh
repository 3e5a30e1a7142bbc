#!/usr/bin/env bash
# `bert-jax pretrain` for launchers, with exit statuses that distinguish "finished" from "saved and stopped": 0 means that
# the last step is saved, 75 that a signal stopped the run earlier; other statuses are those of bert-jax (docs/launch.md).
#
#   launch/pretrain.sh WORKDIR [other arguments of `bert-jax pretrain`...]
set -uo pipefail
{  # bash reads the whole block before it runs it: the file may change during the run
    workdir=${1:?"usage: $0 WORKDIR [arguments of bert-jax pretrain...]"}
    shift

    bert-jax pretrain --workdir "$workdir" "$@" &
    child=$!
    trap 'signalled=1; kill -TERM "$child" 2>/dev/null' TERM INT
    status=0 signalled=1
    while ((signalled)); do  # a signal interrupts `wait`
        signalled=0
        wait "$child"
        status=$?
    done

    if ((status == 0)) && ! python3 "$(dirname "${BASH_SOURCE[0]}")/progress.py" "$workdir" >/dev/null; then
        status=75
    fi
    exit "$status"
}
