#!/usr/bin/env bash
# `bert-jax pretrain` for a launcher, which must tell "finished" from "saved and stopped": exit status 0 means that the
# last step is saved, 75 that a signal ended the run before it; any other status is bert-jax's own (docs/launch.md).
#
#   launch/pretrain.sh WORKDIR [other arguments of `bert-jax pretrain`...]
set -uo pipefail
{  # read to the end before it runs, for it may change while the run lasts
    workdir=${1:?"usage: $0 WORKDIR [arguments of bert-jax pretrain...]"}
    shift

    bert-jax pretrain --workdir "$workdir" "$@" &
    child=$!
    trap 'signalled=1; kill -TERM "$child" 2>/dev/null' TERM INT
    status=0 signalled=1
    while ((signalled)); do  # a signal ends `wait` early
        signalled=0
        wait "$child"
        status=$?
    done

    if ((status == 0)) && ! python3 "$(dirname "${BASH_SOURCE[0]}")/progress.py" "$workdir" >/dev/null; then
        status=75
    fi
    exit "$status"
}
