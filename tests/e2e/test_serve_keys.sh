#!/bin/bash
# lockstep serve says so where keys lie open: in a file that others can read, or on the network in the clear.
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"
command -v curl >/dev/null || { echo "skip: curl is not there"; exit 77; }
echo secret >keys
serve() { # words...: until it listens; then it ends
    "$LOCKSTEP" serve "$SOURCE_DIR/models/jargon-3m-f16.gguf" --port 0 --api-key-file keys --ctx 128 -t 1 "$@" >out 2>&1 &
    local pid=$!
    within 60 grep -q "listens on" out || fail "serve $*: $(cat out)"
    kill $pid
    wait $pid
}
warns() { grep -q "warning: .*$1" out || fail "no word of: $1: $(cat out)"; }
silent() { grep -q "warning: .*$1" out && fail "says: $1: $(cat out)"; }
chmod 644 keys
serve
warns "keys: other users of this machine can read it"
silent "in the clear"
chmod 600 keys
serve --host 0.0.0.0
silent "other users"
warns "cross the network in the clear"
serve --host 0.0.0.0 -q
silent "in the clear"
[ "$failures" = 0 ]
