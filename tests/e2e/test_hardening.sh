#!/bin/bash
# What the program asks of the system: relocations that are read-only, addresses by chance, no stack that can be
# executed, checks of the stack and of the C library's calls, marked targets of indirect jumps; and of processes that hear
# strangers: no new privileges and no core file with keys.
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"
[ "$(uname)" = Linux ] || { echo "skip: not Linux"; exit 77; }
grep -q "^LOCKSTEP_HARDENING:BOOL=OFF" "$BUILD_DIR/CMakeCache.txt" && { echo "skip: built with LOCKSTEP_HARDENING=OFF"; exit 77; }
if command -v readelf >/dev/null; then
    readelf -lW "$LOCKSTEP" | grep -q GNU_RELRO || fail "no RELRO"
    readelf -dW "$LOCKSTEP" | grep -Eq "BIND_NOW|FLAGS_1.*NOW" || fail "no BIND_NOW"
    readelf -lW "$LOCKSTEP" | grep -E "GNU_STACK.* RW +0x" >/dev/null || fail "the stack may be executed"
    readelf -hW "$LOCKSTEP" | grep -q "Type:.*DYN" || fail "no PIE"
    if grep -q "^CMAKE_BUILD_TYPE:STRING=Release" "$BUILD_DIR/CMakeCache.txt" && ! grep -q "^LOCKSTEP_SANITIZE:STRING=." "$BUILD_DIR/CMakeCache.txt"; then
        readelf -sW "$LOCKSTEP" >symbols
        grep -q "UND __stack_chk_fail" symbols || fail "no stack protector"
        grep -Eq "UND __(memcpy|snprintf|vsnprintf)_chk" symbols || fail "no _FORTIFY_SOURCE"
    fi
    # The program's own note also asks for the C library's start files, which Debian's do not have: so a file of ours.
    if grep -q "^HAVE_COMPILER_fcf_protection_full:INTERNAL=1" "$BUILD_DIR/CMakeCache.txt"; then
        readelf -nW "$BUILD_DIR/liblockstep.a" 2>/dev/null | grep -q "IBT, SHSTK" || fail "no CET"
    fi
else
    echo "the file itself is not looked at: readelf is not there"
fi
confined() { # PID WHAT
    grep -q "^NoNewPrivs:.*1" "/proc/$1/status" || fail "$2: new privileges"
    grep -Eq "^Max core file size +0 " "/proc/$1/limits" || fail "$2: $(grep core "/proc/$1/limits")"
}
ulimit -S -c unlimited 2>/dev/null
: >out
"$LOCKSTEP" serve "$SOURCE_DIR/models/jargon-3m-f16.gguf" --port 0 --ctx 128 -t 1 --ranks 2 >out 2>&1 &
pid=$!
within 60 grep -q "listens on" out || fail "serve: $(cat out)"
confined $pid serve
workers=$(pgrep -P $pid)
[ -n "$workers" ] || fail "serve has no worker"
for worker in $workers; do confined "$worker" "a worker of serve"; done
kill $pid
wait $pid
LOCKSTEP_CLUSTER_KEY=$work/key "$LOCKSTEP" node --no-discovery --port 0 --models "$work" --state "$work/state" >out 2>&1 &
pid=$!
within 60 grep -q "listens on" out || fail "node: $(cat out)"
confined $pid node
kill $pid
wait $pid
[ "$failures" = 0 ]
