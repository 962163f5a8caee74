#!/bin/bash
# A context whose keys and values need more memory than there is: one sentence that says what to do, and an orderly end,
# of one rank and of several, also where layers keep states beside them. The same with a shorter context works.
# labels: once
set -u
command -v python3 >/dev/null || { echo "skip: python3 is not there"; exit 77; }
[ "$(uname)" = Linux ] || { echo "skip: the system does not limit the address space"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"

long() { # MODEL OUT ARCH: with as long a training as --ctx may be
    python3 -c '
import struct, sys
file, key = bytearray(open(sys.argv[1], "rb").read()), sys.argv[3].encode() + b".context_length"
at = file.index(struct.pack("<Q", len(key)) + key) + 8 + len(key)
assert struct.unpack_from("<I", file, at) == (4,) # a u32
struct.pack_into("<I", file, at + 4, 1 << 24)
open(sys.argv[2], "wb").write(file)' "$@" || { echo "FAILED: no $2"; exit 1; }
}

# refused STATUS WHO arguments...: with 3 GB of addresses
refused() {
    local want=$1 who=$2 status
    shift 2
    (ulimit -v 3000000 && exec timeout 60 "$LOCKSTEP" "$@") >out 2>err </dev/null
    status=$?
    [ $status = "$want" ] || fail "$*: status $status, expected $want: $(tail -n 3 err)"
    grep -Eq "^lockstep [a-z]*: ${who}no memory for a KV cache of [0-9.]+ GB: a shorter context \(--ctx\) needs less\$" err ||
        fail "$*: said '$(cat err)'"
    [ "$(wc -l <err)" = 1 ] || fail "$*: expected one sentence: $(cat err)"
}

check() { # MODEL
    local most=(--ctx 16777216 --kv f32 -q -t 1)
    refused 1 '' run "$1" -p a "${most[@]}"
    refused 1 '' run "$1" -p a "${most[@]}" --ranks 2
    refused 1 '' eval "$1" --ids 1,2 "${most[@]}"
    refused 1 '' serve "$1" --port 0 "${most[@]}"
    (ulimit -v 3000000 && timeout 60 "$LOCKSTEP" eval "$1" --ids 1,2 --ctx 65536 -q -t 1 --logits f32) 2>err ||
        fail "$1: a shorter context: $(cat err)"
}

long "$SOURCE_DIR/models/jargon-3m-f16.gguf" jargon.gguf qwen3
check jargon.gguf
for arch in qwen35 lfm2; do # a state beside keys and values
    [ -e "$SHARED_DIR/golden/logits/$arch.gguf" ] || { echo "note: no golden $arch"; continue; }
    long "$SHARED_DIR/golden/logits/$arch.gguf" "$arch.gguf" "$arch"
    check "$arch.gguf"
done
# The only attention layer is on the second rank.
[ ! -e qwen35.gguf ] ||
    refused 3 'rank 1 failed: ' run qwen35.gguf -p a --ctx 16777216 --kv f32 -q -t 1 --ranks 2 --parallel pipeline
[ $failures = 0 ] && echo "memory: a context that does not fit is refused in one sentence"
[ $failures = 0 ]
