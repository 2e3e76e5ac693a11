#!/bin/sh
# cxx.sh COMPILER INCLUDE - a C++ compiler accepts every public header, each on its own, and links C.
for header in "$2"/strait/*.h; do
    echo "#include <strait/${header##*/}>" |
        "$1" -std=c++17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$2" -x c++ - || exit 1
done
for header in "$2"/strait/*.h; do
    grep -q STRAIT_API "$header" || continue
    case $header in */api.h) continue ;; esac
    grep -q 'extern "C"' "$header" || { echo "$header: no extern \"C\"" >&2; exit 1; }
done
