#!/usr/bin/env bash
# Pretraining on one or several Cloud TPU slices of any number of hosts, through queued resources. Guide: docs/launch.md.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: launch/tpu_pod.sh VERB [--env FILE] [--SETTING VALUE]... [--dry_run] [-- ARGUMENTS OF bert-jax pretrain...]

verbs:
  create    request the slice; it may wait in the queue
  setup     install Python and bert-jax on every host, in the versions that the run began with
  run       start training on every host; it continues when the connection closes
  logs      follow the log of one host (--worker N, default 0); of a slice that is gone, print the end of its last log
  status    print the state of the slice and of every host
  stop      save and stop; `run` resumes
  babysit   do all of the above until the last step is saved, also after preemptions and crashes
  delete    delete the slice

settings, as flags (--zone us-west4-a) or lines of the env file (ZONE=us-west4-a, without quotes or expansion):
  PROJECT, ZONE, NAME   project, zone and name of the slice
  ACCELERATOR_TYPE      such as v5litepod-256
  SLICES                slices of that type, which are requested, run and lost together (default: 1)
  RUNTIME_VERSION       software of the hosts (default: by accelerator)
  PROVISIONING          spot, reserved, flex-start or on-demand (default: on-demand)
  MAX_RUN_DURATION      life of a flex-start slice, such as 12h; at most 7d
  SERVICE_ACCOUNT       identity of the hosts
  NETWORK, SUBNETWORK   (default: the project's default network)
  PACKAGE               a local wheel of bert-jax, or a pip requirement: 'bert-jax[tpu,storage] @ git+https://...'
  CONFIG                a local recipe, such as configs/bert_base.py
  WORKDIR               gs://BUCKET/NAME, or an absolute path on storage that all hosts mount (CREATE_FLAG)
  CORPUS                gs://BUCKET/NAME, which every host copies to its disk, or an absolute path
  OVERRIDE              argument of bert-jax pretrain, such as --config.seed=1 (env file; may be repeated)
  CREATE_FLAG           flag of gcloud's create, such as --tags=trainer (env file; may be repeated)

options:
  --dry_run             print the commands without running them
  --worker N            host for logs
  --slice N             slice of that host (default: 0)
  --poll SECONDS        interval of babysit (default: 60)
  --max_failures N      consecutive failures without a new checkpoint after which babysit gives up (default: 3)
  --max_unanswered S    seconds without an answer of the hosts after which babysit warns, each time (default: 900)
  --state_timeout S     seconds that a question for a state may take (default: 120; 0: no limit)
  --timeout S           seconds that any other command may take, except following a log (default: 1800; 0: no limit)
  --delete_when_done    delete the slice when the last step is saved (babysit)
TEXT
}

die() { printf 'tpu_pod.sh: %s\n' "$1" >&2; exit "${2-2}"; }
say() { printf '%(%F %T)T  %s\n' -1 "$*"; }

# --------------------------------------------------------------------------------------------------- quoting, calling

quoted() {  # one line that any POSIX shell splits into exactly these words
    local word text='' mark="'\"'\"'"
    for word; do
        [[ $word =~ ^[a-zA-Z0-9_@%+=:,./-]+$ ]] || word="'${word//\'/$mark}'"
        text+="${text:+ }$word"
    done
    printf '%s' "$text"
}

call() {  # in at most $limit seconds, by default --timeout; 0: no limit
    local limit=${limit:-$timeout} status=0 child
    if ((dry_run)); then quoted "$@"; echo; return; fi
    if [[ $limit == 0 ]]; then "$@" </dev/null; return; fi
    # `timeout` also ends the ssh that gcloud started, since both are in its process group. Ctrl-C does not reach that
    # group: the command runs in the background, because a trap interrupts `wait` alone.
    timeout --kill-after=10 "$limit" "$@" </dev/null &
    child=$!
    trap 'kill "$child" || true; trap - INT; kill -INT "$BASHPID"' INT TERM HUP
    wait "$child" || status=$?
    trap - INT TERM HUP
    case $status in
        124) echo "tpu_pod.sh: no answer within $limit s: ${*:1:6} ..." >&2 ;;
        137) echo "tpu_pod.sh: killed, or no answer within $limit s: ${*:1:6} ..." >&2 ;;
    esac
    return "$status"
}
note() { if ((dry_run)); then printf '# %s\n' "$*"; fi; }
limit=''  # of the next call
track=()  # of gcloud: () or (alpha)
tpus() { call gcloud "${track[@]}" compute tpus "$@" --project="${of[PROJECT]}" --zone="${of[ZONE]}" --quiet; }
queued() { tpus queued-resources "$1" "${of[NAME]}" "${@:2}"; }
hosts() { if ((of[SLICES] > 1)); then tpus queued-resources "$@" --node="$node"; else tpus tpu-vm "$@"; fi; }
# Options of ssh and scp: the connection ends a minute after its host is gone.
keepalive=(-oConnectTimeout=30 -oServerAliveInterval=15 -oServerAliveCountMax=4)
on_workers() {  # WORKERS COMMAND [FLAG OF gcloud...]
    hosts ssh "${of[NAME]}" --worker="$1" --command="$2" "${keepalive[@]/#/--ssh-flag=}" "${@:3}"
}
copy() { hosts scp "${@:1:$#-1}" "${of[NAME]}:${!#}" --worker=all "${keepalive[@]/#/--scp-flag=}"; }
worker() { quoted bash bert_jax/tpu_worker.sh "$@"; }

# ----------------------------------------------------------------------------------------------------------- settings

declare -A of=()  # setting -> value
declare -A form=(  # setting -> pattern of its values
    [PROJECT]='[a-z][a-z0-9:.-]*[a-z0-9]' [ZONE]='[a-z]+-[a-z]+[0-9]+-[a-z0-9]+' [NAME]='[a-z]([a-z0-9-]{0,38}[a-z0-9])?'
    [ACCELERATOR_TYPE]='v[0-9][a-z0-9]*-[0-9]+' [SLICES]='[1-9][0-9]{0,2}' [RUNTIME_VERSION]='[a-z][a-z0-9.-]*'
    [PROVISIONING]='spot|reserved|flex-start|on-demand' [MAX_RUN_DURATION]='[1-9][0-9]{0,5}[smhd]'
    [SERVICE_ACCOUNT]='[a-z0-9-]+@[a-z0-9.-]+'
    [NETWORK]='[a-z][a-z0-9/_.-]*' [SUBNETWORK]='[a-z][a-z0-9/_.-]*'
    [PACKAGE]='.+' [CONFIG]='.+' [WORKDIR]='/.+|gs://[^/]+/+[^/].*' [CORPUS]='/.+|gs://[^/]+/+[^/].*'
)
declare -A words=([WORKDIR]='gs://BUCKET/NAME or an absolute path' [CORPUS]='gs://BUCKET/NAME or an absolute path')
arguments=() create_flags=() dry_run=0 worker=0 slice_number=0 node=all delete_when_done=0
poll=60 max_failures=3 max_unanswered=900 state_timeout=120 timeout=1800

parse() {
    local env='' key value
    local -A flags=()
    while (($#)); do
        key=${1%%=*}
        if [[ $key == --*-* ]]; then key=${key#--}; set -- "--${key//-/_}${1#"--$key"}" "${@:2}"; fi  # --dry-run
        case $1 in
            --dry_run) dry_run=1; shift; continue ;;
            --delete_when_done) delete_when_done=1; shift; continue ;;
            --help) usage; exit 0 ;;
            --) shift; break ;;
            --*=*) key=${1%%=*} value=${1#*=}; shift ;;
            --*) (($# > 1)) || die "$1 needs a value"; key=$1 value=$2; shift 2 ;;
            *) die "'$1' is not an option; arguments of bert-jax pretrain go after --" ;;
        esac
        case $key in
            --env) env=$value ;;
            --worker) [[ $value =~ ^[0-9]+$ ]] || die "--worker takes a number"; worker=$value ;;
            --slice) [[ $value =~ ^[0-9]+$ ]] || die "--slice takes a number"; slice_number=$value ;;
            --poll | --state_timeout | --timeout)
                [[ $value =~ ^[0-9]+([.][0-9]+)?$ ]] || die "$key takes seconds"
                printf -v "${key#--}" %s "$value"
                ;;
            --max_failures | --max_unanswered)
                [[ $value =~ ^[1-9][0-9]*$ ]] || die "$key takes a number"
                printf -v "${key#--}" %s "$value"
                ;;
            *)
                key=${key#--}
                [[ $key =~ ^[a-z_]+$ && -v form[${key^^}] ]] || die "--$key is not an option; see --help"
                flags[${key^^}]=$value
                ;;
        esac
    done
    [[ -z $env ]] || read_env "$env"
    for key in "${!flags[@]}"; do of[$key]=${flags[$key]}; done
    of[PROVISIONING]=${of[PROVISIONING]-on-demand} of[SLICES]=${of[SLICES]-1}
    arguments+=("$@")
    for key in "${!of[@]}"; do
        [[ ${of[$key]} =~ ^(${form[$key]})$ ]] || die "$key='${of[$key]}' must look like ${words[$key]-${form[$key]}}"
    done
    check_provisioning
}

# The rules of flex-start and its flags below are from Google's pages, as read on 2026-11-23 (docs/launch.md).
check_provisioning() {
    local limit=${of[MAX_RUN_DURATION]-}
    local -A seconds=([s]=1 [m]=60 [h]=3600 [d]=86400)
    if [[ ${of[PROVISIONING]} != flex-start ]]; then
        [[ ! $limit ]] || die "MAX_RUN_DURATION is for PROVISIONING=flex-start, not for ${of[PROVISIONING]}: leave it out"
        return
    fi
    [[ ${of[ACCELERATOR_TYPE]-} != v[234]-* ]] ||
        die "PROVISIONING=flex-start does not exist for ${of[ACCELERATOR_TYPE]}: choose spot, reserved or on-demand"
    [[ $limit ]] || die "PROVISIONING=flex-start needs MAX_RUN_DURATION, such as 12h"
    ((${limit%?} * ${seconds[${limit: -1}]} <= 7 * 86400)) ||
        die "MAX_RUN_DURATION=$limit: a flex-start slice lives at most 7d; babysit requests the next"
}

read_env() {
    local line key
    [[ -f $1 ]] || die "$1: no such file; write lines such as PROJECT=my-project and ZONE=us-west4-a into it (--help lists all settings)"
    while IFS= read -r line || [[ $line ]]; do
        [[ $line =~ ^[[:space:]]*(#|$) ]] && continue
        key=${line%%=*}
        if [[ $line != *=* || ! $key =~ ^[A-Z_]+$ ]]; then
            die "$1: '$line' is not SETTING=VALUE"
        elif [[ $key == OVERRIDE ]]; then
            arguments+=("${line#*=}")
        elif [[ $key == CREATE_FLAG ]]; then
            [[ ${line#*=} == --* ]] || die "$1: '$line' is not CREATE_FLAG=--NAME=VALUE"
            create_flags+=("${line#*=}")
        elif [[ -v of[$key] ]]; then
            die "$1: $key is set twice"
        elif [[ -v form[$key] ]]; then
            of[$key]=${line#*=}
        else
            die "$1: $key is not a setting; see --help"
        fi
    done <"$1"
}

need() {
    local key
    for key; do [[ -v of[$key] ]] || die "$verb needs $key: pass --${key,,} VALUE, or set $key=VALUE in the --env file"; done
}

need_recipe() {
    need CONFIG
    [[ -f ${of[CONFIG]} ]] || refuse "CONFIG: ${of[CONFIG]}: no such file"
}

has_package() { [[ ${of[PACKAGE]} != *.whl || -f ${of[PACKAGE]} ]]; }

need_package() {
    need PACKAGE
    has_package ||
        refuse "PACKAGE: ${of[PACKAGE]}: no such file; build it with \`pip wheel --no-deps --wheel-dir dist .\`"
}

refuse() {  # while babysit runs, a slice may exist
    [[ $verb != babysit || ! $slice ]] || give_up 2 "$1"
    die "$1"
}

runtime_version() {
    case ${of[ACCELERATOR_TYPE]} in
        v2-* | v3-* | v4-*) echo tpu-ubuntu2204-base ;;
        v5litepod-*) echo v2-alpha-tpuv5-lite ;;
        v5p-*) echo v2-alpha-tpuv5 ;;
        v6e-*) echo v2-alpha-tpuv6e ;;
        v5e-*) die "Google Cloud's name of ${of[ACCELERATOR_TYPE]} is v5litepod-${of[ACCELERATOR_TYPE]#v5e-}: set ACCELERATOR_TYPE to it" ;;
        *) die "no default runtime version for ${of[ACCELERATOR_TYPE]}: pass --runtime_version" ;;
    esac
}

# -------------------------------------------------------------------------------------------------------------- verbs

create() {
    local runtime key nodes=(--node-id="${of[NAME]}") more=() track=()
    need ACCELERATOR_TYPE SERVICE_ACCOUNT
    runtime=${of[RUNTIME_VERSION]-$(runtime_version)} || exit
    case ${of[PROVISIONING]} in
        spot | reserved) more+=("--${of[PROVISIONING]}") ;;
        flex-start) track=(alpha) more+=(--provisioning-model=flex-start --max-run-duration="${of[MAX_RUN_DURATION]}") ;;
    esac
    if ((of[SLICES] > 1)); then nodes=(--node-count="${of[SLICES]}"); fi  # called NAME-0, NAME-1 ...
    for key in NETWORK SUBNETWORK; do [[ ! -v of[$key] ]] || more+=("--${key,,}=${of[$key]}"); done
    queued create "${nodes[@]}" --accelerator-type="${of[ACCELERATOR_TYPE]}" --runtime-version="$runtime" \
        --service-account="${of[SERVICE_ACCOUNT]}" --scopes=https://www.googleapis.com/auth/cloud-platform \
        "${more[@]}" "${create_flags[@]}"
}

setup() {
    local here package files
    need_package
    need WORKDIR
    here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
    package=${of[PACKAGE]}
    files=("$here/tpu_worker.sh" "$here/pretrain.sh" "$here/workdir.py")
    if [[ $package == *.whl ]]; then
        files+=("$(realpath "$package")")
        package="./$(basename "$package")[tpu,storage]"
    fi
    on_workers all 'mkdir -p bert_jax' &&
        copy "${files[@]}" bert_jax/ &&
        number_slices &&
        on_workers all "BERT_JAX_PACKAGE=$(package_id) $(worker setup "$package" "${of[WORKDIR]}")"
}

number_slices() {  # for the names of their logs, since hosts of all slices have the same numbers
    local node
    ((of[SLICES] > 1)) || return 0
    for ((node = 0; node < of[SLICES]; node++)); do on_workers all "echo $node >bert_jax/slice" || return; done
}

run() {
    local corpus=()
    need_recipe
    need WORKDIR
    [[ ! -v of[CORPUS] ]] || corpus=("--config.data.corpus=${of[CORPUS]}")
    copy "$(realpath "${of[CONFIG]}")" bert_jax/recipe.py &&
        copy_token &&
        on_workers all "BERT_JAX_RUN=$(run_id) $(worker start "${of[WORKDIR]}" "${corpus[@]}" "${arguments[@]}")" &&
        started=1
}

checksum() { local sum; sum=$(cksum); echo "${sum// /-}"; }
run_id() {  # of the recipe and the arguments: the status of a host answers for one run
    { quoted "${of[WORKDIR]}" "${of[CORPUS]-}" "${arguments[@]}"; cat "${of[CONFIG]}"; } | checksum
}
package_id() {  # a host with another package is not set up
    if [[ ${of[PACKAGE]} == *.whl ]]; then checksum <"${of[PACKAGE]}"; else checksum <<<"${of[PACKAGE]}"; fi
}

copy_token() {  # a new secret of the processes, to every host, in a file that only this user reads
    local file=$HOME/.bert_jax_token_${of[NAME]} status=0
    if ((dry_run)); then
        printf '%s\n' "(umask 077 && od -An -vtx1 -N32 /dev/urandom | tr -d ' \n' >$(quoted "$file"))"
    else
        rm -f "$file"
        # A subshell, because each run draws a secret.
        # shellcheck source=launch/draw_token.sh
        (umask 077 && source "$(dirname "${BASH_SOURCE[0]}")/draw_token.sh" && printf '%s' "$BERT_JAX_TOKEN" >"$file")
    fi
    copy "$file" bert_jax/token || status=$?
    if ((!dry_run)); then rm -f "$file"; fi
    return "$status"
}

logs() {
    if ((!dry_run)); then
        look
        case $slice in READY | UNKNOWN) ;; *) kept_log; return ;; esac
    fi
    node=$slice_number
    limit=0 on_workers "$worker" "$(worker log 100 follow)"
}

kept_log() {  # of the last start on the host, as launch/pretrain.sh has copied it
    local place list=(ls) read=(cat) found whose="host $worker" pattern="-$worker\.log$"
    need WORKDIR
    if ((of[SLICES] > 1)); then whose+=" of slice $slice_number" pattern="_slice-$slice_number-.*$pattern"; fi
    place=${of[WORKDIR]%/}
    if [[ $place == gs://* ]]; then
        list=(call gcloud storage ls) read=(call gcloud storage cat)
    elif [[ ! -d $place/logs ]]; then
        die "the slice is ${slice,,}${reason:+ ($reason)}, and its logs are in $place/logs, which is not on this machine"
    fi
    found=$("${list[@]}" "$place/logs/" | grep -e "$pattern" | sort | tail -n 1) || true
    [[ $found ]] || die "the slice is ${slice,,}${reason:+ ($reason)}, and there is no log of $whose in $place/logs"
    found=$place/logs/${found##*/}
    echo "tpu_pod.sh: the slice is ${slice,,}${reason:+ ($reason)}; the end of $found:" >&2
    "${read[@]}" "$found" | tail -n 100
}

stop() { on_workers all "$(worker stop)"; }
delete() { queued delete --force; }

slice_state() { limit=$state_timeout queued describe --format='value(state.state)'; }
node_state() {  # of the first slice that is not READY
    local name names=("${of[NAME]}") state
    if ((of[SLICES] > 1)); then mapfile -t names < <(seq -f "${of[NAME]}-%.0f" 0 $((of[SLICES] - 1))); fi
    for name in "${names[@]}"; do
        state=$(limit=$state_timeout tpus tpu-vm describe "$name" --format='value(state)') || return
        if ((dry_run)); then echo "$state"; elif [[ $state != READY ]]; then break; fi
    done
    ((dry_run)) || echo "$state"
}
worker_states() {  # tpu_worker.sh does not exist before `setup`
    local absent="echo \"host \$(hostname) bare 0 0 -\"" run=''
    need WORKDIR
    if [[ $verb == babysit ]]; then  # a file that is gone by now says nothing about the hosts
        [[ ! -f ${of[CONFIG]} ]] || run+="BERT_JAX_RUN=$(run_id) "
        ! has_package || run+="BERT_JAX_PACKAGE=$(package_id) "
    fi
    # Without the flag, gcloud prints a line for each host, each time.
    limit=$state_timeout on_workers all \
        "if test -e bert_jax/tpu_worker.sh; then $run$(worker state "${of[WORKDIR]}"); else $absent; fi" \
        --no-user-output-enabled
}

status() {
    need WORKDIR
    if ((dry_run)); then slice_state; node_state; worker_states; return; fi
    look
    echo "slice ${of[NAME]}: ${slice,,}${reason:+ ($reason)}"
    [[ $slice == READY ]] || return 0
    worker_states | sort -V | while read -r mark host state saved steps line; do
        [[ $mark != host ]] || printf '%s: %s, step %s of %s saved | %s\n' "$host" "$state" "$saved" "$steps" "$line"
    done
}

# ------------------------------------------------------------------------------------------------------------ babysit

describe() {  # the state that a command prints; ABSENT if the resource does not exist, UNKNOWN if gcloud fails
    local out
    if out=$("$@" 2>&1); then
        tail -n 1 <<<"$out"
    elif [[ $out == *NOT_FOUND* ]]; then
        echo ABSENT
    else
        printf '%s\n' "$out" >&2
        echo UNKNOWN
    fi
}

look() {  # sets slice to READY, ABSENT, GONE (must be deleted first), UNKNOWN, or the state that it waits in
    local node
    reason=''
    slice=$(describe slice_state)
    case $slice in
        SUSPENDED | FAILED) reason=$slice slice=GONE ;;
        ACTIVE)
            node=$(describe node_state)
            case $node in
                READY | UNKNOWN) slice=$node ;;
                ABSENT | PREEMPTED | TERMINATED | STOPPED) reason=$node slice=GONE ;;
                *) slice="ACTIVE, its node $node" ;;
            esac
            ;;
    esac
}

slice=''      # state of the slice, after the first look
started=0     # 1: babysit has started the run
newest=0      # the newest checkpoint seen
failures=0    # consecutive, without a new checkpoint
at_failure=0  # newest checkpoint at the last failure
unanswered=''  # time of the first poll since which no host has answered
last_said=''

say_once() { [[ $1 == "$last_said" ]] || say "$1"; last_said=$1; }

failed() {
    if ((newest > at_failure)); then failures=0; fi
    at_failure=$newest
    failures=$((failures + 1))
    say "failure $failures of $max_failures without a new checkpoint: $1"
    ((failures < max_failures)) || give_up 1 "$1; $failures consecutive failures without a new checkpoint"
}

not_answered() {  # says nothing about the run, which continues without ssh: it is no failure
    local seconds
    unanswered=${unanswered:-$SECONDS}
    seconds=$(((SECONDS - unanswered) / max_unanswered * max_unanswered))
    if ((seconds)); then
        say_once "the slice is READY, but its hosts have not answered for $seconds s: look at it. The slice costs money"
    else
        say_once "the hosts do not answer; the next poll asks again"
    fi
}

give_up() {  # STATUS REASON
    if [[ $slice == READY ]]; then limit=$state_timeout on_workers all "$(worker log 20)" >&2 || true; fi
    if [[ $slice == ABSENT ]]; then look; fi  # a request that has failed here may have reached the cloud
    [[ $slice != ABSENT ]] || die "$2. There is no slice: fix the cause and run babysit again" "$1"
    die "$2. The slice still costs money: fix the cause and run babysit again, or run \`launch/tpu_pod.sh delete\`" "$1"
}

babysit() {
    need ACCELERATOR_TYPE SERVICE_ACCOUNT WORKDIR
    need_package
    need_recipe
    if ((dry_run)); then print_plan; return; fi
    while :; do  # each action follows only from the state of the slice: babysit can be stopped and restarted at any time
        look
        case $slice in READY | UNKNOWN) ;; *) unanswered='' ;; esac  # the hosts of the next slice have their own time
        case $slice in
            READY) check_workers ;;
            ABSENT)
                say "slice ${of[NAME]} does not exist: creating it"
                create || failed "the slice could not be created"
                ;;
            GONE)
                say "the slice is gone ($reason): deleting its remains"
                [[ $reason != FAILED ]] || failed "the queued resource is in state FAILED"
                delete || failed "the remains of the slice could not be deleted"
                ;;
            *) say_once "waiting: the slice is $slice" ;;
        esac
        sleep "$poll"
    done
}

print_plan() {
    note "if the slice does not exist:"; create
    note "every $poll s until it is ACTIVE and READY:"; slice_state; node_state
    note "on new hosts:"; setup
    note "on hosts where nothing runs:"; run
    note "every $poll s from then on:"; slice_state; node_state; worker_states
    note "after a preemption, before starting over:"; delete
    if ((delete_when_done)); then note "when the last step is saved:"; delete; fi
}

check_workers() {
    local report mark host state saved steps line total=0 count=0 running=0 bare=0 ready=0 finished=0 stopped=0
    local broken='' missed='' refused=''
    report=$(worker_states | sort -V) || true  # gcloud fails where one host does not answer: the others may have
    while read -r mark host state saved steps line; do
        [[ $mark == host && "$saved $steps" =~ ^[0-9]+\ [0-9]+$ ]] || continue
        count=$((count + 1))
        if ((saved > newest)); then newest=$saved; fi
        if ((steps)); then total=$steps; fi
        case $state in
            running) running=$((running + 1)) ;;
            bare) bare=$((bare + 1)) ;;
            ready) ready=$((ready + 1)) ;;
            0) finished=$((finished + 1)) ;;
            75) stopped=$((stopped + 1)) ;;
            2)  # the cause of an earlier refusal may be fixed
                if ((started)); then refused="$host refused the run: $line"; else ready=$((ready + 1)); fi
                ;;
            lost) broken=${broken:-"$host lost its run: killed, or the host was restarted"} ;;
            124) missed=${missed:-"$host ended with status 124: $line"} ;;  # it lost another host, which is the cause
            *) broken=${broken:-"$host ended with status $state: $line"} ;;
        esac
    done <<<"$report"
    broken=${broken:-$missed}

    if ((count == 0)); then
        not_answered
        return
    fi
    unanswered=''
    if ((running)); then
        say_once "running on $running of $count hosts that answer; step $newest of $total is saved"
    elif ((finished)); then
        say "finished: step $newest is saved in ${of[WORKDIR]}"
        if ((delete_when_done)); then
            # A request that has failed here may have reached the cloud.
            until delete || { look; [[ $slice == ABSENT ]]; }; do
                failed "the slice could not be deleted"
                sleep "$poll"
            done
        else
            say "the slice still costs money, until you run \`launch/tpu_pod.sh delete\`"
        fi
        exit 0
    elif [[ $refused ]]; then
        give_up 2 "$refused"
    elif ((bare)); then
        say "setting up $bare of $count hosts"
        setup || failed "setup failed"
    elif ((ready == count || stopped)) && [[ -z $broken ]]; then
        say "starting on $count hosts after step $newest"
        run || failed "the run could not be started"
    else
        failed "${broken:-"only $((count - ready)) of $count hosts have started"}"
        say "restarting on $count hosts after step $newest"
        run || failed "the run could not be started"
    fi
}

verb=${1-}
case $verb in
    create | setup | run | logs | status | stop | babysit | delete) ;;
    '' | --help | -h | help) usage; exit 0 ;;
    --*) die "'$verb' comes after the verb, as in: launch/tpu_pod.sh status --env pod.env" ;;
    *) die "'$verb' is not a verb; see --help" ;;
esac
parse "${@:2}"
need PROJECT ZONE NAME
((dry_run)) || command -v timeout >/dev/null || die "the command \`timeout\` is missing: install GNU coreutils"
"$verb"
