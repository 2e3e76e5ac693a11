#!/bin/sh
# prometheus.sh ORIGIN FOLDER - lets a Prometheus scrape ORIGIN/metrics until it has two samples that rise.
set -eu
origin=$1 folder=$2
port=$((20000 + $$ % 9000))
while grep -q ":$(printf %04X "$port") " /proc/net/tcp; do port=$((port + 1)); done
mkdir -p "$folder"
cat >"$folder/prometheus.yml" <<END
scrape_configs:
  - {job_name: strait, scrape_interval: 1s, static_configs: [{targets: ["${origin#http://}"]}]}
END
prometheus --config.file="$folder/prometheus.yml" --storage.tsdb.path="$folder/data" \
    --web.listen-address=127.0.0.1:$port >"$folder/log" 2>&1 &
trap 'kill $! 2>/dev/null; wait 2>/dev/null' EXIT
ask() {
    curl -sS -m 60 -G "http://127.0.0.1:$port/api/v1/query" --data-urlencode "query=$1" 2>/dev/null |
        jq -r '.data.result[0].value[1] // empty' 2>/dev/null || true
}
for _ in $(seq 3000); do
    rise=$(ask 'increase(strait_tokens_total[1m])')
    case $rise in '' | 0 | NaN) sleep 0.2 ;; *) break ;; esac
done
case ${rise:-} in '' | 0 | NaN) tail -n 5 "$folder/log" >&2; echo "no samples" >&2; exit 1 ;; esac
[ "$(ask 'up{job="strait"}')" = 1 ]
[ -n "$(ask 'strait_link_bytes_total{boundary="0",direction="backward"}')" ]
