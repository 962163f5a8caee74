#!/bin/bash
# The sources are as `make format` leaves them, by the clang-format whose taste they follow: others
# differ in small things.
set -u
cd "${SOURCE_DIR:-$(dirname "$0")/../..}" || exit 1
version=$(clang-format --version 2>/dev/null | sed -n 's/.*version \([0-9]*\).*/\1/p')
if [ "$version" != 14 ]; then
    echo "skip: the sources are formatted by clang-format 14; here is ${version:-none}"
    exit 77
fi
# What clang-format leaves alone: comments. (API tables and texts, with their quotes, may be wider.)
if grep -rnE --include='*.[ch]' '^[^"]{101,}$' src include tests fuzz bench examples; then
    echo "style: these lines are wider than 100 columns"
    exit 1
fi
if find src include tests fuzz bench examples -name '*.[ch]' -print0 | xargs -0 clang-format --dry-run -Werror; then
    echo "style: as make format leaves it"
else
    echo "run make format"
    exit 1
fi
