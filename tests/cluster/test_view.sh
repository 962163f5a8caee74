#!/bin/bash
# A cluster at the terminal: three machines (network namespaces on one switch). lockstep chat finds what is up by itself, and goes
# on word for word when the serving machine dies, and when the machine that it talks to does; ps and top say what runs.
# labels: root waits
set -u
command -v python3 >/dev/null || { echo "skip: python3 is not there"; exit 77; }
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/hosts.sh"
unset LOCKSTEP_CLUSTER_KEY NO_COLOR CLICOLOR_FORCE
mkdir own front && cp "$model" own/m.gguf
export XDG_CONFIG_HOME=$work/front HOME=$work
port=8099
can_make_hosts || { echo "skip: no right to make network namespaces"; exit 77; }
. "$SOURCE_DIR/tests/support/three_nodes.sh"
make_hosts 0 1 2 3 # 0: the switch
switch_hosts 10.9.0 1 2 3 || { echo "skip: no bridge here"; exit 77; }
"$LOCKSTEP" key >/dev/null 2>&1
echo "abra-kadabra" >keys && chmod 600 keys
start 1
start 2
start 3
on 1 "$LOCKSTEP" ps >ps 2>err && [ ! -s ps ] && grep -q "no model runs here" err || fail "ps says $(cat ps err)"
refuse 3 "neither a node nor a server answers on this machine" nsenter -t "${hosts[0]}" "${host_enter[@]}" "$LOCKSTEP" top --once
# lockstep chat without a MODEL: nothing is up; then what serves here does (below: what the cluster has).
on_ann=(nsenter -t "${hosts[1]}" "${host_enter[@]}")
refuse 2 "no model is up on this machine: lockstep chat MODEL .*lockstep up MODEL" "${on_ann[@]}" "$LOCKSTEP" chat
"${on_ann[@]}" "$LOCKSTEP" serve own/m.gguf --port 8080 --api-key-file keys >/dev/null 2>serve.err &
serving=$!
answers() { on 1 curl -s -o /dev/null -m 5 http://127.0.0.1:8080/health; }
within 30 answers || fail "no server: $(cat serve.err)"
refuse 3 "http://127.0.0.1:8080: .*key.*LOCKSTEP_API_KEY" "${on_ann[@]}" "$LOCKSTEP" chat
refuse 0 "^http://127.0.0.1:8080: .*key" "${on_ann[@]}" "$LOCKSTEP" ps
grep -q "no model" err && fail "ps says both: $(cat err)"
echo hello | LOCKSTEP_API_KEY=abra-kadabra on 1 "$LOCKSTEP" chat -n 3 >/dev/null 2>err && grep -qx "m is up on this machine and answers at http://127.0.0.1:8080" err ||
    fail "chat does not find the server: $(cat err)"
kill "$serving" && wait "$serving"
# bob serves. The wires are slow, so that an answer takes seconds.
nsenter -t "${hosts[2]}" "${host_enter[@]}" timeout 100 "$LOCKSTEP" up own/m.gguf --port $port -t 1 --ctx 256 --nodes ann,bob,cat --emulate-link latency=3ms \
    --no-speculation --api-key-file keys --log-requests >up.out 2>up.err || fail "up: $(cat up.err; logs)"
together() { sed -n '/m: .* 3 ranks/,$p' bob.log | grep -q "m: lockstep listens on http"; } # not the server of before cat came
within 60 together || fail "no rank on each: $(logs)"
listens() { on 3 "$LOCKSTEP" nodes 2>/dev/null | grep -q "listening on bob"; }
within 60 listens || fail "the three do not listen: $(logs)"

# ---- what runs -----------------------------------------------------------------------------------
# The figures are there the first time that one asks.
on 3 "$LOCKSTEP" ps >ps 2>err && grep -Eq "^m +[0-9.]+ [kM]B listening +bob[a-z, ]* +$port +[0-9.]+  lockstep down$" ps || fail "ps says at first $(cat ps err)"
listed() { on "$1" "$LOCKSTEP" ps >ps 2>err && grep -Eq "^m +[0-9.]+ [kM]B listening +bob[a-z, ]* +$port +[0-9.]+  lockstep down$" ps; }
for host in 1 3; do within 30 listed $host || fail "ps of machine $host says $(cat ps err)"; done
on 3 "$LOCKSTEP" ps --node 10.9.0.1 --json >json 2>err && python3 -c 'import json
v = json.load(open("json"))
assert [x["model"] for x in v] == ["m"] and v[0]["bytes"] > v[0]["model_bytes"] / 2 > 2e6 and v[0]["where"].startswith("bob") and v[0]["until"] == "lockstep down", v' || fail "ps --json says $(cat json err)"
on 3 "$LOCKSTEP" top --once >once 2>err || fail "top: $(cat err)"
for line in "^cat  3 nodes  1 model  " "^ann +here " "^bob +here " "^m +listening .* bob"; do grep -Eq "$line" once || fail "top has no line $line: $(cat once)"; done
on 3 "$LOCKSTEP" top --json --server 127.0.0.1:$port --api-key abra-kadabra | python3 -c 'import json, sys; assert len(json.load(sys.stdin)["nodes"]) == 3' || fail "top --server"

# ---- an answer that goes on ----------------------------------------------------------------------
export LOCKSTEP_API_KEY=abra-kadabra
question="What is a bit bucket?"
text=$(echo "$question" | "$LOCKSTEP" chat own/m.gguf --local -q --temp 0 -n 60 --ctx 256)
[ "$(wc -w <<<"$text")" -gt 20 ] || fail "the model says little: $text"
talk() { # HOST words...: chat on that machine, in the background
    : >answer
    echo "$question" | nsenter -t "${hosts[$1]}" "${host_enter[@]}" timeout 120 "$LOCKSTEP" chat "${@:2}" --temp 0 -n 60 >answer 2>chat.err &
    chat=$!
}
begun() { [ "$(wc -c <answer)" -gt 20 ]; }
goes_on() {
    wait $chat || fail "$1: exit status $?: $(cat chat.err; logs)"
    [ "$(cat answer)" = "$text" ] || fail "$1: another text: $(cat answer; cat chat.err)"
}
talk 1 m
goes_on "nothing happens"
# Its line is in the log of bob, who serves, with the address of ann's gateway and the key's number.
logged() { grep -Eq "^lockstep: m: 20[-0-9]+T[0-9:.]+Z  10\.9\.0\.1 key 1  POST /v1/chat/completions  200  m  in [0-9]+ \([0-9]+ cached\)  out [0-9]+  first [0-9.]+ s  all [0-9.]+ s$" bob.log; }
within 20 logged || fail "no line for the request: $(cat bob.log)"
grep -q "abra-kadabra\|bit bucket" ann.log bob.log cat.log && fail "a log has a key or a text"
[ "$(cat chat.err)" = "m is up on this machine and answers at http://127.0.0.1:$port (--local opens it here)" ] || fail "it is not found by itself: $(cat chat.err)"
# Without MODEL it is the only one that is up; of two it asks which.
talk 1
goes_on "without MODEL"
[ "$(cat chat.err)" = "m is up on this machine and answers at http://127.0.0.1:$port" ] || fail "the only one is not found: $(cat chat.err)"
on 1 "$LOCKSTEP" up own/m.gguf --alias other --port $port -t 1 --ctx 256 --nodes ann --api-key-file keys >up.out 2>up.err || fail "up: $(cat up.err; logs)"
refuse 2 "2 models are up on this machine: say which one" "${on_ann[@]}" "$LOCKSTEP" chat
for name in m other; do grep -qx "    lockstep chat $name" err || fail "no command for $name: $(cat err)"; done
on 1 "$LOCKSTEP" down other >/dev/null 2>err || fail "down: $(cat err)"
# The machine that serves dies.
talk 1 m
within 30 begun || fail "no answer begins: $(cat chat.err; logs)"
[ "$(cat answer)" != "$text" ] || fail "the answer is too fast to be cut"
cut 2
goes_on "the serving machine dies"
back 2
owner() { on 1 "$LOCKSTEP" ps --json 2>/dev/null | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["where"].split(",")[0])' 2>/dev/null; }
listens() { on 1 "$LOCKSTEP" ps 2>/dev/null | grep -q "^m .* listening "; }
within 60 listens || fail "nobody serves: $(logs)"
# The machine that it talks to dies; the others are known from it.
there=2
[ "$(owner)" != bob ] || there=3
within 60 on 1 curl -sf -m 5 -o answer -H "Authorization: Bearer abra-kadabra" "http://10.9.0.$there:$port/v1/models" || fail "no answer there: $(logs)"
talk 1 --server "10.9.0.$there:$port"
within 30 begun || fail "no answer begins: $(cat chat.err; logs)"
cut $there
goes_on "the machine that is asked dies"
events() { on 1 "$LOCKSTEP" top --once >once 2>err && grep -Eq "lost .*${names[$there]}" once; }
within 30 events || fail "top does not tell of the loss: $(cat once err)"
[ $failures = 0 ] && echo "a cluster at the terminal: all as it should be"
[ $failures = 0 ]
