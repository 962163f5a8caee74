#!/bin/bash
# 200 schemas at temperature 1.5 on a model of random weights; every finished answer is checked by ajv, from npm.
# LOCKSTEP_SCHEMA_SEEDS seeds each (2); LOCKSTEP_SCHEMA_MODEL: another model.
set -u
model=${LOCKSTEP_SCHEMA_MODEL:-$SHARED_DIR/golden/logits/llama.gguf}
[ -f "$model" ] || { echo "skip: $model is not there"; exit 77; }
. "$SOURCE_DIR/tests/support/clients/lib.sh"
clients_install
serve_start "$model" --ctx 1024 --kv-memory 256M --parallel-requests 32
(cd "$clients" && timeout 3000 node schemas.mjs "$url" default 200 "${LOCKSTEP_SCHEMA_SEEDS:-2}") || fail "the schemas"
[ $failures = 0 ]
