#!/bin/bash
# lockstep inspect, quantize, synth: what they print, what they write, what they refuse.
set -u
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"

refused() { # refused STATUS WORD COMMAND...: the exit status, and a sentence that has the word
    local status=$1 word=$2
    shift 2
    "$LOCKSTEP" "$@" >"$work/out" 2>"$work/err"
    local got=$?
    [ $got = "$status" ] || fail "$*: exit status $got, expected $status"
    grep -q -- "$word" "$work/err" || fail "$*: no '$word' in: $(cat "$work/err")"
}

fact() { # fact FILE EXPRESSION EXPECTED: of inspect's JSON
    "$LOCKSTEP" inspect --json "$1" >"$work/json" || fail "inspect $1: exit status $?"
    local got
    got=$(python3 -c "import json,struct,sys; o=json.load(open(sys.argv[1])); print($2)" "$work/json")
    [ "$got" = "$3" ] || fail "$1: $2 is $got, expected $3"
}

# inspect
fact "$model" 'o["architecture"], o["layers"], o["kv_heads"], o["chat_template"]' "qwen3 4 4 True"
fact "$model" 'o["tokenizer"]["tokens"], o["tokenizer"]["special"]["eos"]["text"]' '2048 <|im_end|>'
fact "$model" 'sum(t["parameters"] for t in o["types"]) == o["parameters"]' True
"$LOCKSTEP" inspect "$model" | grep -q '^layers  *4, width 256' || fail "inspect: no line of layers"
[ "$("$LOCKSTEP" inspect --tensors "$model" | grep -c '^blk\.')" = 44 ] || fail "inspect --tensors"
"$LOCKSTEP" inspect --keys "$model" | grep -q '^qwen3.block_count  *4$' || fail "inspect --keys"
"$LOCKSTEP" inspect --keys --json "$model" | python3 -c 'import json, sys
sys.exit(json.load(sys.stdin)["qwen3.block_count"] != 4)' || fail "inspect --keys --json"
refused 2 "not with --tensors" inspect --keys --tensors "$model"
refused 2 "No such file" inspect "$work/absent.gguf"
head -c 100000 "$model" >"$work/short.gguf"
refused 2 truncated inspect "$work/short.gguf"

# A number with more than six digits (Llama 3 8B Gradient Instruct 262k has this rope base) is shown whole.
python3 -c '
import struct, sys
data = open(sys.argv[1], "rb").read()
base = b"qwen3.rope.freq_base" + struct.pack("<If", 6, 10000)
assert data.count(base) == 1
open(sys.argv[2], "wb").write(data.replace(base, base[:-4] + struct.pack("<f", 283461213)))' "$model" "$work/long.gguf"
fact "$work/long.gguf" 'struct.pack("<f", o["rope"]["freq_base"]) == struct.pack("<f", 283461213)' True
"$LOCKSTEP" inspect "$work/long.gguf" | grep -q '^rope  *base 2834612' || fail "inspect: $("$LOCKSTEP" inspect "$work/long.gguf" | grep ^rope)"
"$LOCKSTEP" inspect --keys "$work/long.gguf" | grep -Eq '^qwen3.rope.freq_base  *2\.8346122e\+08$' || fail "inspect --keys: a rope base"

# A name that would drive a terminal, or forge a line, does not; a path that is not UTF-8 is JSON all the same.
python3 - "$model" "$work" <<'END'
import os, sys
data = open(sys.argv[1], "rb").read()
name = b"Lockstep Jargon 3M"
assert data.count(name) == 1
for out, wild in ((b"wild.gguf", b"\x1b[31mE\nrank 9\x07\x1b[2J"), (b"bad\xff.gguf", b"Lockste \xff\xfe \xc3\xbcber 3"),
                  (b"c1.gguf", b"Lockste \xc2\x9b31m\xe2\x80\xae3M")):
    assert len(wild) == len(name), out
    open(os.path.join(sys.argv[2].encode(), out), "wb").write(data.replace(name, wild))
END
"$LOCKSTEP" run "$work/wild.gguf" -p hi -n 1 >"$work/out" 2>"$work/err" || fail "run wild.gguf: exit status $?"
grep -q '^qwen3 ?\[31mE?rank 9??\[2J: ' "$work/err" || fail "said: $(cat -v "$work/err")"
"$LOCKSTEP" inspect "$work/c1.gguf" | grep -q '^name  *Lockste ?31m?3M$' || fail "inspect says: $("$LOCKSTEP" inspect "$work/c1.gguf" | grep ^name | cat -v)"
"$LOCKSTEP" run "$work"/$'bad\xff.gguf' -p hi -n 1 --json -q | python3 -c 'import json, sys
o = json.load(sys.stdin)
sys.exit(o["name"] != "Lockste ?? über 3" or not o["model"].endswith("bad\\xff.gguf"))' || fail "run --json of a path that is not UTF-8"
refused 2 "not UTF-8" serve "$work"/$'bad\xff.gguf' --port 0
rm "$work"/$'bad\xff.gguf' "$work/wild.gguf" "$work/c1.gguf"

# A model that lockstep cannot run: inspect shows it and says why, all others refuse it with that sentence.
sed 's/qwen3/owen9/g' "$model" >"$work/other.gguf"
"$LOCKSTEP" inspect "$work/other.gguf" >"$work/out" || fail "inspect of an unknown architecture: exit status $?"
grep -q '^architecture  *owen9$' "$work/out" && grep -q '^lockstep cannot run this model: .*the architecture owen9 is unknown' "$work/out" ||
    fail "inspect of an unknown architecture says: $(cat "$work/out")"
fact "$work/other.gguf" '"owen9 is unknown" in o["cannot_run"], "layers" in o' "True True"
fact "$model" '"cannot_run" in o' "False"
for command in "run -p hi -n 1" "serve --port 0" plan "eval --ids 1"; do
    # shellcheck disable=SC2086
    refused 2 "the architecture owen9 is unknown" $command "$work/other.gguf"
done
rm "$work/other.gguf"

# quantize
for type in q8_0 Q4_K f32; do
    "$LOCKSTEP" quantize "$model" "$work/$type.gguf" $type --threads 2 >"$work/out" ||
        fail "quantize $type: exit status $?"
    grep -q 'bits per weight' "$work/out" || fail "quantize $type: does not say the bits per weight"
done
fact "$work/q8_0.gguf" '[t["type"] for t in o["types"]], o["tokenizer"]["tokens"]' "['f32', 'q8_0'] 2048"
fact "$work/Q4_K.gguf" '4.5 < o["bits_per_weight"] < 4.6' True
refused 2 "cannot write type" quantize "$model" "$work/x.gguf" iq2_xs
refused 2 "cannot write type" quantize "$model" "$work/x.gguf" nonesuch
"$LOCKSTEP" quantize "$model" "$work/mix.gguf" Q4_K_M --tensor-type "attn_q=q8_0,blk.*.attn_k=q5_0" >"$work/out" ||
    fail "quantize Q4_K_M: exit status $?"
"$LOCKSTEP" inspect "$work/mix.gguf" >"$work/out" || fail "inspect a mix: exit status $?"
for type in q4_K q6_K q8_0 q5_0; do
    grep -q "$type" "$work/out" || fail "quantize Q4_K_M: no $type in $(cat "$work/out")"
done
refused 2 "expected PATTERN=TYPE" quantize "$model" "$work/x.gguf" Q4_K_M --tensor-type attn_q
refused 2 "expected PATTERN=TYPE" quantize "$model" "$work/x.gguf" Q4_K_M --tensor-type attn_q=iq2_xs
refused 2 "expected PATTERN=TYPE" quantize "$model" "$work/x.gguf" Q4_K_M --tensor-type attn_q=q8_0,
refused 2 "no matrix has 'attn_norm' in its name" quantize "$model" "$work/x.gguf" Q4_K_M --tensor-type attn_norm=q8_0
refused 1 "No such file" quantize "$model" "$work/no/such/x.gguf" q8_0
cp "$model" "$work/copy.gguf"
ln -s copy.gguf "$work/link.gguf"
refused 2 "is the model that is read" quantize "$work/copy.gguf" "$work/link.gguf" q8_0
cmp -s "$model" "$work/copy.gguf" || fail "quantize onto its own input changed it"
# What is under way has a name as well, which may be the model's.
cp "$model" "$work/loaded.gguf.part"
refused 2 "loaded.gguf is written as .*loaded.gguf.part first" quantize "$work/loaded.gguf.part" "$work/loaded.gguf" q8_0
refused 2 "loaded.gguf is written as .*loaded.gguf.part first" eval "$work/loaded.gguf.part" --ids 1,2 --logits "$work/loaded.gguf" -q
cmp -s "$model" "$work/loaded.gguf.part" || fail "the model that was read is another one, since its name ends in .part"
# A pipe (as a device) is written, not replaced by a file.
mkfifo "$work/pipe"
wc -c <"$work/pipe" >"$work/count" &
reader=$!
timeout 60 "$LOCKSTEP" quantize "$model" "$work/pipe" q8_0 >/dev/null || fail "quantize to a pipe: exit status $?"
wait $reader
[ -p "$work/pipe" ] && [ "$(cat "$work/count")" = "$(stat -c %s "$work/q8_0.gguf")" ] ||
    fail "quantize to a pipe: $(cat "$work/count") bytes came"
# So is what output goes to, whether a pipe or a file, behind what is in it; and what is said goes elsewhere then.
"$LOCKSTEP" quantize "$model" /dev/stdout q8_0 2>"$work/err" | cmp - "$work/q8_0.gguf" || fail "quantize to a piped stdout"
grep -q 'bits per weight' "$work/err" || fail "quantize to stdout does not say the bits per weight: $(cat "$work/err")"
ln -s /dev/fd/1 "$work/stdout"
for command in "quantize $model $work/stdout q8_0" "synth --shape qwen3-0.6b --header-only $work/stdout"; do
    "$LOCKSTEP" ${command/stdout/plain} >/dev/null || fail "$command: exit status $?"
    { echo before && "$LOCKSTEP" $command 2>/dev/null; } >"$work/out" || fail "$command: exit status $?"
    [ -L "$work/stdout" ] || fail "$command put a file where the link to its output was"
    { echo before && cat "$work/plain"; } | cmp - "$work/out" || fail "$command: other bytes than in a file"
done
refused 2 truncated quantize "$work/short.gguf" "$work/x.gguf" q8_0

# synth
"$LOCKSTEP" synth --list | grep -q '^llama-3.2-1b  *1.24 billion' || fail "synth --list"
"$LOCKSTEP" synth --shape deepseek-v3 --type q4_K --header-only "$work/v3.gguf" >/dev/null ||
    fail "synth --header-only: exit status $?"
fact "$work/v3.gguf" 'o["has_weights"], o["layers"], o["experts"]["count"], o["kv_lora_rank"]' "False 61 256 512"
# What a token is multiplied with, in billions, as the model cards have it.
for active in "deepseek-v3 37" "kimi-k2 32" "qwen3-235b-a22b 22" "qwen3-coder-480b 35" "gpt-oss-120b 5"; do
    "$LOCKSTEP" synth --shape "${active% *}" --type q4_K --header-only "$work/shape.gguf" >/dev/null || fail "synth $active"
    fact "$work/shape.gguf" 'round(o["active_parameters"] / 1e9)' "${active#* }"
done
refused 2 "holds no weights: it is a header alone" quantize "$work/v3.gguf" "$work/x.gguf" q8_0
refused 2 "holds no weights: it is a header alone" run "$work/v3.gguf" -p hi
refused 2 "no shape is called" synth --shape nonesuch "$work/x.gguf"
refused 2 "shape is missing" synth "$work/x.gguf"
refused 2 "no weight type" synth --shape qwen3-0.6b --type nonesuch "$work/x.gguf"

# Ctrl-C leaves nothing behind.
"$LOCKSTEP" synth --shape llama-3.3-70b --type f16 "$work/huge.gguf" >/dev/null 2>&1 &
pid=$!
for _ in $(seq 1200); do
    [ "$(stat -c %s "$work/huge.gguf.part" 2>/dev/null || echo 0)" -gt 16000000 ] && break
    sleep 0.05
done
kill -INT $pid
wait $pid
status=$?
[ $status = 130 ] || fail "interrupted synth: exit status $status, expected 130"
[ -z "$(ls "$work" | grep huge)" ] || fail "interrupted synth left $(ls "$work" | grep huge)"
[ ! -e "$work/x.gguf" ] && [ ! -e "$work/x.gguf.part" ] || fail "a refused command left a file"

# What is written is not the model that is read, under whatever name; and that it can be written is known before the work.
cp "$model" "$work/own.gguf" && ln "$work/own.gguf" "$work/other.gguf"
refused 2 "other.gguf is the model that is read" eval "$work/own.gguf" --ids 1,2 --logits "$work/other.gguf" -q
refused 2 "own.gguf is the model that is read" bench "$work/own.gguf" --trace "$work/own.gguf"
cmp "$model" "$work/own.gguf" || fail "the model that was read is another one"
refused 1 "cannot write $work/none/trace" bench "$model" --trace "$work/none/trace"
refused 1 "cannot write $work/none/plot" fabric bench --rounds 1 --svg "$work/none/plot.svg"
[ ! -s "$work/out" ] || fail "fabric bench measured before it knew that its plot cannot be written"
# A matrix of importances that is another model's.
python3 - "$work/imatrix.dat" <<'END'
import struct, sys
name = b"blk.77.foo.weight"
open(sys.argv[1], "wb").write(struct.pack("<ii", 1, len(name)) + name + struct.pack("<ii4f", 1, 4, 1, 1, 1, 1))
END
"$LOCKSTEP" quantize "$model" "$work/im.gguf" q8_0 --imatrix "$work/imatrix.dat" >/dev/null 2>"$work/err" || fail "quantize --imatrix: $(cat "$work/err")"
grep -q "names none of the tensors" "$work/err" || fail "an importance matrix of another model: $(cat "$work/err")"

[ $failures = 0 ] && echo "all as expected"
[ $failures = 0 ]
