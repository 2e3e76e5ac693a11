#!/bin/sh
# doctor.sh - describes the machine as text and as JSON; the first fault decides the exit code.
. "$(dirname "$0")/lib.sh"

runs doctor
says "$OUT" '^machine$' '^. processor .*[0-9]+ core' '^. memory .* free' "^. disk .*free in $SCRATCH" \
    '^. clock ' '^network$' '^. congestion ' '^cuda$' '^use$' '^  device.kind +(cpu|cuda)$'
# Every note says what to do, on its own line or below.
awk '/^\?/ { wants = 1; if (/: [a-z]/) wants = 0; next } wants && !/->/ { exit 1 } { wants = 0 }' \
    "$OUT" || fail "a note without its fix"

runs doctor --json
cp "$OUT" found.json
[ "$(wc -l <found.json)" -eq 1 ] || fail "not one line of JSON"
jq -e '.machine.memory.value and (.use["device.kind"].value | IN("cpu", "cuda"))
    and (.use["device.precision"].value | IN("fp32", "bf16"))
    and ([.[][] | .state | IN("good", "note", "fault")] | all)' found.json >/dev/null ||
    fail "no such JSON: $(cat found.json)"

# The cpu, if it is asked for, whatever other devices there are.
runs doctor --device cpu --json
jq -e '.use.cpu.value | test("thread")' "$OUT" >/dev/null || fail "the cpu is not described"
jq -e '.use["device.kind"].value == "cpu"' "$OUT" >/dev/null || fail "another device than asked for"

# A required device that exists, and one that does not.
if [ "$(jq -r '.use["device.kind"].value' found.json)" = cuda ]; then
    runs doctor --device cuda
    says "$OUT" '^  device 0 .*sm_' '^  kernels .*strait.cuda'
else
    refuses 5 'cuda: problem: device cuda: ' doctor --device cuda
    says "$OUT" '^! problem '
fi
refuses 2 '--device: "gpu" is not a device kind; expected cpu or cuda' doctor --device gpu
refuses 2 'the invite does not begin with' doctor now

# An unwritable folder is a fault of the disk; root may write everywhere.
if [ "$(id -u)" -ne 0 ]; then
    mkdir closed && chmod a-w closed && cd closed || exit 1
    refuses 3 'machine: disk: .*/closed cannot be written to' doctor
fi
