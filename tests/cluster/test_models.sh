#!/bin/bash
# Models by their names: what a folder of models holds, what the cluster's machines have, copies from one to another, and a model
# that is put up by a machine that lacks it.
# labels: root waits
set -u
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/hosts.sh"
unset LOCKSTEP_CLUSTER_KEY HF_HOME HF_HUB_CACHE OLLAMA_MODELS
export HOME=$work # which has no models of other programs
export XDG_CONFIG_HOME=$work/front
mkdir front

# ---- one machine, without a cluster ----------------------------------------------------------------
store=$XDG_DATA_HOME/lockstep/models
mkdir -p "$store/publisher/collection" "$store/.hidden" "$store/folder"
"$LOCKSTEP" models >out 2>err && [ ! -s out ] && grep -q "no models" err || fail "an empty store: $(cat out err)"
cp "$model" "$store/jargon.gguf"
cp "$model" "$store/publisher/collection/deep.gguf"
cp "$model" "$store/.hidden/secret.gguf"
cp "$model" "$store/jargon.gguf.0123456789abcdef.part"
mkdir "$store/publisher/repository-GGUF" # as many are: a config.json beside GGUF files
echo '{}' >"$store/publisher/repository-GGUF/config.json"
cp "$model" "$store/publisher/repository-GGUF/beside.gguf"
echo '{}' >"$store/folder/config.json"
head -c 1000 /dev/zero >"$store/folder/model.safetensors"
for part in 1 2; do head -c 500 "$model" >"$store/split-0000$part-of-00002.gguf"; done
head -c 500 "$model" >"$store/half-00001-of-00002.gguf"
"$LOCKSTEP" models >out 2>err || fail "models: $(cat err)"
[ "$(cut -d' ' -f1 out | paste -sd' ')" = "beside deep folder jargon split" ] || fail "models lists $(cat out)"
grep -q "^jargon .* this machine$" out || fail "models does not say where: $(cat out)"
"$LOCKSTEP" models | grep -q "^jargon .* today " || fail "models does not say when: $("$LOCKSTEP" models)"
touch -a -d "3 days ago" "$store/publisher/collection/deep.gguf"
"$LOCKSTEP" models | grep -q "^deep .* 3 days ago " || fail "models does not say how long ago: $("$LOCKSTEP" models)"
"$LOCKSTEP" models --json | python3 -c '
import json, sys, time
models = {m["name"]: m for m in json.load(sys.stdin)}
assert models["split"]["files"] == 2 and models["split"]["bytes"] == 1000, models
assert models["folder"]["files"] == 2 and models["folder"]["bytes"] == 1003, models
place = models["jargon"]["nodes"][0]
assert abs(place.pop("used") - time.time()) < 600 and models["jargon"]["nodes"] == [{"node": None, "path": sys.argv[1]}], models
' "$store/jargon.gguf" || fail "models --json"
words=(--ids 1,2,3 --greedy 4 --ctx 64 -t 1 -q)
"$LOCKSTEP" eval "$model" "${words[@]}" >ref.ids || exit 1
for name in jargon jargon.gguf deep beside; do
    "$LOCKSTEP" eval $name "${words[@]}" >out 2>err && cmp -s ref.ids out || fail "eval $name: $(cat err)"
done
"$LOCKSTEP" eval jargon "${words[@]}" --ranks 2 >out 2>err && cmp -s ref.ids out || fail "eval on two ranks: $(cat err)"
"$LOCKSTEP" inspect jargon >out 2>err || fail "inspect: $(cat err)"
echo hello | "$LOCKSTEP" tokenize jargon >out 2>err || fail "tokenize: $(cat err)"
"$LOCKSTEP" template jargon --source >out 2>err || fail "template: $(cat err)"
"$LOCKSTEP" plan jargon --ranks 2 >out 2>err || fail "plan: $(cat err)"
"$LOCKSTEP" quantize jargon q.gguf q8_0 >out 2>err && [ -s q.gguf ] || fail "quantize: $(cat err)"
# Another machine's of that name, which a copy has put beside, is not what it means here.
mkdir "$store/0123456789abcdef"
mv q.gguf "$store/0123456789abcdef/jargon.gguf"
"$LOCKSTEP" inspect jargon | grep -qi "q8_0" && fail "a copy beside is what the name means"
mv "$store/0123456789abcdef/jargon.gguf" q.gguf
# What lies here by that name comes first, and what is a path is one.
cp q.gguf jargon
"$LOCKSTEP" inspect jargon | grep -qi "q8_0" || fail "a file here is not what its name means"
rm jargon
refuse 2 "nothing: no such file, and no model of that name on this machine" "$LOCKSTEP" inspect nothing
refuse 2 "half: no such file" "$LOCKSTEP" inspect half
refuse 2 "[./]+jargon: " "$LOCKSTEP" inspect ./jargon
refuse 2 "there is no cluster key yet" "$LOCKSTEP" fetch jargon --models "$work/elsewhere"

# ---- three machines -----------------------------------------------------------------------------------
if ! can_make_hosts; then
    echo "skip: no right to make network namespaces"
    [ $failures = 0 ]
    exit
fi
"$LOCKSTEP" key >/dev/null 2>&1
host_unshare=(-n -m) host_enter=(-n -m -w)
make_hosts 0 1 2 3 # 0: the switch
on1=(nsenter -t "${hosts[1]}" "${host_enter[@]}")
mkdir store-ann store-bob store-cat
for host in 1 3; do on $host mount -t tmpfs none "$work/store-bob" || fail "no mount on $host"; done # which bob alone has
switch_hosts 10.9.0 1 2 3 || { echo "skip: no bridge here"; exit 0; }
start() { # HOST NAME: a node with the cluster's key, a store and a state of its own
    XDG_DATA_HOME=$work/data-$2 nsenter -t "${hosts[$1]}" "${host_enter[@]}" "$LOCKSTEP" node --name "$2" --models "$work/store-$2" >"$2.log" 2>&1 &
    nodes+=($!)
    within 60 grep -q "listens on port" "$2.log" || fail "node $2: $(cat "$2.log")"
}
cp "$model" store-bob/b.gguf
cp "$model" store-cat/same.gguf
cp q.gguf store-bob/same.gguf
for part in 1 2; do head -c $((part * 700)) "$model" >"store-cat/parts-0000$part-of-00002.gguf"; done
start 1 ann
start 2 bob
start 3 cat
export XDG_DATA_HOME=$work/typed # of the user at ann: another store than its node's
all_there() { [ "$(on 1 "$LOCKSTEP" nodes --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)))' 2>/dev/null)" = 3 ]; }
within 60 all_there || fail "nodes: $(on 1 "$LOCKSTEP" nodes)"
on 1 "$LOCKSTEP" models >out 2>err || fail "models: $(cat err)"
grep -q "^b .* bob$" out && [ "$(grep -c '^same ' out)" = 2 ] && grep -q "^parts .* cat$" out || fail "the cluster's models: $(cat out err)"
cp store-bob/b.gguf store-ann/b.gguf
on 1 "$LOCKSTEP" models | grep -q "^b .* ann, bob$" || fail "two machines have b: $(on 1 "$LOCKSTEP" models)"
# A name of the own node's models is one of this machine's.
on 1 "$LOCKSTEP" eval b "${words[@]}" >out 2>err && cmp -s ref.ids out || fail "a model of the own node: $(cat err)"
rm store-ann/b.gguf
refuse 2 "b: no such file, and no model of that name on this machine" "${on1[@]}" "$LOCKSTEP" eval b "${words[@]}"

path=$(on 1 "$LOCKSTEP" fetch b 2>err) || fail "fetch: $(cat err)"
[ "$path" = "$work/typed/lockstep/models/b.gguf" ] && cmp -s "$path" "$model" || fail "fetch gave '$path'"
[ "$(on 1 "$LOCKSTEP" fetch b.gguf 2>err)" = "$path" ] || fail "fetch of what is here: $(cat err)"
[ "$(ls "$work/typed/lockstep/models")" = b.gguf ] || fail "fetch leaves $(ls "$work/typed/lockstep/models")"
on 1 "$LOCKSTEP" eval b "${words[@]}" >out 2>err && cmp -s ref.ids out || fail "the copy: $(cat err)"
refuse 2 "two models are called same: " "${on1[@]}" "$LOCKSTEP" fetch same
on 1 "$LOCKSTEP" fetch same --from bob --models "$work/bobs" >out 2>err && cmp -s bobs/same.gguf q.gguf || fail "fetch --from bob: $(cat err)"
on 1 "$LOCKSTEP" fetch same --from 10.9.0.3 --models "$work/cats" >out 2>err && cmp -s cats/same.gguf "$model" || fail "fetch --from an address: $(cat err)"
# Two on one node: the one that its node means by that name.
mkdir store-cat/0123456789abcdef && cp q.gguf store-cat/0123456789abcdef/same.gguf
on 1 "$LOCKSTEP" fetch same --from cat --models "$work/meant" >out 2>err && cmp -s meant/same.gguf "$model" || fail "fetch of one of two: $(cat err)"
rm -r store-cat/0123456789abcdef
on 1 "$LOCKSTEP" fetch parts --models "$work/parts" >out 2>err || fail "fetch of parts: $(cat err)"
cmp -s parts/parts-00001-of-00002.gguf store-cat/parts-00001-of-00002.gguf && cmp -s parts/parts-00002-of-00002.gguf store-cat/parts-00002-of-00002.gguf ||
    fail "the parts are $(ls parts)"
refuse 2 "no node has a model called nothing" "${on1[@]}" "$LOCKSTEP" fetch nothing
refuse 2 "no node called bob has a model called parts" "${on1[@]}" "$LOCKSTEP" fetch parts --from bob
curl_node() { on 1 curl -s -m 10 $("$LOCKSTEP" key --curl) "$@"; }
curl_node https://10.9.0.2:7342/v1/models | grep -q '"name":"b"' || fail "GET /v1/models"
curl_node -d '{"name":"nothing"}' https://10.9.0.2:7342/v1/models/offer | grep -q '"error":"no model called nothing is here"' || fail "an offer of nothing"
curl_node -d '{}' https://10.9.0.2:7342/v1/models/offer | grep -q '"error":"the request names no model"' || fail "an offer without a name"
curl_node -d '{"name":"b"}' https://10.9.0.2:7342/v1/models/find | grep -q '"error":"the request names no model"' || fail "find by name"
[ "$(on 1 curl -sk -o /dev/null -w '%{http_code}' https://10.9.0.2:7342/v1/models)" = 401 ] || fail "models are told without a token"

# Put up where it is not: the machine that has it serves it, and the others get their copies.
rm -r "$work/typed"
on 1 timeout 100 "$LOCKSTEP" up b --insecure --port 8090 --ctx 256 -t 1 >out 2>err || fail "up: $(cat err bob.log)"
on 1 "$LOCKSTEP" nodes | grep -Eq "^b +.*listening on bob" || fail "who serves: $(on 1 "$LOCKSTEP" nodes)"
on 1 curl -s -m 60 http://127.0.0.1:8090/v1/completions -d '{"prompt": "The cat", "max_tokens": 4, "temperature": 0}' | grep -q '"text"' ||
    fail "no answer at ann"
copied() { cmp -s store-ann/b.gguf "$model" && cmp -s store-cat/b.gguf "$model"; }
within 60 copied || fail "no copies: $(ls store-ann store-cat)"
on 1 "$LOCKSTEP" down b || fail "down"
refuse 2 "nothing: no such file, and no node has a model of that name" "${on1[@]}" "$LOCKSTEP" up nothing --insecure
refuse 2 "two models are called same" "${on1[@]}" "$LOCKSTEP" up same --insecure
[ $failures = 0 ]
