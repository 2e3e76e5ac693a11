# lib.sh - what the scripts of this folder share. Each is run as: SCRIPT PROGRAM [HELPER]
#
# A script works in a folder of its own, $SCRATCH, which is removed when it ends. Every strait it
# starts carries the mark STRAIT_CLI=$SCRATCH in its environment, so that those still alive can be
# found. A failed check ends the script with 1 and says what was seen.

set -u
STRAIT=$1
HELPER=${2:-}
SCRATCH=$(mktemp -d /tmp/strait-cli-XXXXXX) || exit 1
OUT=$SCRATCH/stdout
ERR=$SCRATCH/stderr
STARTED= # process of the strait in the background

# Memory that is not there is an error like others. On one processor the sanitizer looks for leaks
# for seconds at every exit, and scripts exit a hundred times; unit tests look for them everywhere.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}allocator_may_return_null=1"
export TSAN_OPTIONS="${TSAN_OPTIONS:+$TSAN_OPTIONS:}allocator_may_return_null=1"
[ "$(uname -m)" != aarch64 ] || ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0

clean_up() {
    for pid in $(marked); do kill -9 "$pid" 2>/dev/null; done
    chmod -R u+w "$SCRATCH" 2>/dev/null
    rm -rf "$SCRATCH"
}

# Processes of this script's runs, stages included.
marked() {
    grep -lsxzF "STRAIT_CLI=$SCRATCH" /proc/[0-9]*/environ | cut -d / -f 3
}

trap clean_up EXIT
trap 'exit 1' INT TERM
cd "$SCRATCH" || exit 1

fail() {
    echo "FAIL: $*" >&2
    for shown in "$OUT" "$ERR"; do
        [ -s "$shown" ] && sed "s/^/    ${shown##*/}: /" "$shown" | tail -n 15 >&2
    done
    exit 1
}

strait() {
    env STRAIT_CLI="$SCRATCH" "$STRAIT" "$@"
}

# runs ARGS...: strait ends well.
runs() {
    strait "$@" >"$OUT" 2>"$ERR" || fail "strait $*: exit code $?, expected 0"
}

# refuses CODE WORDS ARGS...: strait exits with CODE and its last line on standard error, the only
# one that begins with "strait:", has WORDS (a regular expression) in it.
refuses() {
    wanted=$1
    words=$2
    shift 2
    strait "$@" >"$OUT" 2>"$ERR" </dev/null
    code=$?
    [ "$code" -eq "$wanted" ] || fail "strait $*: exit code $code, expected $wanted"
    tail -n 1 "$ERR" | grep -qE -e "^strait: .*$words" || fail "strait $*: does not say \"$words\""
    [ "$(grep -c '^strait:' "$ERR")" -eq 1 ] || fail "strait $*: more than one line of error"
}

# says FILE WORDS...: FILE has each of WORDS (regular expressions).
says() {
    file=$1
    shift
    for words in "$@"; do
        grep -qE -- "$words" "$file" || fail "${file##*/} does not say \"$words\""
    done
}

# Some 16 KB of text in words, the same every time, in text.txt, its tokenizer in tokenizer.json
# and its tokens in train.bin.
make_corpus() {
    awk 'BEGIN {
        n = split("the sea was calm and a small boat went slowly past rocks where birds sang of " \
                  "storms long gone while men drew their nets full silver fish in morning light", \
                  word, " ")
        for (i = x = 1; i <= 3000; i++) {
            x = (x * 16807) % 2147483647
            printf "%s%s", word[x % n + 1], i % 13 == 0 ? ".\n" : " "
        }
    }' >text.txt
    runs tokenizer train --vocab 300 --out tokenizer.json text.txt
    runs tokenize --tokenizer tokenizer.json --out train.bin text.txt
}

# make_run FILE [LAYERS STEPS]: a run file for a tiny model on that corpus.
make_run() {
    cat >"$1" <<END
model: {width: 32, layers: ${2:-2}, heads: 2, ffn: 48, context: 16}
data: {train: train.bin, valid: train.bin, tokenizer: tokenizer.json, valid_tokens: 64}
train: {steps: ${3:-10}, batch_tokens: 128, learning_rate: 0.005, save_every: 4, valid_every: 5}
stages: {microbatch: 1}
link: {codec: {variant: fp32}, deadline: 20s}
device: {threads: 1}
END
}

# What a run computed, without how long it took: step, loss, rate, norm, validation loss.
computed() {
    sed 's/,"tokens_per_s".*//' "$1/metrics.jsonl"
}

same_metrics() {
    computed "$1" >"$SCRATCH/metrics.a"
    computed "$2" >"$SCRATCH/metrics.b"
    [ -s "$SCRATCH/metrics.a" ] || fail "$1 has no metrics"
    cmp -s "$SCRATCH/metrics.a" "$SCRATCH/metrics.b" && return
    diff "$SCRATCH/metrics.a" "$SCRATCH/metrics.b" | head -n 6 >&2
    fail "the metrics of $1 and $2 differ"
}

# Every tensor of the newest checkpoint, by name, whatever the cut into stages.
weights_of() {
    "$HELPER" "$1" >"$SCRATCH/weights.raw" || fail "$1 has no weights"
    sort "$SCRATCH/weights.raw"
}

same_weights() {
    weights_of "$1" >"$SCRATCH/weights.a"
    weights_of "$2" >"$SCRATCH/weights.b"
    cmp -s "$SCRATCH/weights.a" "$SCRATCH/weights.b" && return
    diff "$SCRATCH/weights.a" "$SCRATCH/weights.b" | head -n 6 >&2
    fail "the weights of $1 and $2 differ"
}

# A sum over every file of a folder, its name and its bytes.
sum_of() {
    find "$1" -type f ! -name .lock -exec cksum {} + | sort | cksum
}

# begin ARGS...: starts strait in the background.
begin() {
    env STRAIT_CLI="$SCRATCH" "$STRAIT" "$@" >"$OUT" 2>"$ERR" </dev/null &
    STARTED=$!
}

# Waits for it; its exit code in $code. The shell's own words on how it died are dropped.
reap() {
    wait "$STARTED" 2>/dev/null
    code=$?
}

# ends CODE: waits for it, and that is how it ends.
ends() {
    reap
    [ "$code" -eq "$1" ] || fail "the run ended with $code, expected $1"
}

# wait_lines FOLDER N: until the run there has written N lines of metrics, or has ended. It may take
# minutes on a machine that has much else to do.
wait_lines() {
    for _ in $(seq 20000); do
        [ -f "$1/metrics.jsonl" ] && [ "$(wc -l <"$1/metrics.jsonl")" -ge "$2" ] && return
        kill -0 "$STARTED" 2>/dev/null || return
        sleep 0.01
    done
    fail "$1 has not come to $2 lines of metrics in minutes"
}

# none_left: no process of ours is alive, at the latest after a minute.
none_left() {
    for _ in $(seq 600); do
        [ -z "$(marked)" ] && return
        sleep 0.1
    done
    fail "processes are left: $(marked | tr '\n' ' ')"
}
