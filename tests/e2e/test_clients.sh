#!/bin/bash
# The official clients, from npm, against lockstep serve. The packages lie in the build folder
# afterwards, and are installed again when the lock file has changed.
set -u
. "$SOURCE_DIR/tests/support/clients/lib.sh"
clients_install
serve_start "$SOURCE_DIR/models/jargon-3m-f16.gguf"
cd "$clients" && timeout 300 node clients.mjs "$url" jargon-3m-f16 "$server"
