#!/bin/bash
# Ollama's own client, from npm, pulls, deletes and copies models: at a plain server, and at the port of a deployment of one node.
# The hub is an imitation (tests/support/hub.py).
# labels: waits
set -u
. "$SOURCE_DIR/tests/support/clients/lib.sh"
clients_install
cd "$work" || exit 1
. "$SOURCE_DIR/tests/support/hub.sh"
gguf=$SOURCE_DIR/models/jargon-3m-f16.gguf
size=$(($(wc -c <"$gguf") + 1))
mkdir -p hub/repos/org/tiny
{ cat "$gguf" && printf x; } >hub/repos/org/tiny/tiny-Q4_K_M.gguf # another content than what is up
start_hub
export HOME=$work HF_HOME=$work/hf
export XDG_DATA_HOME=$work/data XDG_CONFIG_HOME=$work/config XDG_CACHE_HOME=$work/cache LOCKSTEP_CLUSTER_KEY=$work/key
echo "slow 8000000" >hub/mode

serve_start "$gguf" --alias own --ctx 256
(cd "$clients" && timeout 100 node ollama_store.mjs "$url" own "$size") || fail "at a plain server"
serve_stop || fail "the server ended with $?"

port=$(python3 -c 'import socket
with socket.socket() as s:
    s.bind(("", 0))
    print(s.getsockname()[1])')
echo abra-kadabra >keys && chmod 600 keys
"$LOCKSTEP" node --no-discovery --port 0 --ready-fd 8 8>ready >node.log 2>&1 &
server=$! # ends with the test
for _ in {1..1200}; do [ ! -s ready ] || break; sleep 0.05; done
at=127.0.0.1:$(sed -n 's/.*"port":\([0-9]*\).*/\1/p' ready)
timeout 100 "$LOCKSTEP" up "$gguf" --alias own --ctx 256 -t 1 --port "$port" --api-key-file keys --node "$at" >up.out 2>&1 || { echo "FAILED: up: $(cat up.out node.log)"; exit 1; }
(cd "$clients" && timeout 100 node ollama_store.mjs "http://127.0.0.1:$port" own "$size" abra-kadabra "$("$LOCKSTEP" key --admin)") || fail "at a node: $(cat node.log)"
[ $failures = 0 ]
