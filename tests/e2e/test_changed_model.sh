#!/bin/bash
# A model whose file is written to in place, or cut short, while it is open: what is asked for then fails with a sentence that
# names the file (or is refused, as the server has noticed already), and the server ends, asked or not. A file that is replaced, renamed or deleted stays the model that was opened.
set -u
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/server.sh"
changed="m.gguf was changed while it was open"
ask() { curl -s -m 20 "$url/v1/completions" -H "Content-Type: application/json" -d "{\"prompt\": \"a bit ${1:-}\", \"max_tokens\": 8, \"temperature\": 0}"; }
text() { ask "${1:-}" | python3 -c 'import json, sys; print(json.load(sys.stdin)["choices"][0]["text"])' 2>/dev/null; }
begin() { cp "$model" m.gguf && serve_start m.gguf --ctx 64 "$@"; }
ended() { # WHAT: with the sentence, and not by a signal
    local status
    within 20 eval '! kill -0 $server 2>/dev/null' || fail "$1: the server goes on: $(curl -s -m 5 "$url/health") $(cat err)"
    wait $server
    status=$?
    [ $status = 2 ] || fail "$1: the server ends with $status: $(cat err)"
    grep -q "$changed" err || fail "$1: the server says $(cat err)"
    server=
}
for ranks in 1 2; do
    words=(-t 1 --ranks $ranks)
    begin "${words[@]}"
    right=$(text)
    [ -n "$right" ] || fail "no answer: $(cat err)"
    # The same bytes under another inode; another name; none.
    cp m.gguf new && mv new m.gguf && [ "$(text 1)" != "" ] && mv m.gguf n.gguf && rm n.gguf && [ "$(text)" = "$right" ] || fail "$ranks: a file that was replaced: $(ask) $(cat err)"
    serve_stop || fail "$ranks: the server does not end in order"

    begin "${words[@]}"
    [ "$(text)" = "$right" ] || fail "$ranks: another answer"
    dd if=/dev/urandom of=m.gguf bs=1M seek=1 count=4 conv=notrunc 2>/dev/null
    said=$(ask 2)
    [[ $said != *'"text"'* ]] || fail "$ranks: written in place: $said"
    ended "$ranks: written in place"

    begin "${words[@]}"
    truncate -s 1000 m.gguf
    said=$(ask 3)
    [[ $said != *'"text"'* ]] || fail "$ranks: cut short: $said"
    ended "$ranks: cut short"
done
begin -t 1
printf x | dd of=m.gguf bs=1 seek=3000000 conv=notrunc 2>/dev/null
ended "written in place, and nobody asks"
[ $failures = 0 ]
