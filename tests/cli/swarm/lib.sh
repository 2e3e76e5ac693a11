# swarm/lib.sh - starts coordinators and workers on this machine. Source it after lib.sh.

HOST= # process id of the coordinator
HOST_LOG=$SCRATCH/host.err
HOST_INPUT=/dev/null # the coordinator's standard input
SPARES=1000 # workers that the coordinator keeps as spares; 0: all others become replicas of stages

# draw_from SEED seeds the generator; draw N sets $drawn to a number from 0 to N - 1.
draw_from() {
    STATE=$1
}
draw() {
    STATE=$(((STATE * 1103515245 + 12345) % 2147483648))
    drawn=$((STATE / 65536 % $1))
}

# sleep_ms MS: sleeps for MS milliseconds.
sleep_ms() {
    sleep "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))"
}

# pid_of_join N: prints the process id of worker N.
pid_of_join() {
    cat "$SCRATCH/join-$1.pid" 2>/dev/null
}

is_running() {
    kill -0 "$HOST" 2>/dev/null
}

# choose_port: sets $port to one that is not in use. A coordinator that restarts needs the same port
# again, so it is below the range from which the kernel assigns ports to outgoing connections.
PORT_NEXT=$((10000 + $$ * 13 % 20000))
choose_port() {
    until port=$PORT_NEXT PORT_NEXT=$((PORT_NEXT + 1)) &&
        ! grep -q ":$(printf %04X "$port") " /proc/net/tcp; do :; done
}

# private_address: prints a loopback address that no other script and no outgoing connection uses.
private_address() {
    echo 127.$((64 + $$ / 65536 % 64)).$(($$ / 256 % 256)).$(($$ % 256))
}

# wait_for_text FILE TEXT...: waits until FILE matches each TEXT (regular expressions).
wait_for_text() {
    waited=$1
    shift
    for text in "$@"; do await "$waited matches \"$text\"" has_text "$waited" "$text"; done
}

# host_start FOLDER RUN ARGS...: starts a coordinator, which writes its invite to FOLDER.invite. After a
# restart it listens on the same port.
host_start() {
    folder=$1
    run=$2
    shift 2
    rm -f "$folder.invite"
    [ -s "$folder.port" ] || { choose_port && echo "$port" >"$folder.port"; }
    env STRAIT_CLI="$SCRATCH" "$STRAIT" host "$run" --out "$folder" \
        --listen "127.0.0.1:$(cat "$folder.port")" --keys keys-host --spares "$SPARES" "$@" \
        >"$folder.invite" 2>>"$HOST_LOG" <"$HOST_INPUT" &
    HOST=$!
}

# host_begin FOLDER RUN ARGS...: starts a coordinator and waits for its invite.
host_begin() {
    host_start "$@"
    wait_for_invite
}

has_invite() {
    [ -s "$folder.invite" ] || ! is_running
}
wait_for_invite() {
    await "the coordinator prints an invite" has_invite
    [ -s "$folder.invite" ] && return
    tail -n 5 "$HOST_LOG" >&2
    fail "the coordinator ended and printed no invite"
}

host_kill() {
    kill -9 "$HOST" 2>/dev/null
    wait "$HOST" 2>/dev/null || :
}

# host_ends CODE NAME: waits for the coordinator to end and checks its exit code. NAME names the case in a failure.
host_ends() {
    for _ in $(seq $((PATIENCE * 20))); do
        is_running || break
        sleep 0.05
    done
    if is_running; then
        tail -n 15 "$HOST_LOG" >&2
        fail "$2: the run did not end in time"
    fi
    wait "$HOST" 2>/dev/null
    code=$?
    [ "$code" -eq "$1" ] && return
    tail -n 15 "$HOST_LOG" >&2
    fail "$2: the coordinator ended with $code, expected $1"
}

# join_begin FOLDER N ARGS...: starts worker N with its own key.
join_begin() {
    invite=$(cat "$1.invite")
    number=$2
    shift 2
    env STRAIT_CLI="$SCRATCH" "$STRAIT" join "$invite" --keys "keys-$number" --name "w$number" \
        --listen 127.0.0.1:0 --threads 1 "$@" >/dev/null 2>>"$SCRATCH/join-$number.err" </dev/null &
    echo $! >"$SCRATCH/join-$number.pid"
}

kill_join() {
    kill -9 "$(pid_of_join "$1")" 2>/dev/null
    wait "$(pid_of_join "$1")" 2>/dev/null || :
}

pause_join() {
    kill -STOP "$(pid_of_join "$1")" 2>/dev/null
}

resume_join() {
    kill -CONT "$(pid_of_join "$1")" 2>/dev/null
}

# leave_join N: asks worker N to leave and waits until it has exited.
leave_join() {
    kill -INT "$(pid_of_join "$1")" 2>/dev/null
    await "worker $1 exits after it was asked to leave" is_over "$(pid_of_join "$1")"
}

# wait_steps FOLDER N: waits until the run in FOLDER has written N lines of metrics, or has ended.
wait_steps() {
    STARTED=$HOST
    wait_lines "$1" "$2"
}

# wait_joined FOLDER N: waits until N workers have joined.
wait_joined() {
    await "$1: $2 workers have joined" have_joined "$1" "$2"
}
have_joined() {
    [ "$(grep -c joined "$1/events.log" 2>/dev/null)" -ge "$2" ]
}

# ---- progress ----

now_ms() {
    date +%s%3N
}

# steps_in FOLDER: prints the last step in the metrics. The last line may be incomplete on a full disk.
steps_in() {
    tail -n 3 "$1/metrics.jsonl" 2>/dev/null | sed -n 's/^{"step":\([0-9]*\),.*/\1/p' |
        awk '{ last = $1 } END { print last + 0 }'
}

has_reached_step() {
    [ "$(steps_in "$1")" -ge "$2" ]
}

# abort_test REASON: fails with the coordinator's log. A script that knows more redefines it.
abort_test() {
    tail -n 20 "$HOST_LOG" >&2
    fail "$*, at ${fault:-the start of the run}"
}

# wait_until GOAL COMMAND...: waits until COMMAND succeeds; returns 1 when the run has ended instead. Aborts the test
# when neither happens; GOAL names the condition.
is_hosted=yes # empty while the coordinator is down on purpose
wait_until() {
    goal=$1
    until_left=$((PATIENCE * 50))
    shift
    until "$@"; do
        [ -n "$is_hosted" ] && ! is_running && return 1
        until_left=$((until_left - 1))
        [ $until_left -gt 0 ] || abort_test "$goal: not within $PATIENCE s"
        sleep 0.02
    done
}

# wait_for_recovery FOLDER KIND BEGAN_MS STEP: waits for progress and appends the time it took to the
# file times. Waits for two steps after STEP, because one may have been computed before the fault.
wait_for_recovery() {
    wait_until progress has_reached_step "$1" $(($4 + 2)) || return 1
    echo "$2 $(($(now_ms) - $3))" >>times
}

# print_times: prints the median and longest recovery time for each kind of fault.
print_times() {
    for kind in $(cut -d ' ' -f 1 times | sort -u) .; do
        grep "^$kind" times | cut -d ' ' -f 2 | sort -n | awk -v kind="$kind" '{ v[NR] = $1 / 1000 }
            END { printf "%-6s %3d faults, to progress: median %.2f s, worst %.2f s\n", kind == "." ? "all" : kind, NR, v[int((NR + 1) / 2)], v[NR] }'
    done
}
