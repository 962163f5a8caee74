#!/bin/bash
# A model that nobody asks: three machines give its memory back, the lists still name it, and the next question at any of them loads
# it, for the same words. Ollama's keep_alive; an owner that dies meanwhile; questions that come just then.
# labels: root waits
set -u
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/hosts.sh"
. "$SOURCE_DIR/tests/support/three_nodes.sh"
make_three_hosts "$model"
port=8099 key=abra-kadabra
echo "$key" >keys
for wrong in soon 5x 1h30 -; do
    refuse 2 "--idle $wrong: a time is 30s, 30m" "$LOCKSTEP" up own/m.gguf --port $port -t 1 --insecure "--idle=$wrong"
done
nets=$(for host in 1 2 3; do readlink "/proc/${hosts[$host]}/ns/net"; done | tr '\n' ' ')
for host in 1 2 3; do start $host; done
up() { nsenter -t "${hosts[$1]}" "${host_enter[@]}" timeout 100 "$LOCKSTEP" up own/m.gguf --port $port -t 1 --ctx 256 "${@:2}" >up.out 2>up.err || fail "up: $(cat up.err; logs)"; }

at() { # HOST PATH words...: what that machine's port says
    on "$1" curl -s -m 60 -H "Authorization: Bearer $key" "${@:3}" "http://127.0.0.1:$port/$2"
}
status() { on "$1" curl -s -m 60 -o /dev/null -w '%{http_code}' "${@:3}" "http://127.0.0.1:$port/$2"; }
of() { python3 -c "import json, sys; o = json.load(sys.stdin); print($1)" 2>/dev/null; }
question='{"model": "m", "prompt": "What is a bit bucket?", "max_tokens": 24, "temperature": 0}'
ask() { at "$1" v1/completions -d "$question" | of 'o["choices"][0]["text"]'; }
answers() { [ "$(ask "$1")" = "$text" ] && [ -n "$text" ]; }
# "ann listening": who has it, and how, as HOST hears it.
who() { on "$1" curl -sk -m 20 $("$LOCKSTEP" key --curl) https://127.0.0.1:7342/v1/deployments | of '*("%s %s" % (d["node"], d["state"]) for d in o["deployments"])'; }
who_is() { [ "$(who "$1")" = "$2" ]; }
# The processes of its ranks on all machines.
ranks() {
    local pid
    for pid in $(pgrep -f "lockstep (serve|worker)"); do
        [[ " $nets " == *" $(readlink "/proc/$pid/ns/net") "* ]] && echo "$pid"
    done 2>/dev/null
}
n_ranks() { ranks | wc -l; }
no_ranks() { [ "$(n_ranks)" = 0 ]; }
asleep() { who_is "$1" "$2 asleep" && no_ranks; }
sleeps() { [[ $(who 1) == *" asleep" && $(who 2) == *" asleep" && $(who 3) == *" asleep" ]] && no_ranks; } # and all know it
stays_asleep() { # WHAT: nothing has begun since
    sleep 2
    no_ranks && [[ $(who 1) == *" asleep" ]] || fail "$1 wakes it: $(who 1) $(logs)"
}

# ---- it falls asleep, and wakes ------------------------------------------------------------------
up 1 --api-key-file keys --idle 12s --nodes ann,bob,cat
text=$(ask 1)
[ -n "$text" ] || fail "no answer: $(logs)"
for host in 2 3; do within 60 answers $host || fail "no answer at $host: $(logs)"; done
for name in bob cat; do within 60 cmp -s own/m.gguf "store-$name/m.gguf" || fail "no model at $name: $(logs)"; done
lists_it() { at "$1" v1/models | grep -q "\"id\":\"m\""; } # it has heard who serves: before that it says 503
listens() { who_is 2 "ann listening" && [ "$(n_ranks)" = 3 ] && lists_it 2 && lists_it 3; }
within 60 listens || fail "no rank on each: $(ranks)"
running=$(ranks)
lists=(v1/models v1/models/m api/v0/models api/tags api/version props)
for path in "${lists[@]}"; do at 2 $path >"loaded-${path//\//-}"; done
at 2 v1/models -H "anthropic-version: 2023-06-01" >loaded-anthropic
at 3 api/show -d '{"model": "m"}' >loaded-show
expires=$(at 2 api/ps | of 'o["models"][0]["expires_at"]')
[[ $expires > $(date -u +%FT%T) && $expires < $(date -u -d "+14 sec" +%FT%TZ) ]] || fail "it expires at $expires"
within 100 sleeps || fail "it does not fall asleep: $(who 1) $(ranks) $(logs)"
for pid in $running; do kill -0 "$pid" 2>/dev/null && fail "process $pid is left: $(ps -fp "$pid")"; done
grep -q "m: nobody has asked it for 12s: it is unloaded" ann.log || fail "ann does not say so: $(logs)"
on 2 "$LOCKSTEP" ps 2>/dev/null | grep -q "^m .* asleep .*next question" || fail "ps says $(on 2 "$LOCKSTEP" ps)"
on 2 "$LOCKSTEP" nodes | grep -q "^m  *at http://ANY-NODE:$port *asleep on ann: asleep since 20.*: the next question loads it" || fail "nodes says $(on 2 "$LOCKSTEP" nodes)"

# Lists do not wake it, and say what they said.
for path in "${lists[@]}"; do
    [ "$path" = api/v0/models ] || at 2 $path | cmp -s - "loaded-${path//\//-}" || fail "$path says $(at 2 $path), before $(cat "loaded-${path//\//-}")"
done
at 3 api/v0/models | of 'o["data"][0]["state"], o["data"][0]["max_context_length"]' | grep -q "not-loaded 256" || fail "api/v0/models says $(at 3 api/v0/models)"
at 2 v1/models -H "anthropic-version: 2023-06-01" | cmp -s - loaded-anthropic || fail "anthropic: $(at 2 v1/models -H "anthropic-version: 2023-06-01")"
at 3 api/show -d '{"model": "m"}' | cmp -s - loaded-show || fail "show: $(at 3 api/show -d '{"model": "m"}')"
[ "$(at 1 api/ps)" = '{"models":[]}' ] || fail "ps: $(at 1 api/ps)"
at 1 health | grep -q '"status":"ok","asleep":true' || fail "health: $(at 1 health)"
at 3 metrics | grep -q "^lockstep_asleep 1$" || fail "metrics: $(at 3 metrics)"
at 3 v1/cluster | of 'o["deployments"][0]["state"], o["deployments"][0]["context"], o["deployments"][0]["idle_s"], o["deployments"][0]["unloads"]' |
    grep -q "asleep 256 12.0 None" || fail "cluster: $(at 3 v1/cluster)"
at 2 v1/cluster/plan -H "Content-Type: application/json" -d '{"name": "m"}' | of 'len(o["candidates"]) > 0' | grep -q True || fail "plan: $(at 2 v1/cluster/plan -H "Content-Type: application/json" -d '{"name": "m"}')"
at 2 "" -H "Accept: text/html" --compressed | grep -qi "<!doctype html" || fail "no page"
# Nor do questions with another key, or for another model, nor a page that asks first.
[ "$(status 2 v1/completions -d "$question")" = 401 ] && [ "$(status 3 v1/completions -H "Authorization: Bearer wrong" -d "$question")" = 401 ] || fail "a question without its key"
[ "$(status 2 v1/models)" = 401 ] || fail "a list without a key"
[ "$(status 2 v1/chat/completions -H "Authorization: Bearer $key" -d '{"model": "other", "messages": []}')" = 404 ] || fail "another model"
[ "$(status 3 v1/chat/completions -X OPTIONS -H "Origin: http://localhost:3000")" = 204 ] || fail "a page of this machine may not ask"
[ "$(status 3 nothing/there -H "Authorization: Bearer $key" -d '{}')" = 404 ] || fail "a path that is none"
[ "$(at 2 api/generate -d '{"model": "m", "keep_alive": 0}' | of 'o["done_reason"], o["done"]')" = "unload True" ] || fail "what sleeps is not unloaded"
stays_asleep "what is no question"

# Several questions at once, at all machines: one load, and each gets its words.
pids=()
for i in 1 2 3 4 5 6; do
    ask $((i % 3 + 1)) >"woken-$i" &
    pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid"; done
for i in 1 2 3 4 5 6; do [ "$(cat woken-$i)" = "$text" ] || fail "question $i of six: $(cat woken-$i) $(logs)"; done
[ "$(grep -c "m: somebody asks it" ann.log)" = 1 ] || fail "it was loaded $(grep -c "m: somebody asks it" ann.log) times"
within 60 listens || fail "not on each machine again: $(ranks)"
at 3 v1/cluster | of '" ".join(e["kind"] for e in o["events"])' | grep -q "slept .*woke" || fail "events: $(at 3 v1/cluster | of 'o["events"]')"

# ---- keep_alive -----------------------------------------------------------------------------------
say() { at "$1" api/generate -d "{\"model\": \"m\", \"prompt\": \"What is a bit bucket?\", \"raw\": true, \"stream\": false, \"keep_alive\": $2, \"options\": {\"num_predict\": 24, \"temperature\": 0}}" | of 'o["response"]'; }
[ "$(say 2 -1)" = "$text" ] || fail "keep_alive -1: $(say 2 -1)"
never() { [ "$(at "$1" v1/cluster | of 'o["deployments"][0]["idle_s"]')" = None ]; }
for host in 1 2 3; do within 60 never $host || fail "$host does not know that it stays: $(at $host v1/cluster)"; done
[ "$(at 1 api/ps | of 'o["models"][0]["expires_at"][:4]')" = 9999 ] || fail "it expires: $(at 1 api/ps)"
[ "$(say 3 '"1h30m"')" = "$text" ] || fail "keep_alive 1h30m"
hours() { [ "$(at "$1" v1/cluster | of 'o["deployments"][0]["idle_s"]')" = 5400.0 ]; }
within 60 hours 1 || fail "ann does not know of it: $(at 1 v1/cluster)"
[ "$(at 2 api/chat -d '{"model": "m", "keep_alive": "soon"}' -o /dev/null -w '%{http_code}')" = 400 ] || fail "keep_alive soon"
# It ends after the answer, and no sooner: another one is under way.
on 3 curl -sN -m 60 -H "Authorization: Bearer $key" -d '{"model": "m", "prompt": "A", "raw": true, "options": {"num_predict": 230, "seed": 3, "ignore_eos": true}}' \
    "http://127.0.0.1:$port/api/generate" >other &
other=$!
[ "$(say 2 0)" = "$text" ] || fail "keep_alive 0"
wait $other
grep -q '"done":true' other && [ "$(grep -c response other)" -ge 200 ] || fail "the other answer ends early: $(tail -n 2 other)"
within 60 sleeps || fail "keep_alive 0 does not end it: $(who 1) $(logs)"
# Asked for nothing it is loaded, or unloaded.
[ "$(at 3 api/chat -d '{"model": "m"}' | of 'o["done_reason"], o["message"]["content"]')" = "load " ] || fail "it is not loaded: $(logs)"
within 60 listens || fail "it is not loaded: $(ranks)"
[ "$(at 2 v1/cluster | of 'o["deployments"][0]["idle_s"]')" = 12.0 ] || fail "what was said before it slept still counts: $(at 2 v1/cluster)"
[ "$(at 3 api/chat -d '{"model": "m", "keep_alive": 0}' | of 'o["done_reason"], o["message"]["content"]')" = "unload " ] || fail "it is not unloaded: $(logs)"
within 60 sleeps || fail "it is not unloaded: $(who 1) $(logs)"

# ---- a question that comes just as it falls asleep -------------------------------------------------
for i in {1..6}; do
    [ "$(say 2 0)" = "$text" ] || fail "round $i: $(logs)"
    sleep "0.$((i * 3 % 10))"
    [ "$(ask 3)" = "$text" ] || fail "a question is lost, round $i: $(logs)"
done
within 60 sleeps || fail "it does not fall asleep again: $(who 1) $(logs)"

# ---- moved, and its owner killed, while it sleeps ---------------------------------------------------
on 1 curl -s -m 20 -H "Authorization: Bearer $key" --json '{"name": "m", "node": "bob"}' "http://127.0.0.1:$port/v1/cluster/move" | grep -q '"name":"m"' || fail "no move"
for host in 1 2 3; do within 60 asleep $host bob || fail "bob does not hold it: $(who $host) $(logs)"; done
stays_asleep "a move"
cut 2
holds() { [[ $(who 1) == ann\ asleep || $(who 1) == cat\ asleep ]] && [ "$(who 1)" = "$(who 3)" ]; }
within 60 holds || fail "nobody holds it after bob: $(who 1) $(who 3) $(logs)"
stays_asleep "the loss of its owner"
[ "$(at 1 v1/models | of 'o["data"][0]["meta"]')" = "$(of 'o["data"][0]["meta"]' <loaded-v1-models)" ] || fail "the list after a loss: $(at 1 v1/models)"
within 100 answers 3 || fail "nobody wakes it after bob: $(logs)"
back 2
within 60 answers 2 || fail "no answer at bob: $(logs)"

# ---- down, asleep -----------------------------------------------------------------------------------
at 1 api/generate -d '{"model": "m", "keep_alive": 0}' >/dev/null
within 100 sleeps || fail "it does not fall asleep at last: $(who 1) $(logs)"
# A node that is started while it sleeps knows its name, at least.
kill "${node[3]}" && wait "${node[3]}"
start 3
named() { [ "$(at 3 v1/models | of 'o["data"][0]["id"]')" = m ] && [ "$(at 3 api/tags | of 'o["models"][0]["name"]')" = m:latest ]; }
within 60 named || fail "cat was started, and lists $(at 3 v1/models) $(at 3 api/tags)"
no_ranks || fail "a node that comes wakes it: $(logs)"
nsenter -t "${hosts[2]}" "${host_enter[@]}" "$LOCKSTEP" down m || fail "down"
for host in 1 2 3; do within 60 who_is $host "" || fail "still up at $host: $(who $host)"; done
for host in 1 2 3; do kill "${node[$host]}" && wait "${node[$host]}" || fail "node $host: exit status $?"; done
[ $failures = 0 ]
