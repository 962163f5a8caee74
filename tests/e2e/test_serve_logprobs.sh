#!/bin/bash
# What evaluation harnesses and clients of llama.cpp read of probabilities: echo of /v1/completions, n_probs of
# /completion. The numbers of a prompt are those that the same text had when it was an answer.
set -u
command -v python3 >/dev/null || { echo "skip: python3 is not there"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/server.sh"
for options in "" "--ranks 2"; do
    serve_start "$SOURCE_DIR/models/jargon-3m-f16.gguf" -q $options
    timeout 100 python3 "$SOURCE_DIR/tests/support/serve_logprobs.py" "$url" || fail "probabilities $options: $(tail -n 3 "$work/err")"
    serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"
done
[ $failures = 0 ]
