# etcd_lib.sh - an etcd of one member on loopback. Source it after lib.sh and swarm/lib.sh.
[ -x /usr/bin/etcd ] || { echo "skipped: no /usr/bin/etcd here (Debian package etcd-server)"; exit 77; }

# start_etcd: starts it and sets $store to what --store takes. A host waits until it answers.
start_etcd() {
    choose_port && store=http://127.0.0.1:$port
    choose_port && peer=http://127.0.0.1:$port
    env STRAIT_CLI="$SCRATCH" ETCD_UNSUPPORTED_ARCH=arm64 /usr/bin/etcd --data-dir etcd \
        --listen-client-urls "$store" --advertise-client-urls "$store" --listen-peer-urls "$peer" \
        --initial-advertise-peer-urls "$peer" --initial-cluster "default=$peer" >etcd.log 2>&1 </dev/null &
    store=etcd:$store
}
