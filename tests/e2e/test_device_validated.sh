#!/bin/bash
# Vulkan's validation layer, synchronization validation included, has nothing to say about whole models on a device: a dense
# one, a mixture, latent attention, recurrent layers of each kind; alone, beside a processor, as two stages, with
# memory of its own, and with a device that is lost and opened again. Nor about all kernels (test_shaders, test_shaders_recurrent).
# labels: slow once
set -u
golden=$SHARED_DIR/golden
. "$SOURCE_DIR/tests/support/scratch.sh"

device=${LOCKSTEP_TEST_DEVICE:-0}
"$LOCKSTEP" devices --json | grep -q '"error": null' || { echo "skip: no device here"; exit 77; }
export VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation
export VK_LAYER_ENABLES=VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT
VK_LOADER_DEBUG=all "$LOCKSTEP" devices 2>&1 | grep -q "khronos_validation" ||
    { echo "skip: Vulkan's validation layers are not installed"; exit 77; }
messages="Validation (Error|Warning|Performance)|VUID-|UNASSIGNED-|SYNC-HAZARD"
ids=280,104,250,60,279,67,48,188,170,12,270,50,272,105,81,81,131,201,171,29,189,19,33,7

# The layer writes to stdout. NAME COMMAND...
silent() {
    local what=$1
    shift
    timeout 700 "$@" >out 2>err || fail "$what: exit status $?: $(tail -3 err)"
    ! grep -Em3 "$messages" out err || fail "$what: a message of the layer"
}

for model in "$SOURCE_DIR/models/jargon-3m-f16.gguf" "$golden"/logits/{llama-moe,deepseek2-v3-mla,qwen3next,nemotron_h,lfm2}.gguf; do
    [ -e "$model" ] || continue
    name=$(basename "$model" .gguf)
    one=("$LOCKSTEP" eval "$model" -q --threads 1 --ids $ids --greedy 3 --chunk 7)
    silent "$name" "${one[@]}" --device "$device"
    silent "$name, beside a processor" "${one[@]}" --ranks 2 --device "$device,cpu" --kv q8_0
    silent "$name, two stages" "${one[@]}" --ranks 2 --parallel pipeline --device "cpu,$device"
    LOCKSTEP_DEVICE_WITHOUT=unified silent "$name, with memory of its own" "${one[@]}" --device "$device" --chunk 512
done
for without in "" unified; do # memory in small pieces
    LOCKSTEP_DEVICE_PIECE=96 LOCKSTEP_DEVICE_WITHOUT=$without silent "in pieces" "$LOCKSTEP" eval \
        "$SOURCE_DIR/models/jargon-3m-f16.gguf" -q --threads 1 --ids $ids --greedy 3 --chunk 7 --device "$device"
done
LOCKSTEP_DEVICE_LOST_AFTER=35 silent "a loss" "$LOCKSTEP" run "$SOURCE_DIR/models/jargon-3m-f16.gguf" -q \
    -p "What is a bit bucket?" --temp 0 -n 24 --device "$device" --failover
LOCKSTEP_DEVICE_FAULT=memory:7 timeout 60 "$LOCKSTEP" run "$SOURCE_DIR/models/jargon-3m-f16.gguf" -q -p x -n 1 --device "$device" >out 2>&1
! grep -Em3 "$messages" out || fail "no memory: a message of the layer"

silent "all kernels" "$BUILD_DIR/tests/test_shaders"
silent "those of recurrent layers" "$BUILD_DIR/tests/test_shaders_recurrent"
[ $failures = 0 ]
