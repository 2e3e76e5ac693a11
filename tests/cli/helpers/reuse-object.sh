#!/bin/sh
# reuse-object.sh COMPILER ARGS... - a compiler launcher of CMake that takes the object of another build where the same
# command made it. REUSE_BUILD is the folder of that build, up to date, REUSE_COMMANDS a list of its commands.
if grep -qxF -e "$*" "$REUSE_COMMANDS"; then
    object= deps= before=
    for argument; do
        case $before in -o) object=$argument ;; -MF) deps=$argument ;; esac
        before=$argument
    done
    echo "$object:" >"$deps" && cp "$REUSE_BUILD/$object" "$object" && echo "$object" >>"$REUSE_COMMANDS.reused"
else
    exec "$@"
fi
