#!/bin/bash
# The verbs link over real libibverbs and the kernel's soft-RoCE, in virtual machines without
# hardware support: the whole link suite and the bits of a two-rank generation in one machine; the same between
# two machines with a wire, each of which has another RDMA device that comes first and leads nowhere; and two machines
# whose wire loses 5 % of the packets, where UC must end in a clean error. Behaviour only: emulated time says nothing
# about speed, and an emulated machine on a busy host may be a hundred times slower than a real one. So what must
# succeed has a silence limit that no load reaches; only the run that must fail has a short one.
# labels: slow
set -uo pipefail
. "$SOURCE_DIR/tests/support/vm.sh"

pair() { # LOSS SILENCE_MS: two machines; sets left and right to their statuses
    local words="loss=$1 silence=$2"
    machine left "job=left $words" -device virtio-net-pci,netdev=n,mac=52:54:00:00:00:01,romfile= \
        -netdev "dgram,id=n,local.type=unix,local.path=$consoles/A,remote.type=unix,remote.path=$consoles/B" &
    local first=$!
    machine right "job=right $words" -device virtio-net-pci,netdev=n,mac=52:54:00:00:00:02,romfile= \
        -netdev "dgram,id=n,local.type=unix,local.path=$consoles/B,remote.type=unix,remote.path=$consoles/A"
    right=$?
    wait $first
    left=$?
    rm -f "$consoles/A" "$consoles/B"
}

machine one "job=one loss=0 silence=60000"
[ $? = "$(left_with 0)" ] || fail "one machine"
grep -hoE 'rank [0-9]: .*|two ranks generate .*' "$consoles/one"
pair 0 60000
[ "$left $right" = "$(left_with 0) $(left_with 0)" ] || fail "two machines"
grep -hoE 'rank [0-9]: .*|two ranks generate .*|verbs over .*' "$consoles/left" "$consoles/right"
pair 5 3000
[ "$left $right" = "$(left_with 3) $(left_with 3)" ] || fail "two machines with loss: expected a lost peer on both"
grep -ho 'rank [01]: .*' "$consoles/left" "$consoles/right"
