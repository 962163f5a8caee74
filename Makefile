# The front door. Everything is built by CMake into build/ (see CMakePresets.json for the other
# folders); these targets install what is missing and call it.
#
#   make          builds build/lockstep                   make test     the whole test suite
#   make demo     three ranks answer one question         make check    its quick part: release build only
#   make install  PREFIX=/usr/local DESTDIR=              make bench    speed of a 1B model on this machine
#   make asan | tsan | fuzz | arm64 | macos               one part of the suite
#   make format   clang-format over the sources           make clean    removes the build folders
#   make dist     build/lockstep-VERSION.tar.gz           make coverage which lines the tests run
#   make docs     the reference of the library

PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
export JOBS
export LOCKSTEP_WERROR ?= OFF
export LOCKSTEP_SHARED_DIR

SOURCES = $(shell find src include tests fuzz bench examples -name '*.[ch]' 2>/dev/null)

all: build

# The tests come into this build with `make check` or `make test`.
build: setup
	@test -e build/build.ninja || cmake --preset release -DLOCKSTEP_TESTS=OFF >build-configure.log || { cat build-configure.log; exit 1; }
	@rm -f build-configure.log
	@cmake --build build -j $(JOBS)

setup:
	@tools/setup.sh build

demo: build
	@tools/demo.sh

bench: build
	@tools/bench.sh

test:
	@tools/setup.sh test
	@tools/test.sh

check asan tsan fuzz arm64 macos:
	@tools/setup.sh test
	@tools/test.sh $@

# New folders are for everybody, as the files in them are.
install: build
	cmake "-DCMAKE_INSTALL_PREFIX=$(PREFIX)" build >/dev/null
	umask 022 && DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)"

# docs/release.md says how a release is made.
dist:
	@tools/dist.sh

coverage:
	@tools/setup.sh test
	@tools/coverage.sh

docs:
	doxygen docs/Doxyfile
	@echo "build/reference/html/index.html"

format:
	clang-format -i $(SOURCES)

clean:
	rm -rf build build-*

help:
	@sed -n '/^#   make/s/^# *//p' Makefile

.PHONY: all build setup demo bench test check asan tsan fuzz arm64 macos install dist coverage docs format clean help
