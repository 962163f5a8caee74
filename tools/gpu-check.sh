#!/bin/bash
# tools/gpu-check.sh [FOLDER]: what there is to know of a GPU, in less than ten minutes, as FOLDER/report.md (default
# gpu-report): what Vulkan says of it, whether every kernel computes the processor's bits, the bits of whole models on it and
# beside processors, and its speed by weight type beside its roofs and the processor's. It ends with a summary, and with 0 if
# all bits are the processor's.
#
#   LOCKSTEP     the program (default build/lockstep); it needs to have been built where libvulkan-dev and glslc are
#   DEVICE       its number or name (default auto; a software device has to be named)
#   SECONDS_MOST seconds in all (default 560)
#   SHAPE        what is measured (default llama-3.1-8b), and LAYERS of it (default all)
#   TYPES        weight types (default "q8_0 q4_K f16 q4_0")
#   MIXTURE      a mixture of experts (default qwen3-30b-a3b; - for none), in q4_K, and MIXTURE_LAYERS of it (default 12)
#   PROMPT       tokens of the prompt (default 2048), and GENERATE after it (default 128)
#   MODELS       folder of models for the bits (default ../shared/golden/logits); the bundled one is always there
#   DRIVERS      libraries to try where Vulkan finds no device (default NVIDIA's, which containers often lack the file for)
# A machine needs bash, coreutils and the GPU's driver. Where Vulkan's loader (Debian's and Ubuntu's libvulkan1) or the
# driver's icd.json is missing, a driver's library is looked for and taken as it is. Every part has a limit of time and may
# fail by itself. Nothing is installed, and nothing of the device is changed.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
out=${1:-gpu-report}
program=$(realpath -m "${LOCKSTEP:-build/lockstep}")
device=${DEVICE:-auto}
shape=${SHAPE:-llama-3.1-8b}
models=${MODELS:-../shared/golden/logits}
most=${SECONDS_MOST:-560}
mkdir -p "$out" || exit 1
report=$out/report.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf '%s\n' "$@" | tee -a "$report"; }
part() { say "" "## $1" ""; }

# within SECONDS words...: these, for so long at most, and not beyond the time of all.
within() {
    local limit=$1 left=$((most - SECONDS))
    shift
    [ "$left" -gt 1 ] || { echo "no time is left" >&2; return 124; }
    timeout -k 5 $((limit < left ? limit : left)) "$@"
}

# Why the last part gave nothing.
why() { if [ -s "$work/err" ]; then tail -1 "$work/err"; else echo "it took too long"; fi; }

# run SECONDS words...: as a block of text, with how it ended if that is not well.
run() {
    local status
    say '```'
    within "$@" >"$work/run" 2>&1
    status=$?
    tail -40 "$work/run" | tee -a "$report"
    say '```'
    [ $status = 0 ] || say "ended with $status"
    return $status
}

# field DIGITS NAME [FACTOR [OBJECT]]: a number of bench.json, or of an object in it, times a factor, with so many digits.
field() {
    local number
    number=$(tr -d '\n' <"$work/bench.json" | grep -oE "\"${4:-$2}\": *(\{[^}]*\}|[-+.0-9eE]+)" | grep -oE "\"$2\": *[-+.0-9eE]+" | head -1)
    [ -n "$number" ] && LC_ALL=C awk "BEGIN { printf \"%.$1f\", ${number##*[: ]} * ${3:-1} }" || echo "?"
}

: >"$report"
say "# A GPU, $(date -u +%Y-%m-%d)" ""
if [ ! -x "$program" ]; then
    say "There is no $program: make builds it, and LOCKSTEP names another."
    exit 1
fi
say "lockstep $("$program" --version | cut -d' ' -f2-); $(uname -srm); $(grep -c ^processor /proc/cpuinfo) cores"
if ! "$program" --version | grep -q "(with shaders)"; then
    say "" "This program has no shaders: it was built where libvulkan-dev or glslc was missing. Install both, and build it anew."
    exit 1
fi
command -v nvidia-smi >/dev/null && run 20 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.memory --format=csv

# ---- a driver ------------------------------------------------------------------------------

found() { within 60 "$program" bench models/jargon-3m-f16.gguf -q -r 1 -p 1 -n 1 --device "$device" >/dev/null 2>"$work/why"; }

# The paths of a library: as the linker knows it, or where containers put it.
paths_of() {
    /sbin/ldconfig -p 2>/dev/null | sed -n "s|.*[[:space:]]$1 .* => ||p"
    ls /usr/local/nvidia/lib64/"$1" /usr/lib/*-linux-gnu/"$1" /usr/lib64/"$1" "$1" 2>/dev/null
}

# With a file that names the driver for the loader; then without a loader.
try_driver() {
    printf '{"file_format_version": "1.0.0", "ICD": {"library_path": "%s", "api_version": "1.3.0"}}\n' "$1" >"$out/icd.json"
    export VK_DRIVER_FILES=$(realpath "$out/icd.json") VK_ICD_FILENAMES=$(realpath "$out/icd.json")
    if found; then
        say "The driver is $1, for which this made $out/icd.json: VK_DRIVER_FILES and VK_ICD_FILENAMES name it."
        return 0
    fi
    unset VK_DRIVER_FILES VK_ICD_FILENAMES
    export LOCKSTEP_VULKAN_LIB=$1
    if found; then
        say "The driver is $1, without Vulkan's loader: LOCKSTEP_VULKAN_LIB names it."
        return 0
    fi
    unset LOCKSTEP_VULKAN_LIB
    return 1
}

look_for_driver() {
    local name path
    say "No device as the machine is: $(tail -1 "$work/why")"
    for name in ${DRIVERS:-libGLX_nvidia.so.0 libEGL_nvidia.so.0}; do
        for path in $(paths_of "$name" | sort -u); do
            try_driver "$path" && return 0
            say "- $path: $(tail -1 "$work/why")"
        done
    done
    say "" "No driver is left to try. Needed: the GPU's Vulkan driver (of NVIDIA's containers NVIDIA_DRIVER_CAPABILITIES=all), and" \
        "best its loader (apt-get install libvulkan1)."
    return 1
}

part "What is there"
found || look_for_driver || exit 1
run 60 "$program" devices

part "Every kernel, beside the processor's"
kernels="are the processor's"
run 150 "$program" devices --test || kernels="DIFFER, or were not all tested"

part "Bits of whole models"
ids=280,104,250,60,79,67,48,188,170,12,27,50,27,105,81,81,131,201,171,29,189,19,33,7,99,3
same=0 other=0
compare() { # model options...
    local model=$1
    shift
    if within 60 "$program" eval "$model" -q --ids $ids --greedy 2 "$@" --logits "$work/b" >/dev/null 2>"$work/err" &&
        cmp -s "$work/a" "$work/b"; then
        same=$((same + 1))
    else
        other=$((other + 1))
        say "- $(basename "$model") $*: differs or fails: $(head -c 300 "$work/err")"
    fi
    rm -f "$work/b"
}
end=$((SECONDS + 120))
for model in models/jargon-3m-f16.gguf "$models"/*.gguf "$models"/../quant-models/*.gguf; do
    if [ ! -e "$model" ] || [ $SECONDS -gt $end ]; then continue; fi
    within 60 "$program" eval "$model" -q --ids $ids --greedy 2 --logits "$work/a" >/dev/null 2>&1 || continue
    compare "$model" --device "$device"
    compare "$model" --split 1,1 --device "$device,cpu"
    compare "$model" --ranks 2 --device "$device,cpu" # by what was measured
done
say "$same evaluations with the processor's bits, $other without."

# ---- speed ---------------------------------------------------------------------------------

part "Speed"
say "A prompt of ${PROMPT:-2048} tokens and ${GENERATE:-128} tokens after it, the median of three rounds; beside it what the device reaches" \
    "when it does nothing else (docs/bench.md), and one round of the processor with a prompt of 64 tokens and 8 after it." "" \
    "| model | GB a token | prompt, tokens/s | of the peak | tokens/s | GB/s | of the read roof | dispatches a token, a chunk | processor: prompt, tokens/s | tokens/s |" \
    "|---|---|---|---|---|---|---|---|---|---|"

bench() { # SECONDS options...
    local limit=$1
    shift
    within "$limit" "$program" bench "$work/model.gguf" -q --json "$@" >"$work/bench.json" 2>"$work/err"
}

# speed NAME TYPE LAYERS: a line of the table.
speed() {
    local name="$1${3:+, $3 layers}, $2${LOCKSTEP_DEVICE_WITHOUT:+, without $LOCKSTEP_DEVICE_WITHOUT}" row
    rm -f "$work/model.gguf"
    if ! within 100 "$program" synth --shape "$1" ${3:+--layers "$3"} --type "$2" "$work/model.gguf" >/dev/null 2>"$work/err" ||
        ! bench 120 -r 3 -p "${PROMPT:-2048}" -n "${GENERATE:-128}" --chunk 2048 --device "$device"; then
        say "| $name | no result: $(why | head -c 200) |"
        return
    fi
    row="$(field 2 token_weight_bytes 1e-9) | $(field 0 prompt_tokens_per_s) | $(field 0 prompt_peak_fraction 100) %"
    row+=" | $(field 1 gen_tokens_per_s) | $(field 0 gen_read_gbs) | $(field 0 gen_roof_fraction 100) %"
    row+=" | $(field 0 dispatches 1 device_token), $(field 0 dispatches 1 device_prompt)"
    if bench 45 -r 1 -p 64 -n 8; then
        row+=" | $(field 1 prompt_tokens_per_s) | $(field 1 gen_tokens_per_s)"
    else
        row+=" | ? | ?"
    fi
    say "| $name | $row |"
}
mixture=${MIXTURE:-qwen3-30b-a3b}
for type in ${TYPES:-q8_0 q4_K f16 q4_0}; do
    speed "$shape" "$type" "${LAYERS:-}"
    [ "$mixture" = - ] || speed "$mixture" q4_K "${MIXTURE_LAYERS:-12}"
    mixture=-
done
if grep -q '^ *features:.* matrix' "$report"; then LOCKSTEP_DEVICE_WITHOUT=matrix speed "$shape" q8_0 "${LAYERS:-}"; fi

# ---- summary -------------------------------------------------------------------------------

part "Summary"
say "- the bits of every kernel $kernels" "- $same evaluations of whole models have the processor's bits, $other have not" \
    "- $(grep -c '^| .* % |' "$report") lines of speed above, $(grep -c 'no result' "$report") without a result" \
    "- $SECONDS s in all; $report"
[ "$other" = 0 ] && [ "$same" -gt 0 ] && [ "$kernels" = "are the processor's" ]
