#!/bin/bash
# make demo: the same question to three ranks with unequal shares and to one rank; then proof that
# not only the words but all logits agree in every bit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
lockstep=build/lockstep
model=models/jargon-3m-f16.gguf
question=${1:-What is a bit bucket?}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

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
show eval $model -q --ids "$ids" --greedy 40 --logits three.f32 --split 3,2,1
"$lockstep" eval $model -q --ids "$ids" --greedy 40 --logits "$work/three.f32" --split 3,2,1 --threads 1 >"$work/ids"
show eval $model -q --ids "$ids" --greedy 40 --logits one.f32
"$lockstep" eval $model -q --ids "$ids" --greedy 40 --logits "$work/one.f32" --threads 1 >"$work/ids"
show cmp three.f32 one.f32 | sed 's/lockstep //'
cmp "$work/three.f32" "$work/one.f32"
size=$(wc -c <"$work/one.f32")
echo "Yes: $((size / 4)) numbers ($size bytes), not one bit differs."

step "Your turn:"
cat <<END
  build/lockstep chat $model --ranks 2
  build/lockstep run YOUR-MODEL.gguf -p "..." --ranks 2          (llama, qwen2, qwen3 files)
END
