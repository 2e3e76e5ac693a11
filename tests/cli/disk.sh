#!/bin/sh
# disk.sh - a full disk or a folder that cannot be written during a checkpoint: the last good one
# stays, the run says so, and can go on from it.
. "$(dirname "$0")/lib.sh"

make_corpus
make_run run.yaml 2 24

# No file may grow beyond N blocks of 512 bytes: a disk that fills while a checkpoint is written.
# The shell ignores the signal, so that strait sees the error as it would on a full disk.
in_little_room() {
    blocks=$1
    shift
    (
        trap '' XFSZ
        ulimit -f "$blocks"
        strait "$@" >"$OUT" 2>"$ERR"
    )
    code=$?
}

# full FOLDER SETS...: a run up to step 4, then no room for a checkpoint; at last room again.
full() {
    folder=$1
    shift
    runs train run.yaml --out "$folder" $even --set train.steps=4 "$@"
    good=$(sum_of "$folder/checkpoints/00000004")
    in_little_room 64 train run.yaml --out "$folder" --resume $even "$@"
    [ "$code" -eq 3 ] || fail "exit code $code on a full disk, expected 3"
    says "$ERR" '^note: .*checkpoints/00000008' '^strait: .*checkpoints/0000'
    tail -n 1 "$ERR" | grep -qE '00000004|earlier|last' || fail "does not say what is left"
    [ "$good" = "$(sum_of "$folder/checkpoints/00000004")" ] || fail "the good checkpoint changed"
    [ -z "$(find "$folder/checkpoints" -name '*.tmp')" ] || fail "an unfinished checkpoint is left"
    runs train run.yaml --out "$folder" --resume $even "$@"
    says "$ERR" 'resuming after step 4'
    same_metrics constant "$folder"
    same_weights constant "$folder"
}

# Runs whose first steps do not depend on how many there will be.
even='--set train.warmup=1 --set train.schedule=constant --set train.valid_every=4'
runs train run.yaml --out constant $even
full one
full two --set stages.count=2
none_left

# A disk that really is full, where we may mount one.
mkdir mnt
if mount -t tmpfs -o size=640k tmpfs mnt 2>/dev/null; then
    trap 'umount "$SCRATCH/mnt"; clean_up' EXIT
    refuses 3 'mnt/run/checkpoints.*[Nn]o space' train run.yaml --out mnt/run \
        --set train.save_every=1 --set train.keep_checkpoints=10
    saved=$(find mnt/run/checkpoints -name '0*' | sort | tail -n 1)
    runs inspect "$saved"
    mount -o remount,size=16m mnt || fail "the disk cannot be made larger"
    runs train run.yaml --out mnt/run --resume
    says "$ERR" 'resuming after step [1-9]'
    # Full before it begins: nothing is left, and the same words begin it once there is room.
    rm -rf mnt/run
    mkdir mnt/there
    cat /dev/zero >mnt/fill 2>/dev/null
    for room in 0 4096; do # none; for the run file, but not for the tokenizer
        truncate -s -$room mnt/fill
        for folder in new there; do
            refuses 3 "mnt/$folder/.*[Nn]o space" train run.yaml --out mnt/$folder
        done
        [ ! -e mnt/new ] || fail "a run that could not begin left $(find mnt/new)"
        [ -z "$(ls -A mnt/there)" ] || fail "a run that could not begin left $(ls -A mnt/there)"
    done
    rm mnt/fill
    runs train run.yaml --out mnt/there
    # A corpus leaves nothing on it either.
    cat /dev/zero >mnt/fill 2>/dev/null
    truncate -s -16384 mnt/fill
    for shards in 0 3000; do
        refuses 3 'mnt/x.bin.tmp/.*full' tokenize --tokenizer tokenizer.json --out mnt/x.bin --shard-tokens $shards text.txt
        [ "$(ls -A mnt)" = 'fill
there' ] || fail "a corpus without room left $(ls -A mnt)"
    done
    umount mnt
    trap clean_up EXIT
else
    echo "no tmpfs may be mounted here: that part was left out"
fi

# A folder that cannot be written; root writes anywhere, so a file stands where a folder would.
cp -r constant locked
rm -rf locked/checkpoints/00000024
before=$(sum_of locked)
if [ "$(id -u)" -ne 0 ]; then
    chmod -R a-w locked
    refuses 3 'locked' train run.yaml --out locked --resume
    chmod -R u+w locked
    [ "$before" = "$(sum_of locked)" ] || fail "a read-only run was touched"
fi
: >blocked
refuses 3 'blocked' train run.yaml --out blocked/run
refuses 3 '/proc/strait' train run.yaml --out /proc/strait
