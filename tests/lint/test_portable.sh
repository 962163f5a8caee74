#!/bin/bash
# The files that every system compiles use nothing that only Linux has (not_on_darwin.h): what belongs to one system is
# in a file *_linux.c or *_darwin.c, or behind #ifdef. It is no compiler for macOS, but what it finds would not compile there.
set -u
cd "${SOURCE_DIR:-$(dirname "$0")/../..}" || exit 1
flags=(-fsyntax-only -std=gnu17 -w -D_GNU_SOURCE -DLOCKSTEP_VERSION='"0"' -Isrc -Iinclude -include tests/support/not_on_darwin.h)
read -ra libraries < <(pkg-config --cflags jansson libpcre2-8 libutf8proc libsodium hwloc libcurl gnutls libedit)
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
found=$(grep -rl SOCK_CLOEXEC src --include='*.[ch]' | grep -v '_linux.c$\|^src/net/net.c$')
[ -z "$found" ] || { echo "FAILED: SOCK_CLOEXEC, instead of net_socket(): $found"; exit 1; }
# Nor a file of Linux's /proc, but where a missing one means what is so on macOS: no quota (quota.c).
found=$(grep -rn '"/proc/' src --include='*.[ch]' | grep -v '^[^:]*_linux\.c:\|^src/base/quota\.c:')
[ -z "$found" ] || { echo "FAILED: /proc, which only Linux has: $found"; exit 1; }
# tools/setup.sh on a Mac that has every formula: nothing is missing, neither what is no formula nor what another system
# has. brew without a formula to install is an error, as brew's own is.
mac=$(mktemp -d)
trap 'rm -rf "$probe" "$mac"' EXIT
for tool in bash ls id; do ln -s "$(type -P "$tool")" "$mac/$tool"; done
for tool in cmake ninja cc glslc ccache clang clang-format python3 codespell curl openssl; do ln -s "$(type -P true)" "$mac/$tool"; done
printf '#!/bin/bash\ncase "$1" in -sm) echo Darwin arm64 ;; *) echo Darwin ;; esac\n' >"$mac/uname"
printf '#!/bin/bash\ncase "$*" in *libibverbs* | *ucx* | *"$LACKS"*) exit 1 ;; esac\n' >"$mac/pkg-config"
printf '#!/bin/bash\nshift\n[ $# != 0 ] && echo "brew installs $*"\n' >"$mac/brew"
chmod +x "$mac/uname" "$mac/pkg-config" "$mac/brew"
for part in build test; do
    said=$(LACKS=no-such PATH=$mac bash tools/setup.sh $part 2>&1) || { echo "FAILED: setup.sh $part on a Mac: $said"; exit 1; }
    [ -z "$said" ] || { echo "FAILED: setup.sh $part on a Mac lacks something: $said"; exit 1; }
    said=$(LACKS=hwloc PATH=$mac bash tools/setup.sh $part 2>&1) || { echo "FAILED: setup.sh $part on a Mac: $said"; exit 1; }
    grep -qx "brew installs hwloc" <<<"$said" || { echo "FAILED: setup.sh $part on a Mac without hwloc: $said"; exit 1; }
done
echo "portable: nothing that only Linux has"
