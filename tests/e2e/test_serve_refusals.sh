#!/bin/bash
# What lockstep serve must refuse, line by line in each dialect (serve_refusals.py); a queue that is full; that
# all of it leaves no memory behind.
# labels: waits
set -u
command -v python3 >/dev/null || { echo "skip: python3 is not there"; exit 77; }
command -v curl >/dev/null || { echo "skip: curl is not there"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/server.sh"
start() { serve_start "$SOURCE_DIR/models/jargon-3m-f16.gguf" -q "$@"; }

start
timeout 600 python3 "$SOURCE_DIR/tests/support/serve_refusals.py" "$url" jargon-3m-f16 || fail "refusals"
# A page in a browser whose own name leads here (DNS rebinding) is not let in.
named() { # HOST STATUS [curl's arguments...]
    local status
    status=$(curl -s -m 60 -o "$work/body" -w '%{http_code}' -H "Host: $1" "${@:3}" "$url/v1/models")
    [ "$status" = "$2" ] || fail "Host: $1: status $status, not $2: $(head -c 300 "$work/body")"
}
for name in evil.example evil.example:80 localhost.evil.example local 127.0.0.1.evil.example "$(printf '%0300d' 0)" \
    "[::1].evil.example" "[evil.example" "[evil.example]" "[]" "localhost:evil.example"; do
    named "$name" 403
    grep -q '"error".*Host header names another machine' "$work/body" || fail "Host: $name: $(cat "$work/body")"
done
for name in localhost LocalHost:8080 127.0.0.1:99 "[::1]:80" "[fe80::1]" host.docker.internal:11434 studio.local \
    "$(uname -n)"; do
    named "$name" 200
done
# Nor is what pages of other machines send.
from() { # ORIGIN STATUS [curl's arguments...]
    local status
    status=$(curl -s -m 60 -o "$work/body" -w '%{http_code}' -H "Origin: $1" -H "Content-Type: text/plain" "${@:3}" \
        "$url/v1/completions" -d '{"prompt":"hi","max_tokens":1}')
    [ "$status" = "$2" ] || fail "Origin: $1: status $status, not $2: $(head -c 300 "$work/body")"
}
for origin in http://evil.example https://evil.example:8080 http://localhost.evil.example null http:// \
    http://203.0.113.9 http://127.0.0.1.evil.example "http://[2001:db8::1]" http://studio.local "http://$(printf '%0300d' 0)"; do
    from "$origin" 403
    grep -q '"error".*Origin header names a page of another machine' "$work/body" || fail "$origin: $(cat "$work/body")"
done
for origin in "$url" http://localhost:3000 "http://[::1]:99" chrome-extension://abc vscode-webview://abc; do
    from "$origin" 200
done
from http://studio.local:3000 200 -H "Host: studio.local:8080" # its own page, by the name that it was asked by
serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"
start --cors http://good.example
from http://good.example 200
from http://evil.example 403
serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"
start --cors '*'
from http://evil.example 200
from null 200
serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"
start --api-key k
from http://evil.example 200 -H "Authorization: Bearer k"
named evil.example 200 -H "Authorization: Bearer k"
[ "$(curl -s -m 60 "$url/" | grep -c jargon)" = 0 ] || fail "/ names the model to who has no key"
[ "$(curl -s -m 60 -H "x-api-key: k " "$url/" | grep -c jargon)" = 1 ] || fail "/ does not name the model"
serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"
start --insecure
named evil.example 200
serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"

# ---- a full queue -------------------------------------------------------------------------------------
# One place, taken by 64 long answers to one request; one request waits; the next hears 503 and when to
# come again.
start --parallel-requests 1 --queue 1
metric() { curl -s "$url/metrics" | sed -n "s/^lockstep_$1 //p"; }
until_metric() { # NAME VALUE
    for _ in $(seq 1000); do
        [ "$(metric "$1")" = "$2" ] && return
        sleep 0.02
    done
    fail "$1 does not become $2"
}
long='{"messages":[{"role":"user","content":"hi"}],"ignore_eos":true,"n":64}'
curl -s -m 300 "$url/v1/chat/completions" -d "$long" >/dev/null &
first=$!
until_metric requests_running 1
curl -s -m 300 "$url/v1/chat/completions" -d "$long" >/dev/null &
second=$!
until_metric requests_queued 1
full() { # PATH BODY PATTERN
    status=$(curl -s -m 60 -D "$work/head" -o "$work/body" -w '%{http_code}' "$url$1" -d "$2")
    [ "$status" = 503 ] || fail "a full queue: $1: status $status: $(head -c 300 "$work/body")"
    grep -qi '^retry-after: [0-9]' "$work/head" || fail "a full queue: $1: no Retry-After: $(cat "$work/head")"
    grep -q "$3" "$work/body" || fail "a full queue: $1: $(head -c 300 "$work/body")"
}
messages='"messages":[{"role":"user","content":"hi"}]'
full /v1/chat/completions "{$messages}" '1 request waits already'
for stream in true false; do
    full /v1/chat/completions "{$messages,\"stream\":$stream}" '"error":{"message":"'
    full /v1/responses "{\"input\":\"hi\",\"stream\":$stream}" '"error":{"message":"'
    full /v1/completions "{\"prompt\":\"hi\",\"stream\":$stream}" '"error":{"message":"'
    full /v1/messages "{$messages,\"max_tokens\":5,\"stream\":$stream}" '"type":"overloaded_error"'
    full /api/chat "{$messages,\"stream\":$stream}" '{"error":"'
    full /api/generate "{\"prompt\":\"hi\",\"stream\":$stream}" '{"error":"'
done
kill "$first" "$second" # who waits and hangs up is forgotten too
until_metric requests_queued 0
until_metric requests_running 0
serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"

# ---- a conversation that a template does not come to the end of --------------------------------------
cat >"$work/looping.jinja" <<'END'
{% for m in messages %}{{ m.content }}{% endfor %}{% if messages[0].content == 'loop' %}{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}{% endif %}
END
python3 "$SOURCE_DIR/tests/support/gguf_with_template.py" "$SOURCE_DIR/models/jargon-3m-f16.gguf" "$work/looping.gguf" "$work/looping.jinja"
serve_start "$work/looping.gguf" -q
status=$(curl -s -m 60 -o "$work/body" -w '%{http_code}' "$url/v1/chat/completions" -d '{"messages":[{"role":"user","content":"loop"}]}')
[ "$status" = 400 ] && grep -q '(limit: ' "$work/body" || fail "a template without an end: $status $(head -c 300 "$work/body")"
serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"

[ $failures = 0 ] && echo "refusals: all as they should be"
[ $failures = 0 ]
