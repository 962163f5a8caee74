#!/bin/bash
# Ollama's pull and delete at a plain server, against an imitation of the hub (tests/support/hub.py): what the lines of progress
# say is compared with the files. Cuts, wrong bytes, clients that go away, and who may not.
# labels: once waits
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/server.sh"
. "$SOURCE_DIR/tests/support/hub.sh"
gguf=$SOURCE_DIR/models/jargon-3m-f16.gguf
size=$(wc -c <"$gguf")
mkdir -p hub/repos/org/{tiny,split,gated,folder} home/.ollama store
cp "$gguf" hub/repos/org/tiny/tiny-Q4_K_M.gguf
head -c 300000 "$gguf" >hub/repos/org/tiny/tiny-Q8_0.gguf
for part in 1 2; do head -c $((part * 400000)) "$gguf" >"hub/repos/org/split/split-0000$part-of-00002.gguf"; done
echo '{}' >hub/repos/org/folder/config.json
head -c 100000 "$gguf" >hub/repos/org/folder/model.safetensors
start_hub
export HOME=$work/home HF_HOME=$work/hf
: >hub/mode

ask() { # METHOD PATH BODY words...: the status into $status, the answer into the file answer
    status=$(curl -s -m 100 -o answer -w '%{http_code}' -X "$1" -H "Content-Type: ${type:-application/json}" -d "$3" "${@:4}" "$url$2")
}
is() { # STATUS PATTERN: of the last answer
    [ "$status" = "$1" ] && grep -Eq -e "$2" answer || fail "line ${BASH_LINENO[0]}: status $status, expected $1: '$(cat answer)', expected /$2/"
}
is_empty() { [ "$status" = 200 ] && [ ! -s answer ] || fail "line ${BASH_LINENO[0]}: status $status, '$(cat answer)', expected 200 and nothing"; }
is_error() { # STATUS PATTERN: in Ollama's form, which has one field
    is "$1" "$2"
    python3 -c 'import json; assert list(json.load(open("answer"))) == ["error"]' || fail "not Ollama's form: $(cat answer)"
}
blob() { echo "$HF_HOME/hub/models--org--$1/blobs/$(sha256sum "hub/repos/org/$1/$2" | cut -d' ' -f1)"; }
# What a stream says, line by line: each file's total is its size, and its last word that all of it is here.
check_lines() { # FOLDER NAME...
    python3 - "$@" <<'PYTHON'
import hashlib, json, os, sys
lines = [json.loads(line) for line in open("answer")]
assert lines[0] == {"status": "pulling manifest"}, lines[0]
assert [line["status"] for line in lines[-4:] if not line["status"].startswith("to use it")] == \
    ["verifying sha256 digest", "writing manifest", "success"], lines[-4:]
last = {}
for line in lines[1:-4]:
    assert set(line) == {"status", "digest", "total", "completed"}, line
    hash = line["digest"].split(":")[1]
    assert line["status"] == "pulling " + hash[:12], line
    assert last.get(hash, 0) <= line["completed"] <= line["total"], line
    last[hash] = line["completed"]
    final = line
want = {}
for name in sys.argv[2:]:
    data = open(f"hub/repos/org/{sys.argv[1]}/{name}", "rb").read()
    large = name.endswith((".gguf", ".safetensors"))
    want[hashlib.sha256(data).hexdigest() if large else hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()] = len(data)
assert last == want, (last, want)
PYTHON
}

serve_start "$gguf" --alias own --ctx 256

# ---- what is served is there already, for all who may use it; what there is not
for name in own own:latest jargon-3m-f16.gguf; do
    ask POST /api/pull "{\"model\": \"$name\"}" -H "X-Forwarded-For: 10.0.0.7"
    is 200 '^\{"status":"success"\}$'
done
ask POST /api/pull '{"name": "own", "stream": false}' && is 200 success
ask POST /api/pull '{}' && is_error 400 'no ."model'
ask POST /api/pull '{"model": 7}' && is_error 400 'must be a string'
ask POST /api/pull "{\"model\": \"hf.co/org/$(printf 'x%.0s' {1..400})\"}" && is_error 400 'too long'
ask POST /api/pull '{"model": "hf.co/org/../tiny"}' && is_error 400 'ORG/REPO'
ask POST /api/pull '{"model": "llama3.2"}' && is_error 404 "llama3.2.*does not exist here, and Ollama.s library is not asked: pull hf.co/"
ask GET /api/pull '' && is_error 405 'method'
ask POST /api/delete '{"model": "own"}' && is_error 405 'method'
ask POST /api/push '{"model": "own"}' && is_error 501 'api/push is not supported'
ask POST /api/create '{"model": "own"}' && is_error 501 'api/create'
ask POST /api/blobs/sha256:00 x && is_error 501 'api/blobs'
ask POST /api/copy '{"source": "own", "destination": "other"}' && is_error 501 'serve --alias NAME'

# ---- who may not
for header in "X-Forwarded-For: 10.0.0.7" "Via: 1.1 proxy" "Lockstep-Request: 000102030405060708090a0b-1-1"; do
    ask POST /api/pull '{"model": "hf.co/org/tiny"}' -H "$header"
    is_error 403 "ask from the server's own machine"
    ask DELETE /api/delete '{"model": "hf.co/org/tiny"}' -H "$header"
    is_error 403 "ask from the server's own machine"
done
ask POST /api/pull '{"model": "hf.co/org/tiny"}' --http1.0 && is_error 403 "ask from the server's own machine"
ask POST /api/pull '{"model": "hf.co/org/tiny"}' -H "Origin: http://localhost:3000" && is_error 403 'another page'
ask POST /api/pull '{"model": "hf.co/org/tiny"}' -H "Origin: http://evil.example" && is_error 403 'another machine'
ask POST /api/pull '{"model": "hf.co/org/tiny"}' -H "Host: evil.example" && is_error 403 'another machine'
type=text/plain ask POST /api/pull '{"model": "hf.co/org/tiny"}' && is_error 415 'application/json'
[ ! -e hf ] || fail "who may not has pulled something: $(find hf)"

# ---- a pull, its lines, and the same again
echo "slow 3000000" >hub/mode
SECONDS=0
ask POST /api/pull '{"model": "hf.co/org/tiny:latest", "insecure": true}' && is 200 success
check_lines tiny tiny-Q4_K_M.gguf || fail "the lines: $(cat answer)"
n=$(wc -l <answer)
[ "$n" -ge 8 ] && [ "$n" -le $((4 * (SECONDS + 1) + 7)) ] || fail "$n lines in $SECONDS s, at most four a second: $(cat answer)"
grep -q '"to use it: lockstep serve hf:org/tiny"' answer || fail "what to do with it is not said: $(cat answer)"
cmp -s "$(blob tiny tiny-Q4_K_M.gguf)" "$gguf" || fail "it is not what the hub has"
: >hub/mode
served=$(cat hub/served)
ask POST /api/pull '{"name": "https://huggingface.co/org/tiny:q4_k_m"}' && is 200 success
check_lines tiny tiny-Q4_K_M.gguf || fail "the lines of what is here: $(cat answer)"
[ "$(cat hub/served)" = "$served" ] || fail "it was downloaded again"
ask POST /api/pull '{"model": "hf:org/split"}' && check_lines split split-00001-of-00002.gguf split-00002-of-00002.gguf || fail "a split one: $(cat answer)"
ask POST /api/pull '{"model": "hf.co/org/folder"}' && check_lines folder config.json model.safetensors || fail "a folder: $(cat answer)"
ask POST /api/pull '{"model": "hf.co/org/tiny:Q8_0", "stream": false}' && is 200 '^\{"status":"success"\}$'

# ---- what goes wrong is said in the stream, or as the status
ask POST /api/pull '{"model": "hf.co/org/none"}' && is 200 '^\{"error":".*org/none'
ask POST /api/pull '{"model": "hf.co/org/none", "stream": false}' && is_error 404 'org/none'
ask POST /api/pull '{"model": "hf.co/org/tiny:Q2_K", "stream": false}' && is_error 404 'Q8_0'
ask POST /api/pull '{"model": "hf.co/org/gated"}' && is 200 '^\{"error":".*org/gated'
ask POST /api/pull '{"model": "hf.co/org/gated", "stream": false}' && is_error 403 'org/gated'
printf 'wrong\n' >hub/mode
rm -rf hf
ask POST /api/pull '{"model": "hf.co/org/tiny"}' && is 200 '^\{"error":".*another checksum'
: >hub/mode

# ---- a client that goes away ends the pull, and the next one goes on; two share one download
rm -rf hf
served=$(cat hub/served)
echo "slow 1000000" >hub/mode
curl -s -N -m 2 -H 'Content-Type: application/json' -d '{"model": "hf.co/org/tiny"}' "$url/api/pull" >answer
part=$(blob tiny tiny-Q4_K_M.gguf).incomplete
[ -s "$part" ] || fail "nothing stays of what came: $(cat answer)"
stays() { a=$(stat -c %s "$part") && sleep 1 && [ "$a" = "$(stat -c %s "$part")" ]; }
within 20 stays || fail "the pull goes on without its client"
curl -s -m 60 -H 'Content-Type: application/json' -d '{"model": "hf.co/org/tiny"}' "$url/api/pull" >other &
second=$!
within 20 test -s other
ask POST /api/pull '{"model": "hf.co/org/tiny"}'
wait $second
check_lines tiny tiny-Q4_K_M.gguf || fail "of two at once, the later: $(cat answer)"
cp other answer
check_lines tiny tiny-Q4_K_M.gguf || fail "of two at once, the earlier: $(cat other)"
[ "$(sed -n 2p other | grep -o '"completed":[0-9]*' | cut -d: -f2)" -gt 0 ] || fail "it began anew: $(cat other)"
: >hub/mode
more=$(($(cat hub/served) - served - size))
[ $more -ge 0 ] && [ $more -lt 400000 ] || fail "$((more + size)) bytes came, of $size" # what was on its way when the client left

# ---- delete, as lockstep rm
ask DELETE /api/delete '{"model": "own"}' && is_error 409 'is up'
ask DELETE /api/delete '{"name": "hf.co/org/none"}' && is_error 404 "'hf.co/org/none' not found"
ask DELETE /api/delete '{}' && is_error 400 'no ."model'
ask DELETE /api/delete '{"model": "hf.co/org/tiny:Q4_K_M"}' && is_empty
[ -e "$(blob tiny tiny-Q4_K_M.gguf)" ] && fail "it is still there"
ask DELETE /api/delete '{"model": "hf.co/org/tiny:Q4_K_M"}' && is_error 404 'not found'
mkdir -p "$XDG_DATA_HOME/lockstep/models"
cp "$gguf" "$XDG_DATA_HOME/lockstep/models/mine.gguf"
ask POST /api/pull '{"model": "mine"}' && is 200 success
ask DELETE /api/delete '{"model": "mine:latest"}' && is_empty
[ -e "$XDG_DATA_HOME/lockstep/models/mine.gguf" ] && fail "mine is still there"
# what Ollama keeps is there, and Ollama's
blobs=home/.ollama/models/blobs manifests=home/.ollama/models/manifests/registry.ollama.ai/library/llama3.2
mkdir -p $blobs $manifests
hash=$(sha256sum "$gguf" | cut -d' ' -f1)
cp "$gguf" "$blobs/sha256-$hash"
echo "{\"layers\": [{\"mediaType\": \"application/vnd.ollama.image.model\", \"digest\": \"sha256:$hash\"}]}" >$manifests/latest
ask POST /api/pull '{"model": "llama3.2"}' && is 200 success
ask DELETE /api/delete '{"model": "llama3.2"}' && is_error 400 'belongs to another program'

# ---- what is served is not deleted by another name; a server that ends, ends its pulls
serve_stop
ln -s "$gguf" "$XDG_DATA_HOME/lockstep/models/again.gguf"
serve_start "$gguf" --alias own --ctx 256
ask DELETE /api/delete '{"model": "again"}' && is_error 409 'what is up as own'
echo "slow 500000" >hub/mode
curl -s -N -m 60 -H 'Content-Type: application/json' -d '{"model": "hf.co/org/tiny"}' "$url/api/pull" >answer &
pulling=$!
within 20 test -s "$part" || fail "no pull: $(cat answer)"
SECONDS=0
serve_stop || fail "the server ended with $?"
[ $SECONDS -lt 10 ] || fail "a server that is told to end waits $SECONDS s for a pull"
wait $pulling
grep -q '^{"error":"org/tiny: this server ends' answer || fail "what a pull says when the server ends: $(cat answer)"
[ $failures = 0 ] && echo "Ollama's pull and delete at a plain server"
[ $failures = 0 ]
