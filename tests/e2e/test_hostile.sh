#!/bin/bash
# The malformed files of golden/hostile through the whole program: what must be refused is, quickly and
# with one sentence; what may load must not crash, neither when it is opened nor when it generates
# or renders its template. Under a sanitizer this is the same test with sharper eyes.
set -u
hostile=$SHARED_DIR/golden/hostile
[ -e "$hostile/list.json" ] || { echo "skip: $hostile is not there"; exit 77; }
command -v python3 >/dev/null || { echo "skip: python3, which reads list.json, is not here"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"

try() { # expectation file arguments of lockstep...
    local expect=$1 file=$2 status
    shift 2
    timeout 60 "$LOCKSTEP" "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    if grep -q 'Sanitizer\|runtime error\|lockstep: bug' "$work/err" || [ $status -gt 3 ]; then
        fail "$file: lockstep $1: exit status $status: $(head -c 600 "$work/err")"
    elif [ "$expect" = accept ] && [ $status != 0 ]; then
        fail "$file: lockstep $1 refuses it: $(cat "$work/err")"
    elif [ "$expect" = reject ] && [ $status != 2 ]; then
        fail "$file: lockstep $1: exit status $status instead of a refusal"
    elif [ $status != 0 ] && [ "$(grep -c '^lockstep' "$work/err")" != 1 ]; then
        fail "$file: lockstep $1: expected one sentence: $(cat "$work/err")"
    fi
}

n=0
while IFS=$'\t' read -r file expect; do
    n=$((n + 1))
    try "$expect" "$file" run "$hostile/$file" -p "Hello there" -n 3 --threads 1
    try either "$file" inspect "$hostile/$file"
    try either "$file" run "$hostile/$file" --chat -p "Hello there" -n 1 --threads 1
    echo "Hello there" >"$work/text"
    timeout 60 "$LOCKSTEP" tokenize "$hostile/$file" <"$work/text" >"$work/out" 2>"$work/err"
    status=$?
    [ $status -le 3 ] || fail "$file: tokenize: exit status $status: $(cat "$work/err")"
done < <(python3 -c 'import json, sys
for e in json.load(open(sys.argv[1])): print(e["file"], e["expect"], sep="\t")' "$hostile/list.json")
[ $n -ge 90 ] || fail "list.json names $n files only"
[ $failures = 0 ] && echo "$n files: none did harm"
[ $failures = 0 ]
