#!/bin/bash
# The cluster as GET /v1/cluster shows it: three machines (network namespaces on one switch), before a node is killed in an answer,
# after it, and when it is back; and changes by HTTP: who may make them, and what becomes of them.
# labels: root waits
set -u
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/hosts.sh"
. "$SOURCE_DIR/tests/support/three_nodes.sh"
make_three_hosts "$model"
port=8099
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
nsenter -t "${hosts[1]}" "${host_enter[@]}" timeout 100 "$LOCKSTEP" up own/m.gguf --port $port -t 1 --ctx 512 --api-key-file keys --nodes ann,bob,cat --emulate-link latency=1ms --no-speculation >/dev/null 2>up.err || {
    fail "up: $(cat up.err; logs)"
    exit 1
}

# ---- what is there -------------------------------------------------------------------------------
[ "$(look 2)" = 401 ] && [ "$(look 2 -H "Authorization: Bearer wrong")" = 401 ] || fail "the cluster is shown without a key"
within 60 sees 2 'set(n) == {"ann", "bob", "cat"} and all(x["state"] == "here" for x in n.values())' || fail "nodes: $(seen)"
within 30 sees 2 'd["self"] == "bob" and all(x["cores"] >= 1 and x["memory"] > x["memory_free"] > 0 and x["disk_free"] > 0 for x in n.values())' || fail "facts: $(seen)"
sees 2 'o["m"]["node"] == "ann" and o["m"]["state"] == "listening" and o["m"]["port"] == 8099' || fail "deployment: $(seen)"
within 60 sees 2 '{x["node"]: x["reason"] for x in o["m"]["standby"]} == {"bob": "", "cat": ""}' || fail "standby: $(seen)"
within 60 sees 3 '("up", "ann", "m") in k and ("placed", "ann", "m") in k and ("copied", "bob", "m") in k' || fail "events: $(seen)"


# The server begins again with those who have the model now: a rank on each, measured.
within 60 sees 2 'o["m"]["ranks"] == 3 and o["m"]["state"] == "listening"' || fail "three ranks: $(seen)"
within 60 sees 2 'sorted(x[0] for x in w.values()) == ["ann", "bob", "cat"] and w["m", 0][0] == "ann"' || fail "workers: $(seen)"
# Each layer and each head is somewhere.
sees 2 '{l for _, x in w.values() for l in range(*x["layers"])} == set(range(o["m"]["layers"]))' || fail "layers: $(seen)"
sees 2 '{l for _, x in w.values() for l in range(*x["heads"])} == set(range(o["m"]["heads"]))' || fail "heads: $(seen)"
sees 2 'all(x["memory"]["weights"] > 0 and x["memory"]["cache"] > 0 and x["memory"]["process"] > 0 for _, x in w.values())' || fail "memory: $(seen)"
sees 2 'sorted(tuple(x["ranks"]) for x in d["links"]) == [(0, 1), (0, 2), (1, 2)] and all(x["kind"] == "tcp" and x["latency_us"] > 900 and x["bytes"] > 0 for x in d["links"])' || fail "links: $(seen)"
sees 2 '{(x["a"], x["b"]) for x in d["links"]} == {(w["m", x][0], w["m", y][0]) for x, y in ((0, 1), (0, 2), (1, 2))}' || fail "names of links: $(seen)"
sees 2 'sum(x["chosen"] for x in o["m"]["candidates"]) == 1 and {len(x["nodes"]) for x in o["m"]["candidates"]} == {1, 2, 3} and all(x["tokens_per_second"] > 0 for x in o["m"]["candidates"])' || fail "candidates: $(seen)"
sees 2 '" tokens/s predicted" in o["m"]["placement"] and any(e["kind"] == "placed" and "on 3 ranks: %s, " % o["m"]["parallel"] in e["sentence"] and e["sentence"].endswith(" tokens/s predicted") for e in d["events"])' || fail "placement: $(seen)"

# ---- who may change it ---------------------------------------------------------------------------
admin=$("$LOCKSTEP" key --admin)
[ ${#admin} = 64 ] || fail "the token is $admin"
change() { # HOST ADDRESS WHAT BODY CURL-WORDS...: the status; the answer is in changed.json
    on "$1" curl -s -m 60 -o changed.json -w '%{http_code}' -H "Authorization: Bearer $key" -H "Content-Type: application/json" -d "$4" "${@:5}" "http://$2:$port/v1/cluster/$3"
}
is() { # STATUS PATTERN GOT
    [ "$3" = "$1" ] && grep -qE "$2" changed.json || fail "expected $1 and '$2', got $3: $(cat changed.json)"
}
is 403 'lockstep key --admin' "$(change 2 10.9.0.1 down '{"name": "m"}')"
is 403 'lockstep key --admin' "$(change 1 127.0.0.1 down '{"name": "m"}' -H "X-Forwarded-For: 10.9.0.7")"
is 403 'lockstep key --admin' "$(change 1 127.0.0.1 down '{"name": "m"}' -H "Host: evil.example")"
is 403 'lockstep key --admin' "$(change 1 127.0.0.1 down '{"name": "m"}' --http1.0)" # as a proxy's
is 403 'another page' "$(change 1 127.0.0.1 down '{"name": "m"}' -H "Origin: http://127.0.0.1:3000")"
is 403 'another page' "$(change 2 10.9.0.1 down '{"name": "m"}' -H "Origin: null" -H "Lockstep-Admin: $admin")"
is 415 'application/json' "$(on 1 curl -s -o changed.json -w '%{http_code}' -H "Authorization: Bearer $key" -H "Content-Type: text/plain" -d '{"name": "m"}' "http://127.0.0.1:$port/v1/cluster/down")"
is 403 'lockstep key --admin' "$(change 2 10.9.0.1 down '{"name": "m"}' -H "Lockstep-Admin: ${admin%?}")"
is 401 'needs an API key' "$(on 1 curl -s -o changed.json -w '%{http_code}' -H "Content-Type: application/json" -d '{"name": "m"}' "http://127.0.0.1:$port/v1/cluster/down")"
is 400 'no \\"name\\"' "$(change 2 10.9.0.1 down '{}' -H "Lockstep-Admin: $admin")"
is 400 'not a JSON object' "$(change 1 127.0.0.1 down '[')"
is 404 'no deployment is called x' "$(change 1 127.0.0.1 down '{"name": "x"}')"
is 404 'no node is called dee' "$(change 1 127.0.0.1 move '{"name": "m", "node": "dee"}')"
is 404 'no node has a model called x' "$(change 1 127.0.0.1 up '{"model": "x"}')"
within 40 sees 1 'any(x["name"] == "m" and set(x["nodes"]) == {"bob", "cat"} for x in d["models"])' || fail "models: $(seen)"
is 400 'option idle is a time' "$(change 1 127.0.0.1 up '{"model": "m", "name": "n", "options": {"idle": "soon"}}')"
is 400 'may not say port' "$(change 1 127.0.0.1 up '{"model": "m", "name": "n", "options": {"port": 1}}')"
is 400 'hosts' "$(change 1 127.0.0.1 up '{"model": "m", "name": "n", "options": {"hosts": "@/etc/passwd"}}')"
is 404 'nothing at this path' "$(change 1 127.0.0.1 other '{}')"
is 405 '' "$(on 1 curl -s -o changed.json -w '%{http_code}' -H "Authorization: Bearer $key" "http://127.0.0.1:$port/v1/cluster/down")"
may() { on 2 curl -s -m 20 "$@" "http://10.9.0.1:$port/v1/cluster" | python3 -c 'import json, sys; print(json.load(sys.stdin)["may"]["manage"])'; }
[ "$(may -H "Authorization: Bearer $key") $(may -H "Authorization: Bearer $admin") $(may -H "x-api-key: $key" -H "Lockstep-Admin: $admin")" = "False True True" ] || fail "who may"
# To plan is only to look.
is 200 '"layout":"one rank"' "$(change 2 10.9.0.1 plan '{"name": "m", "nodes": "ann"}')"
is 200 'nothing was measured' "$(change 2 10.9.0.1 plan '{"name": "m", "nodes": "dee"}')"
# A node's own port says the same to who has the cluster's key.
on 3 curl -s -m 20 $("$LOCKSTEP" key --curl) https://10.9.0.1:7342/v1/cluster -o seen.json
python3 holds.py 'd["self"] == "ann" and d["may"]["manage"] and o["m"]["ranks"] == 3 and len(n) == 3' || fail "the node's port: $(seen)"

# ---- the one that serves dies in an answer -----------------------------------------------------------
question='{"model": "m", "prompt": "What is a bit bucket?", "max_tokens": 450, "ignore_eos": true, "temperature": 0, "stream": true}'
ask() { on "$1" curl -sN -m 200 -H "Authorization: Bearer $key" -H "Content-Type: application/json" -d "$question" "http://127.0.0.1:$port/v1/completions" >"$2" 2>/dev/null; }
ask 2 ref || fail "no answer: $(logs)"
ask 2 got &
asking=$!
begun() { [ "$(grep -c '^data: {' got 2>/dev/null)" -ge 20 ]; }
within 60 begun || fail "the answer does not begin: $(logs)"
sees 3 'o["m"]["requests"]["running"] == 1' || fail "an answer under way: $(seen)"
within 10 sees 3 'o["m"]["tokens_per_second"] > 1 and any(x["rate"] > 0 for x in d["links"])' || fail "its speed: $(seen)"
cut 1
wait $asking || fail "the answer ends with $?"
words() { sed -n 's/^data: {/{/p' "$1" | python3 -c 'import json, sys; print("".join(json.loads(l)["choices"][0]["text"] for l in sys.stdin))'; }
[ "$(words got)" = "$(words ref)" ] && [ "$(grep -c '^data: \[DONE\]' got)" = 1 ] || fail "the answer differs: $(cat got; logs)"
grep '^: lockstep ' got >comments
python3 - <<'END' || fail "the comments are $(cat comments)"
import json
news = [json.loads(line.removeprefix(": lockstep ")) for line in open("comments")]
assert 1 <= len(news) <= 2, news
assert all(x["lost"] == "ann" and "and the answer goes on" in x["sentence"] for x in news), news
assert news[-1]["next"] in ("bob", "cat") and news[-1]["next"] in news[-1]["sentence"], news
END
grep -q '^: lockstep' ref && fail "a comment where nobody waits"
within 60 sees 2 'n["ann"]["state"] == "lost" and n["ann"]["since"] > 1.7e9 and n["ann"]["cores"] >= 1' || fail "ann is lost: $(seen)"
within 60 sees 2 'o["m"]["state"] == "listening" and o["m"]["node"] in ("bob", "cat") and o["m"]["ranks"] == 2' || fail "who serves: $(seen)"
sees 3 'k.count(("lost", "ann", None)) == 1 and [x for x in k if x[0] == "took_over"] == [("took_over", o["m"]["node"], "m")]' || fail "events: $(seen)"
within 60 sees 3 'k[-1] == ("placed", o["m"]["node"], "m") or k[-2] == ("placed", o["m"]["node"], "m")' || fail "placed anew: $(seen)"
# It comes back, as itself.
back 1
within 60 sees 2 'n["ann"]["state"] == "here" and k.count(("back", "ann", None)) == 1 and ("joined", "ann", None) not in k' || fail "ann is back: $(seen)"
within 100 sees 1 'o["m"]["ranks"] == 3 and o["m"]["state"] == "listening" and {x["node"]: x["reason"] for x in o["m"]["standby"]}.get("ann") == ""' || fail "ann has its part again: $(seen)"

# ---- changes -----------------------------------------------------------------------------------------
is 200 '"name":"m"' "$(change 2 10.9.0.1 move '{"name": "m", "node": "ann"}' -H "Lockstep-Admin: $admin")"
within 100 sees 2 'o["m"]["node"] == "ann" and o["m"]["state"] == "listening" and ("moved", "ann", "m") in k' || fail "m does not move: $(seen)"
within 60 sees 3 'o["m"]["ranks"] == 3' || fail "ranks after a move: $(seen)"
is 200 '"name":"m"' "$(change 1 127.0.0.1 move '{"name": "m", "node": "ann"}')"
ask 3 got && [ "$(words got)" = "$(words ref)" ] || fail "an answer after a move: $(logs)"
# Another one, of a model that only others have: at the same port, with the same key.
on 1 true && cp own/m.gguf store-cat/other.gguf
within 100 sees 1 'any(x["name"] == "other" and x["nodes"] == ["cat"] for x in d["models"])' || fail "models: $(seen)"
is 200 '"name":"second"' "$(change 1 127.0.0.1 up '{"model": "other", "name": "second", "nodes": "cat", "options": {"threads": 1, "ctx": 256, "idle": "2h"}}')"
within 100 sees 2 'o["second"]["state"] == "listening" and o["second"]["node"] == "cat" and o["second"]["port"] == 8099 and o["second"]["idle_s"] == 7200' || fail "second is not up: $(seen)"
# A request that only asks is answered at once, with 503 until this node has heard who serves.
without_key() { [ "$(on 1 curl -s -m 20 -o changed.json -w '%{http_code}' "http://127.0.0.1:$port/v1/models/second")" = "$1" ]; }
within 30 without_key 401 || fail "second needs no key: $(cat changed.json)"
is 409 'cannot serve second: ' "$(change 1 127.0.0.1 move '{"name": "second", "node": "bob"}')"
is 200 'second' "$(change 1 127.0.0.1 down '{"name": "second"}')"
within 60 sees 3 '"second" not in o and ("down", "", "second") in k' || fail "second is still up: $(seen)"

# What belongs to deployments of other keys is not shown.
nsenter -t "${hosts[3]}" "${host_enter[@]}" timeout 100 "$LOCKSTEP" up store-cat/other.gguf --alias secret --port $port -t 1 --ctx 256 --nodes cat --api-key other >/dev/null 2>up.err || fail "up: $(cat up.err; logs)"
sees 2 '"secret" not in open("seen.json").read()' || fail "secret is shown: $(seen)"
only_secret() {
    on 2 curl -s -m 20 -H "Authorization: Bearer other" "http://127.0.0.1:$port/v1/cluster" -o seen.json
    python3 holds.py 'list(o) == ["secret"] and {x[0] for x in w} == {"secret"} and all(x[2] in ("secret", None) for x in k)'
}
within 30 only_secret || fail "not just secret is shown: $(seen)"

# ---- one that is told to end -------------------------------------------------------------------------
kill "${node[2]}" && wait "${node[2]}"
unset "node[2]"
within 60 sees 1 'n["bob"]["state"] == "left" and ("left", "bob", None) in k' || fail "bob has left: $(seen)"

# A plain server shows itself.
"$LOCKSTEP" serve own/m.gguf --port 0 --ranks 2 -t 1 --ctx 256 >serve.out 2>serve.err &
serve=$!
within 60 grep -q "listens on" serve.out || fail "serve: $(cat serve.err)"
curl -s -m 20 "$(sed -n 's/^lockstep listens on //p' serve.out)/v1/cluster" -o seen.json
python3 holds.py 'len(n) == 1 and len(w) == 2 and o["m"]["ranks"] == 2 and [x["kind"] for x in d["links"]] == ["shm"] and not d["may"]["manage"]' || fail "serve: $(seen)"
kill $serve && wait $serve
[ $failures = 0 ]
