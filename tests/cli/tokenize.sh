#!/bin/sh
# tokenize.sh - tokenize that ends in the middle: asked to, it leaves nothing half written; killed, the
# next one clears it away.
. "$(dirname "$0")/lib.sh"

make_corpus
mkfifo feed

# start ARGS...: reads from a pipe, whose end does not come.
start() {
    rm -rf there
    mkdir there
    begin tokenize --tokenizer tokenizer.json --out there/x.bin --threads 1 "$@" feed
    exec 9>feed # once it is open there
}

# half_done FILE ARGS...: the same, with more text than is read ahead, until FILE is there.
half_done() {
    awaited=$1
    shift
    start "$@"
    yes "$(head -n 200 text.txt)" 2>/dev/null | head -c 40000000 >&9 2>/dev/null &
    for _ in $(seq 20000); do
        [ -e "there/$awaited" ] && return
        kill -0 "$STARTED" 2>/dev/null || break
        sleep 0.01
    done
    fail "there is no $awaited"
}

left() {
    (cd there && echo *)
}

# stops SIGNAL: nothing is left.
stops() {
    kill -s "$1" "$STARTED"
    ends 130
    exec 9>&-
    tail -n 1 "$ERR" | grep -q '^strait: there/x.bin: stopped; nothing was kept$' || fail "$1: says something else"
    [ "$(left)" = '*' ] || fail "$1 leaves $(left)"
}

for signal in INT TERM; do
    half_done x.bin.tmp
    stops $signal
done

# Where no text comes, and no end of it.
start
stops TERM

half_done x-00000.bin --shard-tokens 1000000
kill -s TERM "$STARTED"
ends 130
exec 9>&-
says "$ERR" '^strait: there/x.bin: stopped; [0-9]+ whole shards? stayed, without a manifest: --force begins anew$'
case $(left) in *tmp* | *json*) fail "leaves $(left)" ;; *x-00000.bin*) ;; *) fail "no whole shard: $(left)" ;; esac
refuses 2 'x-00000.bin is there already; --force' tokenize --tokenizer tokenizer.json --out there/x.bin \
    --shard-tokens 1000000 text.txt

half_done x.bin.tmp
kill -9 "$STARTED"
reap
exec 9>&-
[ "$(left)" = x.bin.tmp ] || fail "a killed one leaves $(left)"
: >there/x-00003.bin.tmp
: >there/y.bin.tmp
runs tokenize --tokenizer tokenizer.json --out there/x.bin text.txt
[ "$(left)" = 'x.bin x.json y.bin.tmp' ] || fail "the next one leaves $(left)"
cmp -s there/x.bin train.bin || fail "and has other tokens"
