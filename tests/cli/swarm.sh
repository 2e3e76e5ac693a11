#!/bin/sh
# swarm.sh - host and join on this machine: the same numbers as "strait train", also when workers
# and the coordinator die, stop, leave or cannot be reached.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/swarm_lib.sh"

make_corpus
make_run run.yaml 2 60
# Slow links: what shall happen in the middle of a run must find it there on a busy machine too.
sets="--set stages.count=2 --set link.emulate.delay=25ms"
runs train run.yaml --out straight --set stages.count=2

# alike FOLDER: the run there ended well and computed what "straight" did.
alike() {
    host_ends 0 "$1"
    same_metrics straight "$1"
    same_weights straight "$1"
    wait_all_exited
}

# 70 million tokens, and a hole where they should be: more ids than can wait for a link.
head -c 1024 train.bin >vast.bin
printf '\200\035\054\004' | dd of=vast.bin bs=1 seek=8 conv=notrunc 2>/dev/null
truncate -s $((1024 + 2 * 70000000)) vast.bin
refuses 2 'data.valid: a swarm validates on 62914560 tokens at most, and there are [0-9]+: set data.valid_tokens' \
    host run.yaml --out vast $sets --set data.valid=vast.bin --set data.valid_tokens=0

# A run of "strait train" is not taken over unasked: not at once, and not when asked again.
before=$(sum_of straight/checkpoints)
for _ in 1 2; do
    refuses 2 'straight already contains a run: --resume' host run.yaml --out straight $sets \
        --listen 127.0.0.1:0 --keys keys-host
done
[ "$before" = "$(sum_of straight/checkpoints)" ] || fail "a refused host touched the run"

# Two workers, and nothing else happens. They need no run file, no data, and write nothing.
host_begin plain run.yaml $sets
mkdir elsewhere
(cd elsewhere && env STRAIT_CLI="$SCRATCH" "$STRAIT" join "$(cat ../plain.invite)" --keys ../keys-1 \
    --listen 127.0.0.1:0 --threads 1 2>../join-1.err) &
first=$!
join_begin plain 2
alike plain
wait $first || fail "a worker of a run that ended well does not end well"
[ -z "$(ls elsewhere)" ] || fail "a worker wrote files"
[ "$(stat -c %a keys-1/node.pem)" = 600 ] || fail "others may read a worker's key"

# Who looks at it later sees that it is over.
touch -d '1 minute ago' plain/swarm.json
runs watch plain --once
says "$OUT" '60 steps committed' 'Z done$' '^no update for 1m[0-9]*s: the run has ended'

# A worker that finds nobody has said whom it dials.
refuses 4 'has been unreachable for 1 s' join "$(cat plain.invite)" --keys keys-1 --give-up 1
says "$ERR" "^dialling the coordinator at 127.0.0.1:$(cat plain.port) "
! grep -q 'reached the coordinator' "$ERR" || fail "nobody was reached"

# Started once more, there is nothing left to do.
runs host run.yaml --out plain $sets --listen 127.0.0.1:0 --keys keys-host
says "$ERR" 'done: plain'

# Its last checkpoint is damaged: the file is named, and what came after the one before is made again.
printf x >>plain/checkpoints/00000060/stage-1.safetensors
host_begin plain run.yaml $sets
for i in 1 2; do join_begin plain $i; done
alike plain
says plain/events.log 'using step 56, the newest undamaged checkpoint: .*/00000060: stage-1.safetensors'

# A checkpoint without what its stages need, here another optimizer's: the host says what, blames nobody
# and leaves everything as it was.
before=$(sum_of plain/checkpoints)
host_begin plain run.yaml $sets --set train.steps=70 --set train.optimizer=adamw-rows
for i in 1 2; do join_begin plain $i; done
host_ends 3 'a checkpoint of another optimizer'
says "$HOST_LOG" '^strait: .*checkpoints/00000060.*"[a-z0-9.]*[.]v".*expected'
! grep -q 'sent away' plain/events.log || fail "a worker was sent away for what the checkpoint lacks"
[ "$before" = "$(sum_of plain/checkpoints)" ] || fail "a host that could not go on touched the run"
for i in 1 2; do kill_join $i; done

# A worker that cannot listen where it shall says why, and a third serves its stage.
host_begin deaf run.yaml $sets
join_begin deaf 1 --listen nowhere
join_begin deaf 2
wait_for_text join-1.err "cannot serve stage [01]: address 'nowhere': expected host:port"
join_begin deaf 3
alike deaf

# A worker dies: its stage goes to the spare; then to itself, restarted.
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
alike death
says death/events.log 'stage [01]: connection lost' 'generation [2-9]: all stages ready at step [1-9]'

# The coordinator dies, and with it, once, a worker: it goes on with the same invite, which is good for
# no longer than it was.
host_begin boss run.yaml $sets --expires 24
cp boss.invite invite.before
for i in 1 2 3; do join_begin boss $i; done
for lines in 12 30; do
    wait_steps boss $lines
    host_kill
    host_begin boss run.yaml $sets --expires 24
    cmp -s boss.invite invite.before || fail "the invite is another one after a restart"
done
wait_steps boss 45
host_kill
kill_join 1
host_begin boss run.yaml $sets --expires 24
alike boss
says boss/events.log 'reconnected'

# A worker stops to run: it is named, its stage moves; when it wakes it is a spare again.
host_begin stop run.yaml $sets
for i in 1 2; do join_begin stop $i; done
wait_steps stop 5
join_begin stop 3
wait_steps stop 12
pause_join 1
wait_steps stop 25
says stop/events.log 'w1 .*stage [01]: connection lost'
resume_join 1
# Another leaves politely, and nothing is lost.
kill -INT "$(pid_of_join 2)"
alike stop
says join-2.err 'leaving: handing the stage over first' 'left the run'
says stop/events.log 'w2 .*asked to leave'

# One that nobody can reach, then two of them with a relay between.
host_begin shy run.yaml $sets
join_begin shy 1 --no-listen
join_begin shy 2
alike shy
env STRAIT_CLI="$SCRATCH" "$STRAIT" relay --listen 127.0.0.1:0 >relay.out 2>relay.err &
relay=$!
for _ in $(seq 2000); do
    [ -s relay.out ] && break
    sleep 0.05
done
host_begin relayed run.yaml $sets --relay "$(sed -n 's/^relay at //p' relay.out)"
join_begin relayed 1 --no-listen
join_begin relayed 2 --no-listen
host_ends 0 relayed
same_metrics straight relayed
same_weights straight relayed
kill -INT $relay
wait $relay
says relay.out '[1-9][0-9]* pairs'
