#!/bin/bash
# Ranks that somebody else starts (torchrun, Slurm, Open MPI and PMI say so in the environment; a host file;
# flags) and ranks over ssh give the bits of one rank; what is wrong about them is said in one sentence.
set -u
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
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
    truncate -s 1G wires
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
port=$(free_port)
together "flags, a split" A=1 "${lead[@]}" --join "127.0.0.1:$port" --ranks 2 --rank 0 --split 3,1 -- \
    A=1 "${follow[@]}" --join "127.0.0.1:$port" --ranks 2 --rank 1
printf '# two ranks\n127.0.0.1:%s\nlocalhost # the second\n' "$(free_port)" >hosts
echo letmein >secret
together "a host file" A=1 "${lead[@]}" --hosts @hosts --rank 0 --secret-file secret -- \
    A=1 "${follow[@]}" --hosts @hosts --rank 1

# An ssh that goes nowhere: the words after the host are a command line for a shell.
cat >ssh <<'EOF'
#!/bin/bash
[ "$1" = localhost ] || { echo "ssh: Could not resolve hostname $1" >&2; exit 255; }
shift
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
[ $((SECONDS - begin)) -lt 10 ] || fail "a failed ssh was noticed after $((SECONDS - begin)) s"
refuse 2 "ranks that are joined need a secret" -u LOCKSTEP_SECRET "${lead[@]}" --join 127.0.0.1:1 --ranks 2 --rank 0
refuse 2 "no launcher has said which rank this is" A=1 "${lead[@]}" --join env
refuse 2 "either --hosts or --join" A=1 "${lead[@]}" --join env --hosts a,b
refuse 2 "\"-oProxyCommand=x\" is no host" A=1 "${lead[@]}" --hosts a,-oProxyCommand=x
refuse 2 "Open MPI does not tell where rank 0 is" LOCKSTEP_SECRET=x OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 \
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
[ $failures = 0 ]
