#!/bin/bash
# A device that is lost amid an answer, one that computes other bits, and one that is not there: with --failover the
# answer goes on word for word, on the processor; otherwise one sentence says why not.
# labels: once
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"

"$LOCKSTEP" devices --json | grep -q '"error": null' || { echo "skip: no device here"; exit 77; }
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
ask=(run "$model" -q -p "What is a bit bucket?" --temp 0 -n 24)
"$LOCKSTEP" "${ask[@]}" >whole.txt || fail "without a device"

# The 25th submission, amid the answer, finds no device, and so it does again. Then its rank has none.
export LOCKSTEP_DEVICE_LOST_AFTER=25
for devices in 0 0,cpu cpu,0; do
    ranks=$(echo "$devices" | tr , '\n' | wc -l)
    timeout 120 "$LOCKSTEP" "${ask[@]}" --ranks "$ranks" --device $devices --failover >answer.txt 2>err ||
        fail "--device $devices: exit status $?: $(cat err)"
    cmp whole.txt answer.txt || fail "--device $devices: another answer: $(cat err)"
    grep -q "was lost\|has left" err || fail "--device $devices: no device was lost: $(cat err)"
done
refuse 3 "^lockstep run: the device .* was lost" "$LOCKSTEP" "${ask[@]}" --device 0
unset LOCKSTEP_DEVICE_LOST_AFTER

# A wrong FMA, a wrong division: of any kernel, or of those of one weight type.
for fault in fma division fma:f16; do
    LOCKSTEP_DEVICE_FAULT=$fault refuse 2 "its .* differs from the processor's in some bit, so it is not used" \
        "$LOCKSTEP" "${ask[@]}" --device 0
done
LOCKSTEP_DEVICE_FAULT=fma:q4_K "$LOCKSTEP" "${ask[@]}" --device 0 >answer.txt || fail "a type that is not in the file"
cmp whole.txt answer.txt || fail "another answer"

refuse 2 'no device is called "no such"; those here: 0: ' "$LOCKSTEP" "${ask[@]}" --device "no such"
refuse 2 "--device names 3 devices for 2 ranks" "$LOCKSTEP" "${ask[@]}" --ranks 2 --device 0,cpu,cpu
refuse 2 "a name is empty or too long" "$LOCKSTEP" "${ask[@]}" --ranks 2 --device 0,
LOCKSTEP_VULKAN_LIB=/nowhere.so refuse 2 "no Vulkan library" "$LOCKSTEP" "${ask[@]}" --device 0
LOCKSTEP_VULKAN_LIB=/nowhere.so "$LOCKSTEP" "${ask[@]}" --device auto >answer.txt 2>err || fail "auto: $(cat err)"
cmp whole.txt answer.txt || fail "auto: another answer"
[ $failures = 0 ]
