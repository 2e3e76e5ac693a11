#!/bin/sh
# slurm.sh - runs under srun and sbatch of a real Slurm compute the same bits as `strait train`; a lost task is
# named, and the job resumes with another number of tasks. (A test of make soak: it starts Slurm's daemons.)
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib.sh"
. "$here/ranks_lib.sh"
. "$here/slurm_lib.sh"

make_corpus
make_run run.yaml 8 24
slow="--set stages.count=4 --set link.emulate.delay=40ms"
runs train run.yaml --out straight
slurm_start

tasks() {
    n=$1
    shift
    env STRAIT_CLI="$SCRATCH" srun --overcommit -n "$n" "$@" "$STRAIT" $arguments >"$OUT" 2>"$ERR" </dev/null
}

# runs_tasks N ARGS...: checks that strait exits with 0 on N tasks of srun.
runs_tasks() {
    n=$1
    shift
    arguments=$*
    tasks "$n" || fail "srun -n $n strait $*: exit code $?, expected 0"
}

begin_tasks() {
    n=$1
    shift
    env STRAIT_CLI="$SCRATCH" srun --overcommit -n "$n" "$STRAIT" "$@" >"$OUT" 2>"$ERR" </dev/null &
    STARTED=$!
}

runs_tasks 8 train run.yaml --out eight --set stages.count=8
same_metrics straight eight
same_weights straight eight
says "$ERR" '8 stages on 8 ranks of 1 node, joined by Open MPI' 'stage 7: rank 7 on '
runs_tasks 2 train run.yaml --out two --set stages.count=4
same_metrics straight two
same_weights straight two

# Slurm does not end the other tasks by itself: rank 0 notices the loss and ends the job.
begin_tasks 4 train run.yaml --out lost $slow
lose_rank 3 lost 6
says "$ERR" 'strait: stage 3 \(rank 3 on .*\) was killed or failed at step [0-9]+' \
    'to resume: srun -n 4 strait train --resume lost'
begin_tasks 2 train --resume lost
lose_rank 1 lost 12
runs_tasks 3 train --resume lost --set stages.count=3 --set link.emulate.delay=0
same_metrics straight lost
same_weights straight lost

# SIGTERM to all tasks, as at the end of a job's time: rank 0 saves.
begin_tasks 4 train run.yaml --out stopped $slow
wait_lines stopped 6
scancel --signal=TERM "$(squeue -h -o %A | head -n 1)".0
reap
says "$ERR" 'stopped after step [0-9]+ of 24, saved in stopped'
runs train --resume stopped --set link.emulate.delay=0
same_metrics straight stopped
same_weights straight stopped

# Tasks that MPI does not join are refused instead of training the same run many times.
arguments="train run.yaml --out none --set stages.count=2"
tasks 2 --mpi=none && fail "two tasks without MPI ended with 0"
says "$ERR" '^strait: srun started 2 processes without PMIx: start them with "srun --mpi=pmix"'
[ ! -e none ] || fail "tasks without MPI began a run"

# The example, twice: the first job is stopped by a signal, as at the end of its time, and the second resumes. A
# script of sbatch without srun is an ordinary run.
batch() {
    env STRAIT_CLI="$SCRATCH" STRAIT="$STRAIT" sbatch --wait --overcommit -o "$OUT" "$@" >/dev/null
}
batch "$here/../../../examples/slurm.sbatch" run.yaml --set link.emulate.delay=40ms &
STARTED=$!
wait_lines runs/run 6
scancel --signal=TERM "$(squeue -h -o %A | head -n 1)"
reap
batch "$here/../../../examples/slurm.sbatch" run.yaml --set stages.count=8 || fail "the second sbatch: exit code $?"
says "$OUT" '4 stages on 4 ranks' 'stopped after step' '8 stages on 4 ranks' 'done: runs/run'
same_metrics straight runs/run
same_weights straight runs/run
printf '#!/bin/sh\nexec "%s" train run.yaml --out alone\n' "$STRAIT" >alone.sbatch
batch --ntasks=4 alone.sbatch || fail "a script without srun: exit code $?"
same_metrics straight alone
