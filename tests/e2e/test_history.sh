#!/bin/bash
# lockstep serve with chat templates of known models: the turns after a tool call, in each dialect, as their clients
# send them. The model is small and says anything; what counts is that the prompt can be made, and is the one that was
# meant: as many tokens as the same said plainly.
set -u
command -v python3 >/dev/null || { echo "skip: python3 is not there"; exit 77; }
templates=$SHARED_DIR/golden/chat-templates/templates
[ -d "$templates" ] || { echo "skip: $templates is not there"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/server.sh"

for name in mistralai-Mistral-Nemo-Instruct-2407 openai-gpt-oss-120b deepseek-ai-DeepSeek-V3.1 google-gemma-2-2b-it \
    microsoft-Phi-3.5-mini-instruct mistralai-Ministral-3-14B-Reasoning-2512; do
    python3 "$SOURCE_DIR/tests/support/gguf_with_template.py" "$SOURCE_DIR/models/jargon-3m-f16.gguf" "$work/model.gguf" \
        "$templates/$name.jinja" || { fail "$name: no model"; continue; }
    serve_start "$work/model.gguf" -q
    timeout 200 python3 "$SOURCE_DIR/tests/support/serve_history.py" "$url" "$name" || fail "$name: $(cat "$work/err")"
    serve_stop || fail "$name: the server ended with status $?: $(tail -n 5 "$work/err")"
done

[ $failures = 0 ] && echo "history: every turn has its prompt"
[ $failures = 0 ]
