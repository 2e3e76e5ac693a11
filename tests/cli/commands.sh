#!/bin/sh
# commands.sh - checks that every command does what its help says.
. "$(dirname "$0")/lib.sh"

# Help, versions, options.
runs help
says "$OUT" '^usage: strait COMMAND' '^  train ' '^  completion '
commands=$(awk '/^  / { print $1 }' "$OUT")
for command in $commands; do
    runs help "$command"
    says "$OUT" "^strait $command"
    cp "$OUT" help.txt
    runs "$command" --help
    cmp -s help.txt "$OUT" || fail "help $command and $command --help differ"
    awk 'length($0) > 80 { exit 1 }' help.txt || fail "help $command is wider than 80 columns"
done
runs version
says "$OUT" '^strait [0-9]+\.[0-9]+\.[0-9]+$'
cp "$OUT" version.txt
for word in --version -V; do
    runs $word
    cmp -s version.txt "$OUT" || fail "version and $word differ"
done
strait >"$OUT" 2>"$ERR"
[ $? -eq 2 ] || fail "strait without a command does not exit with 2"
says "$ERR" '^usage: strait COMMAND'
runs options
says "$OUT" 'model.width' 'link.codec.name' 'device.threads'
awk 'length($0) > 80 { exit 1 }' "$OUT" || fail "options are wider than 80 columns"
runs options train
says "$OUT" 'train.steps'
grep -q 'model.width' "$OUT" && fail "options train lists other sections"
runs options link.codec
says "$OUT" 'link.codec.keep'
grep -q 'link.meter' "$OUT" && fail "options link.codec lists other keys"
runs options train.learning_rate
[ "$(grep -c '^  [a-z]' "$OUT")" -eq 1 ] || fail "options train.learning_rate is not one key"
runs options --markdown
says "$OUT" '^\| `train.steps` \|'

# Tokens: the same ids from a file, from standard input, compressed, and as JSON Lines.
make_corpus
make_run run.yaml 2 30
strait tokenize --tokenizer tokenizer.json --out stdin.bin - <text.txt >"$OUT" 2>"$ERR" ||
    fail "tokenize cannot read standard input"
cmp -s train.bin stdin.bin || fail "standard input gives other tokens"
gzip -k text.txt
runs tokenize --tokenizer tokenizer.json --out packed.bin text.txt.gz
cmp -s train.bin packed.bin || fail "a compressed file gives other tokens"
awk '{ gsub(/"/, "\\\""); printf "%s%s", NR == 1 ? "{\"body\": \"" : "\\n", $0 }
    END { print "\"}" }' text.txt >text.jsonl
runs tokenize --tokenizer tokenizer.json --out lines.bin --field body text.jsonl
cmp -s train.bin lines.bin || fail "JSON Lines give other tokens"
runs tokenize --tokenizer tokenizer.json --out cut.bin --shard-tokens 3000 text.txt
[ -f cut-00002.bin ] || fail "the corpus was not split into three shards"
runs inspect --verify cut.json
says "$OUT" 'in 3 shards' 'verified'

# A dry run prints its plan and does not train.
runs train run.yaml --out planned --dry-run
says "$OUT" '^peak memory .*\([0-9]+ bytes\)' '^step  *128 tokens in 8 microbatches of 1'
[ ! -e planned ] || fail "a dry run left a folder"
mkdir -p planned/checkpoints
refuses 2 'planned already contains a run' train run.yaml --out planned --dry-run
runs train run.yaml --out planned --dry-run --resume

# The meter of Protocol NanoGPT, in a plan and in a run.
metered="--set stages.count=2 --set link.meter.rate=1mbit --set link.meter.delay=3ms"
runs plan run.yaml --gflops 10 $metered
says "$OUT" '^meter  [0-9.]+ s per step, one inbound wire per stage at 1 Mb/s, 3 ms latency$'
runs plan run.yaml --gflops 10 --set stages.count=2
says "$OUT" '^here   [0-9.e-]+ s, [0-9]+ tokens/s at most if all stages share one such device$'
! grep -q '^meter' "$OUT" || fail "a meter is printed that was not configured"
says "$OUT" '^kept   up to [0-9.]+ [kKM]i?B more per stage in a swarm'
runs train run.yaml --out metered $metered --set train.steps=2 --set link.transport=inproc
says metered/metrics.jsonl '"meter_seconds":[0-9.]+,"residual_forward":\[0\],"residual_backward":\[0\]'
runs bench step run.yaml --steps 2
jq -e '.tokens_per_s > 0 and .peak_bytes > 0 and .model_parameters > 0 and .device != ""' \
    "$OUT" >/dev/null || fail "bench step: $(cat "$OUT")"

# Against another command: both run as often as asked for, and the ratio is that of the pairs.
runs bench step run.yaml --steps 1 --warm 0 --pairs=2 --against \
    "echo x >>'$SCRATCH/reference'; echo '{\"bench\": \"it'\\''s\", \"tokens_per_s\": 0.5}'"
jq -es 'length == 3 and all(.[:2][]; .bench == "pair" and (.ratio / (2 * .tokens_per_s) - 1 | fabs) < 1e-3) and
    (.[2] | .bench == "against" and .pairs == 2 and .reference_tokens_per_s == 0.5 and .ratio_least <= .ratio and
        .ratio <= .ratio_most and .ratio_half_95 >= 0)' "$OUT" >/dev/null || fail "bench --against: $(cat "$OUT")"
[ "$(wc -l <reference)" -eq 2 ] || fail "the reference was not run twice"
refuses 3 '"exit 7" ended with code 7' bench step run.yaml --steps 1 --warm 0 --against 'exit 7'
refuses 3 '"true" printed no line with "tokens_per_s"' bench step run.yaml --steps 1 --warm 0 --against true
refuses 2 '--against compares steps' bench kernels run.yaml --against true
refuses 2 '--pairs must be between 1 and 200' bench step run.yaml --pairs 0
runs bench kernels run.yaml --only rmsnorm --repeats 2
jq -es 'length == 3 and .[0].bench == "device" and .[0].gb_per_s >= 0 and .[0].tflop_per_s >= 0 and
    ([.[1:][] | .kernel] == ["rmsnorm", "rmsnorm_back"]) and
    all(.[1:][]; .us > 0 and .least_us <= .us and .us <= .most_us and .bytes > 0 and
        .gb_per_s >= 0 and .of_floor >= 0)' "$OUT" >/dev/null || fail "bench kernels: $(cat "$OUT")"
runs bench kernels run.yaml --only "matmul out" --repeats 1
jq -es '.[1].flop > 0 and .[1].tflop_per_s >= 0' "$OUT" >/dev/null || fail "bench kernels counts no flop for a matrix product"
runs bench codec run.yaml --only 100x --repeats 1 --set stages.count=2
jq -es 'length == 2 and all(.[]; .crossings_us > 0 and .stage_us > 0 and .share > 0 and .share < 1 and
    .share_with_weights >= .share and .bytes_per_token > 0)' "$OUT" >/dev/null ||
    fail "bench codec: $(cat "$OUT")"
refuses 2 'stages.count is 1' bench codec run.yaml
refuses 2 "no kernel has that in its name" bench kernels run.yaml --only teleport
refuses 2 "no codec of this benchmark has that in its name" \
    bench codec run.yaml --only teleport --set stages.count=2
refuses 2 'must be between 1 and' bench kernels run.yaml --repeats 0

# Inspecting a run.
runs train run.yaml --out run --set train.learning_rate=0.02
runs train run.yaml --out cut --set train.learning_rate=0.02 --set stages.count=2
runs inspect run
says "$OUT" '^run: run' 'training loss: 1:5\.' 'validation loss: 5:' 'checkpoints: 28 30'
runs inspect run/checkpoints/00000030
says "$OUT" 'after step 30, undamaged' 'width=32' 'stage-0.safetensors' 'stage-0.state.safetensors'
runs inspect run/checkpoints/00000030/stage-0.safetensors
says "$OUT" 'safetensors' ' F32 ' 'tensors'
runs inspect train.bin
says "$OUT" '8506 tokens in 1 shard' 'vocabulary 300'
runs inspect tokenizer.json
says "$OUT" 'tokenizer, 300 tokens' 'fingerprint [0-9a-f]{32}'
jq -e . run/metrics.jsonl >/dev/null || fail "metrics.jsonl is not JSON"

# Comparing runs: one stage and two have the same losses; a target loss that no run reached.
runs compare run cut --plot losses.svg
says "$OUT" '^run +30 ' '^cut +30 .* \+0\.00% ' 'until the validation loss fell to '
says losses.svg '^<svg ' '>run</text>' '>cut</text>'
runs compare run metered/metrics.jsonl --json --loss 0.001
jq -es '(.[0].valid_loss > 1) and (.[0].steps_to == null) and (.[1].meter_seconds > 0)' "$OUT" \
    >/dev/null || fail "compare --json: $(cat "$OUT")"
refuses 2 'expected step, tokens, seconds, meter, traffic or bytes' compare run --against miles
odd=$(printf 'a\377b<\001c') # not UTF-8: replaced, so that JSON and SVG stay valid
cp -r run "$odd"
runs compare run "$odd" --json --plot odd.svg
jq -es '.[1].run == "a?b<?c"' "$OUT" >/dev/null || fail "JSON of an odd name: $(cat "$OUT")"
iconv -f UTF-8 -t UTF-8 odd.svg >/dev/null || fail "the plot is not valid UTF-8"
refuses 2 '--loss 0: expected above 0' compare run --loss 0
runs compare run cut --plot bytes.svg --against bytes
says "$ERR" '^note: run sent no bytes and is not in the plot$'
awk 'BEGIN {
    for (i = 1; i <= 6000; i++)
        printf "{\"step\":%d,\"loss\":2}\n{\"step\":%d,\"valid_loss\":%g}\n", i, i, 9 - i / 1000
}' >long.jsonl
ln -s target.svg link.svg
: >target.svg
runs compare long.jsonl --plot link.svg
[ -L link.svg ] || fail "a symbolic link was replaced instead of its target"
says target.svg '>6000</text>' # more validations than the plot has points per line
echo '{"step":1,"loss":2}' >young.jsonl
runs compare run young.jsonl
says "$ERR" '^note: young.jsonl has no validation yet and is left out'
refuses 3 'no run has a validation yet' compare young.jsonl

# A report: one file with the figures of metrics.jsonl, what was run, and nothing from elsewhere.
printf 'sampled <b>text' >sample.txt
runs report run/ cut --out both.html --title 'A & B' --text sample.txt
says "$OUT" '^both.html$'
says both.html '<h1>A &amp; B</h1>' '<tr><td>run</td><td>1</td><td>-</td><td>30</td>' '<tr><td>cut</td><td>2</td>' \
    "<td>$(jq -r 'select(.step == 30 and .loss).loss' run/metrics.jsonl | xargs printf %.4f)</td>" \
    '>training loss</text>' '>validation loss</text>' 'sampled &lt;b>text' '^  steps: 30$'
# The icon is empty, so that browsers ask for none.
! sed 's|href="data:,"||' both.html | grep -qE '(src|href)=|https?://[^w]|<script|^ *#' || fail "the report refers to other files, or has defaults"
sed -n '/<pre/,/<\/pre/p' both.html >verbatim
grep -q '^ *steps: ' verbatim || fail "the report does not say what was run"
! awk 'key && (match($0, /[^ ]/) <= at) { print key; exit } { key = /:$/ ? $0 : ""; at = match($0, /[^ ]/) }' verbatim | grep . ||
    fail "the report has sections without keys"
runs report run
[ -s run/report.html ] || fail "report.html is not in the run's folder"
rm run/report.html
refuses 2 'corpus: not the folder of a run' report corpus
refuses 2 'report needs 1 to 8 runs' report
refuses 3 '--out /nowhere/x.html: folder /nowhere does not exist' report run --out /nowhere/x.html
refuses 3 'none.txt' report run --text none.txt --out none.html
[ ! -e none.html ] || fail "a report that failed left a file"

# Scores: text and its tokens, one stage and two, agree.
runs tokenize --tokenizer tokenizer.json --out plain.bin --no-eot text.txt
runs eval run --text text.txt --json
cp "$OUT" text.json
jq -e '.loss > 0 and .perplexity > 1 and .tokens == 8504' text.json >/dev/null ||
    fail "eval --json: $(cat text.json)"
runs eval run --data plain.bin --json
cmp -s text.json "$OUT" || fail "eval of text and of its tokens differ"
gzip -c text.txt >again.gz
runs eval run --text again.gz --json
cmp -s text.json "$OUT" || fail "eval of compressed text differs"
runs eval run --text text.jsonl --field body --json
cmp -s text.json "$OUT" || fail "eval of JSON Lines differs"
runs eval cut --text text.txt --json
cmp -s text.json "$OUT" || fail "eval of one stage and of two differ"
runs eval run/checkpoints/00000028 --text text.txt
says "$OUT" '^loss [0-9.]+$' '^perplexity ' '^tokens 8504$'

# Generation depends on the seed, except at temperature 0.
generate() {
    runs generate run --prompt 'the sea' --tokens 40 "$@"
    cat "$OUT"
}
one=$(generate --seed 7)
[ "$one" = "$(generate --seed 7)" ] || fail "the same seed gives other text"
[ "$one" != "$(generate --seed 8)" ] || fail "another seed gives the same text"
[ "$one" = "$(generate --seed 7 --threads 2)" ] || fail "the number of threads changes the text"
cold=$(generate --temperature 0 --seed 1)
[ "$cold" = "$(generate --temperature 0 --seed 2)" ] || fail "temperature 0 depends on the seed"
[ "$cold" = "$(generate --top-k 1)" ] || fail "--top-k 1 is not the most likely token"
[ "$cold" = "$(generate --top-p 0.000001)" ] || fail "a tiny --top-p is not the most likely token"
case $one in 'the sea'*) ;; *) fail "the text does not begin with the prompt" ;; esac
[ "the sea$(generate --seed 7 --no-prompt)" = "$one" ] || fail "--no-prompt changes the text"
runs generate run --prompt "$(head -c 600 text.txt)" --tokens 5 # longer than the context of 16
says "$OUT" '^'"$(head -n 1 text.txt)"'$'
runs generate run --tokens 5
runs generate cut --prompt 'the sea' --tokens 40 --seed 7
[ "$one" = "$(cat "$OUT")" ] || fail "one stage and two generate different text"

# eval and generate apply codecs that are part of the model: eval must repeat the last validation loss
# of the run.
for codec in strait/ strait/tied subspace/ resbm/a resbm/b; do
    name=${codec%/*} variant=${codec#*/} codec=$name$variant
    runs train run.yaml --out "$codec" --set stages.count=2 --set link.codec.name=$name \
        --set link.codec.variant=$variant --set link.codec.keep=8 --set data.valid_tokens=0 \
        --set train.valid_every=0 --set train.steps=8
    wanted=$(jq -s 'map(select(.valid_loss)) | last | .valid_loss' "$codec/metrics.jsonl")
    runs eval "$codec" --data train.bin --json
    jq -e --argjson wanted "$wanted" '(.loss - $wanted) | fabs < 0.002' "$OUT" >/dev/null ||
        fail "$codec: validation gave $wanted, eval $(cat "$OUT")"
    runs generate "$codec" --prompt 'the sea' --tokens 10
done
