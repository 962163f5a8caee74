#!/bin/bash
# --parallel auto on several machines measures and decides: tensor on a fast wire, a pipeline on a slow one, with the bits of
# one rank. A delay of 50 ms on each of 4 sums, against 20 ms of reading that two share: no machine is so busy that this
# turns. Two machines are two network namespaces, whose wire tc makes slow (where the kernel can), and two names of this one behind an ssh that
# goes nowhere, whose links are emulated.
# labels: root
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/hosts.sh"
run() { timeout 120 env "$@"; }
"$LOCKSTEP" synth --shape qwen3-0.6b --layers 2 --type q8_0 model.gguf >/dev/null 2>&1 || exit 1
eval_args=(eval model.gguf --ids 1,2,3,4,5 --greedy 3 --ctx 64 -t 1)
"$LOCKSTEP" "${eval_args[@]}" -q --logits ref.f32 >ref.ids || exit 1

check() { # NAME LAYOUT: what the last run said and gave
    cmp -s ref.f32 got.f32 && cmp -s ref.ids got.ids || fail "$1: other bits"
    grep -Eq "^placement: $2 \([0-9.]+ tokens/s predicted; .*\); (equal )?shares .*by memory bandwidth \([0-9., ]+ GB/s\); " err ||
        fail "$1: expected $2: $(cat err)"
    grep -Eq "^qwen3.*; $2, " err || fail "$1: the model is not $2: $(cat err)"
    rm -f got.f32
}

# ---- over ssh ---------------------------------------------------------------------------------------
cat >ssh <<'EOF'
#!/bin/bash
shift
[ -z "${SLOW:-}" ] || export LOCKSTEP_ISA=$SLOW
exec bash -c "$*"
EOF
chmod +x ssh
export LOCKSTEP_SSH=$work/ssh
over_ssh() { run "$LOCKSTEP" "${eval_args[@]}" --hosts 127.0.0.1,localhost --logits got.f32 "$@" >got.ids 2>err || fail "over ssh $*: $(cat err)"; }
over_ssh
check "ssh, fast" tensor2
over_ssh --emulate-link latency=50ms
check "ssh, slow" pipeline2
# A machine whose kernels are slow has less; heads, columns and rows are still whole.
SLOW=scalar over_ssh
check "ssh, a slow machine" "(tensor|pipeline)2"
grep -q ", scalar, " err || python3 - <<'END' || fail "the slow machine has too much: $(cat err)"
import re
said = open("err").read()
a, b = map(float, re.search(r"shares ([0-9.]+),([0-9.]+) by memory bandwidth", said).groups())
assert a > b, said
END
# Three layouts, of four ranks whose shares are whatever a busy machine makes them.
over_ssh --hosts 127.0.0.1,localhost,localhost,localhost
check "ssh, four" "(tensor4|tensor2xpipeline2|pipeline4)"
# What is said holds. The other decision is still made, but none by --split.
over_ssh --parallel pipeline
grep -q "^placement: pipeline2 ([0-9.]* tokens/s predicted); " err || fail "--parallel pipeline: $(cat err)"
over_ssh --split 1,1 --emulate-link latency=1ms
! grep -q "^placement" err && grep -q "; tensor2, " err || fail "--split: $(cat err)"
over_ssh -q
[ ! -s err ] || fail "-q says $(cat err)"
run "$LOCKSTEP" "${eval_args[@]}" --ranks 2 --logits got.f32 >got.ids 2>err || fail "two ranks here: $(cat err)"
! grep -q "^placement" err && grep -q "; tensor2, " err || fail "two ranks of one machine: $(cat err)"

# What no machine can take is refused before it is loaded, in one sentence: two terabytes, of holes.
if "$LOCKSTEP" synth --shape kimi-k2 --type f16 --header-only huge.gguf >/dev/null 2>&1 && truncate -s 2500G huge.gguf 2>/dev/null; then
    run "$LOCKSTEP" eval huge.gguf --ids 1 -t 1 --hosts 127.0.0.1,localhost >/dev/null 2>err
    status=$?
    if grep -q "cannot be mapped" err; then # as under sanitizers, which take the addresses
        echo "skip: a model that fits nowhere: no addresses for it"
    elif [ $status != 2 ] || [ "$(wc -l <err)" != 1 ] ||
        ! grep -Eq "cannot take the model .*: tensor2: rank [01] would need [0-9.]+ GB, has [0-9.]+ [GM]B; pipeline2: rank" err; then
        fail "a model that fits nowhere: $(cat err)"
    fi
    rm -f huge.gguf
else
    echo "skip: a model that fits nowhere: no files of that size here"
fi

# ---- between network namespaces ----------------------------------------------------------------------
if ! can_make_hosts || ! command -v tc >/dev/null; then
    echo "skip: two namespaces: no right to make them, or no tc"
    [ $failures = 0 ]
    exit
fi
make_hosts 1 2
cable 1 wire 2 wire
for host in 1 2; do on $host ip addr add 10.7.1.$host/24 dev wire || fail "no address for $host"; done
export LOCKSTEP_SECRET=x
between() {
    on 2 timeout 120 "$LOCKSTEP" "${eval_args[@]}" --join 10.7.1.1:7341 --ranks 2 --rank 1 -q "$@" >follower.out 2>&1 &
    local follower=$!
    on 1 timeout 120 "$LOCKSTEP" "${eval_args[@]}" --join 10.7.1.1:7341 --ranks 2 --rank 0 --logits got.f32 "$@" >got.ids 2>err ||
        fail "between namespaces: $(cat err)"
    wait $follower || fail "rank 1: $(cat follower.out)"
}
between
check "namespaces, fast" tensor2
if on 1 tc qdisc add dev wire root netem delay 50ms 2>/dev/null && on 2 tc qdisc add dev wire root netem delay 50ms; then
    between
else
    echo "note: this kernel has no netem: the wire is slow by emulation"
    between --emulate-link latency=50ms
fi
check "namespaces, slow" pipeline2
[ $failures = 0 ]
