#!/bin/bash
# make bench: prompt and generation speed of a model with the shape of Llama 3.2 1B and random weights, beside
# this machine's roofs (docs/bench.md). BENCH_TYPES="q8_0 q4_0" chooses the weight types, BENCH_OPTIONS
# goes to `lockstep bench`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p build/bench
file=build/bench/model.gguf
trap 'rm -f $file' EXIT
for type in ${BENCH_TYPES:-q8_0 q4_0 q4_K f16}; do
    echo "== llama-3.2-1b, $type"
    build/lockstep synth --shape llama-3.2-1b --type "$type" "$file" >/dev/null
    # shellcheck disable=SC2086
    build/lockstep bench "$file" -p 512 -n 64 ${BENCH_OPTIONS:-}
done
