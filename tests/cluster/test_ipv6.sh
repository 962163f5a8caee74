#!/bin/bash
# Machines in a network without IPv4: they find each other, compute together, keep a model up, and give the bits of one rank.
# labels: root waits
set -u
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/hosts.sh"
unset LOCKSTEP_CLUSTER_KEY
export XDG_CONFIG_HOME=$work/front
eval_args=(eval "$model" --ids 1,2,3,4,5,6,7,8 --greedy 8 --ctx 64 -t 1)
can_make_hosts || { echo "skip: no right to make network namespaces"; exit 77; }
"$LOCKSTEP" "${eval_args[@]}" -q --logits ref.f32 >ref.ids || exit 1
"$LOCKSTEP" key >/dev/null 2>&1
make_hosts 1 2
cable 1 wire 2 wire
for host in 1 2; do
    on $host ip -6 addr add fd00:7::$host/64 dev wire nodad || { echo "skip: no IPv6 here"; exit 77; }
    mkdir "store-$host"
    XDG_DATA_HOME=$work/data-$host nsenter -t "${hosts[$host]}" -n "$LOCKSTEP" node --name "n$host" --models "$work/store-$host" >"n$host.log" 2>&1 &
    nodes+=($!)
done
for host in 1 2; do within 60 grep -q "listens on port" "n$host.log" || { fail "node: $(cat "n$host.log")"; exit 1; }; done
seen() { on 1 "$LOCKSTEP" nodes 2>&1 | grep -q '^n2 *\[fd00:7::2\]:7342 '; }
within 60 seen || fail "nodes: $(on 1 "$LOCKSTEP" nodes 2>&1)"
together() { # NAME words...
    local what=$1
    shift
    on 1 timeout 100 "$LOCKSTEP" "${eval_args[@]}" --logits nodes.f32 "$@" >nodes.ids 2>nodes.err </dev/null || fail "$what: $(cat nodes.err)"
    cmp -s ref.f32 nodes.f32 && cmp -s ref.ids nodes.ids || fail "$what: other bits"
    rm -f nodes.f32
}
together "two ranks of one machine" --ranks 2
together "two ranks over tcp" --ranks 2 --link tcp
together "all nodes" --nodes auto --split 1,1
grep -q "rank 1: .*; tcp" nodes.err || fail "all nodes: $(cat nodes.err)"
for address in fd00:7::2 '[fd00:7::2]' '[fd00:7::2]:7342'; do together "$address" --nodes "$address" --split 3,1; done
on 1 timeout 100 "$LOCKSTEP" up "$model" --alias m --insecure --port 8091 --ctx 256 -t 1 >up.out 2>&1 || fail "up: $(cat up.out)"
ask() { on "$1" curl -sg -m 60 "http://[::1]:8091/v1/completions" -d '{"prompt": "The cat", "max_tokens": 8, "temperature": 0}' | grep -o '"text": *"[^"]*"'; }
one=$(ask 1) && [ "$(ask 2)" = "$one" ] || fail "the second node answers '$(ask 2)', the first one '$one'"
on 1 "$LOCKSTEP" down m || fail "down"

# Where no beacons pass, they are told of each other, in any form of an address; also of one that is off when it is named, and
# by an address which no other one reaches it at.
kill "${nodes[@]}"
wait "${nodes[@]}"
nodes=()
seeds=(- 'fd00:7::2' '[fd00:7::1]')
start() { # host
    XDG_DATA_HOME=$work/data-$1 nsenter -t "${hosts[$1]}" -n "$LOCKSTEP" node --name "n$1" --no-discovery --seeds "${seeds[$1]}" --models "$work/store-$1" >"n$1.log" 2>&1 &
    nodes+=($!)
    within 60 grep -q "listens on port" "n$1.log" || fail "node: $(cat "n$1.log")"
}
start 1
up() { # NAME PORT ADDRESS: a busy machine's node may not answer within the three seconds that it has
    local try
    for try in 1 2 3; do
        on 1 timeout 100 "$LOCKSTEP" up "$model" --alias "$1" --insecure --port "$2" --ctx 256 -t 1 --nodes "$3" >up.out 2>up.err && return
        grep -q "no node answers" up.err || break
    done
    fail "up $*: $(cat up.err)"
}
on 2 ip -6 addr add fd00:8::2/64 dev wire nodad
up m 8092 FD00:8:0::2
grep -q "warning: no node called FD00:8:0::2 is there now" up.err || fail "a node that is off: $(cat up.err)"
start 2
within 60 grep -q "m: n2 has come: starting again, with it" n1.log || fail "n2 is not known by its address: $(cat n1.log n2.log)"
up m 8092 FD00:8:0::2
grep "warning: no node" up.err && fail "a node that is there"
ask() { on "$1" curl -sg -m 20 "http://[::1]:8092/v1/completions" -d '{"prompt": "The cat", "max_tokens": 8, "temperature": 0}' | grep -o '"text": *"[^"]*"'; }
[ "$(ask 1)" = "$one" ] && [ "$(ask 2)" = "$one" ] || fail "with seeds the nodes answer '$(ask 1)' and '$(ask 2)', not '$one'"
on 1 "$LOCKSTEP" down m || fail "down"
# The same command changes nothing, whoever is there.
up again 8093 fd00:7::2
kill "${nodes[1]}" && wait "${nodes[1]}" || fail "n2: exit status $?"
unset "nodes[1]"
up again 8093 fd00:7::2
grep -q "warning: no node called fd00:7::2 is there now" up.err || fail "a node that is off: $(cat up.err)"
on 1 "$LOCKSTEP" down again || fail "down"

# All addresses are those of IPv4, too, where the system's sockets of IPv6 are for that alone.
on 1 sh -c 'echo 1 >/proc/sys/net/ipv6/bindv6only' || fail "no sysctl"
mkdir store-both
nsenter -t "${hosts[1]}" -n "$LOCKSTEP" node --name both --port 7352 --no-discovery --models "$work/store-both" --state "$work/state-both" >both.log 2>&1 &
nodes+=($!)
within 60 grep -q "listens on port" both.log || fail "node: $(cat both.log)"
for address in 127.0.0.1 '[::1]'; do
    on 1 curl -sgk -m 20 $("$LOCKSTEP" key --curl) "https://$address:7352/v1/node" | grep -q '"both"' || fail "nobody answers at $address"
done
[ $failures = 0 ]
