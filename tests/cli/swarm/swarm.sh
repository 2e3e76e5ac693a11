#!/bin/sh
# swarm.sh - host and join on this machine compute the same bits as "strait train", also when workers
# or the coordinator are killed, paused, leave or cannot be reached.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"
LIAR=$(dirname "$HELPER")/../liar/cli_liar

make_corpus
make_run run.yaml 2 60
# Slow links, so that faults in the middle of a run happen before it ends, on a busy machine too.
sets="--set stages.count=2 --set link.emulate.delay=25ms"
runs train run.yaml --out straight --set stages.count=2

# matches_straight FOLDER: checks that the run succeeds with the losses and weights of "straight".
matches_straight() {
    host_ends 0 "$1"
    same_metrics straight "$1"
    same_weights straight "$1"
    wait_all_exited
}

# A sparse file of 70 million tokens: more ids than fit into the send queue of a link.
head -c 1024 train.bin >vast.bin
printf '\200\035\054\004' | dd of=vast.bin bs=1 seek=8 conv=notrunc 2>/dev/null
truncate -s $((1024 + 2 * 70000000)) vast.bin
refuses 2 'data.valid: a swarm validates on 62914560 tokens at most, and there are [0-9]+: set data.valid_tokens' \
    host run.yaml --out vast $sets --set data.valid=vast.bin --set data.valid_tokens=0

# host does not take over a run of "strait train" without --resume, at the first or second attempt.
before=$(sum_of straight/checkpoints)
for _ in 1 2; do
    refuses 2 'straight already contains a run: resume' host run.yaml --out straight $sets \
        --listen 127.0.0.1:0 --keys keys-host
done
[ "$before" = "$(sum_of straight/checkpoints)" ] || fail "a refused host changed the run"

# Two workers and no faults. Workers need no run file and no data, and write no files.
host_begin plain run.yaml $sets
mkdir elsewhere
(cd elsewhere && env STRAIT_CLI="$SCRATCH" "$STRAIT" join "$(cat ../plain.invite)" --keys ../keys-1 \
    --listen 127.0.0.1:0 --threads 1 2>../join-1.err) &
first=$!
join_begin plain 2
matches_straight plain
wait $first || fail "a worker of a successful run ended with $?"
[ -z "$(ls elsewhere)" ] || fail "a worker wrote files"
# Exact boundaries carry as many bytes in both directions. Token ids, here the targets of the last stage, come
# on top: 2 bytes per token and their frames.
jq -e -s 'map(select(.loss) | .forward_bytes_per_token - .backward_bytes_per_token) | min > 2 and max < 8' \
    plain/metrics.jsonl >"$OUT" || fail "token ids are not counted: $(tail -n 2 plain/metrics.jsonl)"
[ "$(stat -c %a keys-1/node.pem)" = 600 ] || fail "other users can read a worker's key"

# The second worker hears of the end long after the first, which has closed its links: nothing is lost then.
env STRAIT_CLI="$SCRATCH" "$LIAR" --delay task.end=400 host run.yaml --out end $sets --set train.steps=3 \
    --listen 127.0.0.1:0 --keys keys-host >end.invite 2>end.err </dev/null &
HOST=$! folder=end HOST_LOG=end.err
wait_for_invite
for i in 3 4; do join_begin end $i; done
host_ends 0 end
wait_all_exited
says end.err '^liar: .*--delay task.end'
for i in 3 4; do
    says join-$i.err '^the run has ended$'
    ! grep -qE 'lost (its link|the connection to)' join-$i.err || fail "at the end: $(grep 'lost .*link' join-$i.err)"
done
HOST_LOG=$SCRATCH/host.err

# watch reports that the run has ended.
touch -d '1 minute ago' plain/swarm.json
runs watch plain --once
says "$OUT" '^plain: done, generation [0-9]+, .* 60 steps committed' 'Z done$' '^no update for 1m[0-9]*s: the run has ended'

# A worker that cannot reach the coordinator prints the address that it dials.
refuses 4 'has been unreachable for 1 s' join "$(cat plain.invite)" --keys keys-1 --give-up 1
says "$ERR" "^connecting to the coordinator at 127.0.0.1:$(cat plain.port) "
! grep -q 'reached the coordinator' "$ERR" || fail "the worker claims to have reached a coordinator that is not running"

# Hosting a finished run again ends at once.
runs host run.yaml --out plain $sets --listen 127.0.0.1:0 --keys keys-host
says "$ERR" 'done: plain'

# The last checkpoint is damaged: the file is named, and the steps since the one before are recomputed.
printf x >>plain/checkpoints/00000060/stage-1.safetensors
host_begin plain run.yaml $sets
for i in 1 2; do join_begin plain $i; done
matches_straight plain
says plain/events.log 'using step 56, the newest undamaged checkpoint: .*/00000060: stage-1.safetensors'

# A checkpoint lacks tensors that the stages need, here those of another optimizer: the host names the
# tensor, blames no worker and changes no file.
before=$(sum_of plain/checkpoints)
host_begin plain run.yaml $sets --set train.steps=70 --set train.optimizer=adamw-rows
for i in 1 2; do join_begin plain $i; done
host_ends 3 'a checkpoint of another optimizer'
says "$HOST_LOG" '^strait: .*checkpoints/00000060.*"[a-z0-9.]*[.]v".*expected'
! grep -q 'is disconnected' plain/events.log || fail "a worker was disconnected because the checkpoint lacks a tensor"
[ "$before" = "$(sum_of plain/checkpoints)" ] || fail "a host that could not continue changed the run"
for i in 1 2; do kill_join $i; done

# A worker that cannot listen at its address says why, and a third one serves its stage.
host_begin deaf run.yaml $sets
join_begin deaf 1 --listen nowhere
join_begin deaf 2
wait_for_text join-1.err "cannot serve stage [01]: address 'nowhere': expected host:port"
join_begin deaf 3
matches_straight deaf

# Workers are killed: a stage moves to the spare, then to a restarted worker.
host_begin death run.yaml $sets
for i in 1 2 3; do join_begin death $i; done
wait_steps death 10
kill_join 1
wait_steps death 25
kill_join 2
join_begin death 2
wait_steps death 40
kill_join 3
join_begin death 3
join_begin death 1
matches_straight death
says death/events.log 'stage [01]: connection lost' 'generation [2-9]: all stages ready at step [1-9]'

# The coordinator is killed, once together with a worker. It restarts with the same invite, whose expiry
# time does not change.
host_begin restart run.yaml $sets --expires 24
cp restart.invite invite.before
for i in 1 2 3; do join_begin restart $i; done
for lines in 12 30; do
    wait_steps restart $lines
    host_kill
    host_begin restart run.yaml $sets --expires 24
    cmp -s restart.invite invite.before || fail "the invite changed after a restart"
done
wait_steps restart 45
host_kill
kill_join 1
host_begin restart run.yaml $sets --expires 24
matches_straight restart
says restart/events.log 'reconnected'

# A worker is paused: it is logged and its stage moves; when it continues it becomes a spare.
host_begin stop run.yaml $sets
for i in 1 2; do join_begin stop $i; done
wait_steps stop 5
join_begin stop 3
wait_steps stop 12
pause_join 1
wait_steps stop 25
says stop/events.log 'w1 .*stage [01]: connection lost'
resume_join 1
# Another worker leaves on request, and no step is lost.
kill -INT "$(pid_of_join 2)"
matches_straight stop
says join-2.err 'leaving: handing the stage over first' 'left the run'
says stop/events.log 'w2 .*asked to leave'

# A worker is asked to leave while nobody can take its stage: it says why it stays, and leaves when the stage
# has been handed over.
host_begin alone run.yaml $sets
for i in 5 6; do join_begin alone $i; done
wait_steps alone 12
kill_join 5
wait_for_text alone/events.log 'not enough workers for all stages'
kill -INT "$(pid_of_join 6)"
wait_for_text join-6.err 'leaving: this worker stays until there are enough workers for all stages'
for i in 7 8; do join_begin alone $i; done
matches_straight alone
says join-6.err 'left the run'
says alone/events.log 'w6 .*, stage [01]: stays until there are enough workers'

# One worker that accepts no connections, then two of them connected by a relay.
host_begin shy run.yaml $sets
join_begin shy 1 --no-listen
join_begin shy 2
matches_straight shy
env STRAIT_CLI="$SCRATCH" "$STRAIT" relay --listen 127.0.0.1:0 >relay.out 2>relay.err &
relay=$!
wait_for_text relay.out '^relay at '
host_begin relayed run.yaml $sets --relay "$(sed -n 's/^relay at //p' relay.out)"
join_begin relayed 1 --no-listen
join_begin relayed 2 --no-listen
host_ends 0 relayed
same_metrics straight relayed
same_weights straight relayed
kill -INT $relay
wait $relay
says relay.out '[1-9][0-9]* pairs'
