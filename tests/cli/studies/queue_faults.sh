#!/bin/sh
# queue_faults.sh - what goes wrong on a rented GPU machine: programs and packs that are broken, runs that fail, are
# killed or are cut. The program is a script, so that nothing here trains.
tools=$(cd "$(dirname "$0")/../../../tools" && pwd)
. "$(dirname "$0")/../lib.sh"

export WORK="$SCRATCH/work" STATE="$SCRATCH/state" DEVICE=cpu SIZE=--small GRACE=20
mkdir state data kit bin
touch data/train.bin run.yaml
PATH="$SCRATCH/bin:$PATH"

# The program: `bench step` prints figures, `train` writes metrics and trains until it is told to save and end.
cat >kit/strait <<'END'
#!/bin/bash
[ ! -e "$STATE/broken" ] || { echo "strait: no such device"; exit 3; }
if [ -e "$STATE/broken-mps" ] && [ -n "${CUDA_MPS_PIPE_DIRECTORY:-}" ]; then echo "strait: MPS is busy"; exit 3; fi
case $1 in
bench)
    case $* in *preflight*) exit 0 ;; *bad*) exit 5 ;; esac
    echo "$3" >>"$STATE/benches"
    if [ -e "$STATE/waits" ] && [ "$(wc -l <"$STATE/benches")" -gt 1 ]; then
        until [ -e "$STATE/goes" ]; do sleep 0.05; done
    fi
    echo '{"seconds_per_step": 1, "best_seconds": 1, "tokens_per_s": 100, "gflops": 1}'
    ;;
train)
    folder="$*"
    folder=${folder##*--out }
    folder=${folder%% *}
    mkdir -p "$folder"
    echo "$*" >"$STATE/trained"
    echo '{"step":1,"loss":2.5,"tokens_per_s":10}' >"$folder/metrics.jsonl"
    trap 'sleep 0.3; echo "{\"step\":2}" >>"$folder/metrics.jsonl"; mkdir -p "$folder/checkpoints/1"; exit 130' TERM
    while :; do sleep 0.1; done
    ;;
esac
END
chmod +x kit/strait

# job NAME LINES: a job of a file.
job() { printf '# what: %s\n%s\n' "$1" "$2" >"$1"; }
job good 'step good x.yaml'
job both 'step bad bad.yaml; step good x.yaml'
job killed 'exit 137'
job large '# least: 200
step large x.yaml'
job quick '# seconds: 5
step quick x.yaml'
job saves 'train tiny run.yaml'
job drops 'KEEP=no train tiny run.yaml'
job leaves '(trap "" TERM; exec sleep 1000) &'
job deaf '(trap "" TERM; exec sleep 1000) & trap "" TERM; wait; sleep 1000'

# pack OUT JOB...: packs the kit and the jobs.
pack() {
    packed=$1
    shift
    KIT=${KIT-kit} "$tools/device/pack-queue" "$packed" "${DATA_OF:-data}" "$@" >"$OUT" 2>"$ERR" || fail "pack-queue $*"
}
# calls CODE ARGS...: runs a queue and checks its exit code.
calls() {
    wanted=$1 code=0
    shift
    STRAIT_CLI="$SCRATCH" OUT="$SCRATCH/out" bash pack/run-queue "$@" >"$OUT" 2>"$ERR" || code=$?
    [ "$code" -eq "$wanted" ] || fail "run-queue $*: exit code $code, expected $wanted"
}
# begins ARGS...: runs a queue in the background.
begins() {
    STRAIT_CLI="$SCRATCH" OUT="$SCRATCH/out" bash pack/run-queue "$@" >"$OUT" 2>"$ERR" &
    STARTED=$!
}
not_said() { ! grep -qE -e "$1" "$OUT" || fail "the queue says \"$1\""; }
has_file() { tar -xzOf out/files.tar.gz "./$1" 2>/dev/null | grep -q "$2"; }

# ---- packs ----

# What is packed is what is there, also if it is older than the archive.
pack pack ./good ./both ./killed ./large ./quick ./saves ./drops ./leaves ./deaf kernels
before=$(cksum <pack/data.tar.xz)
pack pack ./good ./both ./killed ./large ./quick ./saves ./drops ./leaves ./deaf kernels
[ "$before" = "$(cksum <pack/data.tar.xz)" ] || fail "the same data were packed again"
mkdir other && echo other >other/train.bin && touch -d 2000-01-01 other/train.bin other
DATA_OF=other pack pack ./good ./both ./killed ./large ./quick ./saves ./drops ./leaves ./deaf kernels
[ "$(tar -xJOf pack/data.tar.xz ./train.bin)" = other ] || fail "older data were not packed"
DEVICE=cuda KIT=kit "$tools/device/pack-queue" pack-gpu data ./good >"$OUT" 2>"$ERR" && fail "packed without strait.cuda"
says "$ERR" 'has no strait.cuda'

# ---- the program ----

touch state/broken
calls 1 good
says "$OUT" "does not train a tiny model" "no such device"
not_said "begins"
rm state/broken

# MPS that starts and does not work is left out; its daemon does not keep the output open; one that lives is used again.
cat >bin/nvidia-cuda-mps-control <<'END'
#!/bin/sh
if [ "${1:-}" = -d ]; then
    echo start >>"$STATE/daemons"
    sleep 1000 &
    echo $! >"$STATE/daemon"
    exit 0
fi
read -r command
[ -e "$STATE/answers" ] || { [ "$command" = quit ]; }
END
chmod +x bin/nvidia-cuda-mps-control
touch state/broken-mps
STRAIT_CLI="$SCRATCH" DEVICE=cuda OUT="$SCRATCH/out" timeout 60 bash pack/run-queue good 2>"$ERR" | timeout 60 cat >"$OUT"
says "$OUT" "does not train under MPS.*MPS is busy" "good is done"
[ "$(wc -l <state/daemons)" -eq 1 ] || fail "MPS was not started"
rm state/broken-mps
touch state/answers
DEVICE=cuda calls 0 good
[ "$(wc -l <state/daemons)" -eq 1 ] || fail "a daemon that answers was started again"
rm bin/nvidia-cuda-mps-control
kill "$(cat state/daemon)"

# ---- failures ----

calls 1 both killed
says "$OUT" "both failed with exit code 5" "killed failed with exit code 137"
has_file both/steps.jsonl good || fail "a step that failed kept the next one from being measured"
calls 75 -t 100 large
says "$OUT" "large does not begin: [0-9]+ s are left, and it needs 200"
calls 0 -t 1000 leaves quick
says "$OUT" "leaves begins, 9[678][0-9] s at most" "quick begins, 9[678][0-9] s at most"
wait_all_exited # what the job left, too
GRACE=1 calls 75 deaf:1
says "$OUT" "deaf was interrupted"

# ---- interrupted runs ----

begins -t 1000 saves
await "metrics come back while a run trains" has_file saves/tiny.jsonl '"step":1'
kill "$STARTED"
wait "$STARTED" && fail "an interrupted queue says that all is done"
has_file saves/tiny.jsonl '"step":2' || fail "the metrics of an interrupted run do not come back"
ls work/runs/saves/tiny/checkpoints/1 >/dev/null 2>&1 || fail "the run was not saved"
begins -t 1000 drops
await "the run trains" has_file drops/tiny.jsonl '"step":1'
kill "$STARTED"
wait "$STARTED" && fail "an interrupted queue says that all is done"
has_file drops/tiny.jsonl '"step":1' || fail "the metrics of a run that is not kept do not come back"
wait_all_exited
[ ! -e work/runs/drops/tiny/checkpoints ] || fail "a run that is not kept was saved"
says state/trained --force save_every=-1

# ---- jobs of several parts ----

# Steps come first, and a test program that passed is not run again.
printf '#!/bin/sh\necho a >>"$STATE/tests"\n' >work/kit/test_a
printf '#!/bin/sh\n[ -e "$STATE/b" ] || { touch "$STATE/b"; sleep 1000; }\n' >work/kit/test_b
chmod +x work/kit/test_*
rm -f state/benches
begins -t 1000 kernels
await "a test hangs" test -e state/b
kill "$STARTED"
wait "$STARTED" && fail "an interrupted queue says that all is done"
has_file kernels/steps.jsonl dense-1 || fail "steps do not come first"
calls 0 kernels
[ "$(wc -l <state/benches)" -eq 6 ] || fail "steps were measured again"
[ "$(wc -l <state/tests)" -eq 1 ] || fail "a test that passed ran again"
has_file kernels/tests.txt 'ok test_b' || fail "the test that was cut did not run again"

# The table of bench-scaling has a row as soon as it is measured.
rm state/benches
touch state/waits
STAGES="1 2" WIDTHS=64 CONTEXTS=64 VOCABS=64 MICROBATCHES=1 "$tools/bench-scaling" kit/strait run.yaml >table.md 2>"$ERR" &
STARTED=$!
await "the first row is there while the second is measured" has_text table.md '^\| stages \| 1 \| 100 \|'
touch state/goes
wait "$STARTED" || fail "bench-scaling failed"
[ "$(grep -c '^| [a-z]* | [0-9]' table.md)" -eq 7 ] || fail "rows are missing"
says table.md '^\| stages \| 1 \| 100 .* base, timed again \|$'

# ---- another pack on the same machine ----

rm out/queue.log
pack pack ./good ./quick
calls 0 good
not_said "good is done already"
head -c 100 pack/kit.tar.xz >short && mv short pack/kit.tar.xz
calls 1 good
says "$OUT" "kit.tar.xz is missing or broken"
