#!/bin/sh
# slow_link.sh - a slow link is not a dead one: crossings and snapshots that take longer than link.deadline
# arrive, also where most stages only wait, as long as bytes move somewhere. A stage that is stopped is
# still noticed within the deadline.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/swarm/lib.sh"

make_corpus
# One microbatch per step, 64 KiB over each boundary: 2.6 s at 200 kbit/s, with a deadline of two seconds.
cat >run.yaml <<END
model: {width: 32, layers: 3, heads: 2, ffn: 48, context: 128}
data: {train: train.bin, tokenizer: tokenizer.json}
train: {steps: 1, batch_tokens: 512, learning_rate: 0.005, save_every: 0}
stages: {count: 3, microbatch: 4}
link: {codec: {variant: fp32}, deadline: 2s}
device: {threads: 1}
END
slow='--set link.emulate.rate=200kbit'

runs train run.yaml --out fast
runs train run.yaml --out slow $slow
same_metrics fast slow
same_weights fast slow
awk 'BEGIN { FS = "\"seconds\":" } { split($2, s, ","); if (s[1] > 8) n++ } END { exit n < 1 }' slow/metrics.jsonl ||
    fail "the links were not slow"

# The middle stage is stopped in the second step: the run must end within the deadline, give or take.
begin train run.yaml --out stopped $slow --set train.steps=20
wait_lines stopped 1
stage=$(our_processes | while read -r pid; do
    tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q ' stage $' && echo "$pid"; done | sed -n 2p)
[ -n "$stage" ] || fail "no stage runs"
kill -STOP "$stage"
await "a stopped stage is noticed" is_over "$STARTED"
reap
kill -CONT "$stage" 2>/dev/null
[ "$code" -eq 4 ] || fail "exit code $code after a stage was stopped, expected 4"
wait_all_exited

# The same in a swarm, where snapshots of 240 KB, ten seconds long, are copied over the slow links, too.
two='--set train.steps=2'
runs train run.yaml --out fast-two $two
host_begin swarm run.yaml $slow $two
for i in 1 2 3; do join_begin swarm $i; done
host_ends 0 swarm
same_metrics fast-two swarm
same_weights fast-two swarm
! grep -qE 'timed out|disconnected|replac' swarm/events.log || fail "a slow link was taken for a dead one: $(cat swarm/events.log)"

# A host chooses a codec for links with rates before its workers have weights. A worker that is replaced leaves it
# as it is, and so does a host that comes back; the run has the bits of the same codec by hand.
sed 's/codec: {variant: fp32}, //' run.yaml >unnamed.yaml
uneven='--set train.steps=5 --set link.emulate.up=[2mbit,400kbit,2mbit]'
host_begin auto unnamed.yaml $uneven
says "$HOST_LOG" '^codec auto: ' 'the uplink of stage 1 \(400kbit\)|all links are fast enough'
for i in 1 2 3; do join_begin auto $i --fault forward:1:3; done
wait_steps auto 1
cp auto/run.yaml chosen.yaml
join_begin auto 4
host_ends 0 auto
grep -q 'codec' chosen.yaml && cmp -s auto/run.yaml chosen.yaml || fail "the codec of the swarm changed"
says auto/events.log 'stage 1'
runs train auto/run.yaml --out by-hand
same_weights auto by-hand
: >"$HOST_LOG"
host_begin auto unnamed.yaml --set train.steps=6
! grep -q '^codec auto' "$HOST_LOG" || fail "a host that came back chose a codec"
for i in 4 5 6; do join_begin auto $i; done
host_ends 0 auto
