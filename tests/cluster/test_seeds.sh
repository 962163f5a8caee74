#!/bin/bash
# Five machines (network namespaces on one switch) that know each other by --seeds alone, and of these only one is named: each
# knows all of them. A model that they serve together goes on when the machine that serves it is killed, on all that are left, and
# is on all five again when it is back; no request is lost. A standby that was cut off, or stood still, does not end what is served.
# labels: once root waits
set -u
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/hosts.sh"
unset LOCKSTEP_CLUSTER_KEY
can_make_hosts || { echo "skip: no right to make network namespaces"; exit 77; }
mkdir own && cp "$model" own/m.gguf
export XDG_CONFIG_HOME=$work/config
"$LOCKSTEP" key >/dev/null 2>&1 || fail "no key"
port=8093
declare -A node
end_all() {
    kill -CONT "${node[@]}" 2>/dev/null
    kill -9 "${node[@]}" 2>/dev/null
    end_hosts
    wait 2>/dev/null
}
at_end end_all
host_unshare=(-n -m) host_enter=(-n -m -w)
make_hosts 0 1 2 3 4 5 # 0: the switch
for host in 2 3 4 5; do on $host mount -t tmpfs none "$work/own" || fail "no mount on $host"; done
switch_hosts 10.9.0 1 2 3 4 5 || { echo "skip: no bridge here"; exit 77; }
names=(- ann bob cat dan eve)
start() { # HOST
    local name=${names[$1]} seeds=()
    [ "$1" = 1 ] || seeds=(--seeds 10.9.0.1)
    mkdir -p "store-$name"
    nsenter -t "${hosts[$1]}" "${host_enter[@]}" "$LOCKSTEP" node --name "$name" --no-discovery "${seeds[@]}" --models "$work/store-$name" \
        --state "$work/state-$name" >>"$name.log" 2>&1 &
    node[$1]=$!
}
cut() { # HOST: its power
    local children
    children=$(pgrep -P "${node[$1]}")
    on "$1" ip link set wire down
    kill -9 "${node[$1]}" $children 2>/dev/null
    wait "${node[$1]}" 2>/dev/null
    unset "node[$1]"
}
logs() { tail -n 12 ann.log bob.log cat.log dan.log eve.log; }
for host in 1 2 3 4 5; do start $host; done

# ---- one list, whoever asks ---------------------------------------------------------------------
lists() { # HOST
    [ "$(on "$1" "$LOCKSTEP" nodes --json 2>/dev/null | python3 -c 'import json, sys
print(*(n["name"] for n in json.load(sys.stdin) if "cores" in n))' 2>/dev/null)" = "ann bob cat dan eve" ]
}
for host in 1 2 3 4 5; do within 60 lists $host || fail "nodes at $host: $(on $host "$LOCKSTEP" nodes 2>&1; logs)"; done
on 3 "$LOCKSTEP" nodes --node 10.9.0.5 | grep -q '^dan ' || fail "another node is asked for the others: $(on 3 "$LOCKSTEP" nodes --node 10.9.0.5 2>&1)"

# ---- up -----------------------------------------------------------------------------------------
up=("$LOCKSTEP" up own/m.gguf --alias m --port $port -t 1 --ctx 256 --insecure --parallel tensor --no-speculation)
nsenter -t "${hosts[1]}" "${host_enter[@]}" timeout 100 "${up[@]}" >up.out 2>up.err || fail "up: $(cat up.err; logs)"
served() { on "$1" "$LOCKSTEP" nodes --json 2>/dev/null | python3 -c 'import json, sys
print(*(d["node"] for n in json.load(sys.stdin) for d in n.get("deployments", []) if d["state"] == "listening"))' 2>/dev/null |
    cut_words; }
cut_words() { tr ' ' '\n' | sort -u | tr '\n' ' ' | sed 's/ $//'; }
is_served_by() { [ "$(served "$1")" = "$2" ]; }
ranks() { on "$1" curl -s -m 5 "http://127.0.0.1:$port/health" | python3 -c 'import json, sys; print(json.load(sys.stdin)["ranks"])' 2>/dev/null; }
has_ranks() { [ "$(ranks "$1")" = "$2" ]; }
within 60 has_ranks 3 5 || fail "$(ranks 3) ranks, of five: $(logs)"
body='{"model": "m", "prompt": "What is a bit bucket?", "max_tokens": 60, "temperature": 1, "seed": 5, "ignore_eos": true, "stream": true}'
ask() { # HOST OUT
    on "$1" curl -sN -m 120 -H "Content-Type: application/json" -d "$body" "http://127.0.0.1:$port/v1/completions" >"$2"
}
text_of() { python3 -c 'import json, sys
lines = [l[6:].strip() for l in open(sys.argv[1]) if l.startswith("data: ")]
assert lines[-1] == "[DONE]", lines[-1]
print("".join(json.loads(l)["choices"][0]["text"] for l in lines[:-1]))' "$1"; }
ask 2 ref || fail "no answer: $(logs)"
text_of ref >ref.text || fail "no answer: $(cat ref)"
[ -s ref.text ] || fail "an empty answer"
has_model() { cmp -s own/m.gguf "store-$1/m.gguf"; }
for name in bob cat dan eve; do within 100 has_model $name || fail "no model at $name: $(logs)"; done

# ---- the machine that serves is killed, and comes back ------------------------------------------
pids=()
for host in 2 3 4 5; do
    ask $host got-$host &
    pids+=($!)
done
begun() { [ "$(cat got-* | wc -l)" -ge 8 ]; }
within 60 begun || fail "the answers do not begin: $(logs)"
cut 1
for pid in "${pids[@]}"; do wait "$pid" || fail "a request ended with $?: $(logs)"; done
for host in 2 3 4 5; do text_of got-$host | cmp -s - ref.text || fail "other words at $host: $(cat got-$host)"; done
within 60 has_ranks 3 4 || fail "$(ranks 3) ranks, of the four that are left: $(logs)"
rm -f got-*
on 1 ip link set wire up
start 1
pids=() # questions go on all the time
(while [ ! -e enough ]; do
    ask 4 got-while || echo "status $?" >>lost
    text_of got-while 2>>lost | cmp -s - ref.text || echo "other words" >>lost
    sleep 4 # else nothing starts again before ten minutes
done) &
asking=$!
within 150 has_ranks 3 5 || fail "$(ranks 3) ranks, and ann is back: $(logs)"
touch enough
wait $asking
[ ! -s lost ] || fail "requests were lost while ann came back: $(cat lost; logs)"
owner=$(served 3)
within 60 is_served_by 1 "$owner" || fail "two serve: $(served 1), $owner"

# ---- a standby that is cut off, or stands still -------------------------------------------------
for host in 5 4 3; do [ "${names[$host]}" != "$owner" ] && break; done
standby=$host
for host in 2 1; do [ "${names[$host]}" != "$owner" ] && other=$host; done
server() { pgrep -f "serve $work/.*m\.gguf .*--alias m " | sort | tr '\n' ' '; }
before=$(server)
on $standby ip link set wire down
begins() { [ "$(grep -c "m: this node serves it" "${names[$standby]}.log")" -gt "$n_begun" ]; }
n_begun=$(grep -c "m: this node serves it" "${names[$standby]}.log")
within 60 begins || fail "the standby, cut off, serves nothing: $(logs)"
sleep 2
on $standby ip link set wire up
alone() { [ "$(server)" = "$before" ]; }
within 60 alone || fail "the healthy server ended, or two go on: $before is now $(server) $(logs)"
within 60 is_served_by $other "$owner" || fail "$(served $other) serves, and not $owner"

# In the middle of a round: the answers do not come, it stops, and goes on when all of them are old.
n_begun=$(grep -c "m: this node serves it" "${names[$standby]}.log")
on $standby ip link set wire down
sleep 1.5
kill -STOP "${node[$standby]}"
sleep 12
on $standby ip link set wire up
kill -CONT "${node[$standby]}"
sleep 6
begins && fail "the standby stood still, and begins what is served: $(logs)"
alone || fail "the healthy server ended: $before is now $(server) $(logs)"
[ $failures = 0 ]
