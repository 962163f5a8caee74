#!/bin/bash
# Two nodes that know of a dozen more machines, which take connections and never answer: the living do not lose each other over them.
# Nor do two whose beacons do not pass any more, nor two of which a third seed's name is asked of a server that says nothing.
# labels: root waits
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/hosts.sh"
command -v python3 >/dev/null || { echo "skip: no python3"; exit 77; }
export XDG_CONFIG_HOME=$work/config
"$LOCKSTEP" key >/dev/null 2>&1 || fail "no key"
python3 -c '
import socket, sys, time
listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(12)]
print(",".join("127.0.0.1:%d" % s.getsockname()[1] for s in listeners), flush=True)
time.sleep(600)' >silent &
pids=$!
at_end 'kill $pids 2>/dev/null; end_hosts; wait 2>/dev/null'
within 60 grep -q , silent || fail "no silent machines"
ann=$(free_port) bob=$(free_port)
start() { # NAME PORT OTHER
    mkdir -p "store-$1"
    : >"$1.log"
    "$LOCKSTEP" node --name "$1" --port "$2" --no-discovery --seeds "127.0.0.1:$3,$(cat silent)" --models "$work/store-$1" \
        --state "$work/state-$1" >"$1.log" 2>&1 &
    pids="$pids $!"
    within 60 grep -q "listens on port" "$1.log" || fail "node $1: $(cat "$1.log")"
}
start ann "$ann" "$bob"
start bob "$bob" "$ann"
heard() { # PORT NAME: the node at that port has heard of the other
    curl -sk -m 20 $("$LOCKSTEP" key --curl) "https://127.0.0.1:$1/v1/deployments" | grep -q "\"$2\""
}
within 120 heard "$ann" bob || fail "ann does not hear of bob: $(curl -sk -m 20 $("$LOCKSTEP" key --curl) "https://127.0.0.1:$ann/v1/deployments"; cat ann.log)"

start_on() { # HOST NAME words...
    mkdir -p "store-$2"
    : >"$2.log"
    nsenter -t "${hosts[$1]}" "${host_enter[@]}" "$LOCKSTEP" node --name "$2" --models "$work/store-$2" --state "$work/state-$2" "${@:3}" >"$2.log" 2>&1 &
    pids="$pids $!"
    within 60 grep -q "listens on port" "$2.log" || fail "node $2: $(cat "$2.log")"
}
heard_on() { # HOST NAME: that machine's node has heard of the other
    on "$1" curl -sk -m 20 $("$LOCKSTEP" key --curl) https://127.0.0.1:7342/v1/deployments | grep -q "\"$2\""
}
if can_make_hosts; then
    host_unshare=(-n -m) host_enter=(-n -m -w)
    make_hosts 1 2
    cable 1 wire 2 wire
    for host in 1 2; do on $host ip addr add 10.9.0.$host/24 dev wire || fail "no address"; done
    start_on 1 cid
    start_on 2 dan
    within 60 heard_on 1 dan || fail "cid does not hear of dan: $(cat cid.log)"
    # A switch forgets who wants what multicast.
    for host in 1 2; do on $host ip link set dev wire multicast off || fail "multicast stays"; done
    within 60 grep -q "dan is gone" cid.log || fail "beacons still pass: $(cat cid.log)"
    within 60 grep -q "cid is gone" dan.log || fail "beacons still pass: $(cat dan.log)"

    make_hosts 3 4
    cable 3 wire 4 wire
    printf 'nameserver 127.0.0.1\noptions timeout:6 attempts:3\n' >resolv.conf
    echo 'hosts: files dns' >nsswitch.conf
    for host in 3 4; do
        on $host ip addr add 10.9.1.$host/24 dev wire || fail "no address"
        for file in resolv.conf nsswitch.conf; do on $host mount --bind $file /etc/$file || fail "no mount"; done
        nsenter -t "${hosts[$host]}" "${host_enter[@]}" python3 -c '
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("127.0.0.1", 53)); print("silent", flush=True); time.sleep(600)' >names-$host &
        pids="$pids $!"
        within 60 grep -q silent names-$host || fail "no name server"
    done
    start_on 3 eve --no-discovery --seeds 10.9.1.4,gus.example
    start_on 4 fay --no-discovery --seeds 10.9.1.3,gus.example
    within 60 heard_on 3 fay || fail "eve does not hear of fay: $(cat eve.log)"
else
    echo "skip: no right to make network namespaces"
fi

# One by one, a round would take 24 s (18 for the name alone), and whoever was heard at its beginning counts as gone after ten.
sleep 26
grep -h "is no longer heard" ann.log bob.log eve.log fay.log 2>/dev/null && fail "the living lost each other"
if [ ${#hosts[@]} != 0 ]; then
    heard_on 1 dan && heard_on 2 cid || fail "two that answer each other lost each other over beacons"
fi
[ $failures = 0 ]
