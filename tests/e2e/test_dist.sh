#!/bin/bash
# `make dist`: a tarball with the version in its name, the same bytes twice, from which CMake and ninja find
# every file of the build and of the tests, and one is compiled.
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"
git -C "$SOURCE_DIR" rev-parse --verify -q HEAD >/dev/null 2>&1 || { echo "skip: no git checkout"; exit 77; }
tarball=$("$SOURCE_DIR/tools/dist.sh" "$work/one" 2>/dev/null) || fail "tools/dist.sh"
again=$("$SOURCE_DIR/tools/dist.sh" "$work/two" 2>/dev/null) || fail "tools/dist.sh, again"
cmp "$tarball" "$again" || fail "the same commit gives two tarballs"
version=$("$LOCKSTEP" --version | cut -d' ' -f2)
name=lockstep-$version
[ "$(basename "$tarball")" = "$name.tar.gz" ] || fail "the tarball is $(basename "$tarball"), lockstep is $version"
(cd "$work/one" && sha256sum -c --quiet "$name.tar.gz.sha256") || fail "its checksum"
grep -q "^## $version" "$SOURCE_DIR/CHANGELOG.md" || fail "CHANGELOG.md says nothing of $version"
mkdir unpacked && tar xzf "$tarball" -C unpacked
if cmake -S "unpacked/$name" -B tree -G Ninja -DLOCKSTEP_TESTS=ON >log 2>&1; then
    ninja -C tree -n >log 2>&1 || fail "a file is missing: $(tail -2 log)"
    ninja -C tree -t commands CMakeFiles/lockstep.dir/src/view/line.c.o | tail -1 >compile
    (cd tree && bash ../compile) >log 2>&1 || fail "it does not compile: $(tail -5 log)"
else
    fail "cmake: $(tail -5 log)"
fi
[ $failures = 0 ] && echo "$name.tar.gz: $(tar tzf "$tarball" | wc -l) files, all that a build needs"
