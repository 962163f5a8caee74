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
