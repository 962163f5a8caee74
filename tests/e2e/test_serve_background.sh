#!/bin/bash
# Responses in the background: asked for, seen, cancelled, streamed again, forgotten; whose they are, how many there
# may be, and what becomes of them when the server ends.
# labels: waits
set -u
command -v python3 >/dev/null || { echo "skip: python3 is not there"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/server.sh"
model=$work/long.gguf # an answer that takes a second or more
python3 "$SOURCE_DIR/tests/support/long_context.py" "$SOURCE_DIR/models/jargon-3m-f16.gguf" "$model" 8192 || exit 1

serve_start "$model" -q --ctx 8192 --parallel-requests 4 --queue 280
timeout 200 python3 "$SOURCE_DIR/tests/support/serve_background.py" alone "$url" || fail "in the background: $(tail -n 3 "$work/err")"
serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"

printf 'first\nsecond\n' >"$work/keys"
serve_start "$model" -q --ctx 8192 --api-key-file "$work/keys"
timeout 60 python3 "$SOURCE_DIR/tests/support/serve_background.py" keys "$url" || fail "with keys: $(tail -n 3 "$work/err")"
serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"

# A server that ends finishes what a client reads, and does not wait for what none does.
serve_start "$model" -q --ctx 8192 --parallel-requests 1
timeout 60 python3 "$SOURCE_DIR/tests/support/serve_background.py" end "$url" "$server" || fail "at the end: $(tail -n 3 "$work/err")"
wait "$server" || fail "the server ended with status $?: $(tail -n 5 "$work/err")"
server=
[ $failures = 0 ]
