#!/bin/bash
# A machine of two NUMA domains, which QEMU emulates: without being told, a model is two ranks there, one in each domain, with
# threads and memory in it, and the answer is that of one rank.
set -uo pipefail
[ "$(uname -sm)" = "Linux x86_64" ] || { echo "skip: virtual machines are for Linux on x86-64"; exit 77; }
command -v qemu-system-x86_64 >/dev/null || { echo "skip: no qemu-system-x86_64 (Debian: qemu-system-x86)"; exit 77; }
dir=$BUILD_DIR/vm
bash "$SOURCE_DIR/tools/vm/build_image.sh" "$dir" "$BUILD_DIR/tests/fabric_peer" "$LOCKSTEP" \
    "$SOURCE_DIR/models/jargon-3m-f16.gguf" || exit $?
said=$(mktemp)
trap 'rm -f "$said"' EXIT
timeout 400 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 768M -nodefaults -nographic -no-reboot \
    -object memory-backend-ram,id=near,size=384M -object memory-backend-ram,id=far,size=384M \
    -numa node,nodeid=0,cpus=0,memdev=near -numa node,nodeid=1,cpus=1,memdev=far \
    -serial stdio -kernel "$dir/vmlinuz" -initrd "$dir/image" -device isa-debug-exit,iobase=0xf4,iosize=1 \
    -append "console=ttyS0 panic=-1 loglevel=5 mitigations=off no_timer_check job=numa" >"$said" 2>&1 </dev/null
[ $? = $((2 * 16 + 1)) ] || { echo "FAILED:"; tail -n 20 "$said"; exit 1; }
grep -oE 'rank [0-9]: .*|two ranks, .*' "$said"
