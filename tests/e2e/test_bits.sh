#!/bin/bash
# The promise: `lockstep eval` writes the same bytes however the work is done. For each model, a
# reference (one rank, one thread, the whole prompt at once, scalar kernels) is compared with cmp
# against every layout of ranks x every instruction set of this machine; threads, chunks and links
# go round so that every value of each meets every layout. NEON and I8MM run under qemu-user where
# build-arm64 is there. LOCKSTEP_BITS=all runs the full product (half an hour).
# labels: once
set -u
golden=$SHARED_DIR/golden
. "$SOURCE_DIR/tests/support/scratch.sh"

# name, cache, file
models=(
    "jargon-f16 f16 $SOURCE_DIR/models/jargon-3m-f16.gguf"
    "jargon-kv8 q8_0 $SOURCE_DIR/models/jargon-3m-f16.gguf"
)
if [ -e "$golden/logits/llama.gguf" ]; then
    models+=(
        "llama f32 $golden/logits/llama.gguf"
        "llama-tied f16 $golden/logits/llama-tied.gguf"
        "llama-rope3 f16 $golden/logits/llama-rope3.gguf"
        "qwen2 f32 $golden/logits/qwen2.gguf"
        "qwen3 f16 $golden/logits/qwen3.gguf"
        "llama-kv8 q8_0 $golden/logits/llama.gguf"
        "deepseek2-kv8 q8_0 $golden/logits/deepseek2-lite.gguf"
        "deepseek32-kv8 q8_0 $golden/logits/deepseek32.gguf"
        "deepseek4-kv8 q8_0 $golden/logits/deepseek4.gguf"
        "q-f16 f16 $golden/quant-models/q-llama-f16.gguf"
        "q-q8_0 f32 $golden/quant-models/q-llama-q8_0.gguf"
        "q-q4_0 f16 $golden/quant-models/q-llama-q4_0.gguf"
        "q-q4_K f16 $golden/quant-models/q-llama-q4_K.gguf"
        "q-q6_K f16 $golden/quant-models/q-llama-q6_K.gguf"
    )
else
    echo "note: $golden is not there: only the bundled model is compared"
fi
# Weight types in a model of several layers, for the pipelines.
for type in q8_0 q4_0 q4_k q6_k; do
    "$LOCKSTEP" quantize "$SOURCE_DIR/models/jargon-3m-f16.gguf" "jargon-$type.gguf" $type >/dev/null ||
        exit 1
    models+=("jargon-$type f16 $work/jargon-$type.gguf")
done

# Weights that make logits no numbers: a NaN with a sign and a payload, and infinities that meet.
"$LOCKSTEP" inspect "$SOURCE_DIR/models/jargon-3m-f16.gguf" --tensors --json | python3 -c '
import json, struct, sys
file = bytearray(open(sys.argv[1], "rb").read())
tensors = json.load(sys.stdin)["tensor_list"]
assert tensors[0]["name"] == "token_embd.weight" and tensors[0]["type"] == "f16"
first = len(file) - sum(-(-t["bytes"] // 32) * 32 for t in tensors)
row = 2 * tensors[0]["dims"][0]
struct.pack_into("<H", file, first + 2000 * row, 0xFE01)
struct.pack_into("<8H", file, first + 2001 * row, *[0x7C00, 0xFC00] * 4)
open("jargon-nan.gguf", "wb").write(file)' "$SOURCE_DIR/models/jargon-3m-f16.gguf" || exit 1
models+=("jargon-nan f16 $work/jargon-nan.gguf")

layouts=(
    "--ranks 1"
    "--ranks 2"
    "--ranks 3"
    "--ranks 4"
    "--split 1,1"
    "--split 3,1"
    "--split 1,2,1"
    "--ranks 2 --parallel pipeline"
    "--ranks 3 --parallel pipeline"
    "--ranks 2 --parallel pipeline --split 2,1"
    "--parallel tensor2xpipeline2"
)
threads=(1 2 3)
chunks=(1 7 512)
links=(shm tcp)
isas=(scalar)
grep -q avx2 /proc/cpuinfo 2>/dev/null && isas+=(avx2)
grep -q avx_vnni /proc/cpuinfo 2>/dev/null && isas+=(avxvnni)
grep -q avx512_vnni /proc/cpuinfo 2>/dev/null && isas+=(avx512)
grep -q avx512_vnni /proc/cpuinfo 2>/dev/null && grep -q amx_int8 /proc/cpuinfo && isas+=(amx)
[ "$(uname -m)" = aarch64 ] && isas+=(neon)
grep -qw i8mm /proc/cpuinfo 2>/dev/null && isas+=(i8mm)
arms=(neon i8mm)
qemu=
if [ -x "$SOURCE_DIR/build-arm64/lockstep" ] && command -v qemu-aarch64 >/dev/null; then
    qemu="$SOURCE_DIR/tools/arm64-run.sh"
fi

# 48 ids below every vocabulary here; 8 greedy ones follow.
ids=280,104,250,60,279,67,48,188,170,12,270,50,272,105,81,81,131,201,171,29,189,19,33,7
ids=$ids,5,66,200,14,287,90,91,92,1,2,3,4,77,150,160,170,180,190,211,222,233,244,255,266
# 560 ids: longer than a chunk of 512 and than a span of the attention.
long=$(for ((i = 0; i < 560; i++)); do printf '%d ' $(((i * 7919 + i * i) % 280)); done)
echo "$long" >long.ids
echo "$long" | cut -d' ' -f1-180 >middle.ids

jobs=0
lanes=4 # at a time: ranks wait for each other half of the time
job() { # output-name model-file program isa options...
    printf '%q ' "$@" >>jobs.$((jobs % lanes))
    echo >>jobs.$((jobs % lanes))
    jobs=$((jobs + 1))
}

brief() { # the options without the long list of ids
    echo "$*" | sed 's/--ids [0-9,]*/--ids .../'
}

run() { # one job: compares with the reference NAME.ref
    local name=$1 file=$2 program=$3 isa=$4 out=$BASHPID.f32
    shift 4
    if ! LOCKSTEP_ISA=$isa timeout 120 "$program" eval "$file" -q --logits "$out" "$@" >"$out.ids" 2>"$out.err"; then
        echo "FAILED: $name isa=$isa $(brief "$@"): $(cat "$out.err")"
    elif ! cmp -s "$out" "$name.ref" || ! cmp -s "$out.ids" "$name.ids"; then
        echo "DIFFERS: $name isa=$isa $(brief "$@"): $(cmp "$out" "$name.ref" 2>&1)"
    else
        echo same
    fi
}

refer() { # name model-file what-to-feed...
    local name=$1 file=$2
    shift 2
    LOCKSTEP_ISA=scalar "$LOCKSTEP" eval "$file" -q --ranks 1 --threads 1 --chunk 512 "$@" \
        --logits "$name.ref" >"$name.ids" || exit 1
}

# A library that was loaded has changed how a process rounds, as gcc's -ffast-math makes one flush subnormals.
upwards=
if [ "$(uname)" = Linux ] && echo '#include <fenv.h>
__attribute__((constructor)) static void upwards(void) { fesetround(FE_UPWARD); }' |
    ${CC:-cc} -shared -fPIC -x c - -lm -o upwards.so 2>/dev/null; then
    printf '#!/bin/sh\nexport LD_PRELOAD="%s"\nexec "%s" "$@"\n' "$work/upwards.so" "$LOCKSTEP" >upwards
    chmod +x upwards
    upwards=$work/upwards
    "$upwards" quantize "$SOURCE_DIR/models/jargon-3m-f16.gguf" upwards.gguf q4_k >/dev/null &&
        cmp upwards.gguf jargon-q4_k.gguf || fail "quantize rounds as a library that was loaded"
fi

n=0
sharded() { # name model-file layout...: steps long enough to be sharded to a team (model/sequence_shard.h), and too short for two microbatches
    local name=$1-middle file=$2 layout
    shift 2
    refer "$name" "$file" --ids @middle.ids
    for layout in "$@"; do
        # shellcheck disable=SC2086
        job "$name" "$file" "$LOCKSTEP" "${isas[n % ${#isas[@]}]}" --ids @middle.ids $layout \
            --threads ${threads[n % 3]} --link ${links[n % 2]}
        n=$((n + 1))
    done
}
for model in "${models[@]}"; do
    read -r name kv file <<<"$model"
    feed=(--ids "$ids" --greedy 8 --kv "$kv")
    refer "$name" "$file" "${feed[@]}"
    for layout in "${layouts[@]}"; do
        for isa in "${isas[@]}"; do
            if [ "${LOCKSTEP_BITS:-}" = all ]; then
                for t in "${threads[@]}"; do for c in "${chunks[@]}"; do for l in "${links[@]}"; do
                    # shellcheck disable=SC2086
                    job "$name" "$file" "$LOCKSTEP" "$isa" "${feed[@]}" $layout --threads $t --chunk $c --link $l
                done; done; done
            else
                # shellcheck disable=SC2086
                job "$name" "$file" "$LOCKSTEP" "$isa" "${feed[@]}" $layout --threads ${threads[n % 3]} \
                    --chunk ${chunks[n / 3 % 3]} --link ${links[n % 2]}
                n=$((n + 1))
            fi
        done
        n=$((n + 2))
    done
    [ -z "$upwards" ] || job "$name" "$file" "$upwards" "${isas[-1]}" "${feed[@]}" --ranks 3 --threads 2
    if [ -n "$qemu" ]; then
        job "$name" "$file" "$qemu" neon "${feed[@]}" --ranks 1 --threads 2 --chunk 7
        job "$name" "$file" "$qemu" i8mm "${feed[@]}" --ranks 1 --threads 2 --chunk 19
        job "$name" "$file" "$qemu" scalar "${feed[@]}" --split 2,1 --threads 1 --link ${links[n % 2]}
    fi
done
# The other architectures: experts, latent attention, windows, sinks; and those that golden/ has none of.
others=()
for name in llama-moe qwen3moe deepseek2-lite deepseek2-v3 gpt-oss-mxfp4 glm4moe gemma3 phi3 minimax-m2 qwen3next qwen35 qwen35moe lfm2 lfm2moe nemotron_h nemotron_h_moe granitehybrid mistral3 \
    seed_oss olmo2 ernie4_5-moe hunyuan-moe bailingmoe2 llama4 deepseek32 deepseek4 glm-dsa kimi-linear kimi-k3 minimax-m3 gemma3n gemma4 gemma4-moe \
    gemma4-ple step35; do
    others+=("$golden/logits/$name.gguf")
done
mkdir made
if command -v python3 >/dev/null; then
    python3 "$SOURCE_DIR/tests/support/reference.py" models made || exit 1
    python3 "$SOURCE_DIR/tests/support/hf_folder.py" made/deepseek2-v2.gguf made/latent-fp8 --weights fp8 || exit 1
    "$LOCKSTEP" quantize made/scout.gguf made/scout-q8_0.gguf q8_0 >/dev/null || exit 1 # weights on packed inputs
    "$LOCKSTEP" quantize made/deepseek4-small.gguf made/deepseek4-q8_0.gguf q8_0 >/dev/null || exit 1
    "$LOCKSTEP" quantize made/deepseek4-small.gguf made/deepseek4-q4_0.gguf q4_0 >/dev/null || exit 1
    others+=(made/*)
fi
for file in "${others[@]}"; do
    name=other-$(basename "$file" .gguf)
    [ -e "$file" ] || continue
    feed=(--ids "$ids" --greedy 8)
    refer "$name" "$file" "${feed[@]}"
    for layout in "--ranks 2" "--split 1,2,1" "--parallel tensor2xpipeline2" "--split 2,1 --experts whole"; do
        isa=${isas[n % ${#isas[@]}]}
        # shellcheck disable=SC2086
        job "$name" "$file" "$LOCKSTEP" "$isa" "${feed[@]}" $layout --threads ${threads[n % 3]} \
            --chunk ${chunks[n / 3 % 3]} --link ${links[n % 2]}
        n=$((n + 1))
    done
    [ -z "$qemu" ] || job "$name" "$file" "$qemu" "${arms[n % 2]}" "${feed[@]}" --ranks 1 --threads 1 --chunk 7
    n=$((n + 1))
    sharded "$name" "$file" "--split 2,1 --chunk 100" "--ranks 4 --chunk 119" "--ranks 3 --chunk 90 --experts whole"
done
# The first files of Qwen3-Next have one matrix in place of two: the same rows, so the same bits.
if command -v python3 >/dev/null && [ -e other-qwen3next.ref ]; then
    python3 "$SOURCE_DIR/tests/support/joint_ssm_in.py" "$golden/logits/qwen3next.gguf" joint.gguf || exit 1
    job other-qwen3next "$work/joint.gguf" "$LOCKSTEP" "${isas[-1]}" --ids "$ids" --greedy 8 --ranks 2 --chunk 7
fi
for file in "$golden"/logits/{llama,qwen3,llama-tied}.gguf "$golden"/quant-models/q-llama-{f16,q8_0,q4_K}.gguf \
    jargon-q4_k.gguf "$SOURCE_DIR/models/jargon-3m-f16.gguf"; do
    [ -e "$file" ] || continue
    sharded "sharded-$(basename "$file" .gguf)" "$file" "--split 2,1 --chunk 100" "--ranks 4 --chunk 119" \
        "--parallel tensor2xpipeline2 --chunk 64"
done
# The weight types that only folders have.
for weights in "fp8" "mlx4 --group 64" "mlx8 --group 32" "mlx8 --group 64 --scales f16"; do
    file=$golden/quant-models/q-llama-f16.gguf
    name=folder-${weights// /}
    [ -e "$file" ] && command -v python3 >/dev/null || continue
    # shellcheck disable=SC2086
    python3 "$SOURCE_DIR/tests/support/hf_folder.py" "$file" "$name" --weights $weights || exit 1
    feed=(--ids "$ids" --greedy 8)
    refer "$name" "$name" "${feed[@]}"
    for isa in "${isas[@]}"; do
        for layout in "--ranks 1" "--split 1,2,1" "--parallel tensor2xpipeline2"; do
            # shellcheck disable=SC2086
            job "$name" "$name" "$LOCKSTEP" "$isa" "${feed[@]}" $layout --threads ${threads[n % 3]} \
                --chunk ${chunks[n / 3 % 3]} --link ${links[n % 2]}
            n=$((n + 1))
        done
    done
    for isa in "${arms[@]}"; do
        [ -z "$qemu" ] || job "$name" "$name" "$qemu" "$isa" "${feed[@]}" --ranks 1 --threads 1 --chunk 7
    done
done
# Over more than a step: windows whose pages are given back between steps, a latent cache; and steps whose sums are
# under way while the other half of their tokens is computed (model/microbatch.h), which a slow wire makes sure of.
for name in llama qwen3 q-q8_0 q-q4_K gpt-oss-f32 gemma3 gemma3n gemma4-moe gemma4-ple step35 deepseek2-lite qwen3moe minimax-m2 \
    glm-dsa deepseek4 kimi-k3 minimax-m3; do
    file=$golden/logits/$name.gguf
    [ -e "$file" ] || file=$golden/quant-models/q-llama-${name#q-}.gguf
    [ -e "$file" ] || continue
    refer "$name-long" "$file" --ids @long.ids --ctx 640
    for isa in "${isas[@]:1}"; do # the first is scalar, the reference's
        job "$name-long" "$file" "$LOCKSTEP" "$isa" --ids @long.ids --ctx 640 --threads 2 --chunk 512 --split 2,1
        job "$name-long" "$file" "$LOCKSTEP" "$isa" --ids @long.ids --ctx 640 --threads 2 --chunk 100
        job "$name-long" "$file" "$LOCKSTEP" "$isa" --ids @long.ids --ctx 600 --threads 1 --chunk 7 --ranks 2
        slow=(--emulate-link "bandwidth=1Gbit")
        job "$name-long" "$file" "$LOCKSTEP" "$isa" --ids @long.ids --ctx 640 --threads 2 --ranks 3 "${slow[@]}"
        job "$name-long" "$file" "$LOCKSTEP" "$isa" --ids @long.ids --ctx 640 --threads 3 --chunk 121 --link tcp \
            --parallel tensor2xpipeline2 "${slow[@]}"
    done
done

for ((lane = 0; lane < lanes; lane++)); do
    while read -r line; do eval "run $line"; done <jobs.$lane >result.$lane 2>&1 &
done
wait
same=$(cat result.? | grep -c '^same$')
grep -hv '^same$' result.?
echo "$same of $jobs runs gave the same bits (${isas[*]}${qemu:+, NEON and I8MM under qemu})"
[ "$same" = "$jobs" ] && [ $failures = 0 ]
