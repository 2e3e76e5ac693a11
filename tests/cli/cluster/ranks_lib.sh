# ranks_lib.sh - for tests of runs under a launcher. Source it after lib.sh.
#
# Ranks share the cores of this machine, and the tests run as root in CI: Open MPI is told that both are
# meant. Skips the test where the build has no MPI module.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none # containers forbid it, and Open MPI complains

command -v mpirun >/dev/null && [ -f "$(dirname "$STRAIT")/strait-mpi.so" ] || {
    echo "skipped: built without Open MPI"
    exit 77
}

# ranks N ARGS...: runs strait on N ranks.
ranks() {
    n=$1
    shift
    env STRAIT_CLI="$SCRATCH" mpirun --oversubscribe -n "$n" "$STRAIT" "$@" >"$OUT" 2>"$ERR" </dev/null
}

# runs_ranks N ARGS...: checks that it exits with 0.
runs_ranks() {
    ranks "$@" || fail "mpirun -n $*: exit code $?, expected 0"
}

# refuses_ranks CODE TEXT N ARGS...: checks exit code and error; exactly one rank reports it.
refuses_ranks() {
    wanted=$1
    text=$2
    shift 2
    ranks "$@"
    code=$?
    [ "$code" -eq "$wanted" ] || fail "mpirun -n $*: exit code $code, expected $wanted"
    grep -qE -e "^strait: .*$text" "$ERR" || fail "mpirun -n $*: the error does not match \"$text\""
    [ "$(grep -c '^strait:' "$ERR")" -eq 1 ] || fail "mpirun -n $*: expected exactly one line of error"
}

# begin_ranks N ARGS...: starts strait on N ranks in the background.
begin_ranks() {
    n=$1
    shift
    env STRAIT_CLI="$SCRATCH" mpirun --oversubscribe -n "$n" "$STRAIT" "$@" >"$OUT" 2>"$ERR" </dev/null &
    STARTED=$!
}

# process_of RANK: prints the process of a rank of the job in the background.
process_of() {
    for pid in $(our_processes); do
        [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = strait ] || continue
        tr '\0' '\n' <"/proc/$pid/environ" | grep -qxE "(OMPI_COMM_WORLD_RANK|SLURM_PROCID)=$1" && echo "$pid"
    done
}

# lose_rank RANK FOLDER LINES: kills a rank with signal 9 once the run in FOLDER has LINES lines of metrics;
# the job must end by itself, which takes some seconds on an idle machine (docs/cluster.md). Sets $code.
lose_rank() {
    wait_lines "$2" "$3"
    victim=$(process_of "$1")
    [ -n "$victim" ] || fail "there is no rank $1 to kill"
    kill -9 "$victim"
    await "the job ends" is_over "$STARTED"
    reap
    [ "$code" -ne 0 ] || fail "the job that lost rank $1 ended with 0"
    wait_all_exited
}
