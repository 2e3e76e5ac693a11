#!/bin/sh
# embed.sh - checks that examples/embed.c builds against an installed prefix and trains as `strait train` does.
. "$(dirname "$0")/lib.sh"
source=$(cd "$(dirname "$0")/../.." && pwd)
prefix=$SCRATCH/prefix
cmake --install "$(dirname "$STRAIT")" --prefix "$prefix" >"$OUT" 2>"$ERR" || fail "cmake --install failed"
pc=$(find "$prefix" -name strait.pc)
[ -n "$pc" ] || fail "strait.pc was not installed"
export PKG_CONFIG_PATH="${pc%/*}"
libraries=${pc%/pkgconfig/*}

# builds NAME [FLAGS...]: compiles the example with the flags that pkg-config prints.
builds() {
    name=$1
    shift
    # shellcheck disable=SC2046 # flags are words
    cc -std=c17 -Wall -Wextra -Werror "$source/examples/embed.c" -o "$name" \
        $(pkg-config "$@" --cflags --libs strait) >"$OUT" 2>"$ERR" || fail "$name does not build"
}

# trains NAME RUN EXPECTED: runs the example; its losses must be those of `strait train`.
trains() {
    LD_LIBRARY_PATH=$libraries STRAIT_CLI=$SCRATCH "./$1" "$2" >"$OUT" 2>"$ERR" || fail "$1 $2: exit code $?"
    cmp -s "$OUT" "$3" || fail "$1 $2: the losses differ from those of strait train"
}

make_corpus
make_run one.yaml 2 6
sed 's/^stages: .*/stages: {microbatch: 1, count: 2}/' one.yaml >two.yaml
for run in one two; do
    runs train $run.yaml --out $run
    jq -r 'select(.loss != null) | "\(.step) \(.loss)"' $run/metrics.jsonl >$run.losses
    [ "$(wc -l <$run.losses)" -eq 6 ] || fail "$run: not one loss per step"
done

# The stages of the second run are processes of the installed program, which the library finds relative
# to its own path.
builds shared
trains shared one.yaml one.losses
trains shared two.yaml two.losses
wait_all_exited

# Without the shared libraries, the same flags and --static link the archive into the example.
rm "$libraries"/libstrait.so*
builds static --static
trains static one.yaml one.losses
PATH="$prefix/bin:$PATH" trains static two.yaml two.losses

# The strait.pc of a build with STRAIT_STATIC, which links archives, names as many libraries.
cmake -S "$source" -B configured -DSTRAIT_STATIC=ON -DSTRAIT_TESTS=OFF -DSTRAIT_CUDA=OFF >"$OUT" 2>"$ERR" ||
    fail "STRAIT_STATIC cannot be configured"
cp configured/strait.pc "$pc"
builds archives --static
trains archives one.yaml one.losses

# Without the program, stages cannot be started, and the error names the remedy.
rm "$prefix/bin/strait"
PATH=/usr/bin:/bin "./static" two.yaml >"$OUT" 2>"$ERR" && fail "the run succeeded although the program is missing"
says "$ERR" '^embed: the program strait, which runs the stages, .*strait_set_program'
