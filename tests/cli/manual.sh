#!/bin/sh
# manual.sh - checks that manual pages contain the text of the help, and that groff and mandoc accept them
# without warnings.
. "$(dirname "$0")/lib.sh"

# flatten: prints standard input as one line with single spaces.
flatten() {
    tr -s ' \n\t' ' ' | sed 's/^ //; s/ $//'
}

# renders PAGE: renders PAGE to PAGE.txt; no installed tool may print a warning.
renders() {
    LC_ALL=C grep -n '[^ -~]' "$1" && fail "$1 is not plain ASCII"
    if command -v mandoc >/dev/null; then
        mandoc -Tlint -W style "$1" >"$OUT" 2>"$ERR" && [ ! -s "$OUT" ] || fail "mandoc: $1"
        mandoc -Tascii -O width=100 "$1" | sed 's/.\x08//g' >"$1.txt" # bold text is overstruck
    fi
    command -v groff >/dev/null || return 0
    groff -man -Tascii -ww -P -cbou "$1" >"$1.txt" 2>"$ERR" || fail "groff: $1"
    [ ! -s "$ERR" ] || fail "groff has warnings about $1"
}

# has PAGE TEXT: checks that PAGE contains TEXT, wherever its lines break.
has() {
    flatten <"$1.txt" >page.flat
    awk -v text="$2" 'index($0, text) { found = 1 } END { exit !found }' page.flat && return
    echo "$2" >"$OUT"
    fail "$1 does not contain the text above"
}

command -v mandoc >/dev/null || command -v groff >/dev/null || exit 77

pages=$SCRATCH/pages
runs manual --out "$pages"
runs help
cp "$OUT" overview
commands=$(awk '/^  / { print $1 }' overview)
[ "$(echo $commands | wc -w)" -ge 20 ] || fail "the overview lists fewer than 20 commands"

# The overview: every command with its summary, and the exit codes that this folder's scripts expect.
renders "$pages/man1/strait.1"
has "$pages/man1/strait.1" "$(head -n 1 overview)"
has "$pages/man1/strait.1" "$(tail -n 3 overview | flatten)"
for command in $commands; do
    has "$pages/man1/strait.1" "strait-$command(1) $(sed -n "s/^  $command  *//p" overview)"
done
for code in 0 2 3 4 5 6 130; do
    grep -qE "^ +$code( |\$)" "$pages/man1/strait.1.txt" || fail "strait(1) has no exit code $code"
done

# A command's page has the usage, description, flags and examples of the help, the exit codes, and nothing else. An example
# begins with the command, and has flags that the command has.
for command in $commands; do
    page=$pages/man1/strait-$command.1
    renders "$page"
    runs help "$command"
    wanted=$(awk '/^flags:$/ { print "OPTIONS"; next } /^examples:$/ { print "EXAMPLES"; next }
        !is_about && /^$/ { print "DESCRIPTION"; is_about = 1; next } { print }' "$OUT" | flatten)
    has "$page" "SYNOPSIS $wanted EXIT STATUS 0 "
    sed '1,/^examples:$/d' "$OUT" | awk '/^  strait/ { getline; print $1 }' | while read -r first; do
        grep -qE "^ +$first" "$page.txt" || fail "$command: an example and its text share a line"
    done || exit 1
    sed '1,/^examples:$/d' "$OUT" | grep '^  strait' >examples || fail "$command has no example"
    grep -v "^  strait $command\( \|\$\)" examples && fail "$command has examples of other commands"
    for flag in $(grep -oE ' --?[a-z][a-z-]*' examples | sort -u); do
        [ "$flag" = "-l" ] && [ "$command" = manual ] && continue # of man
        sed '/^examples:$/q' "$OUT" | grep -qE -- "^  (-., )?$flag( |\$)|^  $flag, " || fail "$command has no $flag, which an example uses"
    done
    runs manual "$command"
    cmp -s "$OUT" "$page" || fail "manual $command and manual --out differ"
done

# The page of the run file has every key with its value and default.
renders "$pages/man5/strait-run.5"
runs options
has "$pages/man5/strait-run.5" "KEYS $(grep -vE '^[a-z]+:$' "$OUT" | flatten) SEE ALSO"

# No other pages, and none for internal commands.
[ "$(find "$pages" -name '*.[15]' | wc -l)" -eq $(($(echo $commands | wc -w) + 2)) ] || fail "there are more or fewer pages than commands"
refuses 2 'unknown command "trian"; did you mean train\?' manual trian
refuses 2 'manual needs one command' manual train --out elsewhere
refuses 2 'stage has no manual page' manual stage
refuses 3 '/dev/null/man1' manual --out /dev/null
