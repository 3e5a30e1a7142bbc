#!/usr/bin/env bash
# The part of tpu_pod.sh that runs on a host: it is copied to ~/bert_jax of every host and called over ssh.
#
#   setup PACKAGE WORKDIR       install Python and bert-jax, with the versions of WORKDIR/requirements.lock, if there is one
#                               BERT_JAX_PACKAGE: a checksum of the package
#   start WORKDIR [ARGUMENT..]  train in the background
#   state WORKDIR               print: host NAME STATE NEWEST_CHECKPOINT LAST_STEP LAST_LINE_OF_LOG
#                               With BERT_JAX_RUN, a host whose last run ended is ready for a run of another name.
#                               With BERT_JAX_PACKAGE, a host that has another package is bare, unless its run is active
#                               or finished.
#   stop                        save and stop
#   log LINES [follow]          print the end of the log
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
PATH=$PWD/venv/bin:$HOME/.local/bin:$PATH

fail() { echo "$(hostname): $1" >&2; exit 1; }

check_place() {  # a work directory on a disk that is not mounted would be one of this host alone
    [[ $1 == gs://* || -d $(dirname "$1") ]] || fail "$(dirname "$1") does not exist here: mount it, or give gs://BUCKET/NAME"
}

setup() {
    local package=$1 workdir=$2 constraint=()
    check_place "$workdir"
    rm -f ready
    command -v uv >/dev/null || python3 -m pip install --quiet --user uv
    uv venv --quiet --allow-existing --python 3.11 venv
    [[ $workdir != gs://* ]] || uv pip install --quiet --python venv/bin/python gcsfs  # to read the versions, its own too
    timeout 60 python3 workdir.py read "$workdir" requirements.lock >constraint.txt ||
        fail "$workdir/requirements.lock cannot be read"
    if [[ -s constraint.txt ]]; then
        # Only versions: a constraint file could also name another index.
        ! grep -qvxE '#.*|[A-Za-z0-9._-]+==[A-Za-z0-9._!+-]+' constraint.txt ||
            fail "$workdir/requirements.lock: a line is not NAME==VERSION"
        constraint=(--constraint constraint.txt)
    fi
    uv pip install --quiet --python venv/bin/python "${constraint[@]}" -- "$package" ||
        fail "bert-jax was not installed${constraint:+; remove $workdir/requirements.lock to install other versions}"
    printf '%s' "${BERT_JAX_PACKAGE-}" >ready
}

# A training process and its children hold the lock, so the lock is free exactly when no training runs. A recorded pid
# would not show this.
start() {
    [[ -e ready ]] || fail "not set up yet"
    check_place "$1"
    exec 9>>lock
    flock -w 5 9 || { echo "$(hostname): a run is still active here (pid $(cat pid)); stop it first" >&2; exit 3; }
    rm -f status pid
    printf '%s' "${BERT_JAX_RUN-}" >run_id
    setsid -f bash "$PWD/tpu_worker.sh" train "$@" </dev/null >>log 2>&1
    echo "$(hostname): started"
}

train() {
    local workdir=$1 status=0 name
    shift
    name=$(hostname)
    [[ ! -e slice ]] || name=slice-$(cat slice)-$name  # written by tpu_pod.sh where there are several
    echo $$ >pid
    trap : TERM  # the child receives it as well; wait until it has saved
    if [[ -e token ]]; then
        BERT_JAX_TOKEN=$(cat token)
        export BERT_JAX_TOKEN
    fi
    HOST_NAME=$name bash pretrain.sh --keep_log 60 "$workdir" --config recipe.py "$@" || status=$?
    echo "$status" >status.tmp
    mv status.tmp status
    exit 0  # do not return to this file: `setup` may have replaced it
}

ran_another() { [[ -v BERT_JAX_RUN && -s run_id && $(cat run_id) != "$BERT_JAX_RUN" ]]; }

state() {  # STATE: bare, ready, running, lost, or the exit status
    local state=ready newest=0 steps=0
    if ! flock --shared -n lock true; then  # several questions at a time
        state=running
    elif [[ -e status && $(cat status) == 0 ]] && ! ran_another; then
        state=0
    elif [[ ! -e ready || ${BERT_JAX_PACKAGE-$(cat ready)} != "$(cat ready)" ]]; then
        state=bare
    elif ran_another; then
        state=ready
    elif [[ -e status ]]; then
        state=$(cat status)
    elif [[ -e pid ]]; then
        state=lost  # killed, or the host was restarted
    fi
    if [[ $state != bare ]]; then
        read -r newest steps < <(timeout 60 python3 workdir.py progress "$1" || true) || true
    fi
    echo "host $(hostname) $state ${newest:-0} ${steps:-0} $(tail -n 1 log 2>/dev/null | tr -cd '[:print:]' | cut -c 1-160)"
}

stop() {
    ! flock --shared -n lock true || { echo "$(hostname): nothing is running here"; return; }
    kill -TERM -- "-$(cat pid)"
    echo "$(hostname): saving and stopping"
}

log() {
    exec tail -n "$1" ${2:+-F} log
}

case ${1-} in
    setup | start | train | state | stop | log) "$@" ;;
    *) echo "tpu_worker.sh: run tpu_pod.sh instead" >&2; exit 2 ;;
esac
