# nat_lib.sh - machines with public addresses, and homes behind routers that translate addresses and let
# nobody in (nftables masquerade), as network namespaces. Source it after lib.sh and swarm/lib.sh. Needs
# root, ip and nft; skips otherwise. The public network is $PUBLIC.0/24; nothing leaves the namespaces.

PUBLIC=5.99.0
[ "$(id -u)" = 0 ] || { echo "skipped: needs root"; exit 77; }
command -v ip >/dev/null && command -v nft >/dev/null || { echo "skipped: needs ip and nft"; exit 77; }
tag=nat$$

clean_net() {
    for name in $(ip netns list | grep -o "^$tag-[a-z0-9]*"); do ip netns del "$name" 2>/dev/null; done
    clean_up
}
trap clean_net EXIT

# plug NAME ADDRESS: connects a namespace to the public network.
plug() {
    ip netns add "$tag-$1"
    ip -n "$tag-$1" link set lo up
    ip -n "$tag-$1" link add public0 type veth peer name "to-$1" netns "$tag-net"
    ip -n "$tag-net" link set "to-$1" master bridge0 up
    ip -n "$tag-$1" addr add "$2/24" dev public0
    ip -n "$tag-$1" link set public0 up
}

# home I: a router with a public address, and a private network behind it with one machine, homeI.
home() {
    plug "router$1" "$PUBLIC.1$1"
    ip -n "$tag-router$1" link add lan0 type bridge
    ip -n "$tag-router$1" addr add "192.168.$1.1/24" dev lan0
    ip -n "$tag-router$1" link set lan0 up
    ip netns exec "$tag-router$1" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
    ip netns exec "$tag-router$1" nft -f - <<END
table ip home {
    chain leaving { type nat hook postrouting priority 100; oifname "public0" masquerade; }
    chain passing {
        type filter hook forward priority 0; policy drop;
        iifname "lan0" accept
        ct state established,related accept
    }
}
END
    [ $? = 0 ] && machine "$1" "home$1" 2
}

# machine I NAME N: connects a namespace to the private network of home I, as 192.168.I.N.
machine() {
    ip netns add "$tag-$2"
    ip -n "$tag-$2" link set lo up
    ip -n "$tag-$2" link add lan0 type veth peer name "to-$2" netns "$tag-router$1"
    ip -n "$tag-router$1" link set "to-$2" master lan0 up
    ip -n "$tag-$2" addr add "192.168.$1.$3/24" dev lan0
    ip -n "$tag-$2" link set lan0 up
    ip -n "$tag-$2" route add default via "192.168.$1.1"
}

# on NAME ARGS...: runs strait in a namespace.
on() {
    where=$1
    shift
    ip netns exec "$tag-$where" env STRAIT_CLI="$SCRATCH" "$STRAIT" "$@"
}

# worker FOLDER NAME N: starts worker N.
worker() {
    on "$2" join "$(cat "$1.invite")" --keys "keys-$3" --name "w$3" --threads 1 >/dev/null \
        2>>"join-$3.err" </dev/null &
}

# hosts FOLDER ARGS...: starts a host.
hosts() {
    folder=$1
    shift
    on host host run.yaml --out "$folder" $sets --listen "$PUBLIC.1:7070" --keys keys-host "$@" \
        >"$folder.invite" 2>>"$HOST_LOG" </dev/null &
    HOST=$!
    wait_for_text "$folder.invite" .
}

ip netns add "$tag-net" && ip netns exec "$tag-net" true ||
    { echo "skipped: cannot create and enter network namespaces"; exit 77; }
ip -n "$tag-net" link add bridge0 type bridge
ip -n "$tag-net" link set bridge0 up
