#!/bin/sh
# page.sh - the page of a running run: JSON, server-sent events, Prometheus, who may read it, and slow readers.
here=$(cd "$(dirname "$0")/.." && pwd)
. "$here/cli/lib.sh"
command -v curl >/dev/null || { echo "skipped: curl is not installed" >&2; exit 77; }

make_corpus
make_run run.yaml 2 100000
# Slow enough to be watched: each step waits for an emulated link.
slow="--set stages.count=2 --set link.emulate.delay=20ms --set train.save_every=0 --set train.log_every=1000000"

# serve ARGS...: starts the run with a page on a free port and sets $url and $origin.
serve() {
    rm -rf run "$SCRATCH/served.err"
    kept=$ERR
    ERR=$SCRATCH/served.err # commands that run beside it write to the other file
    begin train run.yaml --out run $slow "$@"
    ERR=$kept
    await "the run prints the address of its page" has_text "$SCRATCH/served.err" '^page: '
    url=$(sed -n 's/^page: //p' "$SCRATCH/served.err")
    wait_lines run 3
    kill -0 "$STARTED" 2>/dev/null || fail "the run with a page ended"
    origin=${url%%/\?*}
    origin=${origin%/}
}
stop() {
    kill -INT "$STARTED"
    ends 130
}
get() { curl -sS -m $PATIENCE "$@"; }
# status WANTED CURL-ARGS...: checks the status of an answer.
status() {
    wanted=$1
    shift
    got=$(get -o body -w '%{http_code}' "$@")
    [ "$got" = "$wanted" ] || fail "curl $*: status $got, expected $wanted"
}

serve --page 127.0.0.1:0
# The state, the history and the downloads agree with metrics.jsonl.
get "$origin/api/v1/state" >state.json
jq -e '.phase == "training" and .run.name == "run" and .run.steps == 100000 and (.stages | length) == 2 and
    (.boundaries | length) == 1 and .boundaries[0].forward_bytes > 0 and .step.costs.propagation > 0 and
    .memory.total > 0 and (.advice | length) > 10' state.json >/dev/null || fail "state: $(cat state.json)"
get "$origin/api/v1/history" >history.json
jq -c '[.step, .loss, .tokens, .time, .grad_norm] | transpose[]' history.json | sed -n 1,3p >a
jq -c 'select(.loss) | [.step, .loss, .tokens, .time, .grad_norm]' run/metrics.jsonl | head -n 3 >b
cmp -s a b || fail "the history is not that of metrics.jsonl: $(cat a b)"
jq -e '.spans | length > 20 and all(.[]; .[3] <= .[4])' >/dev/null <<END || fail "timeline"
$(get "$origin/api/v1/timeline")
END
get "$origin/metrics.jsonl" | sed -n 1,3p >a
head -n 3 run/metrics.jsonl | cmp -s - a || fail "the download differs from metrics.jsonl"
get "$origin/metrics.csv" | sed -n 1,4p >a
head -n 1 a | grep -q '^step,loss,valid_loss,.*,tokens,time,' || fail "metrics.csv: $(head -n 1 a)"
[ "$(sed -n 2p a | cut -d , -f 1,2)" = "$(jq -r '"\(.step),\(.loss)"' run/metrics.jsonl | head -n 1)" ] || fail "metrics.csv: $(cat a)"

# Server-sent events: each message has the next number and the points since the last; only the first has the whole state.
# A message leaves every second, and later on a busy machine.
began=$(date +%s)
: >stream
get -N "$origin/api/v1/stream" >stream 2>/dev/null &
reader=$!
has_messages() { # whole ones, of which one after the first has a point
    sed -n 's/^data: \(.*}\)$/\1/p' stream >messages
    [ "$(wc -l <messages)" -ge 4 ] && sed 1d messages | grep -q '"points": *\[[^]]'
}
await "messages of the stream" has_messages
kill $reader
took=$(($(date +%s) - began))
jq -es '.[0].state.run.name == "run" and all(.[1:][].state; has("run") | not)' messages >/dev/null ||
    fail "stream: not only the first message has the whole state"
jq -es --argjson most $((took + 3)) '(map(.number) | . == [range(.[0]; .[0] + length)]) and length <= $most and
    ([.[1:][].points[].step] | . == [range(.[0]; .[0] + length)] and length > 0)' messages >/dev/null ||
    fail "stream, after $took s: $(cut -c 1-300 stream | head -n 4)"

# Prometheus: the format, and a real server that scrapes it.
get "$origin/metrics" >metrics.txt
says metrics.txt '^strait_tokens_total [1-9]' '^strait_link_bytes_total\{boundary="0",direction="forward"\} [1-9]' \
    '^strait_stage_memory_bytes\{stage="1"\} [1-9]' '^strait_run_info\{run="run",codec="none",phase="training"\} 1'
# Every figure of the dashboard is there; those of workers and validations appear later.
for name in $(grep -o 'strait_[a-z_]*' "$here/../examples/grafana-dashboard.json" | grep -v 'worker\|validation' | sort -u); do
    grep -q "^# TYPE $name " metrics.txt || fail "the dashboard shows $name, which is not served"
done
if command -v promtool >/dev/null; then
    promtool check metrics <metrics.txt >"$OUT" 2>&1 || fail "promtool does not accept the metrics"
else
    echo "note: promtool is not installed: the metrics were not checked by it" >&2
fi
if command -v prometheus >/dev/null; then
    sh "$here/page/prometheus.sh" "$origin" "$SCRATCH/prometheus" || fail "Prometheus did not scrape the page"
else
    echo "note: Prometheus is not installed: the metrics were not scraped" >&2
fi

# Read-only, and only for this machine: a site whose name resolves to 127.0.0.1 gets nothing.
status 405 -X POST -d x=1 "$origin/api/v1/state"
status 405 -X DELETE "$origin/"
status 404 "$origin/../../etc/passwd"
status 404 "$origin/run.yaml"
status 403 -H 'Host: evil.example' "$origin/api/v1/state"
status 403 -H 'Host: 127.0.0.1.evil.example' "$origin/"
status 403 -H 'Host: localhost.evil.example' "$origin/"
status 200 -H 'Host: localhost:1234' "$origin/"
status 200 -I "$origin/"
get -D headers -o body "$origin/"
for header in "Content-Security-Policy: default-src 'none'; script-src 'sha256-.*frame-ancestors 'none'" 'X-Frame-Options: DENY' \
    'X-Content-Type-Options: nosniff' 'Referrer-Policy: no-referrer' 'Cache-Control: no-store'; do
    grep -qi "$header" headers || fail "the page has no header $header"
done
! grep -qE '(src|href)="?https?:' body || fail "the page refers to other sites"
# Nonsense instead of HTTP, and a request that is too long.
head -c 100000 /dev/urandom | timeout 5 sh -c "cat | curl -s -m 3 telnet://${origin#http://}" >/dev/null 2>&1
status 200 "$origin/"
long=$(head -c 60000 /dev/zero | tr '\0' x)
get -o body -w '%{http_code}' "$origin/?token=$long" >code
grep -q '^4' code || fail "a request of 60 KB was answered with $(cat code)"

if [ -z "${SANITIZED:-}" ] && command -v node >/dev/null; then
    node "$here/page/readers.mjs" "$origin" "$STARTED" run/metrics.jsonl >"$OUT" 2>&1 || fail "slow readers"
    cat "$OUT"
fi
if command -v node >/dev/null && command -v chromium >/dev/null; then
    node "$here/page/browser.mjs" "$origin/" run/metrics.jsonl >"$OUT" 2>&1 || fail "the page in Chromium"
    cat "$OUT"
else
    echo "note: node or Chromium is not installed: the page was not opened in a browser" >&2
fi

# A second run finds the port taken; a last message says how the run ended.
refuses 2 "--page: cannot listen on ${origin#http://}: Address already in use" \
    train run.yaml --out other --page "${origin#http://}"
[ ! -e other ] || fail "a refused run left a folder"
for again in 1 2 3 4 5; do # readers have a second for the last message, which a busy machine may not keep
    [ $again -eq 1 ] || serve --page 127.0.0.1:0
    get -N "$origin/api/v1/stream" >stream 2>/dev/null &
    reader=$!
    await "a whole message" has_text stream '^data: .*}$'
    stop
    wait $reader && break
done
[ $? -eq 0 ] || fail "the stream was cut off instead of ended"
tail -n 2 stream | sed -n 's/^data: //p' | jq -e '.state.phase == "failed" and (.state.reason | test("stopped after step"))' \
    >/dev/null || fail "the last message: $(tail -n 2 stream | cut -c 1-200)"

# A run that computes, not one that waits for its links: pages cost the same per second in both.
if [ -z "${SANITIZED:-}" ] && command -v node >/dev/null && command -v chromium >/dev/null; then
    serve --page 127.0.0.1:0 --set stages.count=1 --set model.width=128 --set train.batch_tokens=2048
    node "$here/page/cost.mjs" "$origin" "$STARTED" >"$OUT" 2>&1 || fail "ten pages cost too much"
    cat "$OUT"
    stop
fi

# Off loopback a token is needed: in the address that is printed, or as a bearer.
serve --page 0.0.0.0:0
origin=http://127.0.0.1:$(echo "$origin" | sed 's/.*://')
token=${url#*token=}
[ ${#token} = 32 ] || fail "no token was drawn: $url"
status 401 "$origin/"
status 401 "$origin/api/v1/state?token=${token%?}0x"
status 401 "$origin/metrics?token="
status 401 -H 'Authorization: Bearer ' "$origin/metrics"
status 200 "$origin/?token=$token"
status 200 -H "Authorization: Bearer $token" "$origin/metrics"
status 200 -H 'Host: machine.example' "$origin/?token=$token"
stop
echo my-token >token
serve --set metrics.page=127.0.0.1:0 --page-token token
status 401 "$origin/"
status 200 "$origin/?token=my-token"
stop

for address in 7777 127.0.0.1 127.0.0.1: :7777 example.org:80 127.0.0.1:99999 '[::1:7' 8.8.8.8:7777; do
    refuses 2 "--page: ('.*' is not an address|cannot listen on)" train run.yaml --out none --page "$address"
done
refuses 2 'metrics.page: .* is not an address' train run.yaml --out none --set metrics.page=x
refuses 2 '--page-token is for a page: --page HOST:PORT' train run.yaml --out none --page-token token
refuses 3 '--page-token: .*none' train run.yaml --out none --page 127.0.0.1:0 --page-token none
printf 'a b\n' >token
refuses 2 'the token may have letters' train run.yaml --out none --page 127.0.0.1:0 --page-token token
[ ! -e none ] || fail "a refused run left a folder"
