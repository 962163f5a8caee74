#!/bin/bash
# tools/arm64-run.sh [arguments]: the cross-built lockstep (build-arm64) under qemu-aarch64, its
# workers too, on the processor ARM64_CPU (max: all that qemu knows).
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export LOCKSTEP_WORKER="$root/tools/arm64-run.sh"
exec qemu-aarch64 -cpu "${ARM64_CPU:-max}" -L "$root/build-arm64-sysroot/root" "$root/build-arm64/lockstep" "$@"
