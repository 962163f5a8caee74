#!/bin/bash
# lockstep pull against an imitation of the hub (tests/support/hub.py): cuts, kills, wrong bytes, refusals, a full disk, hostile
# lists. What is downloaded is counted: once.
# labels: once waits
set -u
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/hub.sh"
gguf=$SOURCE_DIR/models/jargon-3m-f16.gguf
size=$(wc -c <"$gguf")
mkdir -p hub/repos/org/{tiny,split,folder,many,evil,gated,private,none} home
cp "$gguf" hub/repos/org/tiny/tiny-Q4_K_M.gguf
head -c 300000 "$gguf" >hub/repos/org/tiny/tiny-Q8_0.gguf
echo projector >hub/repos/org/tiny/mmproj-tiny-F16.gguf
echo read me >hub/repos/org/tiny/README.md
cp "$gguf" hub/repos/org/private/only-IQ2_XS.gguf
start_hub
export HOME=$work/home

fresh() { # NAME: an empty cache, and counters at what they are
    export HF_HOME=$work/$1
    before=$(cat hub/served 2>/dev/null || echo 0)
    : >hub/log
    : >hub/mode
}
served() { echo $(($(cat hub/served) - before)); }
is_idle() { [ "$(cat hub/sending)" = 0 ]; }
pull() { timeout 100 "$LOCKSTEP" pull "$@" >out 2>err </dev/null; }
blobs() { echo "$HF_HOME"/hub/models--org--"$1"/blobs; }

# ---- a model, by its default, found by its name, run, and not downloaded again
fresh plain
pull org/tiny || fail "pull: $(cat err)"
path=$(cat out)
cmp -s "$path" "$gguf" || fail "$path is not what the hub has"
[ "$(served)" = "$size" ] || fail "$(served) bytes were served, of $size"
[[ $path = "$HF_HOME"/hub/models--org--tiny/snapshots/*/tiny-Q4_K_M.gguf ]] || fail "it lies at $path"
[ "$(basename "$(readlink "$path")")" = "$(sha256sum "$gguf" | cut -d' ' -f1)" ] || fail "the blob is called $(readlink "$path")"
[ "$(cat "$HF_HOME"/hub/models--org--tiny/refs/main)" = "$(basename "$(dirname "$path")")" ] || fail "refs/main is another commit"
grep -q "lockstep chat hf:org/tiny" err || fail "how to use it is not said: $(cat err)"
pull hf:org/tiny:q4_k_m || fail "pull again: $(cat err)"
[ "$(served)" = "$size" ] || fail "it was downloaded again"
"$LOCKSTEP" run hf:org/tiny -p "What is a bit bucket?" -n 4 --temp 0 --ctx 128 >a 2>err || fail "run hf:org/tiny: $(cat err)"
"$LOCKSTEP" run "$gguf" -p "What is a bit bucket?" -n 4 --temp 0 --ctx 128 >b 2>err && cmp -s a b || fail "run by its name says something else"
refuse 2 "not here: lockstep pull org/tiny:Q8_0" "$LOCKSTEP" run hf:org/tiny:Q8_0 -p x
pull org/tiny:Q8_0 --json || fail "pull Q8_0: $(cat err)"
grep -q '"event":"done".*Q8_0' out || fail "--json: $(cat out)"
grep -q "storage.*token=yes" hub/log && fail "the storage got a token"

pull --list org/tiny && grep -Eq "^Q4_K_M +5.84 MB$" out && [ "$(wc -l <out)" = 2 ] || fail "--list: $(cat out err)"

# ---- a large file over several connections: each asks the hub once where it lies, and each byte comes once
mkdir -p hub/repos/org/large
head -c 70000000 /dev/urandom >hub/repos/org/large/large-F16.gguf # four pieces of 16 MiB, and some
fresh large
printf 'cut 1000000\ncut 0\ncut 3000000\n' >hub/mode
pull org/large --connections 3 || fail "over three connections: $(cat err)"
cmp -s "$(cat out)" hub/repos/org/large/large-F16.gguf || fail "over three connections: not the same file"
[ "$(served)" = 70000000 ] || fail "over three connections: $(served) bytes were served, of 70000000"
[ "$(grep -c 'storage.*range=bytes=[0-9]*-[0-9]' hub/log)" = 8 ] || fail "five pieces, three cuts: $(cat hub/log)"
[ "$(grep -c 'hub.*/resolve/' hub/log)" -le 6 ] || fail "the hub was asked again and again: $(cat hub/log)"
fresh killed-large # what has come in order stays
echo "slow 15000000" >hub/mode
"$LOCKSTEP" pull org/large >out 2>err </dev/null &
pulling=$!
part=$(blobs large)/$(sha256sum hub/repos/org/large/large-F16.gguf | cut -d' ' -f1).incomplete
some() { [ "$(stat -c %s "$part" 2>/dev/null || echo 0)" -ge 16777216 ]; }
within 60 some || fail "no piece has come: $(cat err)"
kill -9 $pulling && wait $pulling 2>/dev/null
within 60 is_idle || fail "the hub still sends to a client that is gone"
n=$(stat -c %s "$part")
cmp -s -n "$n" "$part" hub/repos/org/large/large-F16.gguf || fail "what is here is not its beginning"
: >hub/mode
before=$(cat hub/served)
pull org/large || fail "after a kill: $(cat err)"
[ "$(served)" = $((70000000 - n)) ] || fail "after a kill: $(served) bytes came, of $((70000000 - n))"
fresh whole-large # a host that sends no parts
for i in 1 2 3 4 5 6 7 8; do echo whole; done >hub/mode
pull org/large && cmp -s "$(cat out)" hub/repos/org/large/large-F16.gguf || fail "without parts: $(cat err)"
fresh few
pull org/large --connections 1 && [ "$(grep -c 'storage' hub/log)" = 1 ] || fail "over one connection: $(cat err hub/log)"
rm -r hub/repos/org/large large killed-large whole-large few

# ---- cut ten times: each byte comes once
fresh cuts
for i in {1..10}; do echo "cut $((i * 40000))"; done >hub/mode
pull org/tiny || fail "ten cuts: $(cat err)"
cmp -s "$(cat out)" "$gguf" || fail "ten cuts: not the same file"
[ "$(served)" = "$size" ] || fail "ten cuts: $(served) bytes were served, of $size"
[ "$(grep -c "storage.*range=bytes" hub/log)" = 10 ] || fail "ten cuts: $(cat hub/log)"

# ---- killed three times, and stopped by Ctrl-C once
fresh kills
echo "slow 2000000" >hub/mode
at=0
for signal in KILL KILL KILL INT; do
    "$LOCKSTEP" pull org/tiny >out 2>err &
    pid=$!
    within 30 eval '[ "$(cat "$(blobs tiny)"/*.incomplete 2>/dev/null | wc -c)" -gt '$((at + 500000))' ]' || fail "$signal: nothing comes"
    kill -$signal $pid
    wait $pid 2>/dev/null
    status=$?
    now=$(cat "$(blobs tiny)"/*.incomplete | wc -c)
    [ "$now" -gt "$at" ] || fail "$signal: $now bytes are there, and $at were"
    at=$now
done
[ $status = 130 ] || fail "Ctrl-C: exit status $status"
: >hub/mode
pull org/tiny && cmp -s "$(cat out)" "$gguf" || fail "after three kills: $(cat err)"
more=$(($(served) - size)) # what was under way when it was killed
[ $more -ge 0 ] && [ $more -le 1000000 ] || fail "after three kills $more bytes too many were served"

# ---- what a terminal shows
fresh terminal
echo "slow 2000000" >hub/mode
python3 - "$LOCKSTEP" <<'EOF' >/dev/null || fail "the progress line"
import os, pty, re, sys
said = b""
def read(fd):
    global said
    data = os.read(fd, 4096)
    said += data
    return data
os.environ["TERM"] = "xterm"
status = pty.spawn([sys.argv[1], "pull", "org/tiny"], read)
assert status == 0, status
assert re.search(rb"org/tiny: +[0-9]+ %  [0-9.]+ [kM]B of 5.84 MB, [0-9.]+ [kM]B/s, [0-9]+ s left", said), said
EOF

# ---- what a host does wrong
fresh wrong
printf 'busy 1\nbroken\nexpired\nstall\n' >hub/mode
SECONDS=0
pull org/tiny --timeout 2 || fail "429, 500, 403 of the storage, silence: $(cat err)"
[ $SECONDS -ge 3 ] || fail "Retry-After was not waited for"
[ "$(served)" = "$size" ] || fail "after silence: $(served) bytes were served"
[ ! -s hub/mode ] || fail "not all was asked: $(cat hub/mode)"
fresh checksum
echo wrong >hub/mode
refuse 1 "another checksum than the hub lists, and is removed" "$LOCKSTEP" pull org/tiny
ls "$(blobs tiny)"/* 2>/dev/null && fail "the wrong file is still there"
pull org/tiny && cmp -s "$(cat out)" "$gguf" || fail "after a wrong checksum: $(cat err)"
fresh damaged # as a power cut leaves it, and a host that ignores ranges
mkdir -p "$(blobs tiny)"
head -c 100000 /dev/zero >"$(blobs tiny)/$(sha256sum "$gguf" | cut -d' ' -f1).incomplete"
pull org/tiny && cmp -s "$(cat out)" "$gguf" || fail "zeros of a power cut: $(cat err)"
fresh whole
printf 'cut 100000\nwhole\n' >hub/mode
pull org/tiny && cmp -s "$(cat out)" "$gguf" || fail "a host without ranges: $(cat err)"

# ---- a disk that is too small, and one that others fill meanwhile (which only looks too small when it is full)
if unshare -rm true 2>/dev/null; then
    fresh full
    mkdir -p "$HF_HOME"
    unshare -rm bash -c "mount -t tmpfs -o size=2m none '$HF_HOME' && exec '$LOCKSTEP' pull org/tiny" >out 2>err
    status=$?
    [ $status = 1 ] && grep -q "wants 0.0. GB more, and the disk of .* has 0.00 GB left" err || fail "no room: $status: $(cat err)"
    [ "$(served)" = 0 ] || fail "no room: something was downloaded"
    cat >fill.sh <<'EOF'
mount -t tmpfs -o size=$((size / 1024 + 600))k none "$HF_HOME" || exit 9
"$LOCKSTEP" pull org/tiny &
until [ -s "$HF_HOME"/hub/models--org--tiny/blobs/*.incomplete ]; do sleep 0.05; done
head -c 1000000 /dev/zero >"$HF_HOME/other"
wait $!
status=$?
[ -s "$HF_HOME"/hub/models--org--tiny/blobs/*.incomplete ] || exit 8
rm "$HF_HOME/other"
rm hub/mode
"$LOCKSTEP" pull org/tiny >/dev/null || exit 7
exit $status
EOF
    echo "slow 3000000" >hub/mode
    size=$size unshare -rm bash fill.sh >out 2>err
    status=$?
    [ $status = 1 ] && grep -q "is full; what came of tiny-Q4_K_M.gguf stays" err || fail "a disk that fills: $status: $(cat err)"
else
    echo "no mount namespaces here: the full disk is left out"
fi

# ---- refusals
fresh refusals
refuse 3 "no such repository, or it wants a token: HF_TOKEN is not set" "$LOCKSTEP" pull org/private
refuse 3 "is gated: accept its terms at $HF_ENDPOINT/org/gated, and give" "$LOCKSTEP" pull org/gated
refuse 2 "has no model org/nothing" "$LOCKSTEP" pull org/nothing
refuse 2 "has no such revision" "$LOCKSTEP" pull org/tiny --revision v9
refuse 2 "has nothing called 'Q2_K', but: Q4_K_M \([0-9.]+ GB\), Q8_0" "$LOCKSTEP" pull org/tiny:Q2_K
refuse 2 "has no GGUF file, and no config.json" "$LOCKSTEP" pull org/none
refuse 2 "ORG/REPO" "$LOCKSTEP" pull ../etc/passwd
refuse 2 "no name of a quantization" "$LOCKSTEP" pull org/tiny:../../x
export HF_TOKEN=hf_wrong
refuse 3 "does not accept the token" "$LOCKSTEP" pull org/private
export HF_TOKEN=hf_good
refuse 3 "gated: accept its terms at $HF_ENDPOINT/org/gated, with the account" "$LOCKSTEP" pull org/gated
: >hub/log
pull org/private || fail "a private one: $(cat err)"
grep -q "hub.*token=yes" hub/log || fail "the hub got no token"
grep "storage" hub/log | grep -q "token=yes" && fail "the storage, another host, got the token"
grep -rq hf_good out err && fail "the token is shown"
unset HF_TOKEN
fresh token-file
mkdir -p "$HF_HOME"
echo hf_good >"$HF_HOME/token"
pull org/private || fail "the token of a file: $(cat err)"
SSL_CERT_FILE= refuse 3 "certificate of https://127.0.0.1:$hub_port is not one to trust" "$LOCKSTEP" pull org/tiny
SSL_CERT_FILE=key.pem refuse 2 "no file of certificates" "$LOCKSTEP" pull org/tiny
HF_ENDPOINT=ftp://x refuse 2 "HF_ENDPOINT is no address" "$LOCKSTEP" pull org/tiny
HF_ENDPOINT=$HF_ENDPOINT/ pull --list org/tiny || fail "an endpoint with a slash at its end: $(cat err)"
fresh renamed
pull org/old && cmp -s "$(cat out)" "$gguf" || fail "a repository that was renamed: $(cat err)"

# ---- folders, split files, subfolders; lists that would leave the cache
head -c 200000 "$gguf" >hub/repos/org/split/README.md
mkdir -p hub/repos/org/split/Q4_K_M hub/repos/org/folder/{original,onnx}
for i in 1 2 3; do head -c $((i * 100000)) "$gguf" >hub/repos/org/split/Q4_K_M/s-Q4_K_M-0000$i-of-00003.gguf; done
for file in config.json tokenizer.json tokenizer_config.json chat_template.jinja model.safetensors pytorch_model.bin README.md \
    original/consolidated.00.pth onnx/config.json; do
    echo "{\"of\": \"$file\"}" >hub/repos/org/folder/$file
done
fresh wide
pull org/split || fail "a split one: $(cat err)"
[ "$(find "$HF_HOME" -name '*.gguf' | wc -l)" = 3 ] || fail "a split one: $(find "$HF_HOME")"
[ "$(served)" = 600000 ] || fail "a split one: $(served) bytes were served"
pull org/folder || fail "a folder: $(cat err)"
[ "$(cd "$(cat out)" && find . -type l | sort | tr '\n' ' ')" = "./chat_template.jinja ./config.json ./model.safetensors ./tokenizer.json ./tokenizer_config.json " ] ||
    fail "a folder has $(ls -R "$(cat out)")"
for name in ../../../../escaped.gguf /tmp/escaped.gguf a/../../escaped.gguf; do
    echo "[{\"rfilename\": \"$name\", \"size\": 1, \"lfs\": {\"sha256\": \"$(printf '%064d' 1)\", \"size\": 1}}]" >hub/repos/org/evil.list
    refuse 2 "could mean a file elsewhere" "$LOCKSTEP" pull org/evil
done
fresh links # a cache in which a folder is a link to elsewhere
mkdir -p "$HF_HOME/hub/models--org--tiny" elsewhere
ln -s "$work/elsewhere" "$HF_HOME/hub/models--org--tiny/snapshots"
refuse 1 "is a link, and not a folder: it is refused" "$LOCKSTEP" pull org/tiny
[ -z "$(ls elsewhere)" ] || fail "a link was followed"

# ---- what is here: listed, verified, removed
fresh kept
pull org/tiny && pull org/tiny:Q8_0 || fail "pull twice: $(cat err)"
"$LOCKSTEP" models >out 2>err || fail "models: $(cat err)"
grep -Eq "^hf:org/tiny:Q4_K_M +5.84 MB +Q4_K_M +today +this machine \(Hugging Face\)$" out || fail "models: $(cat out)"
"$LOCKSTEP" models --json | grep -q '"store": "Hugging Face"' || fail "models --json"
"$LOCKSTEP" verify hf:org/tiny >out 2>err || fail "verify: $(cat err)"
blob=$(blobs tiny)/$(sha256sum "$gguf" | cut -d' ' -f1)
printf x | dd of="$blob" bs=1 seek=1000 conv=notrunc 2>/dev/null
refuse 1 "tiny-Q4_K_M.gguf is damaged: its checksum is another one" "$LOCKSTEP" verify org/tiny
refuse 2 "not here: lockstep pull org/tiny:Q2_K" "$LOCKSTEP" verify org/tiny:Q2_K
"$LOCKSTEP" rm hf:org/tiny 2>err && grep -q "removed: 5.84 MB" err || fail "rm: $(cat err)"
[ ! -e "$blob" ] || fail "rm has left the blob"
refuse 2 "not here" "$LOCKSTEP" run hf:org/tiny:Q4_K_M -p x
"$LOCKSTEP" verify org/tiny:Q8_0 >out 2>err || fail "rm has taken the other one, too: $(cat err)"
"$LOCKSTEP" rm org/tiny:Q8_0 2>err || fail "rm Q8_0: $(cat err)"
[ ! -e "$HF_HOME/hub/models--org--tiny" ] || fail "rm has left $(find "$HF_HOME/hub/models--org--tiny")"
refuse 2 "nothing of org/tiny is here" "$LOCKSTEP" rm org/tiny
echo "cut 100000" >hub/mode
for i in 1 2 3 4 5 6 7; do echo "cut 0" >>hub/mode; done
pull org/tiny && fail "a host that sends nothing is enough"
"$LOCKSTEP" rm org/tiny 2>err && grep -q "removed: 100.*kB" err || fail "rm of what has begun: $(cat err)"
mkdir -p "$XDG_DATA_HOME/lockstep/models" && cp "$gguf" "$XDG_DATA_HOME/lockstep/models/own.gguf"
"$LOCKSTEP" rm own 2>err && [ ! -e "$XDG_DATA_HOME/lockstep/models/own.gguf" ] || fail "rm of an own one: $(cat err)"
refuse 2 "no model called own" "$LOCKSTEP" rm own

# ---- other programs' models
mkdir -p home/.lmstudio/models/pub/Jargon-GGUF home/.ollama/models/{blobs,manifests/registry.example/library/jargon}
cp "$gguf" home/.lmstudio/models/pub/Jargon-GGUF/Jargon-Q6_K.gguf
sum=$(sha256sum "$gguf" | cut -d' ' -f1)
cp "$gguf" home/.ollama/models/blobs/sha256-$sum
echo '{"model_format": "gguf", "file_type": "F16"}' >home/.ollama/models/blobs/sha256-$(printf '%064d' 2)
echo "{\"schemaVersion\": 2, \"config\": {\"digest\": \"sha256:$(printf '%064d' 2)\"}, \"layers\": [
  {\"mediaType\": \"application/vnd.ollama.image.model\", \"digest\": \"sha256:$sum\", \"size\": $size},
  {\"mediaType\": \"application/vnd.ollama.image.template\", \"digest\": \"sha256:$sum\"}]}" \
    >home/.ollama/models/manifests/registry.example/library/jargon/3m
echo '{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:../../x"}]}' \
    >home/.ollama/models/manifests/registry.example/library/jargon/evil
"$LOCKSTEP" models >out 2>err
grep -Eq "^lmstudio:pub/Jargon-GGUF:Q6_K +5.84 MB +Q6_K +today +this machine \(LM Studio\)$" out || fail "LM Studio's: $(cat out)"
grep -Eq "^ollama:jargon:3m +5.84 MB +F16 +today +this machine \(Ollama\)$" out || fail "Ollama's: $(cat out)"
grep -q "evil" out && fail "a manifest that leads elsewhere: $(cat out)"
for one in ollama:jargon:3m ollama:jargon lmstudio:pub/Jargon-GGUF:Q6_K lmstudio:pub/Jargon-GGUF; do
    "$LOCKSTEP" run $one -p "What is a bit bucket?" -n 4 --temp 0 --ctx 128 >b 2>err && cmp -s a b || fail "run $one: $(cat err)"
done
refuse 2 "no such model" "$LOCKSTEP" run ollama:nothing -p x
refuse 2 "belongs to another program" "$LOCKSTEP" rm ollama:jargon:3m

exec 7>&-
[ "$failures" = 0 ]
