#!/bin/sh
# study.sh - a tiny study: killed and resumed, runs that are done are skipped, a failed run does not stop the
# rest, results are carried to another folder, and broken study files are refused with one line.
studies=$(cd "$(dirname "$0")/../../studies" && pwd)
. "$(dirname "$0")/lib.sh"

make_corpus
head -c 4000 text.txt >test.txt
runs tokenize --tokenizer tokenizer.json --out test.bin test.txt

# eval --as-run scores shards as the run itself validates, on the run's stages.
make_run run.yaml
runs train run.yaml --out one --set stages.count=2 --set data.valid_tokens=0
runs eval one --data train.bin --as-run --json
loss=$(sed -n 's/^{"step":10,"valid_loss":\([0-9.]*\)}$/\1/p' one/metrics.jsonl)
says "$OUT" "\"loss\": $loss, "
refuses 2 "needs --data" eval one --text text.txt --as-run

# A run that keeps no weights still has its metrics.
runs train run.yaml --out light --set train.save_every=-1
[ "$(grep -c valid_loss light/metrics.jsonl)" -eq 2 ] || fail "expected two validations"
ls light/checkpoints/* >/dev/null 2>&1 && fail "save_every -1 wrote a checkpoint"

cat >tiny.yaml <<'END'
name: tiny
about: two codecs on a tiny model
seeds: [1, 2]
control: dense
test: test.bin
run:
  model: {width: 32, layers: 2, heads: 2, ffn: 48, context: 16}
  data: {train: train.bin, valid: train.bin, tokenizer: tokenizer.json, valid_tokens: 64}
  train: {steps: 30, batch_tokens: 128, save_every: 2, valid_every: 5}
  stages: {count: 2, microbatch: 1}
  link: {transport: inproc}
  device: {threads: 1}
tune: {steps: 4, train.learning_rate: [0.0001, 0.005]}
time_to_loss: {against: [dense], stages: 2, gflops: 0.1}
variants:
  dense: {curve: dense}
  int8: {link.codec.name: int8, curve: integers}
END

runs study --list
says "$OUT" "codecs" "embedding"
[ "$(grep -cE '^  [a-z-]+ +\[[1-9][0-9]* min\] ' "$OUT")" -eq "$(ls "$studies" | wc -l)" ] ||
    fail "a study does not say how long it takes"
runs study tiny.yaml --dry-run
says "$OUT" "dense, trial train.learning_rate=0.005 +to run .* 4 steps" "int8, seed 2 +after its trials" "to do: "
[ ! -e runs ] || fail "a dry run wrote files"
# The curve of codec strait: its runs can be planned, and 4x is the stream in 4 bits, without parameters of a codec.
mkdir corpus
cp train.bin tokenizer.json corpus && cp train.bin corpus/valid.bin
runs study curve --data corpus --dry-run
dense=$(sed -n 's/^dense, seed 1 .* \([0-9.]*\)M parameters.*/\1/p' "$OUT")
says "$OUT" "^strait-4x, seed 1 +to run +${dense}M" "^strait-256x, seed 1 +to run"
! grep -q "^strait-256x.* ${dense}M" "$OUT" || fail "a code without parameters: $(cat "$OUT")"

runs study late --data corpus --dry-run
says "$OUT" "^late-half, seed 1 +to run" "^late-half-double, seed 1 +to run .* 30 steps"
# Scale: a row of every width has a control with the same steps and tokens.
runs study scale --data corpus --dry-run
for width in 384 512; do
    steps=$(sed -n "s/^dense-$width, seed 1 .* \([0-9]*\) steps\$/\1/p" "$OUT")
    says "$OUT" "^strait-$width, seed 1 +to run .* ${steps:-no} steps\$"
done

# Killed in its first run, then again later, and continued: every run ends once, with the steps it needs.
# waits_for PATTERN: waits until a file of this name is there, or the study in the background has ended.
waits_for() {
    while ! is_over "$STARTED"; do
        ls $1 >/dev/null 2>&1 && return
        sleep 0.02
    done
    fail "the study ended before it wrote $1"
}
begin study tiny.yaml --out out --jobs 2
waits_for "out/runs/*/checkpoints/*"
kill -9 "$STARTED"
reap
wait_all_exited # its runs ended with it
runs study tiny.yaml --out out --jobs 2
says "$OUT" "^dense +2 +[0-9.]+ " "^int8 .* of dense, \+/- [0-9.]+%"
says "$ERR" "int8, seed 2: loss [0-9.]+, test [0-9.]+" "report: out/report.html"
[ "$(wc -l <out/results.jsonl)" -eq 8 ] || fail "results.jsonl: expected 4 trials and 4 runs"
ls out/runs/*/checkpoints >/dev/null 2>&1 && fail "weights were not removed"
[ "$(ls -d out/runs/*/metrics.jsonl | wc -l)" -eq 8 ] || fail "expected 8 runs with raw metrics"

# A report with other data or options, which would have no row, leaves the table of these results as it is.
before=$(sum_of out)
refuses 3 'out/results.jsonl: has results of 8 runs, none of them of this study' study tiny.yaml --out out --report \
    --set train.batch_tokens=256
[ "$before" = "$(sum_of out)" ] || fail "a report that was refused changed the folder"

# The best choice of the trials was taken.
says out/results.jsonl '"name":"int8, seed 2".*"learning_rate":0.005'

# The report has everything beside every loss, and asks nothing of other machines.
head -n 1 out/table.csv >head.csv
says head.csv "^variant,seeds,parameters,MFLOP/token,bytes/token forward,backward,ratio forward" \
    "s/step,seconds,learning rate,valid loss,\+/-,control,difference,\+/-,percent,\+/-,test loss,\+/-$"
says out/table.md "^\| int8 \| 2 \| 0.0[0-9]M \| 0\.[0-9] \| 3[0-9.]+ \| 3[0-9.]+ \| [0-9.]+x"
! grep -q "$SCRATCH" out/table.md || fail "the table names a folder of this machine"
says out/report.html "<svg" "<td>int8</td>" "95% confidence" "Every run"
grep -E '(src|href|url)[ ="(]*http' out/report.html && fail "report.html loads from elsewhere"
for file in curves seconds pareto time-80mbit-50ms time-200mbit-50ms-meter; do
    says out/$file.svg "</svg>"
done
says out/summary.csv "^int8,2,[0-9.]+,0.0M,.*[+-][0-9.]+% \+/- [0-9.]+% of dense$"
says out/pareto.svg ">integers</text>" 'stroke-width="1.2" points' # its interval

# The time to a loss: steps by hand from the curves, seconds per step as strait plan says them for the best microbatch.
jq -s 'map(select(.seed == 1 and .is_trial == false)) | map({(.name[:4]): .curve}) | add
    | (.int8[-1][1]) as $goal | ."dens" as $c
    | first(range($c | length) | select($c[.][1] <= $goal)) as $i | $c[$i - 1] as $a | $c[$i] as $b
    | if $i == 0 then $b[0] else $a[0] + ($b[0] - $a[0]) * ($a[1] - $goal) / ($a[1] - $b[1]) end' \
    out/results.jsonl >steps
run=$(ls out/runs/int8-seed-1-*.yaml)
for size in 1 2 4 8; do
    runs plan "$run" --gflops 0.1 --json --set stages.microbatch=$size --set stages.window=0 \
        --set link.emulate.rate=80mbit --set link.emulate.delay=50ms \
        --set link.meter.rate=80mbit --set link.meter.delay=50ms
    cat "$OUT"
done | jq -s '[(map(.seconds) | min), (map(.meter_seconds) | min)]' >planned
awk -F , -v steps="$(cat steps)" '$1 == "int8" && $NF !~ /not/ && (d = $NF - steps) * d > 0.3 { exit 1 }' out/steps-to-loss.csv ||
    fail "dense needs $(cat steps) steps, not as $(grep int8 out/steps-to-loss.csv)"
for kind in full-duplex:0 meter:1; do
    awk -F , -v wanted="$(jq ".[${kind#*:}]" planned)" '$1 == "int8" && $2 == 80 && $3 == 50 {
        n++; if ($4 < 0.99 * wanted || $4 > 1.01 * wanted) exit 1 } END { exit n != 1 }' "out/time-${kind%:*}.csv" ||
        fail "time-${kind%:*}.csv has $(grep int8,80,50 "out/time-${kind%:*}.csv"), strait plan $(cat planned)"
done
says out/time-full-duplex.csv "^dense,80,25,.*,1.00x$"

# The same command again trains nothing. The same results elsewhere do, too, with other paths.
sum=$(cksum <out/results.jsonl)
runs study tiny.yaml --out out
[ "$(cksum <out/results.jsonl)" = "$sum" ] || fail "a finished study trained again"
mkdir elsewhere
cp tiny.yaml train.bin train.json tokenizer.json test.bin test.json elsewhere/
runs study elsewhere/tiny.yaml --out carried --merge out/results.jsonl --dry-run
says "$OUT" "int8, seed 2 +done" "to do: 0 TFLOP"
[ ! -e carried ] || fail "a dry run wrote the results that it took over"
runs study elsewhere/tiny.yaml --out carried --merge out/results.jsonl
says "$ERR" "out/results.jsonl: 8 new results"
ls carried/runs/*/metrics.jsonl >/dev/null 2>&1 && fail "results of another folder were trained again"
cmp -s out/table.csv carried/table.csv || fail "the carried results give another table"

# --speed divides the steps of what is left in another way; what is done stays done.
grep -v '"name":"int8, seed 2"' out/results.jsonl >less.jsonl
refuses 2 "stages.microbatch=N" study tiny.yaml --out sped --speed train.steps=2
runs study tiny.yaml --out sped --merge less.jsonl --speed stages.microbatch=2
[ "$(wc -l <sped/results.jsonl)" = "$(wc -l <out/results.jsonl)" ] || fail "--speed made other runs"
says sped/results.jsonl '"name":"int8, seed 2".*"speed":."stages.microbatch=2".'
says "$(ls sped/runs/int8-seed-2-*.yaml)" "microbatch: 2"

sed 's/int8: {link.codec.name: int8,/int8: {link.codec.name: lowrank,/; s/^tune.*//' tiny.yaml >carries.yaml
refuses 2 "codec lowrank carries state" study carries.yaml --out carries --speed stages.microbatch=2
[ ! -e carries/runs ] || fail "a run whose losses change was begun"
runs study carries.yaml --out carries --dry-run --speed stages.window=2
runs study carries.yaml --out carries --dry-run --only dense --speed stages.microbatch=2

# A paired difference by hand: the mean over seeds of what the test losses differ by.
awk -F '[:,]' '{ for (i = 1; i < NF; i++) if ($i ~ /"test_loss"/) t = $(i + 1) }
    /"name":"dense, seed/ { d += t; n++ } /"name":"int8, seed/ { e += t }
    END { if (n != 2) exit 1; printf "%+.4f\n", (e - d) / n }' out/results.jsonl >difference ||
    fail "no test losses"
[ "$(sed -n 's/^int8,.*,dense,\([^,]*\),.*/\1/p' out/table.csv)" = "$(cat difference)" ] ||
    fail "the table's difference is not $(cat difference)"

# Runs on another test text are no pairs: with one seed left, the difference is that seed's, and the table says so.
head -c 3000 text.txt >test2.txt
runs tokenize --tokenizer tokenizer.json --out test2.bin test2.txt
sed 's/^test: test.bin/test: test2.bin/' tiny.yaml >texts.yaml
runs study texts.yaml --out texts --merge less.jsonl
texts=$(grep -o '"test_text":"[0-9a-f]*"' texts/results.jsonl | sort | uniq -c | awk '{ print $1 }' | sort | tr '\n' ' ')
[ "$texts" = "1 3 " ] || fail "expected one run on the other text and three on the first, not $texts"
says texts/table.md "int8: 1 of its runs and the control's runs of the same seeds were evaluated on different test texts"
grep -q '^int8,2,.*,dense,[^,]*,-,' texts/table.csv || fail "an interval from one pair: $(cat texts/table.csv)"

# --retest trains the control again for the other text. It keeps its losses on the first, and every run has its pair.
refuses 2 "the study has no such variant" study texts.yaml --out texts --retest nothing
sed '/^test:/d' tiny.yaml >untested.yaml
refuses 2 "the study has no test text" study untested.yaml --out texts --retest dense
runs study texts.yaml --out texts --retest dense --dry-run
says "$OUT" "dense, seed 1 +to run" "dense, seed 2 +to run" "int8, seed 1 +done" "int8, seed 2 +done"
runs study texts.yaml --out texts --retest dense
[ "$(grep -c '"name":"dense, seed' texts/results.jsonl)" = 4 ] || fail "dense was not trained again"
grep -q '^int8,2,.*,dense,[^,]*,[0-9]' texts/table.csv || fail "no interval from two pairs: $(cat texts/table.csv)"
grep -q "different test texts" texts/table.md && fail "runs without a pair: $(cat texts/table.md)"
runs study texts.yaml --out texts --retest dense --dry-run
says "$OUT" "to do: 0 TFLOP"
runs study tiny.yaml --out joined --merge less.jsonl --merge texts/results.jsonl --dry-run
says "$ERR" "texts/results.jsonl: 3 new results"
says "$OUT" "to do: 0 TFLOP"

# The gap to the control: of the mean losses at the end, and along the curves of the first seed.
sed 's/^seeds:/analysis: gap\n&/' tiny.yaml >gap.yaml
runs study gap.yaml --out gap --merge out/results.jsonl
jq -s 'map(select(.is_trial == false)) | (map(select(.name[:4] == "int8"))) as $a | (map(select(.name[:4] == "dens"))) as $b
    | def gap($x; $y): 100 * ($x / $y - 1);
    "\(gap([$a[].test_loss] | add; [$b[].test_loss] | add)) \(gap($a[0].curve[-1][1]; $b[0].curve[-1][1]))"' \
    out/results.jsonl | tr -d '"' >gaps
awk -F , -v wanted="$(cat gaps)" 'NR == 2 { split(wanted, w, " "); for (i = 1; i < 3; i++) d[i] = $(5 + i) - w[i]
    exit $1 != "int8" || $2 != "dense" || d[1] * d[1] > 1e-6 || d[2] * d[2] > 1e-6 } END { if (NR != 2) exit 1 }' \
    gap/gap.csv || fail "gaps by hand $(cat gaps), not as $(cat gap/gap.csv)"
says gap/gap-scale.svg ">integers</text>"
says gap/gap-tokens.svg ">int8</text>"
printf 'analysis: gaps\nvariants: {a: {}}\nrun: {data.train: train.bin}\n' >broken.yaml
refuses 2 "analysis: expected bandwidth, gap or stable-rank" study broken.yaml

# A run that fails is reported; the others are trained, and the failure is not taken for a result.
cat >>tiny.yaml <<'END'
  lost: {link.transport: tls, link.emulate.drop_after: 10ms, link.deadline: 5s, tune: none}
END
sed -i 's/against: \[dense\], stages: 2/against: [dense, lost], stages: 3/' tiny.yaml # two layers are not three stages
refuses 3 "2 runs failed; the same command tries again" study tiny.yaml --out out
says out/time-full-duplex.csv "^int8,80,25,-,-,(-|not reached),not run$"
says "$ERR" "lost, seed 1: FAILED: "
says "$OUT" "^lost +0 failed" "^int8 +2 "
says out/report.html "Failed: lost, seed 1"
[ "$(grep -c '"error":' out/results.jsonl)" -eq 2 ] || fail "failures are missing in results.jsonl"

# Interrupted: what is done is reported, and the code says so.
begin study tiny.yaml --out stopped --only int8
waits_for stopped/results.jsonl
kill -INT "$STARTED"
ends 130
says "$ERR" "interrupted: run the same command again"
wait_all_exited
[ -s stopped/report.html ] || fail "no report after an interruption"

# Ctrl-C and timeout(1) signal the whole process group, timeout the study twice: the run saves all the same, also
# one that saves only at its end, and continues from there.
sed -e '/^seeds:/d' -e '/^t[ui][nm]e[_:]/d' -e '/^  lost:/d' -e '/^  int8:/d' -e 's/save_every: 2/save_every: 0/' \
    -e 's/steps: 30/steps: 4000/' tiny.yaml >long.yaml
setsid env STRAIT_CLI="$SCRATCH" "$STRAIT" study long.yaml --out long >"$OUT" 2>"$ERR" </dev/null &
STARTED=$!
waits_for "long/runs/*/metrics.jsonl"
folder=$(ls -d long/runs/*/)
wait_lines "$folder" 3
kill -STOP -- "-$STARTED" # both signals wait for it, and come at once also on a busy machine
kill -INT "$STARTED"
kill -TERM -- "-$STARTED"
kill -CONT -- "-$STARTED"
ends 130
wait_all_exited
ls "$folder/checkpoints" | grep -q . || fail "the interrupted run did not save"
begin study long.yaml --out long
wait_lines "$folder" $(($(wc -l <"$folder/metrics.jsonl") + 1))
kill -TERM "$STARTED"
ends 130
says "${folder%/}.log" "^resuming after step [1-9]"

# Further seeds go to the best row after its control, when every row has its first; then come rows of one seed, and last
# the seeds of other controls.
sed -e '/^seeds:/d' -e '/^test:/d' -e '/^t[ui][nm]e[_:]/d' -e '/^  lost:/d' -e 's/steps: 30/steps: 4/' tiny.yaml >more.yaml
cat >>more.yaml <<'END'
  once: {train.learning_rate: 0.006, one_seed: true}
  spare: {is_control: true, train.learning_rate: 0.004}
  slow: {train.learning_rate: 0.0000001}
more_seeds: {best: 1, seeds: [5, 6]}
END
sed -i 's/^run:$/run:\n  train.learning_rate: 0.005/' more.yaml
runs study more.yaml --out more
sed 's/.*"name":"\([a-z0-9]*\), seed \([0-9]*\)".*/\1 \2/' more/results.jsonl | tr '\n' ' ' >order
[ "$(cat order)" = "dense 1 int8 1 spare 1 slow 1 dense 5 dense 6 int8 5 int8 6 once 1 spare 5 spare 6 " ] ||
    fail "the runs came in the order $(cat order)"

# What averages of replicas send, per token of the whole run: the last interval has one step instead of three.
sed -e '/^seeds:/d' -e '/^test:/d' -e '/^t[ui][nm]e[_:]/d' -e '/^  [dil][a-z0-9]*: {[cl]/d' -e 's/steps: 30/steps: 4/' \
    tiny.yaml >apart.yaml
cat >>apart.yaml <<'END'
  dense: {stages.count: 1, stages.replicas: 2, train.outer: {sync_every: 3, bits: 8}}
columns: [average_bytes_per_token, divergence]
END
runs study apart.yaml --out apart
jq -s 'map(select(.average_bytes_per_token)) | (.[0].average_bytes_per_token * 3 + .[1].average_bytes_per_token) / 4' \
    apart/runs/*/metrics.jsonl >mean
jq -e --argjson mean "$(cat mean)" '(.average_bytes_per_token / $mean - 1 | fabs) < 1e-6 and .divergence_max >= .divergence and
    .divergence > 0' apart/results.jsonl >"$OUT" || fail "averages send $(cat mean) bytes per token, not as $(cat apart/results.jsonl)"
says apart/figures.csv "average_bytes_per_token"

# Broken studies get one line, and leave no folder.
refuses 2 "no-such: neither a built-in study" study no-such
refuses 2 "expected 1 to 64" study tiny.yaml --jobs 0
refuses 2 "choose one of" study tiny.yaml --small --full
refuses 2 "needs one study" study
refuses 2 "the study has no such variant" study tiny.yaml --only int9
printf 'variants: {a: {model.wdith: 8}}\n' >broken.yaml
refuses 2 'broken.yaml:1:29: .*model.width' study broken.yaml --out broken
printf 'variants: {a: {link.codec.name: nothing}}\nrun: {data.train: train.bin}\n' >broken.yaml
refuses 2 "a: .*nothing" study broken.yaml --out broken
printf '{"key":1}\n' >bad.jsonl
refuses 3 "bad.jsonl:1" study tiny.yaml --out broken --merge bad.jsonl
ls broken/runs >/dev/null 2>&1 && fail "a broken study started runs"
exit 0
