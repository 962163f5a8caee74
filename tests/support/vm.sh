# vm.sh, to be sourced: virtual machines without hardware support, of the image that tools/vm makes. Ends the test where there are
# none.
[ "$(uname -sm)" = "Linux x86_64" ] || { echo "skip: virtual machines are for Linux on x86-64"; exit 77; }
command -v qemu-system-x86_64 >/dev/null || { echo "skip: no qemu-system-x86_64 (Debian: qemu-system-x86)"; exit 77; }
image=$BUILD_DIR/vm
bash "$SOURCE_DIR/tools/vm/build_image.sh" "$image" "$BUILD_DIR/tests/fabric_peer" "$LOCKSTEP" \
    "$SOURCE_DIR/models/jargon-3m-f16.gguf" || exit $?
consoles=$(mktemp -d)
trap 'rm -rf "$consoles"' EXIT
# machine NAME "kernel words" QEMU-options...: leaves its console in $consoles/NAME, returns QEMU's status.
machine() {
    local name=$1 words=$2; shift 2
    timeout 400 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 512M -nodefaults -nographic -no-reboot \
        -serial stdio -kernel "$image/vmlinuz" -initrd "$image/image" -device isa-debug-exit,iobase=0xf4,iosize=1 \
        -append "console=ttyS0 panic=-1 loglevel=5 mitigations=off no_timer_check $words" "$@" >"$consoles/$name" 2>&1 </dev/null
}
# What QEMU leaves with when the job ended with this status.
left_with() { echo $((2 * (16 + $1) + 1)); }
fail() { echo "FAILED: $*"; tail -n 20 "$consoles"/[a-z]* 2>/dev/null; exit 1; }
