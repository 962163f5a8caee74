#!/bin/bash
# The files that every system compiles use nothing that only Linux has (not_on_darwin.h): what belongs to one system is
# in a file *_linux.c or *_darwin.c, or behind #ifdef. It is no compiler for macOS, but what it finds would not compile there.
set -u
cd "${SOURCE_DIR:-$(dirname "$0")/..}" || exit 1
flags=(-fsyntax-only -std=gnu17 -w -D_GNU_SOURCE -DLOCKSTEP_VERSION='"0"' -Isrc -Iinclude -include tests/not_on_darwin.h)
read -ra libraries < <(pkg-config --cflags jansson libpcre2-8 libutf8proc libsodium hwloc libmicrohttpd libcurl gnutls libedit)
command -v gcc >/dev/null || { echo "skip: no gcc, whose pragma this needs"; exit 77; }
check() { gcc "${flags[@]}" "${libraries[@]}" "$1" 2>&1 | grep -E "poisoned|undeclared"; }
# What must be found is found.
probe=$(mktemp --suffix=.c)
trap 'rm -f "$probe"' EXIT
echo 'int f(int fd) { return accept4(fd, 0, 0, 0); }' >"$probe"
check "$probe" >/dev/null || { echo "FAILED: accept4 is not noticed"; exit 1; }
echo 'int f(int fd) { return accept(fd, 0, 0); }' >"$probe"
check "$probe" && { echo "FAILED: accept is an error"; exit 1; }
found=$(find src -name '*.c' ! -name '*_linux.c' ! -name '*_darwin.c' ! -name '*neon.c' ! -name '*i8mm.c' ! -name '*avx*.c' ! -name '*amx.c' |
    while read -r file; do check "$file"; done)
[ -z "$found" ] || { echo "FAILED:"; echo "$found"; exit 1; }
# An enumerator too, which #undef leaves: net_socket() has it.
found=$(grep -rl SOCK_CLOEXEC src --include='*.[ch]' | grep -v '_linux.c$\|^src/fabric/net.c$')
[ -z "$found" ] || { echo "FAILED: SOCK_CLOEXEC, instead of net_socket(): $found"; exit 1; }
echo "portable: nothing that only Linux has"
