#!/bin/sh
# hardening.sh - checks that the program is built with the protections that SECURITY.md names.
. "$(dirname "$0")/lib.sh"
command -v readelf >/dev/null || exit 77

readelf -h "$STRAIT" >"$OUT"
says "$OUT" 'Type: *DYN ' # position independent, so that its address is random
readelf -lW "$STRAIT" >"$OUT"
says "$OUT" 'GNU_RELRO'
says "$OUT" 'GNU_STACK .* RW '
readelf -dW "$STRAIT" >"$OUT"
says "$OUT" 'BIND_NOW|FLAGS_1.* NOW'
readelf -W --dyn-syms "$STRAIT" >"$OUT"
says "$OUT" '__stack_chk_fail'
says "$OUT" '__[a-z]*printf_chk' # _FORTIFY_SOURCE
