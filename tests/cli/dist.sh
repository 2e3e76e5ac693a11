#!/bin/sh
# dist.sh - the tarball for other machines starts where nothing is but libc, and the same sources
# give the same bytes, wherever they are built.
. "$(dirname "$0")/lib.sh"
source=$(cd "$(dirname "$0")/../.." && pwd)

# Without kernels, and not optimised: nobody will run these for long.
for turn in first second; do
    (cd "$source" && cmake --preset dist -B "$SCRATCH/$turn" -DSTRAIT_TESTS=OFF -DSTRAIT_CUDA=OFF \
        -DCMAKE_C_FLAGS_RELEASE=-O0 &&
        BUILD=$SCRATCH/$turn tools/make-dist "$(uname -m)" "$SCRATCH/$turn.out") \
        >"$OUT" 2>"$ERR" || fail "make-dist, $turn turn"
done
tarball=$(echo first.out/strait-*-linux.tar.gz)
cmp -s "$tarball" "second.out/${tarball#*/}" || fail "two builds differ"
"$source/tools/check-dist" "$tarball" >"$OUT" 2>"$ERR" || fail "check-dist"
says "$OUT" ' starts in a '

# What is not a tarball of ours is refused in words.
mkdir -p empty && tar czf empty.tar.gz empty
"$source/tools/check-dist" empty.tar.gz >"$OUT" 2>"$ERR" && fail "an empty tarball was accepted"
says "$ERR" '^check-dist: empty.tar.gz has no bin/strait'
"$source/tools/make-dist" vax >"$OUT" 2>"$ERR" && fail "a tarball for a machine nobody has"
says "$ERR" '^make-dist: no way to build for vax'
