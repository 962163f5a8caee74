#!/bin/bash
# tools/coverage.sh [ctest options]: builds into build-coverage with gcov's counters, runs the tests (all, or those that
# the options choose: -R '^test_base$'), and writes build-coverage/html/index.html. The last lines are the sums.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
JOBS=${JOBS:-$(nproc)}
dir=build-coverage
for tool in gcov lcov genhtml; do
    command -v $tool >/dev/null || { echo "coverage: needs $tool (Debian: gcc and lcov)" >&2; exit 1; }
done
# -O1: at -O0 the kernels take hours. Counters of threads are exact by atomic updates.
cmake -S . -B "$dir" -G Ninja -DLOCKSTEP_TESTS=ON -DLOCKSTEP_HARDENING=OFF -DCMAKE_BUILD_TYPE=Debug \
    -DCMAKE_C_FLAGS_DEBUG="-O1 -g --coverage -fprofile-update=atomic" ${LOCKSTEP_SHARED_DIR:+-DLOCKSTEP_SHARED_DIR="$LOCKSTEP_SHARED_DIR"} >"$dir.log"
cmake --build "$dir" -j "$JOBS" >>"$dir.log" || { tail -20 "$dir.log"; exit 1; }
rm -f "$dir.log"
find "$dir" -name '*.gcda' -delete
ctest --test-dir "$dir" -j "$JOBS" --output-on-failure "$@" || echo "coverage: tests failed; what ran is counted"
lcov --quiet --capture --directory "$dir" --base-directory . --output-file "$dir/all.info" --ignore-errors gcov,source 2>"$dir/lcov.log"
lcov --quiet --extract "$dir/all.info" "$PWD/src/*" --output-file "$dir/src.info"
genhtml --quiet --prefix "$PWD" --output-directory "$dir/html" "$dir/src.info"
lcov --summary "$dir/src.info" 2>&1 | grep -E 'lines|functions'
echo "$dir/html/index.html"
