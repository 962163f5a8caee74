#!/bin/bash
# lockstep serve with chat templates of known models: the turns after a tool call, in each dialect, as their clients
# send them. The model is small and says anything; what counts is that the prompt can be made, and is the one that was
# meant: as many tokens as the same said plainly.
set -u
command -v python3 >/dev/null || { echo "skip: python3 is not there"; exit 77; }
templates=$SHARED_DIR/golden/chat-templates/templates
[ -d "$templates" ] || { echo "skip: $templates is not there"; exit 77; }
. "$SOURCE_DIR/tests/scratch.sh"
server=
trap '[ -n "$server" ] && kill "$server" 2>/dev/null && wait "$server"; rm -rf "$work"' EXIT

for name in mistralai-Mistral-Nemo-Instruct-2407 openai-gpt-oss-120b deepseek-ai-DeepSeek-V3.1 google-gemma-2-2b-it; do
    python3 "$SOURCE_DIR/tests/gguf_with_template.py" "$SOURCE_DIR/models/jargon-3m-f16.gguf" "$work/model.gguf" \
        "$templates/$name.jinja" || { fail "$name: no model"; continue; }
    "$LOCKSTEP" serve "$work/model.gguf" -q --port 0 >"$work/out" 2>"$work/err" &
    server=$!
    for _ in $(seq 600); do
        grep -q '^lockstep listens on' "$work/out" && break
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    url=$(sed -n 's/^lockstep listens on //p' "$work/out")
    timeout 200 python3 "$SOURCE_DIR/tests/serve_history.py" "$url" "$name" || fail "$name: $(cat "$work/err")"
    kill "$server" && wait "$server" || fail "$name: the server ended with status $?: $(tail -n 5 "$work/err")"
    server=
done

[ $failures = 0 ] && echo "history: every turn has its prompt"
[ $failures = 0 ]
