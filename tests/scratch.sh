# scratch.sh, to be sourced: a folder that goes with the test, and failures that are counted.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export XDG_DATA_HOME=$work/data # what nodes keep is the test's own
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
refuse() { # STATUS PATTERN words...
    local want=$1 pattern=$2 status
    shift 2
    timeout 60 "$@" >out 2>err </dev/null
    status=$?
    [ $status = "$want" ] || fail "$*: exit status $status, expected $want: $(cat err)"
    grep -Eq -e "$pattern" err || fail "$*: said '$(cat err)', expected /$pattern/"
}
