#!/bin/bash
# Three machines (network namespaces) on a switch find each other: on all their interfaces, also on one that is plugged
# in later; with IPv4 alone; two users' nodes on one machine. Who is unplugged, stopped or killed is missed and found again.
# labels: root waits
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/hosts.sh"
if ! can_make_hosts; then
    echo "skip: no right to make network namespaces"
    exit 77
fi

pids=()
at_end 'exec 2>/dev/null; kill -9 "${pids[@]}"; end_hosts; wait'
declare -A pid
make_hosts switch one two three
if ! on switch ip link add switch type bridge 2>/dev/null; then
    echo "skip: this kernel has no bridges"
    exit 77
fi
on switch ip link set switch up
i=0
for name in one two three; do
    i=$((i + 1))
    cable switch port$i $name eth0
    on switch ip link set port$i master switch && on $name ip addr add 10.7.0.$i/24 dev eth0 || fail "no cable from the switch to $name"
done
on three sh -c 'echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6'
v6=$(on one sh -c 'test -e /proc/net/if_inet6 && echo yes')

interval=200
node() { # HOST NAME SECRET [through...]: what it says is in NAME.out
    nsenter -t "${hosts[$1]}" -n "${@:4}" "$BUILD_DIR/tests/discovery_node" "$2" "$3" $interval 200 >"$2.out" 2>"$2.err" &
    pid[$2]=$!
    pids+=($!)
}
sees() { # NAME PATTERN: what NAME knows comes to match within a minute
    local begin=$SECONDS
    until tail -n 1 "$1.out" | grep -Eq -e "$2"; do
        if [ $((SECONDS - begin)) -ge 60 ]; then
            fail "$1 should see $2: $(tail -n 1 "$1.out") $(cat "$1.err")"
            return
        fi
        sleep 0.05
    done
}
# An address as it is listed; link-local ones are made up by the kernel.
at() { echo "$1:7343 on $2"; }
local6() { echo "\[fe80:[^]]*%$1\]:7343 on $1"; }

node one anna ours
node two ben ours
node three carla ours
sees anna "ben [^;]*$(at 10.7.0.2 eth0).*carla [^;]*$(at 10.7.0.3 eth0)"
sees ben "anna [^;]*$(at 10.7.0.1 eth0).*carla [^;]*$(at 10.7.0.3 eth0)"
sees carla "anna $(at 10.7.0.1 eth0); ben $(at 10.7.0.2 eth0);"
if [ -n "$v6" ]; then
    sees anna "ben [^;]*$(local6 eth0)"
    sees ben "anna [^;]*$(local6 eth0)"
else
    echo "skip: link-local addresses: no IPv6 here"
fi

# Another user's node on the same machine; a machine with another secret.
if command -v setpriv >/dev/null && chmod 755 "$work"; then
    node one dora ours setpriv --reuid 65534 --regid 65534 --clear-groups
    sees anna "dora [^;]*$(at 127.0.0.1 lo)"
    sees dora "anna [^;]*$(at 127.0.0.1 lo)"
    sees ben "dora [^;]*$(at 10.7.0.1 eth0)"
else
    echo "skip: two users: no setpriv"
fi
node three eve theirs
sees anna "strangers:.* 10.7.0.3"
sees eve "^sees: nobody; strangers: "

# A second cable, later: anna and ben have two addresses for each other. Then ben's first one is pulled.
cable one eth1 two eth1
on one ip addr add 10.8.0.1/24 dev eth1
on two ip addr add 10.8.0.2/24 dev eth1
sees anna "ben [^;]*$(at 10.7.0.2 eth0)[^;]*$(at 10.8.0.2 eth1)"
sees ben "anna [^;]*$(at 10.7.0.1 eth0)[^;]*$(at 10.8.0.1 eth1)"
[ -z "$v6" ] || sees anna "ben [^;]*$(local6 eth1)"
on two ip link set eth0 down
sees carla "^sees: anna [^;]*;( dora [^;]*;)? strangers"
sees anna "ben( [^ ;]* on eth1,?)+;"
on two ip link set eth0 up
sees anna "ben [^;]*$(at 10.7.0.2 eth0)"
sees carla "ben [^;]*$(at 10.7.0.2 eth0)"

# Two that are stopped for longer than five intervals are missed by the third; but the first that wakes does not blame the
# other for its own sleep. (For five intervals, that is: again, if this took too long.)
for _ in 1 2 3 4 5; do
    kill -STOP "${pid[anna]}" "${pid[ben]}"
    sees carla "^sees:( nobody;| dora [^;]*;)? strangers"
    lines=$(wc -l <anna.out)
    begin=$(date +%s%N)
    kill -CONT "${pid[anna]}"
    sees carla "anna"
    sleep 0.05
    tail -n +$((lines + 1)) anna.out >awake
    ms=$((($(date +%s%N) - begin) / 1000000))
    kill -CONT "${pid[ben]}"
    sees carla "ben"
    [ $ms -ge $((5 * interval - 100)) ] || break
done
if [ $ms -lt $((5 * interval - 100)) ]; then
    if grep -v "ben .*carla " awake; then fail "anna lost somebody while she slept"; fi
else
    echo "skip: who sleeps: this machine is too slow for it"
fi

# Killed: nobody says goodbye. Ended: it does.
{ kill -9 "${pid[carla]}"; wait "${pid[carla]}"; } 2>/dev/null
sees anna "^sees: ben [^;]*;( dora [^;]*;)? strangers"
kill "${pid[ben]}"
wait "${pid[ben]}" || fail "ben ended with status $?: $(cat ben.err)"
sees anna "^sees: (nobody|dora [^;]*); strangers"

# Never was anything heard on another interface than the one it came by.
if grep -hE ' (10\.7\.[^ ]*|[^ ]*%eth0[^ ]*) on (lo|eth1)| (10\.8\.[^ ]*|[^ ]*%eth1[^ ]*) on (lo|eth0)' ./*.out; then
    fail "heard on the wrong interface"
fi
[ $failures = 0 ]
