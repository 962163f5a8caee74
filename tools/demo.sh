#!/bin/bash
# make demo: the same question to three ranks with unequal shares and to one rank; then proof that
# not only the words but all logits agree in every bit; then to two ranks, over HTTP.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
lockstep=${LOCKSTEP:-build/lockstep}
model=models/jargon-3m-f16.gguf
question=${1:-What is a bit bucket?}
work=$(mktemp -d)
server=
trap 'if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; fi; rm -rf "$work"' EXIT

bold= dim= plain=
if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'; fi
step() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }
show() { # a command line as a person would type it
    printf '%s$ lockstep' "$dim"
    for word; do
        case $word in *[!A-Za-z0-9_./,:=-]*) printf ' "%s"' "$word" ;; *) printf ' %s' "$word" ;; esac
    done
    printf '%s\n' "$plain"
}

step "1. Three ranks share one small model, 3 : 2 : 1, and answer a question."
three=(run $model -p "$question" --temp 0 --ranks 3 --split 3,2,1 --threads 1)
show "${three[@]}"
"$lockstep" "${three[@]}" | tee "$work/three.txt"

step "2. One rank alone, the same question."
one=(run $model -p "$question" --temp 0 --threads 1)
show "${one[@]}"
"$lockstep" "${one[@]}" | tee "$work/one.txt"

echo
echo "(So small a model is quicker alone: three ranks spend their time on telling each other sums.)"

step "3. The same words?"
cmp "$work/three.txt" "$work/one.txt"
echo "Yes: the two answers are identical."

step "4. The same bits? All logits of the question and 40 tokens after it, from each, byte by byte."
ids=$(printf '%s' "$question" | "$lockstep" tokenize $model | tr ' ' ',')
show eval $model -q --ids "$ids" --greedy 40 --logits three.f32 --split 3,2,1 --threads 1
"$lockstep" eval $model -q --ids "$ids" --greedy 40 --logits "$work/three.f32" --split 3,2,1 --threads 1 >"$work/ids"
show eval $model -q --ids "$ids" --greedy 40 --logits one.f32 --threads 1
"$lockstep" eval $model -q --ids "$ids" --greedy 40 --logits "$work/one.f32" --threads 1 >"$work/ids"
show cmp three.f32 one.f32 | sed 's/lockstep //'
cmp "$work/three.f32" "$work/one.f32"
size=$(wc -c <"$work/one.f32")
echo "Yes: $((size / 4)) numbers ($size bytes), not one bit differs."

step "5. Two ranks serve it to the programs that you use (OpenAI's API; Anthropic's and Ollama's are there too)."
show serve $model --ranks 2 --port 0
"$lockstep" serve $model --ranks 2 --port 0 >"$work/served" 2>&1 &
server=$!
for _ in $(seq 100); do
    url=$(sed -n 's/.*listens on \(http[^ ]*\).*/\1/p' "$work/served")
    if [ -n "$url" ] || ! kill -0 "$server" 2>/dev/null; then break; fi
    sleep 0.1
done
quoted=${question//\\/\\\\}
body='{"messages": [{"role": "user", "content": "'${quoted//\"/\\\"}'"}], "temperature": 0, "max_tokens": 24}'
if [ -z "$url" ]; then
    cat "$work/served"
    exit 1
elif command -v curl >/dev/null; then
    echo "$dim\$ curl $url/v1/chat/completions -d '$body'$plain"
    curl -sS -m 30 "$url/v1/chat/completions" -d "$body"
    echo
else
    echo "It listens on $url (no curl here to ask it)."
fi
kill "$server"
wait "$server" || true
server=

step "Your turn:"
cat <<END
  build/lockstep serve $model --ranks 2                     (then open http://127.0.0.1:8080; docs/clients.md: other programs)
  build/lockstep chat $model --ranks 2
  build/lockstep run YOUR-MODEL.gguf -p "..." --ranks 2          (docs/models: which ones)
END
