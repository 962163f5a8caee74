#!/bin/bash
# Every file of src and include begins with a comment that says what the file is for, a .c beside its .h too.
set -u
cd "${SOURCE_DIR:-$(dirname "$0")/../..}" || exit 1
failures=0
while read -r file; do
    # The comment itself, without the file's name and the marks.
    said=$(awk 'NR == 1 && !/^\/\*/ { exit } { print } /\*\// { exit }' "$file" | sed 's,^ *[/*]*,,; s,\*/,,' | tr '\n' ' ' |
        sed "s,$(basename "$file"):,,")
    [ "$(wc -w <<<"$said")" -ge 4 ] || { echo "$file: begin with a sentence that says what it is for"; failures=1; }
done < <(find src include -name '*.[ch]')
[ $failures = 0 ] && echo "headers: every file says what it is for"
[ $failures = 0 ]
