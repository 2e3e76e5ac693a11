#!/bin/sh
# bf16.sh SOURCE - compiles products and attention by bfmmla and compares them with the definition: on an aarch64 processor that has
# the instructions, else under qemu, where it and an aarch64 compiler are installed. Exit code 77: they are not.
set -eu
if [ "$(uname -m)" = aarch64 ]; then
    compiler=${CC:-cc} with= without=
    grep -qw bf16 /proc/cpuinfo || { echo "skipped: this processor has no bf16 instructions"; exit 77; }
else
    compiler=aarch64-linux-gnu-gcc with="qemu-aarch64 -cpu max" without="qemu-aarch64 -cpu cortex-a72"
    command -v $compiler >/dev/null && command -v qemu-aarch64 >/dev/null || {
        echo "skipped: install gcc-aarch64-linux-gnu and qemu-user"
        exit 77
    }
fi
cd "$1"
scratch=$(mktemp -d /tmp/strait-arm-XXXXXX)
trap 'rm -rf "$scratch"' EXIT
flags="-std=c17 -O2 -Wall -Wextra -Wno-psabi -Werror -D_GNU_SOURCE -DSTRAIT_HALF -Iinclude -Isrc"
objects=
for file in bf16_blocks bf16_tile_arm bf16_attention bf16_attention_back; do
    object=$scratch/$file.o
    $compiler $flags -DSTRAIT_ISA=bf16_units -ffp-contract=fast -march=armv8.2-a+bf16 \
        -c src/backend/cpu/$file.c -o "$object"
    objects="$objects $object"
done
$compiler $flags -DSTRAIT_ISA=none -static tests/arm/bf16.c src/backend/cpu/bf16_units_arm.c \
    src/backend/cpu/ref_attention.c src/tensor/tensor.c src/base/pool.c src/base/alloc.c src/base/clock.c src/base/error.c \
    $objects -o "$scratch/bf16" -lpthread -lm
$with "$scratch/bf16"
# Without the instructions the program must not offer them.
if [ -n "$without" ]; then
    ! $without "$scratch/bf16" >"$scratch/without" || { echo "FAIL: ran on a cortex-a72"; exit 1; }
    grep -q 'no bf16 instructions' "$scratch/without" || { cat "$scratch/without"; exit 1; }
fi
# The other kernels compile for this processor, too.
for file in matmul attention_back; do
    for half in "" -DSTRAIT_HALF; do
        $compiler -std=c17 -O2 -Wall -Wextra -Wno-psabi -Werror $half -Iinclude -Isrc -DSTRAIT_ISA=neon \
            -ffp-contract=fast -c src/backend/cpu/simd_$file.c -o "$scratch/neon.o"
    done
done
