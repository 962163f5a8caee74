#!/bin/bash
# Where Vulkan's headers or glslc are missing, everything compiles: the files that know of the one or the other do so without
# their macros, with warnings as errors.
set -u
cd "${SOURCE_DIR:-$(dirname "$0")/../..}" || exit 1
flags=(-fsyntax-only -std=gnu17 -Wall -Wextra -Werror -D_GNU_SOURCE -DLOCKSTEP_VERSION='"0"' -Isrc -Iinclude)
read -ra libraries < <(pkg-config --cflags jansson libpcre2-8 libutf8proc libsodium hwloc libcurl gnutls libedit)
mapfile -t files < <(grep -rl "LOCKSTEP_HAS_VULKAN\|LOCKSTEP_HAS_SHADERS" src tests/unit --include='*.c')
[ ${#files[@]} -ge 10 ] || { echo "FAILED: only ${#files[@]} files know of Vulkan or shaders"; exit 1; }
cases=("")
cc -E - <<<"#include <vulkan/vulkan_core.h>" >/dev/null 2>&1 && cases+=(-DLOCKSTEP_HAS_VULKAN)
for has in "${cases[@]}"; do
    for file in "${files[@]}"; do
        found=$(cc "${flags[@]}" ${has:+"$has"} "${libraries[@]}" "$file" 2>&1) ||
            { echo "FAILED: $file with ${has:-neither headers nor shaders}:"; echo "$found"; exit 1; }
    done
done
echo "without Vulkan, and without shaders: ${#files[@]} files compile"
