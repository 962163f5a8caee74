#!/bin/bash
# lockstep serve and lockstep node tell a program that they are ready: by a line of JSON at --ready-fd, and by
# sd_notify's datagrams.
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"
command -v python3 >/dev/null || { echo "skip: python3 is not there"; exit 77; }
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
python3 "$SOURCE_DIR/tests/support/serve_ready.py" "$LOCKSTEP" "$model" || fail "serve_ready.py"
refuse 2 "--ready-fd 9: .*[Bb]ad file descriptor" "$LOCKSTEP" serve "$model" --ready-fd 9
refuse 2 "--ready-fd" "$LOCKSTEP" serve "$model" --ready-fd 1
refuse 2 "--ready-fd 9: it is open for reading only" "$LOCKSTEP" serve "$model" --ready-fd 9 9</dev/null
[ "$failures" = 0 ]
