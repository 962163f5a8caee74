#!/bin/bash
# A node reads its folder of models at its start, and again only when somebody looks at the cluster: a disk may sleep. Who looks
# sees what is there within a second.
# labels: waits
set -u
command -v python3 >/dev/null && command -v curl >/dev/null || { echo "skip: python3 and curl are not there"; exit 77; }
[ "$(uname)" = Linux ] || { echo "skip: inotify is Linux's"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"
export HOME=$work XDG_CONFIG_HOME=$work/config
unset LOCKSTEP_CLUSTER_KEY
mkdir store
"$LOCKSTEP" key >/dev/null 2>&1
# Each time that the folder is opened is a line of `opened`.
python3 - >opened <<'END' &
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init1(0)
IN_OPEN = 0x20
assert fd >= 0 and libc.inotify_add_watch(fd, b"store", IN_OPEN) >= 0
print("watched", flush=True)
while True:
    for _ in range(max(1, len(os.read(fd, 4096)) // 16)):
        print("opened", flush=True)
END
watch=$!
within 20 grep -q watched opened || { kill $watch; echo "skip: no inotify: $(cat opened)"; exit 77; }
mkfifo ready
"$LOCKSTEP" node --port 0 --host 127.0.0.1 --no-discovery --models store --state state --ready-fd 8 >node.log 2>&1 8>ready &
node=$!
read -r -t 30 line <ready
port=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])["port"])' "$line") || fail "the node says $line: $(cat node.log)"
times() { grep -c opened opened; }
has_read() { [ "$(times)" -gt "$1" ]; }
within 20 has_read 0 || fail "its models are not read at the start: $(cat node.log)"
sleep 1
before=$(times)
sleep 12
[ "$(times)" = "$before" ] || fail "nobody looks, and the folder is read $(($(times) - before)) times in 12 s"
cp "$SOURCE_DIR/models/jargon-3m-f16.gguf" store/new.gguf
sees() { "$LOCKSTEP" top --json --node "127.0.0.1:$port" >seen 2>err && grep -q '"new"' seen; }
sees # this one may have what was known
within 2 sees || fail "who looks does not see a new model: $(cat seen err)"
kill $node && wait $node || fail "the node's end"
kill $watch
[ $failures = 0 ]
