#!/bin/bash
# Compiles every file of src, tests, bench, examples and fuzz for macOS on arm64 with -Werror, and links the programs.
# Nothing runs: a symbol that neither macOS 13's libSystem nor the import list of a library has is an error.
# Exits with 77 and a sentence where there is no cross compiler (tools/macos-sysroot.sh).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
JOBS=${JOBS:-$(nproc)}
out=build-macos log=build-macos.log
compiler=$PWD/build-macos-sysroot/bin/clang

fail() {
    echo "FAILED: macos: $*"
    exit 1
}

tools/macos-sysroot.sh || exit $?

# The compiler is a script that is written anew: ccache may know it by its version.
export CCACHE_COMPILERCHECK=string:zig-0.11.0
if ! cmake --preset macos -DLOCKSTEP_WERROR=ON -DLOCKSTEP_TESTS=ON >"$log" 2>&1 ||
    ! cmake --build "$out" -j "$JOBS" -- -k 0 >>"$log" 2>&1; then
    grep -v '^\[[0-9]*/' "$log" | grep -E 'error|undefined|FAILED' | cut -c1-300 | head -40
    fail "the build (all of it in $log)"
fi
rm -f "$log"

flags=(-std=gnu17 -D_GNU_SOURCE -D_DARWIN_C_SOURCE -DLOCKSTEP_VERSION='"0"' -Wall -Wextra -Wpedantic -Wshadow -Wconversion
    -Wno-sign-conversion -Werror -Isrc -Iinclude)
# A fuzz target has no main() without libFuzzer, which the cross compiler lacks.
for file in fuzz/*.c; do "$compiler" "${flags[@]}" -fsyntax-only -c "$file" || fail "$file"; done
# What is missing is noticed.
echo 'int nobody_has_this(void); int main(void) { return nobody_has_this(); }' >"$out/probe.c"
"$compiler" -c "$out/probe.c" -o "$out/probe.o" || fail "the probe does not compile"
if "$compiler" "$out/probe.o" -o "$out/probe" >/dev/null 2>&1; then fail "a program with an unknown symbol is linked"; fi

# And what was made is for a Mac.
n=0
for program in "$out/lockstep" "$out"/bench/bench_* $(find "$out/tests" -name 'test_*' -type f ! -name '*.*') $(find "$out/examples" -maxdepth 1 -type f -perm -u+x); do
    [ "$(od -An -tx4 -N8 "$program" | tr -d ' \n')" = feedfacf0100000c ] || fail "$program is not a Mach-O file for arm64"
    n=$((n + 1))
done
[ "$n" -ge 10 ] || fail "only $n programs were linked"
echo "macos: every file compiled, $n programs linked for macOS 13 on arm64 (none was run)"
