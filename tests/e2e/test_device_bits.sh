#!/bin/bash
# A rank on a device: `lockstep eval` writes the bytes that processors write, for every golden model and weight type,
# alone and beside processors, by tensor and by pipeline, in any chunks, with every type of cache, as Apple's devices are,
# and without each feature that a device may lack: "unified", so that its memory is its own and the host's is of no meaning;
# and with all memory in small pieces. On a software device where there is no other: it computes like a slow graphics
# processor.
# labels: once
set -u
golden=$SHARED_DIR/golden
. "$SOURCE_DIR/tests/support/scratch.sh"

device=${LOCKSTEP_TEST_DEVICE:-$("$LOCKSTEP" devices --json | python3 -c '
import json, sys
print(next((str(d["number"]) for d in json.load(sys.stdin) if d["error"] is None), ""))')}
[ -n "$device" ] || { echo "skip: no device here"; exit 77; }
echo "device: $device"

models=("$SOURCE_DIR/models/jargon-3m-f16.gguf")
models+=("$golden"/logits/*.gguf "$golden"/quant-models/*.gguf)
layouts=(
    "--ranks 1 --device D"
    "--split 1,1 --device D,cpu"
    "--split 3,1 --device D,cpu"
    "--split 1,1,1 --device cpu,D,cpu"
    "--split 1,1 --parallel pipeline --device D,cpu"
    "--split 1,1 --parallel pipeline --device cpu,D"
    "--parallel tensor2xpipeline2 --split 1,1 --device D,cpu,cpu,D"
    "--ranks 2 --device D,cpu"   # by what was measured
    "--split 1,999 --device D,cpu" # no head is the device's
    "--split 999,1 --device D,cpu"
)
kv=(f16 q8_0 f32)
chunks=(512 7 512 1)
parallel=(tensor pipeline tensor)
without=("" unified fma "" fma,f64 unified dot "" int64 unified fma,f64,int64,dot)
ids=280,104,250,60,279,67,48,188,170,12,270,50,272,105,81,81,131,201,171,29,189,19,33,7

n=0 failed=0
compare() { # model layout kv chunk without
    local name out
    name=$(basename "$1" .gguf)
    if [ ! -e "$name.$3.ref" ]; then
        "$LOCKSTEP" eval "$1" -q --ranks 1 --threads 1 --kv "$3" --ids $ids --greedy 3 --logits "$name.$3.ref" >"$name.$3.ids" || fail "$name: the reference"
    fi
    # shellcheck disable=SC2086
    if ! LOCKSTEP_DEVICE_WITHOUT=$5 timeout 120 "$LOCKSTEP" eval "$1" -q --threads 1 ${2//D/$device} --kv "$3" --chunk "$4" \
        --ids $ids --greedy 3 --logits out.f32 >out.ids 2>out.err; then
        echo "FAILED: $name $2 --kv $3 --chunk $4 without=$5: $(cat out.err)"
        failed=$((failed + 1))
    elif ! cmp -s out.f32 "$name.$3.ref" || ! cmp -s out.ids "$name.$3.ids"; then
        echo "DIFFERS: $name $2 --kv $3 --chunk $4 without=$5: $(cmp out.f32 "$name.$3.ref" 2>&1)"
        failed=$((failed + 1))
    fi
    n=$((n + 1))
}

i=0
for model in "${models[@]}"; do
    [ -e "$model" ] || continue
    compare "$model" "${layouts[0]}" "${kv[$((i % 3))]}" "${chunks[$((i % 4))]}" "${without[$((i % 11))]}"
    i=$((i + 1))
    [ $((i % 2)) = 0 ] || continue # a software device is slow to open: each second model in another layout, too
    compare "$model" "${layouts[$((1 + i / 2 % 9))]}" "${kv[$(((i + 1) % 3))]}" "${chunks[$(((i + 1) % 4))]}" ""
done
for layout in "${layouts[@]}"; do # each layout with each cache, of one model
    for type in "${kv[@]}"; do
        compare "${models[0]}" "$layout" "$type" 7 ""
    done
done
# Experts on the processor, all else on the device; of a mixture with shared experts, too.
for model in "$golden"/logits/{qwen3moe,deepseek2-v3-mla,gpt-oss-mxfp4}.gguf; do
    [ -e "$model" ] || continue
    for without in "" unified; do
        compare "$model" "--experts cpu --split 1,1 --device D,cpu" f16 7 "$without"
    done
    compare "$model" "--experts cpu --split 1,1,1 --device D,cpu,cpu" q8_0 512 ""
    compare "$model" "--experts cpu --ranks 2 --device cpu,D" f16 512 "" # by what was measured
done
short=$ids
ids=$(python3 -c 'print(*((i * 37 + 11) % 300 for i in range(150)), sep=",")') # more than a square of tokens (matmul_tiles.comp)
rm -f "$(basename "${models[0]}" .gguf)".f16.ref
for chunk in 512 70 7; do
    compare "${models[0]}" "${layouts[$((chunk % 3))]}" f16 $chunk ""
done
rm -f "$(basename "${models[0]}" .gguf)".f16.ref
# Choices of many tokens, which the device groups by expert: squares of an expert's and some more; weights before the
# experts, biases, shared ones, a latent space, and experts that other ranks hold.
ids=$(python3 -c 'print(*((i * 37 + 11) % 250 for i in range(150)), sep=",")')
for name in qwen3moe llama4 gpt-oss-mxfp4 deepseek2-v3 nemotron_h_moe; do
    model=$golden/logits/$name.gguf
    [ -e "$model" ] || continue
    rm -f "$name".f16.ref
    compare "$model" "${layouts[0]}" f16 512 unified
    LOCKSTEP_DEVICE_MATRIX=32 compare "$model" "${layouts[0]}" f16 512 "" # what matrix units would compute
    compare "$model" "${layouts[0]}" f16 60 fma,f64
    compare "$model" "${layouts[1]}" f16 512 unified
    compare "$model" "--experts cpu --split 1,1,1 --device cpu,D,cpu" f16 512 ""
    rm -f "$name".f16.ref
done
ids=$short
mkdir made && python3 "$SOURCE_DIR/tests/support/reference.py" models made >made.out || fail "reference.py: $(cat made.out)"
for chunk in 1 512; do # LayerNorm, and blocks side by side: no golden model has them
    compare made/cohere2.gguf "${layouts[0]}" f32 $chunk unified
    compare made/cohere2.gguf "${layouts[2]}" f16 $chunk ""
done
for name in qwen3next qwen35 kimi-linear nemotron_h lfm2; do # whose states are the device's
    [ -e "$golden/logits/$name.gguf" ] || continue
    compare "$golden/logits/$name.gguf" "${layouts[0]}" f16 1 unified
    compare "$golden/logits/$name.gguf" "${layouts[1]}" f16 7 fma,f64
    compare "$golden/logits/$name.gguf" "${layouts[4]}" f16 512 unified
    compare "$golden/logits/$name.gguf" "${layouts[8]}" f16 512 "" # no head, and no state
done
# A device that takes memory in small pieces only: matrices, caches and states are cut into many.
pieces() { # pages of 4096 bytes, model layout kv chunk without
    export LOCKSTEP_DEVICE_PIECE=$1
    [ ! -e "$2" ] || compare "${@:2}"
    unset LOCKSTEP_DEVICE_PIECE
}
for i in 0 1 2; do
    pieces 96 "${models[0]}" "--ranks 1 --device D" "${kv[$i]}" 7 unified
    pieces 96 "${models[0]}" "--split 1,1 --parallel ${parallel[$i]} --device D,cpu" "${kv[$i]}" 7 ""
done
pieces 40 "$golden/logits/deepseek2-v3-mla.gguf" "--ctx 2048 --ranks 1 --device D" f16 7 unified
pieces 64 "$golden/logits/gemma3.gguf" "--ctx 2048 --ranks 1 --device D" q8_0 7 ""
pieces 64 "$golden/logits/qwen3moe.gguf" "--ctx 2048 --split 3,1 --device D,cpu" f32 7 unified
pieces 40 "$golden/logits/qwen3next.gguf" "--ctx 2048 --ranks 1 --device D" f16 7 unified
pieces 40 "$golden/logits/granitehybrid.gguf" "--ranks 1 --device D" f16 7 ""

# What Apple's devices lack, all at once, and subnormals flushed: a model of each form, and of each fourth kind of weights.
export LOCKSTEP_DEVICE_PROFILE=apple
i=0
for model in "${models[0]}" "$golden"/logits/{gemma3,gpt-oss-mxfp4,deepseek2-v3-mla,qwen3next,kimi-linear,llama-moe,granitehybrid,olmo2}.gguf "$golden"/quant-models/*.gguf; do
    [ -e "$model" ] || continue
    i=$((i + 1))
    [ $i -le 9 ] || [ $((i % 4)) = 0 ] || continue
    compare "$model" "${layouts[$((i % 2 * (1 + i / 2 % 6)))]}" "${kv[$((i % 3))]}" "${chunks[$((i % 4))]}" ""
done
[ $failed = 0 ] || fail "$failed of $n differ"
[ $failures = 0 ] && echo "$n evaluations on $device, each with the bytes of a processor"
