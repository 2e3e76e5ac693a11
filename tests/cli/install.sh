#!/bin/sh
# install.sh - what `make install` puts where, and that it works from there.
. "$(dirname "$0")/lib.sh"

# installs FOLDER [PREFIX]: into FOLDER, or into FOLDER as a root that will be packed.
installs() {
    cmake --install "$(dirname "$STRAIT")" --prefix "${2:-$1}" >"$OUT" 2>"$ERR" || fail "could not install"
    runs version
    mv "$OUT" built
    STRAIT_CLI="$SCRATCH" "$1${2:-}/bin/strait" version | cmp -s - built || fail "another program came to $1"
    says "$1${2:-}/share/bash-completion/completions/strait" '^complete .* strait$'
    says "$1${2:-}/share/zsh/site-functions/_strait" '^#compdef strait$'
    says "$1${2:-}/share/fish/vendor_completions.d/strait.fish" '^complete -c strait '
    runs manual --out pages
    diff -r pages "$1${2:-}/share/man" >"$OUT" || fail "other manual pages came to $1"
    [ ! -f "$(dirname "$STRAIT")/strait.cuda" ] || [ -s "$1${2:-}/bin/strait.cuda" ] || fail "kernels did not come along"
}

installs "$SCRATCH/here"
export DESTDIR="$SCRATCH/root"
installs "$DESTDIR" /nowhere/strait
[ ! -e /nowhere/strait ] || fail "DESTDIR was not heeded"
