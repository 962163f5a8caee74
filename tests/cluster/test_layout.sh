#!/bin/bash
# A person chooses a layout: which nodes compute a model that is up, and how (POST /v1/cluster/move). An answer under way goes on with the
# same words; where the chosen machines are not all there, others compute, until they are.
# labels: root waits
set -u
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/hosts.sh"
. "$SOURCE_DIR/tests/support/three_nodes.sh"
make_three_hosts "$model"
port=8099
cat >holds.py <<'END'
import json, sys
d = json.load(open("seen.json"))
n = {x["name"]: x for x in d["nodes"]}
o = {x["name"]: x for x in d["deployments"]}
k = [(e["kind"], e["node"], e.get("model")) for e in d["events"]]
w = sorted(name for name in n for x in n[name]["workers"] if x["model"] == "m")
m = o.get("m")
sys.exit(0 if eval(sys.argv[1]) else 1)
END
sees() { # HOST EXPRESSION
    on "$1" curl -s -m 20 -o seen.json "http://127.0.0.1:$port/v1/cluster" && python3 holds.py "$2" 2>holds.err
}
seen() { python3 -m json.tool seen.json; cat holds.err; logs; }
change() { # HOST WHAT BODY: the status; the answer is in changed.json
    on "$1" curl -s -m 60 -o changed.json -w '%{http_code}' -H "Content-Type: application/json" -d "$3" "http://127.0.0.1:$port/v1/cluster/$2"
}
is() { # STATUS PATTERN GOT
    [ "$3" = "$1" ] && grep -qE "$2" changed.json || fail "expected $1 and '$2', got $3: $(cat changed.json)"
}
for host in 1 2 3; do start $host; done
nsenter -t "${hosts[1]}" "${host_enter[@]}" timeout 100 "$LOCKSTEP" up own/m.gguf --port $port -t 1 --ctx 512 --insecure --nodes ann,bob,cat \
    --emulate-link latency=3ms --no-speculation >/dev/null 2>up.err || {
    fail "up: $(cat up.err; logs)"
    exit 1
}
within 60 sees 2 'm["ranks"] == 3 and m["state"] == "listening" and m["layout"] is None' || fail "three ranks: $(seen)"
within 60 sees 2 '{x["node"]: x["reason"] for x in m["standby"]} == {"bob": "", "cat": ""}' || fail "standby: $(seen)"

# ---- what is refused -------------------------------------------------------------------------------
is 404 'no node is called dee' "$(change 1 move '{"name": "m", "nodes": ["ann", "dee"], "parallel": "tensor2"}')"
is 400 'not among the nodes' "$(change 1 move '{"name": "m", "node": "cat", "nodes": "ann,bob"}')"
is 400 'is the layout of a candidate' "$(change 1 move '{"name": "m", "nodes": "ann,bob", "parallel": "circle2"}')"
is 400 'is not a list of names' "$(change 1 move '{"name": "m", "nodes": [1]}')"
is 400 'a layout names its nodes' "$(change 1 move '{"name": "m", "nodes": "auto", "parallel": "tensor2"}')"
is 200 '"m"' "$(change 1 move '{"name": "m", "nodes": "auto"}')" # as it is: nothing begins again
sees 1 '("moved", "ann", "m") not in k' || fail "a move to what is: $(seen)"

# ---- a candidate of the list is chosen, in the middle of an answer ---------------------------------
question='{"model": "m", "prompt": "What is a bit bucket?", "max_tokens": 450, "ignore_eos": true, "temperature": 0, "stream": true}'
ask() { on "$1" curl -sN -m 200 -H "Content-Type: application/json" -d "$question" "http://127.0.0.1:$port/v1/completions" >"$2" 2>/dev/null; }
words() { sed -n 's/^data: {/{/p' "$1" | python3 -c 'import json, sys; print("".join(json.loads(l)["choices"][0]["text"] for l in sys.stdin))'; }
begun() { [ "$(grep -c '^data: {' "$1" 2>/dev/null)" -ge 20 ]; }
ask 3 ref || fail "no answer: $(logs)"
change 2 plan '{"name": "m", "nodes": ["ann", "bob"]}' >/dev/null
body=$(python3 - <<'END'
import json
c, = [x for x in json.load(open("changed.json"))["candidates"] if set(x["nodes"]) == {"ann", "bob"}]
assert c["fits"] and c["layout"] in ("tensor2", "pipeline2") and not c["chosen"], c
print(json.dumps({"name": "m", "nodes": c["nodes"], "parallel": c["layout"]}))
END
) || fail "the plan: $(cat changed.json)"
ask 3 got &
asking=$!
within 60 begun got || fail "the answer does not begin: $(logs)"
is 200 '"m"' "$(change 2 move "$body")"
wait $asking || fail "the answer ends with $?"
[ "$(words got)" = "$(words ref)" ] && [ "$(grep -c '^data: \[DONE\]' got)" = 1 ] || fail "the answer differs: $(cat got; logs)"
within 60 sees 3 'm["ranks"] == 2 and m["state"] == "listening" and w == ["ann", "bob"] and m["node"] == "ann"' || fail "two ranks: $(seen)"
sees 3 'm["layout"]["nodes"] == ["ann", "bob"] and m["parallel"] == m["layout"]["parallel"]' || fail "the layout: $(seen)"
sees 3 'any(e["kind"] == "moved" and "is to run on ann,bob as" in e["sentence"] for e in d["events"])' || fail "what happened: $(seen)"
# The third one stands by, and is not taken in.
within 60 sees 3 '{x["node"]: x["reason"] for x in m["standby"]}.get("cat") == ""' || fail "cat stands by: $(seen)"

# ---- a rank is lost, while its server lives: who waits is told, and the layout comes back ----------------
ask 3 got &
asking=$!
within 60 begun got || fail "the answer does not begin: $(logs)"
cut 2
wait $asking || fail "the answer ends with $?"
[ "$(words got)" = "$(words ref)" ] && [ "$(grep -c '^data: \[DONE\]' got)" = 1 ] || fail "the answer differs: $(cat got; logs)"
grep -q '^: lockstep {"lost":"10.9.0.2","next":null,"sentence":"10.9.0.2 is lost; the model is loaded again, and the answer goes on"}' got || fail "no comment: $(grep '^:' got; logs)"
back 2
within 120 sees 3 'm["ranks"] == 2 and m["state"] == "listening" and w == ["ann", "bob"]' || fail "the layout comes back: $(seen)"

# ---- just one, where none of it was; an answer goes on there ----------------------------------------
ask 1 got &
asking=$!
within 60 begun got || fail "the answer does not begin: $(logs)"
is 200 '"m"' "$(change 1 move '{"name": "m", "nodes": ["cat"], "parallel": "one rank"}')"
wait $asking || fail "the answer ends with $?"
[ "$(words got)" = "$(words ref)" ] || fail "the answer differs: $(cat got; logs)"
! grep -q 'is lost' got || fail "the comments of a move: $(grep '^:' got)"
within 60 sees 1 'm["ranks"] == 1 and m["node"] == "cat" and w == ["cat"] and m["state"] == "listening"' || fail "on cat alone: $(seen)"
# It is lost: others take over, all that are there.
cut 3
within 90 sees 1 'm["state"] == "listening" and m["node"] in ("ann", "bob") and w == ["ann", "bob"]' || fail "others take over: $(seen)"
back 3

# ---- and again what is fastest ----------------------------------------------------------------------
within 60 sees 1 'n["cat"]["state"] == "here"' || fail "cat is back: $(seen)"
is 200 '"m"' "$(change 1 move '{"name": "m", "nodes": "auto"}')"
within 100 sees 1 'm["layout"] is None and m["ranks"] == 3 and m["state"] == "listening"' || fail "all of them: $(seen)"
sees 1 'all(c["prompt_per_second"] > 10 for c in m["candidates"])' || fail "prompts: $(seen)"

# ---- the same in a terminal, asked at another machine --------------------------------------------------
move() { nsenter -t "${hosts[3]}" "${host_enter[@]}" timeout 100 "$LOCKSTEP" move "$@" >out 2>err; }
move m || fail "the list: $(cat out err)"
[ "$(grep -c '^\* ' out)" = 1 ] && grep -qE '^  one rank +[0-9.]+ +[0-9.]+  cat$' out && grep -q '^predicted from' err || fail "the list is $(cat out err)"
move m --json && python3 -c 'import json; assert {len(x["nodes"]) for x in json.load(open("out"))["candidates"]} == {1, 2, 3}' || fail "the list as JSON: $(cat out err)"
move m --nodes ann,bob --parallel pipeline2 || fail "move: $(cat out err)"
[ "$(cat out)" = "ann serves m, and ann,bob compute it as pipeline2" ] || fail "it says $(cat out err)"
within 30 sees 1 'm["ranks"] == 2 and m["parallel"] == "pipeline2" and w == ["ann", "bob"]' || fail "a pipeline of two: $(seen)"
ask 3 got && [ "$(words got)" = "$(words ref)" ] || fail "an answer of a pipeline: $(cat got; logs)"
move m --to bob --json && python3 -c 'import json; d = json.load(open("out")); assert d["node"] == "bob" and d["state"] == "listening", d' || fail "to bob: $(cat out err)"
within 30 sees 1 'm["node"] == "bob" and m["ranks"] == 2' || fail "bob serves: $(seen)"
refuses() { ! move "${@:2}" && grep -q "$1" err || fail "expected '$1' of move ${*:2}, got: $(cat out err)"; }
refuses 'no deployment is called x' x
refuses 'no node is called dee' m --to dee
refuses 'needs --nodes' m --parallel tensor2
refuses 'is the layout of a candidate' m --nodes ann,bob --parallel circle
move m --nodes auto && [ "$(cat out)" = "bob serves m" ] || fail "the fastest: $(cat out err)"
within 100 sees 1 'm["layout"] is None and m["ranks"] == 3 and m["state"] == "listening"' || fail "all of them: $(seen)"

# ---- a model that is not up is planned from what nodes know, and measure ------------------------------
change 1 plan '{"name": "m"}' >/dev/null && cp changed.json ranks.json
admin=$("$LOCKSTEP" key --admin)
is 403 'lockstep key --admin' "$(on 2 curl -s -m 60 -o changed.json -w '%{http_code}' --json '{"model": "m"}' "http://10.9.0.1:$port/v1/cluster/plan")"
is 404 'no node has a model called x' "$(change 1 plan '{"model": "x"}')"
is 400 'context of 1000000' "$(change 1 plan '{"model": "m", "options": {"ctx": 1000000}}')"
is 200 '"candidates"' "$(change 1 plan '{"model": "m"}')" # others have it in their folders: they are asked
python3 - <<'END' || fail "the plan: $(cat changed.json ranks.json)"
import json
plan, ranks = json.load(open("changed.json")), json.load(open("ranks.json"))["candidates"]
c = plan["candidates"]
assert {tuple(sorted(x["nodes"])) for x in c} == {("ann",), ("bob",), ("cat",), ("ann", "bob"), ("ann", "cat"), ("bob", "cat"), ("ann", "bob", "cat")}, c
assert all(x["fits"] and x["from"] == "nodes" and x["tokens_per_second"] > 0 and x["prompt_per_second"] > 0 for x in c), c
assert all(x["from"] == "ranks" for x in ranks), ranks
speeds = [x["tokens_per_second"] for x in c]
assert speeds == sorted(speeds, reverse=True), speeds
assert {x["name"] for x in plan["machines"]} == {"ann", "bob", "cat"} and len(plan["links"]) == 3, plan
assert all(x["from"] == "measured by ranks" and x["latency_us"] > 900 for x in plan["links"]), plan
# The latency is three milliseconds, as ranks have measured it: a token in two parts waits for two exchanges at least.
assert all(x["wires_ms"] > 1.9 for x in c if len(x["nodes"]) > 1) and all(x["wires_ms"] is None for x in c if len(x["nodes"]) == 1), c
END
is 200 '"candidates"' "$(change 2 plan '{"model": "m", "nodes": "bob,cat"}')"
python3 -c 'import json; assert {x for c in json.load(open("changed.json"))["candidates"] for x in c["nodes"]} == {"bob", "cat"}' || fail "of two: $(cat changed.json)"
# A candidate of it is put up: its nodes compute, and one of them that has the model answers.
is 400 'a layout names its nodes' "$(change 1 up '{"model": "m", "name": "second", "layout": {"parallel": "tensor2"}}')"
is 400 'is the layout of a candidate' "$(change 1 up '{"model": "m", "name": "second", "layout": {"nodes": "bob,cat", "parallel": "circle2"}}')"
is 404 'no node is called dee' "$(change 1 up '{"model": "m", "name": "second", "layout": {"nodes": ["bob", "dee"]}}')"
is 404 'no node of the layout has a model called m' "$(change 1 up '{"model": "m", "name": "second", "layout": {"nodes": ["ann"]}}')"
is 409 'cat takes no part in second' "$(change 1 up '{"model": "m", "name": "second", "nodes": ["ann", "bob"], "layout": {"nodes": ["bob", "cat"]}}')"
is 200 '"second"' "$(change 1 up '{"model": "m", "name": "second", "options": {"threads": 1, "ctx": 512}, "layout": {"nodes": ["bob", "cat"], "parallel": "pipeline2"}}')"
second='{**o["second"], "at": sorted(x for x in n for y in n[x]["workers"] if y["model"] == "second")}'
within 60 sees 3 "(lambda s: s['state'] == 'listening' and s['at'] == ['bob', 'cat'] and s['node'] in s['at'] and s['parallel'] == 'pipeline2')($second)" || fail "put up in a layout: $(seen)"
sees 3 'o["second"]["layout"] == {"nodes": ["bob", "cat"], "parallel": "pipeline2"} and o["second"]["nodes"] == "auto"' || fail "its layout: $(seen)"
is 200 '"second"' "$(change 1 down '{"name": "second"}')"
# Where no ranks have measured, a connection's round trip counts.
is 200 '"m"' "$(change 1 down '{"name": "m"}')"
nsenter -t "${hosts[1]}" "${host_enter[@]}" timeout 100 "$LOCKSTEP" up own/m.gguf --alias m --port $port -t 1 --ctx 512 --insecure --nodes ann >/dev/null 2>up.err || fail "up: $(cat up.err; logs)"
is 200 'the round trip of a connection' "$(change 1 plan '{"model": "m"}')"
python3 -c 'import json; assert all(0 < x["latency_us"] < 5000 for x in json.load(open("changed.json"))["links"])' || fail "connections: $(cat changed.json)"

# ---- where one machine is the fastest, it is seen why -----------------------------------------------
is 200 '"m"' "$(change 1 down '{"name": "m"}')"
nsenter -t "${hosts[1]}" "${host_enter[@]}" timeout 100 "$LOCKSTEP" up own/m.gguf --alias m --port $port -t 1 --ctx 512 --insecure \
    --emulate-link latency=20ms >/dev/null 2>up.err || fail "up: $(cat up.err; logs)"
alone='m["ranks"] == 1 and {len(c["nodes"]) for c in m["candidates"]} >= {1, 2} and {x for c in m["candidates"] for x in c["nodes"]} <= set(n)'
within 100 sees 1 "$alone" || fail "what was considered: $(seen)"
sees 1 '[c["layout"] for c in m["candidates"] if c["chosen"]] == ["one rank"] and m["placement"].startswith("1 rank (")' || fail "why one rank: $(seen)"
sees 1 'max(m["candidates"], key=lambda c: c["tokens_per_second"])["chosen"]' || fail "the fastest: $(seen)"
[ $failures = 0 ]
