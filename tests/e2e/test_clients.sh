#!/bin/bash
# The official clients, from npm, against lockstep serve. The packages lie in the build folder
# afterwards, and are installed again when the lock file has changed.
set -u
. "$SOURCE_DIR/tests/support/clients/lib.sh"
clients_install
# An answer that is to be cut must last.
python3 "$SOURCE_DIR/tests/support/long_context.py" "$SOURCE_DIR/models/jargon-3m-f16.gguf" "$work/jargon-3m-f16.gguf" 8192 || exit 1
serve_start "$work/jargon-3m-f16.gguf" --ctx 8192
(cd "$clients" && timeout 300 node clients.mjs "$url" jargon-3m-f16 "$server") || fail "the clients"
[ $failures = 0 ]
