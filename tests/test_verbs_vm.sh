#!/bin/bash
# The verbs link over real libibverbs and the kernel's soft-RoCE, in virtual machines without
# hardware support: the whole link suite and the bits of a two-rank generation in one machine; the same between
# two machines with a wire, each of which has another RDMA device that comes first and leads nowhere; and two machines
# whose wire loses 5 % of the packets, where UC must end in a clean error. Behaviour only: emulated time says nothing
# about speed, and an emulated machine on a busy host may be a hundred times slower than a real one. So what must
# succeed has a silence limit that no load reaches; only the run that must fail has a short one.
set -uo pipefail
[ "$(uname -sm)" = "Linux x86_64" ] || { echo "skip: virtual machines are for Linux on x86-64"; exit 77; }
command -v qemu-system-x86_64 >/dev/null || { echo "skip: no qemu-system-x86_64 (Debian: qemu-system-x86)"; exit 77; }
dir=$BUILD_DIR/vm
bash "$SOURCE_DIR/tools/vm/build_image.sh" "$dir" "$BUILD_DIR/tests/fabric_peer" "$LOCKSTEP" \
    "$SOURCE_DIR/models/jargon-3m-f16.gguf" || exit $?
wires=$(mktemp -d)
trap 'rm -rf "$wires"' EXIT

# machine NAME "kernel words" QEMU-options...: leaves its console in $wires/NAME, returns QEMU's status.
machine() {
    local name=$1 words=$2; shift 2
    timeout 400 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 512M -nodefaults -nographic -no-reboot \
        -serial stdio -kernel "$dir/vmlinuz" -initrd "$dir/image" -device isa-debug-exit,iobase=0xf4,iosize=1 \
        -append "console=ttyS0 panic=-1 loglevel=5 mitigations=off no_timer_check $words" "$@" >"$wires/$name" 2>&1 </dev/null
}
# What QEMU leaves with when the job ended with this status.
left_with() { echo $((2 * (16 + $1) + 1)); }
fail() { echo "FAILED: $*"; tail -n 20 "$wires"/[a-z]* 2>/dev/null; exit 1; }

pair() { # LOSS SILENCE_MS: two machines; sets left and right to their statuses
    local words="loss=$1 silence=$2"
    machine left "job=left $words" -device virtio-net-pci,netdev=n,mac=52:54:00:00:00:01,romfile= \
        -netdev "dgram,id=n,local.type=unix,local.path=$wires/A,remote.type=unix,remote.path=$wires/B" &
    local first=$!
    machine right "job=right $words" -device virtio-net-pci,netdev=n,mac=52:54:00:00:00:02,romfile= \
        -netdev "dgram,id=n,local.type=unix,local.path=$wires/B,remote.type=unix,remote.path=$wires/A"
    right=$?
    wait $first
    left=$?
    rm -f "$wires/A" "$wires/B"
}

machine one "job=one loss=0 silence=60000"
[ $? = "$(left_with 0)" ] || fail "one machine"
grep -hoE 'rank [0-9]: .*|two ranks generate .*' "$wires/one"
pair 0 60000
[ "$left $right" = "$(left_with 0) $(left_with 0)" ] || fail "two machines"
grep -hoE 'rank [0-9]: .*|two ranks generate .*|verbs over .*' "$wires/left" "$wires/right"
pair 5 3000
[ "$left $right" = "$(left_with 3) $(left_with 3)" ] || fail "two machines with loss: expected a lost peer on both"
grep -ho 'rank [01]: .*' "$wires/left" "$wires/right"
