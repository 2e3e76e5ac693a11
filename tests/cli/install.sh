#!/bin/sh
# install.sh - checks that `make install` installs program, library, headers, manual pages and
# completions, and that they work.
. "$(dirname "$0")/lib.sh"

# installs FOLDER [PREFIX]: installs into FOLDER, or with PREFIX into FOLDER as DESTDIR.
installs() {
    cmake --install "$(dirname "$STRAIT")" --prefix "${2:-$1}" >"$OUT" 2>"$ERR" || fail "cmake --install failed"
    runs version
    mv "$OUT" built
    STRAIT_CLI="$SCRATCH" "$1${2:-}/bin/strait" version | cmp -s - built || fail "another program was installed in $1"
    says "$1${2:-}/share/bash-completion/completions/strait" '^complete .* strait$'
    says "$1${2:-}/share/zsh/site-functions/_strait" '^#compdef strait$'
    says "$1${2:-}/share/fish/vendor_completions.d/strait.fish" '^complete -c strait '
    runs manual --out pages
    diff -r pages "$1${2:-}/share/man" >"$OUT" || fail "other manual pages were installed in $1"
    for file in strait.h libstrait.a strait.pc; do
        [ -n "$(find "$1${2:-}" -name $file)" ] || fail "$file was not installed in $1"
    done
    for unit in system/strait-host@ user/strait-join; do
        [ -s "$1${2:-}/lib/systemd/$unit.service" ] || fail "$unit.service was not installed in $1"
    done
    [ ! -f "$(dirname "$STRAIT")/strait.cuda" ] || [ -s "$1${2:-}/bin/strait.cuda" ] || fail "the CUDA kernels were not installed"
    [ ! -f "$(dirname "$STRAIT")/strait-mpi.so" ] || [ -s "$1${2:-}/bin/strait-mpi.so" ] || fail "the MPI module was not installed"
}

installs "$SCRATCH/here"
export DESTDIR="$SCRATCH/root"
installs "$DESTDIR" /nowhere/strait
[ ! -e /nowhere/strait ] || fail "DESTDIR was ignored"
