#!/bin/bash
# lockstep chat at a terminal (chat_terminal.py).
set -u
command -v python3 >/dev/null || { echo "skip: python3 is not there"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"
ulimit -c 0
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
# A template that runs for a while, and many times before the first answer: long enough to press Ctrl-C in.
echo '{% for i in range(100) %}{% for j in range(1000) %}{% endfor %}{% endfor %}{{ messages[-1].content }}' >slow.jinja
python3 "$SOURCE_DIR/tests/support/gguf_with_template.py" "$model" slow.gguf slow.jinja || fail "no model with that template"
timeout 800 python3 "$SOURCE_DIR/tests/support/chat_terminal.py" "$model" slow.gguf || fail "at a terminal"
[ $failures = 0 ]
