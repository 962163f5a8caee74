#!/bin/bash
# A file includes headers of its own room and of those above it in the list (support/rooms.sh), whose order is that of the
# table in ARCHITECTURE.md. The public header includes nothing of src. Headers have guards named after their path.
set -u
cd "${SOURCE_DIR:-$(dirname "$0")/../..}" || exit 1
. tests/support/rooms.sh
failures=0
fail() {
    echo "$*"
    failures=$((failures + 1))
}

documented=$(sed -n 's,^| \[\([a-z]*\)\](src/\1) .*,\1,p' ARCHITECTURE.md)
[ "$documented" = "$(printf '%s\n' "${rooms[@]}")" ] ||
    fail "the table in ARCHITECTURE.md has another order of modules than tests/support/rooms.sh"
for room in src/*/; do
    room=$(basename "$room")
    [ -n "${depth[$room]:-}" ] || fail "src/$room is not a module in ARCHITECTURE.md"
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
