#!/bin/bash
# A folder of src holds what one person can keep in mind: at most 8,000 lines and 45 .c files, no file above 800 lines.
set -u
cd "${SOURCE_DIR:-$(dirname "$0")/../..}" || exit 1
failures=0
fail() {
    echo "$*"
    failures=$((failures + 1))
}
for room in src/*/; do
    lines=$(find "$room" -name '*.[ch]' -exec cat {} + | wc -l)
    files=$(find "$room" -name '*.c' | wc -l)
    [ "$lines" -le 8000 ] || fail "$room has $lines lines: what does not belong to its question?"
    [ "$files" -le 45 ] || fail "$room has $files .c files: what does not belong to its question?"
done
while read -r lines file; do
    [ "$file" = total ] || [ "$lines" -le 800 ] || fail "$file has $lines lines: cut it by question"
done < <(find src -name '*.[ch]' -exec wc -l {} +)
[ $failures = 0 ] && echo "sizes: no folder above 8,000 lines or 45 .c files, no file above 800 lines"
[ $failures = 0 ]
