#!/bin/bash
# codespell finds no misspelt word in documents and sources. Words that only look so are in spelling.txt, one a line.
set -u
cd "${SOURCE_DIR:-$(dirname "$0")/../..}" || exit 1
command -v codespell >/dev/null || { echo "skip: no codespell"; exit 77; }
places=(README.md CHANGELOG.md ARCHITECTURE.md CONTRIBUTING.md SECURITY.md docs src include examples bench tools tests fuzz
    cmake packaging .github web)
# What others wrote, and what only programs read.
skip='*.svg,*.pic,*.gguf,tests/golden,tests/data,fuzz/corpus,fuzz/dict,src/api/page.html,src/api/page,web/package-lock.json,node_modules'
words=tests/lint/spelling.txt
echo "a sentance" | codespell - >/dev/null && { echo "FAILED: codespell knows no misspelling"; exit 1; }
found=$(codespell --quiet-level 3 --skip "$skip,$words,*/test_spelling.sh" --ignore-words "$words" "${places[@]}")
[ -z "$found" ] || { echo "FAILED:"; echo "$found"; exit 1; }
echo "spelling: nothing found"
