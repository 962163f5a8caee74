#!/bin/bash
# tools/test.sh [check|asan|tsan|arm64|macos|fuzz ...]: the named parts of the suite, or all. Each part says
# what it found; the last line sums up: "N passed, N failed, N skipped".
#
#   check  release build, every test, arm64 bits under qemu where that build is possible
#   asan   every test under AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan   what has threads (pool, fabric, engine, discovery, nodes, a device's runs) under ThreadSanitizer
#   arm64  cross build for Linux arm64, the kernels' tests under qemu-user
#   macos  cross build for macOS on arm64, compiled and linked, where npm is
#   fuzz   each fuzz target for a moment, from its corpus (FUZZ_SECONDS, default 20)
#
# After each part: its time, and its ten slowest tests. Compilers run through ccache where it is installed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
JOBS=${JOBS:-$(nproc)}
passed=0 failed=0 skipped=0
options=(-DLOCKSTEP_WERROR="${LOCKSTEP_WERROR:-OFF}" -DLOCKSTEP_TESTS=ON)
if [ -n "${LOCKSTEP_SHARED_DIR:-}" ]; then options+=(-DLOCKSTEP_SHARED_DIR="$LOCKSTEP_SHARED_DIR"); fi

if command -v ccache >/dev/null; then
    # The same file with the same options is compiled once, also by the tests that build lockstep as a part of a project.
    export CMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER:-ccache} CCACHE_NOHASHDIR=1
fi

say() { printf '%s\n' "$*"; }

count() { # passed failed skipped
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

build() { # preset targets [cmake options]: false if it failed, which counts as a failed test
    local preset=$1 targets=$2 log=build-$1.log begin=$SECONDS
    shift 2
    say "== $preset: building"
    # shellcheck disable=SC2086
    if cmake --preset "$preset" "${options[@]}" "$@" >"$log" 2>&1 &&
        cmake --build --preset "$preset" -j "$JOBS" --target $targets >>"$log" 2>&1; then
        rm -f "$log"
        say "== $preset: built in $((SECONDS - begin)) s"
        return 0
    fi
    grep -v '^\[[0-9]*/' "$log" | tail -60
    say "== $preset: the build failed (above; all of it in $log)"
    count 0 1 0
    return 1
}

# Sanitizer builds link the products of kernels/ as release has them: not instrumented, and a third of what there is to compile.
build_products() {
    local log=build-products.log objects
    if cmake --preset release "${options[@]}" >"$log" 2>&1 &&
        objects=$(ninja -C build -t targets all | sed -nE 's,^(.*/(matmul_[a-z0-9]+|vnni_on_avx2|amx_on_avx512)\.c\.o): .*,\1,p') &&
        xargs ninja -C build -j "$JOBS" <<<"$objects" >>"$log" 2>&1; then
        rm -f "$log"
    else
        tail -60 "$log" # the part's own build says what is wrong
    fi
}
products=-DLOCKSTEP_PRODUCTS=$PWD/build

slowest() { # file: what ctest printed
    sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) .* ([0-9.]+) sec.*/\2 \1/p' "$1" | sort -rn | head -10 |
        awk '{printf "   %8.1f s  %s\n", $1, $2}'
}

run_ctest() { # part folder [ctest options]
    local part=$1 dir=$2 out begin=$SECONDS
    shift 2
    out=$dir/ctest.out
    say "== $part: testing"
    # Twice the cores: a test that computes takes two places, one that mostly waits takes one (tests/CMakeLists.txt).
    ctest --test-dir "$dir" -j $((2 * JOBS)) --output-on-failure "$@" 2>&1 | tee "$out" |
        grep -Ev '^ +Start|^Internal ctest|^Test project|^$'
    local p f s
    p=$(grep -cE '^ *[0-9]+/[0-9]+ Test +#.* Passed ' "$out")
    s=$(grep -cE '^ *[0-9]+/[0-9]+ Test +#.*\*\*\*Skipped' "$out")
    f=$(($(grep -cE '^ *[0-9]+/[0-9]+ Test +#' "$out") - p - s))
    grep -hE '^skip: ' "$dir"/Testing/Temporary/LastTest.log 2>/dev/null | sort -u
    if [ $((p + f + s)) = 0 ]; then f=1; fi
    say "== $part: the slowest of its tests, all of them in $((SECONDS - begin)) s:"
    slowest "$out"
    say "== $part: $p passed, $f failed, $s skipped"
    count "$p" "$f" "$s"
}

threaded='^test_(base|fabric|link|group_failure|engine|rank|api|model|discovery|cluster|weights_source|node$|http|gateway|device_vulkan$)'

can_arm64() {
    [ "$(uname -sm)" = "Linux x86_64" ] && command -v apt-get aarch64-linux-gnu-gcc qemu-aarch64 >/dev/null
}

arm64_tests='test_base test_exact test_kernels test_kernels_vector test_quantize test_quantize_file test_quants'

# The tests find build-arm64 and compare its bits with the others'.
build_arm64() {
    if [ "${arm64_built:-}" = yes ]; then return 0; fi
    tools/arm64-sysroot.sh && build arm64 "lockstep $arm64_tests" && arm64_built=yes
}

part_check() {
    if can_arm64; then build_arm64; else say "== arm64: skipped: no cross compiler or qemu-user for it here"; fi
    build release all && run_ctest release build
}

part_arm64() {
    if ! can_arm64; then
        say "== arm64: skipped: no cross compiler or qemu-user for it here"
        count 0 0 1
        return
    fi
    if build_arm64; then
        run_ctest arm64 build-arm64 -R "^(${arm64_tests// /|}|test_kernels_odd)\$"
    fi
}

part_asan() {
    build_products
    build asan tested "$products" && run_ctest asan build-asan -LE '^(lint|vm|once)$'
}

# Drivers of devices are not instrumented: what they do among themselves is not looked at.
part_tsan() {
    local names
    export TSAN_OPTIONS="${TSAN_OPTIONS:+$TSAN_OPTIONS:}ignore_noninstrumented_modules=1"
    build_products
    cmake --preset tsan "${options[@]}" "$products" >build-tsan.log 2>&1 && rm -f build-tsan.log
    names=$(ctest --test-dir build-tsan -N -L unit -R "$threaded" | sed -n 's/^ *Test *#[0-9]*: //p')
    build tsan "lockstep test_support ${names//$'\n'/ }" && run_ctest tsan build-tsan -LE '^(lint|vm|once)$' -R "$threaded"
}

part_macos() {
    say "== macos: building"
    tools/macos-build.sh
    case $? in
    0) count 1 0 0 ;;
    77) count 0 0 1 ;;
    *) count 0 1 0 ;;
    esac
}

fuzz_one() { # NAME SECONDS: leaves NAME.log, and NAME.passed beside it
    local target=fuzz/$1
    mkdir -p "new/$1" "../fuzz/corpus/${1#fuzz_}"
    "$target" -max_total_time="$2" -timeout=10 -rss_limit_mb=2048 -print_final_stats=0 "new/$1" \
        "../fuzz/corpus/${1#fuzz_}" >"$target.log" 2>&1 && : >"$target.passed"
}

part_fuzz() {
    local name names seconds=${FUZZ_SECONDS:-20}
    build_products
    options[1]=-DLOCKSTEP_TESTS=OFF
    build fuzz fuzz_targets "$products" || return
    names=$(cd build-fuzz/fuzz && find . -maxdepth 1 -type f -executable -name 'fuzz_*' -printf '%f\n' | sort)
    rm -f build-fuzz/fuzz/*.passed
    for name in $names; do
        while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do wait -n; done
        (cd build-fuzz && fuzz_one "$name" "$seconds") &
    done
    wait
    for name in $names; do
        if [ -e "build-fuzz/fuzz/$name.passed" ]; then
            say "   $name: no finding in $seconds s"
            count 1 0 0
        else
            tail -40 "build-fuzz/fuzz/$name.log"
            say "   $name: a finding (above; the input is in build-fuzz/)"
            count 0 1 0
        fi
    done
}

if [ $# = 0 ]; then set -- check arm64 macos asan tsan fuzz; fi
for part; do
    begin=$SECONDS
    "part_$part"
    say "== $part: $((SECONDS - begin)) s"
done
mkdir -p build
say "$passed passed, $failed failed, $skipped skipped" | tee build/test-summary
[ "$failed" = 0 ]
