#!/bin/sh
# chaos.sh - a run on machines that come and go: faults drawn from a seed, and the same numbers as if
# nothing had happened. A failing seed is printed; with it, everything is done again as it was.
#
#   SEED=2       what is drawn; SEEDS="1 2 3": one run after another
#   FAULTS=15    of each run, not counting the kills that prepare others
#   LONGEST=5    seconds that a line may be cut
#   BACK=10      steps that may be lost twice, on a machine so busy that copies come late; 0 elsewhere
#
# Three stages and a spare. kill -9 of each stage at each point of its life (join --fault), of the
# coordinator, of both; a worker that stops to run; lines that are cut, silent, half open or slow
# (tap.c); a full disk (with root); a machine that comes late, one that leaves politely.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/swarm_lib.sh"
TAP=$(dirname "$HELPER")/cli_tap
SEEDS=${SEEDS:-${SEED:-2}}
FAULTS=${FAULTS:-15}
LONGEST=${LONGEST:-5}
BACK=${BACK:-10}
SPARE=3 # as a stage
RUN=small/chaos

# plan SEED: the faults of a run, a line each: kind, stage, milliseconds or point. Of the points and
# stages, seeds that follow each other take one part after another; of all else a run has at least
# one, if it has so many faults.
plan() {
    awk -v seed="$1" -v faults="$FAULTS" -v longest="$LONGEST" '
    function draw(n) { state = (state * 16807) % 2147483647; return int(state / 64) % n }
    function shuffle(a, n,   i, k, t) { for (i = n; i > 1; i--) { k = draw(i) + 1; t = a[i]; a[i] = a[k]; a[k] = t } }
    function lasts(kind) {
        if (kind == "stop") return 1000 + draw(6000)
        if (kind == "slow") return 1000 + draw(3000)
        if (kind == "disk" || kind == "late") return 500 + draw(1500)
        if (kind ~ /^(cut|hold|half|back)$/) return int(1000 * longest ^ (draw(1001) / 1000))
        return draw(1500)
    }
    BEGIN {
        n_points = split("begin forward backward norm update applied image copy commit validate save restore", point, " ")
        for (i = 0; i < 3 * n_points; i++) pair[i + 1] = (i % 3) " " point[int(i / 3) + 1]
        state = 1; shuffle(pair, 3 * n_points)
        n_kinds = split("boss both stop cut hold half back slow disk late leave", kind, " ")
        state = seed * 7919 + 1; shuffle(kind, n_kinds)
        n_pairs = faults > 2 * n_kinds ? int(faults / 2) : faults > n_kinds ? faults - n_kinds : int(faults / 3)
        for (i = 0; i < faults; i++) {
            k = i < n_pairs ? "point" : i < n_pairs + n_kinds ? kind[i - n_pairs + 1] : kind[draw(n_kinds) + 1]
            line[i + 1] = k == "point" ? k " " pair[(seed * n_pairs + i) % (3 * n_points) + 1] : k " " draw(3) " " lasts(k)
        }
        shuffle(line, faults)
        for (i = 1; i <= faults; i++) print line[i]
    }'
}

# ---- watching ----

# broken WORDS: ends the script; what is needed to see it again is said.
broken() {
    tail -n 20 $RUN/events.log >&2
    for i in 1 2 3 4; do sed "s/^/w$i: /" "join-$i.err" | tail -n 4 >&2; done
    fail "$*, at fault $n ($fault); SEED=$seed FAULTS=$FAULTS LONGEST=$LONGEST shows it again"
}

# serves WORKER: the stage it was given last; SPARE: none.
serves() {
    sed -n "s/^generation [0-9]*: serving stage \([0-9]*\) of.*/\1/p; s/^waiting as a spare.*/$SPARE/p" "join-$1.err" | tail -n 1
}

# owner_of STAGE: in $worker; fails unless there is exactly one.
owner_of() {
    worker=
    for i in 1 2 3 4; do
        [ "$(serves $i)" = "$1" ] || continue
        [ -z "$worker" ] || return 1
        worker=$i
    done
    [ -n "$worker" ]
}

all_in_place() {
    for s in 0 1 2 $SPARE; do owner_of $s || return 1; done
}

# settle: every machine has a place, and there is progress.
settle() {
    until_so $((90 + LONGEST)) "four machines in their places" all_in_place || return 1
    until_so 90 progress has_come_to $RUN $(($(steps_in $RUN) + 1))
}

# ---- machines ----

boss_begin() {
    # Stages stay where they are. Port 7070 may be that of a coordinator of this machine's user.
    host_begin $RUN run.yaml --listen "$ADDRESS:7000" --rebalance 0 $sets "$@"
    is_hosted=yes
}

boss_kill() {
    is_hosted=
    host_kill
}

# worker_begin I ARGS...
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

rests() {
    [ "$(serves "$1")" = $SPARE ]
}

works() {
    [ "$(serves "$1")" != $SPARE ]
}

has_stage() {
    [ "$(serves "$1")" = "$2" ]
}

is_through() {
    is_dead "$1" || ! has_stage "$1" "$2"
}

# disarm I: on a machine that is very busy someone else was lost meanwhile, and it was needed there.
disarm() {
    echo "  worker $1 was needed elsewhere"
    kill_join "$1"
    worker_begin "$1"
}

# line KIND I MS: what is done to the lines of worker I, to the coordinator and to its neighbours.
line() {
    echo "$1 $2 $3 300" >&4
    echo "$1 $((4 + $2)) $3 300" >&4
}

# ---- faults ----

# The spare is made to die there, and the owner of the stage is killed for it to take over.
fault_point() {
    owner_of $SPARE
    armed=$worker
    owner_of "$1"
    old=$worker
    kill_join "$armed"
    step=$(($(steps_in $RUN) + 4))
    [ "$2" = restore ] && step=0
    worker_begin "$armed" --fault "$2:$1:$step"
    until_so 60 "the spare rests" rests "$armed" || return
    before=$(steps_in $RUN)
    began=$(now_ms)
    kill_join "$old"
    until_so 90 "the spare takes a stage" works "$armed" || return
    worker_begin "$old"
    [ "$2" = restore ] || recovers $RUN kill "$began" "$before" || return
    until_so 90 "death at $2" is_through "$armed" "$1" || return
    is_dead "$armed" || { disarm "$armed" && return; }
    before=$(steps_in $RUN)
    began=$(now_ms)
    wait "$(pid_of_join "$armed")" 2>/dev/null
    grep -q "dies as asked: $2, stage $1" "join-$armed.err" || broken "worker $armed did not die as asked"
    echo "$1 $2" >>pairs
    recovers $RUN point "$began" "$before"
    worker_begin "$armed"
}

fault_boss() {
    boss_kill
    nap "$2"
    boss_begin
    recovers $RUN boss "$began" "$before"
}

fault_both() {
    boss_kill
    kill_join "$worker"
    boss_begin
    worker_begin "$worker"
    recovers $RUN both "$began" "$before"
}

fault_stop() {
    pid=$(pid_of_join "$worker")
    kill -STOP "$pid"
    (nap "$2"; kill -CONT "$pid") &
    waker=$!
    recovers $RUN stop "$began" "$before"
    wait $waker
}

# Of a line; the run may go on before it is mended.
fault_line() {
    line "$1" "$worker" "$2"
    recovers $RUN "$1" "$began" "$before" || return
    left=$((began + $2 - $(now_ms)))
    [ $left -le 0 ] || nap $left
}

fault_disk() {
    if [ -z "$is_small" ]; then
        echo "  skipped: needs root"
        return
    fi
    dd if=/dev/zero of=small/filler bs=4k 2>/dev/null
    nap "$2"
    [ $(($2 % 2)) -eq 0 ] || boss_kill # at the worst moment
    rm small/filler
    [ $(($2 % 2)) -eq 0 ] || boss_begin
    recovers $RUN disk "$began" "$before"
}

# Nobody is left to take the stage, until a machine comes that was never here.
fault_late() {
    old=$worker
    owner_of $SPARE
    kill_join "$worker"
    kill_join "$old"
    nap "$2"
    echo "-$n" >"fresh-$old"
    worker_begin "$old"
    recovers $RUN late "$began" "$before"
    worker_begin "$worker"
}

fault_leave() {
    leave_join "$worker"
    recovers $RUN leave "$began" "$before"
    worker_begin "$worker"
}

# strike KIND STAGE HOW
strike() {
    owner_of "$2"
    before=$(steps_in $RUN)
    began=$(now_ms)
    case $1 in
    cut | hold | half | back | slow) fault_line "$1" "$3" ;;
    *) "fault_$1" "$2" "$3" ;;
    esac
}

# ---- a run ----

# Stages stand at a step again after each fault; never before one they stood at already, or a step
# would be lost twice.
never_back() {
    sed -n 's/.*all stages ready at step //p' $RUN/events.log |
        awk -v back="$BACK" '$1 + back < best { print "stood at step " best ", then at " $1; exit 1 } { best = $1 }'
}

small_disk() {
    mkdir -p small
    [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=32m tmpfs small 2>/dev/null && is_small=yes
    trap 'for pid in $(marked); do kill -9 $pid; done; [ -z "$is_small" ] || umount -l "$SCRATCH/small"; clean_up' EXIT
}

one_run() {
    n=0
    fault=beginning
    plan "$seed" >plan
    # Faults take some seconds each, in which the run goes on at six steps a second or so.
    total=$(awk '{ s += 18; if ($1 != "point") s += $3 / 180 } END { print int(s) + 30 }' plan)
    make_run run.yaml 3 "$total"
    runs train run.yaml --out straight --set stages.count=3 --set train.save_every=10
    boss_begin
    for i in 1 2 3 4; do
        "$TAP" invite "$(cat $RUN.invite)" "$ADDRESS:$((7000 + i))" >"w$i.invite"
        : >"join-$i.err"
        worker_begin $i
    done
    while read -r kind stage how <&5; do
        settle || break
        n=$((n + 1))
        fault="$kind $stage $how"
        echo "fault $n, step $(steps_in $RUN) of $total: $fault"
        strike "$kind" "$stage" "$how" 5<&-
    done 5<plan
    [ $n -gt $((FAULTS * 2 / 3)) ] || broken "the run was over too early"
    never_back || broken "a step was lost twice"
    # What is left needs no slow lines. That is another run to its machines: from the checkpoint.
    if is_running && [ $((total - $(steps_in $RUN))) -gt 30 ]; then
        boss_kill
        boss_begin --set link.emulate.delay=0ms
    fi
    is_hosted=
    host_ends 0 "seed $seed"
    same_metrics straight $RUN
    same_weights straight $RUN
    none_left
}

ADDRESS=$(address_of_ours)
sets="--set stages.count=3 --set link.emulate.delay=30ms --set train.save_every=10"
is_small=
is_hosted=
: >times
: >pairs
make_corpus
mkfifo orders
lines=
for i in 1 2 3 4; do lines="$lines $ADDRESS:$((7000 + i))=$ADDRESS:7000"; done
for i in 1 2 3 4; do lines="$lines $ADDRESS:$((7100 + i))=$ADDRESS:$((7200 + i))"; done
"$TAP" $lines <orders >tap.out &
exec 4>orders # the lines last as long as this is open
wait_words tap.out up
small_disk
for seed in $SEEDS; do
    rm -rf "$RUN" straight "$RUN.invite" fresh-* keys-*
    one_run
    echo "seed $seed: $n faults, $(grep -c 'all stages ready' $RUN/events.log) generations, the same bits"
done

echo "$(sort -u pairs | wc -l) of 36 points and stages"
tell_times
