#!/bin/bash
# What a token, and a prompt of a mixture, ask of a device: submissions, dispatches and bytes over the bus, as docs/gpu.md promises them, and that
# commands are recorded for the first token alone. Counted on a software device whose memory is taken as its own.
# labels: once
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"

device=${LOCKSTEP_TEST_DEVICE:-$("$LOCKSTEP" devices --json | python3 -c '
import json, sys
print(next((str(d["number"]) for d in json.load(sys.stdin) if d["error"] is None), ""))')}
[ -n "$device" ] || { echo "skip: no device here"; exit 77; }

model=$SOURCE_DIR/models/jargon-3m-f16.gguf
step=device_token tokens=8
expect() { # what, submissions, dispatches, bytes (- = any), arguments of bench
    local what=$1 expected="$2 $3 $4" got
    shift 4
    got=$("$LOCKSTEP" bench "$@" -q -r 1 -p $tokens -n 8 --json | python3 -c '
import json, sys
step = sys.argv.pop(1)
work = json.load(sys.stdin)[step]
if step == "device_token" and sys.argv[1] == "1" and work["recorded"] > 2 / 8:
    sys.exit("commands were recorded %g times a token" % work["recorded"])
print(*("-" if asked == "-" else "%g" % work[name]
        for name, asked in zip(("submissions", "dispatches", "bus_bytes"), sys.argv[1:])))' $step $expected) ||
        fail "$what: bench"
    [ "$got" = "$expected" ] || fail "$what: $got, and not $expected (submissions, dispatches, bytes)"
    echo "$what: $got"
}

read -r layers width head < <("$LOCKSTEP" inspect "$model" --json | python3 -c '
import json, sys
m = json.load(sys.stdin)
print(m["layers"], m["embedding_length"], m["key_length"])')
vocab=$("$LOCKSTEP" bench "$model" -q -r 1 -p 1 -n 1 --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["vocabulary"])')

# Qwen3: 15 dispatches for attention with the norms of its heads, 8 for the FFN; a page of the cache.
expect "alone, the host's memory" 1 $((23 * layers + 3)) 0 "$model" --device "$device"
export LOCKSTEP_DEVICE_WITHOUT=unified
expect "alone" 1 $((23 * layers + 4)) $((12 * width + 4 * vocab + layers * (8 * head + 48))) "$model" --device "$device"
expect "beside a processor" $((2 * layers + 1)) $((23 * layers + 3)) - "$model" --parallel tensor --split 1,1 --device "$device,cpu"
expect "a stage" 1 - - "$model" --split 1,1 --parallel pipeline --device "$device,cpu"
mixture=$SHARED_DIR/golden/logits/qwen3moe.gguf # 2 layers of 80, with 288 tokens and heads of 32
if [ -e "$mixture" ]; then # the device chooses the experts: as a dense model, with three dispatches more in a layer
    expect "a mixture" 1 $((26 * 2 + 4)) $((12 * 80 + 4 * 288 + 2 * (8 * 32 + 48))) "$mixture" --device "$device"
    expect "a mixture beside a processor" 5 $((26 * 2 + 3)) - "$mixture" --parallel tensor --split 1,1 --device "$device,cpu"
    # Many tokens: the device groups what it has chosen, and a product is two dispatches, however many experts there are.
    step=device_prompt tokens=40
    expect "a mixture's prompt" 1 $((31 * 2 + 4)) - "$mixture" --device "$device"
    expect "a mixture's prompt beside a processor" 5 $((32 * 2 + 3)) - "$mixture" --parallel tensor --split 1,1 --device "$device,cpu"
    step=device_token tokens=8
fi
grows=$SHARED_DIR/golden/logits/mistral3.gguf # 3 layers of 48, with 288 tokens and heads of 32: what queries grow by
[ ! -e "$grows" ] || expect "queries that grow" 1 - $((12 * 48 + 4 * 288 + 3 * (8 * 32 + 48 + 4))) "$grows" --device "$device"

# What plan predicts is what they ask for.
unset LOCKSTEP_DEVICE_WITHOUT
as_planned() { # model, ranks, --device
    local file=$SHARED_DIR/golden/logits/$1.gguf planned layout=(--device "$3")
    [ "$2" = 1 ] || layout+=(--parallel tensor --split 1,1) # and not what is measured as the fastest
    [ -e "$file" ] || return
    planned=$("$LOCKSTEP" plan "$file" --gpu 100,100,1 --ranks "$2" --latency 1us --json | python3 -c '
import json, sys
print(*(c["submissions"] for c in json.load(sys.stdin)["candidates"] if c["pipeline"] == 1))')
    expect "$1, $2 ranks" "$planned" - - "$file" "${layout[@]}"
}
as_planned gpt-oss-mxfp4 2 "$device,cpu"
as_planned llama4 1 "$device"
as_planned nemotron_h_moe 1 "$device"
as_planned nemotron_h_moe 2 "$device,cpu"
as_planned deepseek4 1 "$device" # some of whose experts the processor chooses
as_planned qwen3next 1 "$device"
as_planned qwen35 2 "$device,cpu"
as_planned granitehybrid 1 "$device"
as_planned granitehybrid 2 "$device,cpu" # whose group of heads is cut

# Speeds stand beside the device's roofs: those that `devices` shows, give or take a busy machine, and not a processor's.
"$LOCKSTEP" devices --json >devices.json
"$LOCKSTEP" bench "$model" -q -r 1 -p 8 -n 8 --device "$device" --json >bench.json
python3 -c '
import json, sys
bench, listed = json.load(open("bench.json")), json.load(open("devices.json"))
own = next(d for d in listed if sys.argv[1] in (str(d["number"]), d["name"]))
assert own["read_gbs"] > 0 and own["int8_gops"] > 0 and own["f32_gops"] > 0, own
assert bench["peak_kind"] == "f32" and len(bench["read_roof_runs"]) == 3, bench
assert own["read_gbs"] / 20 < bench["read_roof_gbs"] < 20 * own["read_gbs"], (own, bench)
assert own["f32_gops"] / 20 < bench["peak_gops"] < 20 * own["f32_gops"], (own, bench)
' "$device" || fail "roofs"
[ $failures = 0 ]
