#!/bin/bash
# A device that is lost amid an answer, that does not answer, that has no memory, that computes other bits, and one that is
# not there: with --failover the answer goes on word for word, on the processor; otherwise one sentence says why not.
# labels: slow once
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"

"$LOCKSTEP" devices --json | grep -q '"error": null' || { echo "skip: no device here"; exit 77; }
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
ask=(run "$model" -q -p "What is a bit bucket?" --temp 0 -n 24)
"$LOCKSTEP" "${ask[@]}" >whole.txt || fail "without a device"

# The 35th submission, amid the answer, finds no device, and so it does again. Then its rank has none.
export LOCKSTEP_DEVICE_LOST_AFTER=35
for devices in 0 0,cpu cpu,0; do
    split=$(echo "$devices" | sed 's/[^,]*/1/g') # else these are submissions of what is measured first
    timeout 120 "$LOCKSTEP" "${ask[@]}" --split "$split" --device $devices --failover >answer.txt 2>err ||
        fail "--device $devices: exit status $?: $(cat err)"
    cmp whole.txt answer.txt || fail "--device $devices: another answer: $(cat err)"
    grep -q "was lost\|has left" err || fail "--device $devices: no device was lost: $(cat err)"
done
refuse 3 "^lockstep run: the device .* was lost" "$LOCKSTEP" "${ask[@]}" --device 0
unset LOCKSTEP_DEVICE_LOST_AFTER

# Amid an answer it does not answer: what it may still write stays where it is.
export LOCKSTEP_DEVICE_TIMEOUT=2
for devices in 0 cpu,0; do
    split=$(echo "$devices" | sed 's/[^,]*/1/g') # else these are submissions of what is measured first
    LOCKSTEP_DEVICE_FAULT=hang:35 timeout 120 "$LOCKSTEP" "${ask[@]}" --split "$split" --device $devices --failover \
        >answer.txt 2>err || fail "hang, --device $devices: exit status $?: $(cat err)"
    cmp whole.txt answer.txt || fail "hang, --device $devices: another answer: $(cat err)"
    grep -q "did not answer within 2 s\|has left" err || fail "hang, --device $devices: $(cat err)"
done
LOCKSTEP_DEVICE_FAULT=hang:35 refuse 3 "^lockstep run: the device .* did not answer within 2 s" "$LOCKSTEP" "${ask[@]}" --device 0
LOCKSTEP_DEVICE_FAULT=hang:1 refuse 3 "^lockstep run: rank 0: the device .* did not answer within 2 s" "$LOCKSTEP" "${ask[@]}" --device 0
unset LOCKSTEP_DEVICE_TIMEOUT

# It has no memory for the N-th block: of its own tests, of the matrices, of keys and values (all pages are one block), of
# buffers. Each is refused, until there are no more; whether the memory is the host's (some of it) or its own.
for without in "" unified; do
    told=
    for n in 2 5 6 7 8 9 10 11 12 13 14 15 16; do
        LOCKSTEP_DEVICE_WITHOUT=$without LOCKSTEP_DEVICE_FAULT=memory:$n timeout 60 "$LOCKSTEP" "${ask[@]}" --device 0 >answer.txt 2>err
        status=$?
        [ $status != 0 ] || break
        [ $status = 1 ] && [ ! -s answer.txt ] && [ "$(wc -l <err)" = 1 ] && grep -q "^lockstep run: .*: no memory: " err ||
            fail "no memory for block $n: exit status $status: $(cat err)"
        told+=$(cat err)
    done
    cmp whole.txt answer.txt || fail "no memory for block $n, which nobody asks for: another answer"
    for what in matrices "keys and values" buffers; do
        [[ $told == *"rank 0's $what: "* ]] || fail "without=$without: never a sentence about the $what"
    done
done

# The same amid many pieces of the matrices, of keys and values, and of buffers; and a buffer that is larger than a piece.
for block in 8 25 28; do
    LOCKSTEP_DEVICE_PIECE=96 LOCKSTEP_DEVICE_FAULT=memory:$block refuse 1 "^lockstep run: rank 0's .*: no memory: " \
        "$LOCKSTEP" "${ask[@]}" --chunk 16 --device 0
done
LOCKSTEP_DEVICE_PIECE=80 refuse 2 "^lockstep run: rank 0's inner buffers: 393216 bytes in one piece, where .* takes 327680" \
    "$LOCKSTEP" "${ask[@]}" --chunk 16 --device 0
LOCKSTEP_DEVICE_PIECE=96 "$LOCKSTEP" "${ask[@]}" --chunk 16 --device 0 >answer.txt || fail "small pieces"
cmp whole.txt answer.txt || fail "small pieces: another answer"

# No memory when it opens again, for anything that it then wants: the rank goes on without it.
export LOCKSTEP_DEVICE_LOST_AFTER=35
first=$((n - 1)) # blocks of one opening
for n in 1 6 9; do
    LOCKSTEP_DEVICE_WITHOUT=unified LOCKSTEP_DEVICE_FAULT=memory:$((first + n)) timeout 60 "$LOCKSTEP" "${ask[@]}" --device 0 \
        --failover >answer.txt 2>err || fail "no memory after a loss, block $n: exit status $?: $(cat err)"
    cmp whole.txt answer.txt || fail "no memory after a loss, block $n: another answer: $(cat err)"
    grep -q "rank 0 computes on its processor: .* no memory" err || fail "no memory after a loss, block $n: $(cat err)"
done
LOCKSTEP_DEVICE_PIECE=96 LOCKSTEP_DEVICE_FAULT=memory:45 timeout 60 "$LOCKSTEP" "${ask[@]}" --chunk 16 --device 0 --failover \
    >answer.txt 2>err || fail "no memory for a piece after a loss: exit status $?: $(cat err)"
cmp whole.txt answer.txt || fail "no memory for a piece after a loss: another answer: $(cat err)"
grep -q "rank 0 computes on its processor: .* no memory" err || fail "no memory for a piece after a loss: $(cat err)"
LOCKSTEP_DEVICE_FAULT=open:2 timeout 60 "$LOCKSTEP" "${ask[@]}" --device 0 --failover >answer.txt 2>err ||
    fail "it does not open again: exit status $?: $(cat err)"
cmp whole.txt answer.txt || fail "it does not open again: another answer: $(cat err)"
grep -q "rank 0 computes on its processor: .* does not open" err || fail "it does not open again: $(cat err)"

# To the processor and back: rank 1 loses its device too, and when the ranks open again, so does rank 0's, which is lost once
# more. All in one answer.
LOCKSTEP_DEVICE_FAULT=open:2 timeout 200 "$LOCKSTEP" "${ask[@]}" --ranks 2 --split 1,1 --parallel tensor --device 0,0 --failover \
    >answer.txt 2>err || fail "to the processor and back: exit status $?: $(cat err)"
cmp whole.txt answer.txt || fail "to the processor and back: another answer: $(cat err)"
tr '\n' ' ' <err | grep -q "was lost.*rank 0 computes on its processor.*rank 1 has left.*the device .* was lost.*went on" ||
    fail "to the processor and back: $(cat err)"
unset LOCKSTEP_DEVICE_LOST_AFTER

# Subnormals flushed: the contract has none that matter, so such a device passes its test and says the same.
LOCKSTEP_DEVICE_FAULT=flush "$LOCKSTEP" "${ask[@]}" --device 0 >answer.txt || fail "flushed subnormals"
cmp whole.txt answer.txt || fail "flushed subnormals: another answer"
LOCKSTEP_DEVICE_FAULT=nonsense refuse 2 "LOCKSTEP_DEVICE_FAULT is nonsense: expected" "$LOCKSTEP" "${ask[@]}" --device 0
LOCKSTEP_DEVICE_PROFILE=pear refuse 2 "LOCKSTEP_DEVICE_PROFILE is pear: expected apple" "$LOCKSTEP" "${ask[@]}" --device 0

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
