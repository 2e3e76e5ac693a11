#!/bin/sh
# exports.sh LIBRARY - the shared library exports what exports.txt lists, and nothing else.
list=$(dirname "$0")/exports.txt
nm -D --defined-only "$1" | awk '{ print $NF }' | LC_ALL=C sort | diff "$list" - && exit
echo "exports.sh: < missing, > unexpected; a public function is declared with STRAIT_API and listed in $list" >&2
exit 1
