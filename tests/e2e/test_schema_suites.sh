#!/bin/bash
# Schemas that others wrote: maskbench's accepted and enforced, and the table of the official suite in docs/schemas.md as
# it is made again.
set -u
schemas=$SHARED_DIR/golden/schemas
[ -r "$schemas/maskbench.jsonl.gz" ] || { echo "skip: $schemas is not there"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"
suites="$SOURCE_DIR/tests/support/schema_suites.py"

python3 "$suites" maskbench "$LOCKSTEP" "$schemas/maskbench.jsonl.gz" || fail "maskbench"
python3 "$suites" table "$LOCKSTEP" "$schemas/JSON-Schema-Test-Suite" >table || fail "the table: exit status $?"
sed -n '/^<!-- table -->$/,/^<!-- end of table -->$/p' "$SOURCE_DIR/docs/schemas.md" | sed '1d;$d' >documented
diff documented table || fail "docs/schemas.md has another table than tests/support/schema_suites.py makes"

[ $failures -eq 0 ] && echo "schema suites: all as expected"
[ $failures = 0 ]
