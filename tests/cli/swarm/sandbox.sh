#!/bin/sh
# sandbox.sh - code inside a joined worker cannot start programs, read or write files of the user, or
# reach other processes; the worker trains to the same bits. The helper is the program itself, whose
# worker tries all of that after its first reply.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lib.sh"
INTRUDER=$HELPER
FIND_REFUSALS=$3
HELPER=${HELPER%/*}/cli_weights

make_corpus
make_run run.yaml 2 12
sets="--set stages.count=2"
runs train run.yaml --out straight $sets
echo secret >secret.txt
export INTRUDER_FILE="$SCRATCH/secret.txt"

# intrude FOLDER ARGS...: trains with an honest worker and the intruder, which writes to intruder.err.
intrude() {
    folder=$1
    shift
    host_begin "$folder" run.yaml $sets
    join_begin "$folder" 1
    (STRAIT=$INTRUDER && join_begin "$folder" 2 "$@")
    host_ends 0 "$folder"
    wait_all_exited
    same_metrics straight "$folder"
    same_weights straight "$folder"
    mv join-2.err intruder.err
    [ "$(grep -c '^intruder: ' intruder.err)" -ge 20 ] || fail "the intruder did not make all attempts"
}

# refused NAME...: checks that these attempts were refused by the kernel.
refused() {
    for name in "$@"; do
        grep -qE "^intruder: $name: (EPERM|EACCES|ENOSYS)$" intruder.err ||
            fail "$name: $(grep "^intruder: $name:" intruder.err)"
    done
}

# Without the sandbox the attempts succeed, or fail for another reason: the test sees the difference.
intrude off --no-sandbox
says intruder.err '^sandbox: off [(]--no-sandbox[)]' '^intruder: execve: ENOENT' '^intruder: execveat: ENOENT' \
    '^intruder: fork: done' '^intruder: read: done' '^intruder: create: done' '^intruder: rename: done' \
    '^intruder: passwords: done' '^intruder: unix-socket: done' '^intruder: signal: done' '^intruder: listen: done'
echo secret >secret.txt

runs doctor --json
case $(jq -r .machine.sandbox.value "$OUT") in
'no seccomp'*)
    echo "skipped: this kernel or container allows no seccomp filters" >&2
    exit 77 ;;
*'no landlock'*) has_landlock= ;;
*) has_landlock=yes ;;
esac

intrude on
says intruder.err '^sandbox: no new privileges, seccomp filter [(]starts no program[)]'
refused execve execveat fork write truncate create rename mkdir unlink unix-socket raw-socket ptrace \
    signal unshare keyctl
says intruder.err '^intruder: listen: done'
[ "$(cat secret.txt)" = secret ] || fail "the intruder changed a file of the user"
if [ -n "$has_landlock" ]; then
    says intruder.err 'landlock [(]version [0-9]+: reads system files only, writes none[)]'
    refused read list passwords parent
else
    echo "skipped: kernel has no landlock, so reading files is not forbidden" >&2
    says intruder.err 'NO landlock'
fi

# With CUDA, too. There is no coordinator any more, and perhaps no device: the line comes before either is needed.
join_begin on 3 --device cuda --give-up 0.1
wait_for_text join-3.err '^sandbox: no new privileges, seccomp filter [(]starts no program[)]'
kill_join 3
if [ ! -e /dev/nvidiactl ]; then
    refuses 2 'in the sandbox [(]--no-sandbox turns it off[)]: device cuda' join "$(cat on.invite)" --keys keys-4 --device cuda
fi

# What names the refused calls of a driver finds a socket that seccomp refuses, and a file that landlock
# refuses.
"$FIND_REFUSALS" "$SCRATCH/secret.txt" >refusals.txt || fail "find-refusals ended with $?: $(cat refusals.txt)"
says refusals.txt '^nothing: starts$' '^no_new_privs: starts$' '^seccomp: starts$'
grep -q '^ptrace: ' refusals.txt || says refusals.txt '^  EPERM socket[(]0x1, 0x1,'
if [ -n "$has_landlock" ]; then
    says refusals.txt '^landlock: DOES NOT START: ' '^landlock, all files readable: starts$'
    grep -q '^ptrace: ' refusals.txt || says refusals.txt "^  EACCES openat[(].*[)] $SCRATCH/secret.txt"
fi

# A worker that accepts no connections cannot listen.
intrude deaf --no-listen
says intruder.err '^sandbox: .*starts no program, accepts no connection[)]'
refused execve listen
