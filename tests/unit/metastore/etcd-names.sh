#!/bin/sh
# etcd-names.sh - runs of one name in one etcd: each folder is a run of its own, with its own invite, and
# continues with it after a restart.
. "$(dirname "$0")/../../cli/lib.sh"
. "$(dirname "$0")/../../cli/swarm/lib.sh"
. "$(dirname "$0")/etcd_lib.sh"

make_corpus
make_run run.yaml 2 10
start_etcd
for folder in a b; do
    host_begin $folder run.yaml --store "$store"
    eval "$folder=$HOST"
done
grep -q 'standing by' "$HOST_LOG" && fail "a run waits for another one of the same name"
[ "$(cat a.invite)" != "$(cat b.invite)" ] || fail "two runs have one invite"
[ "$(cat a/swarm.id)" != "$(cat b/swarm.id)" ] || fail "two runs have one id"

# A standby of the first run has its folder.
env STRAIT_CLI="$SCRATCH" "$STRAIT" host run.yaml --out a --listen 127.0.0.1:0 --keys keys-host \
    --store "$store" >/dev/null 2>standby.err </dev/null &
standby=$!
wait_for_text standby.err 'standing by'
kill -INT $standby
wait $standby
[ -s a/swarm.id ] || fail "a standby that was stopped removed the id of the run"

cp a.invite before.invite
HOST=$a
host_kill
host_begin a run.yaml --store "$store"
cmp -s before.invite a.invite || fail "the run has another invite after a restart"

# A run that cannot begin leaves nothing, and the next attempt begins.
strait host run.yaml --out c --listen "127.0.0.1:$(cat b.port)" --keys keys-host --store "$store" \
    >"$OUT" 2>"$ERR" </dev/null && fail "a host began on a port that is in use"
[ ! -e c ] || fail "a run that could not begin left $(find c)"
host_begin c run.yaml --store "$store"
