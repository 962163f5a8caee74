#!/bin/bash
# lockstep top and lockstep ps, of an answer that is made up: what they show, and what is refused. tests/cluster/test_view.sh has
# the answers of nodes.
set -u
command -v python3 >/dev/null || { echo "skip: python3 is not there"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"
at_end '[ -z "${server:-}" ] || kill "$server" 2>/dev/null'
unset LOCKSTEP_API_KEY NO_COLOR CLICOLOR_FORCE
export HOME=$work XDG_CONFIG_HOME=$work/config
python3 - >cluster.json <<'END'
import json
G = 10**9
print(json.dumps({
    "self": "rack", "version": "0.2.0", "time": 1790000000.25, "may": {"manage": True, "sentence": ""},
    "nodes": [
        {"name": "rack", "state": "here", "age_s": 0.4, "address": "10.0.0.1", "processor": "P", "cores": 16, "memory": 100 * G, "memory_free": 36 * G, "load": 1.2,
         "disk_free": 5 * G, "version": "0.2.0", "devices": None, "workers": [{"model": "qwen", "rank": 0, "device": "", "layers": [0, 16], "heads": [0, 8],
         "memory": {"weights": 45 * G - 15 * G, "cache": 5 * G, "buffers": 5 * G}}, {"model": "qwen", "rank": 2, "device": "", "memory": {"weights": 15 * G}}]},
        {"name": "shelf", "state": "lost", "age_s": 12, "cores": 8, "memory": None, "workers": [{"model": "qwen", "rank": 1, "memory": {"weights": 10 * G, "cache": G, "buffers": 0}}]},
        {"name": "\u65e5\u672c\x1b[2J", "state": "here", "cores": 4, "load": 0, "memory": 8 * G, "memory_free": 8 * G}],
    "links": [{"model": "qwen", "a": "rack", "b": "shelf", "kind": "tcp", "latency_us": 41, "bandwidth": G, "bytes": 5 * G, "rate": 1000}],
    "deployments": [{"name": "qwen", "model": "qwen.gguf", "port": 8080, "state": "listening", "node": "rack", "since": 1789999000, "sentence": "",
                     "standby": [{"node": "shelf", "reason": "missing", "sentence": "it has no copy"}], "copies": [{"to": "shelf", "bytes": 2 * G, "total": 4 * G, "rate": 110e6, "left_s": 18}],
                     "requests": {"running": 2, "waiting": 1}, "tokens_per_second": 48.1, "prompt_per_second": 900, "cache": {"pages": 400, "used": 100},
                     "candidates": [{"layout": "tensor2", "chosen": True, "tokens_per_second": 48.1, "sentence": ""}]}],
    "events": [{"time": 1789999000 + i, "kind": "joined", "node": "rack", "sentence": f"event {i}"} for i in range(100)]
              + [{"time": 1789999500, "kind": "lost", "node": "shelf", "sentence": "shelf is lost"}]}))
END
python3 "$SOURCE_DIR/tests/support/cluster_view.py" "$work" >server.log 2>&1 &
server=$!
within 20 test -e url || fail "no server: $(cat server.log)"
url=$(cat url)

# ---- once ----------------------------------------------------------------------------------------
"$LOCKSTEP" top --once --server "$url" >once 2>err || fail "top --once: $(cat err)"
head -1 once | grep -q "^rack  2 nodes, 1 lost  1 model  48.1 tokens/s$" || fail "the first line is $(head -1 once)"
grep -q "event 98$" once && ! grep -q "event 80$" once || fail "not the latest events: $(cat once)"
LC_ALL=C grep -q $'\x1b' once && fail "a pipe gets escape sequences"
CLICOLOR_FORCE=1 "$LOCKSTEP" top --once --server "$url" | LC_ALL=C grep -q $'\x1b\\[1mrack' || fail "CLICOLOR_FORCE"
CLICOLOR_FORCE=1 NO_COLOR=1 "$LOCKSTEP" top --once --server "$url" | LC_ALL=C grep -q $'\x1b' && fail "NO_COLOR"
"$LOCKSTEP" top --json --server "$url" >json 2>err || fail "top --json: $(cat err)"
python3 -c 'import json; assert json.load(open("json")) == json.load(open("cluster.json"))' || fail "--json is not what was answered"
refuse 2 "this is no terminal for a full screen" "$LOCKSTEP" top --server "$url"
refuse 2 "either --node or --server" "$LOCKSTEP" top --server "$url" --node x
refuse 2 "there is no cluster key yet" "$LOCKSTEP" top --once --node 127.0.0.1
refuse 3 "no answer from http" "$LOCKSTEP" top --once --server 127.0.0.1:1

# ---- ps ------------------------------------------------------------------------------------------
"$LOCKSTEP" ps --server "$url" >ps 2>err || fail "ps: $(cat err)"
grep -Eq "^MODEL +SIZE +STATE +WHERE +PORT +TOKENS/S +UNTIL$" ps || fail "ps says $(cat ps)"
grep -Eq "^qwen +66.0 GB +listening +rack, shelf +8080 +48.1 +lockstep down$" ps || fail "ps says $(cat ps)"
"$LOCKSTEP" ps --json --server "$url" | python3 -c 'import json, sys
v = json.load(sys.stdin)
assert len(v) == 1 and v[0]["model"] == "qwen" and v[0]["bytes"] == 66 * 10**9 and v[0]["running"] == 2 and v[0]["until"] == "lockstep down"' || fail "ps --json"
refuse 2 "either --node or --server" "$LOCKSTEP" ps --server "$url" --node x

# ---- a terminal ----------------------------------------------------------------------------------
timeout 600 python3 "$SOURCE_DIR/tests/support/top_terminal.py" "$url" "$work" || fail "at a terminal"
echo 401 >status
refuse 3 "a key is needed" "$LOCKSTEP" top --once --server "$url"
refuse 3 "a key is needed" "$LOCKSTEP" ps --server "$url"
[ $failures = 0 ] && echo "top and ps: all as it should be"
[ $failures = 0 ]
