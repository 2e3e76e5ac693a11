#!/bin/sh
# dist.sh - checks that the program of the tarball runs on a system with nothing but libc, and that builds
# are reproducible: the same sources give the same bytes in any folder.
. "$(dirname "$0")/lib.sh"
source=$(cd "$(dirname "$0")/../.." && pwd)

# Without CUDA kernels and not optimised, to build faster.
for build in first second; do
    (cd "$source" && cmake --preset dist -B "$SCRATCH/$build" -DSTRAIT_TESTS=OFF -DSTRAIT_CUDA=OFF \
        -DCMAKE_C_FLAGS_RELEASE=-O0 &&
        BUILD=$SCRATCH/$build tools/make-dist "$(uname -m)" "$SCRATCH/$build.out") \
        >"$OUT" 2>"$ERR" || fail "make-dist fails in the $build build"
done
tarball=$(echo first.out/strait-*-linux.tar.gz)
cmp -s "$tarball" "second.out/${tarball#*/}" || fail "two builds of the same sources differ"
"$source/tools/check-dist" "$tarball" >"$OUT" 2>"$ERR" || fail "check-dist refuses the tarball"
says "$OUT" ' runs in a '

# Other tarballs and unknown targets are refused with a reason.
mkdir -p empty && tar czf empty.tar.gz empty
"$source/tools/check-dist" empty.tar.gz >"$OUT" 2>"$ERR" && fail "an empty tarball was accepted"
says "$ERR" '^check-dist: empty.tar.gz has no bin/strait'
"$source/tools/make-dist" vax >"$OUT" 2>"$ERR" && fail "make-dist accepted an unknown target"
says "$ERR" '^make-dist: cannot build for vax'
