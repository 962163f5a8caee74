#!/bin/bash
# A node whose disk is full: what `up` and `down` cannot keep they do not do, and say so; what they have said is done is still so
# after a start.
# labels: root waits
set -u
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/hosts.sh"
unset LOCKSTEP_CLUSTER_KEY
can_make_hosts || { echo "skip: no right to make network namespaces"; exit 77; }
mkdir own state store && cp "$model" own/m.gguf
export XDG_CONFIG_HOME=$work/own
"$LOCKSTEP" key >/dev/null 2>&1
host_unshare=(-n -m) host_enter=(-n -m -w)
make_hosts 1
on 1 mount -t tmpfs -o size=256k none "$work/state" || { echo "skip: no tmpfs here"; exit 77; }

start() {
    : >node.log
    nsenter -t "${hosts[1]}" "${host_enter[@]}" "$LOCKSTEP" node --name ann --no-discovery --models "$work/store" --state "$work/state" >node.log 2>&1 &
    nodes=($!)
    within 60 grep -q "listens on port" node.log || fail "the node: $(cat node.log)"
}
again() {
    kill -9 "${nodes[0]}" # and its server ends with it
    wait "${nodes[0]}" 2>/dev/null
    start
}
fill() { on 1 dd if=/dev/zero of="$work/state/ballast" bs=4k 2>/dev/null; }
up() { nsenter -t "${hosts[1]}" "${host_enter[@]}" "$LOCKSTEP" up own/m.gguf -t 1 --ctx 64 --port 8099 --insecure "$@"; }
down() { nsenter -t "${hosts[1]}" "${host_enter[@]}" "$LOCKSTEP" down "$1"; }
names() { on 1 curl -sk -m 20 $("$LOCKSTEP" key --curl) https://127.0.0.1:7342/v1/deployments |
    python3 -c 'import json, sys; print(*(d["name"] for d in json.load(sys.stdin)["deployments"]))'; }

start
fill
up >out 2>err && fail "up on a full disk: status 0"
grep -q "ann could not keep it: .*No space left on device" err || fail "up on a full disk says $(cat err)"
[ "$(names)" = "" ] || fail "up has failed, and is up: $(names)"
again
[ "$(names)" = "" ] || fail "up has failed, and is up after a start: $(names)"

on 1 rm "$work/state/ballast"
up >out 2>err || fail "up with room: $(cat err node.log)"
fill
up --alias second >out 2>err && fail "a second one on a full disk: status 0"
down m >out 2>err && fail "down on a full disk: status 0"
grep -q "ann could not keep it: .*No space left on device" err || fail "down on a full disk says $(cat err)"
[ "$(names)" = m ] || fail "down has failed, and up is: $(names)"
again
[ "$(names)" = m ] || fail "after a start, up is: $(names)"

on 1 rm "$work/state/ballast"
down m >out 2>err || fail "down with room: $(cat err)"
again
[ "$(names)" = "" ] || fail "down was done, and after a start is up: $(names)"
[ $failures = 0 ]
