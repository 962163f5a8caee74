#!/bin/bash
# What `make install` leaves is enough: a program elsewhere builds with pkg-config against the installed
# tree and runs the bundled model on two ranks, whose workers are the installed `lockstep`.
# labels: once
set -eu
if ! command -v pkg-config >/dev/null || ! command -v cmake >/dev/null; then
    echo "skip: needs pkg-config and cmake"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAILED: $*"
    exit 1
}

DESTDIR="$work/image" cmake --install "$BUILD_DIR" --prefix /opt/lockstep >/dev/null
cmake --install "$BUILD_DIR" --prefix "$work/tree" >"$work/log"
# make install, without building and with the prefix of this build left alone: its folders are for everybody.
if command -v make >/dev/null; then
    mkdir "$work/stand-in"
    printf '#!/bin/sh\nif [ "$1" = --install ]; then exec "%s" --install "%s" --prefix /opt/lockstep; fi\n' \
        "$(command -v cmake)" "$BUILD_DIR" >"$work/stand-in/cmake"
    chmod +x "$work/stand-in/cmake"
    (umask 077 && PATH="$work/stand-in:$PATH" make -s -C "$SOURCE_DIR" -o build install DESTDIR="$work/for-all" >"$work/log" 2>&1) ||
        fail "make install: $(cat "$work/log")"
    closed=$(find "$work/for-all/opt" ! -perm -a+r -o -type d ! -perm -a+x)
    [ -z "$closed" ] || fail "made with umask 077, and others cannot read $closed"
fi
for file in bin/lockstep include/lockstep/lockstep.h share/man/man1/lockstep.1 share/man/man1/lockstep-run.1 share/man/man1/lockstep-down.1 share/man/man1/lockstep-fetch.1 \
    share/bash-completion/completions/lockstep share/zsh/site-functions/_lockstep share/fish/vendor_completions.d/lockstep.fish; do
    [ -s "$work/tree/$file" ] || fail "$file is not installed"
    [ -s "$work/image/opt/lockstep/$file" ] || fail "$file is not installed below DESTDIR"
done
[ ! -e "$work/tree/share/man/man1/lockstep-worker.1" ] || fail "the worker is not for people"

PKG_CONFIG_PATH=$(dirname "$(find "$work/tree" -name lockstep.pc)")
export PKG_CONFIG_PATH
[ "$(pkg-config --modversion lockstep)" = "$("$work/tree/bin/lockstep" --version | cut -d' ' -f2)" ] ||
    fail "lockstep.pc and lockstep --version disagree"
# Folders given as absolute paths, as packagers do, are where they are.
cmake -S "$SOURCE_DIR" -B "$work/absolute" -G Ninja -DLOCKSTEP_TESTS=OFF -DCMAKE_INSTALL_PREFIX=/opt/ls \
    -DCMAKE_INSTALL_LIBDIR=/opt/ls/lib/many -DCMAKE_INSTALL_INCLUDEDIR=/opt/ls-dev/include >"$work/log" 2>&1 ||
    fail "absolute folders: $(cat "$work/log")"
while read -r name want; do
    got=$(PKG_CONFIG_PATH="$work/absolute" pkg-config --variable="$name" lockstep)
    [ "$got" = "$want" ] || fail "lockstep.pc says $name=$got with absolute folders, not $want"
done <<'END'
libdir /opt/ls/lib/many
includedir /opt/ls-dev/include
END
# As a part of another project: the library and the program, no tests.
mkdir "$work/host"
cat >"$work/host/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.20)
project(host C)
add_subdirectory("$SOURCE_DIR" lockstep)
add_executable(generate "$SOURCE_DIR/examples/generate.c")
target_link_libraries(generate PRIVATE lockstep::lockstep)
END
cmake -S "$work/host" -B "$work/host/build" -G Ninja >"$work/log" 2>&1 || fail "as a part: $(cat "$work/log")"
grep -q '^build generate:' "$work/host/build/build.ninja" || fail "as a part it is not linked"
if grep -q 'test_base\|bench_http' "$work/host/build/build.ninja"; then fail "as a part it builds its tests"; fi
# shellcheck disable=SC2046
${CC:-cc} -std=c17 -Wall -Wextra -Wpedantic -Werror "$SOURCE_DIR/examples/generate.c" \
    $(pkg-config --cflags --libs lockstep) ${LINK_FLAGS:-} "-Wl,-rpath,$(pkg-config --variable=libdir lockstep)" -o "$work/generate"
PATH="$work/tree/bin:$PATH" "$work/generate" "$SOURCE_DIR/models/jargon-3m-f16.gguf" 2 \
    "What is a bit bucket?" >"$work/answer" || fail "the example says: $(cat "$work/answer")"
"$work/tree/bin/lockstep" run "$SOURCE_DIR/models/jargon-3m-f16.gguf" -q -n 100 --temp 0 \
    -p "What is a bit bucket?" >"$work/expected"
cmp "$work/answer" "$work/expected" || fail "the example answers '$(cat "$work/answer")'"
if echo '#include <lockstep/lockstep.h>' | c++ -x c++ -std=c++11 -pedantic -Werror -I "$work/tree/include" \
    -c - -o "$work/header.o" 2>"$work/err"; then
    echo "the header is C++ too"
elif command -v c++ >/dev/null; then
    fail "the header in C++: $(cat "$work/err")"
fi
echo "installed, linked and run: $(cut -c1-60 "$work/answer")..."
