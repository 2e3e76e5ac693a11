#!/bin/sh
# completion.sh - checks the completions in bash, zsh and fish, for the shells that are installed.
. "$(dirname "$0")/lib.sh"

# Each script reads command lines and prints the completions at the end of each line.
cat >ask.bash <<'END'
. ./completion.bash
while IFS= read -r line; do
    read -ra COMP_WORDS <<<"$line"
    [[ $line != *' ' ]] || COMP_WORDS+=('')
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _strait
    echo "${COMPREPLY[@]}"
done
END
cat >ask.fish <<'END'
. ./completion.fish
while read -l line
    echo (complete -C $line | string replace -r '\t.*' '')
end
END
# zsh completes only on a terminal, so lines are typed into a pseudo-terminal.
cat >ask.zsh <<'END'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "stty -echo; PS1= PS2= RPS1=; autoload -Uz compinit; compinit -D -u; . ./completion.zsh
compadd() {
    local -a hits
    [[ \${@[1,(i)(-|--)]} == *-(O|A|D)\\ * ]] || builtin compadd -A hits \"\$@\"
    offered+=(\$hits)
    builtin compadd \"\$@\"
}
offer() {
    local -a offered
    zle complete-word
    print -r -- \"<\$offered>\"
    BUFFER=
}
zle -N offer
bindkey '^T' offer
setopt no_beep no_auto_menu no_auto_list
print re''ady"
zpty -r -m shell answer '*ready*'
while IFS= read -r line; do
    zpty -w -n shell "$line"$'\x14'
    zpty -r -m shell answer '*<*>*'
    print -r -- "${${answer##*<}%>*}"
done
zpty -d shell
END

# Command lines and, after a bar, the expected completions in any order.
cat >wanted <<'END'
strait trai|train
strait hel|help
strait train --re|--resume
strait host --announ|--announce
strait tokenizer |train encode decode info
strait tokenizer e|encode
strait tokenizer encode comp|completion.bash completion.fish completion.zsh
strait bench |step kernels codec
strait completion |bash zsh fish
strait options li|link
strait help toke|tokenizer tokenize
strait help sta|
strait manual ru|run
strait train run.yaml --set train.st|train.staleness= train.steps=
strait train run.yaml -s link.codec.k|link.codec.keep=
strait train ask.b|ask.bash
strait train --out ask.f|ask.fish
strait stage ask.z|ask.zsh
END
cut -d '|' -f 1 wanted >lines

# sort_completions: sorts the completions after the bar of each line.
sort_completions() {
    while IFS= read -r line; do
        echo "${line%%|*}|$(printf '%s\n' ${line#*|} | sort | tr '\n' ' ')"
    done
}
sort_completions <wanted >wanted.sorted

export HOME="$SCRATCH" TERM=dumb
for shell in bash zsh fish; do
    runs completion $shell
    cp "$OUT" completion.$shell
done
for shell in bash zsh fish; do
    if ! command -v $shell >/dev/null; then
        echo "skipped: $shell is not installed"
        continue
    fi
    $shell -n completion.$shell >"$OUT" 2>"$ERR" || fail "$shell reports a syntax error in its completion script"
    timeout 300 $shell ask.$shell <lines >"$OUT" 2>"$ERR" || fail "$shell ended with $?"
    tr -d '\r' <"$OUT" | paste -d '|' lines - | sort_completions >got.sorted
    diff wanted.sorted got.sorted >"$OUT" || fail "$shell offers other completions than expected"
done
refuses 2 'completion: expected bash, zsh or fish, not "elvish"$' completion elvish
refuses 2 'completion zsh takes no arguments, but got "fish"$' completion zsh fish
