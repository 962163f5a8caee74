#!/bin/bash
# lockstep plan on header-only files of the true shapes of large models: the bytes of the ranks add up, shares
# follow the memory, and what does not fit is refused with a sentence.
set -uo pipefail
. "$SOURCE_DIR/tests/support/scratch.sh"

sum() { # the ranks' weights together: sum FILE OPTIONS
    "$LOCKSTEP" plan "$@" --json | python3 -c '
import json, sys
print(sum(r["weight_bytes"] for r in json.load(sys.stdin)["ranks"]))'
}

for shape in qwen2-57b-a14b qwen3-235b-a22b qwen3-coder-480b deepseek-v2 deepseek-v3 kimi-k2 gpt-oss-120b; do
    file=$work/$shape.gguf
    "$LOCKSTEP" synth --shape $shape --type q4_K --header-only "$file" >/dev/null 2>&1 ||
        fail "synth --header-only $shape"
    one=$(sum "$file" --ranks 1)
    # A pipeline holds every tensor once.
    for n in 2 3 8; do
        [ "$(sum "$file" --ranks $n --parallel pipeline)" = "$one" ] ||
            fail "$shape: the bytes of a pipeline of $n do not add up to $one"
    done
    # Tensor ranks share kv heads and keep norms, routers and latent projections whole: at most 4 % more.
    for split in 1,1 3,1 512,512,256,256; do
        many=$(sum "$file" --split $split)
        [ "$many" -ge "$one" ] && [ $((many - one)) -le $((one / 25)) ] ||
            fail "$shape: split $split holds $many bytes, one rank $one"
    done
    # With the sizes of machines, nobody gets more than he has.
    "$LOCKSTEP" plan "$file" --memory 512G,512G,256G,256G --json | python3 -c '
import json, sys
memory = [512 << 30, 512 << 30, 256 << 30, 256 << 30]
for r, m in zip(json.load(sys.stdin)["ranks"], memory):
    assert r["weight_bytes"] + r["kv_bytes"] + r["buffer_bytes"] == r["sum_bytes"] <= m == r["memory_bytes"], r' || fail "$shape: a share larger than its machine"
    out=$("$LOCKSTEP" plan "$file" --memory 15G,15G 2>&1)
    [ $? = 2 ] && [[ $out == *"would need"*"has 16.1 GB"* ]] || fail "$shape on two small machines: $out"
done

# KV bytes of a whole context by kind of layer, from the models' cards: f16, pages of 64 positions.
kv() { # kv SHAPE CTX: all bytes, and those of windows
    "$LOCKSTEP" plan "$work/$1.gguf" --ctx "$2" --json | python3 -c '
import json, sys
r = json.load(sys.stdin)["ranks"][0]
print(r["kv_bytes"], r["kv_window_bytes"])'
}
page=$((64 * 8 * 64 * 2 * 2)) # 8 kv heads, keys and values of 64
# 18 layers see all of it; 18 see 128 positions, and in a step of 512 tokens those of 11 pages.
for ctx in 4096 131072; do
    want="$((18 * ctx / 64 * page + 18 * 11 * page)) $((18 * 11 * page))"
    got=$(kv gpt-oss-120b $ctx)
    [ "$got" = "$want" ] || fail "gpt-oss-120b with $ctx positions: $got, not $want"
done
# A latent of 512 and a key part of 64, once, in 61 layers.
[ "$(kv deepseek-v3 163840)" = "$((61 * 163840 * 576 * 2)) 0" ] || fail "deepseek-v3: $(kv deepseek-v3 163840)"
# Layers of several kinds: each kind's heads. Gemma 4 26B has 16 heads everywhere, 8 key-value heads where
# there is a window and 2 elsewhere; Step 3.5 Flash 96 and 64 heads.
for kinds in "gemma-4-26b-a4b 8-16 4-8/1-2" "step-3.5-flash 32-64/48-96 4-8"; do
    set -- $kinds
    "$LOCKSTEP" synth --shape $1 --type q4_K --header-only "$work/kinds.gguf" >/dev/null 2>&1 || fail "synth $1"
    "$LOCKSTEP" plan "$work/kinds.gguf" --ranks 2 >out || fail "plan $1"
    [ "$(awk '$1 == 1 { print $3, $4 }' out)" = "$2 $3" ] || fail "plan $1: heads $(grep '^ *1 ' out)"
    "$LOCKSTEP" plan "$work/kinds.gguf" --ranks 2 --json | python3 -c '
import json, sys
kinds = json.load(sys.stdin)["ranks"][1]["attention"]
heads, kv = ({"%d-%d" % tuple(k[of]) for k in kinds} for of in ("heads", "kv_heads"))
assert heads == set(sys.argv[1].split("/")) and kv == set(sys.argv[2].split("/")), kinds
assert {k["window"] > 0 for k in kinds} == {True, False}' $2 $3 || fail "plan $1 --json: heads"
done

# What a cache is made of. DeepSeek V3.2: index keys of 128 f16 in 61 layers, beside a latent of 576.
# Qwen3-Next: in 36 layers 32 states of 128 x 128 floats and the last 3 inputs of 8,192 channels.
"$LOCKSTEP" synth --shape deepseek-v3.2 --header-only "$work/parts.gguf" >/dev/null 2>&1 || fail "synth deepseek-v3.2"
"$LOCKSTEP" plan "$work/parts.gguf" --ranks 1 --ctx 32768 --json | python3 -c '
import json, sys
r, = json.load(sys.stdin)["ranks"]
assert r["kv_index_bytes"] == 61 * 128 * 2 * 32768 and r["kv_bytes"] == 61 * (128 + 576) * 2 * 32768, r' || fail "index keys"
"$LOCKSTEP" synth --shape qwen3-next-80b-a3b --header-only "$work/parts.gguf" >/dev/null 2>&1 || fail "synth qwen3-next"
"$LOCKSTEP" plan "$work/parts.gguf" --ranks 1 --ctx 32768 --json | python3 -c '
import json, sys
r, = json.load(sys.stdin)["ranks"]
slots = r["state_bytes"] / (36 * 4 * (32 * 128 * 128 + 3 * 8192))
assert slots == int(slots) and r["kv_bytes"] == 12 * 2 * 2 * 256 * 2 * 32768 and r["kv_index_bytes"] == 0, r' || fail "states"

# A plan is what a session then takes: weights, cache and buffers of each rank.
for file in "$SOURCE_DIR/models/jargon-3m-f16.gguf" "$SHARED_DIR"/golden/logits/{deepseek2-v3,gpt-oss-mxfp4,qwen3moe}.gguf; do
    [ -e "$file" ] || { echo "note: $file is not there"; continue; }
    for layout in "--ranks 1" "--split 2,1 --chunk 33" "--ranks 3 --parallel pipeline --kv q8_0" \
        "--ranks 2 --experts whole --ctx 200"; do
        # shellcheck disable=SC2086
        "$LOCKSTEP" plan "$file" $layout -t 2 --json >"$work/plan" || fail "plan $file $layout"
        # shellcheck disable=SC2086
        timeout 60 "$LOCKSTEP" eval "$file" --ids 1,2,3 $layout -t 2 --json >"$work/run" 2>"$work/err" ||
            fail "eval $file $layout: $(cat "$work/err")"
        python3 -c '
import json, sys
plan, run = (json.load(open(p)) for p in sys.argv[1:])
held = run["held"]
assert len(held) == len(plan["ranks"])
for a, b in zip(plan["ranks"], held):
    for key in ("weight_bytes", "kv_bytes", "buffer_bytes", "layers", "heads", "vocabulary"):
        assert a[key] == b[key], (key, a, b)
    for key in ("ffn", "experts", "expert_ffn"):  # a plan leaves out what there is not
        assert a.get(key, [0, 0]) == b.get(key, [0, 0]), (key, a, b)' "$work/plan" "$work/run" || fail "$file $layout: not as planned"
    done
done

# ---- clusters that do not exist: --bandwidth, --latency ---------------------------------------------
"$LOCKSTEP" synth --shape llama-3.3-70b --type f16 --header-only 70b.gguf >/dev/null 2>&1 || fail "synth 70b"
at=(plan 70b.gguf --latency 5us --bandwidth)
[ "$("$LOCKSTEP" plan 70b.gguf --ranks 4)" = "$("$LOCKSTEP" "${at[@]}" 819G --ranks 4 | sed '/^predicted/,$d')" ] ||
    fail "four equal machines on a fast wire: the table is not that of tensor4"
"$LOCKSTEP" "${at[@]}" 819G,819G,819G,819G --json | python3 -c '
import json, sys
p = json.load(sys.stdin)
assert p["parallel"] == "tensor4", p["parallel"]
c = p["candidates"]
assert [x["parallel"] for x in c] == ["tensor4", "tensor2xpipeline2", "pipeline4"], c
for x in c:
    assert x["fits"] and x["shares"] == [1] * 4, x
    assert abs(x["tokens_per_s"] * (x["reading_s"] + x["between_s"]) - 1) < 1e-6, x
# 139 GB a token (70.55e9 parameters less the embedding, in f16); 162 exchanges.
assert abs(c[0]["reading_s"] / (139.0e9 / 4 / 819e9) - 1) < 0.01, c[0]
assert abs(c[0]["between_s"] - 162 * 5e-6) < 1e-9, c[0]
assert sum(c[0]["sum_bytes"]) == sum(r["sum_bytes"] for r in p["ranks"]), c[0]' || fail "--bandwidth --json"
# Shares follow the bandwidth, and memory where that is short; --parallel is still obeyed.
"$LOCKSTEP" "${at[@]}" 819G,273G --memory 256G,256G --parallel pipeline --json | python3 -c '
import json, sys
p = json.load(sys.stdin)
assert p["parallel"] == "pipeline2" and p["candidates"][0]["parallel"] == "tensor2", p
assert all(c["shares"] == [3, 1] for c in p["candidates"]), p["candidates"]' || fail "--bandwidth 819G,273G"
"$LOCKSTEP" "${at[@]}" 819G,273G --memory 96G,96G --json | python3 -c '
import json, sys
p = json.load(sys.stdin)
assert all(r["sum_bytes"] <= r["memory_bytes"] for r in p["ranks"]), p["ranks"]
a, b = p["candidates"][0]["shares"]
assert 1 < a / b < 3, (a, b)' || fail "--bandwidth with little memory"
# A split that suits some layouts leaves those: two shares for four ranks are of stages or of members.
for layout in auto tensor2xpipeline2; do
    [ "$("$LOCKSTEP" "${at[@]}" 819G --ranks 4 --split 3,1 --parallel $layout | sed '/^predicted/,$d')" = \
        "$("$LOCKSTEP" plan 70b.gguf --ranks 4 --split 3,1 --parallel tensor2xpipeline2)" ] || fail "--split 3,1 of $layout"
done
refuse() { # PATTERN words...
    local pattern=$1 status
    shift
    "$LOCKSTEP" "$@" >out 2>err
    status=$?
    [ $status = 2 ] && grep -Eq -e "$pattern" err || fail "$*: status $status, said '$(cat err)', expected /$pattern/"
}
refuse "tensor2: rank 1 would need [0-9.]+ GB, has 17.2 GB; pipeline2: rank" "${at[@]}" 819G --memory 96G,16G
refuse "the split has 2 weights, but there are 4 ranks" "${at[@]}" 819G --ranks 4 --split 3,1 --parallel pipeline
refuse "the split has 3 weights, but there are 4 ranks" "${at[@]}" 819G --ranks 4 --split 3,1,1
refuse "bandwidth and --latency go together" plan 70b.gguf --ranks 2 --bandwidth 819G
refuse "bandwidth and --latency go together" plan 70b.gguf --ranks 2 --latency 5us
refuse "--bandwidth names 3 machines for 2" "${at[@]}" 819G,1G,2G --ranks 2
for bad in 0 -5G 5X "" 819G,; do refuse "expected bytes a second" plan 70b.gguf --latency 5us --bandwidth "$bad"; done
for bad in 0us 5 us -3us 5usx; do refuse "expected a time" plan 70b.gguf --bandwidth 1G --latency "$bad"; done
# GPUs: bandwidth, memory, crossing, and then perhaps int8's rate; ranks on processors have the other options.
"$LOCKSTEP" synth --shape llama-3.3-70b --type q4_K --header-only 70b-q4.gguf >/dev/null 2>&1 || fail "synth 70b q4_K"
"$LOCKSTEP" plan 70b-q4.gguf --gpu 4800,141,25 --json | python3 -c '
import json, sys
p = json.load(sys.stdin)
c, = p["candidates"]
assert c["submissions"] == 1 and abs(c["crossings_s"] - 25e-6) < 1e-12 and c["between_s"] == 0, c
assert abs(c["tokens_per_s"] * (c["reading_s"] + 25e-6) - 1) < 1e-6, c
assert abs(c["reading_s"] / (40.2e9 / 4800e9) - 1) < 0.02, c
assert p["ranks"][0]["memory_bytes"] == 141e9 and "prompt_tokens_per_s_at_most" not in c, p' || fail "--gpu"
"$LOCKSTEP" plan 70b-q4.gguf --gpu 1008,24,25,660 --ranks 4 --latency 20us --json | python3 -c '
import json, sys
p = json.load(sys.stdin)
assert [(c["parallel"], c["submissions"]) for c in p["candidates"]] == [("tensor4", 161), ("tensor2xpipeline2", 162), ("pipeline4", 4)], p
assert abs(p["candidates"][0]["crossings_s"] - 161 * 25e-6) < 1e-9, p
assert abs(p["candidates"][0]["prompt_tokens_per_s_at_most"] / (4 * 660e12 / (2 * 68.4e9)) - 1) < 0.01, p' || fail "--gpu of four"
"$LOCKSTEP" plan 70b-q4.gguf --gpu 1008,24,25/cpu --latency 20us --bandwidth 80G --memory 512G,64G --json | python3 -c '
import json, sys
p = json.load(sys.stdin)
assert [r["memory_bytes"] for r in p["ranks"]] == [24e9, 64 << 30] and p["candidates"][0]["fits"], p
assert p["ranks"][0]["sum_bytes"] > 22e9, p' || fail "a GPU and a processor"
for same in 4800,141,30 4.8T,141G,0.03ms 4800GB,141GB,30us; do
    "$LOCKSTEP" plan 70b-q4.gguf --gpu $same >"gpu-$same"
    cmp -s "gpu-$same" gpu-4800,141,30 || fail "--gpu $same"
done
grep -Eq "^ +119\.[0-9] +8\.[0-9]+ ms +0\.00 ms +0\.0[23] ms +1  one rank" gpu-4800,141,30 || fail "--gpu: $(tail -1 gpu-4800,141,30)"
refuse "one rank: rank 0 would need 4[0-9.]+ GB, has 24.0 GB" plan 70b-q4.gguf --gpu 1008,24,25
refuse "2 ranks need --latency" plan 70b-q4.gguf --gpu 1008,24,25/1008,24,25
refuse "rank 1 is on a processor, and needs --bandwidth" plan 70b-q4.gguf --gpu 1008,24,25/cpu --latency 5us
refuse "gpu names 3 machines for 2" plan 70b-q4.gguf --ranks 2 --gpu cpu/cpu/cpu --latency 5us
for bad in "" 1008 1008,24 1008,24,25,660,1 0,24,25 1008,0,25 1008,24,0 x,24,25 1008,24,25x 1008,,25 / 1008,24,25/ -1,24,25; do
    refuse "gpu $bad: expected GB/s, GB and us" plan 70b-q4.gguf --gpu "$bad"
done

# The table of docs/gpu.md is what its commands say: machines, and then tokens/s and the layout of 1, 2 and 4.
python3 - "$LOCKSTEP" "$SOURCE_DIR/docs/gpu.md" <<'END' || fail "docs/gpu.md has other numbers"
import json, re, subprocess, sys
lockstep, page = sys.argv[1:]
models = {"8b-q8_0.gguf": ("llama-3.1-8b", "q8_0"), "8b-q4_K.gguf": ("llama-3.1-8b", "q4_K"), "70b-q4_K.gguf": ("llama-3.3-70b", "q4_K")}
for path, (shape, kind) in models.items():
    subprocess.run([lockstep, "synth", "--shape", shape, "--type", kind, "--header-only", path], check=True, capture_output=True)
rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in open(page) if line.startswith("|")]
machines = {r[0].split(" ", 1)[1]: (r[1:4], r[4].replace(" ", "").split(",")[0]) for r in rows if len(r) == 5 and r[3].isdigit()}
name, checked = "", 0
for row in rows:
    if len(row) != 5 or row[1] not in ("1", "2", "4"):
        continue
    name = row[0] or name
    gpu, latency = machines[name]
    for path, cell in zip(models, row[2:]):
        words = [lockstep, "plan", path, "--gpu", ",".join(g.split()[0] for g in gpu), "--ranks", row[1], "--latency", latency, "--json"]
        made = subprocess.run(words, capture_output=True, text=True)
        best = json.loads(made.stdout)["candidates"][0] if made.returncode == 0 else None
        found = re.match(r"([0-9.]+) / ([0-9.]+), (\w+)$", cell)
        assert (found is None) == (best is None), (name, row, path)
        if found is None:
            assert cell == "does not fit", cell
            continue
        layout = found[3].replace("alone", "one rank")
        digits = len(found[1].partition(".")[2])
        assert f"{best['tokens_per_s']:.{digits}f}" == found[1] and best["parallel"] == layout, (name, row[1], path, cell, best)
        slower = 1 / (1 / best["tokens_per_s"] + 3e-6 * (21 * (80 if path[0] == "7" else 32) + 3))
        assert abs(slower - float(found[2])) <= 0.011 * slower, (name, row[1], path, cell, slower)
        checked += 1
assert checked == 44, checked
END

# Of memory, GB are powers of 1000, as everywhere else that says GB; G and GiB are what machines have.
for same in "24GB 24.0" "24G 25.8" "24GiB 25.8" "24000MB 24.0"; do
    "$LOCKSTEP" plan 70b.gguf --ranks 2 --memory "${same% *},${same% *}" >out 2>err
    grep -q "its machine has ${same#* } GB" err || fail "--memory ${same% *}: $(cat err)"
done
# Powers of 1000, and units of time.
for same in "819G 5us" "819GB 0.005ms" "0.819T 5000ns" "819000M 0.000005s"; do
    read -r bandwidth latency <<<"$same"
    "$LOCKSTEP" plan 70b.gguf --ranks 2 --bandwidth "$bandwidth" --latency "$latency" >"same-$bandwidth"
    cmp -s same-819G "same-$bandwidth" || fail "$same is not 819G 5us"
done
[ $failures = 0 ]
