# scratch.sh, to be sourced: a folder that goes with the test, and failures that are counted: one makes the test fail,
# however it ends.
work=$(mktemp -d)
ends=()
at_end() { ends=("$1" ${ends[@]+"${ends[@]}"}); } # a command that is run at the end, before the earlier ones
trap 'status=$?; for end in ${ends[@]+"${ends[@]}"}; do eval "$end"; done; rm -rf "$work"; [ "${failures:-0}" = 0 ] || exit 1; exit $status' EXIT
cd "$work" || exit 1
export XDG_DATA_HOME=$work/data XDG_CACHE_HOME=$work/cache # what nodes keep, and know of files, is the test's own
export MESA_SHADER_CACHE_DIR=$BUILD_DIR/shaders # so that a device of the processor compiles each shader once, not once a test
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
# within SECONDS COMMAND...: until it succeeds.
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.05
    done
}
# A port for a server that wants a number: one that nobody has, and out of those that no one else is given who asks
# for any (Linux gives such from 32768 on, macOS from 49152 on).
free_port() {
    python3 -c 'import random, socket
for _ in range(1000):
    with socket.socket() as s:
        try:
            s.bind(("", random.randrange(10000, 32000)))
        except OSError:
            continue
        print(s.getsockname()[1])
        break'
}
refuse() { # STATUS PATTERN words...
    local want=$1 pattern=$2 status
    shift 2
    timeout 60 "$@" >out 2>err </dev/null
    status=$?
    [ $status = "$want" ] || fail "$*: exit status $status, expected $want: $(cat err)"
    grep -Eq -e "$pattern" err || fail "$*: said '$(cat err)', expected /$pattern/"
}
