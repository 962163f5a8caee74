# hosts.sh, to be sourced after scratch.sh: machines for a test, each a network namespace that a sleeping process holds.
declare -A hosts
host_unshare=(-n) host_enter=(-n) # what else a machine is to have of its own is added by the test

nodes=() # what runs on them, and ends before they do
end_hosts() {
    [ ${#nodes[@]} = 0 ] || { kill "${nodes[@]}"; wait "${nodes[@]}"; } 2>/dev/null
    [ ${#hosts[@]} = 0 ] || { kill "${hosts[@]}" && wait "${hosts[@]}"; } 2>/dev/null
    nodes=() hosts=()
}
at_end end_hosts

can_make_hosts() { [ "$(id -u)" = 0 ] && command -v ip nsenter unshare >/dev/null && unshare -n true 2>/dev/null; }

# on NAME words...: a command on that machine. In the background, $! would be a shell above it: nsenter there.
on() { nsenter -t "${hosts[$1]}" "${host_enter[@]}" "${@:2}"; }

# make_hosts NAME...: they last ten minutes at most.
make_hosts() {
    local name
    for name in "$@"; do
        unshare "${host_unshare[@]}" sleep 600 &
        hosts[$name]=$!
        for _ in {1..6000}; do
            [ "$(readlink "/proc/${hosts[$name]}/ns/net")" != "$(readlink /proc/$$/ns/net)" ] && break
            sleep 0.01
        done
        on "$name" ip link set lo up || fail "no machine $name"
    done
}

# cable HOST INTERFACE HOST INTERFACE: joins two of them; both ends are up.
cable() {
    on "$1" ip link add "$2" type veth peer name "$4" netns "${hosts[$3]}" && on "$1" ip link set "$2" up &&
        on "$3" ip link set "$4" up || fail "no cable from $1 to $3"
}

# switch_hosts NET HOST...: the machine 0 becomes a switch that joins them; each is at NET.HOST, on its interface `wire`.
# False: this kernel has no bridges.
switch_hosts() {
    local net=$1 host
    shift
    on 0 ip link add switch type bridge && on 0 ip link set switch up || return 1
    for host in "$@"; do
        cable "$host" wire 0 "p$host"
        on "$host" ip addr add "$net.$host/24" dev wire && on 0 ip link set "p$host" master switch || fail "no wire to $host"
    done
}
