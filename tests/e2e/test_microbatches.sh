#!/bin/bash
# Over a slow wire a long step is computed in two microbatches (model/microbatch.h). The second one finds the state that
# the first one left. For each kind of state and cache the bits are those of one rank, in long steps of one prompt and in
# steps that several prompts share, and a trace shows that sums went on beside compute.
# labels: once
set -u
for tool in curl python3; do
    command -v $tool >/dev/null || { echo "skip: $tool is not there"; exit 77; }
done
golden=$SHARED_DIR/golden/logits
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/server.sh"
slow=(--emulate-link "bandwidth=1Gbit")

# gated delta net; the same by channel, beside latents; with residuals mixed over depth; Mamba-2; beside attention; a short
# convolution; latents with an indexer; compressed keys; shared keys and values; with windows; windows with sinks; blocks
kinds="qwen35 kimi-linear kimi-k3 nemotron_h granitehybrid lfm2 deepseek32 deepseek4 gemma3n gemma4-ple gpt-oss-f32 minimax-m3"

# 560 ids: a step of 512 is cut in the middle of pages, windows and blocks.
for ((i = 0; i < 560; i++)); do printf '%d ' $(((i * 7919 + i * i) % 280)); done >long.ids

feed() { # name, output, options...: 300 s are for a machine that does other things as well
    local name=$1 out=$2
    shift 2
    timeout 300 "$LOCKSTEP" eval "$golden/$name.gguf" -q --ids @long.ids --ctx 640 --greedy 4 --logits "$out.f32" "$@" >"$out.ids" 2>"$out.err" ||
        fail "$name $*: $(cat "$out.err")"
}
same_bits() { # name, output, options...
    local name=$1 out=$2
    feed "$@"
    cmp -s "$out.f32" "$name.f32" && cmp -s "$out.ids" "$name.ids" || fail "$*: other bits than one rank's"
}

cat >together.py <<'EOF'
import json, sys, threading, urllib.request
url, name, together = sys.argv[1], sys.argv[2], sys.argv[3] == "together"
first = [(i * 37) % 240 + 10 for i in range(150)]
prompts = [first, first[:90] + [7] * 40, first[:64], first[30:] + [5, 6, 7] * 30]
texts = [None] * len(prompts)

def ask(i):
    body = dict(model=name, prompt=prompts[i], max_tokens=24, temperature=0, ignore_eos=True)
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    texts[i] = json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["text"]

threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
for t in threads:
    t.start()
    if not together:
        t.join()
for t in threads:
    t.join()
assert None not in texts
print(json.dumps(texts))
EOF
answers() { # name, how, options...: to HOW.json
    local name=$1 how=$2
    shift 2
    serve_start "$golden/$name.gguf" -q -t 1 "$@"
    timeout 100 python3 together.py "$url" "$name" "$how" >"$how.json" || fail "$name: no answers $how: $(tail -n 3 "$work/err")"
    serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"
}

n=0
for name in $kinds; do
    [ -e "$golden/$name.gguf" ] || { echo "note: no golden $name"; continue; }
    feed "$name" "$name" --ranks 1 -t 1
    same_bits "$name" a --ranks 3 -t 1 "${slow[@]}"
    same_bits "$name" b --split 2,1 -t 2 --chunk 121 --link tcp "${slow[@]}"
    same_bits "$name" c --parallel tensor2xpipeline2 -t 1 --chunk 200 "${slow[@]}"
    answers "$name" alone --ranks 1
    answers "$name" together --ranks 2 "${slow[@]}"
    cmp -s alone.json together.json || fail "$name: other answers together over a slow wire than alone"
    n=$((n + 1))
done
[ $n != 0 ] || { echo "skip: no model is there"; exit 77; }

# What this rests on: such a step has two microbatches. One of each way to keep what was.
for name in qwen35 deepseek4 gemma3n; do
    [ -e "$golden/$name.gguf" ] || continue
    timeout 100 "$LOCKSTEP" bench "$golden/$name.gguf" -q -p 300 -n 1 -r 1 -t 1 --ranks 2 "${slow[@]}" --trace "$name.json" >bench.out 2>&1 ||
        fail "$name: $(cat bench.out)"
    python3 -c '
import json, sys
events = [e for e in json.load(open(sys.argv[1])) if e["ph"] == "X"]
assert all([e for e in events if e["pid"] == rank and e["cat"] == "beside"] for rank in (0, 1))' "$name.json" || fail "$name: no sums beside compute"
done

echo "microbatches: $n kinds of states give the same bits over a slow wire"
[ $failures = 0 ]
