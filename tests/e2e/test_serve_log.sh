#!/bin/bash
# lockstep serve --log-requests: one line for each request, as text or JSON, with figures and without the text of anybody.
set -u
command -v curl >/dev/null || { echo "skip: curl is not there"; exit 77; }
command -v python3 >/dev/null || { echo "skip: python3 is not there"; exit 77; }
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/server.sh"
printf 'first-key\nsecond-key\n' >keys && chmod 600 keys
lines() { grep -c " HTTP\|^{\|^20" err; }
has_lines() { [ "$(lines)" -ge "$1" ]; }
refuse 2 "log-requests xml: expected one of text\|json" "$LOCKSTEP" serve "$model" --log-requests=xml

requests() { # in order, each when the one before is over
    local ask=(curl -s -m 60 -o body -H "Authorization: Bearer second-key")
    "${ask[@]}" "$url/v1/chat/completions" -d '{"messages":[{"role":"user","content":"SECRET-QUESTION"}],"max_tokens":7,"temperature":0}'
    "${ask[@]}" "$url/v1/chat/completions" -d '{"messages":[{"role":"user","content":"SECRET-QUESTION"}],"max_tokens":5,"temperature":0,"stream":true}'
    "${ask[@]}" "$url/v1/models?secret=SECRET-QUERY"
    "${ask[@]}" "$url/nowhere%0aFAKE"
    curl -s -m 60 -o body "$url/v1/models"
    "${ask[@]}" "$url/health"
    "${ask[@]}" -X POST "$url/v1/chat/completions" -d '{"messages":3}'
}

# ---- text ----------------------------------------------------------------------------------------
serve_start "$model" --api-key-file keys --log-requests -q
requests
within 20 has_lines 6 || fail "there are $(lines) lines: $(cat err)"
serve_stop || fail "the server's end"
[ "$(lines)" = 6 ] || fail "there are $(lines) lines: $(cat err)"
when='^20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9:]{8}\.[0-9]{3}Z  127\.0\.0\.1'
for line in "$when key 2  POST /v1/chat/completions  200  jargon-3m-f16  in [0-9]+ \(0 cached\)  out 7  first [0-9.]+ s  all [0-9.]+ s$" \
    "$when key 2  POST /v1/chat/completions  200  jargon-3m-f16  in [0-9]+ \([0-9]+ cached\)  out 5  first [0-9.]+ s  all [0-9.]+ s$" \
    "$when key 2  GET /v1/models  200  all [0-9.]+ s$" "$when key 2  GET /nowhere.FAKE  404  all" "$when  GET /v1/models  401  all" \
    "$when key 2  POST /v1/chat/completions  400  all"; do
    [ "$(grep -cE "$line" err)" = 1 ] || fail "not one line is $line: $(cat err)"
done
grep -q "SECRET\|key-\|second" err && fail "the log tells secrets: $(cat err)"

# ---- JSON ----------------------------------------------------------------------------------------
serve_start "$model" --api-key-file keys --log-requests=json -q
requests
within 20 has_lines 6 || fail "there are $(lines) lines: $(cat err)"
# One who goes away in the middle.
curl -sN -m 60 -H "Authorization: Bearer first-key" "$url/v1/chat/completions" -d '{"messages":[{"role":"user","content":"x"}],"ignore_eos":true,"stream":true}' 2>/dev/null | head -c 200 >/dev/null
within 20 has_lines 7 || fail "who left is not in the log: $(cat err)"
serve_stop || fail "the server's end"
python3 - <<'END' || fail "the log is $(cat err)"
import json
lines = [json.loads(x) for x in open("err") if x.startswith("{")]
assert len(lines) == 7, lines
one, two, models, nowhere, no_key, wrong, left = lines
assert (one["key"], one["address"], one["method"], one["path"], one["status"]) == (2, "127.0.0.1", "POST", "/v1/chat/completions", 200)
assert one["model"] == "jargon-3m-f16" and one["tokens_out"] == 7 and one["tokens_in"] > 5 and one["tokens_cached"] == 0
assert two["tokens_out"] == 5 and two["tokens_in"] == one["tokens_in"] and 0 < two["first_s"] <= two["all_s"] + 0.001
assert "model" not in models and models["path"] == "/v1/models" and nowhere["status"] == 404 and nowhere["path"] == "/nowhere\nFAKE"
assert no_key["key"] is None and no_key["status"] == 401 and wrong["status"] == 400
assert left["left"] and left["key"] == 1 and not any(x["left"] for x in lines[:6]), left
END
grep -q "SECRET\|first-key\|second-key" err && fail "the log tells secrets: $(cat err)"

# ---- no log --------------------------------------------------------------------------------------
serve_start "$model" --api-key-file keys -q
requests
serve_stop || fail "the server's end"
[ "$(lines)" = 0 ] || fail "nobody asked for a log: $(cat err)"
[ $failures = 0 ] && echo "requests are logged as they should be"
[ $failures = 0 ]
