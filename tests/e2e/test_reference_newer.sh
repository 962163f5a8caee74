#!/bin/bash
# Options that golden/'s models of 2026 do not have, against logits computed in float64 by reference_newer.py, which
# first shows on golden models that it can be trusted; and the same bits on any ranks, in any chunks.
set -u
golden=$SHARED_DIR/golden/logits
command -v python3 >/dev/null || { echo "skip: python3, which computes the reference, is not here"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"
newer() {
    python3 "$SOURCE_DIR/tests/support/reference_newer.py" "$@" || fail "reference_newer.py $*"
}
compare() {
    python3 "$SOURCE_DIR/tests/support/reference.py" compare "$@" || fail "reference.py compare $*"
}
run_eval() { # model logits arguments...
    local model=$1 out=$2
    shift 2
    rm -f "$out" # an old file must not stand in for this run's
    timeout 60 "$LOCKSTEP" eval "$model" --ids "$(cat ids)" --logits "$out" --kv f32 -t 1 -q "$@" ||
        fail "lockstep eval $model $*"
}

# Both are float64 rounded to float32, so an ulp or two of 10 may lie between.
for name in qwen3next qwen35 qwen35moe nemotron_h nemotron_h_moe granitehybrid lfm2 lfm2moe step35 gemma4 gemma4-moe \
    gemma4-ple mistral3 kimi-linear kimi-k3; do
    [ -e "$golden/$name.gguf" ] || { echo "note: no golden $name to judge the reference by"; continue; }
    some=$(python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["prompt_ids"][:20], sep=",")' \
        "$golden/$name.json")
    newer logits "$golden/$name.gguf" "$some" reference.f32
    compare reference.f32 "$golden/$name.true.f32" 4e-6
done

newer make .
n=0
layouts=("--ranks 2 --chunk 7" "--ranks 3 --chunk 1" "--split 3,1,2" "--parallel pipeline --ranks 2 --chunk 7"
    "--ranks 4 --experts whole")
for file in *.gguf; do
    name=$(basename "$file" .gguf)
    run_eval "$file" "$name.f32"
    compare "$name.f32" "$name.true.f32" 1e-3 # as golden/README.md derives for f32
    for layout in "${layouts[n % 5]}" "${layouts[(n + 1) % 5]}" "${layouts[(n + 3) % 5]}"; do
        # shellcheck disable=SC2086
        run_eval "$file" b.f32 $layout
        cmp "$name.f32" b.f32 || fail "$name ($layout) has other bits than one rank"
    done
    n=$((n + 1))
done
# MiMo-V2-Flash as a folder: as it is published, as transformers 5 names things, as mlx-lm stores them, and in FP8.
folder() { # folder [options of hf_folder.py]: the bits of the GGUF with the same numbers
    python3 "$SOURCE_DIR/tests/support/hf_folder.py" mimo2-flash.gguf "$1" --gguf worth.gguf "${@:2}" ||
        fail "hf_folder.py mimo2-flash ${*:2}"
    run_eval worth.gguf worth.f32
    for layout in "--ranks 1" "--ranks 3" "--parallel pipeline --ranks 2 --chunk 7"; do
        # shellcheck disable=SC2086
        run_eval "$1" b.f32 $layout
        cmp worth.f32 b.f32 || fail "$1 ($layout) has other bits than its GGUF"
    done
}
folder mimo
cmp worth.f32 mimo2-flash.f32 || fail "the folder's numbers are not the GGUF's"
folder mimo-v5 --v5
folder mimo-mlx --mlx-lm --shards 2
folder mimo-fp8 --weights fp8
damaged() { # Python, what the refusal says; options of hf_folder.py
    rm -rf damaged
    python3 "$SOURCE_DIR/tests/support/hf_folder.py" mimo2-flash.gguf damaged "${@:3}" || fail "hf_folder.py ${*:3}"
    python3 - "$1" <<'EOF' || fail "python: $1"
import json, struct, sys
raw = open("damaged/model.safetensors", "rb").read()
n = 8 + struct.unpack("<Q", raw[:8])[0]
c, h, p = json.load(open("damaged/config.json")), json.loads(raw[8:n]), "model.layers."
exec(sys.argv[1])
json.dump(c, open("damaged/config.json", "w"))
text = json.dumps(h).encode()
open("damaged/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + raw[n:])
EOF
    timeout 60 "$LOCKSTEP" eval damaged --ids 1 -q >out 2>err && fail "mimo2 was taken with $1"
    [ "$(wc -l <err)" = 1 ] && grep -q -- "$2" err || fail "mimo2 with $1: $(cat err)"
}
damaged 'del c["hybrid_layer_pattern"]' 'hybrid_layer_pattern is missing'
damaged 'c["hybrid_layer_pattern"][1] = 2' 'hybrid_layer_pattern is .*, expected 0 or 1 for each layer'
damaged 'c["hybrid_layer_pattern"].pop()' 'hybrid_layer_pattern is .*, expected 0 or 1 for each layer'
damaged 'c["layer_types"][1] = "linear_attention"' 'expected sliding_attention or full_attention for each layer' --v5
damaged 'c["moe_layer_freq"][2] = 0' 'moe_layer_freq is .*, expected the dense layers first'
damaged 'c["mlp_layer_types"].reverse()' 'mlp_layer_types is .*, expected the dense layers first' --v5
damaged 'c["mlp_layer_types"].pop()' 'mlp_layer_types is .*, expected one word for each layer' --v5
damaged 'c["swa_num_key_value_heads"] = 0' '4 heads and 0 of keys in layers with a window make no sense'
damaged 'c["num_attention_heads"] = 1 << 30' 'num_attention_heads is'
damaged 'c["swa_num_attention_heads"] = 1 << 30' 'make no sense'
damaged 'c["partial_rotary_factor"] = 1.5' 'a partial_rotary_factor of 1.5 for heads of 24 makes no sense'
damaged 'del c["partial_rotary_factor"]' 'a partial_rotary_factor of 0 for heads of 24 makes no sense'
damaged 'c["scoring_func"] = "softmax"' 'scoring_func is .*softmax.*, expected sigmoid'
damaged 'c["n_group"] = 2' 'n_group is 2, expected 1'
damaged 'c["n_shared_experts"] = 1' 'n_shared_experts is 1, expected 0'
damaged 'del c["sliding_window"]' 'attention.sliding_window is missing'
damaged 'del h[p + "1.self_attn.attention_sink_bias"]' 'layers.1.self_attn.attention_sink_bias is missing'
damaged 'c["add_full_attention_sink_bias"] = True' 'layers.0.self_attn.attention_sink_bias is missing'
damaged 'del h[p + "2.mlp.experts.5.up_proj.weight"]' 'layers.2.mlp.experts.5.up_proj.weight is missing'
damaged 'del h[p + "3.self_attn.v_proj.weight"]' 'blk.3.attn_v.weight is missing'
damaged 'h[p + "0.self_attn.qkv_proj.weight"] = h.pop(p + "0.self_attn.q_proj.weight")' 'which lockstep does not know for model_type mimo_v2_flash'
# A tensor that a layer needs is missing: one sentence.
while read -r name tensor; do
    newer drop "$name.gguf" less.gguf "$tensor"
    timeout 60 "$LOCKSTEP" eval less.gguf --ids 1 -q >out 2>err && fail "$name without $tensor was taken"
    [ "$(wc -l <err)" = 1 ] && grep -q "the tensor $tensor is missing" err || fail "$name without $tensor: $(cat err)"
done <<'END'
qwen35-listed blk.1.ssm_conv1d.weight
qwen3next-joint blk.0.ssm_ba.weight
nemotron-biases blk.1.ssm_d
granite-dense blk.3.attn_q.bias
lfm2-window blk.0.shortconv.conv.weight
step35-odd blk.1.attn_gate.weight
gemma4-out-of-order per_layer_token_embd.weight
kimi-normalized blk.0.ssm_f_b.weight
END
[ $failures = 0 ] && echo "$n models are as they should be"
[ $failures = 0 ]
