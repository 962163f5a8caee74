# lib.sh: what the tests with npm packages share: a folder with the packages, and a server.
#
# clients_install  makes $clients, $BUILD_DIR/clients, with tests/support/clients in it and its packages installed;
#                  ends the test with 77 where that is not possible
# and what scratch.sh and server.sh give
clients=$BUILD_DIR/clients
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/server.sh"

# npm_install FOLDER: the packages of its lock file, if they are not there already.
npm_install() {
    if cmp -s "$1/package-lock.json" "$1/installed.json"; then return; fi
    (cd "$1" && timeout 300 npm ci --no-audit --no-fund --ignore-scripts >npm.log 2>&1) ||
        { echo "skip: npm cannot install its packages: $(grep -m 1 'npm error' "$1/npm.log")"; exit 77; }
    cp "$1/package-lock.json" "$1/installed.json"
}

clients_install() {
    command -v node >/dev/null && command -v npm >/dev/null || { echo "skip: node and npm are not there"; exit 77; }
    mkdir -p "$clients"
    exec 9>"$clients/lock" # tests run beside each other
    flock 9
    cp "$SOURCE_DIR"/tests/support/clients/*.{mjs,json} "$clients"
    npm_install "$clients"
    exec 9>&-
}
