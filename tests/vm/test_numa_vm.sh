#!/bin/bash
# A machine of two NUMA domains, which QEMU emulates: without being told, a model is two ranks there, one in each domain, with
# threads and memory in it, and the answer is that of one rank.
# labels: slow
set -uo pipefail
. "$SOURCE_DIR/tests/support/vm.sh"

machine sockets "job=numa" -object memory-backend-ram,id=near,size=256M -object memory-backend-ram,id=far,size=256M \
    -numa node,nodeid=0,cpus=0,memdev=near -numa node,nodeid=1,cpus=1,memdev=far
[ $? = "$(left_with 0)" ] || fail "two domains"
grep -hoE 'rank [0-9]: .*|two ranks, .*' "$consoles/sockets"
