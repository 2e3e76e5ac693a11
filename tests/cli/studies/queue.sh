#!/bin/sh
# queue.sh - jobs packed for a GPU machine, run here on the CPU: results come back while they run, an interrupted run is
# continued by the next call, a job that takes too long is cut, and what is done or published does not run again.
tools=$(cd "$(dirname "$0")/../../../tools/device" && pwd)
. "$(dirname "$0")/../lib.sh"

make_corpus
mkdir data kit
cp train.bin train.json tokenizer.json data && cp train.bin data/valid.bin && cp train.json data/valid.json
printf '#!/bin/sh\nexec env STRAIT_CLI=%s %s "$@"\n' "$SCRATCH" "$STRAIT" >kit/strait
chmod +x kit/strait
cat >tiny.yaml <<'END_OF_STUDY'
name: tiny
about: two codecs on a tiny model
seeds: [1]
control: dense
run:
  model: {width: 32, layers: 2, heads: 2, ffn: 48, context: 16}
  train: {steps: 800, batch_tokens: 128, save_every: 0}
  stages: {count: 2, microbatch: 1}
  link: {transport: inproc}
  device: {threads: 1}
tune: none
variants:
  dense: {}
  int8: {link.codec.name: int8}
END_OF_STUDY
printf '# what: a study\n# seconds: 600\n# alone: yes\nstudy files/tiny.yaml\n' >trains
printf '# what: sleeps once\n# seconds: 600\n[ -e "$FILES/again" ] || { touch "$FILES/again"; sleep 600; }\n' >sleeps
printf '# what: fails\n# seconds: 600\nfalse\n' >fails

export WORK="$SCRATCH/work" DEVICE=cpu SIZE=--small GRACE=60
KIT=kit FILES=tiny.yaml "$tools/pack-queue" pack data ./trains ./sleeps >"$OUT" 2>"$ERR" || fail "pack-queue failed"
says "$OUT" "data.tar.xz" "in all"
KIT=kit "$tools/pack-queue" pack2 data nothing >"$OUT" 2>"$ERR" && fail "a job that does not exist was packed"
says "$ERR" 'there is no job "nothing"'

# calls FOLDER CODE JOB...: runs jobs with results in FOLDER, and checks the exit code.
calls() {
    folder=$1 wanted=$2 code=0
    shift 2
    mkdir -p "$folder"
    OUT="$SCRATCH/$folder" bash pack/run-queue -j 2 -t 3600 "$@" >"$OUT" 2>"$ERR" || code=$?
    [ "$code" -eq "$wanted" ] || fail "run-queue $*: exit code $code, expected $wanted"
}

# Interrupted in its first run: the study saves, and the next call continues it. Nothing is trained twice.
OUT="$SCRATCH/first" bash pack/run-queue -j 1 trains >"$OUT" 2>"$ERR" &
STARTED=$!
until grep -qs '"step":20,' work/studies/tiny/runs/*/metrics.jsonl; do
    kill -0 "$STARTED" 2>/dev/null || fail "the queue ended early"
    sleep 0.05
done
kill "$STARTED"
wait "$STARTED" && fail "an interrupted queue says that all is done"
says "$OUT" "trains was interrupted"
ls work/studies/tiny/runs/*/checkpoints/* >/dev/null 2>&1 || fail "nothing was saved"
calls second 75 trains sleeps:1
says "$OUT" "dense, seed 1: valid_loss [0-9.]+, [0-9]+ s" "int8, seed 1: valid_loss" "trains is done" \
    "sleeps was interrupted" "results.jsonl: 2 runs"
[ "$(wc -l <second/results.jsonl)" -eq 2 ] || fail "expected two results"
[ "$(grep -c '"step":1,"loss"' work/studies/tiny/runs/dense*/metrics.jsonl)" -eq 1 ] || fail "the run began again"
says second/jobs.log "^== trains" "^== sleeps"

# The third call has what is left; its files come back too.
calls third 0
says "$OUT" "trains is done already" "sleeps is done"
tar -tzf third/files.tar.gz | grep -q again || fail "files of jobs do not come back"

# A machine that has the program and the data needs only the jobs. A job that fails does not stop the others.
rm pack/kit.tar.xz pack/data.tar.xz
KIT=none "$tools/pack-queue" pack none ./fails ./sleeps >"$OUT" 2>"$ERR" || fail "pack-queue failed"
calls fourth 1
says "$OUT" "fails failed with exit code 1" "sleeps is done$" # begun again, because the jobs are others

# A control that is trained again for another test text comes back, although its run is published.
printf '# what: a control again\n# seconds: 600\n# alone: yes\nstudy files/tiny.yaml --retest dense\n' >retests
cp train.bin data/test.bin && cp train.json data/test.json
cp third/results.jsonl published.jsonl
KIT=kit FILES=tiny.yaml "$tools/pack-queue" pack data ./retests ./fails >"$OUT" 2>"$ERR" || fail "pack-queue failed"
calls fifth 1 fails # unpacks
mkdir -p work/tree/docs/research/tiny && cp published.jsonl work/tree/docs/research/tiny/results.jsonl
rm -r work/studies
calls sixth 0 retests
says "$OUT" "dense, seed 1: valid_loss [0-9.]+, test_loss [0-9.]+" "results.jsonl: 1 runs"
