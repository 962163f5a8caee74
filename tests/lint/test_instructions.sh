#!/bin/bash
# x86-64: the object files hold no instruction beyond the set that their names say (CMakeLists.txt), which is
# all that is asked of a machine before they run. What uses AVX-VNNI can be run on few machines: here it is
# seen that it does use it.
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"
objects=$BUILD_DIR/CMakeFiles/lockstep_core.dir/src
if ! command -v objdump >/dev/null; then
    echo "skip: no objdump"
    exit 77
fi
if ! objdump -f "$objects/kernels/select.c.o" | grep -q x86-64; then
    echo "skip: the objects are not for x86-64"
    exit 77
fi
n=0
none() { # object-file pattern what: no instruction of it is one
    local found
    found=$(objdump -dw "$1" | grep -E -m 1 "$2") || return 0
    fail "${1#"$objects/"} has an instruction $3: $found"
}

vex='\sv[a-z0-9]+ +.*%[xy]mm'      # AVX and later, by its mnemonic
evex=':\s62 |%zmm|%k[0-7]'          # AVX-512, by its prefix and registers
vnni='\svpdp'
amx='%tmm|\s(ld|st)tilecfg|\stilerelease'
while read -r object; do
    n=$((n + 1))
    case $object in
    *amx.c.o)
        objdump -dw "$object" | grep -qE '\stdpbssd' || fail "${object#"$objects/"} has no instruction of AMX"
        continue
        ;;
    esac
    none "$object" "$amx" "of AMX"
    case $object in
    *avx512.c.o) ;;
    *avxvnni.c.o)
        none "$object" "$evex" "of AVX-512"
        objdump -dw "$object" | grep -qE "$vnni" || fail "${object#"$objects/"} has no instruction of AVX-VNNI"
        ;;
    *avx2.c.o) none "$object" "$evex|$vnni" "beyond AVX2" ;;
    *) none "$object" "$vex|$evex" "beyond SSE2" ;;
    esac
done < <(find "$objects" -name '*.c.o')
[ "$n" -gt 100 ] || fail "$n object files in $objects: where are the others?"
[ "$failures" = 0 ] && echo "instructions: $n object files keep to their instruction sets"
[ $failures = 0 ]
