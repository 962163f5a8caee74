#!/bin/bash
# The page's view of a cluster in a browser (Debian's chromium), before a server that tells of eight machines and five models.
# labels: once
set -u
. "$SOURCE_DIR/tests/support/clients/lib.sh"
for tool in node npm chromium; do
    command -v $tool >/dev/null || { echo "skip: $tool is not there"; exit 77; }
done
# A copy, so that npm's packages lie in the build folder.
copy=$BUILD_DIR/page_cluster
mkdir -p "$copy/tests/support/page" "$copy/src/api"
cp "$SOURCE_DIR"/tests/support/page/{*.mjs,*.json,.npmrc} "$copy/tests/support/page"
cp "$SOURCE_DIR"/src/api/page.html "$copy/src/api"
npm_install "$copy/tests/support/page"
cd "$copy/tests/support/page" && timeout 250 node view.mjs || fail "the view"
[ $failures = 0 ]
