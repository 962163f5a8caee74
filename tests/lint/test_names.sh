#!/bin/bash
# One thing, one name, and the field's own. The words that were replaced do not come back, neither as identifiers nor as
# names of files; and a struct that many files know means one thing.
set -u
cd "${SOURCE_DIR:-$(dirname "$0")/../..}" || exit 1
command -v python3 >/dev/null || { echo "skip: no python3"; exit 77; }
failures=0
fail() {
    echo "$*"
    failures=$((failures + 1))
}
# old WORDS NEW: WORDS is an extended regular expression for a whole identifier.
old() {
    local found
    found=$(grep -E ":($1)$" <<<"$identifiers" | head -3)
    [ -z "$found" ] || fail "the word is $2:"$'\n'"$found"
}
part() { echo "([A-Za-z0-9_]*_)?($1)(_[A-Za-z0-9_]*)?"; } # an identifier that has the word as a part
identifiers=$(find src include -name '*.[ch]' -exec python3 tests/support/identifiers.py {} + &&
    find src -name '*.[ch]' | sed 's,.*/\([^/]*\)\.[ch]$,&:0:\1,')
[ "$(wc -l <<<"$identifiers")" -gt 100000 ] || fail "only $(wc -l <<<"$identifiers") identifiers were found"
old "$(part 'keepers?')" "controller"
old "$(part 'tenants?')" "replica, or server process"
old "front_[a-z0-9_]*|fronts?_(open|close)" "gateway"
old "$(part 'errands?')" "async_worker"
old "near_[a-z0-9_]*" "prefetch_*"
old "deal|deal_[a-z0-9_]*" "sequence_shard"
old "waves|wave_[a-z0-9_]*" "microbatch"
old "$(part 'lookouts?')" "rejoin"
old "$(part 'survivors?')" "membership"
old "$(part 'surveys?')" "calibration"
old "$(part 'paces?')" "step_cost"
old "lookup_[a-z0-9_]*" "ngram_draft"
old "$(part 'verdicts?')" "group_failure"
old "fabric_sum" "fabric_allreduce"
old "sum_shares" "reduce_scatter"
old "fabric_share" "fabric_allgather"
old "0:folder_[a-z0-9_]*" "hf_*"
old "0:(first|misc)" "a file's name that says what is in it"
identifiers=$(grep '^src/\(kernels\|quant\)/' <<<"$identifiers")
old "turn_[a-z0-9_]*" "transpose_*"

for name in share run node model peer plan chat; do
    found=$(grep -rnE "^(static )?(const )?(typedef )?struct $name \{" src include)
    [ "$(grep -c . <<<"$found")" -le 1 ] || fail "struct $name means several things:"$'\n'"$found"
done
[ $failures = 0 ] && echo "names: none of the words that were replaced"
[ $failures = 0 ]
