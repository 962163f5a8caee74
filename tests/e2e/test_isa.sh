#!/bin/bash
# Which kernels a processor gets: those that it has instructions for, without being asked; the bits are those of
# plain C. Arm's processors are qemu's models, where build-arm64 is there.
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"
run="$SOURCE_DIR/tools/arm64-run.sh"
if [ ! -x "$SOURCE_DIR/build-arm64/lockstep" ] || ! command -v qemu-aarch64 >/dev/null; then
    echo "skip: no arm64 build, or no qemu-user, to run it on other processors"
    exit 77
fi
feed=(--ids "$(seq -s, 1 21)" --greedy 2 --threads 1)
"$LOCKSTEP" quantize "$SOURCE_DIR/models/jargon-3m-f16.gguf" model.gguf q4_k >/dev/null || exit 1
LOCKSTEP_ISA=scalar "$LOCKSTEP" eval model.gguf -q "${feed[@]}" --logits want.f32 >want.ids || exit 1

check() { # processor, what it runs, the best last
    export ARM64_CPU=$1
    local isas=$2
    LOCKSTEP_ISA=none timeout 60 "$run" eval model.gguf "${feed[@]}" 2>err && fail "$1: LOCKSTEP_ISA=none was accepted"
    grep -q "this machine runs $isas\$" err || fail "$1 should run $isas: $(cat err)"
    timeout 120 "$run" eval model.gguf "${feed[@]}" --logits got.f32 >got.ids 2>err || fail "$1: $(cat err)"
    grep -q ", ${isas##* }, sums:" err || fail "$1 should choose ${isas##* }: $(cat err)"
    cmp got.f32 want.f32 && cmp got.ids want.ids || fail "$1: other bits"
}
check cortex-a72 "scalar"
check cortex-a76 "scalar, neon"
check max "scalar, neon, i8mm"
[ $failures = 0 ]
