#!/bin/sh
# reach.sh - an invite with several addresses: a worker tries each, and doctor reports on each.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"

make_corpus
make_run run.yaml 2 20
sets="--set stages.count=2"
runs train run.yaml --out straight $sets

# No process listens at the first address, the second is the coordinator's, the third does not resolve.
host_begin several run.yaml $sets --announce 127.0.0.1:9,127.0.0.1,nowhere.invalid:7
invite=$(cat several.invite)
runs doctor "$invite"
says "$OUT" '127.0.0.1:9,127.0.0.1:[0-9]+,nowhere.invalid:7' \
    '^\? coordinator .*127.0.0.1:9: .*connection refused' '-> is "strait host" running' \
    '^  coordinator .*127.0.0.1:[0-9]+ answers with the key .*round trip [0-9.]+ ms, takes [0-9]+ Mb/s, sends [1-9][0-9]* Mb/s' \
    '^\? coordinator .*nowhere.invalid:7: .*cannot resolve the host name'
for i in 1 2; do join_begin several $i; done
host_ends 0 several
same_metrics straight several
same_weights straight several

# IPv4 and IPv6 at once, where this machine has both.
if [ -s /proc/net/if_inet6 ]; then
    env STRAIT_CLI="$SCRATCH" "$STRAIT" host run.yaml --out both $sets --listen '[::]:0' \
        --announce ::1,127.0.0.1 --keys keys-host >both.invite 2>>"$HOST_LOG" </dev/null &
    HOST=$!
    wait_for_text both.invite .
    runs doctor "$(cat both.invite)"
    says "$OUT" '\[::1\]:[0-9]+ answers' '127.0.0.1:[0-9]+ answers'
    env STRAIT_CLI="$SCRATCH" "$STRAIT" join "$(cat both.invite)" --keys keys-1 --threads 1 \
        --listen '[::]:0' 2>>join-1.err </dev/null &
    join_begin both 2
    host_ends 0 both
    same_weights straight both
fi

# A metastore that cannot be reached: the host reports it and gives up.
refuses 4 '--store-wait 0: metastore etcd:http://127.0.0.1:9: unreachable for [0-9]+ s: .*answered within' \
    host run.yaml --out storeless $sets --listen 127.0.0.1:0 --keys keys-host \
    --store etcd:http://127.0.0.1:9 --store-wait 0

# No address answers, because the coordinator has ended.
refuses 4 'coordinator: 127.0.0.1:9: ' doctor "$invite"
