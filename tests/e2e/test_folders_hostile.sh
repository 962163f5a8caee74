#!/bin/bash
# Folders that are damaged or lie: each is refused within a moment, with one sentence that names what is
# wrong, and nothing crashes. hostile_folders.py makes them from a good one.
set -u
golden=$SHARED_DIR/golden/logits/qwen3.gguf
[ -e "$golden" ] || { echo "skip: $golden is not there"; exit 77; }
command -v python3 >/dev/null || { echo "skip: python3, which makes the folders, is not here"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"
python3 "$SOURCE_DIR/tests/support/hf_folder.py" "$golden" qwen3 || exit 1
mkdir bad
python3 "$SOURCE_DIR/tests/support/hostile_folders.py" qwen3 bad >list || exit 1
timeout 60 "$LOCKSTEP" run qwen3 -p a -n 1 -t 1 >out 2>err || fail "the good one: $(cat err)"
n=0
while IFS=$'\t' read -r name says; do
    n=$((n + 1))
    timeout 60 "$LOCKSTEP" run "bad/$name" -p a -n 1 -t 1 >out 2>err </dev/null
    status=$?
    if [ $status != 2 ] || grep -q 'Sanitizer\|runtime error\|lockstep: bug' err; then
        fail "$name: exit status $status instead of a refusal: $(head -c 600 err)"
    elif [ "$(grep -c '^lockstep' err)" != 1 ] || [ "$(wc -l <err)" -gt 2 ]; then
        fail "$name: expected one sentence: $(cat err)"
    elif ! grep -qF -- "$says" err; then
        fail "$name: does not mention '$says': $(cat err)"
    fi
    timeout 60 "$LOCKSTEP" inspect "bad/$name" >out 2>err </dev/null
    [ $? -le 3 ] || fail "$name: inspect: $(head -c 600 err)"
done <list
[ $n -ge 150 ] || fail "only $n folders"
[ $failures = 0 ] && echo "$n folders: each refused with one sentence"
[ $failures = 0 ]
