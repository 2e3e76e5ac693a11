#!/bin/sh
# dist.sh - checks that the program of the tarball runs on a system with nothing but libc, that builds are
# reproducible (the same sources give the same bytes in any folder), and that a tarball whose SBOM or checksums
# do not fit is refused.
# Run as: dist.sh PROGRAM HELPER [twice]. With "twice" the tarball is built two times. Otherwise its objects are those of
# PROGRAM's build where the same command compiles them, and some modules are compiled again: over a minute less.
. "$(dirname "$0")/lib.sh"
source=$(cd "$(dirname "$0")/../.." && pwd)

# configure FOLDER: without CUDA kernels, to build faster.
configure() {
    cmake -S "$source" --preset dist -B "$SCRATCH/$1" -DSTRAIT_TESTS=OFF -DSTRAIT_CUDA=OFF \
        ${2:+-DCMAKE_C_COMPILER_LAUNCHER="$2"} >"$OUT" 2>"$ERR" || fail "cannot configure the $1 build"
}
# build FOLDER: the tarball.
build() {
    BUILD=$SCRATCH/$1 "$source/tools/make-dist" "$(uname -m)" "$SCRATCH/$1.out" >"$OUT" 2>"$ERR" ||
        fail "make-dist fails in the $1 build"
}
if [ "${3:-}" = twice ]; then
    configure first
    build first
    configure second
    build second
    tarball=$(echo first.out/strait-*-linux.tar.gz)
    cmp -s "$tarball" "second.out/${tarball#*/}" || fail "two builds of the same sources differ"
else
    REUSE_BUILD=$(dirname "$STRAIT")
    REUSE_COMMANDS=$SCRATCH/commands
    export REUSE_BUILD REUSE_COMMANDS
    ninja -C "$REUSE_BUILD" -t commands program >"$OUT" || fail "cannot list the commands of the build"
    sed 's/ -DUTF8PROC_EXPORTS//' "$OUT" >"$REUSE_COMMANDS" # only means something to compilers for Windows
    configure first "$source/tests/cli/helpers/reuse-object.sh"
    build first
    tarball=$(echo first.out/strait-*-linux.tar.gz)
    [ "$(wc -l <"$REUSE_COMMANDS.reused")" -ge 500 ] || fail "few objects of $REUSE_BUILD could be reused"
    configure second
    ninja -C second -t targets all | sed -n 's/^\(src\/\(base\|codec\)\/.*\.o\): .*/\1/p' >objects
    [ "$(wc -l <objects)" -ge 50 ] || fail "there are hardly any objects to compile again"
    xargs ninja -C second <objects >"$OUT" 2>"$ERR" || fail "cannot compile modules again"
    while read -r object; do cmp -s "first/$object" "second/$object" || fail "two builds of $object differ"; done <objects
fi
"$source/tools/check-dist" "$tarball" >"$OUT" 2>"$ERR" || fail "check-dist refuses the tarball"
says "$OUT" ' runs in a '

# tampered REASON CHANGE: unpacks the tarball, makes a change in its folder, and checks that it is refused.
tampered() {
    rm -rf strait-*-linux
    tar xzf "$tarball"
    (cd strait-*-linux && eval "$2") || fail "cannot change the tarball: $2"
    "$source/tools/check-sbom" strait-*-linux >"$OUT" 2>"$ERR" && fail "check-sbom accepts: $2"
    says "$ERR" "^check-sbom: $1"
}
sums='find . -type f ! -name SHA256SUMS | sed "s/^..//" | sort | xargs -d "\n" sha256sum >../sums && mv ../sums SHA256SUMS'
# with_sbom FILTER: the change that applies jq's FILTER to the SBOM, with correct checksums.
with_sbom() {
    echo "jq '$1' sbom.spdx.json >new && mv new sbom.spdx.json && $sums"
}
tampered 'SHA256SUMS: README.md: FAILED' 'echo >>README.md'
tampered 'SHA256SUMS does not list' 'echo >more.txt'
tampered 'sbom.spdx.json: its files or hashes' "echo >>README.md && $sums"
tampered 'bin/strait contains libuv, which sbom.spdx.json does not list' \
    "$(with_sbom '(.packages, .relationships) |= map(select((.SPDXID // .relatedSpdxElement) != "SPDXRef-Package-libuv1-dev"))')"
tampered 'sbom.spdx.json does not list libm.so.6' "$(with_sbom '(.relationships[] | select(.relationshipType == "DYNAMIC_LINK").relationshipType) = "OTHER"')"
tampered 'sbom.spdx.json: a package lacks' "$(with_sbom 'del(.packages[2].versionInfo)')"
tampered 'sbom.spdx.json: a package has no licence' "$(with_sbom '.packages[3].licenseDeclared = "NOASSERTION"')"
tampered 'sbom.spdx.json: not a document' "$(with_sbom '.spdxVersion = "SPDX-2.2"')"
cp "$tarball" moved.tar.gz
"$source/tools/check-dist" moved.tar.gz >"$OUT" 2>"$ERR" && fail "a tarball without checksums beside it was accepted"
says "$ERR" 'no SHA256SUMS beside moved.tar.gz'

# Other tarballs and unknown targets are refused with a reason.
mkdir -p empty && tar czf empty.tar.gz empty
"$source/tools/check-dist" empty.tar.gz >"$OUT" 2>"$ERR" && fail "an empty tarball was accepted"
says "$ERR" '^check-dist: empty.tar.gz has no bin/strait'
"$source/tools/make-dist" vax >"$OUT" 2>"$ERR" && fail "make-dist accepted an unknown target"
says "$ERR" '^make-dist: cannot build for vax'
