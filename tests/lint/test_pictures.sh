#!/bin/bash
# The pictures in docs/ are what tools/draw.py makes of their text, and every picture that a page shows is there.
set -u
cd "${SOURCE_DIR:-$(dirname "$0")/../..}" || exit 1
if ! command -v python3 >/dev/null; then
    echo "skip: no python3"
    exit 77
fi
failures=0
python3 tools/draw.py --check || failures=1
for page in *.md docs/*.md; do
    while read -r picture; do
        [ -e "$(dirname "$page")/$picture" ] || { echo "$page shows $picture, which is not there"; failures=1; }
    done < <(grep -oE '!\[[^]]*\]\([^)]+\)' "$page" | sed 's/.*(\(.*\))/\1/')
done
[ $failures = 0 ] && echo "pictures: as their text says"
[ $failures = 0 ]
