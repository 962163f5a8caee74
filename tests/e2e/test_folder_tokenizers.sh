#!/bin/bash
# Folders with tokenizers of SentencePiece's kind: the ids that Hugging Face's rules give, worked out by hand in small
# vocabularies (folder_tokenizers.py), and the text back; also through a GGUF that `lockstep quantize` makes.
set -u
command -v python3 >/dev/null || { echo "skip: python3, which makes the folders, is not here"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"
make_folder() { # folder kind
    python3 "$SOURCE_DIR/tests/support/folder_tokenizers.py" "$@" || fail "folder_tokenizers.py $*"
}
ids() { # model text ids
    local got
    got=$(printf '%s' "$2" | timeout 60 "$LOCKSTEP" tokenize "$1" --no-bos 2>&1)
    [ "$got" = "$3" ] || fail "$1: '$2' is $got, expected $3"
}
same() { # model text ids: there and back
    local got
    ids "$@"
    got=$(echo "$3" | timeout 60 "$LOCKSTEP" tokenize "$1" --no-bos --decode 2>&1; echo .)
    [ "${got%.}" = "$2" ] || [ "${got%??}" = "$2" ] || fail "$1: $3 is '${got%.}', expected '$2'"
}

# Gemma: runs of spaces, and of line ends, are tokens that text is searched for before anything is merged.
for kind in gemma gemma-pieces; do
    make_folder $kind $kind
    "$LOCKSTEP" quantize $kind $kind.gguf f32 >out 2>&1 || fail "quantize: $(cat out)"
    for model in $kind $kind.gguf; do
        same $model "a    b" "266 8 267"
        same $model "a b" "266 269"
        same $model "a  b" "266 6 267"
        same $model $'   a\n\nb' "7 266 5 267"
        # U+2581 in a text is what a space becomes.
        ids $model "a▁▁b" "266 6 267"
        ids $model "a ▁b" "266 6 267"
        ids $model "▁▁▁a▁b" "7 266 269"
        # A token that the embedding has no row for is none: its letters are.
        same $model "a<image_soft_token>b" \
            "266 69 114 118 266 112 110 104 124 120 111 125 104 125 120 116 110 119 71 267"
    done
    # Other programs look for GGUF's spaces, not for U+2581, in user-defined tokens; in normal ones they turn it themselves.
    PYTHONPATH=$SOURCE_DIR/tests/support python3 - $kind.gguf <<'PY' || fail "$kind: tokens of the quantized file"
import sys
from hf_folder import Gguf
tokens = Gguf(sys.argv[1]).keys["tokenizer.ggml.tokens"]
sys.exit((tokens[4], tokens[6:9], tokens[268]) != ("\n", ["  ", "   ", "    "], "\u2581a"))
PY
done

# Mistral's and Llama's: where a space goes in front. 3 [INST], 4 [/INST], 261 ▁, 264 ▁h, 265 ▁hi, 266 ▁▁, 267 hi.
spaces() { # kind, ids of each text
    local kind=$1 model
    make_folder "$kind" "$kind"
    "$LOCKSTEP" quantize "$kind" "$kind.gguf" f32 >out 2>&1 || fail "quantize: $(cat out)"
    for model in "$kind" "$kind.gguf"; do
        same "$model" "hi hi" "$2"
        ids "$model" " hi" "$3"
        ids "$model" "  hi" "$4"
        ids "$model" "▁hi" "$3"
        ids "$model" "[INST]hi[/INST]hi" "$5"
        ids "$model" "hi[INST] hi[/INST]" "$6"
    done
}
spaces never "267 265" 265 "261 265" "3 267 4 267" "267 3 265 4"
spaces first "265 265" 265 "261 265" "3 267 4 267" "265 3 265 4"
spaces always "265 265" 265 "261 265" "3 265 4 265" "265 3 265 4"
spaces prepend "265 265" "261 265" "266 265" "3 265 4 265" "265 3 261 265 4"

[ $failures = 0 ] && echo "spaces of Gemma, Mistral and Llama: as Hugging Face has them"
[ $failures = 0 ]
