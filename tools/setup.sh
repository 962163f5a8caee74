#!/bin/bash
# tools/setup.sh [build|test]: installs what building (or the full test suite) needs and is not
# there yet, and says so. Does nothing, quickly, when all is there.
#
# A need is found by its command or its pkg-config file, whoever installed it; what is missing
# comes from apt-get (Debian, Ubuntu) or from brew (macOS: written, untried).
set -euo pipefail

# what shows that it is there | Debian package | Homebrew formula (- = part of macOS, or nowhere to be had for it)
build_needs='
command:cmake         cmake              cmake
command:ninja         ninja-build        ninja
command:cc            gcc                -
command:pkg-config    pkg-config         pkg-config
pc:jansson            libjansson-dev     jansson
pc:libpcre2-8         libpcre2-dev       pcre2
pc:libutf8proc        libutf8proc-dev    utf8proc
pc:libsodium          libsodium-dev      libsodium
pc:hwloc              libhwloc-dev       hwloc
pc:gnutls             libgnutls28-dev    gnutls
pc:libcurl            libcurl4-openssl-dev  curl
pc:libedit            libedit-dev        libedit
pc:libibverbs         libibverbs-dev     -
'
# For devices: without them the build has none, or no shaders. Not all systems have packages of these names.
device_needs='
header:vulkan/vulkan_core.h  libvulkan-dev  vulkan-headers
command:glslc                glslc          shaderc
'
test_needs='
command:clang         clang              -
library:clang_rt      libclang-rt-dev    -
command:clang-format  clang-format       clang-format
command:clang-tidy    clang-tidy         -
command:codespell     codespell          codespell
command:python3       python3            python3
command:curl          curl               -
command:openssl       openssl            openssl
command:ccache        ccache             ccache
pc:cmocka             libcmocka-dev      cmocka
pc:ucx                libucx-dev         -
'
# The arm64 build under qemu-user; only for Linux on x86-64.
cross_needs='
command:aarch64-linux-gnu-gcc  gcc-aarch64-linux-gnu  -
command:qemu-aarch64           qemu-user              -
'

# The virtual machines of tests/vm/test_verbs_vm.sh; only for Debian on x86-64.
machine_needs='
command:qemu-system-x86_64  qemu-system-x86    -
command:busybox             busybox-static     -
command:cpio                cpio               -
command:rdma                iproute2           -
command:tc                  iproute2           -
library:rxe                 ibverbs-providers  -
'

# A device without hardware, and what looks on while it is used; only for Debian.
software_device_needs='
library:lvp         mesa-vulkan-drivers       -
library:validation  vulkan-validationlayers   -
'

# The browser of tests/e2e/test_page.sh, which is skipped without it; only for Debian (elsewhere the package is another thing).
browser_needs='
command:chromium  chromium  -
'

is_there() {
    case $1 in
    command:*) command -v "${1#*:}" >/dev/null ;;
    pc:*) pkg-config --exists "${1#*:}" 2>/dev/null ;;
    library:rxe) ls /usr/lib/*/libibverbs/librxe-rdmav*.so >/dev/null 2>&1 ;;
    header:*) cc -E - <<<"#include <${1#*:}>" >/dev/null 2>&1 ;;
    library:lvp) ls /usr/share/vulkan/icd.d/lvp_icd.*.json >/dev/null 2>&1 ;;
    library:validation) ls /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json >/dev/null 2>&1 ;;
    library:clang_rt) command -v clang >/dev/null && ls "$(clang -print-resource-dir)"/lib/*/*asan* >/dev/null 2>&1 ;;
    esac
}

# Where there is no apt-get but brew, or on a Mac without either, what has no formula is not waited for.
only_formulas=
if ! command -v apt-get >/dev/null && { command -v brew >/dev/null || [ "$(uname -s)" = Darwin ]; }; then only_formulas=yes; fi

missing_apt=() missing_brew=() missing=()
look_for() {
    local check apt brew
    while read -r check apt brew; do
        if [ -z "$check" ] || is_there "$check"; then continue; fi
        if [ -n "$only_formulas" ] && [ "$brew" = - ]; then continue; fi
        missing+=("${check#*:}")
        missing_apt+=("$apt")
        missing_brew+=("$brew")
    done <<<"$1"
}

look_for "$build_needs"
if [ "${1:-build}" = test ]; then
    look_for "$test_needs"
    if [ "$(uname -sm)" = "Linux x86_64" ]; then
        look_for "$cross_needs"
        if [ -e /etc/debian_version ]; then look_for "$machine_needs"; fi
    fi
fi

refreshed=
apt_install() {
    local as_root=
    if [ "$(id -u)" != 0 ]; then as_root="sudo"; fi
    echo "setup: installing with apt-get: $*"
    export DEBIAN_FRONTEND=noninteractive
    if [ -z "$refreshed" ]; then
        $as_root apt-get update -qq || echo "setup: the package lists could not be refreshed"
        refreshed=1
    fi
    $as_root apt-get install -y -qq --no-install-recommends "$@" >/dev/null && echo "setup: done"
}

if [ ${#missing[@]} = 0 ]; then
    :
elif command -v apt-get >/dev/null; then
    echo "setup: missing: ${missing[*]}"
    apt_install "${missing_apt[@]}" libc6-dev
elif command -v brew >/dev/null; then
    echo "setup: missing: ${missing[*]}"
    echo "setup: installing with brew: ${missing_brew[*]}"
    brew install "${missing_brew[@]}"
    echo "setup: done"
else
    echo "setup: missing: ${missing[*]}; please install them with this system's package manager (neither apt-get nor brew is here)" >&2
    exit 1
fi
# What the rest works without: nothing fails, nobody is asked for a password, and the lists are not fetched again and again
# where it cannot be had.
optional() { # what, without it
    if [ ${#missing[@]} = 0 ]; then
        :
    elif [ "$(id -u)" != 0 ] && command -v apt-get >/dev/null && ! sudo -n true 2>/dev/null; then
        echo "setup: no ${missing[*]}: $1"
    elif command -v apt-get >/dev/null && ls /var/lib/apt/lists/*Packages* >/dev/null 2>&1 && ! apt-cache show "${missing_apt[@]}" >/dev/null 2>&1; then
        echo "setup: no ${missing[*]} (no such package here): $1"
    elif command -v apt-get >/dev/null; then
        apt_install "${missing_apt[@]}" || echo "setup: no ${missing[*]}: $1"
    elif command -v brew >/dev/null; then
        brew install "${missing_brew[@]}" || echo "setup: no ${missing[*]}: $1"
    fi
    missing_apt=() missing_brew=() missing=()
}
missing_apt=() missing_brew=() missing=()
look_for "$device_needs"
optional "the build uses no GPU"
if [ "${1:-build}" = test ] && [ -e /etc/debian_version ]; then
    look_for "$software_device_needs"
    optional "devices are tested where there is one"
fi
if [ "${1:-build}" = test ] && [ -e /etc/debian_version ] && command -v node >/dev/null; then
    look_for "$browser_needs"
    optional "the page is not tried in a browser"
fi
