# slurm_lib.sh - a Slurm cluster of one node on this machine: munged, slurmctld and slurmd of Debian, in the
# folder $SCRATCH/slurm. Source it after lib.sh; needs root. Skips the test where the programs are missing.

export PATH="$PATH:/usr/sbin:/sbin"
for program in munged slurmctld slurmd srun sbatch; do
    command -v $program >/dev/null || { echo "skipped: there is no $program"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: slurmd needs root"; exit 77; }

SLURM=$SCRATCH/slurm
export SLURM_CONF=$SLURM/slurm.conf

# slurm_start: starts the daemons. The node says that it has 8 cores, so that 8 tasks fit anywhere.
slurm_start() {
    mkdir -p "$SLURM/state" "$SLURM/spool"
    chmod 700 "$SLURM"
    node=$(hostname -s)
    base=$((20000 + $$ % 20000))
    head -c 1024 /dev/urandom >"$SLURM/key"
    chmod 400 "$SLURM/key"
    cat >"$SLURM_CONF" <<END
ClusterName=strait
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$SLURM/munge.socket
CryptoType=crypto/munge
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SlurmdParameters=config_overrides
SlurmctldPort=$base
SlurmdPort=$((base + 1))
StateSaveLocation=$SLURM/state
SlurmdSpoolDir=$SLURM/spool
SlurmctldPidFile=$SLURM/slurmctld.pid
SlurmdPidFile=$SLURM/slurmd.pid
SlurmctldLogFile=$SLURM/slurmctld.log
SlurmdLogFile=$SLURM/slurmd.log
ReturnToService=2
KillWait=10
NodeName=$node NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
    munged --foreground --force --key-file="$SLURM/key" --socket="$SLURM/munge.socket" \
        --pid-file="$SLURM/munged.pid" --log-file="$SLURM/munged.log" --seed-file="$SLURM/seed" 2>/dev/null &
    slurm_daemons=$!
    slurm_wait test -S "$SLURM/munge.socket"
    slurmctld -D >/dev/null 2>&1 &
    slurm_daemons="$slurm_daemons $!"
    slurmd -D >/dev/null 2>&1 &
    slurm_daemons="$slurm_daemons $!"
    trap 'slurm_stop; clean_up' EXIT
    slurm_wait node_is_idle
}

node_is_idle() {
    sinfo -h -o %t 2>/dev/null | grep -q '^idle'
}

# slurm_wait COMMAND...: waits up to a minute until the command succeeds.
slurm_wait() {
    for _ in $(seq 300); do
        "$@" && return
        sleep 0.2
    done
    tail -n 5 "$SLURM"/*.log >&2
    fail "the Slurm of this test is not ready: $*"
}

slurm_stop() {
    scancel --user=root 2>/dev/null
    kill $slurm_daemons 2>/dev/null
    wait $slurm_daemons 2>/dev/null # they write their state first
}
