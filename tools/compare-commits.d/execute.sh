# execute.sh - trains one run with the program of one side.
# shellcheck shell=bash

LIMIT=300 # seconds that a program may take

# wait_lines FILE N PID: until FILE has N lines. Fails if process PID ends before, or after LIMIT seconds.
wait_lines() {
    local lines until=$((SECONDS + LIMIT))
    while [ $SECONDS -lt $until ]; do
        lines=()
        [ ! -f "$1" ] || mapfile -t lines <"$1"
        [ ${#lines[@]} -lt "$2" ] || return 0
        kill -0 "$3" 2>/dev/null || break
        sleep 0.02
    done
    echo "compare-commits: $1 has ${#lines[@]} lines, expected $2"
    return 1
}

# finish PID: waits for a process that this shell started, and returns its exit status.
finish() {
    local until=$((SECONDS + LIMIT))
    while kill -0 "$1" 2>/dev/null; do
        if [ $SECONDS -ge $until ]; then
            echo "compare-commits: no end after $LIMIT seconds"
            kill -9 "$1"
        fi
        sleep 0.02
    done
    wait "$1"
}

run_train() {
    timeout --foreground -k 10 $LIMIT "$program" train "$run_file" --out "$folder" "${arguments[@]}" "$@"
}

# Kills "strait train" with signal 9 between two checkpoints, then resumes it. A run that is done before
# the signal proves nothing and is started again.
run_killed() {
    local pid status attempt
    for attempt in 1 2 3 4 5; do
        rm -rf "$folder"
        "$program" train "$run_file" --out "$folder" "${arguments[@]}" &
        pid=$!
        wait_lines "$folder/metrics.jsonl" 7 $pid || true
        kill -9 $pid || true
        status=0
        finish $pid || status=$?
        if [ $status = 137 ]; then
            run_train --resume
            return
        fi
        echo "compare-commits: attempt $attempt ended with exit status $status, expected a kill"
    done
    return 1
}

# Two workers hold the stages when the third joins; then the first is killed, and the third takes its
# stage. It does not matter how far the third has come by then: the run waits for it.
run_swarm() {
    local host i status=0 workers=()
    "$program" host "$run_file" --out "$folder" --listen 127.0.0.1:0 --keys "$folder.keys/host" \
        "${arguments[@]}" >"$folder.invite" &
    host=$!
    wait_lines "$folder.invite" 1 $host || return 1
    for i in 1 2 3; do
        "$program" join "$(cat "$folder.invite")" --keys "$folder.keys/$i" --name "worker-$i" \
            --listen 127.0.0.1:0 --threads 1 >"$folder.worker-$i.log" 2>&1 &
        workers+=($!)
        [ $i = 1 ] || wait_lines "$folder/metrics.jsonl" 3 $host || status=1
    done
    wait_lines "$folder/metrics.jsonl" 9 $host || status=1
    kill -9 "${workers[0]}" || status=1
    finish $host || status=$?
    # Workers leave when the run is over; one that does not is a failure of its own.
    finish "${workers[1]}" || status=$?
    finish "${workers[2]}" || status=$?
    return $status
}

# execute SIDE NAME: trains the run; its folder, log and exit status lie in $out/runs/NAME.
execute() {
    set +m
    set +e
    trap - EXIT
    local program=${PROGRAM[$1]} run_file=$out/corpus/run.yaml folder=$out/runs/$2/$1 settings status=0
    settings="$common data.train=$out/corpus/train.bin data.valid=$out/corpus/valid.bin
        data.tokenizer=$out/corpus/tokenizer.json ${SETTINGS[$2]}"
    [ "$1" = old ] || settings+=" $new_set"
    {
        # A setting of the run replaces the common one: later --set arguments win.
        # shellcheck disable=SC2086 # settings are words
        translate "$1" $settings
        "run_${KIND[$2]}" || status=$?
    } >"$folder.log" 2>&1 </dev/null
    echo $status >"$folder.status"
}

# execute_all: every selected run on both sides, some at a time.
execute_all() {
    local name side count=0 running=0
    rm -rf "$out/runs"
    set -m
    for name in "${selected[@]}"; do
        mkdir -p "$out/runs/$name"
        count=$((count + 1))
        [ ! -t 2 ] || printf '\r\033[Krun %d of %d: %s' $count ${#selected[@]} "$name" >&2
        for side in old new; do
            if [ $running -ge "$jobs" ]; then
                wait -n || true
                running=$((running - 1))
            fi
            execute $side "$name" &
            running=$((running + 1))
        done
    done
    wait
    set +m
    [ ! -t 2 ] || printf '\r\033[K' >&2
}
