#!/bin/bash
# tools/gpu-check.sh with a program that stands in for lockstep: it ends in time with a summary whatever fails or hangs, its
# status says whether all bits are the processor's, and it finds a driver that Vulkan does not know of.
# labels: once
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"

cat >program <<'END'
#!/bin/bash
[ "$1" != --version ] || { echo "lockstep 0 (${BUILT:-with} shaders)"; exit; }
if [ "$1" = bench ] && { [ "${NEED:-}" = file ] && [ ! -e "${VK_DRIVER_FILES:-}" ] || [ "${NEED:-}" = library ] && [ -z "${LOCKSTEP_VULKAN_LIB:-}" ]; }; then
    echo "no device" >&2
    exit 2
fi
case "$1 $*" in
"bench "*model.gguf*)
    [ "${FAULT:-}" != hang ] || sleep 1000
    echo '{"token_weight_bytes": 8500000000, "prompt_tokens_per_s": 5123.4, "gen_tokens_per_s": 254.25, "gen_read_gbs": 2.1e3,'
    echo '"gen_roof_fraction": 0.512, "prompt_peak_fraction": 0.31, "device_prompt": {"submissions": 1.0, "dispatches": 931.0},'
    echo '"device_token": {"submissions": 1.0, "dispatches": 675.0}}'
    ;;
"devices "*--test*)
    [ "${FAULT:-}" != kernel ] || { echo "its product with q4_K differs"; exit 1; }
    ;;
"eval "*)
    bits=same
    case "$*" in *--device*) [ "${FAULT:-}" != bits ] || bits=other ;; esac
    while [ "$1" != --logits ]; do shift; done
    echo $bits >"$2"
    ;;
esac
END
chmod +x program
check() { # status, what the report has, environment...
    local status=$1 words=$2 got
    shift 2
    env LOCKSTEP="$PWD/program" MODELS=/nowhere TYPES="q8_0 q4_K" "$@" timeout 60 "$SOURCE_DIR/tools/gpu-check.sh" "$PWD/out" >printed 2>&1
    got=$?
    [ $got = "$status" ] || fail "$*: status $got, and not $status: $(cat printed)"
    grep -qF -- "$words" out/report.md || fail "$*: the report has no '$words': $(cat printed)"
}
check 0 '| llama-3.1-8b, q8_0 | 8.50 | 5123 | 31 % | 254.2 | 2100 | 51 % | 675, 931 | 5123.4 | 254.2 |'
check 0 '| qwen3-30b-a3b, 12 layers, q4_K | 8.50 |'
grep -q "^- 3 lines of speed above, 0 without a result" out/report.md || fail "the summary: $(tail -5 out/report.md)"
check 1 "- the bits of every kernel DIFFER" FAULT=kernel
grep -q "^| llama-3.1-8b, q4_K | 8.50" out/report.md || fail "a kernel that differs ends all"
check 1 "- 0 evaluations of whole models have the processor's bits, 3 have not" FAULT=bits
check 0 "- 0 lines of speed above, 3 without a result" FAULT=hang SECONDS_MOST=6
check 1 "There is no /nowhere/lockstep" LOCKSTEP=/nowhere/lockstep
check 1 "This program has no shaders" BUILT=without

touch libdriver.so
check 0 "The driver is $PWD/libdriver.so, for which this made" NEED=file DRIVERS="$PWD/libnone.so $PWD/libdriver.so"
grep -q "\"library_path\": \"$PWD/libdriver.so\"" out/icd.json || fail "icd.json: $(cat out/icd.json)"
check 0 "The driver is $PWD/libdriver.so, without Vulkan's loader" NEED=library DRIVERS="$PWD/libdriver.so"
check 1 "No driver is left to try" NEED=library DRIVERS="$PWD/libnone.so"
[ $failures = 0 ]
