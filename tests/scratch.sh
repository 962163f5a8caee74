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
