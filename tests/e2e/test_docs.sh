#!/bin/bash
# Every command in README.md and docs/ runs as it is written there, or is checked against --help (docs_commands.py has
# the list of exceptions with their reasons). Pages name fixed ports, so this has a network of its own.
# labels: slow root
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"

command -v python3 curl >/dev/null || { echo "skip: no python3 or curl"; exit 77; }
unshare -rnu true 2>/dev/null || { echo "skip: no network namespace can be made here"; exit 77; }
[ -x "$BUILD_DIR/bench/bench_batch" ] || { echo "skip: the programs of bench/ are not built"; exit 77; }

export HOME=$work/home PATH="$(dirname "$LOCKSTEP"):$PATH"
mkdir -p "$HOME" pages && cd pages || exit 1
unshare -rnu bash -c "hostname desk && ip link set lo up &&
    exec python3 '$SOURCE_DIR/tests/support/docs_commands.py' '$SOURCE_DIR' '$BUILD_DIR'" || fail "commands of the documents"
[ $failures = 0 ]
