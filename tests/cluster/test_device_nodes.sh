#!/bin/bash
# Devices on several machines: ranks of two nodes compute on the devices that are named, with the bits of processors, for
# a command and for what `lockstep up` has put up; shares follow what the devices were measured to do. On a software device
# where there is no other.
# labels: root waits
set -u
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/hosts.sh"
unset LOCKSTEP_CLUSTER_KEY
device=$("$LOCKSTEP" devices --json | python3 -c '
import json, sys
print(next((d["name"].split()[0] for d in json.load(sys.stdin) if d["error"] is None), ""))')
[ -n "$device" ] || { echo "skip: no device here"; exit 77; }
can_make_hosts || { echo "skip: no right to make network namespaces"; exit 77; }
mkdir own front && cp "$model" own/m.gguf
export XDG_CONFIG_HOME=$work/front
"$LOCKSTEP" key >/dev/null 2>&1
host_unshare=(-n -m) host_enter=(-n -m -w)
make_hosts 0 1 2 # 0: the switch
switch_hosts 10.9.0 1 2 || { echo "skip: no bridge here"; exit 77; }
start() { # HOST NAME
    mkdir "store-$2"
    nsenter -t "${hosts[$1]}" "${host_enter[@]}" "$LOCKSTEP" node --name "$2" --models "$work/store-$2" --state "$work/state-$2" >"$2.log" 2>&1 &
    nodes+=($!)
    within 60 grep -q "listens on port" "$2.log" || fail "node $2: $(cat "$2.log")"
}
start 1 ann
start 2 bob
sees_both() { [ "$(on 1 "$LOCKSTEP" nodes 2>/dev/null | grep -cE "^(ann|bob) ")" = 2 ]; }
within 60 sees_both || fail "nodes: $(on 1 "$LOCKSTEP" nodes)"

# ---- a command ----------------------------------------------------------------------------------
words=(eval own/m.gguf --ids 1,2,3,4,5,6,7,8 --greedy 4 --ctx 64 -t 1)
"$LOCKSTEP" "${words[@]}" -q --logits ref.f32 >ref.ids || fail "the reference"
together() { # words...
    on 1 timeout 200 "$LOCKSTEP" "${words[@]}" --nodes bob --logits nodes.f32 "$@" >nodes.ids 2>nodes.err </dev/null || fail "$*: $(cat nodes.err)"
    cmp -s ref.f32 nodes.f32 && cmp -s ref.ids nodes.ids || fail "$*: other bits"
    rm -f nodes.f32
}
together --device "$device" --split 1,1
grep -q "$device" nodes.err || fail "rank 0 has no device: $(cat nodes.err)"
together --device "cpu,$device"
grep -q "shares [0-9].* by .*memory bandwidth (" nodes.err || fail "a device was not measured: $(cat nodes.err)"
refused() { # SENTENCE words...
    on 1 timeout 100 "$LOCKSTEP" "${words[@]}" --nodes bob --logits nodes.f32 "${@:2}" >/dev/null 2>nodes.err </dev/null && fail "${*:2} is taken"
    grep -q -e "$1" nodes.err || fail "${*:2}: $(cat nodes.err)"
}
refused "rank 1: .*nowhere" --device cpu,nowhere
refused "names 3 devices for 2 ranks" --device cpu,cpu,cpu
together --device "bob=$device,ann=cpu" --split 1,1
grep -q "$device" nodes.err && fail "ann's rank has bob's device: $(cat nodes.err)"
together --device "ann=$device" --split 1,1 # bob, who is not named, has none
grep -q "$device" nodes.err || fail "ann's rank has no device: $(cat nodes.err)"
refused "no node called eve takes part" --device "ann=$device,eve=cpu"
refused "expected NODE=DEVICE of each node" --device "ann=$device,cpu"
refused "ann is named twice" --device "ann=$device,ann=cpu"

# ---- what nodes serve together ------------------------------------------------------------------
question='{"model": "m", "prompt": "What is a bit bucket?", "max_tokens": 12, "temperature": 0}'
ask() { on 2 curl -s -m 60 -d "$question" http://127.0.0.1:8096/v1/completions | python3 -c 'import json, sys; print(json.load(sys.stdin)["choices"][0]["text"])' 2>/dev/null; }
up() { on 1 timeout 200 "$LOCKSTEP" up own/m.gguf --port 8096 -t 1 --ctx 256 --insecure --nodes ann,bob "$@" >up.log 2>&1 || fail "up $*: $(cat up.log ann.log bob.log)"; }
# Whether what a node has started has loaded the library of drivers.
uses_device() { # 0: ann's, 1: bob's
    local pid
    for pid in $(pgrep -P "${nodes[$1]}"); do grep -q "libvulkan" "/proc/$pid/maps" 2>/dev/null && return 0; done
    return 1
}
up
text=$(ask)
[ -n "$text" ] || fail "no answer: $(cat ann.log)"
uses_device 1 && fail "a device that nobody asked for"
on 1 "$LOCKSTEP" down m || fail "down"
up --device "$device" --split 1,1
[ "$(ask)" = "$text" ] || fail "on devices the answer is $(ask), not $text: $(cat ann.log)"
uses_device 1 || fail "bob's rank has no device: $(cat bob.log)"
uses_device 0 || fail "ann's rank has no device: $(cat ann.log)"
on 1 "$LOCKSTEP" down m || fail "down"
up --device "bob=$device" --split 1,1
[ "$(ask)" = "$text" ] || fail "on bob's device the answer is $(ask), not $text: $(cat ann.log)"
uses_device 1 || fail "bob's rank has no device: $(cat bob.log)"
uses_device 0 && fail "ann's rank has a device: $(cat ann.log)"
on 1 "$LOCKSTEP" down m || fail "down"
on 1 timeout 100 "$LOCKSTEP" up own/m.gguf --port 8096 --insecure --device "bob=$device,eve=cpu" >up.log 2>&1 && fail "up takes a node that is not there"
grep -q "no node called eve is there" up.log || fail "up with a node that is not there says $(cat up.log)"
on 1 timeout 100 "$LOCKSTEP" up own/m.gguf --port 8096 -t 1 --ctx 256 --insecure --nodes ann,bob --device nowhere >up.log 2>&1 && fail "up takes a device that is not there"
grep -q "nowhere" up.log || fail "up with a device that is not there says $(cat up.log)"
[ "$failures" = 0 ]
