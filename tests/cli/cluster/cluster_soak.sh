#!/bin/sh
# cluster_soak.sh - eight ranks lose each of them in turn, at another step every time, and the run goes on with
# another number of ranks: the bits stay those of an uninterrupted run. (A test of make soak.)
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
. "$here/ranks_lib.sh"

make_corpus
make_run run.yaml 8 60
eight="--set stages.count=8"
runs train run.yaml --out straight
runs_ranks 8 train run.yaml --out eight $eight
same_metrics straight eight
same_weights straight eight
runs_ranks 5 train run.yaml --out five $eight --set stages.place=spread
same_weights straight five

resume=
lines=3
for rank in 7 0 3 1 5 2 6 4; do
    begin_ranks 8 train run.yaml --out lost $resume $eight --set link.emulate.delay=10ms
    lose_rank $rank lost $lines
    if [ $rank = 0 ]; then
        says "$ERR" '^strait: rank 0 on .* has ended'
    else
        says "$ERR" "^strait: stage $rank \\(rank $rank on .*\\) was killed or failed at step [0-9]+"
    fi
    resume=--resume
    lines=$((lines + 7))
done
runs_ranks 2 train run.yaml --out lost --resume --set stages.count=4
same_metrics straight lost
same_weights straight lost
