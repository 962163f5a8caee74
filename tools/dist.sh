#!/bin/bash
# tools/dist.sh [FOLDER]: what is committed, as FOLDER/lockstep-VERSION.tar.gz (default build/), and its SHA-256 beside it.
# The same commit gives the same bytes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-build}
version=$(sed -n 's/^project(lockstep VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
[ -n "$version" ] || { echo "dist: CMakeLists.txt names no version" >&2; exit 1; }
git rev-parse --verify -q HEAD >/dev/null || { echo "dist: a tarball is made from a git checkout" >&2; exit 1; }
[ -z "$(git status --porcelain --untracked-files=no)" ] || echo "dist: what is not committed is left out" >&2
mkdir -p "$out"
name=lockstep-$version
git archive --format=tar --prefix="$name/" HEAD | gzip -n >"$out/$name.tar.gz"
(cd "$out" && { sha256sum "$name.tar.gz" || shasum -a 256 "$name.tar.gz"; } >"$name.tar.gz.sha256" 2>/dev/null)
echo "$out/$name.tar.gz"
