#!/bin/bash
# The page of a node's own machine, where no model is up: who may see it, and, in Debian's chromium, a first model that is put up.
# labels: once
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"
export XDG_CONFIG_HOME=$work/config
unset LOCKSTEP_CLUSTER_KEY
mkdir models && cp "$SOURCE_DIR/models/jargon-3m-f16.gguf" models/first.gguf
"$LOCKSTEP" key >/dev/null 2>&1
begin() { # WORDS...: a node without others
    "$LOCKSTEP" node --host 127.0.0.1 --port 0 --no-discovery --name desk --models models "$@" >node.out 2>node.err &
    node=$!
    within 60 grep -q "listens on port" node.out || fail "node: $(cat node.out node.err)"
}
finish() { kill $node && wait $node; }
at_end 'kill ${node:-} 2>/dev/null'

# As a service it has none, and if it is not wanted.
begin
grep -q "the page of the cluster" node.out && fail "a page without a terminal"
finish
begin --page 0
grep -q "the page of the cluster" node.out && fail "a page, in spite of --page 0"
finish

free=$(free_port)
begin --page "$free"
url=$(sed -n 's/^the page of the cluster, on this machine: //p' node.out)
[ "$url" = "http://127.0.0.1:$free" ] || fail "the page is at $url"
ask() { curl -s -m 60 -o answer -w '%{http_code}' "$@"; }
is() { # STATUS PATTERN GOT
    [ "$3" = "$1" ] && grep -qE "$2" answer || fail "expected $1 and '$2', got $3: $(cat answer)"
}
is 200 '<!doctype html>' "$(ask --compressed -H "Accept: text/html" "$url/")"
is 200 '"manage":true.*"local":true' "$(ask "$url/v1/cluster")"
is 403 'names another machine' "$(ask -H "Host: evil.example" "$url/v1/cluster")"
is 403 'a page of another machine' "$(ask -H "Origin: http://evil.example" --json '{"model": "first"}' "$url/v1/cluster/plan")"
is 415 'application/json' "$(ask -d '{"name": "first"}' "$url/v1/cluster/down")"
is 401 'API key' "$(ask -H "X-Forwarded-For: 10.0.0.7" "$url/v1/cluster")"
is 503 'elsewhere' "$(ask "$url/health")"
is 404 'no model answers here' "$(ask --json '{}' "$url/v1/chat/completions")"
is 200 '"one rank"' "$(ask --json '{"model": "first"}' "$url/v1/cluster/plan")"
is 400 'say an .*api_key' "$(ask --json '{"model": "first", "port": 8098}' "$url/v1/cluster/up")"
is 400 'has no blanks' "$(ask --json '{"model": "first", "port": 8098, "api_key": "a b"}' "$url/v1/cluster/up")"
is 400 '' "$(ask --json '{"model": "first", "port": 70000, "insecure": true}' "$url/v1/cluster/up")"
# No other address of the machine has it.
other=$(hostname -I 2>/dev/null | cut -d' ' -f1)
[ -z "$other" ] || [ "$(ask "http://$other:$free/v1/cluster")" = 000 ] || fail "the page is at $other, too: $(cat answer)"
# A model is up at its port with its key, and the page shows it without one.
model_port=$(free_port)
is 200 '"name":"first"' "$(ask --json "{\"model\": \"first\", \"port\": $model_port, \"api_key\": \"sesame\", \"options\": {\"threads\": 1, \"ctx\": 256}}" "$url/v1/cluster/up")"
listens() { ask "$url/v1/cluster" >/dev/null && grep -q '"state":"listening"' answer; }
within 60 listens || fail "it does not listen: $(cat answer node.err)"
needs_key() { [ "$(ask "http://127.0.0.1:$model_port/v1/models")" = 401 ]; }
within 10 needs_key || fail "no key is needed: $(cat answer)"
is 200 '"first"' "$(ask -H "Authorization: Bearer sesame" "http://127.0.0.1:$model_port/v1/models")"
is 200 'first' "$(ask --json '{"name": "first"}' "$url/v1/cluster/down")"
gone() { ask "$url/v1/cluster" >/dev/null && ! grep -q '"state":"listening"' answer; }
within 60 gone || fail "it does not end: $(cat answer)"

# The same in a browser.
browser() { for tool in node npm chromium; do command -v $tool >/dev/null || return 1; done; }
if browser; then
    copy=$BUILD_DIR/page_local
    mkdir -p "$copy" && cp "$SOURCE_DIR"/tests/support/page/{*.mjs,*.json,.npmrc} "$copy"
    (. "$SOURCE_DIR/tests/support/clients/lib.sh" && npm_install "$copy") || exit $?
    (cd "$copy" && timeout 200 node local.mjs "$url/") || fail "the page: $(cat node.err)"
fi
finish || fail "the node ends with $?"
[ $failures = 0 ]
