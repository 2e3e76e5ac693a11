#!/bin/sh
# probes.sh - link.codec.name auto without rates in the run file: the workers measure their links, through a
# relay too, and the codec follows from that. It stays when the slowest worker is replaced, and a warning
# names the codec for the next run. Workers that report false rates, or none, do not decide.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"
LIAR=$(dirname "$HELPER")/../liar/cli_liar

# codec_of FOLDER: prints the codec of a run's record as overrides.
codec_of() {
    sed -n '/^  codec:/,/^  [a-z]*:$/s/^    \(name\|variant\|ratio\): "*\([^"]*\)"*$/--set link.codec.\1=\2/p' \
        "$1/run.yaml" | tr '\n' ' '
}

# rate_of FOLDER LINK: prints the rate in kbit/s that the codec was chosen for, of a link counted from 1.
rate_of() {
    sed -n 's/^    chosen_for: "\(.*\)"$/\1/p' "$1/run.yaml" | cut -d , -f "$2" |
        awk '{ unit = $1; sub(/[0-9.]*/, "", unit)
            print int($1 * (unit == "gbit" ? 1e6 : unit == "mbit" ? 1e3 : unit == "kbit" ? 1 : 1e-3)) }'
}

make_corpus
cat >run.yaml <<END
model: {width: 32, layers: 3, heads: 2, ffn: 48, context: 16}
data: {train: train.bin, tokenizer: tokenizer.json}
train: {steps: 12, batch_tokens: 128, learning_rate: 0.005, save_every: 4}
stages: {microbatch: 1, count: 3}
link: {deadline: 20s}
device: {threads: 1}
END

# The worker in the middle has 600 kbit/s for both of its neighbours, and dies at step 1; the spare that
# takes its place has no limit.
env STRAIT_CLI="$SCRATCH" "$STRAIT" relay --listen 127.0.0.1:0 >relay.out 2>relay.err &
wait_for_text relay.out 'relay at'
host_begin slow run.yaml --relay "$(sed -n 's/^relay at //p' relay.out)" --rebalance 0 --probe-every 0.1
for i in 1 2 3; do
    case $i in 2) more="--rate-up 600kbit --fault begin:1:1" ;; *) more= ;; esac
    join_begin slow $i --no-listen $more
    wait_for_text slow/events.log "worker w$i .*joined"
done
join_begin slow 4 --no-listen
wait_for_text slow/events.log 'codec auto: measuring all links' 'link 0-1: .* forward, .*kbit backward, .*w1 and w2' \
    'link 1-2: .*kbit forward, .*w2 and w3' 'codec auto: strait at ratio [0-9]*, .* link [01]-[12] \([0-9.]*[kbit]*\) is too slow' \
    'codec auto: .* tokens/s expected' 'codec auto: its price in loss' 'by hand: link.codec: .name: strait, ratio:'
host_ends 0 "a slow worker"
for link in 1 2; do
    rate=$(rate_of slow $link)
    [ "$rate" -gt 60 ] && [ "$rate" -lt 600 ] || fail "link $link of a worker with 600 kbit/s has $rate kbit/s"
    [ "$(grep -c "link $((link - 1))-$link has .* instead of the .* this run keeps its codec; the next one should take" \
        slow/events.log)" -eq 1 ] || fail "link $link: expected one warning: $(cat slow/events.log)"
done
runs train run.yaml --out by-hand $(codec_of slow)
same_metrics by-hand slow
same_weights by-hand slow

# Continued without its codec in the run file: the record decides, and nobody measures before the run.
n_measured=$(grep -c 'measuring all links' slow/events.log)
host_begin slow run.yaml --set train.steps=16 --rebalance 0 --probe-every 0
for i in 1 3 4; do join_begin slow $i; done
host_ends 0 "a continued run"
[ "$(grep -c 'measuring all links' slow/events.log)" -eq "$n_measured" ] || fail "a continued run measured its links"
runs compare --training slow by-hand
says "$OUT" 'strait.*slow|slow.*strait'

# One owner claims that hardly anything reached it, and that nobody took what it sent; its neighbour knows
# better. Another does not answer at all, and a spare takes its place.
liar_begin() {
    number=$1
    shift
    env STRAIT_CLI="$SCRATCH" "$LIAR" "$@" join "$(cat lies.invite)" --keys "keys-$number" --name "w$number" \
        --listen 127.0.0.1:0 --threads 1 >>"join-$number.err" 2>&1 </dev/null &
}
host_begin lies run.yaml --rebalance 0 --lease 4 --stall 4
join_begin lies 11
wait_for_text lies/events.log 'worker w11 .*joined'
liar_begin 12 --lie reply.probe.from_prev_bps=1 --lie reply.probe.to_prev_bps=1 --lie reply.probe.from_next_bps=1 \
    --lie reply.probe.to_next_bps=1
wait_for_text lies/events.log 'worker w12 .*joined'
liar_begin 13 --drop reply.probe
wait_for_text lies/events.log 'worker w13 .*joined'
join_begin lies 14
wait_for_text lies/events.log 'worker w13 .*disconnected|worker w13 .*silent|worker w13 .*limit' 'w12.* contradict each other'
host_ends 0 "liars"
for link in 1 2; do
    [ "$(rate_of lies $link)" -gt 1000 ] || fail "a liar made link $link $(rate_of lies $link) kbit/s"
done
