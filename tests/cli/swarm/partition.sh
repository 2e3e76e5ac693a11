#!/bin/sh
# partition.sh - two workers own both stages and cannot work side by side, while spares could: each has
# announced an address where nobody listens, or their links lose everything in one direction. The run must
# make a step within seconds, without a relay, and compute the same bits.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"
TAP=$(dirname "$HELPER")/cli_tap
LIMIT=${LIMIT:-300} # seconds to the next step; use 30 on an idle machine

make_corpus
make_run run.yaml 2 40
sets="--set stages.count=2 --set link.deadline=2s --set link.emulate.delay=20ms"
runs train run.yaml --out straight --set stages.count=2

# advances FOLDER CASE STEP: waits for a step after STEP, and then for the end of the run.
advances() {
    fault=$2
    wait_until "$2: a step" has_reached_step "$1" $(($3 + 1)) || fail "$2: the run has ended"
    took=$(($(now_ms) - began))
    echo "$2: $took ms to the next step"
    [ $took -lt $((LIMIT * 1000)) ] || fail "$2: a step after more than $LIMIT s"
    host_ends 0 "$2"
    same_metrics straight "$1"
    same_weights straight "$1"
    grep 'banned' "$1/events.log" && fail "$2: a worker was banned"
    wait_all_exited
}

# Nobody listens at port 9. The third worker can be dialled.
host_begin announced run.yaml $sets
for i in 1 2; do join_begin announced $i --announce 127.0.0.1:9; done
wait_joined announced 2
join_begin announced 3
began=$(now_ms)
advances announced "bad --announce" 0
says announced/events.log 'its boundary with the (previous|next) stage failed' \
    'suspected of failures at its boundaries; moving the stage to w3'
grep -aq 'record/[0-9a-f]' announced/swarm.journal || fail "the journal has no record of the penalties"

# Both workers are reached through links that then lose what they send, while what they receive arrives.
ADDRESS=$(private_address)
mkfifo commands
"$TAP" "$ADDRESS:7101=$ADDRESS:7201" "$ADDRESS:7102=$ADDRESS:7202" <commands >tap.out &
exec 4>commands # the links exist as long as this is open
wait_for_text tap.out up
rm -rf keys-1 keys-2 keys-3
host_begin muted run.yaml $sets
for i in 1 2; do
    join_begin muted $i --listen "$ADDRESS:720$i" --announce "$ADDRESS:710$i" 4>&-
done
wait_joined muted 2
join_begin muted 3 4>&-
wait_steps muted 8
is_running || fail "the run ended before a link could be muted"
for i in 1 2; do echo "mute $i 600000" >&4; done
began=$(now_ms)
advances muted "one-way loss" "$(steps_in muted)"
says muted/events.log 'suspected of failures at its boundaries; moving the stage to w3'
exec 4>&-
