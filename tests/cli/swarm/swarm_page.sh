#!/bin/sh
# swarm_page.sh - the page of a hosted run: workers with names that are meant to do harm, in JSON, for Prometheus and in a
# browser.
here=$(cd "$(dirname "$0")/../.." && pwd)
. "$here/cli/lib.sh"
. "$here/cli/swarm/lib.sh"
command -v curl >/dev/null || { echo "skipped: curl is not installed" >&2; exit 77; }

make_corpus
make_run run.yaml 2 100000
evil='<script>fetch("http://evil.example/")</script>"\'
long=$(head -c 10000 /dev/zero | tr '\0' x)
far='Zoë 世界 🚀' # 11 columns, 17 bytes

env STRAIT_CLI="$SCRATCH" "$STRAIT" host run.yaml --out run --listen 127.0.0.1:0 --announce 127.0.0.1 --keys keys-host --set stages.count=2 --set stages.replicas=2 \
    --set link.emulate.delay=20ms --set train.save_every=0 --page 127.0.0.1:0 >invite 2>host.err </dev/null &
HOST=$!
wait_for_text invite '^strait1:'
wait_for_text host.err '^page: '
origin=$(sed -n 's|^page: \(.*\)/$|\1|p' host.err)
strait join "$(cat invite)" --keys keys-1 --name "$evil" >/dev/null 2>join-1.err </dev/null &
strait join "$(cat invite)" --keys keys-2 --name "$long" >/dev/null 2>join-2.err </dev/null &
strait join "$(cat invite)" --keys keys-3 --name "$far" >/dev/null 2>join-3.err </dev/null &
wait_until "steps" has_reached_step run 3 || fail "the run ended: $(tail -n 3 host.err)"

# The state follows the run by about a second.
shows_workers() {
    curl -sS -m $PATIENCE "$origin/api/v1/state" >state.json
    jq -e --arg evil "$evil" --arg far "$far" '.swarm.workers | length == 3 and any(.[]; .name == $evil) and any(.[]; .name == $far) and
        all(.[]; .name | length < 100) and ([.[] | select(.stage >= 0)] | length >= 2) and
        any(.[]; .tokens > 0)' state.json >/dev/null &&
        jq -e '([.stages[].replicas] | add) == ([.swarm.workers[] | select(.stage >= 0 and .connected)] | length)' state.json >/dev/null
}
wait_until "workers" shows_workers || fail "workers: $(jq -c '.swarm.workers' state.json | cut -c 1-600)"
# The third becomes a replica, whatever this machine measures (stages.replicas is above 1), and the page says what a
# fourth would bring: perhaps nothing.
shows_replicas() {
    curl -sS -m $PATIENCE "$origin/api/v1/state" >state.json
    jq -e '(.swarm | has("more")) and (.swarm.more == null or .swarm.more.gain > 0) and (.swarm.workers | map([.replica, .replicas]) | sort == [[0, 1], [0, 2], [1, 2]]) and
        any(.events[].text; test("workers compute [0-9]+ tokens/s; one more would bring"))' state.json >/dev/null
}
wait_until "replicas" shows_replicas || fail "replicas: $(jq -c '[.swarm.more, .swarm.workers]' state.json | cut -c 1-600)"
jq -e '[.events[].text] | any(test("joined"))' state.json >/dev/null || fail "events: $(jq -c .events state.json)"
curl -sS -m $PATIENCE "$origin/metrics" >metrics.txt
grep -qF 'worker="<script>fetch(\"http://evil.example/\")</script>\"\\"' metrics.txt ||
    fail "the name is not escaped: $(grep -m 1 script metrics.txt)"
grep -qE '^strait_worker_tokens_total\{.*\} [1-9]' metrics.txt || fail "no worker has contributed tokens"
# A name in UTF-8 is shown as it is, and keeps the columns of the table.
grep -qF "worker=\"$far\"" metrics.txt || fail "metrics: $(grep -m 1 Zo metrics.txt)"
says run/events.log "worker $far .*joined"
runs watch run --once
grep -qE "^  $far {6}[0-9a-f]{8}  " "$OUT" || fail "watch: $(grep Zo "$OUT")"
runs swarm status run
grep -qE "^  $far {6}[0-9a-f]{8,}  " "$OUT" || fail "swarm status: $(grep Zo "$OUT")"
if command -v promtool >/dev/null; then
    promtool check metrics <metrics.txt >"$OUT" 2>&1 || fail "promtool does not accept the metrics"
fi
if command -v node >/dev/null && command -v chromium >/dev/null; then
    node "$here/page/browser.mjs" "$origin/" run/metrics.jsonl "$evil" "$far" >"$OUT" 2>&1 || fail "the page in Chromium"
    cat "$OUT"
fi
if command -v tmux >/dev/null; then
    # On a terminal without UTF-8 each character becomes one '?'. High enough for all events: one names the worker.
    for locale in C.UTF-8 C; do
        shown=$far
        [ $locale = C ] && shown='Zo? ?? ?'
        LC_ALL=C.UTF-8 tmux -u -S "$SCRATCH/$locale" -f /dev/null new-session -d -s w -x 80 -y 120 \
            "env STRAIT_CLI=$SCRATCH LC_ALL=$locale $STRAIT watch run; sleep 1000"
        shows_name() { LC_ALL=C.UTF-8 tmux -S "$SCRATCH/$locale" capture-pane -p -t w | grep -qF "$shown"; }
        wait_until "watch in $locale" shows_name
        tmux -S "$SCRATCH/$locale" kill-server
    done
fi
kill -INT $HOST
wait $HOST
code=$?
[ $code -eq 130 ] || fail "the host ended with $code"
says host.err '^interrupted: saving a checkpoint' '^to resume: the same command again; the workers reconnect$'

# Interrupted while it waits for workers, it saves nothing and says so.
env STRAIT_CLI="$SCRATCH" "$STRAIT" host run.yaml --out early --listen 127.0.0.1:0 --announce 127.0.0.1 --keys keys-host \
    --set stages.count=2 >early.invite 2>early.err </dev/null &
HOST=$!
wait_for_text early.invite '^strait1:'
kill -INT $HOST
wait $HOST
[ $? -eq 130 ] || fail "a host without workers: exit code $code"
says early.err '^interrupted before the first step: stopping$' '^strait: stopped before enough workers had joined$'
! grep -q 'to resume\|saving' early.err || fail "a host without workers speaks of a checkpoint: $(cat early.err)"
