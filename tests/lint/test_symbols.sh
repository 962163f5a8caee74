#!/bin/bash
# What the linker sees of the order of rooms (support/rooms.sh): no object file needs a symbol that a room below its own
# defines. An include cannot hide that: a declaration may be written by hand. And no object file defines what a library exports.
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/rooms.sh"
command -v nm >/dev/null || { echo "skip: no nm"; exit 77; }
# The objects of sources that are there: a build folder keeps those of files that are gone.
for object in $(find "$BUILD_DIR/CMakeFiles" -path '*.dir/src/*.c.o'); do
    source=src/${object#*.dir/src/}
    [ ! -e "$SOURCE_DIR/${source%.o}" ] || echo "$object"
done >objects
for room in "${rooms[@]}"; do
    grep -q "\.dir/src/$room/" objects || fail "no object files of src/$room in $BUILD_DIR"
done

# points_up: of lines "object: symbol type ...", those where a room needs what one below it defines.
points_up() {
    awk -v list="${rooms[*]}" '
        BEGIN { n = split(list, room); for (i = 1; i <= n; i++) depth[room[i]] = i }
        {
            split(substr($1, index($1, ".dir/src/") + 9), path, "[/:]")
            if ($3 ~ /^[Uwv]$/) needs[path[1] "/" path[2], $2] = path[1]
            else if (!($2 in defined) || depth[path[1]] < depth[defined[$2]]) defined[$2] = path[1]
        }
        END {
            for (key in needs) {
                split(key, one, SUBSEP)
                if (one[2] in defined && depth[defined[one[2]]] > depth[needs[key]])
                    print one[1] " needs " one[2] "(), which " defined[one[2]] " defines: that is below it"
            }
        }'
}
# What must be found is found.
printf '%s\n' 'a.dir/src/base/buf.c.o: buf_add T 0 1' 'a.dir/src/base/buf.c.o: node_open U' \
    'a.dir/src/node/node.c.o: node_open T 0 1' 'a.dir/src/node/node.c.o: buf_add U' | points_up >probe
grep -q '^base/buf.c.o needs node_open' probe && [ "$(wc -l <probe)" = 1 ] || fail "the check does not find what it looks for: $(cat probe)"

xargs nm -A -P -g <objects | points_up >found
[ ! -s found ] || fail "$(sort found)"

# Nor does one define what a library of the program exports: the library would call ours in its place.
if command -v ldd >/dev/null && [ -x "$BUILD_DIR/lockstep" ]; then
    ldd "$BUILD_DIR/lockstep" | awk '$3 ~ /^\// {print $3}' | while read -r library; do
        nm -D -P --defined-only "$library" | awk '$2 ~ /[TWi]/ {sub(/@.*/, "", $1); print $1}'
    done | sort -u >libraries
    [ "$(wc -l <libraries)" -gt 1000 ] || fail "the libraries export $(wc -l <libraries) symbols"
    xargs nm -P -g --defined-only <objects 2>/dev/null | awk '$2 == "T" {print $1}' | grep -vx main | sort -u | comm -12 - libraries >both
    [ ! -s both ] || fail "libraries have these, too: $(paste -sd' ' both)"
fi
[ $failures = 0 ] && echo "symbols: $(wc -l <objects) object files need nothing of the rooms below them"
[ $failures = 0 ]
