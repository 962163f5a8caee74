# server.sh, to be sourced after $work is there: lockstep serve, which ends with the test.
server=
trap '[ -n "$server" ] && kill "$server" 2>/dev/null && wait "$server"; rm -rf "$work"' EXIT

# serve_start MODEL [options]: sets $server (pid) and $url; what it says is in $work/out and $work/err.
serve_start() {
    rm -f "$work/out"
    "$LOCKSTEP" serve "$@" --port 0 >"$work/out" 2>"$work/err" 9>&- &
    server=$!
    for _ in $(seq 600); do
        grep -q '^lockstep listens on' "$work/out" && break
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    url=$(sed -n 's/^lockstep listens on //p' "$work/out")
    [ -n "$url" ] || { echo "FAILED: serve $*: $(cat "$work/err")"; exit 1; }
}

# serve_stop: false unless it ends in order.
serve_stop() {
    local pid=$server
    server=
    kill "$pid" && wait "$pid"
}
