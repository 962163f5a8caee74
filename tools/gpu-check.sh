#!/bin/bash
# tools/gpu-check.sh [FOLDER]: what there is to know of a GPU, in less than eight minutes, as FOLDER/report.md (default
# gpu-report): what Vulkan says of it, whether every kernel computes the processor's bits, the bits of whole models on it
# and beside processors, and its speed by weight type beside what its memory could do.
#
#   LOCKSTEP     the program (default build/lockstep)
#   DEVICE       its number or name (default auto; a software device has to be named)
#   BANDWIDTH    GB/s of its memory, for the fractions (default: none are shown)
#   SHAPE        what is measured (default llama-3.1-8b), and LAYERS of it (default all)
#   PROMPT       tokens of its prompt (default 2048)
#   TYPES        weight types (default "q8_0 q4_K q4_0 f16")
#   MODELS       folder of models for the bits (default ../shared/golden/logits); the bundled one is always there
# Every part has a limit of time and may fail by itself. Nothing is installed, and nothing of the device is changed.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
out=${1:-gpu-report}
program=$(realpath "${LOCKSTEP:-build/lockstep}")
device=${DEVICE:-auto}
shape=${SHAPE:-llama-3.1-8b}
prompt=${PROMPT:-2048}
models=${MODELS:-../shared/golden/logits}
mkdir -p "$out"
report=$out/report.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf '%s\n' "$@" | tee -a "$report"; }
part() { say "" "## $1" ""; }
# run SECONDS words...: as a block of text, with how it ended if that is not well.
run() {
    local limit=$1 status
    shift
    say '```'
    timeout "$limit" "$@" 2>&1 | tail -40 | tee -a "$report"
    status=${PIPESTATUS[0]}
    say '```'
    [ "$status" = 0 ] || say "ended with $status"
}

: >"$report"
say "# A GPU, $(date -u +%Y-%m-%d)"
say "" "lockstep $("$program" --version | cut -d' ' -f2-); $(uname -srm); $(grep -c ^processor /proc/cpuinfo) cores"
part "What is there"
run 30 "$program" devices --json

part "Every kernel, beside the processor's"
run 120 "$program" devices --test

part "Bits of whole models"
ids=280,104,250,60,79,67,48,188,170,12,27,50,27,105,81,81,131,201
same=0 other=0
compare() { # model options...
    local model=$1
    shift
    if timeout 60 "$program" eval "$model" -q --ids $ids --greedy 2 "$@" --logits "$work/b" >/dev/null 2>"$work/err" &&
        cmp -s "$work/a" "$work/b"; then
        same=$((same + 1))
    else
        other=$((other + 1))
        say "- $(basename "$model") $*: differs or fails: $(head -c 300 "$work/err")"
    fi
}
end=$((SECONDS + 120))
for model in models/jargon-3m-f16.gguf "$models"/*.gguf "$models"/../quant-models/*.gguf; do
    if [ ! -e "$model" ] || [ $SECONDS -gt $end ]; then continue; fi
    "$program" eval "$model" -q --ids $ids --greedy 2 --logits "$work/a" >/dev/null 2>&1 || continue
    compare "$model" --device "$device"
    compare "$model" --split 1,1 --device "$device,cpu"
    compare "$model" --ranks 2 --device "$device,cpu" # by what was measured
done
say "" "$same evaluations with the processor's bits, $other without."

part "Speed"
say "$shape${LAYERS:+, $LAYERS of its layers}, a prompt of $prompt tokens and 128 tokens after it; the median of three rounds."
say "" "| weights | GB a token | prompt, tokens/s | tokens/s | GB/s |${BANDWIDTH:+ of memory |}"
say "|---|---|---|---|---|${BANDWIDTH:+---|}"
for type in ${TYPES:-q8_0 q4_K q4_0 f16}; do
    [ $SECONDS -lt 420 ] || { say "| $type | no time left |"; continue; }
    "$program" synth --shape "$shape" ${LAYERS:+--layers "$LAYERS"} --type "$type" "$work/model.gguf" >/dev/null || continue
    if timeout 150 "$program" bench "$work/model.gguf" -q -r 3 -p "$prompt" -n 128 --chunk 2048 --json \
        --device "$device" >"$work/bench.json" 2>"$work/err"; then
        python3 - "$work/bench.json" "$type" "${BANDWIDTH:-}" <<'P' | tee -a "$report"
import json, sys
b = json.load(open(sys.argv[1]))
row = [sys.argv[2], f"{b['token_weight_bytes'] * 1e-9:.2f}", f"{b['prompt_tokens_per_s']:.0f}", f"{b['gen_tokens_per_s']:.1f}", f"{b['gen_read_gbs']:.0f}"]
if sys.argv[3]:
    row.append(f"{100 * b['gen_read_gbs'] / float(sys.argv[3]):.0f} %")
print("| " + " | ".join(row) + " |")
P
    else
        say "| $type | no result in 150 s: $(head -c 200 "$work/err") |"
    fi
    rm -f "$work/model.gguf"
done
say "" "$SECONDS s in all."
