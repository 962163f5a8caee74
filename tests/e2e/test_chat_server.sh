#!/bin/bash
# lockstep chat --server: the text is that of a model opened here; an answer goes on at another node when the connection breaks;
# settings, files and commands; what is refused.
set -u
command -v python3 >/dev/null || { echo "skip: python3 is not there"; exit 77; }
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/server.sh"
unset LOCKSTEP_API_KEY NO_COLOR CLICOLOR_FORCE
export HOME=$work XDG_CONFIG_HOME=$work/config

# ---- a server ------------------------------------------------------------------------------------
echo "abra" >keys && chmod 600 keys
serve_start "$model" --api-key-file keys
export LOCKSTEP_API_KEY=abra
printf 'What is a bit bucket?\nAnd a hacker?\n' >questions
"$LOCKSTEP" chat "$model" --local -q -n 20 --temp 0.7 --seed 5 <questions >here || fail "chat here"
"$LOCKSTEP" chat --server "$url" -q -n 20 --temp 0.7 --seed 5 <questions >there 2>err || fail "chat there: $(cat err)"
[ "$(wc -w <here)" -gt 10 ] && cmp here there || fail "another text: $(cat here there)"
"$LOCKSTEP" chat --server "${url#http://}" jargon-3m-f16 -n 1 <questions 2>&1 >/dev/null | grep -q "^jargon-3m-f16 answers at $url$" || fail "who answers is not said"
"$LOCKSTEP" chat --server "$url/v1/" -q -n 1 <questions >/dev/null || fail "an address as other clients have it"
refuse 2 "$url has no model called other, but jargon-3m-f16" "$LOCKSTEP" chat --server "$url" other
refuse 3 "key" "$LOCKSTEP" chat --server "$url" --api-key wrong
refuse 2 "not with options that say how to open one" "$LOCKSTEP" chat --server "$url" --ranks 2
refuse 2 '"a b" is not the address of a server' "$LOCKSTEP" chat --server "a b"
refuse 2 "address is empty" "$LOCKSTEP" chat --server "$url,,"
refuse 2 "MODEL is missing" "$LOCKSTEP" chat --local
refuse 2 "MODEL is missing" "$LOCKSTEP" chat --ranks 2
serve_stop || fail "the server's end"
refuse 3 "no answer from $url: " "$LOCKSTEP" chat --server "$url"

# ---- TLS -------------------------------------------------------------------------------------------
if command -v openssl >/dev/null; then
    certificate() { # FILE NAME: for that name alone
        openssl req -x509 -newkey rsa:2048 -nodes -keyout "$1.key" -out "$1.pem" -days 2 -subj "/CN=$1" -addext "subjectAltName=$2" 2>/dev/null ||
            fail "openssl makes no certificate"
    }
    certificate right IP:127.0.0.1
    certificate wrong DNS:other.example
    serve_start "$model" --api-key-file keys --tls-cert right.pem --tls-key right.key
    case $url in https://127.0.0.1:*) ;; *) fail "the address is $url" ;; esac
    SSL_CERT_FILE=right.pem "$LOCKSTEP" chat --server "$url" -q -n 20 --temp 0.7 --seed 5 <questions >there 2>err || fail "chat over TLS: $(cat err)"
    cmp here there || fail "another text over TLS: $(cat there)"
    refuse 3 "^lockstep chat: $url: its certificate is not one that this machine trusts.*SSL_CERT_FILE" "$LOCKSTEP" chat --server "$url"
    refuse 2 'SSL_CERT_FILE is no file of certificates' env SSL_CERT_FILE=nowhere "$LOCKSTEP" chat --server "$url"
    refuse 1 "closed the connection .if it speaks TLS, its address begins with https://" "$LOCKSTEP" chat --server "http://${url#https://}"
    serve_stop || fail "the end of the server with TLS"
    serve_start "$model" --tls-cert wrong.pem --tls-key wrong.key
    refuse 3 "$url: its certificate is not one that this machine trusts for that name" env SSL_CERT_FILE=wrong.pem "$LOCKSTEP" chat --server "$url"
    serve_stop || fail "the end of the server with another name"
    serve_start "$model"
    refuse 1 "https://${url#http://} does not speak TLS: its address begins with http://" "$LOCKSTEP" chat --server "https://${url#http://}"
    serve_stop || fail "the end of the server without TLS"
else
    echo "without openssl: TLS is not tried"
fi

# ---- two nodes -----------------------------------------------------------------------------------
python3 "$SOURCE_DIR/tests/support/chat_nodes.py" "$work" >nodes.log 2>&1 &
server=$!
within 20 test -e url || { echo "skip: no two addresses here: $(cat nodes.log)"; [ $failures = 0 ]; exit; }
url=$(cat url)
ask() { printf '%s\n' "$1" | "$LOCKSTEP" chat --server "$url" -q "${@:2}" 2>err; }
text=$(ask hello)
[ "${text#It holds what nobody wants, }" != "$text" ] || fail "no answer: $text $(cat err)"
: >names
[ "$(ask break)" = "$text" ] || fail "it does not go on: $(ask break) $(cat err)"
[ "$(sort -u names | wc -l)" = 1 ] && [ "$(wc -l <names)" = 2 ] && grep -Eq '^[0-9a-f]{24}-[0-9]{10}-[0-9a-f]+$' names ||
    fail "the second node is not asked for the same answer: $(cat names)"
ask other >/dev/null && fail "another answer is taken for the same"
grep -q "goes on with another answer" err || fail "another answer: $(cat err)"
ask fail >/dev/null && fail "an error in the stream"
grep -q "lockstep chat: $url: a rank is lost" err || fail "an error in the stream: $(cat err)"
[ "$(ask think)" = "$text" ] || fail "thoughts come to a pipe: $(ask think)"
# What is set arrives, as it was written.
ask "$(printf '/set temp 0.3\n/set top_n_sigma 1.5\n/set dry-allowed-length 3\nsettings')" --top-k 7 -n 9 --seed 11 >settings || fail "settings: $(cat err)"
python3 - settings <<'END' || fail "the server gets $(cat settings)"
import json, sys
v = json.load(open(sys.argv[1]))
sys.exit(v != {"model": "m", "stream": True, "temperature": 0.3, "top_k": 7, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1.0,
               "repeat_last_n": 64, "seed": 11, "max_tokens": 9, "top_n_sigma": 1.5, "dry_allowed_length": 3})
END
for wrong in "top-p 2" "nosuch 1" "seed x" "temp" "dry_base 0" "temp 1 2"; do
    ask "/set $wrong" >/dev/null && fail "/set $wrong is taken"
done
ask "/set" && grep -q "temp  *0.8" err && grep -q "servers know more:.* xtc_probability" err || fail "/set says $(cat err)"

# ---- files ---------------------------------------------------------------------------------------
ask "$(printf '/system Be brief.\nhello\n/regen\n/set temp 0.25\n/save talk.json')" >two || fail "save: $(cat err)"
[ "$(cat two)" = "$text"$'\n'"$text" ] || fail "/regen gives $(cat two)"
python3 - "$text" <<'END' || fail "the file has $(cat talk.json)"
import json, sys
v = json.load(open("talk.json"))
sys.exit([(m["role"], m["content"]) for m in v["messages"]] != [("system", "Be brief."), ("user", "hello"), ("assistant", sys.argv[1])]
         or v["settings"]["temp"] != 0.25 or v["settings"]["seed"] != 1)
END
[ "$(ask "$(printf '/load talk.json\ncount')")" = "system user assistant user" ] || fail "load: $(cat err)"
ask "$(printf '/load talk.json\n/set')" >/dev/null && grep -q "temp  *0.25" err || fail "settings are not loaded: $(cat err)"
echo '[{"role": "user", "content": "x"}]' >list.json
[ "$(ask "$(printf '/load list.json\ncount')")" = "user user" ] || fail "a bare list: $(cat err)"
echo '{"messages": [{"role": "user"}]}' >no-content.json
echo '[{"role": "boss", "content": "x"}]' >no-role.json
echo '{' >no-json.json
for file in no-content no-role no-json nowhere; do
    ask "/load $file.json" >/dev/null && fail "$file.json is loaded"
    grep -q "lockstep chat: $file.json: " err || fail "$file.json: $(cat err)"
done
ask "/save" >/dev/null && fail "/save without a name"
ask "/save no/such/folder" >/dev/null && fail "/save into no folder"

# ---- a terminal ----------------------------------------------------------------------------------
timeout 300 python3 "$SOURCE_DIR/tests/support/chat_server_terminal.py" "$url" || fail "at a terminal"
[ $failures = 0 ] && echo "chat with a server: all as it should be"
[ $failures = 0 ]
