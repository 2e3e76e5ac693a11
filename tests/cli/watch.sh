#!/bin/sh
# watch.sh - strait watch: full-screen in terminals of several widths, resized while it runs, keys, and plain lines.
here=$(cd "$(dirname "$0")/.." && pwd)
. "$here/cli/lib.sh"

make_corpus
make_run run.yaml 2 100000
slow="--set stages.count=2 --set stages.replicas=[1,2] --set link.emulate.delay=20ms --set train.save_every=0 --set train.log_every=1000000"

# Plain lines where the output is not a terminal; they end with the run, in a folder and at a page.
runs train run.yaml --out short --set train.steps=12
runs watch short
says "$OUT" '^step 12/12  loss [0-9.]+  left 0s  valid [0-9.]+  1\.54k tokens  [0-9]+ tok/s$' '^run: done$'
runs watch short --once
says "$OUT" '^short: done, 1 stage$' '^step 12/12  loss'
refuses 3 'nothere: no such folder' watch nothere
mkdir empty
refuses 3 'empty: no run has written here' watch empty
refuses 4 'http://127.0.0.1:1: nobody answers there' watch http://127.0.0.1:1
refuses 2 'expected http://HOST:PORT' watch http://

begin train run.yaml --out run $slow --page 127.0.0.1:0
wait_lines run 3
url=$(sed -n 's/^page: //p' "$ERR")
strait watch "$url" --once >once || fail "watch of a page"
says once '^run: training, 2 stages, 3 replicas in all$' '^step [0-9]+/100000  loss [0-9.]+  left [0-9hms]+  '
env STRAIT_CLI="$SCRATCH" "$STRAIT" watch run >lines &
watcher=$!
has_two_lines() { [ "$(grep -c '^step' lines)" -ge 2 ]; }
await "watch prints two lines" has_two_lines
kill $watcher
wait $watcher || fail "watch did not end well after a signal"

if ! command -v tmux >/dev/null; then
    echo "note: tmux is not installed: watch was not tried on a terminal" >&2
    kill -INT "$STARTED"
    exit 0
fi
mux() { env LC_ALL=C.UTF-8 tmux -S "$SCRATCH/tmux" -f /dev/null "$@"; }
end_mux() { mux kill-server 2>/dev/null; clean_up; }
trap end_mux EXIT
mux new-session -d -s keep "sleep 100000" # a server that ends with its last session could refuse the next

# appears TEXT...: waits until the screen matches each TEXT.
appears() {
    for text in "$@"; do
        for _ in $(seq $((PATIENCE * 10))); do
            mux capture-pane -p -t w >screen 2>/dev/null
            grep -qE -- "$text" screen && continue 2
            sleep 0.1
        done
        cat screen >&2
        fail "the screen does not show \"$text\""
    done
}
# fits COLUMNS ROWS: no line is wider than the terminal or wraps, and the keys are on the last line.
fits() {
    mux capture-pane -p -t w >screen
    # Without the bytes that continue a character of UTF-8, a character is a byte.
    LC_ALL=C tr -d '\200-\277' <screen | LC_ALL=C awk -v most="$1" 'length($0) > most { exit 1 }' ||
        { cat screen >&2; fail "a line is wider than $1 columns"; }
    [ "$(wc -l <screen)" -le "$2" ] || fail "the screen has more than $2 lines"
}
command="env STRAIT_CLI=$SCRATCH LC_ALL=C.UTF-8 $STRAIT watch"
for size in 40x16 80x24 200x50; do
    columns=${size%x*} rows=${size#*x}
    mux new-session -d -s w -x "$columns" -y "$rows" "$command run; sleep 1000"
    appears '^run  training  [0-9]+%' 'step [0-9]+/100000  loss [0-9.]+' '^\[[#.]+\]$' '^loss over steps' '^q quit'
    fits "$columns" "$rows"
    appears 'left [0-9hms]+' '^limit [a-z]+'
    if [ "$columns" = 40 ]; then # words are left out, not cut off
        appears '^stage 0 +[0-9]+%' '^stage 1 +[0-9]+%  2 replicas$' '^q quit  p pause  </> \^/v l plot$'
    else
        appears '^stage 0 +computes +[0-9]+%  waits +[0-9]+%' '^  link 0 .*  lost [0-9.]+%, [0-9.]+%$' '^stage 1 .*  2 replicas$'
    fi
    mux send-keys -t w Right
    appears '^tokens/s over steps'
    mux send-keys -t w Up
    appears '^tokens/s over tokens'
    mux send-keys -t w l
    appears 'log scale'
    mux send-keys -t w p
    appears 'paused'
    mux send-keys -t w p q
    appears '^run: training$'
    mux kill-session -t w
done

# Resized while it runs, and at a page; Braille curves in UTF-8.
mux new-session -d -s w -x 80 -y 24 "$command $url; sleep 1000"
appears '^run  training' '⠉|⠤|⣀|⠒|⠛'
for size in 40x12 120x40 20x6 80x24; do
    mux resize-window -t w -x "${size%x*}" -y "${size#*x}"
    sleep 1
    appears '^run  training'
    fits "${size%x*}" "${size#*x}"
done
# It ends when the run ends.
kill -INT "$STARTED"
ends 130
appears '^run: (ended|failed)$'
mux kill-session -t w 2>/dev/null
mux new-session -d -s w -x 80 -y 24 "$command short; sleep 1000"
appears '^run: done$'
