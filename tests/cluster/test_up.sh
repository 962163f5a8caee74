#!/bin/bash
# Deployments: three machines (network namespaces on one switch) keep a model up together. It answers at each of them, goes on
# elsewhere when the one that serves dies or is told to end, comes back after all have been off, and stays down when taken down.
# labels: root waits
set -u
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/hosts.sh"
unset LOCKSTEP_CLUSTER_KEY
mkdir own front && cp "$model" own/m.gguf
export XDG_CONFIG_HOME=$work/front
port=8099

# ---- what is refused before any node is asked ---------------------------------------------------
up=("$LOCKSTEP" up own/m.gguf --port $port -t 1 --ctx 256)
refuse 2 "there is no cluster key yet" "${up[@]}" --insecure
"$LOCKSTEP" key >/dev/null 2>&1
refuse 2 "public address: give --api-key-file, or --insecure" "${up[@]}"
"$LOCKSTEP" up --help all | grep -qE -- "--(ranks|host|hosts|join|rank|secret-file|rdma-matrix)\b" && fail "up --help tells of options that up refuses"
"$LOCKSTEP" up --help | grep -A1 -e "--port" | grep -q "any free" && fail "up --help offers a port that up refuses"
"$LOCKSTEP" up --help | grep -q -- "--port" || fail "up --help does not tell of --port"
"$LOCKSTEP" up --help | grep -q -- "--nodes" || fail "up --help does not tell of --nodes"
"$LOCKSTEP" node --help | grep "  lockstep up " | grep -qE -- "--api-key-file|--insecure" || fail "node --help shows an up that is refused"
refuse 2 "nowhere.gguf" "$LOCKSTEP" up nowhere.gguf --insecure
refuse 2 "not with --host: every node" "${up[@]}" --insecure --host 0.0.0.0
"${up[@]}" --insecure --rnks 2 2>&1 | grep -q "did you mean --ranks" && fail "up proposes an option that it refuses"
refuse 2 "unknown option --prt \(did you mean --port" "${up[@]}" --insecure --prt 2
refuse 2 "not with --hosts" "${up[@]}" --insecure --hosts a,b
refuse 2 "not with --ranks" "${up[@]}" --insecure --ranks 2
refuse 2 "not with --port 0" "${up[@]}" --insecure --port 0
refuse 2 "is not a valid name for a deployment" "${up[@]}" --insecure --alias "a b"
refuse 2 "no dot or dash first" "${up[@]}" --insecure --alias=-x
refuse 2 "no-such-file" "${up[@]}" --api-key-file no-such-file
refuse 2 "a name is empty" "${up[@]}" --insecure --nodes ""
refuse 2 "a name is empty" "${up[@]}" --insecure --nodes ann,,bob
refuse 2 "no name has a blank" "${up[@]}" --insecure --nodes "ann, bob"

# ---- three machines -----------------------------------------------------------------------------
if ! can_make_hosts; then
    echo "skip: no right to make network namespaces"
    [ $failures = 0 ]
    exit
fi
. "$SOURCE_DIR/tests/support/three_nodes.sh"
host_unshare=(-n -m) host_enter=(-n -m -w)
make_hosts 0 1 2 3 # 0: the switch
for host in 2 3; do on $host mount -t tmpfs none "$work/own" || fail "no mount on $host"; done
switch_hosts 10.9.0 1 2 3 || { echo "skip: no bridge here"; exit 0; }
question='{"model": "m", "prompt": "What is a bit bucket?", "max_tokens": 24, "temperature": 0}'
ask() { # HOST: the answer's text, from the port of that machine
    on "$1" curl -s -m 20 -H "Authorization: Bearer $key" -H "Content-Type: application/json" -d "$question" "http://127.0.0.1:$port/v1/completions" 2>/dev/null |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["choices"][0]["text"])' 2>/dev/null
}
answers() { [ "$(ask "$1")" = "$text" ] && [ -n "$text" ]; }
code() { on "$1" curl -s -m 20 -o /dev/null -w '%{http_code}' "${@:2}" "http://127.0.0.1:$port/v1/models"; }
# Who serves, as HOST hears it: "bob listening".
who() { on "$1" curl -sk -m 20 $("$LOCKSTEP" key --curl) https://127.0.0.1:7342/v1/deployments |
    python3 -c 'import json, sys; print(*("%s %s" % (d["node"], d["state"]) for d in json.load(sys.stdin)["deployments"]))' 2>/dev/null; }
who_is() { [ "$(who "$1")" = "$2" ]; }
# Sets owner: who serves m and listens, not just beginning again since somebody has come.
someone_listens() { owner=$(who "$1") && [[ $owner == *" listening" ]]; }

refuse 3 "no node answers at 127.0.0.1:7342: lockstep node starts one" nsenter -t "${hosts[1]}" "${host_enter[@]}" "${up[@]}" --insecure
refuse 3 "no node answers at 127.0.0.1:7342" nsenter -t "${hosts[1]}" "${host_enter[@]}" "$LOCKSTEP" down m
mkdir store-eve
(on 1 timeout 5 "$LOCKSTEP" node --name eve --port 7352 --no-discovery --models "$work/store-eve" --state /proc/none) >eve.log 2>&1
grep -q "deployments are not kept across a start of this node: /proc/none" eve.log || fail "a node that cannot keep its list says $(cat eve.log)"
start 1
start 2
start 3
key=abra-kadabra
echo "$key" >keys
refuse 2 "no deployment is called m" nsenter -t "${hosts[1]}" "${host_enter[@]}" "$LOCKSTEP" down m
refuse 1 "context of 100000 is more than" nsenter -t "${hosts[1]}" "${host_enter[@]}" "${up[@]}" --api-key-file keys --ctx 100000
# The port of the node itself is taken.
refuse 1 "in use" nsenter -t "${hosts[1]}" "${host_enter[@]}" timeout 100 "$LOCKSTEP" up own/m.gguf --alias taken --port 7342 -t 1 --insecure
who_is 1 "" || fail "what failed is still up: $(who 1)"
nsenter -t "${hosts[1]}" "${host_enter[@]}" timeout 100 "${up[@]}" --api-key-file keys >up.out 2>up.err || fail "up: $(cat up.err; logs)"
grep -q "^m listens on http://127.0.0.1:$port, and at this port of every other node; ann serves it" up.out || fail "up says $(cat up.out)"
nsenter -t "${hosts[1]}" "${host_enter[@]}" timeout 100 "${up[@]}" --api-key-file keys --json 2>/dev/null | grep -q '"node": "ann"' || fail "up once more"
refuse 2 "is up already, in another way" nsenter -t "${hosts[2]}" "${host_enter[@]}" "$LOCKSTEP" up "$model" --alias m --port $port --insecure
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=x 2>/dev/null ||
    fail "no certificate"
refuse 2 "m has that port with another certificate" nsenter -t "${hosts[1]}" "${host_enter[@]}" "${up[@]}" --insecure --alias n --tls-cert cert.pem --tls-key key.pem
grep -q '"m"' state-ann/deployments.json || fail "what is up is not kept"
[ "$(stat -c %a state-ann/deployments.json)" = 600 ] || fail "others may read the keys"
pgrep -fa "serve.*$work" | grep -q "$key" && fail "the key is in the list of processes"

# At every machine, for whoever has the key.
text=$(ask 1)
[ -n "$text" ] || fail "no answer: $(logs)"
for host in 2 3; do within 60 answers $host || fail "no answer at $host: $(logs)"; done
[ "$(code 2)" = 401 ] && [ "$(code 3 -H "Authorization: Bearer wrong")" = 401 ] || fail "an answer without the key: $(code 2)"
on 2 "$LOCKSTEP" nodes | grep -q "^m  *at http://ANY-NODE:$port *listening on ann" || fail "nodes says $(on 2 "$LOCKSTEP" nodes)"
# The others get the model, to be able to stand in.
for name in bob cat; do within 60 cmp -s own/m.gguf "store-$name/m.gguf" || fail "no model at $name: $(logs)"; done

# One that comes and cannot compute is no harm: the server begins once more without it.
mkdir store-dee && cp own/m.gguf store-dee/
LOCKSTEP_WORKER=/bin/false nsenter -t "${hosts[3]}" "${host_enter[@]}" "$LOCKSTEP" node --name dee --port 7350 --models "$work/store-dee" --state "$work/state-dee" >dee.log 2>&1 &
node[4]=$!
within 60 grep -q "m: dee has come: starting again, with it" ann.log || fail "dee is not taken in: $(logs)"
within 60 grep -q "m: it does not begin with dee, and goes on without: " ann.log || fail "dee computes: $(logs)"
within 60 answers 2 || fail "dee has come, and nobody answers: $(logs)"
# It may have been a moment's fault, so dee is tried again.
tried_again() { [ "$(grep -c "m: it does not begin with dee" ann.log)" -ge 2 ]; }
within 60 tried_again || fail "dee is tried once: $(logs)"
within 60 answers 2 || fail "dee is tried again, and nobody answers: $(logs)"
kill "${node[4]}" && wait "${node[4]}" || fail "dee: exit status $?"
unset "node[4]"

# What cannot be had everywhere is said: a port that is taken on one of them, a node that nobody has heard of.
nsenter -t "${hosts[3]}" "${host_enter[@]}" python3 -c 'import socket, time
s = socket.socket(); s.bind(("", 8096)); s.listen(); time.sleep(300)' &
taken=$!
bound() { on 3 bash -c 'exec 3<>/dev/tcp/127.0.0.1/8096' 2>/dev/null; }
within 60 bound
nsenter -t "${hosts[1]}" "${host_enter[@]}" timeout 100 "$LOCKSTEP" up own/m.gguf --alias some --port 8096 -t 1 --insecure --nodes ann,bob,eve >up.out 2>up.err || fail "up: $(cat up.err; logs)"
grep -q "warning: cat does not answer at port 8096: .*in use" up.err || fail "a port is taken, and up says $(cat up.err)"
grep -q "every other node but those; ann serves it" up.out || fail "a port is taken, and up says $(cat up.out)"
grep -q "warning: no node called eve is there now" up.err || fail "nobody is called eve, and up says $(cat up.err)"
on 2 "$LOCKSTEP" nodes | grep -q "not at cat: .*in use" || fail "a port is taken, and nodes says $(on 2 "$LOCKSTEP" nodes)"
# up has waited until the others answer, too.
[ "$(on 2 curl -s -m 20 -o /dev/null -w '%{http_code}' http://127.0.0.1:8096/v1/models)" = 200 ] || fail "no answer at bob as soon as up has said so"
kill -9 $taken
wait $taken 2>/dev/null
nsenter -t "${hosts[3]}" "${host_enter[@]}" "$LOCKSTEP" down some || fail "down some"

# Of what is said twice the last counts.
nsenter -t "${hosts[1]}" "${host_enter[@]}" timeout 100 "$LOCKSTEP" up own/m.gguf --alias twice --port 8096 -t 1 --nodes bob --nodes ann --api-key former --api-key=later >/dev/null 2>up.err ||
    fail "up: $(cat up.err; logs)"
grep "twice: nodes: " ann.log && fail "--nodes bob --nodes ann takes bob"
[ "$(on 1 curl -s -m 20 -o /dev/null -w '%{http_code}' -H "Authorization: Bearer later" http://127.0.0.1:8096/v1/models)" = 200 ] || fail "no answer for the key"
[ "$(on 1 curl -s -m 20 -o /dev/null -w '%{http_code}' -H "Authorization: Bearer former" http://127.0.0.1:8096/v1/models)" = 401 ] || fail "an answer for another key"
pgrep -fa "serve.*$work" | grep former && fail "a key is in the list of processes"
nsenter -t "${hosts[1]}" "${host_enter[@]}" "$LOCKSTEP" down twice || fail "down twice"

# Who is not named has no part in it. It shares the port of m: the request says which of them it wants, and each has a key of its own.
cp own/m.gguf own/x.gguf
nsenter -t "${hosts[1]}" "${host_enter[@]}" timeout 100 "$LOCKSTEP" up own/x.gguf --port $port -t 1 --insecure --nodes 10.9.0.2:7342 >/dev/null 2>up.err || fail "up: $(cat up.err; logs)"
grep -q "x: nodes: this machine, bob (10.9.0.2:7342)$" ann.log || fail "other nodes than bob: $(logs)"
within 60 cmp -s own/x.gguf store-bob/x.gguf || fail "no model at bob: $(logs)"
at() { on 3 curl -s -m 20 "${@:2}" "http://127.0.0.1:$port/$1"; }
names() { at v1/models "$@" | python3 -c 'import json, sys; print(*(m["id"] for m in json.load(sys.stdin)["data"]))' 2>/dev/null; }
are() { [ "$(names "${@:2}")" = "$1" ]; }
within 60 are x || fail "without a key: $(names)"
within 60 are "m x" -H "Authorization: Bearer $key" || fail "with a key: $(names -H "Authorization: Bearer $key")"
[ "$(at v1/completions -d '{"model": "x", "prompt": "What is a bit bucket?", "max_tokens": 24, "temperature": 0}' |
    python3 -c 'import json, sys; o = json.load(sys.stdin); print(o["model"], o["choices"][0]["text"])')" = "x $text" ] || fail "x answers in other words: $(logs)"
answers 3 || fail "m does not answer beside x: $(logs)"
[ "$(at v1/completions -d '{"model": "m", "prompt": "A"}' -o /dev/null -w '%{http_code}')" = 401 ] || fail "m answers without its key"
at api/chat -d '{"model": "y"}' | grep -q '"error":"the model .*y.* does not exist here; these do: x"' || fail "an unknown model: $(at api/chat -d '{"model": "y"}')"
at health | grep -q '"status":"ok","models":{"m":{.*"x":{' || fail "health: $(at health)"
at metrics -H "Authorization: Bearer $key" | grep -q '^lockstep_ranks{model="m"} ' || fail "no metrics of m"
# A copy that somebody deletes comes again: bob is to stand in.
rm store-bob/x.gguf
within 120 cmp -s own/x.gguf store-bob/x.gguf || fail "bob's copy was deleted, and does not come again: $(logs)"
nsenter -t "${hosts[3]}" "${host_enter[@]}" "$LOCKSTEP" down x || fail "down x"
[ ! -e store-cat/x.gguf ] || fail "cat has a model in which it has no part"

# The one that serves, with rank 0, dies in the middle of answers, which were asked for at other machines: each goes on, in every
# dialect, streamed or not, with the words that it would have had. A slow model: three machines with slow wires; over TLS.
nsenter -t "${hosts[1]}" "${host_enter[@]}" timeout 100 "$LOCKSTEP" up own/m.gguf --alias slow --port 8098 -t 1 --insecure --nodes ann,10.9.0.2,cat \
    --emulate-link latency=1ms --no-speculation --tls-cert cert.pem --tls-key key.pem >/dev/null 2>up.err || fail "up: $(cat up.err; logs)"
grep -q "slow: .* 3 ranks" ann.log || fail "no rank on each: $(logs)"
long='"max_tokens": 40, "temperature": 1, "seed": 5, "ignore_eos": true'
# Its first pages are in the cache of the one that dies, and in nobody else's.
known=$(printf 'A bit bucket is a device. %.0s' $(seq 20))
declare -A body=(
    [v1/completions]="{\"model\": \"slow\", \"prompt\": \"A\", $long, \"n\": 3, \"logprobs\": 2, \"stream\": true}"
    [v1/chat/completions]="{\"model\": \"slow\", \"messages\": [{\"role\": \"user\", \"content\": \"A\"}], $long}"
    [v1/messages]="{\"model\": \"slow\", \"messages\": [{\"role\": \"user\", \"content\": \"$known\"}], $long, \"stream\": true}"
    [api/generate]='{"model": "slow", "prompt": "A", "options": {"num_predict": 40, "temperature": 1, "seed": 5, "ignore_eos": true}}')
request() { # PATH HOST OUT
    on "$2" curl -skN -m 100 -H "Content-Type: application/json" -d "${body[$1]}" "https://127.0.0.1:8098/$1" >"$3" 2>/dev/null
}
for path in "${!body[@]}"; do request "$path" 2 "ref-${path//\//-}" || fail "$path: $(logs)"; done
pids=()
for path in "${!body[@]}"; do
    for host in 2 3; do
        request "$path" $host "got-${path//\//-}-$host" &
        pids+=($!)
    done
done
begun() { [ "$(cat got-v1-completions-* got-api-* 2>/dev/null | wc -l)" -ge 20 ]; }
within 60 begun || fail "the answers do not begin: $(logs)"
cut 1
for pid in "${pids[@]}"; do wait "$pid" || fail "a request ended with $?"; done
cat >compare.py <<'END'
"""The words of an answer, streamed or not, in any dialect: what names and times it is left out, but has to be one."""
import glob, json, sys

def read(name):
    words, ids, done = {}, set(), False
    def say(choice, text):
        words[choice] = words.get(choice, "") + (text or "")
    for line in open(name):
        line = line.removeprefix("data: ").strip()
        done = done or line == "[DONE]" or '"message_stop"' in line
        if not line.startswith("{"):
            continue
        o = json.loads(line)
        ids.add(o.get("id") or o.get("message", {}).get("id") or o.get("created_at"))
        for choice in o.get("choices", []):
            message = choice.get("message", choice)
            done = done or "message" in choice
            say(choice["index"], message.get("text") or message.get("content"))
        say(0, o.get("delta", {}).get("text"))
        say(0, o.get("response"))
        done = done or o.get("done", False)
    return words, ids - {None}, done

for name in sys.argv[1:]:
    words, _, done = read(name)
    assert words and done, (name, words, done)
    for got in glob.glob(name.replace("ref-", "got-", 1) + "-*"):
        assert read(got)[0::2] == (words, True), (got, read(got), words)
        assert len(read(got)[1]) == 1, (got, read(got)[1])
END
python3 compare.py ref-* 2>err || fail "answers: $(tail -n 1 err) $(logs)"
within 60 answers 2 || fail "nobody goes on: $(logs)"
within 60 answers 3 || fail "no answer at cat: $(logs)"
# It comes back, does not disturb, and has its part again.
three() { [ "$(cat bob.log cat.log | grep -c "slow: .* 3 ranks")" -ge 1 ]; }
[ "$(cat bob.log cat.log | grep -c "slow: .* 2 ranks")" -ge 1 ] || fail "no two ranks: $(logs)"
back 1
within 60 three || fail "ann is back, and computes nothing: $(logs)"
grep -hq "slow: ann has come: starting again, with it" bob.log cat.log || fail "nobody says that ann has come: $(logs)"
for host in 1 3; do
    request v1/completions $host got-v1-completions-again || fail "an answer with ann again: $(logs)"
    python3 compare.py ref-v1-completions 2>err || fail "with ann again: $(tail -n 1 err)"
done
nsenter -t "${hosts[2]}" "${host_enter[@]}" "$LOCKSTEP" down slow || fail "down slow"
within 60 someone_listens 2 && [[ $owner == bob* || $owner == cat* ]] || fail "who serves: $owner"
within 60 answers 1 || fail "no answer at ann: $(logs)"
within 60 who_is 1 "$owner" || fail "ann is back, and $(who 1) serves instead of $owner"

# One that is told to end hands over.
[ "$owner" = "bob listening" ] && host=2 || host=3
kill "${node[$host]}" && wait "${node[$host]}" || fail "node $host: exit status $?"
unset "node[$host]"
within 60 answers 1 || fail "nobody took over: $(logs)"
back $host
within 60 answers $host || fail "no answer at $host: $(logs)"

# A node that is killed leaves no server behind.
within 60 someone_listens 1 || fail "nobody listens: $(logs)"
owner=${owner% listening}
for host in 1 2 3; do [ "${names[$host]}" = "$owner" ] && break; done
server=$(pgrep -P "${node[$host]}" -f " serve ") || fail "no server at $owner"
kill -9 "${node[$host]}" && wait "${node[$host]}" 2>/dev/null
unset "node[$host]"
ended() { ! kill -0 "$server" 2>/dev/null; }
within 60 ended || fail "the server of a killed node goes on: $(logs)"
start $host
within 60 answers $host || fail "no answer at $owner: $(logs)"

# One that is cut off, and with it the server: both parts serve, and when they see each other again, one.
alone() { [ "$(pgrep -cf "lockstep serve $work/.*m\.gguf .*--alias m ")" = 1 ]; }
on $host ip link set wire down
others=(1 2 3)
unset "others[$((host - 1))]"
for other in "${others[@]}"; do within 60 answers "$other" || fail "no answer at $other, cut off from $owner: $(logs)"; done
within 60 answers $host || fail "no answer at $owner, which is cut off: $(logs)"
on $host ip link set wire up
within 60 alone || fail "two servers: $(pgrep -fa "lockstep serve")"
for other in 1 2 3; do within 60 answers $other || fail "no answer at $other, together again: $(logs)"; done

# All of them off, and on again.
for host in 1 2 3; do cut $host; done
for host in 1 2 3; do back $host; done
for host in 1 2 3; do within 100 answers $host || fail "after a power cut: no answer at $host: $(logs)"; done

# Down, while one machine is off; that one learns of it.
cut 3
refuse 2 "no deployment is called n" nsenter -t "${hosts[2]}" "${host_enter[@]}" "$LOCKSTEP" down n
nsenter -t "${hosts[2]}" "${host_enter[@]}" "$LOCKSTEP" down m || fail "down"
closed() { ! on "$1" bash -c "exec 3<>/dev/tcp/127.0.0.1/$port" 2>/dev/null; }
for host in 1 2; do within 60 closed $host || fail "still something at $host: $(logs)"; done
back 3
within 60 who_is 3 "" || fail "cat did not hear that it is down: $(who 3)"
within 60 closed 3 || fail "still something at cat: $(logs)"

# One that is back at another address, or at another port, has its part again; and so has another one of its name.
nsenter -t "${hosts[1]}" "${host_enter[@]}" timeout 100 "$LOCKSTEP" up own/m.gguf --alias moved --port 8097 -t 1 --insecure --nodes ann,bob >/dev/null 2>up.err || fail "up: $(cat up.err; logs)"
with() { grep -q "moved: nodes: this machine$(printf ', bob (%s)' "$@")$" ann.log; }
within 60 with 10.9.0.2:7342 || fail "other nodes than bob: $(logs)"
cut 2
on 2 ip addr flush dev wire && on 2 ip addr add 10.9.0.22/24 dev wire || fail "no other address"
back 2
within 60 with 10.9.0.22:7342 || fail "bob has another address, and computes nothing: $(logs)"
kill "${node[2]}" && wait "${node[2]}" || fail "bob: exit status $?"
start 2 --port 7345
within 60 with 10.9.0.22:7345 || fail "bob has another port, and computes nothing: $(logs)"
kill "${node[3]}" && wait "${node[3]}" || fail "cat: exit status $?"
start 3 --name bob
both() { with 10.9.0.22:7345 10.9.0.3:7342 || with 10.9.0.3:7342 10.9.0.22:7345; }
within 60 both || fail "another one is called bob, and computes nothing: $(logs)"
nsenter -t "${hosts[1]}" "${host_enter[@]}" "$LOCKSTEP" down moved || fail "down moved"
for host in 1 2 3; do kill "${node[$host]}" && wait "${node[$host]}" || fail "node $host: exit status $?"; done
pgrep -f "serve $work/store-" >/dev/null && fail "a server is left: $(pgrep -fa "serve $work/store-")"
[ $failures = 0 ]
