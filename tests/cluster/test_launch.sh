#!/bin/bash
# Ranks that somebody else starts (torchrun, Slurm, Open MPI and PMI say so in the environment; a host file;
# flags) and ranks over ssh give the bits of one rank; what is wrong about them is said in one sentence.
# labels: root
set -u
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/hosts.sh"
eval_args=(eval "$model" --ids 1,2,3,4,5,6,7,8 --greedy 8 --ctx 64 -t 1)
run() { timeout 60 env "$@"; }

"$LOCKSTEP" "${eval_args[@]}" -q --logits ref.f32 >ref.ids || exit 1

# together NAME LEADER-WORDS -- FOLLOWER-WORDS: rank 0 and rank 1 with these variables and options.
together() {
    local name=$1 first=() second=()
    shift
    while [ "$1" != -- ]; do first+=("$1"); shift; done
    shift
    second=("$@")
    run LOCKSTEP_SECRET=letmein "${second[@]}" >second.out 2>second.err &
    local follower=$!
    run LOCKSTEP_SECRET=letmein "${first[@]}" >first.ids 2>first.err || fail "$name: rank 0: $(cat first.err)"
    wait $follower || fail "$name: rank 1: $(cat second.err)"
    cmp -s ref.f32 first.f32 && cmp -s ref.ids first.ids || fail "$name: other bits"
    [ ! -s second.out ] || fail "$name: rank 1 prints: $(head -c 200 second.out)"
    rm -f first.f32 second.f32
}
lead=("$LOCKSTEP" "${eval_args[@]}" -q --logits first.f32)
follow=("$LOCKSTEP" "${eval_args[@]}" -q --logits second.f32)

# The links of this machine; verbs over the stand-in for libibverbs, whose wires are a file.
links="shm tcp"
if [ -e "$BUILD_DIR/tests/libstandin_verbs.so" ]; then
    exec 9<>wires
    truncate -s 4G wires
    export LOCKSTEP_IBVERBS=$BUILD_DIR/tests/libstandin_verbs.so STANDIN_FD=9
    links+=" verbs"
else
    echo "skip: verbs: no <infiniband/verbs.h>"
fi
if "$LOCKSTEP" fabric doctor | grep -q "UCX: there"; then links+=" ucx"; else echo "skip: ucx: not installed"; fi

for link in $links; do
    port=$(free_port)
    torch=(WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port")
    together "torchrun over $link" "${torch[@]}" RANK=0 "${lead[@]}" --join env --link $link -- \
        "${torch[@]}" RANK=1 "${follow[@]}" --join env --link $link
done
port=$(free_port)
slurm=(SLURM_NTASKS=2 SLURM_STEP_NODELIST=localhost)
together "Slurm" "${slurm[@]}" SLURM_PROCID=0 "${lead[@]}" --join "127.0.0.1:$port" -- \
    "${slurm[@]}" SLURM_PROCID=1 "${follow[@]}" --join "127.0.0.1:$port"
port=$(free_port)
together "Open MPI" OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "${lead[@]}" --join "127.0.0.1:$port" -- \
    OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 "${follow[@]}" --join "127.0.0.1:$port"
port=$(free_port)
together "PMI" PMI_SIZE=2 PMI_RANK=0 "${lead[@]}" --join "127.0.0.1:$port" -- \
    PMI_SIZE=2 PMI_RANK=1 "${follow[@]}" --join "127.0.0.1:$port"
# A launcher's ranks share one command line; what it writes is rank 0's business.
port=$(free_port)
together "one command line" OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "${lead[@]}" --join "127.0.0.1:$port" -- \
    OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 "$LOCKSTEP" "${eval_args[@]}" -q --logits nowhere/first.f32 --join "127.0.0.1:$port"
port=$(free_port)
together "flags, a split" A=1 "${lead[@]}" --join "127.0.0.1:$port" --ranks 2 --rank 0 --split 3,1 -- \
    A=1 "${follow[@]}" --join "127.0.0.1:$port" --ranks 2 --rank 1
printf '# two ranks\n127.0.0.1:%s\nlocalhost # the second\n' "$(free_port)" >hosts
echo letmein >secret
together "a host file" A=1 "${lead[@]}" --hosts @hosts --rank 0 --secret-file secret -- \
    A=1 "${follow[@]}" --hosts @hosts --rank 1

# Several ranks by --join; the words of rank 0 tell how sums are done.
ranks() { # HOW-MANY LEADER-SUMS options...: so many ranks by --join, verbose; checks bits and what is told
    local n=$1 sums=$2 port rank pids=()
    shift 2
    port=$(free_port)
    for ((rank = 1; rank < n; rank++)); do
        run LOCKSTEP_SECRET=x "${in[rank]:-env}" "${follow[@]}" --join "$address:$port" --ranks "$n" --rank $rank "$@" \
            >>second.out 2>rank$rank.err &
        pids+=($!)
    done
    run LOCKSTEP_SECRET=x "${in[0]:-env}" "$LOCKSTEP" "${eval_args[@]}" --logits first.f32 --join "$address:$port" \
        --ranks "$n" --rank 0 --parallel tensor "$@" >first.ids 2>first.err || fail "$n ranks $*: $(cat first.err)"
    for ((rank = 1; rank < n; rank++)); do
        wait "${pids[rank - 1]}" || fail "$n ranks $*: rank $rank: exit status $?: $(cat rank$rank.err)"
    done
    cmp -s ref.f32 first.f32 || fail "$n ranks $*: other bits"
    grep -Eq "sums: ($sums);" first.err || fail "$n ranks $*: expected sums: $sums: $(cat first.err)"
    rm -f first.f32
}
in=() address=127.0.0.1
# Three ranks without the cable between 0 and 2, four without the one between 1 and 3.
if [[ $links = *verbs* ]]; then
    echo '[[null,"standin0",null],["standin0",null,"standin0"],[null,"standin0",null]]' >line
    # Rank 2 hears the end from rank 1 and sees rank 0 go, in either order: often enough for both.
    for _ in {1..12}; do ranks 3 tree --link verbs --rdma-matrix line; done
    d='"standin0"'
    echo "[[null,$d,$d,$d],[$d,null,$d,null],[$d,$d,null,$d],[$d,null,$d,null]]" >less
    ranks 4 "tree|ring" --link verbs --rdma-matrix less
fi

# Two hosts with two ranks each: network namespaces with a cable, shared memory inside, TCP between.
if can_make_hosts; then
    make_hosts 1 2
    cable 1 wire 2 wire
    for host in 1 2; do on $host ip addr add 10.7.0.$host/24 dev wire || fail "no address for $host"; done
    enter() { # what `env` runs a command through, on that host
        printf '#!/bin/bash\nSTANDIN_MACHINE=%s exec nsenter -t %s -n "$@"\n' "$1" "${hosts[$1]}" >"on$1" && chmod +x "on$1"
    }
    enter 1
    enter 2
    # Nobody says which RDMA device leads to the other host; the first of each leads nowhere. (A socket wakes nobody in the
    # other namespace.)
    if [[ $links = *verbs* ]]; then
        in=("$work/on1" "$work/on2") address=10.7.0.1
        export STANDIN_CABLES="1.0-7.0 1.1-2.2 2.0-8.0 2.1-9.0" STANDIN_NO_EVENTS=1
        ranks 2 one-shot
        grep -q "resident .*; verbs over standin1" first.err || fail "two hosts: cables: $(cat first.err)"
        # A cable that carries nothing is no reason to fail.
        export STANDIN_CABLES="1.0-7.0 2.0-8.0"
        ranks 2 one-shot
        grep -q "resident .*; tcp" first.err || fail "two hosts without a cable: $(cat first.err)"
        export STANDIN_NO_MEMORY=1
        ranks 2 one-shot
        grep -q "RDMA is not used towards rank 1: RDMA device standin0 registers no memory: .*ulimit" first.err ||
            fail "two hosts without memory for RDMA: $(cat first.err)"
        unset STANDIN_CABLES STANDIN_NO_EVENTS STANDIN_NO_MEMORY
    fi
    unset LOCKSTEP_IBVERBS STANDIN_FD
    in=("$work/on1" "$work/on1" "$work/on2" "$work/on2") address=10.7.0.1
    ranks 4 "one-shot|scatter|ring|hierarchical|tree"
    for link in shm tcp; do grep -q "resident .*; $link" first.err || fail "two hosts: no $link: $(cat first.err)"; done
    end_hosts
else
    echo "skip: two hosts: no right to make network namespaces"
fi

# An ssh that goes nowhere: the words after the host are a command line for a shell.
cat >ssh <<'EOF'
#!/bin/bash
[ "$1" = localhost ] || { echo "ssh: Could not resolve hostname $1" >&2; exit 255; }
shift
printf 'Welcome\n%700s\nerror in .bashrc\n' '' # what a shell there may say first
exec bash -c "$*"
EOF
chmod +x ssh
run LOCKSTEP_SSH="$work/ssh" "${lead[@]}" --hosts 127.0.0.1,localhost,localhost >first.ids 2>first.err ||
    fail "over ssh: $(cat first.err)"
cmp -s ref.f32 first.f32 || fail "over ssh: other bits"

# ---- refused ------------------------------------------------------------------------------------
refuse() { # STATUS PATTERN words...
    local want=$1 pattern=$2 status
    shift 2
    run "$@" >out 2>err
    status=$?
    [ $status = "$want" ] || fail "$*: exit status $status, expected $want"
    grep -Eq -e "$pattern" err || fail "$*: said '$(cat err)', expected /$pattern/"
}
begin=$SECONDS
refuse 3 "rank 1: ssh to nowhere ended in an error" LOCKSTEP_SSH="$work/ssh" "${lead[@]}" --hosts 127.0.0.1,nowhere
# (unnoticed, it would take the 30 s that a rank is waited for)
[ $((SECONDS - begin)) -lt 20 ] || fail "a failed ssh was noticed after $((SECONDS - begin)) s"
refuse 2 "ranks that are joined need a secret" -u LOCKSTEP_SECRET "${lead[@]}" --join 127.0.0.1:1 --ranks 2 --rank 0
refuse 2 "no launcher has said which rank this is" A=1 "${lead[@]}" --join env
refuse 2 "either --hosts or --join" A=1 "${lead[@]}" --join env --hosts a,b
refuse 2 "\"-oProxyCommand=x\" is not a valid host" A=1 "${lead[@]}" --hosts a,-oProxyCommand=x
refuse 2 "Open MPI does not say where rank 0 is" LOCKSTEP_SECRET=x OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 \
    "${lead[@]}" --join env
# A wrong secret: a sentence on both sides, and the group still forms with the right one.
port=$(free_port)
words=(--join "127.0.0.1:$port" --ranks 2)
run LOCKSTEP_SECRET=right "${lead[@]}" "${words[@]}" --rank 0 >first.ids 2>first.err &
leader=$!
refuse 3 "token" LOCKSTEP_SECRET=wrong "${follow[@]}" "${words[@]}" --rank 1
run LOCKSTEP_SECRET=right "${follow[@]}" "${words[@]}" --rank 1 || fail "the right secret after the wrong one"
wait $leader || fail "rank 0 after a wrong secret: $(cat first.err)"
grep -q "it has another group's token" first.err || fail "rank 0 says: $(cat first.err)"
cmp -s ref.f32 first.f32 || fail "after a wrong secret: other bits"
# Another model under the same path on another machine: quantized in another way, trained on, or with another base of its
# rotations, if only in the seventh digit.
mkdir other
"$LOCKSTEP" quantize "$model" other/quantized.gguf q8_0 >/dev/null 2>&1 || fail "quantize"
python3 -c '
import sys
data = bytearray(open(sys.argv[1], "rb").read())
for at in range(len(data) - 2000000, len(data)):
    data[at] ^= 1
open(sys.argv[2], "wb").write(data)' "$model" other/trained.gguf
python3 -c '
import struct, sys
data = open(sys.argv[1], "rb").read()
base = b"qwen3.rope.freq_base" + struct.pack("<If", 6, 10000)
assert data.count(base) == 1
open(sys.argv[2], "wb").write(data.replace(base, base[:-4] + struct.pack("<f", 10000.02)))' "$model" other/turned.gguf
python3 -c '
import sys
data = bytearray(open(sys.argv[1], "rb").read())
data[len(data) // 2] ^= 1 # inside a tensor, in no row that is looked at before all of it is
open(sys.argv[2], "wb").write(data)' "$model" other/inside.gguf
for other in other/*.gguf; do
    port=$(free_port)
    words=(--ids 1,2,3 --greedy 2 --ctx 64 -t 1 -q --join "127.0.0.1:$port" --ranks 2)
    run LOCKSTEP_SECRET=x "$LOCKSTEP" eval "$other" "${words[@]}" --rank 1 2>follower.err &
    follower=$!
    refuse 2 "rank 1 has opened another model than rank 0" LOCKSTEP_SECRET=x "$LOCKSTEP" eval "$model" "${words[@]}" --rank 0
    wait $follower && fail "rank 1 with $other ends as if nothing had happened"
    grep -q "rank 1 has opened another model than rank 0" follower.err || fail "rank 1 with $other says: $(cat follower.err)"
done
# A program that was replaced while it ran does not start ranks of another version.
cp "$LOCKSTEP" lockstep
exec 9<lockstep
rm lockstep
/proc/self/fd/9 "${eval_args[@]}" --ranks 2 --logits x.f32 >out 2>err && fail "ranks of a program that is gone"
grep -q "replaced or removed while it runs" err || fail "a replaced program: $(cat err)"
exec 9<&-

[ $failures = 0 ]
