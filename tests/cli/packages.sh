#!/bin/sh
# packages.sh - the units of systemd and the Debian packages of this build. tools/check-deb and tools/check-container
# install them on a bare Debian; this test needs neither root nor the network.
# Run as: packages.sh PROGRAM HELPER [twice]. With "twice" the packages are built twice, and must be the same bytes.
. "$(dirname "$0")/lib.sh"
source=$(cd "$(dirname "$0")/../.." && pwd)

# The units are well-formed, name options that the program has, and confine what they start.
if command -v systemd-analyze >/dev/null; then
    mkdir units
    for unit in strait-host@.service strait-join.service; do
        sed "s|^ExecStart=strait|ExecStart=$STRAIT|" "$source/packaging/systemd/$unit" >"units/$unit"
    done
    mv units/strait-host@.service units/strait-host@run.service # a template is verified as one of its instances
    systemd-analyze verify --man=no units/strait-host@run.service >"$OUT" 2>"$ERR" || fail "systemd refuses strait-host@.service"
    [ ! -s "$ERR" ] || fail "systemd complains about strait-host@.service"
    # Without a manager of the user the verification cannot know its folders.
    XDG_RUNTIME_DIR=$SCRATCH systemd-analyze --user verify --man=no units/strait-join.service >"$OUT" 2>"$ERR" ||
        fail "systemd refuses strait-join.service"
    [ ! -s "$ERR" ] || fail "systemd complains about strait-join.service"
    systemd-analyze security --offline=true --threshold=20 units/strait-host@run.service >"$OUT" 2>"$ERR" ||
        fail "strait-host@.service is not confined: $(tail -n 1 "$OUT")"
    # A fault in a unit is complained about: the test can fail.
    sed -i 's/^Restart=.*/Restart=sometimes/' units/strait-join.service
    XDG_RUNTIME_DIR=$SCRATCH systemd-analyze --user verify --man=no units/strait-join.service >"$OUT" 2>"$ERR"
    says "$ERR" 'sometimes'
else
    echo "note: systemd is not installed: the units were not verified" >&2
fi
for unit in host@ join; do
    command=${unit%@}
    runs help "$command"
    for flag in $(sed -n 's/^ExecStart=//p' "$source/packaging/systemd/strait-$unit.service" | grep -o -- '--[a-z-]*'); do
        grep -q -- "$flag " "$OUT" || fail "strait-$unit.service uses $flag, which strait $command does not have"
    done
done

command -v dpkg-gencontrol >/dev/null || { echo "note: dpkg-dev is not installed: no packages were built" >&2; exit 0; }
builds="first ${3:+second}"
for out in $builds; do
    # They are unpacked below, and thrown away: compressing them well takes seven seconds more.
    LEVEL=0 BUILD=$(dirname "$STRAIT") "$source/tools/make-deb" "$SCRATCH/$out" >"$OUT" 2>"$ERR" || fail "make-deb fails"
done
for package in strait libstrait0 libstrait-dev; do
    file=$(echo first/${package}_*.deb)
    [ ! -d second ] || cmp -s "$file" "second/${file#*/}" || fail "two packages of the same build differ: $file"
    dpkg-deb --extract "$file" root || fail "$file cannot be unpacked"
done
STRAIT_CLI=$SCRATCH root/usr/bin/strait version >"$OUT" || fail "the packaged program does not start"
dpkg-deb --field first/strait_*.deb Depends >"$OUT"
says "$OUT" 'libc6 \(>= .*libssl3.*libuv1'
for file in lib/systemd/system/strait-host@.service usr/lib/systemd/user/strait-join.service usr/share/man/man1/strait-train.1.gz \
    usr/share/bash-completion/completions/strait usr/include/strait/strait.h usr/share/doc/strait/examples/tiny.yaml; do
    [ -s "root/$file" ] || fail "no package has $file"
done
if command -v lintian >/dev/null; then
    lintian --fail-on error,warning --allow-root first/*.deb >"$OUT" 2>"$ERR" || fail "lintian finds faults"
else
    echo "note: lintian is not installed: the packages were not checked by it" >&2
fi
