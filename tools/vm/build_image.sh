#!/bin/bash
# tools/vm/build_image.sh DIR FILE...: a virtual machine that boots in seconds and speaks soft-RoCE:
# DIR/vmlinuz (Debian's kernel, unpacked, never installed) and DIR/image (busybox, the modules,
# rdma-core, the files under /job, programs with the libraries they need, tools/vm/init and its jobs).
# Exit status 77 and "skip: why" where something is missing.
set -euo pipefail
dir=$1; shift
here=$(cd "$(dirname "$0")" && pwd)
skip() { echo "skip: $*"; exit 77; }
for need in busybox cpio rdma tc ip dpkg apt-get gzip; do
    command -v $need >/dev/null || skip "no $need (Debian: busybox-static cpio iproute2)"
done
mkdir -p "$dir"
if ! ls "$dir"/kernel/boot/vmlinuz-* >/dev/null 2>&1; then
    package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends:/ { print $2; exit }')
    [ -n "$package" ] || skip "no Debian kernel package is known"
    (cd "$dir" && rm -f ./*.deb && apt-get download -q "$package" >/dev/null 2>&1) || skip "the kernel $package cannot be had"
    dpkg -x "$dir"/*.deb "$dir/kernel"
fi
cp "$dir"/kernel/boot/vmlinuz-* "$dir/vmlinuz"
root=$dir/root
rm -rf "$root"
mkdir -p "$root"/{bin,dev,proc,sys,tmp,job,modules,etc/libibverbs.d}

# A program or library with all that ldd names, at the same paths.
with_libraries() {
    local lib
    for lib in $(ldd "$1" 2>/dev/null | grep -o '/[^ ]*' | sort -u); do
        mkdir -p "$root$(dirname "$lib")"
        cp -Lu "$lib" "$root$lib"
    done
}
cp "$(command -v busybox)" "$root/bin/busybox"
for program in ip tc rdma; do # busybox has an ip of its own: these go by their full path
    cp -L "$(command -v $program)" "$root/bin/$program"
    with_libraries "$root/bin/$program"
done
provider=$(ls /usr/lib/*/libibverbs/librxe-rdmav*.so 2>/dev/null | head -1)
[ -n "$provider" ] || skip "no soft-RoCE provider (Debian: ibverbs-providers)"
mkdir -p "$root$(dirname "$provider")"
cp -L "$provider" "$root$provider"
echo "driver rxe" >"$root/etc/libibverbs.d/rxe.driver"
library=$(ls /usr/lib/*/libibverbs.so.1 | head -1)
cp -L "$library" "$root$library"
with_libraries "$library"
with_libraries "$provider"
for program in "$@"; do
    cp "$program" "$root/job/"
    with_libraries "$program"
done

# Modules in an order in which each finds what it needs.
for module in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci failover \
    net_failover virtio_net veth sch_netem crc32-pclmul crc32_generic ip6_udp_tunnel udp_tunnel \
    ib_core ib_uverbs rdma_rxe; do
    file=$(find "$dir/kernel/lib/modules" -name "$module.ko*" | head -1)
    [ -n "$file" ] || continue # built into this kernel
    case $file in
    *.xz) xz -dc "$file" >"$root/modules/$module.ko" ;;
    *) cp "$file" "$root/modules/" ;;
    esac
    echo "/modules/$module.ko" >>"$root/modules/order"
done
cp "$here/init" "$here/rdma" "$here/numa" "$root/"
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$dir/image"
