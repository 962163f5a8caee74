#!/bin/bash
# Stacks of 64 KiB (ulimit -s): every command that computes works as it does with the usual ones, and gives
# the same bits. Products alone want more.
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/server.sh"
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
prompt="A kluge is a clumsy thing that works, and nobody dares to touch it: a hack is another matter."
plain=$LOCKSTEP
printf '#!/bin/bash\nulimit -s 64 || exit 77\nexec "%s" "$@"\n' "$plain" >small
chmod +x small
./small --version >/dev/null 2>&1 || { echo "skip: no program runs on a stack of 64 KiB here"; exit 77; }

same() { # what for, arguments...: small says what the usual one says
    local name=$1
    shift
    timeout 60 "$plain" "$@" >want 2>err || fail "$name: $(cat err)"
    timeout 60 ./small "$@" >got 2>err || fail "$name on a small stack: exit status $?: $(cat err)"
    cmp -s want got || fail "$name on a small stack says '$(head -c 300 got)' instead of '$(head -c 300 want)'"
}

same run run "$model" -q -p "$prompt" --temp 0 -n 8 -t 1
same "run on two ranks" run "$model" -q -p "$prompt" --temp 0 -n 8 --ranks 2 -t 2
same chat run "$model" -q --chat -p "$prompt" --temp 0 -n 8
same inspect inspect "$model"
for how in "$plain" ./small; do
    timeout 60 "$how" eval "$model" -q --ids "$(seq -s, 5 90)" --logits "rows-$(basename "$how")" >/dev/null 2>err ||
        fail "eval by $how: $(cat err)"
    timeout 60 "$how" quantize "$model" "$(basename "$how").gguf" q4_k >/dev/null 2>err || fail "quantize by $how: $(cat err)"
    timeout 60 "$how" synth --shape qwen3-0.6b --layers 1 --header-only "$(basename "$how")-synth.gguf" >/dev/null 2>err ||
        fail "synth by $how: $(cat err)"
done
cmp "rows-$(basename "$plain")" rows-small || fail "eval on a small stack gives other logits"
cmp "$(basename "$plain").gguf" small.gguf || fail "quantize on a small stack writes another file"
timeout 100 ./small bench "$model" -q -p 32 -n 2 -r 1 -t 2 >out 2>err || fail "bench on a small stack: $(cat err)"

LOCKSTEP=$work/small
serve_start "$model" -t 2
curl -s --max-time 60 "$url/v1/completions" -d "{\"prompt\":\"$prompt\",\"max_tokens\":4,\"temperature\":0}" >out
grep -q '"text"' out || fail "serve on a small stack answers $(cat out)"
serve_stop || fail "serve on a small stack does not end in order"
[ $failures = 0 ]
