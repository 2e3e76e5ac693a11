#!/bin/sh
# strangers.sh - unauthorized connections are refused (stranger.c), and the run is not affected.
#
#   ROUNDS=1     phases of quiet and attack, in turns; their tokens per second are compared
#   MARGIN=60    percent by which they may differ; use 5 on an idle machine
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"
STRANGER=$(dirname "$HELPER")/cli_stranger
TAP=$(dirname "$HELPER")/cli_tap
ROUNDS=${ROUNDS:-1}
MARGIN=${MARGIN:-60}
QUIET=15 # steps in a quiet phase
ADDRESS=$(private_address)

make_corpus
make_run run.yaml 2 $((300 + 300 * ROUNDS))
# The link must be the bottleneck, not the processor, which attackers on the same machine use, too.
sets="--set stages.count=2 --set link.emulate.delay=10ms"
slow="$sets --set link.emulate.rate=500kbit"
runs train run.yaml --out straight --set stages.count=2

# is_refused MODE TEXT [N]: checks that an attack is refused with TEXT and that the run continues.
is_refused() {
    "$STRANGER" "$1" "$(cat swarm.invite)" "${3:-1}" >"stranger-$1.out" || fail "$1: $(cat "stranger-$1.out")"
    grep -qE "$2" "stranger-$1.out" || fail "$1: $(cat "stranger-$1.out"), expected \"$2\""
    is_running || fail "$1: the run ended"
}

# rss PID: prints resident kilobytes.
rss() {
    sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$1/status"
}

host_begin swarm run.yaml $slow
is_refused token 'refused: .*the token is wrong'
is_refused version 'refused: .*protocol version 0, this program version [0-9]'
is_refused early 'refused: .*messages before the request to join'
is_refused pieces 'refused: .*messages before the request to join'
is_refused other 'refused: .*belongs to run'
if command -v openssl >/dev/null; then
    openssl s_client -tls1_2 -connect "127.0.0.1:$(cat swarm.port)" </dev/null >old.out 2>&1 &&
        fail "a TLS 1.2 client was accepted"
    says old.out 'alert|failure|version'
fi

# A worker joins over a link that is recorded. Replaying the recorded bytes must not admit anyone.
mkfifo commands
"$TAP" "$ADDRESS:7001=127.0.0.1:$(cat swarm.port)" <commands >tap.out &
exec 4>commands # the link exists as long as this is open
wait_for_text tap.out up
"$TAP" invite "$(cat swarm.invite)" "$ADDRESS:7001" >tapped.invite
echo "record 1 $SCRATCH/recording" >&4
join_begin tapped 1
join_begin swarm 2
wait_steps swarm 5
[ "$(wc -c <recording)" -gt 1000 ] || fail "only $(wc -c <recording) bytes were recorded"
joined=$(grep -c joined swarm/events.log)
lost=$(grep -c 'connection lost' swarm/events.log)
is_refused replay 'refused: after its hello' "$SCRATCH/recording"
[ "$(grep -c joined swarm/events.log)" -eq "$joined" ] || fail "a replayed join was accepted"
[ "$(grep -c 'connection lost' swarm/events.log)" -eq "$lost" ] || fail "a replayed join closed the link of a worker"

# begin_phase NAME: lines of the metrics from now on belong to phase NAME, until the next one begins.
: >marks
begin_phase() {
    echo "$(wc -l <swarm/metrics.jsonl) $1" >>marks
}

before=$(rss "$HOST")
for round in $(seq "$ROUNDS"); do
    begin_phase quiet
    wait_steps swarm $(($(wc -l <swarm/metrics.jsonl) + QUIET))
    begin_phase attack
    is_refused silence 'refused: nearly all' 10000
    is_refused noise 'refused: all' 50
    is_refused token 'refused: .*the token is wrong'
    begin_phase rest
done
begin_phase quiet
wait_steps swarm $(($(wc -l <swarm/metrics.jsonl) + QUIET))
begin_phase rest
after=$(rss "$HOST")
echo "the coordinator: $before kB before, $after kB after"
[ -n "${SANITIZED:-}" ] || [ "$after" -lt $((before + 81920)) ] ||
    fail "the coordinator grew from $before to $after kB"
is_running || fail "the run ended before the attacks were over"

# median_speed FOLDER MARKS NAME: prints the median tokens per second of the steps of phase NAME, and
# their number.
median_speed() {
    awk -v word="$3" 'FNR == NR { from[++n] = $1; what[n] = $2; next }
        { while (at < n && FNR > from[at + 1]) at++ }
        what[at] == word && match($0, /"tokens_per_s":[0-9.e+]+/) { print substr($0, RSTART + 15, RLENGTH - 15) }' \
        "$2" "$1/metrics.jsonl" | sort -g | awk '{ v[NR] = $1 } END { printf "%d %d\n", v[int((NR + 1) / 2)], NR }'
}
quiet=$(median_speed swarm marks quiet)
attack=$(median_speed swarm marks attack)
echo "tokens/s: ${quiet% *} in ${quiet#* } quiet steps, ${attack% *} in ${attack#* } under attack"
[ "${attack#* }" -gt 0 ] || fail "no step was computed under attack"
[ $((${attack% *} * 100)) -ge $((${quiet% *} * (100 - MARGIN))) ] || fail "the attack made the run slower"

# Copies of snapshots must not take bandwidth from the run.
echo "5 wire" >wire
runs train run.yaml --out wired $slow --set train.steps=15
wired=$(median_speed wired wire wire)
echo "tokens/s: ${wired% *} without a swarm"
[ $((${quiet% *} * 4)) -ge "${wired% *}" ] || fail "a swarm is more than four times as slow as the same stages without one"

# The rest of the run needs no slow link.
host_kill
host_begin swarm run.yaml --set stages.count=2
host_ends 0 swarm
same_metrics straight swarm
same_weights straight swarm

# An invite can be limited to a number of workers.
host_begin once run.yaml $sets --uses 1
join_begin once 1
wait_for_text once/events.log joined
env STRAIT_CLI="$SCRATCH" timeout $PATIENCE "$STRAIT" join "$(cat once.invite)" --keys keys-2 \
    --listen 127.0.0.1:0 --threads 1 >/dev/null 2>late.err
code=$?
[ $code -eq 6 ] || fail "a second worker on an invite for one ended with $code, expected 6"
says late.err 'used 1 times'
host_kill
kill_join 1

# With --approve, a worker waits until the host's user types its key; other keys admit nobody.
mkfifo typed
exec 5<>typed
HOST_INPUT=typed
host_begin asked run.yaml $sets --approve
join_begin asked 1
join_begin asked 2
wait_for_text asked/events.log "'w1' asks to join" "'w2' asks to join"
echo 0123456789abcdef >&5
sed -n "s/.*'w1' asks to join: type \([0-9a-f]\{15\}\).*/\1/p" asked/events.log >&5 # too short
wait_for_text asked/events.log 'nobody was admitted: .* is too short'
sleep 0.5
grep -q joined asked/events.log && fail "a worker was admitted by an unknown key"
sed -n "s/.*'w1' asks to join: type \([0-9a-f]*\) .*/\1/p" asked/events.log >&5
wait_for_text asked/events.log 'w1 .*joined'
sleep 0.5
grep -q 'w2 .*joined' asked/events.log && fail "a worker was admitted whose key was not typed"
host_kill
kill_join 1
kill_join 2

# Malformed invites and arguments are refused before anything is dialled.
refuses 2 'does not begin with' join strait2:abc
refuses 2 'is damaged|is cut short' join "$(sed s/.....$/AAAAA/ once.invite)"
refuses 2 'expected POINT:STAGE:STEP' join "$(cat once.invite)" --fault sideways:0:1
