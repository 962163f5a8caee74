#!/bin/bash
# Whoever has the cluster's key says how a node serves a model, and nothing else: no option that reads a file of the
# node, starts a program or names another machine passes, in a request, from the disk or on the command line.
# labels: waits
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"
command -v python3 >/dev/null || { echo "skip: python3 is not there"; exit 77; }
export LOCKSTEP_CLUSTER_KEY=$work/key
ask=$BUILD_DIR/tests/ask_node
port=$(free_port)
echo secretword >secret
mkdir store
cp "$SOURCE_DIR/models/jargon-3m-f16.gguf" store/m.gguf
node() { "$LOCKSTEP" node --name ann --port "$port" --no-discovery --models "$work/store" --state "$work/state" >node.log 2>&1 & node=$!; }
end() { kill "$node" 2>/dev/null; wait "$node" 2>/dev/null; }
at_end end
node
within 20 "$ask" 127.0.0.1:"$port" /v1/node >/dev/null 2>&1 || fail "no node: $(cat node.log)"

# The new key is for a terminal, not for a journal.
key=$("$LOCKSTEP" key 2>/dev/null | grep -Eo '([A-Z0-9]{4}-){6}[A-Z0-9]{4}')
[ -n "$key" ] || fail "lockstep key shows none"
within 10 grep -q "new cluster: lockstep key shows its key" node.log || fail "the journal: $(cat node.log)"
grep -q -e "$key" node.log && fail "the journal has the key"
LOCKSTEP_CLUSTER_KEY=$work/other python3 - "$LOCKSTEP" "$work" >tty.log 2>&1 <<'PY'
import os, pty, signal, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], "node", "--name", "tty", "--port", "0", "--no-discovery",
                           "--models", sys.argv[2] + "/store", "--state", sys.argv[2] + "/tty-state"])
said = b""
while b"lockstep key --set" not in said:
    said += os.read(fd, 4096)
print(said.decode())
os.kill(pid, signal.SIGTERM)
os.waitpid(pid, 0)
PY
grep -Eq 'with the key ([A-Z0-9]{4}-){6}' tty.log || fail "a terminal: $(cat tty.log)"

# The request that lockstep up sends, with other words.
files='{"name":"m.gguf","folder":false,"files":[{"name":"m.gguf","bytes":5,"digest":"00112233445566778899aabbccddeeff"}]}'
body() { # ARGS-AS-JSON
    printf '{"name":"m","port":%s,"tls":false,"nodes":"auto","copies":true,"model":%s,"hint":"/none","args":%s,"files":{}}' \
        "$((port + 1))" "$files" "$1"
}
refused() { # ARGS SENTENCE
    "$ask" 127.0.0.1:"$port" /v1/deployments "$(body "$1")" >out 2>err && fail "$1 was taken"
    grep -q -e "$2" err || fail "$1: $(cat err)"
    grep -q secretword out err node.log && fail "$1 shows a file"
}
no="is not an option that may be given here"
refused "[\"--hosts\",\"@$work/secret\"]" "--hosts $no"
refused "[\"--hosts=@$work/secret\"]" "--hosts $no"
for option in host secret-file rdma-matrix join rank nodes ranks api-key api-key-file tls-cert tls-key until-eof quiet; do
    refused "[\"--$option\",\"$work/secret\"]" "--$option $no"
    refused "[\"--$option=$work/secret\"]" "--$option $no"
done
refused '["-q"]' "-q $no"
refused '["--help"]' "--help $no"
refused '["--ctx","99","--hosts","@/etc/passwd"]' "--hosts $no"
refused '["/etc/passwd"]' "'/etc/passwd' is not an option"
refused '["--","/etc/passwd"]' "'--' is not an option"
refused '["--ctx"]' "--ctx needs a value"
refused '["--ctx","none"]' "--ctx none: expected a whole number"
refused '["--kv=f64"]' "--kv f64: expected one of"
refused '["--failover=1"]' "--failover takes no value"
refused '["--alias","a\nb"]' "--alias: expected at most"
refused '[3]' "is not a string"
# What serves: all of these at once.
good='["--alias","m","--port","80","--cors=*","--insecure","--kv-memory","1G","--parallel-requests","4","--queue=8","--no-speculation","--split","3,1","--parallel","tensor","--experts","slice","-t","2","-t3","--link","tcp","--emulate-link","latency=1us","--silence","4000","--failover","--weights","auto","--ctx","99","--chunk","9","--kv","f16","--restart"]'
"$ask" 127.0.0.1:"$port" /v1/deployments "$(body "$good")" >out 2>err || fail "good words: $(cat err)"
"$ask" 127.0.0.1:"$port" /v1/deployments/remove '{"name":"m"}' >/dev/null || fail "remove"
end

# A list that another node, or somebody with the disk, has written.
real=$(python3 - "$work/state" <<'PY'
import glob, sys
print(" ".join(p for p in glob.glob(sys.argv[1] + "/*") if "deploy" in p))
PY
)
[ -f "$real" ] || fail "no list: $(ls state)"
node
within 20 "$ask" 127.0.0.1:"$port" /v1/node >/dev/null 2>&1
"$LOCKSTEP" up store/m.gguf --node 127.0.0.1:"$port" --port "$((port + 1))" --insecure --ctx 64 -t 1 >up.log 2>&1 || fail "up: $(cat up.log)"
end
python3 - "$real" "$work/secret" <<'PY'
import json, sys
v = json.load(open(sys.argv[1]))
def change(x):
    for o in x if isinstance(x, list) else x.values() if isinstance(x, dict) else []:
        if isinstance(o, dict) and "args" in o:
            o["args"] = ["--hosts", "@" + sys.argv[2]]
        else:
            change(o)
change(v)
json.dump(v, open(sys.argv[1], "w"))
PY
node
says_no() { "$ask" 127.0.0.1:"$port" /v1/deployments 2>/dev/null | grep -q -e "--hosts $no"; }
within 30 says_no || fail "from the disk: $("$ask" 127.0.0.1:"$port" /v1/deployments) $(cat node.log)"
grep -q secretword node.log && fail "from the disk: a file is shown"
[ "$failures" = 0 ]
