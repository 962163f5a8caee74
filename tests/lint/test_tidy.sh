#!/bin/bash
# clang-tidy finds nothing in src with the checks of .clang-tidy: about half a minute of one core.
set -u
cd "${SOURCE_DIR:-$(dirname "$0")/../..}" || exit 1
command -v clang-tidy >/dev/null || { echo "skip: no clang-tidy"; exit 77; }
[ -e "${BUILD_DIR:-build}/compile_commands.json" ] || { echo "skip: no compile_commands.json in ${BUILD_DIR:-build}"; exit 77; }
# It finds what it is there for.
probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT
printf 'char f(const char *s);\nchar f(const char *s) {\n    if (s == 0);\n        return 0;\n    return *s;\n}\n' >"$probe/probe.c"
clang-tidy --quiet --config-file=.clang-tidy "$probe/probe.c" -- -std=gnu17 >"$probe/out" 2>/dev/null && { echo "FAILED: a stray semicolon is not noticed"; exit 1; }
# Those that this build compiles.
python3 - "${BUILD_DIR:-build}/compile_commands.json" "$PWD/src/" <<'EOF' >"$probe/files"
import json, sys
print("\n".join(sorted({e["file"] for e in json.load(open(sys.argv[1])) if e["file"].startswith(sys.argv[2])})))
EOF
[ "$(wc -l <"$probe/files")" -ge 100 ] || { echo "FAILED: only $(wc -l <"$probe/files") files are known"; exit 1; }
if ! xargs -P "$(nproc)" -n 10 clang-tidy --quiet -p "${BUILD_DIR:-build}" <"$probe/files" >"$probe/out" 2>/dev/null; then
    echo "FAILED:"
    grep -E '(error|warning):' "$probe/out" | sort -u
    exit 1
fi
echo "clang-tidy: nothing in $(wc -l <"$probe/files") files"
