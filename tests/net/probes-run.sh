#!/bin/sh
# probes-run.sh STRAIT HELPER WAN - four machines (machines.sh): one hosts, three join a run that names no
# codec. The one in the middle has 10 Mb/s for both of its neighbours, the others 80 Mb/s, all 30 ms. They
# measure their links, directly and through a relay at the host, and train with what was chosen. Needs root,
# ip and TUN; skips otherwise.
. "$(dirname "$0")/../cli/lib.sh"
. "$(dirname "$0")/../cli/swarm/lib.sh"
. "$(dirname "$0")/machines.sh"
WAN=$3
rate_of_machine() {
    case $1 in 2) echo 10e6 ;; *) echo 80e6 ;; esac
}
machines_begin 4

make_corpus
cat >run.yaml <<END
model: {width: 256, layers: 3, heads: 4, context: 128}
data: {train: train.bin, tokenizer: tokenizer.json}
train: {steps: 8, batch_tokens: 2048, learning_rate: 0.005, save_every: 100}
stages: {microbatch: 1, count: 3}
device: {threads: 1}
END

# measure FOLDER ARGS...: runs it with workers that have these arguments, and prints what was measured.
measure() {
    folder=$1
    shift
    on 0 host run.yaml --out "$folder" --relay 10.100.0.1:7071 --listen 10.100.0.1:7070 --keys keys-0 \
        >"$folder.invite" 2>>"$HOST_LOG" </dev/null &
    HOST=$!
    wait_for_text "$folder.invite" .
    for i in 1 2 3; do
        on $i join "$(cat "$folder.invite")" --keys "keys-$folder-$i" --name "m$i" --threads 1 "$@" \
            >/dev/null 2>>"join-$i.err" </dev/null &
        wait_for_text "$folder/events.log" "worker m$i .*joined"
    done
    host_ends 0 "$folder"
    sed -n 's/^[^ ]* \(link .*\|codec auto: .*\)/\1/p' "$folder/events.log"
    says "$folder/events.log" 'link 0-1: .*m1 and m2' 'codec auto: (int4|strait)'
    sed -n 's/^    chosen_for: "\(.*\)"$/\1/p' "$folder/run.yaml" | tr , '\n' >rates
    [ "$(wc -l <rates)" -eq 2 ] || fail "$folder: two links have no rate: $(cat rates)"
    grep -qvE '^[1-9][0-9]{3}kbit$|^[1-9]mbit$' rates && fail "$folder: expected 1 to 10 Mb/s: $(cat rates)"
    return 0
}

on 0 relay --listen 10.100.0.1:7071 >relay.out 2>relay.err &
measure direct
measure relayed --no-listen
