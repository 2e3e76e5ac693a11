#!/bin/sh
# shard.sh - a shard is truncated while a run reads it: the run says which file and by how much, saves what
# was trained, and computes the same bits once the file is restored.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"

make_corpus
make_run run.yaml 2 40
sets="--set stages.count=2 --set link.emulate.delay=10ms --set train.save_every=1000"
runs train run.yaml --out straight $sets
cp train.bin whole.bin
bytes=$(stat -c %s train.bin)

# restore: puts the shard back.
restore() {
    cp whole.bin train.bin
}

# The last token alone: no step fails on it, the check between two steps finds it, and nothing is lost.
begin train run.yaml --out short $sets
wait_lines short 8
truncate -s $((bytes - 2)) train.bin
reap
[ "$code" -eq 3 ] || fail "a truncated shard: exit code $code, expected 3"
says "$ERR" "^strait: .*/train.bin: shrank from $bytes to $((bytes - 2)) bytes while in use: restore the file"
steps=$(steps_in short)
[ -d "short/checkpoints/$(printf %08d "$steps")" ] || fail "step $steps was not saved"
restore
runs train run.yaml --out short --resume $sets
says "$ERR" "resuming after step $steps"
same_metrics straight short
same_weights straight short

# Nearly all of it, in the middle of a step or not: an error with a name, not a signal. With one stage nothing
# is lost; several stages may lose the steps since their last checkpoint.
for count in 1 2; do
    begin train run.yaml --out cut-$count --set stages.count=$count --set train.save_every=1000 --set train.steps=4000
    wait_lines cut-$count 8
    truncate -s 2048 train.bin
    reap
    [ "$code" -eq 3 ] || fail "$count stages, a truncated shard: exit code $code, expected 3"
    says "$ERR" "^strait: .*train.bin: shrank from $bytes to 2048 bytes while in use"
    restore
    steps=$(steps_in cut-$count)
    [ $count -eq 2 ] || [ -d "cut-1/checkpoints/$(printf %08d "$steps")" ] || fail "step $steps was not saved"
done

# A host: its workers wait, and the run goes on where it was.
host_begin swarm run.yaml $sets
for i in 1 2; do join_begin swarm $i; done
wait_steps swarm 8
truncate -s 2048 train.bin
host_ends 3 "a truncated shard"
says "$HOST_LOG" "^strait: .*train.bin: shrank from $bytes to 2048 bytes while in use"
restore
host_begin swarm run.yaml $sets
host_ends 0 "the shard is restored"
same_metrics straight swarm
same_weights straight swarm
wait_all_exited
