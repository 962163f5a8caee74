#!/bin/bash
# lockstep pull --nodes: one machine downloads, and the others get it from that one while it comes. What crosses the line to the
# hub (tests/support/hub.py imitates it) is counted: once. A machine that is lost continues later.
# labels: root waits
set -u
gguf=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/hosts.sh"
can_make_hosts || { echo "skip: no right to make network namespaces"; exit 77; }
. "$SOURCE_DIR/tests/support/hub.sh"
unset LOCKSTEP_CLUSTER_KEY
export HOME=$work XDG_CONFIG_HOME=$work/front
mkdir front
size=$(wc -c <"$gguf")
mkdir -p hub/repos/org/{tiny,again,split}
cp "$gguf" hub/repos/org/tiny/tiny-Q4_K_M.gguf
cp "$gguf" hub/repos/org/again/again-F16.gguf
printf 'x' >>hub/repos/org/again/again-F16.gguf # another content
for part in 1 2; do head -c $((part * 100000)) "$gguf" >"hub/repos/org/split/split-0000$part-of-00002.gguf"; done

"$LOCKSTEP" key >/dev/null 2>&1
host_unshare=(-n -m) host_enter=(-n -m -w)
make_hosts 0 1 2 3 # 0: the switch
switch_hosts 10.9.0 1 2 3 || { echo "skip: no bridge here"; exit 77; }
start_hub nsenter -t "${hosts[1]}" "${host_enter[@]}" # only ann reaches it
start() { # HOST NAME
    HF_HOME=$work/hf-$2 XDG_DATA_HOME=$work/data-$2 nsenter -t "${hosts[$1]}" "${host_enter[@]}" "$LOCKSTEP" node --name "$2" >"$2.log" 2>&1 &
    nodes+=($!)
    within 60 grep -q "listens on port" "$2.log" || fail "node $2: $(cat "$2.log")"
}
start 1 ann
start 2 bob
bob=${nodes[-1]}
start 3 cat
all_there() { [ "$(on 1 "$LOCKSTEP" nodes --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)))' 2>/dev/null)" = 3 ]; }
within 60 all_there || fail "nodes: $(on 1 "$LOCKSTEP" nodes)"
export HF_HOME=$work/hf-ann
on1=(nsenter -t "${hosts[1]}" "${host_enter[@]}")
pull() { timeout 100 "${on1[@]}" "$LOCKSTEP" pull "$@" >out 2>err </dev/null; }
served() { cat hub/served 2>/dev/null || echo 0; }
blob() { echo "hf-$1/hub/models--org--$2/blobs/$(sha256sum "hub/repos/org/$2/"*.gguf | cut -d' ' -f1)"; }
has() { cmp -s "$(blob "$1" "$2")" hub/repos/org/"$2"/*.gguf; }

# ---- while it comes: once over the line, and the others are not far behind
echo "slow 1500000" >hub/mode
pull org/tiny --nodes all &
pulling=$!
others_have_some() { [ -s "$(blob bob tiny).incomplete" ] && [ -s "$(blob cat tiny).incomplete" ]; }
within 60 others_have_some || fail "the others wait: $(cat err)"
[ -s "$(blob ann tiny).incomplete" ] || fail "the others got it only when all was here"
"${on1[@]}" curl -s -m 10 $("$LOCKSTEP" key --curl) https://10.9.0.2:7342/v1/cluster >node.json
grep -q "\"model\": *\"org/tiny\"" node.json || fail "no node tells of its download: $(cat node.json)"
wait $pulling || fail "pull --nodes all: $(cat err)"
: >hub/mode
for node in ann bob cat; do has $node tiny || fail "$node has not what the hub has: $(ls -l hf-$node/hub/models--org--tiny/blobs)"; done
[ "$(served)" = "$size" ] || fail "$(served) bytes came from the hub, of $size"
grep -q "lockstep up hf:org/tiny" err || fail "what to do next is not said: $(cat err)"
grep -q "^bob: $work/hf-bob/hub/models--org--tiny/snapshots/.*tiny-Q4_K_M.gguf" err || fail "where bob has it: $(cat err)"
[ "$(cat hf-bob/hub/models--org--tiny/refs/main)" = "$(cat hf-ann/hub/models--org--tiny/refs/main)" ] || fail "bob has another commit"

# ---- what the machines have pulled is what their ranks use: nothing is copied
"$LOCKSTEP" run "$gguf" -p "What is a bit bucket?" -n 4 --temp 0 --ctx 128 >b 2>err || fail "run: $(cat err)"
on 1 "$LOCKSTEP" run hf:org/tiny --nodes bob,cat -p "What is a bit bucket?" -n 4 --temp 0 --ctx 128 >a 2>err && cmp -s a b || fail "run on all: $(cat err)"
# What the page's view offers, and a node that has it puts up.
can_be_put_up() { "${on1[@]}" curl -s -m 10 $("$LOCKSTEP" key --curl) https://10.9.0.2:7342/v1/cluster | grep -q '"name":"hf:org/tiny:Q4_K_M","bytes":[0-9]*,"nodes":\["[a-z]*","[a-z]*","[a-z]*"\]'; }
within 60 can_be_put_up || fail "the nodes do not list what was pulled: $("${on1[@]}" curl -s -m 10 $("$LOCKSTEP" key --curl) https://10.9.0.2:7342/v1/cluster | grep -o "\"models\":.*")"
on 1 "$LOCKSTEP" up hf:org/tiny --port 8099 --ctx 128 --insecure >out 2>err || fail "up hf:org/tiny: $(cat out err)"
served_by_cat() { on 3 curl -s -m 10 http://10.9.0.3:8099/v1/models | grep -q '"id":"tiny"'; }
within 60 served_by_cat || fail "what is put up does not answer: $(on 1 "$LOCKSTEP" nodes)"
others_stand_by() { on 1 "$LOCKSTEP" nodes >nodes && ! grep -q "could not stand in" nodes; }
within 60 others_stand_by || fail "somebody lacks it: $(cat nodes)"
up_again() { on 2 curl -s -m 10 -H 'Content-Type: application/json' -d '{"model":"hf:org/tiny:Q4_K_M","name":"again","options":{"ctx":128}}' http://127.0.0.1:8099/v1/cluster/up; }
up_again | grep -q '"name":"again"' || fail "put up through the port: $(up_again)"
again_answers() { on 3 curl -s -m 10 http://10.9.0.3:8099/v1/models | grep -q '"id":"again"'; }
within 60 again_answers || fail "what was put up by its hub's name does not answer: $(on 1 "$LOCKSTEP" nodes)"
on 1 "$LOCKSTEP" down again >out 2>err || fail "down: $(cat err)"
on 1 "$LOCKSTEP" down tiny >out 2>err || fail "down: $(cat err)"
[ -z "$(find data-bob data-cat -name '*.gguf*')" ] || fail "a model was copied: $(find data-bob data-cat)"

# ---- a machine is lost in the middle; the others go on; it continues later, from what it has
before=$(served)
echo "slow 1500000" >hub/mode
pull org/again --nodes all --json &
pulling=$!
bob_has_some() { [ -s "$(blob bob again).incomplete" ]; }
within 60 bob_has_some || fail "bob waits: $(cat err)"
kill -9 $bob && wait $bob 2>/dev/null
: >hub/mode
wait $pulling && fail "pull says that all have it"
grep -q '"event":"node","node":"bob","path":null,"error":"' out && grep -q '"node":"cat","path":"/' out || fail "who has it: $(cat out err)"
grep -q "1 of 2 other machines do not have the model" err || fail "what is missing is not said: $(cat err)"
has ann again && has cat again || fail "the others have not got it"
start 2 bob
within 60 all_there
pull org/again --nodes bob || fail "pull again: $(cat err)"
has bob again || fail "bob has not got it"
[ $(($(served) - before)) = $((size + 1)) ] || fail "$(($(served) - before)) bytes came from the hub, of $((size + 1))"

# ---- split, and refusals
pull org/split --nodes cat || fail "pull split: $(cat err)"
[ "$(find hf-cat/hub/models--org--split/blobs -type f | wc -l)" = 2 ] && [ ! -e hf-bob/hub/models--org--split ] || fail "split: $(ls hf-cat/hub hf-bob/hub)"
refuse 2 "no node is called dan" "${on1[@]}" "$LOCKSTEP" pull org/tiny --nodes bob,dan
refuse 2 "there is no other machine" "${on1[@]}" "$LOCKSTEP" pull org/tiny --nodes ann
answer=$("${on1[@]}" curl -s -m 10 $("$LOCKSTEP" key --curl) -d '{"name":"org/tiny"}' https://10.9.0.2:7342/v1/models/pull)
grep -q "does not say where to fetch from" <<<"$answer" || fail "no port: $answer"
answer=$("${on1[@]}" curl -s -m 10 $("$LOCKSTEP" key --curl) -d '{"name":"../tiny","port":1}' https://10.9.0.2:7342/v1/models/pull)
grep -q '"error"' <<<"$answer" || fail "a bad name: $answer"
[ $failures = 0 ] && echo "pull --nodes: once over the line"
[ $failures = 0 ]
