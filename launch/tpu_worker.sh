#!/usr/bin/env bash
# The part of tpu_pod.sh that runs on a host: it is copied to ~/bert_jax of every host and called over ssh.
#
#   setup PACKAGE BUCKET WORKDIR       mount the bucket at /mnt/BUCKET, install Python and bert-jax with the versions of
#                                      WORKDIR/requirements.lock, if there is one; BUCKET may be ''
#   start BUCKET WORKDIR [ARGUMENT..]  train in the background
#   state WORKDIR                      print: host NAME STATE NEWEST_CHECKPOINT LAST_STEP LAST_LINE_OF_LOG
#   stop                               save and stop
#   log LINES [follow]                 print the end of the log
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
PATH=$HOME/.local/bin:$PATH

fail() { echo "$(hostname): $1" >&2; exit 1; }

setup() {
    local package=$1 bucket=$2 lock=$3/requirements.lock constraint=()
    [[ -z $bucket ]] || mount_bucket "$bucket"
    command -v uv >/dev/null || python3 -m pip install --quiet --user uv
    uv venv --quiet --allow-existing --python 3.11 venv
    if [[ -e $lock ]]; then
        # Only versions: a constraint file could also name another index. A copy: uv splits paths at spaces.
        ! grep -qvxE '#.*|[A-Za-z0-9._-]+==[A-Za-z0-9._!+-]+' "$lock" || fail "$lock: a line is not NAME==VERSION"
        cp "$lock" requirements.lock
        constraint=(--constraint requirements.lock)
    fi
    uv pip install --quiet --python venv/bin/python "${constraint[@]}" -- "$package" ||
        fail "bert-jax was not installed${constraint:+; remove $lock to install other versions}"
    touch ready
}

mount_bucket() {
    local place=/mnt/$1
    ! mountpoint -q "$place" || return 0
    command -v gcsfuse >/dev/null || install_gcsfuse
    sudo mkdir -p "$place"
    sudo chown "$(id -u):$(id -g)" "$place"
    # No metadata cache: the hosts wait for each other's files. The limit allows renaming a checkpoint's directory.
    gcsfuse --implicit-dirs --metadata-cache-ttl-secs=0 --rename-dir-limit=100000 "$1" "$place"
}

install_gcsfuse() {  # from Google's package source, as in the Cloud Storage documentation
    local source=https://packages.cloud.google.com/apt key=/usr/share/keyrings/cloud.google.asc
    curl --fail --silent --show-error "$source/doc/apt-key.gpg" | sudo tee "$key" >/dev/null
    echo "deb [signed-by=$key] $source gcsfuse-$(lsb_release -cs) main" |
        sudo tee /etc/apt/sources.list.d/gcsfuse.list >/dev/null
    sudo apt-get -qq update
    sudo apt-get -qq install --yes gcsfuse
}

# A training process and its children hold the lock: it is free exactly when nothing runs, unlike a recorded pid.
start() {
    local bucket=$1
    shift
    [[ -e ready ]] || fail "not set up yet"
    exec 9>>lock
    flock -w 5 9 || { echo "$(hostname): a run is still active here (pid $(cat pid)); stop it first" >&2; exit 3; }
    [[ -z $bucket ]] || mount_bucket "$bucket"  # a restarted host has lost it
    rm -f status pid
    setsid -f bash "$PWD/tpu_worker.sh" train "$@" </dev/null >>log 2>&1
    echo "$(hostname): started"
}

train() {
    local workdir=$1 status=0
    shift
    echo $$ >pid
    trap : TERM  # the child receives it as well; wait until it has saved
    PATH=$PWD/venv/bin:$PATH bash pretrain.sh --keep_log 60 "$workdir" --config recipe.py "$@" || status=$?
    echo "$status" >status.tmp
    mv status.tmp status
    exit 0  # do not return to this file: `setup` may have replaced it
}

state() {  # STATE: bare, ready, running, lost, or the exit status
    local state=ready newest=0 steps=0
    if [[ ! -e ready ]]; then
        state=bare
    elif ! flock -n lock true; then
        state=running
    elif [[ -e status ]]; then
        state=$(cat status)
    elif [[ -e pid ]]; then
        state=lost  # killed, or the host was restarted
    fi
    read -r newest steps < <(python3 progress.py "$1" || true) || true
    echo "host $(hostname) $state ${newest:-0} ${steps:-0} $(tail -n 1 log 2>/dev/null | tr -cd '[:print:]' | cut -c 1-160)"
}

stop() {
    ! flock -n lock true || { echo "$(hostname): nothing is running here"; return; }
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
