#!/bin/sh
# doctor.sh - checks that doctor describes the machine as text and as JSON, and that the first fault
# decides the exit code.
. "$(dirname "$0")/lib.sh"

runs doctor
says "$OUT" '^machine$' '^. processor .*[0-9]+ core' '^. memory .* free' "^. disk .*free in $SCRATCH" \
    '^. clock ' '^. sandbox +(seccomp filters|no seccomp filters)' '^network$' '^. congestion ' '^  mpi +(Open MPI v[0-9.]+ by .*/strait-mpi.so|not installed)' '^cuda$' '^use$' '^  device.kind +(cpu|cuda)$'
# Every note says what to do, on the same line or the next.
awk '/^\?/ { wants = 1; if (/: [a-z]/) wants = 0; next } wants && !/->/ { exit 1 } { wants = 0 }' \
    "$OUT" || fail "a note does not say what to do"

runs doctor --json
cp "$OUT" found.json
[ "$(wc -l <found.json)" -eq 1 ] || fail "the JSON is not on one line"
jq -e '.machine.memory.value and (.use["device.kind"].value | IN("cpu", "cuda"))
    and (.use["device.precision"].value | IN("fp32", "bf16"))
    and ([.[][] | .state | IN("good", "note", "fault")] | all)' found.json >/dev/null ||
    fail "unexpected JSON: $(cat found.json)"

# --device cpu selects the CPU even if there are other devices.
runs doctor --device cpu --json
jq -e '.use.cpu.value | test("thread")' "$OUT" >/dev/null || fail "the cpu is not described"
jq -e '.use["cpu with bf16"].value | test("bf16 products: ")' "$OUT" >/dev/null ||
    fail "the kernels of bf16 are not named"
jq -e '.use["device.kind"].value == "cpu"' "$OUT" >/dev/null || fail "another device than requested was selected"

# A required device that exists, and one that does not.
if [ "$(jq -r '.use["device.kind"].value' found.json)" = cuda ]; then
    runs doctor --device cuda
    says "$OUT" '^  device 0 .*sm_' '^  kernels .*strait.cuda'
else
    refuses 5 'cuda: problem: device cuda: ' doctor --device cuda
    says "$OUT" '^! problem '
fi
refuses 3 'standard input: no invite in it' doctor -
refuses 2 '--device: "gpu" is not a device kind; expected cpu or cuda' doctor --device gpu
refuses 2 'the invite does not begin with' doctor now

# An unwritable folder is a fault of the disk. Root can write anywhere, so root skips this.
if [ "$(id -u)" -ne 0 ]; then
    mkdir closed && chmod a-w closed && cd closed || exit 1
    refuses 3 'machine: disk: .*/closed cannot be written to' doctor
fi
