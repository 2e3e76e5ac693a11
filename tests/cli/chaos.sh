#!/bin/sh
# chaos.sh - a run on machines that come and go: FAULTS faults drawn from SEED, and the same numbers
# as if nothing had happened. A failing seed is printed; SEED=N FAULTS=M chaos.sh ... shows it again.
#
# What can go wrong: kill -9 of a worker, which comes back or is replaced; of the coordinator; both
# at once; a worker that stops to run for some seconds; a polite leave; a late join.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/swarm_lib.sh"

SEED=${SEED:-7}
FAULTS=${FAULTS:-12}
WORKERS=5
draw_from "$SEED"

make_corpus
make_run run.yaml 3 $((FAULTS * 25))
sets="--set stages.count=3 --set link.emulate.delay=10ms --set train.save_every=25"
runs train run.yaml --out straight $sets

host_begin chaos run.yaml $sets
for i in $(seq $WORKERS); do join_begin chaos "$i"; done

n=0
while [ $n -lt "$FAULTS" ]; do
    draw 1200
    nap $((200 + drawn))
    is_running || break
    n=$((n + 1))
    draw $WORKERS
    worker=$((drawn + 1))
    draw 100
    if [ "$drawn" -lt 45 ]; then
        echo "fault $n: kill worker $worker"
        kill_join "$worker"
        draw 1500
        nap "$drawn"
        join_begin chaos "$worker"
    elif [ "$drawn" -lt 60 ]; then
        draw 7000
        echo "fault $n: stop worker $worker for $drawn ms"
        stop_join "$worker"
        nap "$drawn"
        wake_join "$worker"
    elif [ "$drawn" -lt 75 ]; then
        echo "fault $n: worker $worker leaves"
        leave_join "$worker"
        join_begin chaos "$worker"
    elif [ "$drawn" -lt 92 ]; then
        echo "fault $n: kill the coordinator"
        host_kill
        draw 1500
        nap "$drawn"
        host_begin chaos run.yaml $sets
    else
        echo "fault $n: kill the coordinator and worker $worker"
        host_kill
        kill_join "$worker"
        host_begin chaos run.yaml $sets
        join_begin chaos "$worker"
    fi
done
[ $n -ge $((FAULTS / 2)) ] || fail "seed $SEED: the run was over after $n faults"
host_ends 0 "seed $SEED"
same_metrics straight chaos
same_weights straight chaos
echo "seed $SEED: $n faults, $(grep -c 'all stages stand' chaos/events.log) epochs"
# From the first sign of a fault to all stages standing again, in seconds.
awk '{ split(substr($1, 12), t, /[:Z]/); now = t[1] * 3600 + t[2] * 60 + t[3] }
    /all stages stand/ { if (began) print now - began; began = 0; next }
    /is lost|lost a neighbour|wants to leave|waiting for machines/ { if (!began) began = now }' \
    chaos/events.log | sort -n | awk '{ v[NR] = $1 }
    END { if (NR) printf "from fault to standing: median %.2f s, worst %.2f s, of %d\n", v[int((NR + 1) / 2)], v[NR], NR }'
