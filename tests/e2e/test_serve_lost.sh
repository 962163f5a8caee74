#!/bin/bash
# A rank of lockstep serve is killed under load (serve_lost.py).
# labels: waits
set -u
command -v python3 >/dev/null && command -v pgrep >/dev/null || { echo "skip: python3 and pgrep are not there"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"
python3 "$SOURCE_DIR/tests/support/long_context.py" "$SOURCE_DIR/models/jargon-3m-f16.gguf" "$work/jargon.gguf" 8192 || fail "no model with a long context"
timeout 300 python3 "$SOURCE_DIR/tests/support/serve_lost.py" "$LOCKSTEP" "$work/jargon.gguf" "$work" || fail "a rank was lost"
[ $failures = 0 ]
