#!/bin/bash
# Requests as programs with a window send them, which no test can start, or programs that npm does not have: each by
# the name of its client, and what that client reads of the answer. docs/clients.md has the table.
set -u
command -v python3 >/dev/null || { echo "skip: python3 is not there"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/server.sh"
echo '{% for m in messages %}{{ m.content }}{% endfor %}' >"$work/plain.jinja"
python3 "$SOURCE_DIR/tests/support/gguf_with_template.py" "$SOURCE_DIR/models/jargon-3m-f16.gguf" "$work/fim.gguf" "$work/plain.jinja" \
    '<|fim_prefix|>' '<|fim_suffix|>' '<|fim_middle|>' || exit 1
serve_start "$SOURCE_DIR/models/jargon-3m-f16.gguf" -q
timeout 100 python3 "$SOURCE_DIR/tests/support/client_requests.py" "$url" || fail "requests of clients: $(tail -n 3 "$work/err")"
serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"
serve_start "$work/fim.gguf" -q --alias coder
timeout 60 python3 "$SOURCE_DIR/tests/support/client_requests.py" "$url" fim || fail "requests of editors: $(tail -n 3 "$work/err")"
serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"
[ $failures = 0 ]
