#!/bin/bash
# Prompts on a device and tokens on the processor, or the other way, in one memory: the bytes of a processor alone, for dense
# models, latent attention, mixtures and layers with states, for each type of cache, beside other ranks, and from a prefix
# that the other one has computed. Tokens make no submission, and the weights are in memory once. With +auto the model's own
# steps decide. On a software device where there is no other.
# labels: once
set -u
golden=$SHARED_DIR/golden
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/server.sh"

device=${LOCKSTEP_TEST_DEVICE:-$("$LOCKSTEP" devices --json | python3 -c '
import json, sys
print(next((str(d["number"]) for d in json.load(sys.stdin) if d["error"] is None and d["unified"]), ""))')}
[ -n "$device" ] || { echo "skip: no device here whose memory is the host's"; exit 77; }
jargon=$SOURCE_DIR/models/jargon-3m-f16.gguf
ids=280,104,250,60,279,67,48,188,170,12,270,50,272,105,81,81,131,201,171,29,189,19,33,7
n=0

compare() { # model, type of cache, tokens of a step, layout
    [ -e "$1" ] || return
    local name=$(basename "$1" .gguf).$2
    if [ ! -e "$name.ref" ]; then
        "$LOCKSTEP" eval "$1" -q --threads 1 --kv "$2" --ids $ids --greedy 3 --logits "$name.ref" >"$name.ids" || fail "$name: the reference"
    fi
    # shellcheck disable=SC2086
    timeout 120 "$LOCKSTEP" eval "$1" -q --threads 1 ${4//D/$device} --kv "$2" --chunk "$3" --ids $ids --greedy 3 \
        --logits out.f32 >out.ids 2>out.err || fail "$name, $4: $(cat out.err)"
    cmp out.f32 "$name.ref" && cmp out.ids "$name.ids" || fail "$name, $4, steps of $3: another result"
    n=$((n + 1))
}

# A step of 16 tokens is a prompt's; 24 tokens in steps of 17 are one on the device and one on the processor.
for kv in f16 q8_0 f32; do
    compare "$jargon" $kv 17 "--device D+cpu"
    compare "$jargon" $kv 17 "--device cpu+D"
done
compare "$golden/logits/deepseek2-v3-mla.gguf" f16 17 "--device D+cpu"
compare "$golden/logits/deepseek2-v3-mla.gguf" q8_0 512 "--device cpu+D"
compare "$golden/logits/qwen3next.gguf" f16 17 "--device D+cpu"
compare "$golden/logits/qwen3next.gguf" f32 17 "--device cpu+D"
compare "$golden/logits/qwen3moe.gguf" q8_0 17 "--device D+cpu"
compare "$golden/logits/gpt-oss-mxfp4.gguf" f16 17 "--device cpu+D"
compare "$golden/logits/deepseek4.gguf" f16 17 "--device D+cpu"
for kv in f16 f32; do # the cache in several pieces
    LOCKSTEP_DEVICE_PIECE=96 compare "$jargon" $kv 17 "--device D+cpu"
    LOCKSTEP_DEVICE_PIECE=96 compare "$jargon" $kv 17 "--device cpu+D"
done
compare "$jargon" f16 17 "--split 1,1 --device D+cpu,cpu+D"
compare "$jargon" f16 512 "--split 1,1 --parallel pipeline --device D+cpu,cpu"
compare "$jargon" f16 17 "--ranks 2 --device D+cpu,cpu" # the processor's rate is what places them
compare "$jargon" f16 512 "--device D+auto"
compare "$jargon" f16 512 "--split 1,1 --device cpu,D+auto"
compare "$golden/logits/granitehybrid.gguf" f16 17 "--device D+auto"

# What a token asks of the device, where the steps are, and what is resident beside the processor alone.
look() { # --device: submissions of a token, steps of the device, resident MB
    "$LOCKSTEP" bench "$jargon" -q -r 1 -p 32 -n 8 --threads 2 --device "$1" --json | python3 -c '
import json, sys
b = json.load(sys.stdin)
print("%g" % b["device_token"]["submissions"], json.dumps(b["device_steps"]), b["held"][0]["resident_bytes"] >> 20)' || fail "bench on $1"
}
read -r submissions steps both < <(look "$device+cpu" | sed 's|, |,|')
[ "$submissions $steps" = "0 [16,null]" ] || fail "tokens on the processor: $submissions submissions, steps $steps"
read -r submissions steps alone < <(look "$device" | sed 's|, |,|')
[ "$submissions $steps" = "1 [0,null]" ] || fail "all on the device: $submissions submissions, steps $steps"
[ "$both" -le $((alone + 2)) ] || fail "$both MB for both, and $alone for the device alone: something is there twice"
read -r submissions steps both < <(look "cpu+$device" | sed 's|, |,|')
[ "$submissions $steps" = "1 [0,16]" ] || fail "tokens on the device: $submissions submissions, steps $steps"
# A software device is the slower one for a token, since all that a processor does is there, too.
if "$LOCKSTEP" devices --json | grep -q '"kind": "software"'; then
    read -r submissions steps both < <(look "$device+auto" | sed 's|, |,|')
    [ "$submissions" = 0 ] && [[ $steps =~ ^\[[1-9] ]] || fail "as measured: $submissions submissions, steps $steps"
fi

# A prompt begins as an earlier one, whose pages and states the other one has left.
ask() { # tokens of the prompt, how many of them are cached at least
    python3 - "$url" "$@" <<'EOF2'
import json, random, sys, urllib.request
url, n, least = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random.seed(5)
ids = [random.randrange(10, 250) for _ in range(200)][:n]
body = dict(model="x", prompt=ids, max_tokens=20, temperature=0, ignore_eos=True)
request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
a = json.load(urllib.request.urlopen(request, timeout=60))
cached = a["usage"]["prompt_tokens_details"]["cached_tokens"]
assert cached >= least, (cached, least)
print(a["choices"][0]["text"])
EOF2
}
for model in "$jargon" "$golden/logits/qwen35.gguf"; do
    [ -e "$model" ] || continue
    for where in cpu "$device+cpu" "cpu+$device"; do
        serve_start "$model" -q --alias x --threads 1 --device "$where"
        { ask 130 0 && ask 132 128 && ask 190 128; } >"said.$where" || fail "$model on $where: no answer"
        serve_stop || fail "$model on $where: the server ended with status $?: $(tail -n 5 "$work/err")"
        cmp "said.cpu" "said.$where" || fail "$model on $where: another answer"
    done
done

# The device is lost within a prompt: the processor goes on, and has all of what was computed in its own memory.
ask=(run "$jargon" -q -p "$(printf 'What is a bit bucket? %.0s' {1..40})" --temp 0 -n 8 --chunk 16)
"$LOCKSTEP" "${ask[@]}" >whole.txt || fail "without a device"
LOCKSTEP_DEVICE_LOST_AFTER=25 timeout 60 "$LOCKSTEP" "${ask[@]}" --device "$device+cpu" --failover >answer.txt 2>err ||
    fail "a lost device: exit status $?: $(cat err)"
cmp whole.txt answer.txt && grep -q "was lost" err || fail "a lost device: another answer: $(cat err)"

# What cannot be.
LOCKSTEP_DEVICE_WITHOUT=unified refuse 2 "has memory of its own, so prompts and tokens are both its own, or both the processor's: --device" \
    "$LOCKSTEP" "${ask[@]}" --device "$device+cpu"
refuse 2 "expected a device, and .cpu or .auto behind it, or cpu. before it" "$LOCKSTEP" "${ask[@]}" --device "$device+$device"
refuse 2 "expected a device, and .cpu or .auto behind it, or cpu. before it" "$LOCKSTEP" "${ask[@]}" --device cpu+cpu
refuse 2 "a name is empty" "$LOCKSTEP" "${ask[@]}" --device cpu+
[ $failures = 0 ] && echo "$n evaluations on $device and the processor, each with the bytes of the processor alone"
