#!/bin/sh
# lending.sh - what the owner of a machine lends with "strait join" is a limit, also for a coordinator
# that lies: memory, rates, hours, which addresses are dialled and where it listens. The helper is the
# program itself, whose coordinator lies.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"
FALSE_PROGRAM=$HELPER
HELPER=${HELPER%/*}/cli_weights

make_corpus
make_run run.yaml 2 8
sets="--set stages.count=2"
runs train run.yaml --out straight $sets

# lie HOW FOLDER: starts a coordinator that lies.
lie() {
    (export FALSE_HOST="$1" STRAIT="$FALSE_PROGRAM" && host_begin "$2" run.yaml $sets && echo "$HOST" >host.pid)
    HOST=$(cat host.pid)
    HOST_OF_ANOTHER_SHELL=yes
}

stop_all() {
    for pid in $(our_processes); do kill -9 "$pid" 2>/dev/null; done
    wait_all_exited
}

refuses 2 '--memory: "lots" is not a size' join nobody --memory lots
refuses 2 '--rate-up: "5" is not a rate' join nobody --rate-up 5
refuses 2 "--hours: '7': expected two times of the day, such as 22-7" join nobody --hours 7

# A worker that lends too little memory for any stage is told so and ends; with --force it may have one.
host_begin small run.yaml $sets
refuses 5 'the smallest stage of this run needs [0-9]+ MB of memory, and this machine lends 5 MB: lend more \(--memory\), join from a machine with more, or ask for more stages' \
    join "$(cat small.invite)" --keys keys-1 --listen 127.0.0.1:0 --threads 1 --memory 5MiB
cp "$ERR" join-1.err
join_begin small 2
join_begin small 3 --memory 5MiB --force
host_ends 0 small
same_metrics straight small
same_weights straight small
! grep -q 'serving stage' join-1.err || fail "a worker serves a stage that is larger than what it lends"
stop_all

# A coordinator announces a validation of half a gigabyte of token ids where two kilobytes are needed.
# The worker refuses before it allocates anything; the coordinator learns a code and logs its meaning.
lie windows windows
join_begin windows 4 --memory 100MiB
join_begin windows 5 --memory 100MiB
wait_for_text join-4.err 'cannot serve stage [01]: .* needs [0-9]+ MB .* for token ids.*, and this machine lends 105 MB'
wait_for_text windows/events.log 'w4, stage [01]: the stage takes more memory than the worker lends'
peak=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$(pid_of_join 4)/status")
[ -n "${SANITIZED:-}" ] || [ "$peak" -lt 150000 ] || fail "the worker took $peak kB"
stop_all

# A coordinator asks its workers to listen at a port of its choice: they do not, with or without
# --no-listen.
choose_port
lie "listen=127.0.0.1:$port" listen
join_begin listen 6 --no-listen
join_begin listen 7
wait_for_text join-6.err 'asked to listen at an address of its choice, which is not a relay'
wait_for_text join-7.err 'asked to listen at an address of its choice, which is not a relay'
! grep -q ":$(printf %04X "$port") 00000000:0000 0A" /proc/net/tcp || fail "a worker listens where the coordinator chose"
stop_all

# A coordinator at a loopback address names a link-local one, where clouds keep credentials: nobody
# dials it, and the coordinator is told no more than that nobody came.
lie dial=169.254.169.254:80 dial
join_begin dial 8
join_begin dial 9
wait_for_text dial/events.log 'stage [01]: a neighbour did not connect or answer in time'
cat join-8.err join-9.err >dialled.err
says dialled.err 'refused to dial: it is a link-local address, and the coordinator is not in such a network'
! grep -qE 'refused to dial|169[.]254|link-local' dial/events.log || fail "the coordinator was told why the dial failed"
stop_all

# is_slow FOLDER: whether every step took more than a fifth of a second.
is_slow() {
    jq -es '[.[] | select(.loss) | .seconds > 0.2] | length == 3 and all' "$1/metrics.jsonl" >/dev/null
}

# At 2 Mbit/s the 64 KB of a step, with their headers, take more than a quarter of a second.
more="--set train.steps=3 --set train.batch_tokens=512"
host_begin up run.yaml $sets $more
join_begin up 10 --rate-up 2mbit
join_begin up 11
host_ends 0 up
is_slow up || fail "--rate-up: $(cat up/metrics.jsonl)"
host_begin down run.yaml $sets $more
join_begin down 12 --rate-down 2mbit
join_begin down 13
host_ends 0 down
is_slow down || fail "--rate-down: $(cat down/metrics.jsonl)"
stop_all

# Outside its hours a worker waits; when they end it hands its stage over, leaves and waits again, and the run goes on.
export FALSE_CLOCK="$SCRATCH/open"
host_begin hours run.yaml --set stages.count=2 --set link.emulate.delay=25ms --set train.steps=100000
(STRAIT=$FALSE_PROGRAM && join_begin hours 14 --hours 22-7 --no-sandbox)
join_begin hours 15
wait_for_text join-14.err '^outside --hours 22-7: joining at 22:00'
touch open
wait_steps hours 5
join_begin hours 16
wait_joined hours 3
rm open
wait_for_text join-14.err 'leaving: handing the stage over first'
wait_for_text hours/events.log 'w14 .*asked to leave'
waits_again() {
    [ "$(grep -c '^outside --hours' join-14.err)" -eq 2 ]
}
await "the worker waits for its hours again" waits_again
wait_steps hours $(($(wc -l <hours/metrics.jsonl) + 3))
kill -INT "$HOST"
host_ends 130 hours
for i in 15 16; do kill_join $i; done
kill -INT "$(pid_of_join 14)"
wait_all_exited
says join-14.err 'stopped while waiting for --hours'
