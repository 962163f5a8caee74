#!/bin/bash
# The page's view of a real cluster in a browser (Debian's chromium): three machines (network namespaces on one switch), of which the
# one that serves loses its power in the middle of an answer, and comes back.
# labels: root waits
set -u
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/hosts.sh"
. "$SOURCE_DIR/tests/support/three_nodes.sh"
for tool in node npm chromium; do
    command -v $tool >/dev/null || { echo "skip: $tool is not there"; exit 77; }
done
copy=$BUILD_DIR/page_nodes
mkdir -p "$copy" && cp "$SOURCE_DIR"/tests/support/page/{*.mjs,*.json,.npmrc} "$copy"
(. "$SOURCE_DIR/tests/support/clients/lib.sh" && npm_install "$copy") || exit $?
make_three_hosts "$model"
for host in 1 2 3; do start $host; done
# Slow wires, so that an answer takes some seconds.
nsenter -t "${hosts[1]}" "${host_enter[@]}" timeout 100 "$LOCKSTEP" up own/m.gguf --port 8099 -t 1 --ctx 512 --insecure --nodes ann,bob,cat \
    --emulate-link latency=10ms --no-speculation >/dev/null 2>up.err || fail "up: $(cat up.err; logs)"
for name in bob cat; do within 60 cmp -s own/m.gguf "store-$name/m.gguf" || fail "no model at $name: $(logs)"; done

nsenter -t "${hosts[2]}" "${host_enter[@]}" timeout 250 node "$copy/nodes.mjs" http://127.0.0.1:8099/ >page.out 2>&1 &
page=$!
said() { grep -q "^$1" page.out || ! kill -0 $page 2>/dev/null; }
within 120 said "kill ann" && cut 1
within 120 said "start ann" && on 1 ip link set wire up && start 1
wait $page || fail "the page: $(cat page.out; logs)"
grep "^ok" page.out
[ $failures = 0 ]
