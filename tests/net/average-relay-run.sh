#!/bin/sh
# average-relay-run.sh - pipelines that average (train.outer) whose workers accept no connections: crossings and averages
# go through a relay, with the bits of strait train; --relay-rate limits what averages take of it, as strait plan counts
# it; without a relay such workers stay spares.
. "$(dirname "$0")/../cli/lib.sh"
. "$(dirname "$0")/../cli/swarm/lib.sh"
SPARES=0

make_corpus
make_run run.yaml 2 12
pair="--set stages.count=2 --set stages.replicas=2 --set train.batch_tokens=256 --set train.outer.sync_every=4
    --set train.outer.fragments=2 --set train.outer.overlap=1 --set train.outer.bits=4"

relay_begin() { # relay_begin FLAGS...: starts a relay, whose address is $where
    : >relay.out
    env STRAIT_CLI="$SCRATCH" "$STRAIT" relay --listen 127.0.0.1:0 "$@" >relay.out 2>relay.err </dev/null &
    relay=$!
    wait_for_text relay.out '^relay at '
    where=$(sed -n 's/^relay at //p' relay.out)
}

# Nobody accepts connections: pairs are limited by the relay, and the bits are those of one process.
runs train run.yaml --out straight $pair --set link.transport=inproc
# The relay has a secret, which the host proves to it through the tokens of its workers.
relay_begin --rate 20 --secret relay.secret
says relay.err 'wrote a new secret to relay.secret'
[ "$(stat -c %a relay.secret)" = 600 ] || fail "others may read the secret: $(ls -l relay.secret)"
refuses 2 '--relay-secret is for --relay' host run.yaml --out bad $pair --relay-secret relay.secret
refuses 2 '--relay-secret: run.yaml: expected the secret of a relay' host run.yaml --out bad $pair --relay "$where" --relay-secret run.yaml
host_begin relayed run.yaml $pair --relay "$where" --relay-secret relay.secret
for i in 1 2 3 4; do join_begin relayed $i --no-listen; done
host_ends 0 relayed
same_metrics straight relayed
grep -q '"step":12,.*"averaged":\[0,1\]' relayed/metrics.jsonl || fail "averages: $(cat relayed/metrics.jsonl)"
says relayed/events.log 'averages send [0-9.e+-]+ Mb/s through the relay, as planned'
# A host without the secret makes tokens that this relay refuses.
host_begin denied run.yaml --set stages.count=2 --relay "$where"
for i in 5 6; do join_begin denied $i --no-listen; done
await "a worker is refused by the relay" grep -q 'the relay is not open to everyone' join-5.err join-6.err
host_kill
kill -9 "$(cat join-5.pid)" "$(cat join-6.pid)"
says relay.err 'refused: a token that was not made with this relay.s secret'
! grep -q 'relay://' relay.out || fail "the relay prints a token that is valid for ever"
kill -INT "$relay"
wait "$relay" || fail "the relay ended with $?"
# Per generation one pair for each of two boundaries, and one for each of two stages; the first has one pipeline.
says relay.out '[5-9] pairs, [1-9][0-9]{3,} bytes forwarded$'
wait_all_exited

# A relay that may carry less: the first pipeline computes alone, and the others stay spares.
refuses 2 '--relay-rate 1: expected Mb/s, with --relay' host run.yaml --out bad $pair --relay-rate 1
relay_begin
host_begin limited run.yaml $pair --relay "$where" --relay-rate 0.0001
for i in 1 2 3 4; do join_begin limited $i --no-listen; done
host_ends 0 limited
says limited/events.log 'would send [0-9.e+-]+ Mb/s of averages through the relay, and --relay-rate allows 0.0001: its workers stay'
! grep -q '"averaged":\[0,1\]' limited/metrics.jsonl || fail "averages crossed the relay"
kill -INT "$relay"
wait "$relay" || fail "the relay ended with $?"
wait_all_exited

# Without a relay a pipeline of workers that all others can reach, or that can reach them, is complete; the fifth and
# sixth worker can reach the others and not each other.
host_begin direct run.yaml $pair --set stages.replicas=3 --set train.steps=8
for i in 1 2 3 4; do
    join_begin direct $i
    wait_joined direct $i
done
for i in 5 6; do join_begin direct $i --no-listen; done
wait_joined direct 6
host_ends 0 direct
grep -q '"step":8,.*"averaged":\[0,1\]' direct/metrics.jsonl || fail "averages: $(cat direct/metrics.jsonl)"
! grep -q 'failed as a further replica' direct/events.log || fail "$(cat direct/events.log)"
wait_all_exited

runs plan run.yaml --gflops 10 $pair --set link.emulate.rate=80mbit
says "$OUT" 'relay  stage 1: two of them that meet at a relay send [0-9.e+-]+ Mb/s of averages through it in each direction'
