#!/bin/bash
# Doxygen makes the reference of the public header without a warning, so everything in it is documented (make docs).
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"
if ! command -v doxygen >/dev/null; then
    echo "skip: no doxygen, which takes 120 MB with its libraries, so tools/setup.sh does not install it"
    exit 77
fi
mkdir docs
cp -r "$SOURCE_DIR/include" "$SOURCE_DIR/examples" .
cp "$SOURCE_DIR/docs/library.md" docs
mkdir build
doxygen "$SOURCE_DIR/docs/Doxyfile" >out 2>&1 || fail "doxygen: $(cat out)"
[ ! -s out ] || fail "doxygen says: $(cat out)"
for name in lockstep_open lockstep_generate lockstep_eval lockstep_options json_schema; do
    grep -rqs "$name" build/reference/html || fail "the reference has no $name"
done
# A function without a comment would be found.
echo 'void lockstep_undocumented(void);' >>include/lockstep/lockstep.h
doxygen "$SOURCE_DIR/docs/Doxyfile" >out 2>&1 && fail "a function without a comment is not noticed"
[ "$failures" = 0 ]
