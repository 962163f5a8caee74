#!/bin/bash
# Which nodes could stand in for the one that serves a model, and why others could not: a copy that is on its way, whole, cut short,
# gone, of other bytes; a disk without room. `lockstep nodes` says it, and each node's /v1/node.
# labels: root waits
set -u
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/hosts.sh"
unset LOCKSTEP_CLUSTER_KEY
can_make_hosts || { echo "skip: no right to make network namespaces"; exit 77; }
mkdir own config store-ann store-bob store-cat && cp "$model" own/m.gguf
truncate -s 24M own/m.gguf # large enough for the digest of samples to leave gaps (cluster/model_files.h)
export XDG_CONFIG_HOME=$work/config
"$LOCKSTEP" key >/dev/null 2>&1
host_unshare=(-n -m) host_enter=(-n -m -w)
make_hosts 0 1 2 3
switch_hosts 10.9.0 1 2 3 || { echo "skip: no bridge here"; exit 77; }
for host in 2 3; do on $host mount -t tmpfs none "$work/own" || fail "no mount on $host"; done
on 3 mount -t tmpfs -o size=400k none "$work/store-cat" || fail "no small disk"
names=(- ann bob cat)
for host in 1 2 3; do
    name=${names[$host]}
    nsenter -t "${hosts[$host]}" "${host_enter[@]}" "$LOCKSTEP" node --name $name --models "$work/store-$name" --state "$work/state-$name" >$name.log 2>&1 &
    nodes+=($!)
done
for name in ann bob cat; do within 60 grep -q "listens on port" $name.log || fail "node $name: $(cat $name.log)"; done
nsenter -t "${hosts[1]}" "${host_enter[@]}" timeout 100 "$LOCKSTEP" up own/m.gguf -t 1 --ctx 64 --port 8099 --insecure >up.out 2>&1 || fail "up: $(cat up.out ann.log)"
reason() { # NODE
    on 1 curl -sk -m 20 $("$LOCKSTEP" key --curl) https://127.0.0.1:7342/v1/node |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["deployments"][0]["standby"][sys.argv[1]]["reason"] or "able")' "$1" 2>/dev/null
}
is() { [ "$(reason "$1")" = "$2" ]; }
expect() { # NODE REASON PATTERN
    within 60 is "$1" "$2" || fail "$1 is '$(reason "$1")', expected $2: $(tail -n 5 "$1.log")"
    [ -z "$3" ] || on 1 "$LOCKSTEP" nodes | grep -q "$1 could not stand in: $3" || fail "nodes says $(on 1 "$LOCKSTEP" nodes)"
}
expect cat disk "there is no room on its disk: .*has room for 0.0 GB"
expect bob able ""
[ "$(reason ann)" = "" ] || fail "ann serves, and is a standby: $(reason ann)"
on 1 "$LOCKSTEP" nodes | grep -q "bob could not" && fail "nodes says $(on 1 "$LOCKSTEP" nodes)"
# One byte, in no sample: the digest of the whole copy tells.
printf x | dd of=store-bob/m.gguf bs=1 seek=$((9 * (24 << 20) / 65 + 200000)) conv=notrunc 2>/dev/null
cmp -s own/m.gguf store-bob/m.gguf && fail "nothing is spoiled"
expect bob different "$work/store-bob/m.gguf differs from the model that ann serves"
# Cut short, it is no copy any more: another one comes.
truncate -s 1M store-bob/m.gguf
copied() { find store-bob -name m.gguf -exec cmp -s own/m.gguf {} \; -print | grep -q .; }
within 100 copied && expect bob able "" || fail "bob has no whole copy: $(reason bob) $(ls -R store-bob) $(tail -n 5 bob.log)"
# Nor is this one, and there is no room for another.
nsenter -t "${hosts[3]}" "${host_enter[@]}" cp "$model" store-cat/m.gguf 2>/dev/null
expect cat damaged "$work/store-cat/m.gguf is damaged, or another model"
[ $failures = 0 ]
