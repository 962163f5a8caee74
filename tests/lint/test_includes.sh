#!/bin/bash
# Includes point up the list of rooms (or stay in their room), never down; the public header knows
# nothing of src; headers have guards named after their path.
set -u
cd "${SOURCE_DIR:-$(dirname "$0")/../..}" || exit 1
rooms=(base net quant format tokenizer jinja grammar schema chat kernels link fabric model ranks engine cluster server api node cli commands)
declare -A depth
for i in "${!rooms[@]}"; do depth[${rooms[i]}]=$i; done
failures=0
fail() {
    echo "$*"
    failures=$((failures + 1))
}

for room in src/*/; do
    room=$(basename "$room")
    [ -n "${depth[$room]:-}" ] || fail "src/$room is no room of this house: see ARCHITECTURE.md"
done

while IFS=: read -r file line text; do
    room=${file#src/}
    room=${room%%/*}
    target=${text#*\"}
    target=${target%%\"*}
    case $target in
    lockstep/*) # the public API: what implements it, and what stands on it
        [ "${depth[$room]:-0}" -ge "${depth[ranks]}" ] ||
            fail "$file:$line: $room includes $target, which ranks and engine implement" ;;
    */*)
        other=${target%%/*}
        if [ -z "${depth[$other]:-}" ]; then
            fail "$file:$line: \"$target\" is in no room"
        elif [ "${depth[$other]}" -gt "${depth[$room]:-99}" ]; then
            fail "$file:$line: $room includes $target: $other is below it"
        fi ;;
    *) fail "$file:$line: \"$target\": write the room too, \"$room/$target\"" ;;
    esac
done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' src --include='*.[ch]' --include='*.inc')

while IFS=: read -r file line text; do
    fail "$file:$line: the public header includes $text"
done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' include)

for header in $(find src -name '*.h' ! -name '*.inc.h'); do
    guard=LOCKSTEP_$(echo "${header#src/}" | tr 'a-z/.-' 'A-Z___')
    grep -q "^#define $guard\$" "$header" || fail "$header: expected the include guard $guard"
done

[ $failures = 0 ] && echo "includes: all point up the list"
[ $failures = 0 ]
