#!/bin/bash
# Folders with a tiktoken.model: the ids of thousands of random texts against tiktoken's algorithm in Python
# (tiktoken.py), and back; also through a GGUF that `lockstep quantize` makes.
set -u
command -v python3 >/dev/null || { echo "skip: python3, which makes the folders, is not here"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"
for kind in trained random; do
    python3 "$SOURCE_DIR/tests/support/tiktoken.py" $kind $kind || exit 1
    timeout 60 "$LOCKSTEP" quantize $kind $kind.gguf f32 >out 2>&1 || fail "quantize: $(cat out)"
    for model in $kind $kind.gguf; do
        timeout 60 "$LOCKSTEP" tokenize $model --no-bos --jsonl <$kind.texts >got || fail "tokenize $model"
        cmp got $kind.ids || fail "$model: $(diff got $kind.ids | grep -c '^<') of $(wc -l <$kind.ids) texts differ"
    done
    # JSON escapes may be spelled otherwise.
    timeout 60 "$LOCKSTEP" tokenize $kind --no-bos --jsonl --decode <$kind.ids >back || fail "decode $kind"
    python3 -c 'import json, sys
a, b = ([json.loads(l) for l in open(p)] for p in sys.argv[1:])
sys.exit(a != b)' back $kind.texts || fail "$kind: texts do not come back"
done
[ $failures = 0 ] && echo "$(wc -l <random.ids) texts, two vocabularies: the same ids"
[ $failures = 0 ]
