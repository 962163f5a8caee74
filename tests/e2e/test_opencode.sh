#!/bin/bash
# OpenCode, configured as docs/clients.md says, completes a turn. It installs its provider itself, from
# npm, at its first start.
# labels: once
set -u
. "$SOURCE_DIR/tests/support/clients/lib.sh"
[ "$(uname -sm)" = "Linux x86_64" ] || { echo "skip: the lock file has OpenCode for Linux on x86-64"; exit 77; }
command -v node >/dev/null && command -v npm >/dev/null || { echo "skip: node and npm are not there"; exit 77; }
mkdir -p "$BUILD_DIR/opencode/home"
cp "$SOURCE_DIR"/tests/support/clients/opencode/*.json "$BUILD_DIR/opencode"
npm_install "$BUILD_DIR/opencode"
command -v python3 >/dev/null || { echo "skip: python3 is not there"; exit 77; }
python3 "$SOURCE_DIR/tests/support/long_context.py" "$SOURCE_DIR/models/jargon-3m-f16.gguf" "$work/jargon.gguf" 32768
serve_start "$work/jargon.gguf" --ctx 32768 --kv-memory 600M

# The configuration of the page, with this server's address and the model's name.
mkdir "$work/project"
sed -n '/^```json$/,/^```$/p' "$SOURCE_DIR/docs/clients.md" | grep -v '^```' |
    sed "s|http://127.0.0.1:8080|$url|; s|NAME|jargon|g" >"$work/project/opencode.json"
export HOME=$BUILD_DIR/opencode/home
export XDG_CONFIG_HOME=$HOME/config XDG_DATA_HOME=$HOME/data XDG_CACHE_HOME=$HOME/cache XDG_STATE_HOME=$HOME/state
cd "$work/project" || exit 1
timeout 300 "$BUILD_DIR/opencode/node_modules/opencode-linux-x64/bin/opencode" run "Say hello." >"$work/said" 2>&1
status=$?
# A turn: its prompt (thousands of tokens) was answered, and OpenCode was content with it.
prompt=$(curl -s "$url/metrics" | sed -n 's/^lockstep_prompt_tokens_total //p')
if [ "${prompt:-0}" = 0 ]; then
    grep -qi "npm\|install\|registry\|ENOTFOUND\|fetch" "$work/said" &&
        { echo "skip: OpenCode cannot install its provider: $(tail -n 1 "$work/said")"; exit 77; }
fi
[ $status = 0 ] && [ "${prompt:-0}" -gt 1000 ] && ! grep -q "Error" "$work/said" ||
    fail "status $status, $prompt prompt tokens: $(cat "$work/said")"
[ $failures = 0 ] && echo "opencode: a turn of $prompt prompt tokens"
