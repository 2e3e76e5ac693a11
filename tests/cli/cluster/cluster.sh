#!/bin/sh
# cluster.sh - runs under mpirun compute the same bits as `strait train`, on as many ranks as there are stages
# or on fewer; a lost rank is named, and the run resumes on another number of ranks.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
. "$here/ranks_lib.sh"

make_corpus
make_run run.yaml 4 16
four="--set stages.count=4"
slow="$four --set link.emulate.delay=25ms" # a run that loses a rank must take seconds on a fast machine, too
runs train run.yaml --out straight $four

runs_ranks 4 train run.yaml --out four $four
same_metrics straight four
same_weights straight four
says "$ERR" '4 stages on 4 ranks of 1 node, joined by Open MPI' 'stage 3: rank 3 on '
[ "$(grep -c '^done:' "$ERR")" -eq 1 ] || fail "more than one rank reports the end"

# Fewer ranks than stages: consecutive stages share a rank.
basis="$four --set link.codec.name=subspace --set link.codec.variant=factored --set link.codec.keep=8
    --set link.codec.grassmann_every=2"
runs_ranks 2 train run.yaml --out two $basis --set stages.place=spread
runs train run.yaml --out subspace $basis
same_metrics subspace two
same_weights subspace two

# Replicas of stages are on ranks, too.
runs_ranks 4 train run.yaml --out replicas --set stages.count=2 --set stages.replicas=2
same_metrics straight replicas
same_weights straight replicas
says "$ERR" '4 replicas of 2 stages on 4 ranks' 'stage 1, replica 1: rank 3 on '
for replicas in 2 3 1,2,1,3; do
    runs_ranks 3 train run.yaml --out "replicas-$replicas" $four --set "stages.replicas=$replicas"
    same_metrics straight "replicas-$replicas"
    same_weights straight "replicas-$replicas"
done

# Late updates: two steps are under way at a time.
runs train run.yaml --out late --set train.staleness=1
runs_ranks 3 train run.yaml --out late-ranks $four --set train.staleness=1
same_metrics late late-ranks
same_weights late late-ranks

# Replicas that train on their own and average their weights.
outer="--set stages.count=2 --set stages.replicas=2 --set train.outer.sync_every=6 --set train.outer.bits=4
    --set train.outer.fragments=2 --set train.outer.overlap=2"
runs train run.yaml --out outer $outer --set link.transport=inproc
runs_ranks 3 train run.yaml --out outer-ranks $outer
same_metrics outer outer-ranks
same_weights outer outer-ranks

# Errors are those of rank 0, and every rank ends.
refuses_ranks 2 '3 ranks for 2 stages: start at most 2, or set stages.count ' \
    3 train run.yaml --out more --set stages.count=2
refuses_ranks 2 '2 ranks for 1 stage: ' 2 train run.yaml --out more
refuses_ranks 2 'unknown key .*stages.cuont' 2 train run.yaml --out more --set stages.cuont=2
refuses_ranks 2 'four already contains a run' 2 train run.yaml --out four $four
[ ! -e more ] || fail "a run that could not start left its folder"

# One process is an ordinary run, also under a launcher.
runs_ranks 1 train run.yaml --out one
same_metrics straight one

# A lost rank, then the coordinator: both are named, and other numbers of ranks and stages go on.
begin_ranks 4 train run.yaml --out lost $slow
lose_rank 2 lost 5
says "$ERR" '^strait: stage 2 \(rank 2 on .*\) was killed or failed at step [0-9]+' '^to resume: mpirun -n 4 strait train --resume lost'
begin_ranks 2 train run.yaml --out lost --resume $slow
lose_rank 0 lost 9
says "$ERR" '^strait: rank 0 on .* has ended.*--resume'
runs_ranks 3 train run.yaml --out lost --resume --set stages.count=3
same_metrics straight lost
same_weights straight lost

begin_ranks 4 train run.yaml --out replica --set stages.count=2 --set stages.replicas=2 --set link.emulate.delay=25ms
lose_rank 1 replica 5
says "$ERR" '^strait: stage 0, replica 1 \(rank 1 on .*\) was killed or failed at step [0-9]+'
runs_ranks 2 train run.yaml --out replica --resume $four --set stages.replicas=1
same_metrics straight replica
same_weights straight replica

# An interrupt saves: rank 0 has a second before mpirun ends it.
begin_ranks 2 train run.yaml --out interrupted $slow
wait_lines interrupted 6
kill -TERM "$(process_of 0)"
reap
says "$ERR" 'stopped after step [0-9]+ of 16, saved in interrupted' '^to resume: '
runs train run.yaml --out interrupted --resume $four
same_metrics straight interrupted
same_weights straight interrupted

# Without the module there is one clear error, and no run of several ranks at once.
cp "$STRAIT" ./strait
STRAIT=./strait
ranks 2 train run.yaml --out none $four && fail "a run of 2 ranks without MPI ended with 0"
says "$ERR" '^strait: mpirun started 2 processes: MPI support is not installed: strait-mpi.so'
[ ! -e none ] || fail "a run without MPI began"
wait_all_exited
