# three_nodes.sh, to be sourced after hosts.sh, where machines can be made: nodes on the machines 1 to 3 of switch_hosts, called
# ann, bob and cat, which a test starts, cuts off and brings back. They end with the test.
declare -A node # by machine: pid
names=(- ann bob cat)
end_all() {
    kill -9 "${node[@]}" 2>/dev/null
    end_hosts
    wait 2>/dev/null
}
at_end end_all

# The machines, on a switch (10.9.0.1 and so on), and the key of their cluster. The model at that path is own/m.gguf, which only the
# first machine has. The test is skipped where there can be no machines.
make_three_hosts() { # [MODEL]
    can_make_hosts || { echo "skip: no right to make network namespaces"; exit 77; }
    unset LOCKSTEP_CLUSTER_KEY
    export XDG_CONFIG_HOME=$work/front
    mkdir front own
    "$LOCKSTEP" key >/dev/null 2>&1
    [ -z "${1-}" ] || cp "$1" own/m.gguf
    host_unshare=(-n -m) host_enter=(-n -m -w)
    make_hosts 0 1 2 3 # 0: the switch
    for host in 2 3; do on $host mount -t tmpfs none "$work/own" || fail "no mount on $host"; done
    switch_hosts 10.9.0 1 2 3 || { echo "skip: no bridge here"; exit 77; }
}

start() { # HOST words...: a node with a store and a state of its own
    local name=${names[$1]}
    mkdir -p "store-$name"
    : >"$name.log"
    nsenter -t "${hosts[$1]}" "${host_enter[@]}" "$LOCKSTEP" node --name "$name" --models "$work/store-$name" --state "$work/state-$name" "${@:2}" >"$name.log" 2>&1 &
    node[$1]=$!
    within 60 grep -q "listens on port" "$name.log" || fail "node $name: $(cat "$name.log")"
}

# A machine without power: the node, what it has started, and whatever its wire still had to say.
cut() { # HOST
    local children
    children=$(pgrep -P "${node[$1]}")
    on "$1" ip link set wire down
    kill -9 "${node[$1]}" $children 2>/dev/null
    wait "${node[$1]}" 2>/dev/null
    unset "node[$1]"
}

back() { # HOST
    on "$1" ip link set wire up
    start "$1"
}

logs() { tail -n 30 ann.log bob.log cat.log; }
