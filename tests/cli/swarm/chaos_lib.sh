# chaos_lib.sh - workers behind links that can be disturbed, and faults of workers, links and the coordinator.
# Source it after swarm/lib.sh. The script sets
#
#   N_WORKERS  workers 1 to N_WORKERS, each behind two links of the tap: to the coordinator and to neighbours
#   SPARE      what stands for "no stage" where a stage number is expected
#   RUN        the folder of the run, whose run file is run.yaml
#   LONGEST    the longest time that a link is cut, in seconds
#   sets       options of the coordinator
TAP=$(dirname "$HELPER")/cli_tap
ADDRESS=$(private_address)
WORKERS=$(seq "$N_WORKERS")

# ---- who owns what ----

# stage_of WORKER: prints the stage that it was assigned last, or SPARE.
stage_of() {
    sed -n "s/^generation [0-9]*: serving stage \([0-9]*\) of.*/\1/p; s/^waiting as a spare.*/$SPARE/p" "join-$1.err" | tail -n 1
}

# owner_of STAGE: sets $worker to the worker that serves STAGE; fails unless there is exactly one.
owner_of() {
    worker=
    for i in $WORKERS; do
        [ "$(stage_of "$i")" = "$1" ] || continue
        [ -z "$worker" ] || return 1
        worker=$i
    done
    [ -n "$worker" ]
}

# ---- coordinator and workers ----

is_hosted= # empty while the coordinator is down on purpose

coordinator_begin() {
    # --rebalance 0: stages must not move by themselves. The default port 7070 may be in use.
    host_begin $RUN run.yaml --listen "$ADDRESS:7000" --rebalance 0 $sets "$@"
    is_hosted=yes
}

coordinator_kill() {
    is_hosted=
    host_kill
}

# worker_begin I ARGS...: starts worker I; its log starts anew.
worker_begin() {
    slot=$1
    shift
    cat "join-$slot.err" >>"join-$slot.log" 2>/dev/null
    : >"join-$slot.err"
    join_begin "w$slot" "$slot" --listen "$ADDRESS:$((7200 + slot))" \
        --announce "$ADDRESS:$((7100 + slot))" --keys "keys-$slot$(cat "fresh-$slot" 2>/dev/null)" "$@"
}

is_dead() {
    ! kill -0 "$(pid_of_join "$1")" 2>/dev/null
}

# links_begin: starts the tap; worker I has its links I and N_WORKERS + I.
links_begin() {
    mkfifo commands
    links=
    for i in $WORKERS; do links="$links $ADDRESS:$((7000 + i))=$ADDRESS:7000"; done
    for i in $WORKERS; do links="$links $ADDRESS:$((7100 + i))=$ADDRESS:$((7200 + i))"; done
    "$TAP" $links <commands >tap.out &
    exec 4>commands # the links exist as long as this is open
    wait_for_text tap.out up
}

# invite_begin I: writes the invite of worker I, which names its link instead of the coordinator.
invite_begin() {
    "$TAP" invite "$(cat $RUN.invite)" "$ADDRESS:$((7000 + $1))" >"w$1.invite"
    : >"join-$1.err"
}

# disturb_links KIND I MS: applies KIND to the links of worker I to the coordinator and to its neighbours.
disturb_links() {
    echo "$1 $2 $3 300" >&4
    echo "$1 $((N_WORKERS + $2)) $3 300" >&4
}

# ---- faults ----

fault_host() {
    coordinator_kill
    sleep_ms "$2"
    coordinator_begin
    wait_for_recovery $RUN host "$began" "$before"
}

fault_both() {
    coordinator_kill
    kill_join "$worker"
    coordinator_begin
    worker_begin "$worker"
    wait_for_recovery $RUN both "$began" "$before"
}

fault_stop() {
    pid=$(pid_of_join "$worker")
    kill -STOP "$pid"
    (sleep_ms "$2"; kill -CONT "$pid") &
    waker=$!
    wait_for_recovery $RUN stop "$began" "$before"
    wait $waker
}

# A fault of a link; the run may make progress before the link works again.
fault_link() {
    disturb_links "$1" "$worker" "$2"
    wait_for_recovery $RUN "$1" "$began" "$before" || return
    left=$((began + $2 - $(now_ms)))
    [ $left -le 0 ] || sleep_ms $left
}

fault_leave() {
    leave_join "$worker"
    wait_for_recovery $RUN leave "$began" "$before"
    worker_begin "$worker"
}

# finish_run NAME: the remaining steps need no delay. Workers see changed settings as another run and restore the
# checkpoint. The run must end with the metrics and weights of the one in the folder straight.
finish_run() {
    if is_running && [ $((total - $(steps_in $RUN))) -gt 30 ]; then
        coordinator_kill
        coordinator_begin --set link.emulate.delay=0ms
    fi
    is_hosted=
    host_ends 0 "$1"
    same_metrics straight $RUN
    same_weights straight $RUN
}

# inject KIND STAGE ARGUMENT: injects one fault.
inject() {
    owner_of "$2"
    before=$(steps_in $RUN)
    began=$(now_ms)
    case $1 in
    cut | hold | half | back | slow) fault_link "$1" "$3" ;;
    *) "fault_$1" "$2" "$3" ;;
    esac
}
