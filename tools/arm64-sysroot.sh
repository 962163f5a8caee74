#!/bin/bash
# Makes DIR (default build-arm64-sysroot): the arm64 libraries that lockstep links, unpacked from
# this Debian's own packages, so that the tests can be cross-built and run under qemu-aarch64.
# Nothing is installed on the system: apt-get works with lists of its own below DIR.
# A second run does nothing.
set -euo pipefail
dir=$(realpath -m "${1:-build-arm64-sysroot}")
packages=(libc6-dev libjansson-dev libpcre2-dev libutf8proc-dev libsodium-dev libhwloc-dev libgnutls28-dev libcurl4-openssl-dev
    libcmocka-dev libedit-dev zlib1g-dev)
[ -e "$dir/complete" ] && [ "$(cat "$dir/complete")" = "${packages[*]}" ] && exit 0
if ! command -v apt-get >/dev/null; then
    echo "arm64-sysroot: needs apt-get and dpkg" >&2
    exit 1
fi
apt="$dir/apt"
mkdir -p "$apt"/{lists/partial,cache/archives/partial,etc} "$dir/root"
touch "$apt/status"
options=(-o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State::lists="$apt/lists"
    -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=
    -o Debug::NoLocking=1 -qq)
echo "arm64-sysroot: fetching the package lists and what ${#packages[@]} packages need into $dir"
apt-get "${options[@]}" update
apt-get "${options[@]}" -y --no-install-recommends --download-only install "${packages[@]}" >/dev/null
for deb in "$apt"/cache/archives/*.deb; do
    dpkg -x "$deb" "$dir/root"
done
# Absolute links would lead out of the sysroot.
find "$dir/root" -type l | while read -r link; do
    target=$(readlink "$link")
    case $target in /*) ln -sfnr "$dir/root$target" "$link" ;; esac
done
rm -rf "$apt"
echo "${packages[*]}" >"$dir/complete"
