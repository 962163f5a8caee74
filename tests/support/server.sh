# server.sh, to be sourced after scratch.sh: lockstep serve, which ends with the test.
server=
at_end '[ -z "$server" ] || { kill "$server" && wait "$server"; } 2>/dev/null'

# serve_start MODEL [options]: sets $server (pid) and $url; what it says is in $work/out and $work/err.
serve_start() {
    local line=
    rm -f "$work/out" "$work/ready"
    mkfifo "$work/ready"
    "$LOCKSTEP" serve "$@" --port 0 --ready-fd 8 >"$work/out" 2>"$work/err" 8>"$work/ready" 9>&- &
    server=$!
    read -r -t 60 line <"$work/ready" # one that fails closes it
    url=$(sed -n 's/.*"url":"\([^"]*\)".*/\1/p' <<<"$line")
    [ -n "$url" ] || { echo "FAILED: serve $*: $(cat "$work/err")"; exit 1; }
}

# serve_stop: false unless it ends in order.
serve_stop() {
    local pid=$server
    server=
    kill "$pid" && wait "$pid"
}
