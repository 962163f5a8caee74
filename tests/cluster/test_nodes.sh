#!/bin/bash
# Nodes: three machines (network namespaces on one switch) find each other, take a model that only the first one has, and
# give the bits of one rank; strangers, the dead and the unwilling are told in one sentence.
# labels: root waits
set -u
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/hosts.sh"
unset LOCKSTEP_CLUSTER_KEY
eval_args=(eval "$work/own/m.gguf" --ids 1,2,3,4,5,6,7,8 --greedy 8 --ctx 64 -t 1)
mkdir front own && cp "$model" own/m.gguf
export XDG_CONFIG_HOME=$work/front

# ---- the key ------------------------------------------------------------------------------------
refuse 2 "there is no cluster key yet" "$LOCKSTEP" nodes
key=$("$LOCKSTEP" key 2>/dev/null)
[[ $key =~ ^([0-9A-Z]{4}-){6}[0-9A-Z]{4}$ ]] || fail "a key is '$key'"
[ "$("$LOCKSTEP" key)" = "$key" ] || fail "another key the second time"
[ "$(stat -c %a front/lockstep/cluster.key)" = 600 ] || fail "others may read the key"
typed=$(tr 'A-Z0' 'a-zo' <<<"${key//-/ }") # as one reads it aloud
LOCKSTEP_CLUSTER_KEY=$work/typed "$LOCKSTEP" key --set <<<"$typed" 2>/dev/null || fail "key --set"
LOCKSTEP_CLUSTER_KEY=$work/typed "$LOCKSTEP" key 2>&1 >/dev/null | grep -q 'other users' && fail "a warning of the key's own file"
chmod 640 "$work/typed"
LOCKSTEP_CLUSTER_KEY=$work/typed "$LOCKSTEP" key 2>&1 >/dev/null | grep -q "other users can read the cluster's key in $work/typed" ||
    fail "no warning of a key that others can read"
chmod 600 "$work/typed"
[ "$(LOCKSTEP_CLUSTER_KEY=$work/typed "$LOCKSTEP" key)" = "$key" ] || fail "a typed key is another one"
wrong=$(tr '0-9A-F' '1-9A-G' <<<"$key")
for text in "" "$wrong" "${key%?}" "$key-A" "${key/?/U}"; do
    LOCKSTEP_CLUSTER_KEY=$work/typed "$LOCKSTEP" key --set <<<"$text" 2>err && fail "key --set took '$text'"
    grep -q "key" err || fail "key --set of '$text' says '$(cat err)'"
done
[ "$(LOCKSTEP_CLUSTER_KEY=$work/typed "$LOCKSTEP" key)" = "$key" ] || fail "a refused key was kept"
echo garbage >notakey
LOCKSTEP_CLUSTER_KEY=$work/notakey refuse 2 "notakey: .*cluster key" "$LOCKSTEP" nodes
refuse 2 "either --set or --new or --curl" "$LOCKSTEP" key --set --new
refuse 2 "not with --ranks" "$LOCKSTEP" "${eval_args[@]}" --nodes auto --ranks 2 --logits x.f32
refuse 2 "nowhere.gguf" "$LOCKSTEP" eval nowhere.gguf --ids 1 --nodes auto --logits x.f32

"$LOCKSTEP" "${eval_args[@]}" -q --logits ref.f32 >ref.ids || exit 1

# ---- three machines ----------------------------------------------------------------------------
if ! can_make_hosts; then
    echo "skip: no right to make network namespaces"
    [ $failures = 0 ]
    exit
fi
host_unshare=(-n -m) host_enter=(-n -m -w)
make_hosts 0 1 2 3 # 0: the switch
# What the first machine calls its own, the others do not have.
for host in 2 3; do on $host mount -t tmpfs none "$work/own" || fail "no mount on $host"; done
on1=(nsenter -t "${hosts[1]}" "${host_enter[@]}") # for what runs beside, whose pid is its own
switch_hosts 10.8.0 1 2 3 || { echo "skip: no bridge here"; exit 0; }
# start HOST NAME [options]: a node with the cluster's key and a store of its own.
start() {
    local host=$1 name=$2
    shift 2
    mkdir -p "store-$name"
    nsenter -t "${hosts[$host]}" "${host_enter[@]}" "$LOCKSTEP" node --name "$name" --models "$work/store-$name" "$@" >"$name.log" 2>&1 &
    nodes+=($!)
    within 60 grep -q "listens on port" "$name.log" || fail "node $name: $(cat "$name.log")"
}
start 1 ann
start 2 bob
start 3 cat
list_is() { [ "$(on 1 "$LOCKSTEP" nodes --json | python3 -c 'import json, sys; print(*(n["name"] for n in json.load(sys.stdin)))' 2>/dev/null)" = "$1" ]; }
within 60 list_is "ann bob cat" || fail "nodes: $(on 1 "$LOCKSTEP" nodes)"
on 1 "$LOCKSTEP" nodes | grep -Eq '^bob +10\.8\.0\.2:7342 .* cores .* 0 workers' || fail "nodes prints $(on 1 "$LOCKSTEP" nodes)"
# The devices that lockstep devices lists; none is fine, and is said.
devices_of() { on 1 "$LOCKSTEP" "$@" --json | python3 -c 'import json, sys
nodes = json.load(sys.stdin)
own = nodes if "devices" in sys.argv else next(n for n in nodes if n["name"] == "bob")["devices"]
print([(d["name"], d["driver"], d["kind"], d["memory_bytes"], d["error"]) for d in own])' "$@" 2>/dev/null; }
own=$(devices_of devices)
bob_has_them() { [ -n "$own" ] && [ "$(devices_of nodes)" = "$own" ]; }
within 100 bob_has_them || fail "bob's devices: $(devices_of nodes), not $own"
[ "$own" = "[]" ] || on 1 "$LOCKSTEP" nodes | grep -Eq '^ +device 0: .+, (discrete|integrated|software|other), ' ||
    fail "nodes prints $(on 1 "$LOCKSTEP" nodes)"
within 60 grep -q "bob is here: " ann.log || fail "ann has not seen bob: $(cat ann.log)"

# together NAME words...: a run from machine 1 with these bits.
together() {
    local what=$1
    shift
    "${on1[@]}" timeout 100 "$LOCKSTEP" "${eval_args[@]}" --logits nodes.f32 "$@" >nodes.ids 2>nodes.err </dev/null ||
        fail "$what: $(cat nodes.err)"
    cmp -s ref.f32 nodes.f32 && cmp -s ref.ids nodes.ids || fail "$what: other bits"
    rm -f nodes.f32
}
# Over slow wires, since these machines are one, whose wires may seem to cost nothing while something else runs on it.
together "all that are faster" --nodes auto --emulate-link latency=1ms
grep -q "placement: 1 rank .* leaving out bob, cat" nodes.err || fail "three machines for a small model: $(cat nodes.err)"
[ ! -e store-bob/m.gguf ] && [ ! -e store-cat/m.gguf ] || fail "a copy for machines that are left out"
together "all nodes, the first time" --nodes bob,cat
grep -q "bob has a copy of the model now" nodes.err || fail "nothing was copied: $(cat nodes.err)"
grep -q "rank 2: .*; tcp" nodes.err || fail "no third rank: $(cat nodes.err)"
cmp -s own/m.gguf store-bob/m.gguf && cmp -s own/m.gguf store-cat/m.gguf || fail "no copies in the stores"
[ ! -e store-ann/m.gguf ] || fail "a copy beside the model itself"
together "all nodes again, pipeline" --nodes auto --parallel pipeline
grep -q "copy of the model" nodes.err && fail "copied once more: $(cat nodes.err)"
together "one by name, a split" --nodes cat --split 3,1
grep -q "rank 1" nodes.err && ! grep -q "rank 2" nodes.err || fail "one by name: $(cat nodes.err)"
together "by address" --nodes 10.8.0.3,10.8.0.2:7342

# Another model of the same name is another model.
cp own/m.gguf kept && printf 'x' | dd of=own/m.gguf bs=1 seek=$(($(stat -c %s own/m.gguf) - 7)) conv=notrunc 2>/dev/null
"${on1[@]}" timeout 100 "$LOCKSTEP" "${eval_args[@]}" -q --logits one.f32 >one.ids
"${on1[@]}" timeout 100 "$LOCKSTEP" "${eval_args[@]}" --nodes bob --logits nodes.f32 >nodes.ids 2>nodes.err || fail "changed: $(cat nodes.err)"
cmp -s one.f32 nodes.f32 || fail "a changed model: other bits"
cmp -s kept store-bob/m.gguf || fail "the first model was overwritten"
cp kept own/m.gguf
# What was left of an earlier copy is gone on with.
rm -rf store-cat/m.gguf
"${on1[@]}" timeout 100 "$LOCKSTEP" "${eval_args[@]}" -q --nodes cat --logits x.f32 >out 2>&1 || fail "after removal: $(cat out)"
part=$(cd store-cat && ls)
[ "$part" = m.gguf ] || fail "the store holds $part"

# Slices alone: nothing is kept of the model but its head. Where the disk has no room for more, without being asked.
streamed() { # NAME-OF-RUN words...: the bits of one rank, and no copy
    local what=$1
    shift
    "${on1[@]}" timeout 100 "$LOCKSTEP" "${eval_args[@]/m.gguf/s.gguf}" "$@" --logits nodes.f32 >nodes.ids 2>nodes.err ||
        fail "$what: $(cat nodes.err)"
    cmp -s slices.f32 nodes.f32 || fail "$what: other bits"
    grep -q "reads its weights from here" nodes.err || fail "$what: $(cat nodes.err)"
}
cp "$([ -e "$SHARED_DIR/golden/logits/deepseek2-lite.gguf" ] && echo "$SHARED_DIR/golden/logits/deepseek2-lite.gguf" || echo "$model")" own/s.gguf
"$LOCKSTEP" "${eval_args[@]/m.gguf/s.gguf}" -q --logits slices.f32 >one.ids
streamed "slices, tensor" --nodes bob,cat --weights stream
streamed "slices, pipeline" --nodes auto --weights stream --parallel pipeline
[ ! -e store-bob/s.gguf ] && [ ! -e store-cat/s.gguf ] || fail "a copy where slices were asked for"
mkdir store-dan && on 3 mount -t tmpfs -o size=400k none "$work/store-dan" || fail "no small disk"
start 3 dan --port 7400
within 60 list_is "ann bob cat dan" || fail "nodes: $(on 1 "$LOCKSTEP" nodes)"
streamed "slices, a full disk" --nodes dan,bob
kill "${nodes[3]}"
within 60 list_is "ann bob cat" || fail "dan is still there"

# A machine of two sockets is two ranks, unless somebody says how the work is to be divided.
HWLOC_SYNTHETIC="numa:2 core:1 pu:1" start 3 duo --port 7401
within 60 list_is "ann bob cat duo" || fail "nodes: $(on 1 "$LOCKSTEP" nodes)"
on 1 "$LOCKSTEP" nodes | grep -Eq '^duo .* 2 cores in 2 NUMA domains ' || fail "nodes prints $(on 1 "$LOCKSTEP" nodes)"
ranks_of() { grep -c '^  rank ' nodes.err; }
together "two sockets" --nodes duo
[ "$(ranks_of)" = 3 ] || fail "two sockets: $(cat nodes.err)"
HWLOC_SYNTHETIC="numa:2 core:1 pu:1" together "two sockets here as well" --nodes duo,bob
[ "$(ranks_of)" = 5 ] || fail "two sockets here as well: $(cat nodes.err)"
HWLOC_SYNTHETIC="numa:2 core:1 pu:1" together "left out with both its sockets" --nodes auto --emulate-link latency=1ms
grep -q "placement: .* leaving out bob, cat, duo" nodes.err || fail "two sockets for a small model: $(cat nodes.err)"
together "two sockets, a split" --nodes duo --split 2,1
[ "$(ranks_of)" = 2 ] || fail "two sockets, a split: $(cat nodes.err)"
kill "${nodes[-1]}"
within 60 list_is "ann bob cat" || fail "duo is still there"

# ---- what goes wrong -------------------------------------------------------------------------
refuse 3 "no answer from the node at 10.8.0.9:7342" "${on1[@]}" "$LOCKSTEP" "${eval_args[@]}" --nodes 10.8.0.9 --logits x.f32
refuse 2 "twice" "${on1[@]}" "$LOCKSTEP" "${eval_args[@]}" --nodes bob,10.8.0.2 --logits x.f32
refuse 2 "a name is empty" "${on1[@]}" "$LOCKSTEP" "${eval_args[@]}" --nodes bob,,cat --logits x.f32
refuse 1 "in use" nsenter -t "${hosts[2]}" "${host_enter[@]}" "$LOCKSTEP" node --name eve --models "$work"
for name in "" a,b auto büro $'a\nb' "$(printf '%064d' 0)"; do refuse 2 "a node's name is" "$LOCKSTEP" node --name "$name"; done
refuse 2 "no node and no machine of that name was found" "${on1[@]}" "$LOCKSTEP" "${eval_args[@]}" --nodes zoe --logits x.f32
start 3 bobby --port 7402 --name bob
within 60 list_is "ann bob bob cat" || fail "nodes: $(on 1 "$LOCKSTEP" nodes)"
refuse 2 "two nodes are called bob" "${on1[@]}" "$LOCKSTEP" "${eval_args[@]}" --nodes bob --logits x.f32
kill "${nodes[-1]}"
within 60 list_is "ann bob cat" || fail "the second bob is still there"
LOCKSTEP_CLUSTER_KEY=$work/other "$LOCKSTEP" key >/dev/null 2>&1
LOCKSTEP_CLUSTER_KEY=$work/other refuse 3 "another cluster key" "${on1[@]}" "$LOCKSTEP" "${eval_args[@]}" --nodes 10.8.0.2 --logits x.f32
LOCKSTEP_CLUSTER_KEY=$work/other on 1 "$LOCKSTEP" nodes >out 2>err
grep -q "another cluster key" err && [ ! -s out ] || fail "a stranger hears: $(cat out err)"
# Whoever lacks the key is nobody.
code() { on 1 curl -sk -o /dev/null -w '%{http_code}' "$@"; }
[ "$(code https://10.8.0.2:7342/v1/node)" = 401 ] || fail "no token was asked for"
[ "$(code -X POST -d '{}' https://10.8.0.2:7342/v1/workers)" = 401 ] || fail "no token was asked for a worker"
on 1 curl -s $("$LOCKSTEP" key --curl) https://10.8.0.2:7342/v1/node | grep -q '"name":"bob"' || fail "curl with the key hears nothing"
on 1 curl -s $(LOCKSTEP_CLUSTER_KEY=$work/other "$LOCKSTEP" key --curl) https://10.8.0.2:7342/v1/node >/dev/null && fail "curl takes any certificate"
on 1 curl -s https://10.8.0.2:7342/v1/node >/dev/null && fail "an authority vouches for a node"

rm -rf store-bob/m.gguf store-cat/m.gguf store-*/????????????????

# A worker's end, its node's end, and the end of who asked for it.
serve() { # begins a server on machine 1 over all nodes
    rm -f serve.log # of the one before
    "${on1[@]}" "$LOCKSTEP" serve own/m.gguf --port 8090 -t 1 --nodes bob,cat "$@" >serve.log 2>&1 &
    server=$!
    nodes+=($server)
    within 60 grep -qs "listens on" serve.log || fail "serve: $(cat serve.log)"
}
workers() { on 1 "$LOCKSTEP" nodes --json | python3 -c 'import json, sys; print(sum(len(n["workers"]) for n in json.load(sys.stdin)))' 2>/dev/null; }
worker_of() { on 1 "$LOCKSTEP" nodes --json | python3 -c 'import json, sys; print(*(w["pid"] for n in json.load(sys.stdin) if n["name"] == sys.argv[1] for w in n["workers"]))' "$1" 2>/dev/null; }
answer() { # the text that the server gives
    on 1 curl -s -m 60 http://127.0.0.1:8090/v1/completions -H 'Content-Type: application/json' \
        -d '{"prompt": "The cat", "max_tokens": 20, "temperature": 0}' | python3 -c 'import json, sys; print(json.load(sys.stdin)["choices"][0]["text"])' 2>/dev/null
}
serve --failover --weights stream
first=$(answer)
[ "$(workers)" = 2 ] || fail "$(workers) workers: $(on 1 "$LOCKSTEP" nodes)"
# A worker is killed, and its machine is there: it is taken in again as soon as nothing runs.
kill -9 "$(worker_of cat)"
[ "$(answer)" = "$first" ] || fail "another answer after a worker was killed"
grep -q "going on without 10.8.0.3" serve.log || fail "the server does not say whom it lost: $(cat serve.log)"
ranks_are() { on 1 curl -s -m 10 http://127.0.0.1:8090/metrics | grep -q "^lockstep_ranks $1\$"; }
within 60 ranks_are 3 || fail "a machine whose worker was killed is not taken in again: $(cat serve.log)"
[ "$(answer)" = "$first" ] || fail "another answer after cat came back"
# A machine is off, and on again.
kill -9 "${nodes[1]}" "$(worker_of bob)"
within 60 ranks_are 2 || fail "bob is dead, and the server computes with it: $(cat serve.log)"
[ "$(answer)" = "$first" ] || fail "another answer without bob"
on 1 curl -s -m 10 http://127.0.0.1:8090/health | grep -q '"left_out": *"10.8.0.2"' || fail "/health does not say who is left out"
start 2 bob
nodes[1]=${nodes[-1]}
within 60 ranks_are 3 || fail "bob is back, and the server does not take it in: $(cat serve.log)"
grep -q "10.8.0.2 is back: opening the model on 3 ranks again" serve.log || fail "the server does not say who is back: $(cat serve.log)"
[ "$(answer)" = "$first" ] || fail "another answer after bob came back"
kill "$server" && wait "$server"
nothing_runs() { [ "$(workers)" = 0 ]; }
within 60 nothing_runs || fail "$(workers) workers after the server's end: $(on 1 "$LOCKSTEP" nodes)"
serve
kill -9 "$server"
within 60 nothing_runs || fail "$(workers) workers after the server was killed: $(on 1 "$LOCKSTEP" nodes)"
serve
kill "${nodes[1]}" # bob
within 60 list_is "ann cat" || fail "bob is still there: $(on 1 "$LOCKSTEP" nodes)"
within 60 grep -q "bob is gone" ann.log || fail "ann still sees bob: $(cat ann.log)"
told() { on 1 curl -s -m 10 http://127.0.0.1:8090/health >health && grep -Eq "rank 1 .*(signal|lost|gone|closed|ended)" health; }
answer >/dev/null # asks the ranks for something
within 60 told || fail "without bob: $(cat health serve.log)"
kill "$server"
[ $failures = 0 ]
