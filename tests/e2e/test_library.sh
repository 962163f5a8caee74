#!/bin/bash
# The library as other programs see it: both of its files show lockstep_* alone and need little, a program may use any name
# of ours for itself, and another project gets it with find_package, add_subdirectory or pkg-config.
# labels: once slow
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"
finish() {
    [ "$failures" = 0 ]
    exit
}
[ "$(uname)" = Linux ] || { echo "skip: looks into ELF files"; exit 77; }
if grep -q "^LOCKSTEP_SANITIZE:STRING=." "$BUILD_DIR/CMakeCache.txt"; then
    echo "skip: not with a sanitizer, which replaces the library"
    exit 77
fi
for tool in nm cmake ninja pkg-config; do
    command -v $tool >/dev/null || { echo "skip: no $tool"; exit 77; }
done
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
question="What is a bit bucket?"
cc=${CC:-$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$BUILD_DIR/CMakeCache.txt")}

# ---- names -----------------------------------------------------------------------------------
tr '\n' ' ' <"$SOURCE_DIR/include/lockstep/lockstep.h" | grep -oE 'LOCKSTEP_API[^(;]*[ *]lockstep_[a-z_]+\(' |
    grep -oE 'lockstep_[a-z_]+\($' | tr -d '(' | sort -u >declared
[ "$(wc -l <declared)" -ge 20 ] || fail "the header declares $(wc -l <declared) functions?"
shown() { # nm's options and a file: the names that it defines for others
    nm "$@" | awk 'NF == 3 { print $3 }' | sort -u
}
shown -g --defined-only "$BUILD_DIR/liblockstep.a" | diff declared - || fail "liblockstep.a does not show what lockstep.h declares (<)"
shown -g --defined-only "$BUILD_DIR/liblockstep.so" | diff declared - || fail "liblockstep.so, nm -g"
shown -D --defined-only "$BUILD_DIR/liblockstep.so" | diff declared - || fail "liblockstep.so, nm -D"
if nm "$BUILD_DIR/liblockstep.a" | grep -E ' (http|service|controller|gateway|deployments|catalog|replica)_'; then
    fail "server, cluster or node code is in the library"
fi
abi=$(sed -n 's/^set(LOCKSTEP_ABI \([0-9]*\))/\1/p' "$SOURCE_DIR/cmake/library.cmake")
if command -v readelf >/dev/null; then
    readelf -dW "$BUILD_DIR/liblockstep.so" >dynamic
    grep -q "SONAME.*\[liblockstep.so.$abi\]" dynamic || fail "no SONAME: $(cat dynamic)"
    if grep -E 'NEEDED.*(curl|gnutls|edit)' dynamic; then fail "it needs what only the program needs"; fi
fi

# ---- a program with our names ------------------------------------------------------------------
# All names that the library's own files show one another, as functions of the program.
nm -g --defined-only "$BUILD_DIR/liblockstep_core.a" 2>/dev/null | awk '$2 == "T" { print $3 }' | grep -v '^lockstep_' | sort -u >ours
grep -qx median ours || fail "median() is no name of ours any more"
{
    sed 's/.*/int &(int x);\nint &(int x) { return x + 1; }/' ours
    echo '#define main example'
    echo '#include "generate.c"'
    echo '#undef main'
    echo 'int main(int argc, char **argv) { return median(41) == 42 ? example(argc, argv) : 3; }'
} >named.c
"$LOCKSTEP" run "$model" -q -n 100 --temp 0 -p "$question" >expected || fail "lockstep run"
answers() { # PROGRAM: with two ranks, whose worker is the program of this build
    LOCKSTEP_WORKER=$LOCKSTEP "$@" "$model" 2 "$question" >answer 2>&1 || fail "$*: $(cat answer)"
    cmp -s answer expected || fail "$*: answers '$(cat answer)'"
}
compile=("$cc" -std=c17 -fno-builtin -I "$SOURCE_DIR/examples" -I "$SOURCE_DIR/include" named.c)
# shellcheck disable=SC2046
if "${compile[@]}" "$BUILD_DIR/liblockstep.a" $(pkg-config --libs jansson libpcre2-8 libutf8proc libsodium hwloc) -lm -lpthread -ldl -lrt \
    -o static >log 2>&1; then answers ./static; else fail "static: $(tail -5 log)"; fi
# -rdynamic: the program's names come first wherever the dynamic linker looks for one.
if "${compile[@]}" -rdynamic -L "$BUILD_DIR" -llockstep -o dynamic >log 2>&1; then
    export LD_LIBRARY_PATH=$BUILD_DIR
    answers ./dynamic
    unset LD_LIBRARY_PATH
else
    fail "dynamic: $(tail -5 log)"
fi

# ---- other projects ----------------------------------------------------------------------------
cmake --install "$BUILD_DIR" --prefix "$work/tree" >log || fail "install: $(cat log)"
libdir=$(dirname "$(find "$work/tree" -name 'liblockstep.so')")
[ "$(readlink "$libdir/liblockstep.so")" = "liblockstep.so.$abi" ] || fail "liblockstep.so points to $(readlink "$libdir/liblockstep.so")"
project() { # NAME: the project's own lines come from stdin
    mkdir "$1"
    {
        echo 'cmake_minimum_required(VERSION 3.20)'
        echo 'project(outside C)'
        cat
    } >"$1/CMakeLists.txt"
    cp "$SOURCE_DIR/examples/generate.c" "$1"
}
build() { # NAME [cmake options]
    local name=$1
    shift
    cmake -S "$name" -B "$name/build" -G Ninja "-DCMAKE_C_COMPILER=$cc" "-DCMAKE_PREFIX_PATH=$work/tree" "$@" >log 2>&1 &&
        cmake --build "$name/build" >>log 2>&1 || { fail "$name: $(tail -20 log)"; return 1; }
}
project package <<'END'
find_package(lockstep REQUIRED)
find_package(lockstep REQUIRED COMPONENTS static)
foreach(kind lockstep shared static)
  add_executable(with_${kind} generate.c)
  target_link_libraries(with_${kind} PRIVATE lockstep::${kind})
endforeach()
END
if build package; then
    for kind in lockstep shared static; do answers package/build/with_$kind; done
    ldd package/build/with_lockstep | grep -q "$libdir/liblockstep.so.$abi" || fail "lockstep::lockstep is not the shared library"
    if ldd package/build/with_static | grep lockstep; then fail "lockstep::static is linked dynamically"; fi
fi
project only_static <<'END'
find_package(lockstep 0.1 REQUIRED COMPONENTS static)
add_executable(generate generate.c)
target_link_libraries(generate PRIVATE lockstep::lockstep)
END
if build only_static && ldd only_static/build/generate | grep lockstep; then fail "COMPONENTS static: linked dynamically"; fi
project too_new <<'END'
find_package(lockstep 99)
if(lockstep_FOUND)
  message(FATAL_ERROR "found")
endif()
END
build too_new
# As a part of the project. Without its program, it needs what the library needs; compiled without optimization, the
# library has the same bits.
project part <<END
set(LOCKSTEP_PROGRAM OFF)
add_subdirectory("$SOURCE_DIR" lockstep)
foreach(kind lockstep shared)
  add_executable(with_\${kind} generate.c)
  target_link_libraries(with_\${kind} PRIVATE lockstep::\${kind})
endforeach()
END
export CCACHE_NOHASHDIR=1 # the folder is another each time, which only debuggers would mind
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache); fi
if build part -DCMAKE_BUILD_TYPE=Debug "${launcher[@]}"; then
    answers part/build/with_lockstep
    answers part/build/with_shared
    if [ -e part/build/lockstep/lockstep ]; then fail "LOCKSTEP_PROGRAM=OFF builds the program"; fi
fi
PKG_CONFIG_PATH=$libdir/pkgconfig
export PKG_CONFIG_PATH
[ "$(pkg-config --libs-only-l lockstep | xargs)" = -llockstep ] || fail "lockstep.pc: $(pkg-config --libs-only-l lockstep)"
# shellcheck disable=SC2046
if "$cc" -std=c17 "$SOURCE_DIR/examples/generate.c" $(pkg-config --cflags --libs lockstep) "-Wl,-rpath,$libdir" -o with_pc >log 2>&1; then
    answers ./with_pc
else
    fail "pkg-config: $(cat log)"
fi
rm "$libdir"/liblockstep.so*
# shellcheck disable=SC2046
if "$cc" -std=c17 "$SOURCE_DIR/examples/generate.c" $(pkg-config --static --cflags --libs lockstep) -o with_pc_static >log 2>&1; then
    answers ./with_pc_static
else
    fail "pkg-config --static: $(cat log)"
fi
finish
