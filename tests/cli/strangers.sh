#!/bin/sh
# strangers.sh - those who should not be in a run are refused, and the run does not notice.
#
#   ROUNDS=1     of quiet and attack, in turns; the tokens a second of their steps are compared
#   MARGIN=60    per cent that they may differ; 5 on a machine with nothing else to do
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/swarm_lib.sh"
STRANGER=$(dirname "$HELPER")/cli_stranger
TAP=$(dirname "$HELPER")/cli_tap
ROUNDS=${ROUNDS:-1}
MARGIN=${MARGIN:-60}
QUIET=15 # steps
ADDRESS=$(private_address)

make_corpus
make_run run.yaml 2 $((300 + 300 * ROUNDS))
# The wire is the limit, not the processor, which attackers on the same machine take their share of.
sets="--set stages.count=2 --set link.emulate.delay=10ms"
slow="$sets --set link.emulate.rate=500kbit"
runs train run.yaml --out straight --set stages.count=2

# turned_away MODE WORDS [N]
turned_away() {
    "$STRANGER" "$1" "$(cat swarm.invite)" "${3:-1}" >"stranger-$1.out" || fail "$1: $(cat "stranger-$1.out")"
    grep -qE "$2" "stranger-$1.out" || fail "$1: $(cat "stranger-$1.out"), expected \"$2\""
    is_running || fail "$1: the run ended"
}

# rss PID: kilobytes
rss() {
    sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$1/status"
}

host_begin swarm run.yaml $slow
turned_away token 'refused: .*the token is wrong'
turned_away version 'refused: .*protocol version 0, this program version 2'
turned_away early 'refused: .*messages before the request to join'
turned_away pieces 'refused: .*messages before the request to join'
turned_away other 'refused: .*belongs to run'
if command -v openssl >/dev/null; then
    openssl s_client -tls1_2 -connect "127.0.0.1:$(cat swarm.port)" </dev/null >old.out 2>&1 &&
        fail "TLS 1.2 is let in"
    says old.out 'alert|failure|version'
fi

# A worker joins over a line that is listened to. What it said is no use to whoever says it again.
mkfifo orders
"$TAP" "$ADDRESS:7001=127.0.0.1:$(cat swarm.port)" <orders >tap.out &
exec 4>orders # the line lasts as long as this is open
wait_for_text tap.out up
"$TAP" invite "$(cat swarm.invite)" "$ADDRESS:7001" >tapped.invite
echo "record 1 $SCRATCH/said" >&4
join_begin tapped 1
join_begin swarm 2
wait_steps swarm 5
[ "$(wc -c <said)" -gt 1000 ] || fail "only $(wc -c <said) bytes were overheard"
joined=$(grep -c joined swarm/events.log)
lost=$(grep -c 'connection lost' swarm/events.log)
turned_away replay 'refused: after its hello' "$SCRATCH/said"
[ "$(grep -c joined swarm/events.log)" -eq "$joined" ] || fail "old words let somebody in"
[ "$(grep -c 'connection lost' swarm/events.log)" -eq "$lost" ] || fail "old words cost a worker its link"

# lines WORD: those of the metrics from now on are WORD's, until the next is named.
: >marks
lines() {
    echo "$(wc -l <swarm/metrics.jsonl) $1" >>marks
}

before=$(rss "$HOST")
for round in $(seq "$ROUNDS"); do
    lines quiet
    wait_steps swarm $(($(wc -l <swarm/metrics.jsonl) + QUIET))
    lines attack
    turned_away silence 'refused: nearly all' 10000
    turned_away noise 'refused: all' 50
    turned_away token 'refused: .*the token is wrong'
    lines rest
done
lines quiet
wait_steps swarm $(($(wc -l <swarm/metrics.jsonl) + QUIET))
lines rest
after=$(rss "$HOST")
echo "the coordinator: $before kB before, $after kB after"
[ -n "${SANITIZED:-}" ] || [ "$after" -lt $((before + 81920)) ] ||
    fail "the coordinator grew from $before to $after kB"
is_running || fail "the run was over too early"

# pace FOLDER MARKS WORD: the median tokens a second of its steps, and how many.
pace() {
    awk -v word="$3" 'FNR == NR { from[++n] = $1; what[n] = $2; next }
        { while (at < n && FNR > from[at + 1]) at++ }
        what[at] == word && match($0, /"tokens_per_s":[0-9.e+]+/) { print substr($0, RSTART + 15, RLENGTH - 15) }' \
        "$2" "$1/metrics.jsonl" | sort -g | awk '{ v[NR] = $1 } END { printf "%d %d\n", v[int((NR + 1) / 2)], NR }'
}
quiet=$(pace swarm marks quiet)
attack=$(pace swarm marks attack)
echo "tokens/s: ${quiet% *} in ${quiet#* } quiet steps, ${attack% *} in ${attack#* } under attack"
[ "${attack#* }" -gt 0 ] || fail "no step was made under attack"
[ $((${attack% *} * 100)) -ge $((${quiet% *} * (100 - MARGIN))) ] || fail "the attack made the run slower"

# Copies of images leave the wire to the run.
echo "5 wire" >wire
runs train run.yaml --out wired $slow --set train.steps=15
wired=$(pace wired wire wire)
echo "tokens/s: ${wired% *} without a swarm"
[ $((${quiet% *} * 4)) -ge "${wired% *}" ] || fail "a swarm takes four times as long as its wire does"

# The rest of the run needs no slow wire.
host_kill
host_begin swarm run.yaml --set stages.count=2
host_ends 0 swarm
same_metrics straight swarm
same_weights straight swarm

# Invites have limits: one machine, and not for ever.
host_begin once run.yaml $sets --uses 1
join_begin once 1
wait_for_text once/events.log joined
env STRAIT_CLI="$SCRATCH" timeout 60 "$STRAIT" join "$(cat once.invite)" --keys keys-2 \
    --listen 127.0.0.1:0 --threads 1 >/dev/null 2>late.err
code=$?
[ $code -eq 6 ] || fail "a second machine on an invite for one ended with $code, expected 6"
says late.err 'used 1 times'
host_kill
kill_join 1

# Unknown keys wait until they are approved: their own, typed by the host's user, and no other.
mkfifo typed
exec 5<>typed
HOST_INPUT=typed
host_begin asked run.yaml $sets --approve
join_begin asked 1
join_begin asked 2
wait_for_text asked/events.log "'w1' asks to join" "'w2' asks to join"
echo 0123456789abcdef >&5
sleep 0.5
grep -q joined asked/events.log && fail "an unknown key was let in"
sed -n "s/.*'w1' asks to join: type \([0-9a-f]*\) .*/\1/p" asked/events.log >&5
wait_for_text asked/events.log 'w1 .*joined'
sleep 0.5
grep -q 'w2 .*joined' asked/events.log && fail "a key that nobody typed was let in"
host_kill
kill_join 1
kill_join 2

# What is no invite is refused before anything is dialled.
refuses 2 'does not begin with' join strait2:abc
refuses 2 'is damaged|is cut short' join "$(sed s/.....$/AAAAA/ once.invite)"
refuses 2 'expected POINT:STAGE:STEP' join "$(cat once.invite)" --fault sideways:0:1
