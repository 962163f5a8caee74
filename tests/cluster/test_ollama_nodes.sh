#!/bin/bash
# Ollama's pull, delete and copy at the deployments' ports of three nodes: who may, what a pulled model is told to be, a model that
# is up is not deleted, and a copied name is found at every node. The hub is an imitation (tests/support/hub.py).
# labels: root waits
set -u
gguf=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/hosts.sh"
. "$SOURCE_DIR/tests/support/three_nodes.sh"
. "$SOURCE_DIR/tests/support/hub.sh"
export HOME=$work
make_three_hosts
mkdir -p hub/repos/org/tiny
cp "$gguf" hub/repos/org/tiny/tiny-Q4_K_M.gguf
cp "$gguf" m.gguf && printf 'x' >>m.gguf # another content
admin=$("$LOCKSTEP" key --admin)
start_hub nsenter -t "${hosts[1]}" "${host_enter[@]}" # only ann reaches it
at_end 'exec 7>&-' # the imitation ends first: it is waited for
for host in 1 2 3; do HF_HOME=$work/hf-${names[$host]} start $host; done
export HF_HOME=$work/hf-ann
port=8099
key=abra-kadabra
echo "$key" >keys && chmod 600 keys
up() { nsenter -t "${hosts[1]}" "${host_enter[@]}" timeout 100 "$LOCKSTEP" up "$@" --port $port -t 1 --ctx 512 --api-key-file keys >/dev/null 2>up.err; }
up m.gguf || { fail "up: $(cat up.err; logs)"; exit 1; }
answers() { on "$1" curl -s -m 5 -H "Authorization: Bearer $key" "http://127.0.0.1:$port/v1/models" | grep -q "\"id\":\"$2\""; }
for host in 2 3; do within 60 answers $host m || fail "m does not answer at $host: $(logs)"; done

ask() { # HOST ADDRESS METHOD PATH BODY words...: from that host; the status into $status, the answer into the file answer
    status=$(on "$1" curl -s -m 100 -o answer -w '%{http_code}' -X "$3" -H 'Content-Type: application/json' ${5:+-d "$5"} \
        -H "Authorization: Bearer ${shown-$key}" "${@:6}" "http://$2:$port$4")
}
is() { # STATUS PATTERN: of the last answer
    [ "$status" = "$1" ] && grep -Eq -e "$2" answer || fail "line ${BASH_LINENO[0]}: status $status, expected $1: '$(cat answer)', expected /$2/"
}
is_empty() { [ "$status" = 200 ] && [ ! -s answer ] || fail "line ${BASH_LINENO[0]}: status $status, '$(cat answer)', expected 200 and nothing"; }
as_admin=(-H "Lockstep-Admin: $admin")
tiny='{"model": "hf.co/org/tiny"}'
chat() { echo "{\"model\": \"$1\", \"messages\": [{\"role\": \"user\", \"content\": \"What is a bit bucket?\"}], \"stream\": false, \"options\": {\"temperature\": 0, \"num_predict\": 8}}"; }

# ---- who may: from the node's own machine, or with the token, and never for a page of another name
for what in "POST /api/pull" "DELETE /api/delete"; do
    ask 2 10.9.0.1 $what "$tiny" && is 403 '^.\"error\":\"changes need the token that lockstep key --admin prints'
    ask 1 127.0.0.1 $what "$tiny" -H "X-Forwarded-For: 10.9.0.7" && is 403 'lockstep key --admin'
    ask 2 10.9.0.1 $what "$tiny" "${as_admin[@]}" -H "Origin: http://evil.example" && is 403 'another page'
    ask 2 10.9.0.1 $what "$tiny" -H "Lockstep-Admin: ${admin%?}" && is 403 'lockstep key --admin'
    shown=wrong ask 2 10.9.0.1 $what "$tiny" && is 401 'API key'
done
ask 2 10.9.0.1 POST /api/copy '{"source": "m", "destination": "second"}' && is 403 'lockstep key --admin'
ask 2 10.9.0.1 POST /api/pull '{"model": "m:latest"}' && is 200 '^."status":"success".$'
ask 2 10.9.0.1 POST /api/push '{"model": "m"}' && is 501 'api/push'
[ -z "$(find hf-* 2>/dev/null)" ] || fail "who may not has pulled something: $(find hf-*)"

# ---- a pull, cut and continued, for a client elsewhere; to that node alone; and what it is told to be
size=$(wc -c <"$gguf")
echo "slow 1500000" >hub/mode
on 2 curl -s -N -m 2 -H 'Content-Type: application/json' -H "Authorization: Bearer $admin" -d "$tiny" "http://10.9.0.1:$port/api/pull" >answer
part=$(echo hf-ann/hub/models--org--tiny/blobs/*.incomplete)
[ -s "$part" ] || fail "nothing stays of what came: $(cat answer; find hf-ann)"
ask 2 10.9.0.1 POST /api/pull "$tiny" "${as_admin[@]}" && is 200 '"status":"to use it: lockstep up hf:org/tiny"'
: >hub/mode
grep -q "\"total\":$size,\"completed\":$size}" answer && [ "$(tail -n 1 answer)" = '{"status":"success"}' ] || fail "the lines: $(cat answer)"
[ "$(sed -n 2p answer | sed 's/.*"completed":\([0-9]*\).*/\1/')" -gt 0 ] || fail "it began anew: $(cat answer)"
more=$(($(cat hub/served) - size))
[ $more -ge 0 ] && [ $more -lt 400000 ] || fail "$((more + size)) bytes came, of $size"
cmp -s "$gguf" hf-ann/hub/models--org--tiny/snapshots/*/tiny-Q4_K_M.gguf && [ ! -e hf-bob ] || fail "it is not where it should be: $(find hf-*)"
for model in hf.co/org/tiny hf:org/tiny:Q4_K_M; do
    ask 2 10.9.0.1 POST /api/chat "$(chat $model)" "${as_admin[@]}"
    is 404 'on the disk and not up: lockstep up hf:org/tiny(:Q4_K_M)? puts it up'
done
ask 1 127.0.0.1 POST /v1/chat/completions "$(chat hf.co/org/tiny)" && is 404 'lockstep up hf:org/tiny puts it up'
ask 2 10.9.0.1 POST /api/chat "$(chat hf.co/org/tiny)" && is 404 'does not exist here; this server has ."m'

# ---- a copy is a name, at every node, of one model at the port and of several
ask 2 10.9.0.1 POST /api/copy '{"source": "none", "destination": "second"}' "${as_admin[@]}" && is 404 '"none.*is not up here'
ask 2 10.9.0.1 POST /api/copy '{"source": "m", "destination": "a/b"}' "${as_admin[@]}" && is 400 'not a valid name'
ask 2 10.9.0.1 POST /api/copy '{"source": "m", "destination": "m"}' "${as_admin[@]}" && is 409 'name of a model that is up'
ask 2 10.9.0.1 POST /api/copy '{"source": "m:latest", "destination": "second:latest"}' "${as_admin[@]}" && is_empty
ask 1 127.0.0.1 POST /api/chat "$(chat second)" && is 200 '"content":"[^"]' # at once where it was asked for
said=$(grep -o '"content":"[^"]*"' answer)
works() { ask 3 127.0.0.1 POST /api/chat "$(chat "$1")" && [ "$status" = 200 ] && [ "$(grep -o '"content":"[^"]*"' answer)" = "$said" ]; }
look_right() { # of the name second, at cat
    within 20 works second || fail "$1: chat at another node: $status $(cat answer)"
    ask 3 127.0.0.1 POST /api/chat "$(chat second:latest)" && is 200 '"content"'
    ask 3 127.0.0.1 POST /v1/chat/completions "$(chat second)" && is 200 '"choices"'
    ask 3 127.0.0.1 POST /v1/messages '{"model": "second", "max_tokens": 4, "messages": [{"role": "user", "content": "x"}]}' && is 200 '"usage"'
    ask 3 127.0.0.1 POST /api/show '{"model": "second"}' && is 200 '"capabilities"'
    ask 3 127.0.0.1 GET /v1/models '' && is 200 '"id":"m".*"id":"second"'
    ask 3 127.0.0.1 GET /api/tags '' && is 200 '"name":"m:latest".*"name":"second:latest","model":"second:latest"'
    ask 3 127.0.0.1 GET /v1/models/second '' && is 200 '"id":"m"'
    shown=wrong ask 3 127.0.0.1 POST /api/chat "$(chat second)" && is 401 'key'
}
look_right "of one model"
ask 3 127.0.0.1 POST /api/copy '{"source": "second", "destination": "third"}' && is_empty
up m.gguf --alias second && fail "second is put up, though it is a name"
grep -q "second is another name of m" up.err || fail "up second: $(cat up.err)"
up hf:org/tiny || fail "up hf:org/tiny: $(cat up.err; logs)"
within 60 answers 3 tiny || fail "tiny does not answer: $(logs)"
look_right "of two models"
ask 3 127.0.0.1 POST /api/copy '{"source": "tiny", "destination": "fourth"}' && is_empty
within 20 works fourth || fail "fourth: $status $(cat answer)" # the same model but for a byte behind its end
ask 2 10.9.0.1 POST /api/chat "$(chat nobody)" && is 404 'these do: m, (second|third), (second|third), tiny'

# ---- what is up is not deleted, wherever it is served; what is pulled may be known by another name
ask 1 127.0.0.1 DELETE /api/delete "$tiny" && is 409 'what is up as tiny, and not deleted'
ask 1 127.0.0.1 DELETE /api/delete '{"model": "tiny"}' && is 409 'is up'
ask 1 127.0.0.1 DELETE /api/delete '{"model": "none"}' && is 404 "'none' not found"
ask 1 127.0.0.1 POST /api/chat "$(chat hf.co/org/tiny)" && is 404 'is up here as tiny'

# ---- a name is deleted as a name; a deployment takes its names along; a model that is down may be deleted
ask 2 10.9.0.1 DELETE /api/delete '{"model": "second"}' "${as_admin[@]}" && is_empty
is_gone() { ask 3 127.0.0.1 POST /api/chat "$(chat "$1")" && [ "$status" = 404 ]; }
within 20 is_gone second || fail "second is still there: $status $(cat answer)"
works m || fail "m is gone with its name: $status $(cat answer)"
works third || fail "third is gone with second: $status $(cat answer)"
kill "${node[3]}" && wait "${node[3]}"
HF_HOME=$work/hf-cat start 3
within 60 works third || fail "third is forgotten: $status $(cat answer; logs)"
on 1 "$LOCKSTEP" down m >/dev/null 2>&1 || fail "down m"
within 20 is_gone third || fail "third is there without m: $status $(cat answer)"
on 1 "$LOCKSTEP" down tiny >/dev/null 2>&1 || fail "down tiny"
grep -q '"of"' state-ann/deployments.json && fail "names stay: $(cat state-ann/deployments.json)"
up m.gguf || fail "up m: $(cat up.err)"
ask 1 127.0.0.1 DELETE /api/delete "$tiny" && is_empty
[ -z "$(find hf-ann -name '*.gguf')" ] || fail "it is still there: $(find hf-ann)"
[ $failures = 0 ] && echo "Ollama's pull, delete and copy at three nodes"
[ $failures = 0 ]
