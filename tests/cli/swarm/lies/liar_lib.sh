# liar_lib.sh - tries lies one after the other and compares the outcomes with those that are known. Source
# it after swarm/lib.sh. The script defines
#
#   run_case LIE  runs a swarm; the names of its files begin with $CASE. Sets $outcome ("held" if all is well,
#                 "not told" if the lie had no occasion), $told, the number of lies told, and $took, in ms
#   all_lies      prints every lie that there is
#   ALWAYS        lies that are always tried
#
# and these set what is tried:
#
#   SAMPLE=0     lies drawn from all fields and values, one per run; all: every one; 0: only the mixed
#   MIXED=3      runs in which the liar lies about another field at each step; lies known to succeed are
#                left out
#   PAIRS=0      runs with two liars, which tell one lie each; likewise
#   SEED=1       of all draws
#   LIES="..."   these instead: FIELD=VALUE, FIELD=VALUE,FIELD=VALUE,... for one at each step, LIE;LIE for
#                two liars, or another rule of the liar with : for spaces: --drop:reply.update:--times:1
#   KNOWN=TOPIC  the lies of that topic in tests/liar/known-failures instead
#   LIMIT=600    seconds that a run may take
#   JOBS=2       runs at a time
#   KEEP=FOLDER  where logs of runs with another outcome go
#   TABLE=FILE   where to append rows as they come
#
# tests/liar/known-failures lists lies that still succeed. A script fails when one of them no longer does,
# so that the list cannot go stale.
LIAR=$(dirname "$HELPER")/../liar/cli_liar
SAMPLE=${SAMPLE:-0}
MIXED=${MIXED:-3}
PAIRS=${PAIRS:-0}
SEED=${SEED:-1}
LIMIT=${LIMIT:-600}
JOBS=${JOBS:-2}
PLACE= # of the liar, as the list of known failures names it
STEPS=24
FIRST=6 # the step of the first lie: the spares have joined, and snapshots were taken

grep -v '^#' "$(dirname "$0")/../../../liar/known-failures" >known
awk '{ print $2 }' known | sort -u >known.lies

# rules_of LIE: prints the arguments of the liar. What is sent before the first step is changed from the
# beginning. A list of lies is told one at a time, at each step another.
rules_of() {
    at=$FIRST
    times=
    case $1 in *,*) times="--times 1" ;; esac
    for lie in $(echo "$1" | tr , ' '); do
        rule=--lie
        case $lie in --*) rule=${lie%%:*} lie=${lie#*:} ;; esac
        case $lie in
        *:*) echo "$rule $lie" | tr : ' ' && continue ;;
        join* | task* | boundary_check* | *.open* | *.time_passes*) from=0 ;;
        *) from=$at ;;
        esac
        [ -z "$times" ] || at=$((at + 1))
        echo "$rule $lie --from-step $from $times"
    done
}

# has_crashed PID: whether it has ended by a signal other than the one of --fault.
has_crashed() {
    kill -0 "$1" 2>/dev/null && return 1
    wait "$1" 2>/dev/null
    code=$?
    [ $code -ge 128 ] && [ $code -ne 137 ]
}

# try_case LIE: runs it and writes its row: the lie, extra milliseconds, messages changed, the outcome.
try_case() {
    export LIAR_CASE="$SCRATCH/$CASE" # of this script
    run_case "$1"
    [ $took -ge $usual ] || took=$usual
    echo "$1 $((took - usual)) $told $outcome" >"$CASE.row"
    for pid in $(grep -lsxzF "LIAR_CASE=$SCRATCH/$CASE" /proc/[0-9]*/environ | cut -d / -f 3); do
        kill -9 "$pid" 2>/dev/null
    done
    case $outcome in
    held | "not told") ;;
    *) [ -z "${KEEP:-}" ] || { cp "$CASE".* "$KEEP/" && cp "$CASE/events.log" "$KEEP/$CASE.log"; } ;;
    esac
    mv "$CASE.row" "row-$CASE"
    rm -rf "$CASE" "$CASE".* "keys-$CASE" "keys-$CASE-"*
}

# try_all: tries each line of standard input, JOBS at a time, and writes the rows to the file rows.
try_all() {
    : >rows
    running=0
    while read -r lie; do
        n=$((n + 1))
        CASE=case-$n
        choose_port && echo "$port" >"$CASE.port" # a subshell's choice would be forgotten
        {
            (try_case "$lie")
            [ -s "row-$CASE" ] || echo "$lie 0 0 could not be tried" >"row-$CASE"
            mv "row-$CASE" "done-$CASE"
        } </dev/null 2>"$CASE.shell" & # which tells of workers that kill themselves
        running=$((running + 1))
        while [ $running -ge "$JOBS" ]; do sleep 0.1 && collect_rows; done
    done
    while [ $running -gt 0 ]; do sleep 0.1 && collect_rows; done
    wait
}

# collect_rows: prints the rows of the cases that are done.
collect_rows() {
    for row in done-*; do
        [ -f "$row" ] || continue
        cat "$row" >>rows
        [ -z "${TABLE:-}" ] || cat "$row" >>"$TABLE"
        awk '{ lie = $1; ms = $2; told = $3; $1 = $2 = $3 = ""; if (length(lie) > 54) lie = substr(lie, 1, 51) "..."
            printf "%-54s told %3d: %-24s %5.1f s\n", lie, told, substr($0, 4), ms / 1000 }' "$row"
        rm "$row"
        running=$((running - 1))
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


# combine N SIGN: joins the lines of standard input to N lines, with SIGN between them.
combine() {
    awk -v n="$1" -v sign="$2" '{ line[NR % n] = line[NR % n] sign $0 }
        END { for (i in line) print substr(line[i], 2) }'
}

# choose_lies: prints the lies to try, one run per line.
choose_lies() {
    if [ -n "${LIES:-}" ]; then
        echo "$LIES" | tr ' ' '\n'
    elif [ -n "${KNOWN:-}" ]; then
        awk -v topic="$KNOWN" -v place="$PLACE" '$1 == topic && $3 == place { print $2 }' known
    else
        echo "$ALWAYS" | tr ' ' '\n'
        all_lies | grep -vxFf known.lies | grep -v '^join.token' >unknown
        shuffle $((MIXED * (STEPS - FIRST - 2))) <unknown | combine "$MIXED" ,
        shuffle $((PAIRS * 2)) <unknown | combine "$PAIRS" ';'
        [ "$SAMPLE" = 0 ] || all_lies | shuffle "$SAMPLE"
    fi
}

# try_honest: runs a case without a lie; $usual is then the time that it took.
try_honest() {
    : >"$ERR" # of earlier commands: not to be shown with a failure
    n=0
    usual=0
    echo "--delay:leave=0" >lies
    try_all <lies >/dev/null
    usual=$(cut -d ' ' -f 2 rows)
    [ "$(cut -d ' ' -f 4- rows)" = "not told" ] || fail "without a lie: $(cat rows)"
}

# print_extra: prints the median and the longest time by which lies that were held delayed their runs.
print_extra() {
    grep ' held$' rows | cut -d ' ' -f 2 | sort -n | awk '{ v[NR] = $1 / 1000 }
        END { printf "median %.1f s, longest %.1f s longer", v[int((NR + 1) / 2)], v[NR] }'
}

# try_lies: tries all that were chosen; fails if a lie succeeds that is not known, or a known one no longer.
try_lies() {
    choose_lies >lies
    [ -s lies ] || fail "there are no lies to try: $("$LIAR" --list worker 2>&1 | head -n 1)"
    try_all <lies
    grep -vE ' (held|not told)$' rows >failed
    awk -v place="$PLACE" '$3 == place { print $2 }' known >known.here
    grep ' held$' rows | cut -d ' ' -f 1 | grep -xFf known.here >mended
    echo "$(wc -l <rows) runs: $(grep -c ' held$' rows) held ($(print_extra)), $(grep -c ' not told$' rows) not told," \
        "$(cut -d ' ' -f 1 failed | grep -xFf known.lies | wc -l) known failures"
    cut -d ' ' -f 1 failed | grep -vxFf known.lies >new && fail "these lies succeed with SEED=$SEED: $(tr '\n' ' ' <new)"
    # Some need luck: they count as mended after three attempts.
    for again in 1 2; do
        [ -s mended ] || return 0
        cp mended tries
        try_all <tries
        grep ' held$' rows | cut -d ' ' -f 1 >mended
    done
    [ ! -s mended ] || fail "these no longer succeed, remove them from tests/liar/known-failures: $(tr '\n' ' ' <mended)"
}
