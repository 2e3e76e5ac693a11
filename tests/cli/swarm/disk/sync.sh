#!/bin/sh
# sync.sh - syncs of the host's disk that fail or take long. A failed sync is not repeated as if the data were
# still there (powercut/shim.c drops it); a slow one does not keep the host from serving its links.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../lib.sh"
SHIM=$3

make_corpus
make_run run.yaml 2 40
sets="--set stages.count=2 --set train.save_every=10"
runs train run.yaml --out straight $sets

# hosts FOLDER VARIABLE=VALUE...: a run to its end, with these variables for the shim.
hosts() {
    name=$1
    shift
    mkdir -p "$name/shadow"
    HOST_LOG=$name.err
    export LD_PRELOAD="$SHIM" POWERCUT_DISK="$SCRATCH/$name/" POWERCUT_SHADOW="$SCRATCH/$name/shadow" "$@"
    host_start "$name/run" run.yaml $sets
    unset LD_PRELOAD POWERCUT_DISK POWERCUT_SHADOW
    for variable in "$@"; do unset "${variable%%=*}"; done
    wait_for_invite
    for i in 1 2; do
        : >join-$i.err
        join_begin "$name/run" $i
    done
    host_ends 0 "$*"
    same_metrics straight "$name/run"
    same_weights straight "$name/run"
    wait_all_exited
}

for file in metrics.jsonl swarm.journal manifest.json.tmp stage-1.safetensors; do
    hosts "fail-$file" POWERCUT_FILE=$file POWERCUT_FAIL=2
    grep -qE '(sync|write).*: Input/output error' "fail-$file.err" ||
        fail "a sync of $file failed, and the host does not say so"
done

# Longer than the 15 s after which a worker gives up on a silent coordinator.
hosts slow POWERCUT_FILE=metrics.jsonl POWERCUT_SLOW=2 POWERCUT_SECONDS=16
grep -q 'lost the connection to the coordinator' join-*.err && fail "a slow sync kept the host from serving its links"
grep -qE 'lost|disconnected' slow/run/events.log && fail "the host lost a worker during a slow sync"
exit 0
