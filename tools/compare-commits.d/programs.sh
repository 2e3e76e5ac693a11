# programs.sh - builds the programs of both sides, asks which keys they know, makes their corpus.
# shellcheck shell=bash

# find_program SIDE: the built program, which some commits put deeper into build/.
find_program() {
    local path
    for path in "$out/$1"/build/strait "$out/$1"/build/*/strait; do
        [ -f "$path" ] && [ -x "$path" ] && PROGRAM[$1]=$path && return
    done
    return 1
}

# copy_source COMMIT FOLDER: the files of a commit, or those of the working tree that git does not ignore.
copy_source() {
    if [ "$1" != . ]; then
        git archive "$1" | tar -x -C "$2"
        return
    fi
    local top path
    top=$(git rev-parse --show-toplevel)
    git -C "$top" ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' path; do
        [ ! -e "$top/$path" ] || printf '%s\0' "$path"
    done | tar -c -C "$top" --null -T - | tar -x -C "$2"
}

# build SIDE: the program of COMMIT[SIDE] in release mode. Tests and, without --cuda, kernels are left out.
build() {
    local folder=$out/$1 commit=${COMMIT[$1]} id=working-tree options=(-DSTRAIT_WERROR=OFF -DSTRAIT_TESTS=OFF)
    if [ "$commit" != . ]; then
        id=$(git rev-parse --verify --quiet "$commit^{commit}") || die "git knows no commit $commit"
        [ "$(cat "$folder.commit" 2>/dev/null)" != "$id $cuda" ] || ! find_program "$1" || return 0
    fi
    echo "building $1: $commit (${id:0:12})" >&2
    rm -rf "$folder" "$folder.commit"
    mkdir -p "$folder"
    copy_source "$commit" "$folder"
    [ -n "$cuda" ] || options+=(-DSTRAIT_CUDA_KERNELS=OFF)
    if command -v ccache >/dev/null; then options+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache); fi
    # ccache finds what another folder compiled only if paths are relative to this one.
    if ! (
        export CCACHE_BASEDIR=$folder CCACHE_NOHASHDIR=1
        cd "$folder" && cmake --preset release "${options[@]}" &&
            cmake --build --preset release --parallel "$jobs"
    ) >"$folder.build.log" 2>&1; then
        tail -n 30 "$folder.build.log" >&2
        die "cannot build $1 ($commit); the whole log is $folder.build.log"
    fi
    find_program "$1" || die "$1 ($commit) was built, but there is no build/strait or build/*/strait in $folder"
    echo "$id $cuda" >"$folder.commit"
}

# learn_keys SIDE: the keys that its program knows. "strait options" prints each at the start of a line.
learn_keys() {
    local line lines
    lines=$("${PROGRAM[$1]}" options) || die "$1: '${PROGRAM[$1]} options' failed"
    while IFS= read -r line; do
        [[ $line =~ ^\ {0,4}([a-z][a-z0-9_]*(\.[a-z0-9_]+)+)(\ |$) ]] && KNOWN[$1:${BASH_REMATCH[1]}]=yes
    done <<<"$lines" || true
    [ -n "${KNOWN[$1:train.steps]:-}" ] || die "$1: cannot read the keys that '${PROGRAM[$1]} options' prints"
}

# reason_of_change NAME: sets "reason" if the two programs differ in this run by design, else to nothing.
reason_of_change() {
    local run key words
    reason=''
    while read -r run key words; do
        [ "$run" != "$1" ] || [ "${KNOWN[old:$key]:-}" = "${KNOWN[new:$key]:-}" ] || reason=$words
    done <<<"$CHANGED_RUNS"
}

# translate SIDE SETTINGS...: sets "arguments" to the --set arguments with the keys that its program knows.
translate() {
    local side=$1 setting key row candidate
    shift
    arguments=()
    for setting in "$@"; do
        key=${setting%%=*}
        while read -r row; do
            [[ " $row " == *" $key "* ]] || continue
            for candidate in $row; do
                [ -z "${KNOWN[$side:$candidate]:-}" ] || { key=$candidate && break 2; }
            done
        done <<<"$RENAMED_KEYS"
        [[ -n "${KNOWN[$side:$key]:-}" || $LATER_KEYS != *" $key "* ]] || continue
        [ -n "${KNOWN[$side:$key]:-}" ] ||
            die "$side: its program knows no key $key; add its new or old name to RENAMED_KEYS in $PARTS/runs.sh"
        arguments+=(--set "$key=${setting#*=}")
    done
}

# make_corpus SIDE: text, tokenizer and token shards, made once and used by both sides.
make_corpus() {
    local x=1 i words file text program=${PROGRAM[$1]}
    rm -rf "$out/corpus"
    mkdir -p "$out/corpus"
    cd "$out/corpus"
    words=(the sea was calm and a small boat went slowly past rocks where birds sang of storms long gone
        while men drew their nets full silver fish in morning light)
    for file in train valid; do
        text=
        for ((i = 1; i <= 4000; i++)); do
            x=$((x * 16807 % 2147483647))
            text+=${words[x / 8 % ${#words[@]}]}
            [ $((i % 13)) = 0 ] && text+=$'.\n' || text+=' '
        done
        printf '%s' "$text" >$file.txt
    done
    {
        "$program" tokenizer train --vocab 300 --out tokenizer.json train.txt &&
            "$program" tokenize --tokenizer tokenizer.json --out train.bin train.txt &&
            "$program" tokenize --tokenizer tokenizer.json --out valid.bin valid.txt
    } >log 2>&1 || { tail -n 15 log >&2 && die "$1: cannot make the corpus"; }
    echo 'name: compare' >run.yaml
    cd "$OLDPWD"
}
