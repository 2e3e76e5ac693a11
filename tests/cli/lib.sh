# lib.sh - shared by the scripts of this folder. Each is run as: SCRIPT PROGRAM [HELPER]
#
# A script works in a folder of its own, $SCRATCH, which is removed when it ends. Every strait it
# starts has STRAIT_CLI=$SCRATCH in its environment, so that processes that are still alive can be
# found. A failed check prints the output and ends the script with exit code 1.

set -u
STRAIT=$1
HELPER=${2:-}
SCRATCH=$(mktemp -d /tmp/strait-cli-XXXXXX) || exit 1
OUT=$SCRATCH/stdout
ERR=$SCRATCH/stderr
STARTED= # process id of the strait that runs in the background

# Failed allocations must return NULL, as without a sanitizer. The leak check takes seconds at every exit
# on aarch64, and traces the process, which the sandbox of a worker forbids; the unit tests check for leaks.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}allocator_may_return_null=1"
export TSAN_OPTIONS="${TSAN_OPTIONS:+$TSAN_OPTIONS:}allocator_may_return_null=1"
ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0

clean_up() {
    for pid in $(our_processes); do kill -9 "$pid" 2>/dev/null; done
    chmod -R u+w "$SCRATCH" 2>/dev/null
    rm -rf "$SCRATCH"
}

# our_processes: prints the ids of all processes that this script started, stages included.
our_processes() {
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
    # Of a worker, too, whose log is not shown: tools/run-tests does not run such a test again.
    [ -z "${SANITIZED:-}" ] || grep -rhaE 'Sanitizer: |: runtime error: ' "$SCRATCH" 2>/dev/null | head -n 20 >&2
    exit 1
}

strait() {
    env STRAIT_CLI="$SCRATCH" "$STRAIT" "$@"
}

# runs ARGS...: checks that strait exits with 0.
runs() {
    strait "$@" >"$OUT" 2>"$ERR" || fail "strait $*: exit code $?, expected 0"
}

# refuses CODE TEXT ARGS...: checks that strait exits with CODE and that the last line of standard
# error, the only one that begins with "strait:", matches TEXT (a regular expression).
refuses() {
    wanted=$1
    text=$2
    shift 2
    strait "$@" >"$OUT" 2>"$ERR" </dev/null
    code=$?
    [ "$code" -eq "$wanted" ] || fail "strait $*: exit code $code, expected $wanted"
    tail -n 1 "$ERR" | grep -qE -e "^strait: .*$text" || fail "strait $*: the error does not match \"$text\""
    [ "$(grep -c '^strait:' "$ERR")" -eq 1 ] || fail "strait $*: expected exactly one line of error"
}

# says FILE TEXT...: checks that FILE matches each TEXT (regular expressions).
says() {
    file=$1
    shift
    for text in "$@"; do
        grep -qE -- "$text" "$file" || fail "${file##*/} does not match \"$text\""
    done
}

# make_corpus: writes 16 KB of reproducible text to text.txt, its tokenizer to tokenizer.json and its
# tokens to train.bin.
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

# make_run FILE [LAYERS STEPS]: writes a run file for a tiny model on that corpus.
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

# commands_of FILE SECTION: prints the shell commands of a section of a document.
commands_of() {
    awk -v heading="## $2" '/^## / { in_section = $0 == heading }
        in_section && /^```sh$/ { in_block = 1; next }
        /^```$/ { in_block = 0 }
        in_section && in_block' "$1"
}

# metrics_of FOLDER: prints the metrics of a run that do not depend on time: step, loss, learning rate,
# gradient norm, validation loss.
metrics_of() {
    sed 's/,"tokens_per_s".*//' "$1/metrics.jsonl"
}

same_metrics() {
    metrics_of "$1" >"$SCRATCH/metrics.a"
    metrics_of "$2" >"$SCRATCH/metrics.b"
    [ -s "$SCRATCH/metrics.a" ] || fail "$1 has no metrics"
    cmp -s "$SCRATCH/metrics.a" "$SCRATCH/metrics.b" && return
    diff "$SCRATCH/metrics.a" "$SCRATCH/metrics.b" | head -n 6 >&2
    fail "the metrics of $1 and $2 differ"
}

# weights_of FOLDER: prints hashes of all tensors of the newest checkpoint, sorted by name, so that runs with
# different numbers of stages can be compared.
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

# sum_of FOLDER: prints a checksum over the names and contents of all files.
sum_of() {
    find "$1" -type f ! -name .lock -exec cksum {} + | sort | cksum
}

# begin ARGS...: starts strait in the background.
begin() {
    env STRAIT_CLI="$SCRATCH" "$STRAIT" "$@" >"$OUT" 2>"$ERR" </dev/null &
    STARTED=$!
}

# reap: waits for the strait in the background and sets $code to its exit code. The shell's message
# about a signal is dropped.
reap() {
    wait "$STARTED" 2>/dev/null
    code=$?
}

# ends CODE: waits for the strait in the background and checks its exit code.
ends() {
    reap
    [ "$code" -eq "$1" ] || fail "the run ended with $code, expected $1"
}

# At least how many seconds a script waits for what must happen. Under a sanitizer a busy machine takes minutes for
# what takes milliseconds elsewhere: the limit only names what hangs, before CTest ends the test.
PATIENCE=600

# await WHAT COMMAND...: waits until COMMAND succeeds; fails with WHAT when it does not. It looks after 10 ms, and less
# often as time goes by, up to every 90 ms: scripts that look all the time take the processor from those beside them.
await() {
    await_what=$1
    await_left=$((PATIENCE * 100))
    await_pause=1
    shift
    until "$@"; do
        await_left=$((await_left - await_pause))
        [ $await_left -gt 0 ] || fail "not within $PATIENCE s: $await_what"
        sleep 0.0$await_pause
        [ $await_pause -ge 9 ] || await_pause=$((await_pause + 1))
    done
}

# has_text FILE TEXT: whether a line of FILE matches TEXT; the file may not exist yet.
has_text() {
    grep -qsE -e "$2" "$1"
}

is_over() {
    ! kill -0 "$1" 2>/dev/null
}

# wait_lines FOLDER N: waits until the run has written N lines of metrics or has ended.
has_lines() {
    [ -f "$1/metrics.jsonl" ] && [ "$(wc -l <"$1/metrics.jsonl")" -ge "$2" ] || is_over "$STARTED"
}
wait_lines() {
    await "$1 has $2 lines of metrics" has_lines "$1" "$2"
}

# wait_all_exited: waits until all processes of this script have ended.
all_exited() {
    [ -z "$(our_processes)" ] || { sleep 0.1 && false; }
}
wait_all_exited() {
    await "all processes have ended" all_exited
}
