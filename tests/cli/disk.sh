#!/bin/sh
# disk.sh - when the disk is full or the folder is not writable during a checkpoint, the last complete
# checkpoint is kept, the error names it, and the run resumes from it.
. "$(dirname "$0")/lib.sh"

make_corpus
make_run run.yaml 2 24

# with_file_limit N ARGS...: runs strait with files limited to N blocks of 512 bytes, to simulate a disk that
# fills up during a checkpoint. The shell ignores SIGXFSZ, so that strait sees an error as on a full disk.
with_file_limit() {
    blocks=$1
    shift
    (
        trap '' XFSZ
        ulimit -f "$blocks"
        strait "$@" >"$OUT" 2>"$ERR"
    )
    code=$?
}

# survives_full_disk FOLDER SETS...: trains to step 4, then without space for a checkpoint, then with
# space again; the result must be that of the run in constant.
survives_full_disk() {
    folder=$1
    shift
    runs train run.yaml --out "$folder" $even --set train.steps=4 "$@"
    good=$(sum_of "$folder/checkpoints/00000004")
    with_file_limit 64 train run.yaml --out "$folder" --resume $even "$@"
    [ "$code" -eq 3 ] || fail "exit code $code on a full disk, expected 3"
    says "$ERR" '^note: .*checkpoints/00000008' '^strait: .*checkpoints/0000'
    tail -n 1 "$ERR" | grep -qE '00000004|earlier|last' || fail "the error does not name the last complete checkpoint"
    [ "$good" = "$(sum_of "$folder/checkpoints/00000004")" ] || fail "the good checkpoint changed"
    [ -z "$(find "$folder/checkpoints" -name '*.tmp')" ] || fail "an unfinished checkpoint is left"
    runs train run.yaml --out "$folder" --resume $even "$@"
    says "$ERR" 'resuming after step 4'
    same_metrics constant "$folder"
    same_weights constant "$folder"
}

# Runs whose first steps do not depend on train.steps.
even='--set train.warmup=1 --set train.schedule=constant --set train.valid_every=4'
runs train run.yaml --out constant $even
survives_full_disk one
survives_full_disk two --set stages.count=2
wait_all_exited

# A full disk instead of a limit, if this script may mount one.
mkdir mnt
if mount -t tmpfs -o size=640k tmpfs mnt 2>/dev/null; then
    trap 'umount "$SCRATCH/mnt"; clean_up' EXIT
    # Too little space for what will be kept is found before the first step, also by a dry run.
    for how in --dry-run ''; do
        refuses 3 'mnt/run: no space for the checkpoints: they take .* are free; they would fit with train.save_every=0 ' \
            train run.yaml --out mnt/run --set train.save_every=1 --set train.keep_checkpoints=10 $how
        [ ! -e mnt/run ] || fail "a run that was refused left $(find mnt/run)"
    done
    refuses 3 'mnt/run/checkpoints.*[Nn]o space' train run.yaml --out mnt/run --force \
        --set train.save_every=1 --set train.keep_checkpoints=10
    saved=$(find mnt/run/checkpoints -name '0*' | sort | tail -n 1)
    runs inspect "$saved"
    mount -o remount,size=16m mnt || fail "the disk cannot be made larger"
    runs train run.yaml --out mnt/run --resume
    says "$ERR" 'resuming after step [1-9]'
    # Full before the run begins: no file is left, and the same command works once there is space.
    rm -rf mnt/run
    mkdir mnt/there
    cat /dev/zero >mnt/fill 2>/dev/null
    for free in 0 4096; do # no space; enough for the run file but not for the tokenizer
        truncate -s -$free mnt/fill
        for folder in new there; do
            refuses 3 "mnt/$folder/.*[Nn]o space" train run.yaml --out mnt/$folder --force
            refuses 3 "mnt/$folder: no space for the checkpoints: .* are free; free some space, or choose a folder" \
                train run.yaml --out mnt/$folder
        done
        [ ! -e mnt/new ] || fail "a run that could not begin left $(find mnt/new)"
        [ -z "$(ls -A mnt/there)" ] || fail "a run that could not begin left $(ls -A mnt/there)"
    done
    rm mnt/fill
    runs train run.yaml --out mnt/there
    # Tokenizing on a full disk leaves no file either.
    cat /dev/zero >mnt/fill 2>/dev/null
    truncate -s -16384 mnt/fill
    for shards in 0 3000; do
        refuses 3 'mnt/x.bin.tmp/.*full' tokenize --tokenizer tokenizer.json --out mnt/x.bin --shard-tokens $shards text.txt
        [ "$(ls -A mnt)" = 'fill
there' ] || fail "tokenize on a full disk left $(ls -A mnt)"
    done
    umount mnt
    trap clean_up EXIT
else
    echo "cannot mount a tmpfs: skipped the part that needs one"
fi

# An unwritable folder. Root may write anywhere, so a file takes the place of the folder.
cp -r constant locked
rm -rf locked/checkpoints/00000024
before=$(sum_of locked)
if [ "$(id -u)" -ne 0 ]; then
    chmod -R a-w locked
    refuses 3 'locked' train run.yaml --out locked --resume
    chmod -R u+w locked
    [ "$before" = "$(sum_of locked)" ] || fail "a read-only run was changed"
fi
: >blocked
refuses 3 'blocked' train run.yaml --out blocked/run
refuses 3 '/proc/strait' train run.yaml --out /proc/strait
