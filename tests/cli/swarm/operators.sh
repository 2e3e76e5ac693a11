#!/bin/sh
# operators.sh - every command of "strait swarm" on a live run, and every way to give an invite to
# "strait join". The run goes on through all of it.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"

make_corpus
make_run run.yaml 2 4000
sets="--set stages.count=2 --set link.emulate.delay=5ms"

# join_from N INPUT COMMAND...: starts worker N with standard input from INPUT.
join_from() {
    number=$1
    input=$2
    shift 2
    env STRAIT_CLI="$SCRATCH" "$@" --keys "keys-$number" --name "w$number" --listen 127.0.0.1:0 --threads 1 \
        >/dev/null 2>>"$SCRATCH/join-$number.err" <"$input" &
    echo $! >"$SCRATCH/join-$number.pid"
}

# status_has TEXT: whether the status, as JSON, matches TEXT.
status_has() {
    strait swarm status swarm --json 2>/dev/null | tr -d '\n ' | grep -qE -e "$1"
}

# await_status TEXT: waits until it does.
await_status() {
    for _ in $(seq $((PATIENCE * 10))); do
        status_has "$1" && return
        sleep 0.1
    done
    strait swarm status swarm >&2
    fail "the status does not match \"$1\""
}

refuses 4 'no "strait host" of this user runs there' swarm status .
refuses 2 'swarm needs one folder of a run; "strait help swarm" shows how' swarm status
host_begin swarm run.yaml $sets
await "the host writes its status" test -e swarm/swarm.json
runs watch swarm --once
says "$OUT" '^swarm: waiting'
! grep -q '^:' "$OUT" || fail "watch names nothing: $(grep '^:' "$OUT")"
[ "$(stat -c %a swarm/operator.sock)" = 600 ] || fail "the socket has mode $(stat -c %a swarm/operator.sock)"

# The invite by file, standard input and environment: never among the arguments.
join_from 1 /dev/null "$STRAIT" join --invite-file swarm.invite
join_from 2 swarm.invite "$STRAIT" join -
join_from 3 /dev/null env STRAIT_INVITE="$(cat swarm.invite)" "$STRAIT" join
wait_joined swarm 3
wait_steps swarm 3
refuses 2 'not both' join "$(cat swarm.invite)" --invite-file swarm.invite
export STRAIT_INVITE=wrong
refuses 2 'STRAIT_INVITE: .*does not begin with' join
unset STRAIT_INVITE

runs swarm status swarm
says "$OUT" 'w1 .*(stage|spare)' 'w2 ' 'w3 ' 'generation'
await_status '"name":"w1"'

# Kick: the owner of a stage is replaced by the spare, and comes back after its time.
owner=$(strait swarm status swarm | sed -n 's/^ *\(w[0-9]\) .*stage 0.*/\1/p')
step=$(steps_in swarm)
runs swarm kick swarm "$owner" --for 3
wait_for_text swarm/events.log "operator: worker $owner may not join for 3 s"
await_status '"stage":0,[^}]*"connected":true'
wait_until progress has_reached_step swarm $((step + 3)) || fail "the run ended"
grep -q "$owner .*joined" swarm/events.log || fail "$owner never joined"
await_status "\"name\":\"$owner\",[^}]*\"connected\":true"

# Ban: by the digits of its key; it is refused for good, also by a restarted host, until it is unbanned.
key=$(strait swarm status swarm | sed -n 's/^ *w3 *\([0-9a-f]*\) .*/\1/p')
runs swarm ban swarm "$key"
wait_for_text "$SCRATCH/join-3.err" 'banned by the operator'
await_status "\"banned\":\\[{\"name\":\"w3\",\"key\":\"$key"
refuses 2 "no worker has the name or key 'w3'" swarm kick swarm w3
refuses 2 "no banned worker has the name or key 'w1'" swarm unban swarm w1
host_kill

# A log that is full becomes events.log.1; the restarted host begins another.
head -c 17000000 /dev/zero | tr '\0' '\n' >>swarm/events.log
host_begin swarm run.yaml $sets
await_status "\"banned\":\\[{\"name\":\"w3\""
[ "$(wc -c <swarm/events.log.1)" -gt 17000000 ] && [ "$(wc -c <swarm/events.log)" -lt 100000 ] ||
    fail "events.log was not rotated: $(wc -c swarm/events.log*)"
strait join "$(cat swarm.invite)" --keys keys-3 --name w3 --listen 127.0.0.1:0 --threads 1 >/dev/null 2>banned.err
[ $? -eq 6 ] || fail "a banned worker was not refused"
says banned.err 'is banned'
runs swarm unban swarm w3
join_begin swarm 3
await_status '"name":"w3",[^}]*"connected":true'

# Rotate: the old invite admits no new key; workers that joined stay, and may reconnect.
cp swarm.invite old.invite
runs swarm rotate swarm
cp "$OUT" new.invite
cmp -s old.invite new.invite && fail "the invite was not replaced"
strait join "$(cat old.invite)" --keys keys-4 --name w4 --listen 127.0.0.1:0 --threads 1 >/dev/null 2>old.err
[ $? -eq 6 ] || fail "the old invite still admits workers"
says old.err 'the token is wrong'
runs swarm kick swarm w1 --for 1
await_status '"name":"w1",[^}]*"connected":true'
host_kill
# What is wrong with an address is not blamed on another coordinator.
refuses 2 'address .nowhere.: expected host:port' host run.yaml --out swarm --listen nowhere --keys keys-host $sets
! grep -q 'another coordinator' "$ERR" || fail "$(cat "$ERR")"
host_begin swarm run.yaml $sets
cmp -s swarm.invite new.invite || fail "a restarted host printed another invite"
await_status '"name":"w1",[^}]*"connected":true.*"name":"w2"|"name":"w2",[^}]*"connected":true.*"name":"w1"'

# Invites with uses, expiry and revocation.
runs swarm invite swarm --uses 1
cp "$OUT" once.invite
join_begin once 4
await_status '"name":"w4",[^}]*"connected":true'
strait join "$(cat once.invite)" --keys keys-5 --name w5 --listen 127.0.0.1:0 --threads 1 >/dev/null 2>once.err
[ $? -eq 6 ] || fail "an invite for one admitted two"
says once.err 'used 1 times'
runs swarm invite swarm --expires 0.0001
cp "$OUT" short.invite
sleep 2.5
strait join "$(cat short.invite)" --keys keys-5 --name w5 --listen 127.0.0.1:0 --threads 1 >/dev/null 2>short.err
[ $? -eq 6 ] || fail "an expired invite admitted a worker"
says short.err 'has expired'
runs swarm invite swarm
cp "$OUT" third.invite
runs swarm invite swarm --revoke 3
strait join "$(cat third.invite)" --keys keys-5 --name w5 --listen 127.0.0.1:0 --threads 1 >/dev/null 2>third.err
[ $? -eq 6 ] || fail "a revoked invite admitted a worker"
refuses 2 'there is no invite 3' swarm invite swarm --revoke 3
runs swarm invite swarm --list
says "$OUT" 'first .*any number.*always' '1 .*used 1 of 1' '2 .*valid until'
is_running || fail "the run ended"
grep -q "$(cut -c 60-90 third.invite)" swarm/events.log && fail "a token is in the log"
host_kill
