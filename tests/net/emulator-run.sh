#!/bin/sh
# emulator-run.sh STRAIT WAN - compares a pipelined run over emulated links with the same run over TCP.
#
# Two stages train a small model at 80 Mb/s and 30 ms in each direction, once on this machine with the
# emulator, once with each stage in a network namespace of its own and wan.c between them. Tokens per
# second must agree within 5%, compressed and uncompressed. Needs root and ip; skipped otherwise.
set -eu
strait=$1 wan=$2
[ "$(id -u)" = 0 ] || { echo "skipped: needs root"; exit 77; }
command -v ip >/dev/null || { echo "skipped: needs ip (package iproute2)"; exit 77; }
[ -c /dev/net/tun ] || { echo "skipped: needs /dev/net/tun"; exit 77; }

work=$(mktemp -d)
tag=st$$
clean() {
    exec 3>&- || true
    for i in 0 1; do
        ip link del "$tag-$i" 2>/dev/null || true
        ip netns del "$tag-$i" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap clean EXIT

# A control network between this namespace and each stage's, and the wide-area link between stages.
for i in 0 1; do
    ip netns add "$tag-$i" && ip netns exec "$tag-$i" true ||
        { echo "skipped: cannot create and enter network namespaces"; exit 77; }
    ip link add "$tag-$i" type veth peer name control netns "$tag-$i"
    ip addr add "10.199.$i.1/24" dev "$tag-$i"
    ip link set "$tag-$i" up
    ip -n "$tag-$i" addr add "10.199.$i.2/24" dev control
    ip -n "$tag-$i" link set control up
    ip -n "$tag-$i" link set lo up
    ip -n "$tag-$i" route add 10.199.0.0/16 via "10.199.$i.1"
done
mkfifo "$work/stop" "$work/up"
"$wan" 80e6 30 "$tag-0" 10.198.0.1 "$tag-1" 10.198.1.1 <"$work/stop" >"$work/up" &
exec 3>"$work/stop"
read -r answer <"$work/up" && [ "$answer" = up ] || { echo "skipped: no wide-area link"; exit 77; }

awk 'BEGIN { srand(1); for (i = 0; i < 40000; i++) printf "%s ", substr("the and of to in that his was with for it as had you not be her is on at by which have or from this him but all she they were my are me one their so an said them we who would been will no when there if more out up into do any your what has man could other than our some very time upon about may its only now like little then can made should did us such great before must two these see know over much down after first mr good men own never most old shall day where those came come himself way work life without go make well through being long say might how am too def again back here think every people went same last thought away under take found hand eyes still while place against", 1 + 6 * int(rand() * 100), 6) }' >"$work/text"
"$strait" tokenizer train --vocab 512 --out "$work/tokenizer.json" "$work/text" 2>/dev/null
"$strait" tokenize --tokenizer "$work/tokenizer.json" --out "$work/train.bin" "$work/text" 2>/dev/null
# Little computation per byte sent, so that the link is the bottleneck on slow processors too, which
# the real link and its TCP share with the stages.
cat >"$work/run.yaml" <<'YAML'
model: {width: 128, layers: 2, heads: 2, ffn: 64, context: 128}
data: {train: train.bin, tokenizer: tokenizer.json}
train: {steps: 5, batch_tokens: 16384, save_every: 0}
stages: {count: 2, microbatch: 8, schedule: 1f1b-window}
device: {threads: 1}
YAML

# busy - prints the CPU time used by all processes so far, in hundredths of a second.
busy() {
    awk '/^cpu / { print $2 + $3 + $4 + $7 + $8 + $9 }' /proc/stat
}

# speed NAME SETTINGS... - prints how many processors other programs kept busy, and the median tokens
# per second of a run without its first step.
speed() {
    name=$1
    shift
    rm -rf "${work:?}/$name"
    worked=$(busy)
    began=$(date +%s%N)
    "$strait" train "$work/run.yaml" --out "$work/$name" "$@" 2>"$work/log" ||
        { cat "$work/log" >&2; exit 1; }
    worked=$(($(busy) - worked))
    took=$((($(date +%s%N) - began) / 10000000))
    times >"$work/times" # CPU time of this script and its children
    tail -n 1 "$work/times" | tr ms '  ' | awk -v worked="$worked" -v took="$took" \
        '{ others = (worked - 100 * (60 * $1 + $2 + 60 * $3 + $4)) / took
           printf "%.2f ", (others > 0 ? others : 0) }' # differing clocks may yield a negative value
    sed -n 's/.*"tokens_per_s":\([0-9.e+]*\).*/\1/p' "$work/$name/metrics.jsonl" | sed 1d |
        sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# compare LABEL SETTINGS... - returns 0 when the runs agree, 1 when they do not, 2 when the machine is
# too busy to tell (others used a third of a processor, or the emulated runs before and after differ
# by more than 3%), 3 when others used a whole processor.
compare() {
    label=$1
    shift
    links="--set link.emulate.rate=80mbit --set link.emulate.delay=30ms"
    before=$(speed emulated $links "$@")
    [ "${before%%.*}" = 0 ] || return 3
    over_tcp=$(speed real --set "stages.launch=ip netns exec $tag-{stage}" \
        --set "stages.address=10.198.{stage}.1" --set stages.coordinator=10.199.0.1 "$@")
    after=$(speed emulated $links "$@")
    echo "$before $over_tcp $after" | awk -v l="$label" '{
        others = $1 > $5 ? $1 : $5; ratio = ($2 + $6) / 2 / $4; drift = $6 / $2
        printf "%-14s emulated %.0f and %.0f tok/s, real TCP %.0f tok/s, ratio %.3f; others: %.2f\n",
            l, $2, $6, $4, ratio, others
        if (ratio > 0.95 && ratio < 1.05) exit 0
        exit drift > 0.97 && drift < 1.03 && others < 0.33 ? 1 : 2 }'
}

# agrees LABEL SETTINGS... - passes when one of three attempts agrees; fails when three attempts on an
# idle machine disagree; skips otherwise.
agrees() {
    n_wrong=0
    for attempt in 1 2 3; do
        verdict=0
        compare "$@" || verdict=$?
        [ "$verdict" = 0 ] && return 0
        [ "$verdict" = 3 ] && break
        [ "$verdict" = 1 ] && n_wrong=$((n_wrong + 1))
    done
    [ "$n_wrong" = 3 ] && exit 1
    echo "skipped: this machine is too busy to tell"
    exit 77
}
agrees uncompressed --set link.codec.variant=fp32
agrees compressed --set link.codec.name=strait --set link.codec.variant=tied \
    --set link.codec.keep=16 --set link.codec.bits=4
