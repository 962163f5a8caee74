#!/bin/bash
# What make demo runs after the build, to its end; that it shows what README's first screen says that it shows; that
# the server which it starts does not outlive it.
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"

timeout 120 bash "$SOURCE_DIR/tools/demo.sh" >"$work/out" 2>&1
status=$?
[ $status = 0 ] || fail "exit status $status: $(tail -n 5 "$work/out")"
shows() { grep -Fq -e "$1" "$work/out" || fail "it does not show '$1'"; }
shows "Yes: the two answers are identical."
! command -v curl >/dev/null || shows '"object":"chat.completion"'
[ "$(grep -c '^  rank [0-2]: ' "$work/out")" = 4 ] || fail "expected what three ranks hold, and what one holds"

# The sample in README.md, line by line but for the command; "..." is where it leaves something out.
sed -n '/^    \$ lockstep run models/,/^$/p' "$SOURCE_DIR/README.md" | sed 's/^    //; 1d; /^$/d' >"$work/sample"
[ "$(wc -l <"$work/sample")" -ge 6 ] || fail "README.md has no sample of the demo"
tr -s ' \n' '  ' <"$work/out" >"$work/flat"
while read -r line; do
    line=$(echo "${line%...}" | tr -s ' ' | sed 's/ $//')
    grep -Fq -e "$line" "$work/flat" || fail "README.md shows '$line', the demo does not"
done <"$work/sample"

url=$(sed -n 's/.*\(http:[^ ]*\)\/v1\/chat.*/\1/p' "$work/out" | head -n 1)
if [ -n "$url" ] && curl -s -m 2 -o /dev/null "$url/health"; then fail "its server still answers at $url"; fi

[ $failures = 0 ] && echo "demo: as README.md says"
[ $failures = 0 ]
