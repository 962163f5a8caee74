#!/bin/bash
# The cluster as GET /v1/cluster shows it: three machines (network namespaces on one switch), before a node is killed in an answer,
# after it, and when it is back; and changes by HTTP: who may make them, and what becomes of them.
# labels: root waits
set -u
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/hosts.sh"
unset LOCKSTEP_CLUSTER_KEY
if ! can_make_hosts; then
    echo "skip: no right to make network namespaces"
    exit 77
fi
mkdir own front && cp "$model" own/m.gguf
export XDG_CONFIG_HOME=$work/front
port=8099
"$LOCKSTEP" key >/dev/null 2>&1
declare -A node
end_all() {
    kill -9 "${node[@]}" 2>/dev/null
    end_hosts
    wait 2>/dev/null
}
trap 'end_all; rm -rf "$work"' EXIT
host_unshare=(-n -m) host_enter=(-n -m -w)
make_hosts 0 1 2 3 # 0: the switch
for host in 2 3; do on $host mount -t tmpfs none "$work/own" || fail "no mount on $host"; done
switch_hosts 10.9.0 1 2 3 || { echo "skip: no bridge here"; exit 77; }
names=(- ann bob cat)
start() { # HOST
    local name=${names[$1]}
    mkdir -p "store-$name"
    nsenter -t "${hosts[$1]}" "${host_enter[@]}" "$LOCKSTEP" node --name "$name" --models "$work/store-$name" --state "$work/state-$name" "${@:2}" >"$name.log" 2>&1 &
    node[$1]=$!
    within 60 grep -q "listens on port" "$name.log" || fail "node $name: $(cat "$name.log")"
}
cut() { # HOST: a machine without power
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
key=abra-kadabra
echo "$key" >keys && chmod 600 keys
# What the gateway of that machine says of the cluster, from a client on another one, into seen.json.
look() { # HOST CURL-WORDS...
    on "$1" curl -s -m 20 -o seen.json -w '%{http_code}' "${@:2}" "http://127.0.0.1:$port/v1/cluster"
}
# Whether a Python expression holds of what is seen at that machine; d: the answer, n, o, k: its nodes, first deployment, events' kinds.
cat >holds.py <<'END'
import json, sys
d = json.load(open("seen.json"))
n = {x["name"]: x for x in d["nodes"]}
o = {x["name"]: x for x in d["deployments"]}
k = [(e["kind"], e["node"], e.get("model")) for e in d["events"]]
w = {(x["model"], x["rank"]): (name, x) for name in n for x in n[name]["workers"]}
sys.exit(0 if eval(sys.argv[1]) else 1)
END
sees() { # HOST EXPRESSION
    [ "$(look "$1" -H "Authorization: Bearer $key")" = 200 ] && python3 holds.py "$2" 2>holds.err
}
seen() { python3 -m json.tool seen.json; cat holds.err; logs; }
start 1
start 2
start 3
nsenter -t "${hosts[1]}" "${host_enter[@]}" timeout 100 "$LOCKSTEP" up own/m.gguf --port $port -t 1 --ctx 256 --api-key-file keys --emulate-link latency=1ms --no-speculation >/dev/null 2>up.err ||
    fail "up: $(cat up.err; logs)"

# ---- what is there -------------------------------------------------------------------------------
[ "$(look 2)" = 401 ] && [ "$(look 2 -H "Authorization: Bearer wrong")" = 401 ] || fail "the cluster is shown without a key"
within 60 sees 2 'set(n) == {"ann", "bob", "cat"} and all(x["state"] == "here" for x in n.values())' || fail "nodes: $(seen)"
sees 2 'd["self"] == "bob" and all(x["cores"] >= 1 and x["memory"] > x["memory_free"] > 0 and x["disk_free"] > 0 for x in n.values())' || fail "facts: $(seen)"
sees 2 'o["m"]["node"] == "ann" and o["m"]["state"] == "listening" and o["m"]["port"] == 8099' || fail "deployment: $(seen)"
within 60 sees 2 '{x["node"]: x["reason"] for x in o["m"]["standby"]} == {"bob": "", "cat": ""}' || fail "standby: $(seen)"
within 60 sees 3 '("up", "ann", "m") in k and ("placed", "ann", "m") in k and ("copied", "bob", "m") in k' || fail "events: $(seen)"

[ $failures = 0 ]
