#!/bin/bash
# A shell test that counts its failures ends with that count: else what it prints or asks last decides. One that counts none
# leaves at the first.
set -u
cd "${SOURCE_DIR:-$(dirname "$0")/../..}" || exit 1
failures=0
fail() {
    echo "$*"
    failures=$((failures + 1))
}
# What is sourced may count: then the test does, too.
counts() { grep -qE 'failures=|support/(scratch|clients/lib)\.sh' "$1"; }
ends_with_the_count() { tail -n 1 "$1" | grep -qE '^(\[ "\$[a-z]+" = "?\$[a-z]+"? \] && )?\[ "?\$failures"? = 0 \]( && echo .*)?$'; }
leaves_at_the_first() { grep -qE 'set -e|exit 1|^exec |support/vm\.sh' "$1"; }
# Its trap would take the place of scratch.sh's, which ends what was started and counts: at_end is for that.
has_a_trap_too() { grep -qE '^\. .*support/(scratch|clients/lib)\.sh' "$1" && grep -qE '^ *trap .* EXIT' "$1"; }
check() {
    if has_a_trap_too "$1"; then
        echo "$1 has a trap beside scratch.sh's"
        false
    elif counts "$1"; then
        ends_with_the_count "$1" || { echo "$1 ends with '$(tail -n 1 "$1")', not with [ \$failures = 0 ]"; false; }
    else
        leaves_at_the_first "$1" || { echo "$1 counts no failures and leaves at none: can it fail?"; false; }
    fi
}

# What must be found is found.
probe=$(mktemp)
trap 'rm -f "$probe"' EXIT
for text in 'failures=0\necho done' '. "$SOURCE_DIR/tests/support/scratch.sh"\nexit 0' 'true' 'failures=0\n[ $failures = 0 ] || true' \
    '. "$SOURCE_DIR/tests/support/scratch.sh"\ntrap end EXIT\n[ $failures = 0 ]'; do
    printf '%b\n' "$text" >"$probe"
    check "$probe" >/dev/null && fail "this is not found: $text"
done
for text in 'failures=0\n[ $failures = 0 ]' 'failures=0\n[ "$failures" = 0 ] && echo done' 'false || exit 1\necho done'; do
    printf '%b\n' "$text" >"$probe"
    check "$probe" || fail "this is as it should be: $text"
done

n=0
for script in tests/e2e/test_*.sh tests/cluster/test_*.sh tests/vm/test_*.sh tests/lint/test_*.sh; do
    n=$((n + 1))
    found=$(check "$script") || fail "$found"
done
[ $n -ge 50 ] || fail "only $n tests were found"
[ $failures = 0 ] && echo "endings: $n shell tests end with their failures"
[ $failures = 0 ]
