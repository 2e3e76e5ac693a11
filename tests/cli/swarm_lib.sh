# swarm_lib.sh - hosts and workers for the scripts of this folder, all on this machine.

HOST=    # process of the coordinator
HOST_LOG=$SCRATCH/host.err
HOST_INPUT=/dev/null # what its user types

# draw_from SEED, then draw N: a number from 0 to N - 1 in $drawn.
draw_from() {
    STATE=$1
}
draw() {
    STATE=$(((STATE * 1103515245 + 12345) % 2147483648))
    drawn=$((STATE / 65536 % $1))
}

# nap MS
nap() {
    sleep "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))"
}

# pid_of_join N
pid_of_join() {
    cat "$SCRATCH/join-$1.pid" 2>/dev/null
}

is_running() {
    kill -0 "$HOST" 2>/dev/null
}

# choose_port: one in $port that nobody uses. Who stops and comes back must find his port as he left
# it: it lies below those that the system gives to whoever connects somewhere.
PORT_NEXT=$((10000 + $$ * 13 % 20000))
choose_port() {
    until port=$PORT_NEXT PORT_NEXT=$((PORT_NEXT + 1)) &&
        ! grep -q ":$(printf %04X "$port") " /proc/net/tcp; do :; done
}

# address_of_ours: one of this machine's that no other script uses, nor anybody who connects somewhere.
address_of_ours() {
    echo 127.$((64 + $$ / 65536 % 64)).$(($$ / 256 % 256)).$(($$ % 256))
}

# wait_words FILE WORDS...: until FILE has each of them (regular expressions).
wait_words() {
    waited=$1
    shift
    for words in "$@"; do
        for _ in $(seq 2400); do
            grep -qsE -e "$words" "$waited" && continue 2
            sleep 0.05
        done
        fail "$waited does not say \"$words\", in minutes"
    done
}

# host_start FOLDER RUN ARGS...: starts a coordinator, whose invite will be in FOLDER.invite. It listens
# where it did before, if it did.
host_start() {
    folder=$1
    run=$2
    shift 2
    rm -f "$folder.invite"
    [ -s "$folder.port" ] || { choose_port && echo "$port" >"$folder.port"; }
    env STRAIT_CLI="$SCRATCH" "$STRAIT" host "$run" --out "$folder" \
        --listen "127.0.0.1:$(cat "$folder.port")" --keys keys-host "$@" \
        >"$folder.invite" 2>>"$HOST_LOG" <"$HOST_INPUT" &
    HOST=$!
}

# host_begin FOLDER RUN ARGS...: the same, and waits for the invite.
host_begin() {
    host_start "$@"
    host_invites
}

host_invites() {
    for _ in $(seq 4000); do
        [ -s "$folder.invite" ] && return
        is_running || break
        sleep 0.025
    done
    tail -n 5 "$HOST_LOG" >&2
    fail "the coordinator printed no invite"
}

host_kill() {
    kill -9 "$HOST" 2>/dev/null
    wait "$HOST" 2>/dev/null || :
}

# host_ends CODE WORDS: within some minutes.
host_ends() {
    for _ in $(seq 4000); do
        is_running || break
        sleep 0.1
    done
    if is_running; then
        tail -n 15 "$HOST_LOG" >&2
        fail "$2: the run does not end"
    fi
    wait "$HOST" 2>/dev/null
    code=$?
    [ "$code" -eq "$1" ] && return
    tail -n 15 "$HOST_LOG" >&2
    fail "$2: the coordinator ended with $code, expected $1"
}

# join_begin FOLDER N ARGS...: worker N, with a key of its own.
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

stop_join() {
    kill -STOP "$(pid_of_join "$1")" 2>/dev/null
}

wake_join() {
    kill -CONT "$(pid_of_join "$1")" 2>/dev/null
}

# leave_join N: asks it to go and waits until it has.
leave_join() {
    kill -INT "$(pid_of_join "$1")" 2>/dev/null
    for _ in $(seq 2000); do
        kill -0 "$(pid_of_join "$1")" 2>/dev/null || return
        sleep 0.1
    done
    fail "worker $1 does not leave"
}

# wait_steps FOLDER N: until the run there has written N lines of metrics, or has ended.
wait_steps() {
    STARTED=$HOST
    wait_lines "$1" "$2"
}

# joined FOLDER N: until N machines have.
joined() {
    for _ in $(seq 2400); do
        [ "$(grep -c joined "$1/events.log" 2>/dev/null)" -ge "$2" ] && return
        sleep 0.05
    done
    fail "$1: no $2 machines have joined"
}

# ---- watching ----

now_ms() {
    date +%s%3N
}

# steps_in FOLDER: those in its log. The last line may be half written, on a disk that is full.
steps_in() {
    tail -n 3 "$1/metrics.jsonl" 2>/dev/null | sed -n 's/^{"step":\([0-9]*\),.*/\1/p' |
        awk '{ last = $1 } END { print last + 0 }'
}

has_come_to() {
    [ "$(steps_in "$1")" -ge "$2" ]
}

# broken WORDS: a script that has more to say than that has its own.
broken() {
    tail -n 20 "$HOST_LOG" >&2
    fail "$*, at ${fault:-the beginning}"
}

# until_so SECONDS WORDS COMMAND...: until the command succeeds; 1 when the run has ended instead.
is_hosted=yes
until_so() {
    until_ms=$(($(now_ms) + $1 * 1000))
    hoped=$2
    shift 2
    until "$@"; do
        [ -n "$is_hosted" ] && ! is_running && return 1
        [ "$(now_ms)" -lt $until_ms ] || broken "$hoped: not in time"
        sleep 0.02
    done
}

# recovers FOLDER KIND BEGAN_MS STEP: until there is progress, which is timed in the file times. One step
# after STEP may have been on its way to the log.
recovers() {
    until_so $((90 + LONGEST)) progress has_come_to "$1" $(($4 + 2)) || return 1
    echo "$2 $(($(now_ms) - $3))" >>times
}

# tell_times: what is in there, by kind.
tell_times() {
    for kind in $(cut -d ' ' -f 1 times | sort -u) .; do
        grep "^$kind" times | cut -d ' ' -f 2 | sort -n | awk -v kind="$kind" '{ v[NR] = $1 / 1000 }
            END { printf "%-6s %3d faults, to progress: median %.2f s, worst %.2f s\n", kind == "." ? "all" : kind, NR, v[int((NR + 1) / 2)], v[NR] }'
    done
}
