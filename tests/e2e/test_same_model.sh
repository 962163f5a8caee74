#!/bin/bash
# Ranks with different copies of a model: one byte differs, inside a tensor. A small one is refused before it is loaded; a large
# one, which would take minutes to read, is served, and stopped with a sentence once its ranks have read their files. The next
# start knows at once.
set -u
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/server.sh"
export LOCKSTEP_SECRET=x
mkdir here there
spoil() { # FROM TO: a byte in the middle
    cp "$1" "$2" && python3 -c '
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(int(sys.argv[2]) // 2)
    byte = f.read(1)[0] ^ 1
    f.seek(-1, 1)
    f.write(bytes([byte]))' "$2" "$(stat -c %s "$1")"
}
cp "$model" here/small.gguf
spoil "$model" there/small.gguf
# What lies behind the tensors counts, too; it is a hole.
for side in here there; do cp $side/small.gguf $side/large.gguf && truncate -s 260M $side/large.gguf || { echo "skip: no large file"; exit 77; }; done
pair() { # MODEL: both ranks of one, a file in each of the folders
    port=$(free_port)
    words=(-t 1 --ctx 64 --join "127.0.0.1:$port" --ranks 2)
    timeout 100 "$LOCKSTEP" serve "there/$1" --port 0 "${words[@]}" --rank 1 >follower.log 2>&1 &
    follower=$!
    timeout 100 "$LOCKSTEP" serve "here/$1" --port 0 "${words[@]}" --rank 0 >leader.log 2>&1 &
    leader=$!
}
another="rank 1 has opened another model than rank 0, on the machine $(hostname): the same file has to be on both machines"
refused() { # MODEL
    pair "$1"
    wait $leader && fail "$1: two models are served"
    wait $follower && fail "$1: rank 1 ends as if nothing had happened"
    grep -q "$another" leader.log || fail "$1: rank 0 says $(cat leader.log)"
    grep -q "$another" follower.log || fail "$1: rank 1 says $(cat follower.log)"
}
refused small.gguf

pair large.gguf
within 60 grep -q "lockstep listens on" leader.log || fail "a large model does not begin: $(cat leader.log follower.log)"
url=$(sed -n 's/^lockstep listens on //p' leader.log)
ask() { curl -s -m 20 "$url/v1/completions" -H "Content-Type: application/json" -d '{"prompt": "a bit", "max_tokens": 2}'; }
ask | grep -q '"text"' || fail "no answer while the files are read: $(ask)"
stopped() {
    ask >/dev/null
    ! kill -0 $leader 2>/dev/null
}
within 60 stopped || fail "the group goes on with two models: $(cat leader.log follower.log)"
wait $leader && fail "the group ends as if nothing had happened"
grep -q "$another" leader.log || fail "the group ends with $(cat leader.log)"
wait $follower
refused large.gguf
[ $failures = 0 ]
