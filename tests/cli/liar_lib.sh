# liar_lib.sh - tries lies one after the other and compares the outcomes with those that are known. Source
# it after swarm_lib.sh. The script defines run_case LIE, which sets $outcome ("held" if all is well, "not
# told" if the lie had no occasion) and $took, in milliseconds, and all_lies, which prints those that there
# are. The files of a case begin with $CASE.
#
#   SAMPLE=0     lies drawn from all fields and values, one per run; all: every one; 0: only the mixed
#   MIXED=2      runs in which the liar lies about another field at each step; lies known to succeed are
#                left out
#   SEED=1       of both draws
#   LIES="..."   these instead: FIELD=VALUE, FIELD=VALUE,FIELD=VALUE,... for one at each step, or another
#                rule of the liar with : for spaces, such as --drop:reply.update:--from-step:4
#   KNOWN=TOPIC  the lies of that topic in tests/liar/known-failures instead
#   LIMIT=40     seconds that a run may take
#   JOBS=2       runs at a time
#   KEEP=FOLDER  where logs of runs with another outcome go
#
# tests/liar/known-failures lists lies that still succeed. A script fails when one of them no longer does,
# so that the list cannot go stale.
LIAR=$(dirname "$HELPER")/../liar/cli_liar
SAMPLE=${SAMPLE:-0}
MIXED=${MIXED:-2}
SEED=${SEED:-1}
LIMIT=${LIMIT:-40}
JOBS=${JOBS:-2}
STEPS=24
FIRST=6 # the step of the first lie: the spares have joined, and snapshots were taken

grep -v '^#' "$(dirname "$0")/../liar/known-failures" >known
awk '{ print $2 }' known | sort -u >known.lies

# rules_of LIE: prints the arguments of the liar. What is sent before the first step is changed from the
# beginning.
rules_of() {
    case $1 in
    --*) echo "$1" | tr : ' ' && return ;;
    *,*) times="--times 1" ;;
    *) times= ;;
    esac
    at=$FIRST
    for lie in $(echo "$1" | tr , ' '); do
        case $lie in
        join.* | task.* | task_reply.* | boundary_check.* | *.open.* | *.time_passes.*) from=0 ;;
        *) from=$at at=$((at + 1)) ;;
        esac
        echo "--lie $lie --from-step $from $times"
        [ -n "$times" ] || at=$FIRST
    done
}

# has_crashed PID: whether it has ended by a signal other than the one of --fault.
has_crashed() {
    kill -0 "$1" 2>/dev/null && return 1
    wait "$1" 2>/dev/null
    code=$?
    [ $code -ge 128 ] && [ $code -ne 137 ]
}

# try_case LIE: runs it and writes its row: the lie, extra milliseconds, the outcome.
try_case() {
    export LIAR_CASE="$CASE"
    run_case "$1"
    [ $took -ge $usual ] || took=$usual
    echo "$1 $((took - usual)) $outcome" >"$CASE.row"
    for pid in $(grep -lsxzF "LIAR_CASE=$CASE" /proc/[0-9]*/environ | cut -d / -f 3); do
        kill -9 "$pid" 2>/dev/null
    done
    case $outcome in
    held | "not told") ;;
    *) [ -z "${KEEP:-}" ] || { cp "$CASE".* "$KEEP/" && cp "$CASE/events.log" "$KEEP/$CASE.log"; } ;;
    esac
    rm -rf "$CASE" "$CASE.invite" "$CASE.err" "$CASE.out" "keys-$CASE"*
}

# try_all: tries each line of standard input and writes the rows to the file rows.
try_all() {
    : >rows
    while read -r lie; do
        n=$((n + 1))
        CASE=case-$n
        choose_port && echo "$port" >"$CASE.port" # a subshell's choice would be forgotten
        (try_case "$lie") </dev/null &
        [ $((n % JOBS)) -eq 0 ] || continue
        wait
        collect_rows
    done
    wait
    collect_rows
}

collect_rows() {
    for row in case-*.row; do
        [ -f "$row" ] || continue
        cat "$row" >>rows
        awk '{ lie = $1; ms = $2; $1 = $2 = ""; if (length(lie) > 54) lie = substr(lie, 1, 51) "..."
            printf "%-54s %-24s %5.1f s\n", lie, substr($0, 3), ms / 1000 }' "$row"
        rm "$row"
    done
}

# shuffle N: prints N lines of standard input, drawn by SEED.
shuffle() {
    awk -v seed="$SEED" -v n="$1" '{ line[NR] = $0 } END {
        srand(seed)
        for (i = 1; i <= NR && (n == "all" || i <= n); i++) {
            k = i + int(rand() * (NR - i + 1)); t = line[i]; line[i] = line[k]; line[k] = t; print line[i]
        }
    }'
}


# choose_lies: prints the lies to try, one run per line.
choose_lies() {
    if [ -n "${LIES:-}" ]; then
        echo "$LIES" | tr ' ' '\n'
    elif [ -n "${KNOWN:-}" ]; then
        awk -v topic="$KNOWN" '$1 == topic { print $2 }' known
    else
        all_lies | grep -vxFf known.lies | grep -v '^join.token' | shuffle $((MIXED * (STEPS - FIRST - 2))) |
            awk -v runs="$MIXED" '{ group[NR % runs] = group[NR % runs] "," $0 }
                END { for (i in group) print substr(group[i], 2) }'
        [ "$SAMPLE" = 0 ] || all_lies | shuffle "$SAMPLE"
    fi
}

# try_honest: runs a case without a lie; $usual is then the time that it took.
try_honest() {
    : >"$ERR" # of earlier commands: not to be shown with a failure
    n=0
    usual=0
    echo "--delay:leave=0" | try_all >/dev/null
    usual=$(cut -d ' ' -f 2 rows)
    [ "$(cut -d ' ' -f 3- rows)" = "not told" ] || fail "without a lie: $(cat rows)"
}

# try_lies: tries all that were chosen; fails if a lie succeeds that is not known, or a known one no longer.
try_lies() {
    choose_lies >lies
    try_all <lies
    grep -vE ' (held|not told)$' rows >failed
    grep ' held$' rows | cut -d ' ' -f 1 | grep -xFf known.lies >mended
    echo "$(wc -l <rows) runs: $(grep -c ' held$' rows) held, $(grep -c ' not told$' rows) not told," \
        "$(cut -d ' ' -f 1 failed | grep -xFf known.lies | wc -l) known failures"
    cut -d ' ' -f 1 failed | grep -vxFf known.lies >new && fail "these lies succeed: $(tr '\n' ' ' <new)"
    # Some need luck: they count as mended after three attempts.
    for again in 1 2; do
        [ -s mended ] || return 0
        cp mended tries
        try_all <tries
        grep ' held$' rows | cut -d ' ' -f 1 >mended
    done
    [ ! -s mended ] || fail "these no longer succeed, remove them from tests/liar/known-failures: $(tr '\n' ' ' <mended)"
}
