#!/bin/bash
# A Hugging Face folder and a GGUF with the same numbers: `lockstep eval` writes the same bytes, whatever the
# number of shards and ranks, for every architecture; FP8, MXFP4 and MLX's groups against GGUFs that
# hold what they are worth; tokenizer.json and tokenizer.model against the GGUF's vocabulary. hf_folder.py makes the folders.
set -u
golden=$SHARED_DIR/golden
[ -e "$golden/logits/llama.gguf" ] || { echo "skip: $golden is not there"; exit 77; }
command -v python3 >/dev/null || { echo "skip: python3, which makes the folders, is not here"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"
make_folder() { # source folder [options of hf_folder.py]
    python3 "$SOURCE_DIR/tests/support/hf_folder.py" "$@" || fail "hf_folder.py $*"
}
ids=280,104,250,60,279,67,48,188,170,12,270,50,272,105,81,81,131,201,171,29,189,19,33,7
run_eval() { # model logits arguments...
    local model=$1 out=$2
    shift 2
    rm -f "$out" # an old file must not stand in for this run's
    timeout 60 "$LOCKSTEP" eval "$model" --ids $ids --greedy 4 --logits "$out" -t 1 -q "$@" >"$out.ids" ||
        fail "lockstep eval $model $*"
}
same_bits() { # model gguf arguments...: the folder of this name against the GGUF
    local model=$1 gguf=$2
    shift 2
    run_eval "$gguf" a.f32 "$@"
    for ranks in 1 2 3; do
        run_eval "$model" b.f32 "$@" --ranks $ranks
        cmp a.f32 b.f32 || fail "$model: not the bits of $gguf ($ranks ranks $*)"
    done
}

n=0
for file in "$golden"/logits/*.gguf; do
    name=$(basename "$file" .gguf)
    python3 "$SOURCE_DIR/tests/support/hf_folder.py" "$file" "$name"
    [ $? != 77 ] || continue # an architecture of which no folder can be made
    n=$((n + 1))
    make_folder "$file" "$name" --gguf "$name.gguf" --shards $((n % 3 + 1))
    # The golden file itself, where the folder can hold its numbers.
    case $name in
    gemma3) gguf=$name.gguf ;;      # norms are stored less one
    llama-rope3 | llama4 | step35 | hunyuan-moe) gguf=$name.gguf ;; # factors and bases are computed
    minimax-m3) gguf=$name.gguf ;;
    kimi-*) gguf=$name.gguf ;; # decays are stored as logarithms
    gemma3n) gguf=$name.gguf ;;     # the last tokens have no inputs of layers
    qwen3next | qwen35* | granitehybrid | nemotron_h*) gguf=$name.gguf ;; # decays are stored as logarithms
    *) gguf=$file ;;
    esac
    same_bits "$name" "$gguf" --kv f32
    rm -rf "$name" "$name.gguf"
done
[ $n -ge 20 ] || fail "only $n models in golden/logits"

# config.json as transformers 5 writes it, and a language model beside a picture tower.
for name in llama-rope3 qwen3 deepseek2-v3 gpt-oss-f32 glm4moe gemma3 phi3 deepseek4; do
    [ -e "$golden/logits/$name.gguf" ] || continue
    make_folder "$golden/logits/$name.gguf" v5 --gguf v5.gguf --v5
    same_bits v5 v5.gguf --kv f32
    rm -rf v5
done
for name in gemma3 qwen35 deepseek2-v3; do
    make_folder "$golden/logits/$name.gguf" nested --gguf nested.gguf --nested
    same_bits nested nested.gguf
    rm -rf nested
done

# longrope: the short factors up to the original context, the long ones beyond.
python3 "$SOURCE_DIR/tests/support/hf_folder.py" "$golden/logits/phi3.gguf" phi3 || fail "hf_folder.py phi3"
factors_at() { # factors_at CTX PYTHON FILE: the logits of a context of CTX with a changed config.json
    cp -r phi3 changed && python3 -c '
import json, sys
c = json.load(open("changed/config.json"))
s = c["rope_scaling"]
c["original_max_position_embeddings"] = 64
s["long_factor"] = [2 * f for f in s["short_factor"]]
exec(sys.argv[1])
json.dump(c, open("changed/config.json", "w"))' "$2" || fail "phi3 with $2"
    "$LOCKSTEP" eval changed --ids "$longrope_ids" --ctx "$1" --logits "$3" -q || fail "phi3 with $2 and --ctx $1"
    rm -r changed
}
longrope_ids=$(seq -s, 3 50)
factors_at 64 '' short.f32
factors_at 65 '' long.f32
factors_at 64 's["long_factor"] = s["short_factor"]' only-short.f32
factors_at 65 's["short_factor"] = s["long_factor"]' only-long.f32
cmp short.f32 only-short.f32 || fail "a context of 64 has not the short factors"
cmp long.f32 only-long.f32 || fail "a context of 65 has not the long factors"
cmp -s short.f32 long.f32 && fail "short and long factors give the same logits"
rm -rf phi3

# A normalizer of form C joins e and its accent; also in what quantize makes of the folder, and whatever its
# pre-tokenizer is called there.
python3 "$SOURCE_DIR/tests/support/hf_folder.py" "$golden/logits/qwen3.gguf" nfc || fail "hf_folder.py qwen3"
python3 -c '
import json
nfc = {"type": "NFC"}
for normalizer, out in ((nfc, "nfc"), ({"type": "Sequence", "normalizers": [nfc]}, "list"), (None, "none")):
    t = json.load(open("nfc/tokenizer.json"))
    t["normalizer"] = normalizer
    json.dump(t, open(out + ".json", "w"))' || fail "tokenizer.json of qwen3"
for kind in nfc list none; do
    cp $kind.json nfc/tokenizer.json
    "$LOCKSTEP" quantize nfc nfc.gguf f16 >out 2>&1 || fail "quantize nfc: $(cat out)"
    for model in nfc nfc.gguf; do
        marked=$(printf 'e\xcc\x81' | "$LOCKSTEP" tokenize $model --no-bos) || fail "tokenize $model"
        joined=$(printf '\xc3\xa9' | "$LOCKSTEP" tokenize $model --no-bos) || fail "tokenize $model"
        [ "$marked" = "$joined" ] && is=nfc || is=none
        [ "${kind/list/nfc}" = $is ] || fail "$model with normalizer $kind: e and an accent are $marked, joined $joined"
    done
done
rm -rf nfc nfc.gguf

# The language model alone.
for name in gemma4 gemma4-ple gemma3n llama4 minimax-m3; do
    [ -e "$golden/logits/$name.gguf" ] || continue
    make_folder "$golden/logits/$name.gguf" flat --gguf flat.gguf --flat
    same_bits flat flat.gguf
    rm -rf flat
done

# As mlx-lm stores them: delta nets, experts each kind by itself, and latent attention's matrices as GGUF has them.
for name in qwen3next qwen35moe gemma4-moe llama4 kimi-linear step35 bailingmoe2 hunyuan-moe deepseek2-v3-mla deepseek4; do
    [ -e "$golden/logits/$name.gguf" ] || continue
    make_folder "$golden/logits/$name.gguf" turned --gguf turned.gguf --mlx-lm
    same_bits turned turned.gguf --kv f32
    rm -rf turned
done

# The same model by another name.
make_folder "$golden/logits/deepseek2-v3.gguf" lite
sed -i 's/"deepseek_v3"/"glm4_moe_lite"/; s/"scoring_func": "sigmoid", //' lite/config.json
same_bits lite "$golden/logits/deepseek2-v3.gguf" --kv f32

# What multiplies cos and sin: transformers' attention_factor is all of it; attn_factor, which vLLM reads and
# DeepSeek-R1-0528-Qwen3-8B is published with, multiplies what the factor gives, here 1 + 0.1 ln 4.
make_folder "$golden/logits/qwen3.gguf" yarn
yarn() { # entries of rope_scaling, logits
    python3 - "$1" <<'EOF'
import json, sys
c = json.load(open("yarn/config.json"))
c["rope_scaling"] = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, **json.loads(sys.argv[1])}
json.dump(c, open("yarn/config.json", "w"))
EOF
    run_eval yarn "$2"
}
yarn '{"attention_factor": 1.0}' a.f32
yarn '{"attn_factor": 0.8782488562869419}' b.f32
cmp a.f32 b.f32 || fail "YaRN's attn_factor of 1 / (1 + 0.1 ln 4) is not an attention_factor of 1"
yarn '{}' b.f32
cmp -s a.f32 b.f32 && fail "YaRN's attention_factor of 1 is that of a file which names none"

make_folder "$golden/logits/llama.gguf" granite --gguf granite.gguf --granite
same_bits granite granite.gguf --kv f32

for type in f16 bf16; do
    make_folder "$golden/quant-models/q-llama-$type.gguf" $type
    same_bits $type "$golden/quant-models/q-llama-$type.gguf"
done

# Quantized folders, and what their numbers are worth: F32; Q4_1; Q8_0.
quantized() { # name source options...
    local name=$1 source=$2
    shift 2
    make_folder "$source" "$name" --gguf "$name.gguf" "$@"
    same_bits "$name" "$name.gguf"
}
quantized fp8 "$golden/logits/llama-tied.gguf" --weights fp8 --shards 2
quantized fp8-bf16 "$golden/logits/llama-tied.gguf" --weights fp8 --scales bf16
quantized fp8-row "$golden/logits/llama-tied.gguf" --weights fp8-row --shards 2
quantized fp8-row-bf16 "$golden/logits/qwen3.gguf" --weights fp8-row --scales bf16
quantized fp8-all "$golden/logits/llama-tied.gguf" --weights fp8-all
quantized fp8-row-moe "$golden/logits/minimax-m2.gguf" --weights fp8-row --scales bf16
quantized fp8-moe "$golden/logits/minimax-m2.gguf" --weights fp8
# All experts of a layer are read by one description: scales of another type than the first one's are refused.
make_folder "$golden/logits/llama-moe.gguf" fp8-mixed --weights fp8-row --scales f32
python3 - fp8-mixed/model.safetensors <<'EOF'
import json, struct, sys
raw = open(sys.argv[1], "rb").read()
n = 8 + struct.unpack("<Q", raw[:8])[0]
header, data = json.loads(raw[8:n]), raw[n:]
scale = header["model.layers.0.block_sparse_moe.experts.1.w2.weight_scale"]
begin, end = scale["data_offsets"]
half = b"".join(data[i + 2:i + 4] for i in range(begin, end, 4))
scale.update(dtype="BF16", data_offsets=[len(data), len(data) + len(half)])
text = json.dumps(header).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + data + half)
EOF
refuse 2 'experts.1.w2.weight: its shape or type is not that of the other experts' "$LOCKSTEP" run fp8-mixed -p a -n 1 -t 1
q=$golden/quant-models
quantized mlx4 "$q/q-llama-f16.gguf" --weights mlx4 --group 64
quantized mlx4-f16 "$q/q-llama-f16.gguf" --weights mlx4 --group 32 --scales f16
quantized mlx8 "$q/q-llama-f16.gguf" --weights mlx8 --group 128
quantized mlx8-f16 "$q/q-llama-f16.gguf" --weights mlx8 --group 64 --scales f16
quantized int4 "$q/q-llama-f16.gguf" --weights int4 --group 32 --scales bf16
quantized int4-f16 "$q/q-llama-f16.gguf" --weights int4 --group 128 --scales f16 --shards 2
quantized mlx4-moe "$golden/logits/gpt-oss-f32.gguf" --weights mlx4 --group 32
quantized mxfp4 "$q/q-llama-f16.gguf" --weights mlx-mxfp4 --shards 2
quantized mxfp4-moe "$golden/logits/qwen3moe.gguf" --weights mlx-mxfp4
quantized mxfp4-packed "$golden/logits/qwen3moe.gguf" --weights mxfp4
quantized mxfp8 "$q/q-llama-f16.gguf" --weights mxfp8 --shards 2
quantized mlx-mxfp8 "$q/q-llama-f16.gguf" --weights mlx-mxfp8
quantized nvfp4 "$q/q-llama-f16.gguf" --weights nvfp4 --group 64 --shards 2
quantized nvfp4-modelopt "$q/q-llama-f16.gguf" --weights modelopt-nvfp4 --group 64
quantized nvfp4-mlx "$q/q-llama-f16.gguf" --weights mlx-nvfp4 --group 64
quantized nvfp4-moe "$golden/logits/llama4.gguf" --wide --weights modelopt-nvfp4 --group 64
quantized nvfp4-stack "$golden/logits/gemma4-moe.gguf" --wide --weights mlx-nvfp4 --group 64 --mlx-lm
quantized fp8-stack "$golden/logits/gemma4-moe.gguf" --wide --weights fp8
quantized mlx4-stack "$golden/logits/gemma4-moe.gguf" --wide --weights mlx4 --group 32 --mlx-lm --shards 2
quantized mxfp4-stack "$golden/logits/gemma4-moe.gguf" --wide --weights mlx-mxfp4 --mlx-lm
quantized fp8-row-llama4 "$golden/logits/llama4.gguf" --wide --weights fp8-row
quantized mlx8-llama4 "$golden/logits/llama4.gguf" --wide --weights mlx8 --group 64 --scales f16 --mlx-lm
quantized int4-llama4 "$golden/logits/llama4.gguf" --wide --weights int4 --group 32 --scales bf16
quantized mxfp4-q8 "$golden/logits/gpt-oss-mxfp4.gguf" --weights mlx-mxfp4 --group 64 # all but the experts affine

# Settings and tensors that are missing, or that lockstep computes in another way. Python sees the language model's
# settings as c, and the tensors' entries as h, whose names begin with p and the layer.
damaged() { # model, Python, what the refusal says; options of hf_folder.py
    make_folder "$golden/logits/$1.gguf" damaged "${@:4}"
    python3 - "$2" <<'EOF'
import json, struct, sys
raw = open("damaged/model.safetensors", "rb").read()
n = 8 + struct.unpack("<Q", raw[:8])[0]
o, h = json.load(open("damaged/config.json")), json.loads(raw[8:n])
c = o.get("text_config", o)
p = min(k for k in h if "layers.0." in k).split("0.")[0]
exec(sys.argv[1])
json.dump(o, open("damaged/config.json", "w"))
text = json.dumps(h).encode()
open("damaged/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + raw[n:])
EOF
    refuse 2 "$3" timeout 60 "$LOCKSTEP" run damaged -p a -n 1 -t 1
    rm -rf damaged
}
damaged gemma4 'del c["layer_types"]' 'config.json: layer_types is missing'
damaged gemma4 'c["layer_types"][-1] = "sliding_attention"' 'the last layer must be full_attention'
damaged gemma4 'c["use_bidirectional_attention"] = "all"' 'use_bidirectional_attention is .*all.*, expected vision'
damaged gemma4 'c["attention_k_eq_v"] = False' 'layers.5.self_attn.v_proj.weight is missing'
damaged gemma4 'c["rope_parameters"]["full_attention"]["rope_type"] = "yarn"' 'rope_type is .*yarn.*, expected proportional'
damaged gemma4-moe 'c["top_k_experts"] = None' 'config.json: top_k_experts is missing'
damaged llama4 'c["no_rope_layers"][0] = 0' 'no_rope_layers is'
damaged llama4 'c["attention_chunk_size"] = 4096' 'attention_chunk_size is 4096, expected 8192'
damaged llama4 'c["use_qk_norm"] = False' 'use_qk_norm must be true for 8 experts'
damaged llama4 'c["moe_layers"] = [1, 3]' 'moe_layers is'
damaged llama4 'h[p + "0.feed_forward.router.bias"] = h.pop(p + "0.feed_forward.router.weight")' 'which lockstep does not know for model_type llama4'
damaged kimi-linear 'del c["linear_attn_config"]["full_attn_layers"]' 'layer 1 must be one of full_attn_layers or of kda_layers'
damaged kimi-linear 'c["mla_use_nope"] = False' 'mla_use_nope is false, expected 1'
damaged kimi-linear 'c["linear_attn_config"]["gate_lower_bound"] = -5' 'gate_lower_bound is -5, expected 0'
damaged kimi-linear 'h[p + "0.self_attn.A"] = h.pop(p + "0.self_attn.A_log")' 'which lockstep does not know for model_type kimi_linear'
damaged minimax-m3 'c["moe_layer_freq"] = [0, 1, 0]' 'moe_layer_freq is .*, expected the dense layers first'
damaged minimax-m3 'c["sparse_attention_config"]["sparse_init_block"] = 1' 'sparse_init_block is 1, expected 0'
damaged minimax-m3 'del c["sparse_attention_config"]' 'sparse_attention_freq is'
damaged step35 'c["partial_rotary_factors"][1] = 0.5' 'expected 1 for layers with a window'
damaged step35 'c["moe_layers_enum"] = "2,4"' 'moe_layers_enum is'
damaged step35 'c["rope_theta"][2] = 1e4 + 1' 'rope_theta is .*, expected the same number'
damaged step35 'del c["num_attention_groups"]' 'config.json: num_attention_groups is missing'
damaged hunyuan-moe 'c["moe_topk"][1] = 2' 'moe_topk is .*, expected the same number for each layer'
damaged hunyuan-moe 'c["use_cla"] = True' 'use_cla is true, expected 0'
damaged hunyuan-moe 'del h[p + "1.mlp.experts.3.up_proj.weight"]' 'experts.3.up_proj.weight is missing'
damaged bailingmoe2 'c["norm_head"] = True' 'norm_head is true, expected 0'
damaged bailingmoe2 'del c["score_function"]' 'use_qk_norm must be true and score_function sigmoid'
damaged bailingmoe2 'h.pop("model.word_embeddings.weight")' 'embed_tokens.weight is missing'
if [ -e "$golden/logits/kimi-k3.gguf" ]; then
    quantized mxfp4-k3 "$golden/logits/kimi-k3.gguf" --weights mxfp4
    damaged kimi-k3 'del h[p + "2.mlp_res_proj.weight"]' 'layers.2.mlp_res_proj.weight is missing'
    damaged kimi-k3 'c["mla_use_output_gate"] = False' 'mla_use_output_gate is false, expected 1'
    damaged kimi-k3 'del c["attn_res_block_size"]' 'attn_res.block_size'
fi
if [ -e "$golden/logits/deepseek4.gguf" ]; then
    damaged deepseek4 'del c["compress_ratios"]' 'compress_ratios is missing'
    damaged deepseek4 'c["compress_ratios"][2] = 127' 'compress_ratios is .*, expected 0, 4 or 128 for each layer'
    damaged deepseek4 'c["compress_ratios"] = c["compress_ratios"][:3]' 'compress_ratios is .*, expected 0, 4 or 128 for each layer'
    damaged deepseek4 'c["compress_ratios"][0] = 2 ** 32' 'compress_ratios is'
    damaged deepseek4 'c["compress_ratios"] = 4' 'compress_ratios is 4'
    damaged deepseek4 'c["layer_types"][1] = "full_attention"' 'layer_types is .*, expected sliding_attention' --v5
    damaged deepseek4 'c["mlp_layer_types"] = ["moe", "hash_moe", "moe", "moe"]' 'expected the layers with hash_moe first' --v5
    damaged deepseek4 'c["compress_rates"]["compressed_sparse_attention"] = 8' 'compressed_sparse_attention is 8, expected 4' --v5
    damaged deepseek4 'c["rope_parameters"]["compress"]["attention_factor"] = 2' 'attention_factor is 2, expected 1' --v5
    damaged deepseek4 'del c["num_hash_layers"]' 'num_hash_layers is missing'
    damaged deepseek4 'c["num_hash_layers"] = 4' 'blk.1.ffn_gate_tid2eid.weight is missing'
    damaged deepseek4 'c["num_hash_layers"] = -1' 'num_hash_layers is -1'
    damaged deepseek4 'del c["qk_rope_head_dim"]' 'qk_rope_head_dim is missing'
    damaged deepseek4 'c["qk_rope_head_dim"] = 1 << 31' 'rope.dimension_count is 2147483648'
    damaged deepseek4 'c["scoring_func"] = "sigmoid"' 'scoring_func is .*sigmoid.*, expected sqrtsoftplus'
    damaged deepseek4 'c["topk_method"] = "greedy"' 'topk_method is .*greedy.*, expected noaux_tc'
    damaged deepseek4 'c["swiglu_limit"] = -1' 'swiglu_limit is -1, expected 0 or more'
    damaged deepseek4 'c["hc_mult"] = 1 << 31' 'hyper_connection.count is 2147483648, expected 2 to 8'
    damaged deepseek4 'del c["o_groups"]' 'attention.output_group_count is missing'
    damaged deepseek4 'del h[p + "0.attn.attn_sink"]' 'attn_sinks.weight is missing'
    damaged deepseek4 'del h[p + "0.ffn.gate.tid2eid"]' 'ffn_gate_tid2eid.weight is missing'
    damaged deepseek4 'del h[p + "1.ffn.experts.3.w2.weight"]' 'layers.1.ffn.experts.3.w2.weight is missing'
    damaged deepseek4 'del h["hc_head_scale"]' 'output_hc_scale.weight is missing'
    damaged deepseek4 'h["layers.0.attn.wq_c.weight"] = h.pop("layers.0.attn.wq_a.weight")' 'wq_c.weight, which lockstep does not know for model_type deepseek_v4'
fi
if [ -e "$golden/logits/gemma3n.gguf" ]; then
    damaged gemma3n 'c["activation_sparsity_pattern"][0] = 0.5' 'activation_sparsity_pattern is'
    damaged gemma3n 'c["layer_types"][0] = "full_attention"' 'layer 0 must be sliding_attention'
    damaged gemma3n 'del h["model.language_model.altup_projections.1.weight"]' 'altup_projections.1.weight is missing'
fi

# The other commands take a folder where they take a file.
make_folder "$golden/logits/qwen3moe.gguf" folder
"$LOCKSTEP" inspect folder >out 2>&1 || fail "inspect: $(cat out)"
grep -q 'a folder of safetensors' out || fail "inspect says: $(head -3 out)"
"$LOCKSTEP" plan folder --ranks 2 >out 2>&1 || fail "plan: $(cat out)"
"$LOCKSTEP" run folder/ -p "the" -n 3 -t 1 >out 2>&1 || fail "run: $(cat out)"
"$LOCKSTEP" quantize folder folder.gguf q8_0 >out 2>&1 || fail "quantize: $(cat out)"
"$LOCKSTEP" quantize "$golden/logits/qwen3moe.gguf" file.gguf q8_0 >out 2>&1 || fail "quantize: $(cat out)"
run_eval folder.gguf a.f32
run_eval file.gguf b.f32
cmp a.f32 b.f32 || fail "a quantized folder is not a quantized file"
"$LOCKSTEP" quantize mlx8 mlx.gguf f32 >out 2>&1 || fail "quantize mlx8: $(cat out)"
"$LOCKSTEP" quantize mlx8.gguf worth.gguf f32 >out 2>&1 || fail "quantize mlx8.gguf: $(cat out)"
run_eval mlx.gguf a.f32
run_eval worth.gguf b.f32
cmp a.f32 b.f32 || fail "MLX codes dequantized are not Q8_0's"
# The number of a whole NVFP4 matrix counts, also in what quantize makes of it.
for model in nvfp4 nvfp4.gguf; do
    "$LOCKSTEP" quantize $model worth.gguf f32 >out 2>&1 || fail "quantize $model: $(cat out)"
    run_eval worth.gguf $model.f32
done
cmp nvfp4.f32 nvfp4.gguf.f32 || fail "NVFP4 codes dequantized are not the GGUF's"

# Vocabularies: the ids of the texts in golden/tokenizers.
for file in "$golden"/tokenizers/*.gguf.gz; do
    name=$(basename "$file" .gguf.gz)
    gzip -dc "$file" >vocab.gguf
    rm -rf vocab
    make_folder vocab.gguf vocab
    python3 - "$golden/tokenizers/$name.json" >texts <<'EOF'
import json, sys
for c in json.load(open(sys.argv[1]))["cases"]:
    text = bytes.fromhex(c["hex"])
    if b"\0" not in text:
        print(json.dumps(text.decode()))
EOF
    [ "$(wc -l <texts)" -gt 200 ] || fail "$name: only $(wc -l <texts) texts"
    for model in vocab.gguf vocab; do
        "$LOCKSTEP" tokenize $model --jsonl <texts >"ids.$model" 2>err || fail "tokenize $name: $(cat err)"
    done
    cmp ids.vocab.gguf ids.vocab || fail "$name: tokenizer.json gives other ids than the GGUF"
    # What quantize makes of it, as programs read it that know GGUF's keys alone.
    "$LOCKSTEP" quantize vocab made.gguf f32 >out 2>&1 || fail "quantize $name: $(cat out)"
    PYTHONPATH=$SOURCE_DIR/tests/support python3 - vocab.gguf made.gguf <<'EOF' || fail "$name: tokenizer.ggml.pre"
import sys
from hf_folder import Gguf
file, made = (Gguf(p) for p in sys.argv[1:])
for key in [k for k in made.raw if k.startswith("tokenizer.lockstep.")]:
    del made.raw[key]
made.write(sys.argv[2])
key = "tokenizer.ggml.pre"
sys.exit(file.keys["tokenizer.ggml.model"] == "gpt2" and made.keys.get(key) != file.keys[key])
EOF
    "$LOCKSTEP" tokenize made.gguf --jsonl <texts >ids.made 2>err || fail "tokenize made of $name: $(cat err)"
    cmp ids.vocab.gguf ids.made || fail "$name: the quantized folder gives other ids than the GGUF"
    [ $name = llama-spm ] || continue
    # Its pieces alone, and a token that was added to them, as newer folders and as older ones name it.
    make_folder vocab.gguf pieces --pieces
    "$LOCKSTEP" tokenize pieces --jsonl <texts >ids.pieces 2>err || fail "tokenize pieces: $(cat err)"
    cmp ids.vocab.gguf ids.pieces || fail "$name: tokenizer.model gives other ids than the GGUF"
    echo '"a<|added|>b"' >texts
    want=$("$LOCKSTEP" tokenize pieces --jsonl <texts)
    [[ $want = "[1,263,32000,"*"]" ]] || fail "a token that was added: $want"
    mv pieces/tokenizer_config.json . && echo '{"<|added|>": 32000}' >pieces/added_tokens.json
    got=$("$LOCKSTEP" tokenize pieces --jsonl <texts)
    [ "$got" = "$want" ] || fail "a token of added_tokens.json: $got"
done
# Every end that a folder names ends an answer, also in what quantize makes of it.
make_folder "$golden/logits/qwen3.gguf" ends
answer() { "$LOCKSTEP" run "$1" --raw -p abc --temp 0 -n 6 --json -q -t 1 | python3 -c 'import json, sys; o = json.load(sys.stdin); print(o["stop"], o["generated_tokens"])'; }
[ "$(answer ends)" = "length 6" ] || fail "an answer of six tokens: $(answer ends)"
ends() { # JSON of generation_config.json, "" for none; then that of config.json's eos_token_id
    rm -f ends/generation_config.json
    [ -z "$1" ] || echo "{\"eos_token_id\": $1}" >ends/generation_config.json
    python3 - "$2" <<'EOF'
import json, sys
c = json.load(open("ends/config.json"))
c["eos_token_id"] = json.loads(sys.argv[1])
json.dump(c, open("ends/config.json", "w"))
EOF
    [ "$(answer ends)" = "end 2" ] || fail "ends $1, $2: $(answer ends)"
}
ends 229 283
ends "[283, 281, 284, 287, 229]" 283
ends "" "[283, 229]"
ends '[283, 229], "max_length": 1000000000000000019884624838656' 283 # int(1e30), which no 64 bits hold
"$LOCKSTEP" quantize ends ends.gguf f32 >/dev/null || fail "quantize ends"
[ "$(answer ends.gguf)" = "end 2" ] || fail "ends of a quantized folder: $(answer ends.gguf)"
# Spaces beside a token that swallows them.
strip() { # lstrip rstrip
    python3 - "$@" <<'EOF'
import json, sys
t = json.load(open("ends/tokenizer.json"))
for a in t["added_tokens"]:
    if a["content"] == "<|im_start|>":
        a["lstrip"], a["rstrip"] = sys.argv[1] == "1", sys.argv[2] == "1"
json.dump(t, open("ends/tokenizer.json", "w"))
EOF
}
tokens() { printf '%s' "$1" | "$LOCKSTEP" tokenize ends; }
spaced="a <|im_start|>"$' \n'" b"
[ "$(tokens "$spaced")" != "$(tokens "a<|im_start|>b")" ] || fail "spaces are swallowed that nobody asked for"
strip 0 1
[ "$(tokens "$spaced")" = "$(tokens "a <|im_start|>b")" ] || fail "rstrip: $(tokens "$spaced")"
strip 1 0
[ "$(tokens "$spaced")" = "$(tokens "a<|im_start|>"$' \n'" b")" ] || fail "lstrip: $(tokens "$spaced")"
strip 1 1
[ "$(tokens "$spaced")" = "$(tokens "a<|im_start|>b")" ] || fail "lstrip and rstrip: $(tokens "$spaced")"
# All that Unicode calls white space (\s of Rust's regex, in Hugging Face's added_vocabulary.rs): no-break, full-width, em.
wide=$'a \xc2\xa0<|im_start|>\xe3\x80\x80\n\xe2\x80\x83b'
[ "$(tokens "$wide")" = "$(tokens "a<|im_start|>b")" ] || fail "wide spaces: $(tokens "$wide")"
wide=$'\xe3\x80\x81<|im_start|>\xe2\x80\x8b' # a comma and a space of no width are none
[ "$(tokens "$wide" | wc -w)" -gt 2 ] || fail "what is no space is swallowed: $(tokens "$wide")"
# A tokenizer that is not known is no secret when the folder becomes a file.
sed -i 's/"Regex": "[^"]*"/"Regex": "\\\\w+"/' ends/tokenizer.json
"$LOCKSTEP" quantize ends ends.gguf f32 >out 2>err || fail "quantize with an unknown tokenizer: $(cat err)"
grep -q "warning: the new file holds a tokenizer that lockstep cannot use" err || fail "an unknown tokenizer: $(cat err)"

[ $failures = 0 ] && echo "$n architectures, 4 quantizations, 6 vocabularies: the same"
[ $failures = 0 ]
