#!/bin/bash
# Architectures that golden/ has no model of, against logits computed in float64 by reference.py, which first
# shows on golden models that it can be trusted. From GGUF and from a folder, on any ranks, the same bits.
set -u
golden=$SHARED_DIR/golden/logits
command -v python3 >/dev/null || { echo "skip: python3, which computes the reference, is not here"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"
reference() {
    python3 "$SOURCE_DIR/tests/support/reference.py" "$@" || fail "reference.py $*"
}
run_eval() { # model logits arguments...
    local model=$1 out=$2
    shift 2
    rm -f "$out" # an old file must not stand in for this run's
    timeout 60 "$LOCKSTEP" eval "$model" --ids "$(cat ids)" --logits "$out" --kv f32 -t 1 -q "$@" ||
        fail "lockstep eval $model $*"
}

make_folder() { # source folder [options of hf_folder.py]
    python3 "$SOURCE_DIR/tests/support/hf_folder.py" "$@" || fail "hf_folder.py $*"
}
same_bits() { # folder logits
    for layout in "--ranks 1" "--ranks 2" "--ranks 3" "--split 2,1 --experts whole"; do
        # shellcheck disable=SC2086
        run_eval "$1" b.f32 $layout
        cmp "$2" b.f32 || fail "$1 ($layout) has other bits than $2"
    done
}

# The reference itself: both are float64 rounded to float32, so an ulp or two of 10 may lie between.
for name in qwen2 qwen3moe llama-moe deepseek2-lite deepseek2-v3 deepseek2-v3-mla glm-dsa deepseek32 deepseek4 kimi-linear minimax-m3; do
    [ -e "$golden/$name.gguf" ] || { echo "note: no golden $name to judge the reference by"; continue; }
    first=24
    [ $name != deepseek4 ] || first=150 # a compressed key is of 128
    some=$(python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["prompt_ids"][:int(sys.argv[2])], sep=",")' \
        "$golden/$name.json" $first)
    reference logits "$golden/$name.gguf" "$some" reference.f32
    reference compare reference.f32 "$golden/$name.true.f32" 4e-6
done

reference make .
n=0
for file in *.gguf; do
    name=$(basename "$file" .gguf)
    n=$((n + 1))
    run_eval "$file" "$name.f32"
    reference compare "$name.f32" "$name.true.f32" 1e-3 # as golden/README.md derives for f32
    python3 "$SOURCE_DIR/tests/support/hf_folder.py" "$file" "$name" --shards $((n % 2 + 1)) --gguf folder.gguf
    case $? in
    0) # against the numbers that the folder holds: some norms are stored less one, and decays as logarithms
        run_eval folder.gguf folder.f32
        reference compare folder.f32 "$name.true.f32" 1e-3
        same_bits "$name" folder.f32
        ;;
    77) same_bits "$file" "$name.f32" ;; # an architecture of which no folder can be made
    *) fail "hf_folder.py $file" ;;
    esac
done

# FP8, as DeepSeek ships it, through latent attention: the bits of F32 weights with the same values, for which
# the reference is computed anew.
make_folder deepseek2-v2.gguf fp8-row --weights fp8-row --scales bf16 --gguf worth-row.gguf
run_eval worth-row.gguf worth.f32
same_bits fp8-row worth.f32
for scales in f32 bf16; do
    make_folder deepseek2-v2.gguf fp8-$scales --weights fp8 --scales $scales --gguf worth-$scales.gguf
    grep -qa 'kv_b_proj.weight_scale_inv' fp8-$scales/model.safetensors || fail "kv_b_proj is not FP8"
    run_eval worth-$scales.gguf worth.f32
    same_bits fp8-$scales worth.f32
done
# Four bits as compressed-tensors packs them, of which a GGUF has the same as Q4_0 or Q4_1.
for scales in f16 bf16; do
    make_folder deepseek2-v2.gguf int4-$scales --weights int4 --group 32 --scales $scales --gguf worth4-$scales.gguf
    run_eval worth4-$scales.gguf worth4.f32
    same_bits int4-$scales worth4.f32
done
# DeepSeek V4's: FP8 whose scales are powers of two, and experts in four bits.
make_folder deepseek4-small.gguf fp8-fp4 --weights fp8-fp4 --shards 2 --gguf worth-fp4.gguf
run_eval worth-fp4.gguf worth-fp4.f32
same_bits fp8-fp4 worth-fp4.f32
reference logits worth-f32.gguf "$(cat ids)" worth.true.f32
run_eval fp8-f32 fp8.f32
reference compare fp8.f32 worth.true.f32 1e-3

# Tensors that nobody reads: those without which the model is the same stand beside it, others are refused.
reference beside qwen2moe.gguf beside.gguf blk.0.attn_rot_embd.weight blk.1.rope_freqs.weight \
    blk.1.attn_kv_b.weight blk.0.ffn_down_exps.input_scale blk.2.attn_q.weight v.blk.0.attn_q.weight cls.output.weight
run_eval beside.gguf b.f32
cmp qwen2moe.f32 b.f32 || fail "tensors beside the model change its bits"
for name in blk.1.attn_output.bias blk.0.attn_q_norm.weight blk.1.ffn_down.scale output.bias output_norm.bias \
    token_embd_norm.weight position_embd.weight; do
    reference beside qwen2moe.gguf beside.gguf "$name"
    timeout 60 "$LOCKSTEP" eval beside.gguf --ids 1 -q >out 2>err && fail "$name was ignored"
    [ "$(wc -l <err)" = 1 ] && grep -q "has the tensor $name, which lockstep does not know" err ||
        fail "$name: $(cat err)"
done

# "greedy" has no groups, whatever else config.json says.
cp -r deepseek2-v2 greedy
sed -i 's/"group_limited_greedy"/"greedy"/' greedy/config.json
reference logits deepseek2-v2.gguf "$(cat ids)" greedy.true.f32 groups
run_eval greedy greedy.f32
reference compare greedy.f32 greedy.true.f32 1e-3
# YaRN's bounds between two pairs: gpt-oss's folders have "truncate": false. A GGUF that lockstep makes keeps it.
cp -r deepseek2-v2 between
sed -i 's/"type": "yarn"/"type": "yarn", "truncate": false/' between/config.json
reference logits deepseek2-v2.gguf "$(cat ids)" between.true.f32 truncate
run_eval between between.f32
reference compare between.f32 between.true.f32 1e-3
"$LOCKSTEP" quantize between between.gguf f32 >/dev/null || fail "quantize between"
run_eval between.gguf b.f32
cmp between.f32 b.f32 || fail "a GGUF made of a folder rounds YaRN's bounds again"
# Ollama's converter writes gemma3's RoPE bases under names of its own.
if [ -e "$golden/gemma3.gguf" ]; then
    reference rename "$golden/gemma3.gguf" ollama.gguf gemma3.rope.freq_base gemma3.rope.global.freq_base \
        gemma3.rope.freq_base_swa gemma3.rope.local.freq_base
    python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["prompt_ids"], sep=",")' \
        "$golden/gemma3.json" >ids
    run_eval ollama.gguf ollama.f32
    reference compare ollama.f32 "$golden/gemma3.true.f32" 1e-3
    # Rnj-1 caps its logits.
    reference cap "$golden/gemma3.gguf" capped.gguf "$golden/gemma3.true.f32" capped.true.f32 3
    run_eval capped.gguf capped.f32
    reference compare capped.f32 capped.true.f32 1e-3
    make_folder capped.gguf capped --gguf worth-capped.gguf # its norms less one, and one again
    run_eval worth-capped.gguf worth-capped.f32
    same_bits capped worth-capped.f32
else
    echo "note: no golden gemma3 to rename keys of"
fi

# Gemma 4's files may list tokens that never come, and layers that share a cache may have matrices that nobody reads.
if [ -e "$golden/gemma4-ple.gguf" ]; then
    python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["prompt_ids"], sep=",")' \
        "$golden/gemma4-ple.json" >ids
    reference suppress "$golden/gemma4-ple.gguf" suppressed.gguf "$golden/gemma4-ple.true.f32" suppressed.true.f32 3 150 287
    reference beside suppressed.gguf leftover.gguf blk.4.attn_k.weight blk.5.attn_k_norm.weight blk.3.attn_v.weight
    run_eval leftover.gguf suppressed.f32
    reference compare suppressed.f32 suppressed.true.f32 1e-3
    run_eval leftover.gguf b.f32 --ranks 3
    cmp suppressed.f32 b.f32 || fail "three ranks suppress other tokens"
fi

# Kimi K3 without a key that it needs, or without its experts' latent space.
if [ -e "$golden/kimi-k3.gguf" ]; then
    for key in kda.gate_lower_bound activation.situ_beta activation.situ_linear_beta attn_res.block_size \
        expert_latent_length; do
        reference rename "$golden/kimi-k3.gguf" less.gguf kimi-k3.$key kimi-k3.nothing
        timeout 60 "$LOCKSTEP" eval less.gguf --ids 1 -q >out 2>err && fail "kimi-k3 without $key was taken"
        [ "$(wc -l <err)" = 1 ] && grep -q "$key\|ffn_gate_exps.*expected" err || fail "kimi-k3 without $key: $(cat err)"
    done
fi

# DeepSeek V4 with something missing, or with numbers that make no sense.
damaged() { # what happens to the file, as Python; what is said of it
    python3 -c '
import struct, sys
sys.path.insert(0, sys.argv[3])
from hf_folder import Gguf
g = Gguf(sys.argv[1])
k, t = "deepseek4.", g.tensors
exec(sys.argv[2])
g.write("damaged.gguf")' "$golden/deepseek4.gguf" "$1" "$SOURCE_DIR/tests/support" || fail "python: $1"
    timeout 60 "$LOCKSTEP" eval damaged.gguf --ids 1 -q >out 2>err && fail "deepseek4 was taken with $1"
    [ "$(wc -l <err)" = 1 ] && grep -q -- "$2" err || fail "deepseek4 with $1: $(cat err)"
}
if [ -e "$golden/deepseek4.gguf" ]; then
    for tensor in blk.0.hc_attn_fn blk.3.hc_ffn_base output_hc_scale blk.2.attn_compressor_ape blk.1.indexer_compressor_norm \
        blk.1.indexer.proj blk.0.ffn_gate_tid2eid blk.3.attn_output_a blk.3.attn_sinks; do
        damaged "del t['$tensor.weight']" "the tensor $tensor.weight is missing"
    done
    for key in attention.output_group_count attention.output_lora_rank attention.sliding_window attention.indexer.top_k \
        attention.compress_ratios hyper_connection.count hyper_connection.sinkhorn_iterations expert_count; do
        damaged "del g.raw[k + '$key']" "the key deepseek4.$key is missing"
    done
    ratios() {
        damaged "g.put(k + 'attention.compress_ratios', $1)" "$2"
    }
    ratios "[0, 4, 127, 4]" 'compress_ratios is 127 for layer 2, expected 0, 4 or 128'
    ratios "[0, 4, 2 ** 32 - 1, 4]" 'compress_ratios is 4294967295 for layer 2'
    ratios "[0, 4, 128]" 'compress_ratios has 3 numbers for 4 layers'
    ratios "[0, 4, 128, 0]" 'which lockstep does not know'
    ratios "[4, 4, 128, 4]" 'blk.0.attn_compressor_kv.weight is missing'
    ratios "[0, 128, 128, 4]" 'blk.1.attn_compressor_kv.weight: expected 40 x 64 x 1'
    damaged "t['blk.0.ffn_gate_tid2eid.weight'][2] = struct.pack('<i', 6) * 576" 'has 6 in row 0, expected 0 to 5'
    damaged "t['blk.0.ffn_gate_tid2eid.weight'][2] = struct.pack('<i', -1) * 576" 'has -1 in row 0, expected 0 to 5'
    damaged "t['blk.0.ffn_gate_tid2eid.weight'][1] = 0" 'has type f32: expected i32'
    damaged "g.put(k + 'hash_layer_count', 2)" 'blk.1.ffn_gate_tid2eid.weight is missing'
    damaged "g.put(k + 'attention.output_group_count', 3)" '4 heads in 3 groups'
    damaged "g.put(k + 'attention.head_count_kv', 2)" '2 of keys'
    damaged "g.put(k + 'hyper_connection.count', 9)" 'hyper_connection.count is 9, expected 2 to 8'
    damaged "g.put(k + 'hyper_connection.epsilon', -1.0)" 'hyper_connection.epsilon is -1'
    damaged "g.put(k + 'attention.indexer.top_k', 0)" 'top_k is 0, expected 1'
    damaged "g.put(k + 'attention.sliding_window', 0)" 'sliding_window is 0, expected 1'
    damaged "g.put(k + 'rope.dimension_count', 128)" 'rope.dimension_count is 128'
fi

# What cannot be right is refused, with one sentence.
refuse() { # model says key value: of the folder's config.json, in JSON; ... takes it away
    rm -rf refused
    cp -r "$1" refused
    python3 -c '
import json, sys
c = json.load(open("refused/config.json"))
c.pop(sys.argv[1], None)
if sys.argv[2] != "...":
    c[sys.argv[1]] = json.loads(sys.argv[2])
json.dump(c, open("refused/config.json", "w"))' "$3" "$4"
    timeout 60 "$LOCKSTEP" eval refused --ids 1 -q >out 2>err && fail "$1 with $3 $4 was taken"
    [ "$(wc -l <err)" = 1 ] && grep -q -- "$2" err || fail "$1 with $3 $4: $(cat err)"
}
refuse deepseek2-v2 topk_method topk_method '"noaux_tc"'
refuse deepseek2-v2 topk_method topk_method '"best"'
refuse deepseek2-v2 topk_method topk_method 3
refuse deepseek2-v2 norm_topk_prob norm_topk_prob true
refuse deepseek2-v2 groups n_group 5
refuse deepseek2-v2 groups topk_group 9
refuse deepseek2-v2 groups topk_group 0
refuse glm-5.2 "one word for each layer" indexer_types '["full", "full"]'
refuse glm-5.2 "full or shared" indexer_types '["full", "half", "full", "full"]'
refuse glm-5.2 "no indexer, and there is none before it" indexer_types '["shared", "full", "full", "full"]'
refuse glm-5.2 "the dense layers first" mlp_layer_types '["sparse", "dense", "dense", "dense"]'
refuse nemotron-3 "expected 16 x 32 x 8" moe_latent_size 16
refuse nemotron-3 "expected at most" moe_latent_size 4000000000
refuse nemotron-3 "expected 64 x 32 x 8" moe_latent_size 0
refuse qwen2moe experts num_experts ...
refuse qwen2moe decoder_sparse_step decoder_sparse_step 2
refuse qwen2moe use_sliding_window use_sliding_window true
refuse qwen2moe expected shared_expert_intermediate_size 4096
refuse qwen2moe widths shared_expert_intermediate_size 4000000000
refuse granitemoe expected num_local_experts 7
refuse granitemoe-shared expected shared_intermediate_size 33
refuse granitemoe-shared "factor" logits_scaling 0
[ $failures = 0 ] && echo "$n models are as they should be"
[ $failures = 0 ]
