#!/bin/bash
# lockstep tokenize: every golden case through --jsonl, both ways; plain text; what it refuses.
set -u
golden=$SHARED_DIR/golden/tokenizers
[ -r "$golden/gpt-2.json" ] || { echo "skip: $golden is not there"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"

# The golden cases that all implementations agree on.
for name in gpt-2 llama-3 llama-spm qwen3 deepseek-v3; do
    gzip -dc "$golden/$name.gguf.gz" >"$work/$name.gguf"
    python3 - "$golden/$name.json" "$work/$name" <<'PY'
import json, sys
cases = json.load(open(sys.argv[1]))["cases"]
cases = [c for c in cases if "disagree" not in c]
with open(sys.argv[2] + ".text", "w") as text, open(sys.argv[2] + ".ids", "w") as ids:
    for c in cases:
        text.write(json.dumps(bytes.fromhex(c["hex"]).decode()) + "\n")
        ids.write(json.dumps(c["ids"], separators=(",", ":")) + "\n")
PY
    "$LOCKSTEP" tokenize "$work/$name.gguf" --no-bos --jsonl <"$work/$name.text" >"$work/$name.got" ||
        fail "$name: exit status $?"
    cmp -s "$work/$name.got" "$work/$name.ids" || fail "$name: ids differ from the golden ones"
done

# Back again, for a vocabulary that loses nothing.
"$LOCKSTEP" tokenize "$work/llama-3.gguf" --no-bos --jsonl --decode <"$work/llama-3.ids" >"$work/back" ||
    fail "decode: exit status $?"
python3 - "$work/back" "$work/llama-3.text" <<'PY' || fail "decoding does not give the texts back"
import json, sys
sys.exit([json.loads(l) for l in open(sys.argv[1])] != [json.loads(l) for l in open(sys.argv[2])])
PY

same() { # same WHAT WANT GOT
    [ "$2" = "$3" ] || fail "$1: expected '$2', got '$3'"
}
run() { # run TEXT ARGS...
    local text=$1
    shift
    printf "$text" | "$LOCKSTEP" tokenize "$@" 2>&1
}
# llama-3's and Llama 2's ids of "Hello world" stand in golden/tokenizers (with_specials).
same plain "128000 9906 1917" "$(run 'Hello world' "$work/llama-3.gguf")"
same no-bos "9906 1917" "$(run 'Hello world' "$work/llama-3.gguf" --no-bos)"
same spm "1 15043 3186" "$(run 'Hello world' "$work/llama-spm.gguf")"
same special "128009" "$(run '<|eot_id|>' "$work/llama-3.gguf" --no-bos)"
same no-special "27 91 68 354 851 91 29" "$(run '<|eot_id|>' "$work/llama-3.gguf" --no-bos --no-special)"
same decode "Hello world" "$(run '128000 9906 1917\n' "$work/llama-3.gguf" --decode)"
same decode-bos "<|begin_of_text|>Hello world" "$(run '128000, 9906,1917' "$work/llama-3.gguf" --decode --no-bos)"
same decode-no-special "Hello world" "$(run '128000 9906 128009 1917' "$work/llama-3.gguf" --decode --no-special)"
same empty "" "$(run '' "$work/llama-3.gguf" --no-bos)"
same model-file "39 68 75 75 78" "$(run 'Hello' "$SHARED_DIR/golden/logits/llama.gguf" --no-bos)"

refuses() { # refuses WHAT TEXT ARGS...
    local what=$1 text=$2 out status
    shift 2
    out=$(printf "$text" | timeout 60 "$LOCKSTEP" tokenize "$@" 2>&1)
    status=$?
    [ $status -eq 2 ] || fail "$what: exit status $status ($out)"
    case $out in *"$what"*) ;; *) fail "'$what' is not in '$out'" ;; esac
}
refuses "token 128256 does not exist" '5 128256' "$work/llama-3.gguf" --decode
refuses "byte 2 of the input is not a number" '5 x' "$work/llama-3.gguf" --decode
refuses "token" '99999999999999999999' "$work/llama-3.gguf" --decode
refuses "line 2: must be a JSON string" '"a"\n5\n' "$work/llama-3.gguf" --jsonl
refuses "line 1: " 'nonsense\n' "$work/llama-3.gguf" --jsonl
refuses "line 1: element 1 is not an integer" '[1,"a"]\n' "$work/llama-3.gguf" --jsonl --decode
refuses "no-such-file" '' "$work/no-such-file.gguf"
for file in tokens-empty tokens-wrong-type token-types-short merges-missing; do
    refuses "tokenizer.ggml" 'a' "$SHARED_DIR/golden/hostile/$file.gguf"
done

[ $failures -eq 0 ] && echo "tokenize: all as expected"
[ $failures = 0 ]
