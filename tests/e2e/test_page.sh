#!/bin/bash
# The chat page: its parts, whether src/api/page.html is what they give, and how it behaves in a browser
# (Debian's chromium) before a running server.
# labels: once
set -u
. "$SOURCE_DIR/tests/support/clients/lib.sh"
for tool in node npm chromium; do
    command -v $tool >/dev/null || { echo "skip: $tool is not there"; exit 77; }
done
# A copy, so that npm's packages lie in the build folder.
copy=$BUILD_DIR/page
mkdir -p "$copy/web" "$copy/page"
rm -rf "$copy/web/src" "$copy/src"
cp -r "$SOURCE_DIR"/web/{src,*.mjs,*.json,.npmrc} "$copy/web"
cp "$SOURCE_DIR"/tests/support/page/{*.mjs,*.json,.npmrc} "$copy/page"
mkdir -p "$copy/src/api"
cp -r "$SOURCE_DIR"/src/api/page{.html,} "$copy/src/api"
npm_install "$copy/web"
npm_install "$copy/page"
cd "$copy/web" || exit 1
timeout 100 node --test src/ || fail "the parts of the page"
timeout 100 node build.mjs --check || fail "page.html is not what its parts give"
serve_start "$SOURCE_DIR/models/jargon-3m-f16.gguf" --ranks 2 --threads 1
cd "$copy/page" || exit 1
for checks in page rich chats; do
    timeout 280 node $checks.mjs "$url" || fail "$checks"
done
[ $failures = 0 ]
