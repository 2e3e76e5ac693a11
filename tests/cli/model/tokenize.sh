#!/bin/sh
# tokenize.sh - an interrupted tokenize leaves no files; after a kill, the same command starts over; an
# existing corpus is kept until a complete one replaces it.
. "$(dirname "$0")/../lib.sh"

make_corpus
mkfifo feed

# What is shown of the input is what was tokenized, and 100% is the end. Standard input has no size.
yes "$(cat text.txt)" | head -c 3000000 >long.txt
runs tokenize --tokenizer tokenizer.json --out long.bin --threads 1 long.txt
grep '^tokenize ' "$ERR" >lines
[ "$(wc -l <lines)" -ge 4 ] || fail "expected several lines of progress"
[ "$(tail -n 1 lines | sed 's/.* \([0-9]*%  [0-9.]* MB\).*/\1/')" = "100%  3.0 MB" ] || fail "the bar ends at $(tail -n 1 lines)"
awk '{ sub("%", "", $3); if ($3 + 0 == 100 && seen++ || $3 + 0 > 100 * $4 / 3 + 20) exit 1 }' lines || fail "the bar is ahead of the tokens"
runs tokenize --tokenizer tokenizer.json --out long.bin --force - <long.txt
! grep -q % "$ERR" || fail "standard input has a percentage"

# start ARGS...: starts tokenize on a pipe that stays open.
start() {
    rm -rf there
    mkdir there
    begin tokenize --tokenizer tokenizer.json --out there/x.bin --threads 1 "$@" feed
    exec 9>feed # returns once tokenize has opened it
}

has_created() {
    [ -e "there/$awaited" ] || is_over "$STARTED"
}

# half_done FILE ARGS...: starts tokenize with more text than it buffers and waits until FILE exists.
half_done() {
    awaited=$1
    shift
    start "$@"
    yes "$(head -n 200 text.txt)" 2>/dev/null | head -c 40000000 >&9 2>/dev/null &
    await "tokenize creates $awaited" has_created
    [ -e "there/$awaited" ] || fail "tokenize did not create $awaited"
}

left() {
    (cd there && echo *)
}

# stops SIGNAL [FILES]: sends SIGNAL and checks that only FILES are left.
stops() {
    kill -s "$1" "$STARTED"
    ends 130
    exec 9>&-
    tail -n 1 "$ERR" | grep -q '^strait: there/x.bin: stopped; nothing was kept$' || fail "$1: unexpected error message"
    [ "$(left)" = "${2:-*}" ] || fail "$1 left $(left)"
}

for signal in INT TERM; do
    half_done x.bin.tmp/x.bin.tmp
    stops $signal
done

# While no text arrives.
start
stops TERM

# After some shards are complete.
half_done x.bin.tmp/x-00000.bin --shard-tokens 1000000
stops TERM

# Killed after some shards; the same command, over less text, leaves one consistent corpus.
half_done x.bin.tmp/x-00001.bin --shard-tokens 1000000
ERR=$SCRATCH/second refuses 3 'x.bin.tmp/.lock: another process' tokenize --tokenizer tokenizer.json \
    --out there/x.bin text.txt
kill -9 "$STARTED"
reap
exec 9>&-
[ "$(left)" = x.bin.tmp ] || fail "a killed tokenize left $(left)"
: >there/y.bin
runs tokenize --tokenizer tokenizer.json --out there/x.bin --shard-tokens 3000 text.txt
[ "$(left)" = 'x-00000.bin x-00001.bin x-00002.bin x.json y.bin' ] || fail "the next tokenize left $(left)"
runs inspect --verify there/x.json

# tokenize refuses to replace an existing corpus. With --force the old one is kept until the new one is
# complete, and then removed entirely.
whole=$(sum_of there)
refuses 2 'x-00000.bin already exists: .*--force' tokenize --tokenizer tokenizer.json --out there/x.bin \
    --shard-tokens 5000 text.txt
refuses 2 'x-00000.bin already exists: .*--force' tokenize --tokenizer tokenizer.json --out there/x.bin text.txt
refuses 3 'nothere.txt' tokenize --tokenizer tokenizer.json --out there/x.bin --shard-tokens 100 --force \
    text.txt nothere.txt
[ "$whole" = "$(sum_of there)" ] || fail "a refused command changed the corpus: $(left)"
runs tokenize --tokenizer tokenizer.json --out there/x.bin --shard-tokens 5000 --force text.txt
[ "$(left)" = 'x-00000.bin x-00001.bin x.json y.bin' ] || fail "old shards were not removed: $(left)"
runs inspect --verify there/x.json
runs tokenize --tokenizer tokenizer.json --out there/x.bin --force text.txt
[ "$(left)" = 'x.bin x.json y.bin' ] || fail "old shards were not removed: $(left)"
cmp -s there/x.bin train.bin || fail "the tokens differ"
