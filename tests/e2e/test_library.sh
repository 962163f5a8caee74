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
for tool in nm cmake make ninja pkg-config python3; do
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

# ---- the examples ------------------------------------------------------------------------------
answers "$BUILD_DIR/examples/generate"
"$BUILD_DIR/examples/stream" "$model" 'root ::= ("yes" | "no") ", " [a-z ]{5,40} "."' "$question" "Are you sure?" >answer ||
    fail "stream: $(cat answer)"
[ "$(grep -cEx '(yes|no), [a-z ]{5,40}\.' answer)" = 2 ] || fail "stream: $(cat answer)"
"$BUILD_DIR/examples/stream" "$model" 'root ::= (' "$question" >answer && fail "stream: a wrong grammar"
grep -q "line 1" answer || fail "stream: $(cat answer)"
"$BUILD_DIR/examples/logits" "$model" "A bit bucket is" "A kludge is" >answer || fail "logits: $(cat answer)"
[ "$(grep -cE "^[0-9]+ tokens, log-probability -[0-9.]+, next '.+': A (bit bucket|kludge) is$" answer)" = 2 ] || fail "logits: $(cat answer)"
# The second text as `lockstep eval` has its logits.
ids=$(printf 'A kludge is' | "$LOCKSTEP" tokenize "$model" | xargs | tr ' ' ',')
"$LOCKSTEP" eval "$model" -q --ids "$ids" --logits logits.f32 >eval 2>&1 || fail "eval: $(cat eval)"
python3 - "$ids" <<'END' || fail "logits: another log-probability: $(cat answer)"
import array, math, re, sys
ids = [int(i) for i in sys.argv[1].split(",")]
rows = array.array("f", open("logits.f32", "rb").read())
n = len(rows) // len(ids)
total = 0
for i, following in enumerate(ids[1:]):
    row = rows[i * n : (i + 1) * n]
    total += row[following] - max(row) - math.log(math.fsum(math.exp(x - max(row)) for x in row))
said = re.findall(r"log-probability (\S+),", open("answer").read())[1]
sys.exit(abs(total - float(said)) > 2e-6)  # it is printed with six digits
END

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
find_package(lockstep 0.2 REQUIRED COMPONENTS static)
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
# As a part of the project. Without its program it needs no more than the library does. make looks at nothing but times,
# so it takes the objects of this build for its own, and the test need not compile everything again.
project part <<END
set(LOCKSTEP_PROGRAM OFF)
add_subdirectory("$SOURCE_DIR" lockstep)
foreach(kind lockstep shared)
  add_executable(with_\${kind} generate.c)
  target_link_libraries(with_\${kind} PRIVATE lockstep::\${kind})
endforeach()
END
objects=part/build/lockstep/CMakeFiles/lockstep_core.dir
if cmake -S part -B part/build -G "Unix Makefiles" "-DCMAKE_C_COMPILER=$cc" >log 2>&1; then
    cp -r "$BUILD_DIR/CMakeFiles/lockstep_core.dir/src" $objects
    find $objects -name '*.o' -exec touch -d '1 hour' {} +
    make -C part/build >log 2>&1 || fail "add_subdirectory: $(tail -20 log)"
    grep -c "Building C" log >compiled
    [ "$(cat compiled)" -le 4 ] || echo "add_subdirectory: compiled $(cat compiled) files: the objects were not taken"
    answers part/build/with_lockstep
    answers part/build/with_shared
    if [ -e part/build/lockstep/lockstep ]; then fail "LOCKSTEP_PROGRAM=OFF builds the program"; fi
else
    fail "add_subdirectory: $(tail -20 log)"
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
# The archive with the shared libraries of others. --static is for those who have archives of them all.
pkg-config --static --libs lockstep >static_libs
for lib in -llockstep -ljansson -lpcre2-8 -lutf8proc -lsodium -lhwloc -lm -lpthread; do
    grep -qwe "$lib" static_libs || fail "pkg-config --static names no $lib: $(cat static_libs)"
done
needs=$(pkg-config --print-requires-private lockstep)
# shellcheck disable=SC2046,SC2086
if "$cc" -std=c17 "$SOURCE_DIR/examples/generate.c" $(pkg-config --cflags lockstep) "$libdir/liblockstep.a" \
    $(pkg-config --libs $needs) -lm -lpthread -lrt -ldl -o with_archive >log 2>&1; then
    answers ./with_archive
else
    fail "the archive: $(cat log)"
fi
[ $failures = 0 ]
