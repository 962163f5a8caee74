#!/bin/bash
# Every name.c and name.h in a comment or a document is a file of the tree, or a header of the system's (mentions.py).
set -u
cd "${SOURCE_DIR:-$(dirname "$0")/../..}" || exit 1
command -v python3 >/dev/null || { echo "skip: no python3"; exit 77; }
python3 tests/support/mentions.py || { echo "mentions: the files above are not there"; exit 1; }
echo "mentions: every file that is named is there"
