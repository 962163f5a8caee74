#!/bin/bash
# 64 clients at once for LOCKSTEP_LOAD_SECONDS (20), with hang-ups, slow readers and bad requests: no error that is
# not the client's own, no growth of memory, fair waiting, nothing left behind. Then a long prompt beside
# streams, which must go on meanwhile.
set -u
command -v curl >/dev/null && command -v python3 >/dev/null || { echo "skip: curl and python3 are not there"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/server.sh"
python3 "$SOURCE_DIR/tests/support/long_context.py" "$SOURCE_DIR/models/jargon-3m-f16.gguf" "$work/jargon.gguf" 16384 || exit 1
start() { serve_start "$work/jargon.gguf" -q "$@"; }
stop() { serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"; }

# A sanitizer that keeps what was freed would make the memory grow.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=1
# A small cache, so that all of it is touched soon and the memory is steady.
start --ctx 4096 --kv-memory 13M --parallel-requests 16
timeout 1500 "$BUILD_DIR/tests/serve_load" storm "${url##*:}" "$server" "${LOCKSTEP_LOAD_SECONDS:-20}" || fail "the storm"
# That the last clients have hung up is noticed at the next look at them, or the next word to them.
none_left() {
    left=$(curl -s "$url/metrics" | grep -E '^lockstep_(requests_running|requests_queued|kv_pages_used) ' | tr '\n' ' ')
    [ "$left" = "lockstep_requests_running 0 lockstep_requests_queued 0 lockstep_kv_pages_used 0 " ]
}
within 30 none_left || fail "left behind: $left"
stop
start --ctx 16384 --kv-memory 256M
timeout 300 "$BUILD_DIR/tests/serve_load" prompt "${url##*:}" "${LOCKSTEP_LOAD_PROMPT:-1000}" || fail "the prompt"
stop
[ $failures = 0 ] && echo "load: all as it should be"
[ $failures = 0 ]
