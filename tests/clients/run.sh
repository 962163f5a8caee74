#!/bin/bash
# The official clients (from npm) against lockstep serve: not part of `make test`, since it installs packages.
# LOCKSTEP=build/lockstep SOURCE_DIR=. bash tests/clients/run.sh
set -u
command -v node >/dev/null && command -v npm >/dev/null || { echo "skip: npm is not there"; exit 77; }
work=$(mktemp -d)
server=
trap '[ -n "$server" ] && kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
cp "$SOURCE_DIR"/tests/clients/* "$work"
(cd "$work" && timeout 120 npm ci --silent >npm.log 2>&1) || { echo "skip: npm cannot install: $(tail -n 1 "$work/npm.log")"; exit 77; }
"$LOCKSTEP" serve "$SOURCE_DIR/models/jargon-3m-f16.gguf" -q --port 0 >"$work/out" &
server=$!
for _ in $(seq 200); do
    grep -q '^lockstep listens on' "$work/out" && break
    sleep 0.1
done
cd "$work" && timeout 120 node clients.mjs "$(sed -n 's/^lockstep listens on //p' out)" jargon-3m-f16
