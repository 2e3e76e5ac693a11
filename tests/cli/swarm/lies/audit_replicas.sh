#!/bin/sh
# audit_replicas.sh - stages with replicas are audited (host --audit-share). A replica that sends other activations
# or gradients, gives other gradients to the sum or changes its weights, a little and once, must be named and banned,
# and nobody else, be it a further replica or the owner. The run must end with the losses and weights of one pipeline.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../lib.sh"
FALSE=$3
SPARES=0 # audits keep two
export FALSE_REPLICA=1

make_corpus
make_run run.yaml 3 60
fixed="--set train.batch_tokens=256 --set train.save_every=30 --set train.keep_checkpoints=10"
sets="--set stages.count=2 --set stages.replicas=2 --set link.emulate.delay=15ms $fixed"
runs train run.yaml --out straight --set stages.count=2 $fixed

# joins FOLDER NAME WHAT: starts a worker that lies as FALSE_WORKER=WHAT says; or, without WHAT, an honest one.
joins() {
    if [ -n "$3" ]; then
        env STRAIT_CLI="$SCRATCH" FALSE_WORKER="$3" "$FALSE" join "$(cat "$1.invite")" --keys "keys-$1-$2" \
            --name "$2" --listen 127.0.0.1:0 --threads 1 >/dev/null 2>>"$1.false" </dev/null &
    else
        join_begin "$1" "$1-$2" --name "$2"
    fi
    wait_for_text "$1/events.log" "worker $2 .*joined"
}

# swarm FOLDER OWNER THIRD: five workers of a host that audits everything. The third becomes a further replica, since
# two of the others are kept as spares. OWNER and THIRD say how an owner and the third lie.
swarm() {
    host_begin "$1" run.yaml $sets --rebalance 0 --public --audit-share 1 --max-lost-work 1
    joins "$1" first ''
    joins "$1" second "$2"
    joins "$1" third "$3"
    joins "$1" fourth ''
    joins "$1" fifth ''
    host_ends 0 "$1"
    same_metrics straight "$1"
    same_weights straight "$1"
}

# went_well FOLDER: whether the third worker was a further replica, the lie was told and all was audited. On a busy
# machine it may not come to that.
went_well() {
    grep -q 'third .*becomes a further replica' "$1/events.log" &&
        { [ "$2$3" = none ] || grep -q 'false worker' "$1.false"; } &&
        { ! grep -q 'audit.* dropped' "$1/events.log" || grep -q contradict "$1/events.log"; }
}

# try NAME OWNER THIRD: runs a swarm, again if it did not go well; sets $name.
try() {
    for again in 1 2 3; do
        name=$1-$again
        swarm "$name" "$2" "$3"
        ! went_well "$name" "$2" "$3" || return 0
    done
    fail "$1: the third worker did not help: $(cat "$name/events.log")"
}

# names FOLDER LIAR: the liar alone is found, by one audit or several that were under way, and banned.
names() {
    says "$1/events.log" "$2 gave a result that two others contradict" 'returning to step [0-9]* or before' \
        "worker $2 .*an audit found it at fault; banned"
    ! grep -E 'others contradict|banned|violation' "$1/events.log" | grep -qvE "(: |worker )$2 " ||
        fail "$1: others are accused: $(grep -E 'contradict|banned|violation' "$1/events.log")"
}

# goes_back FOLDER MOST: replicas that hold different states do not go on until the audit has ended: the run goes back
# first, and MOST times in all; once more if the owner is at fault, unless it is found before it has computed again.
goes_back() {
    awk '/hold different states; the run goes back/ { is_back = 1 } /returning to step/ { n++ }
        /gave a result that two others contradict/ && (!is_back || n != 1) { exit 1 }
        END { if (n < 1 || n > '"$2"') exit 1 }' "$1/events.log" || fail "$1: $(cat "$1/events.log")"
}

try honest '' none
says "$name/events.log" 'audit of stage .*: the result is right' 'at least 2 workers stay spares'
! grep -qE 'contradict|violation|did not' "$name/events.log" || fail "an honest worker is accused: $(cat "$name/events.log")"

# In its first step, too: the snapshots that are taken before a replica comes begin an interval.
for what in crossing:5 sum:1 state:5; do
    try "${what%:*}" '' $what
    names "$name" third
done
goes_back "$name" 1 # the last of them

# The owner has another state than the replica beside it.
try owner weights:40 none
names "$name" second
goes_back "$name" 2

# What two state about the same bytes must be equal: the step is computed again, and nobody is banned.
try statement '' statement:5
says "$name/events.log" 'third contradict each other about what they exchanged|third and .* contradict each other'
! grep -qE 'banned' "$name/events.log" || fail "statement: a worker was banned"
