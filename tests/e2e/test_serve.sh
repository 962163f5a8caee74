#!/bin/bash
# lockstep serve from the outside, with curl: the endpoints of every dialect, streams, errors, a client that
# hangs up, an orderly end, keys, TLS, web pages. Refusals are test_serve_refusals.sh's, lost ranks
# test_serve_lost.sh's.
set -u
command -v curl >/dev/null || { echo "skip: curl is not there"; exit 77; }
command -v python3 >/dev/null || { echo "skip: python3 is not there"; exit 77; }
model=$SOURCE_DIR/models/jargon-3m-f16.gguf
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/server.sh"
stop() {
    [ -n "$server" ] && kill "$1" "$server" 2>/dev/null && wait "$server"
    local status=$?
    server=
    return $status
}
at_end 'stop -KILL'

# start options...: sets $url.
start() { serve_start "$model" "$@"; }

# ask STATUS PATH [curl options...]: the body goes to $work/body.
ask() {
    local want=$1 path=$2 got
    shift 2
    got=$(curl -sSk -m 60 -o "$work/body" -w '%{http_code}' "$@" "$url$path")
    [ "$got" = "$want" ] || fail "$path $*: status $got, expected $want: $(head -c 300 "$work/body")"
}

# holds EXPRESSION: true of the body as Python's `v`.
holds() {
    python3 -c 'import json, sys
v = json.load(open(sys.argv[1]))
sys.exit(not eval(sys.argv[2]))' "$work/body" "$1" || fail "not so: $1: $(head -c 400 "$work/body")"
}

says() {
    grep -Eq -e "$1" "$work/body" || fail "expected /$1/: $(head -c 400 "$work/body")"
}

question='"messages":[{"role":"user","content":"What is a bit bucket?"}],"temperature":0'

# ---- answers ------------------------------------------------------------------------------------
start
ask 200 /metrics && says '^lockstep_rank_resident_bytes\{rank="0"\} [1-9]' # before anything was asked
ask 200 /health && holds 'v["status"] == "ok"'
ask 200 /v1/models && holds 'v["data"][0]["id"] == "jargon-3m-f16"'
ask 200 /v1/models/jargon-3m-f16
ask 200 /v1/models -H 'anthropic-version: 2023-06-01' && holds 'v["data"][0]["type"] == "model" and v["first_id"] == "jargon-3m-f16"'
ask 404 /v1/models/other -H 'anthropic-version: 2023-06-01' && holds 'v["error"]["type"] == "not_found_error"'
ask 404 /v1/models/other && holds 'v["error"]["code"] == "model_not_found"'
# Names that are no UTF-8, or are cut in the middle of a character to be quoted.
ask 404 /v1/models/%FF && holds 'v["error"]["code"] == "model_not_found"'
for path in /v1/chat/completions /v1/messages /api/chat; do
    ask 404 $path -d "{\"model\":\"x$(printf 'ü%.0s' $(seq 80))\",\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"
    holds '"does not exist" in json.dumps(v["error"])'
done
# top_p 0 is the likeliest alone; what Anthropic's own servers do is left out beside functions.
ask 200 /v1/chat/completions -d "{$question,\"max_tokens\":8,\"temperature\":1,\"top_p\":0}"
cp "$work/body" "$work/top_p"
ask 200 /v1/chat/completions -d "{$question,\"max_tokens\":8,\"temperature\":0}"
[ "$(python3 -c 'import json,sys; print(*(json.load(open(f))["choices"][0]["message"]["content"] for f in sys.argv[1:]), sep="|")' "$work/top_p" "$work/body" | awk -F'|' '{print $1 == $2}')" = 1 ] || fail "top_p 0 is not the likeliest: $(cat "$work/top_p" "$work/body")"
ask 200 /v1/messages -d '{"max_tokens":4,"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"web_search_20250305","name":"web_search"},{"name":"look","input_schema":{"type":"object"}}]}'
ask 400 /v1/messages -d '{"max_tokens":4,"messages":[{"role":"user","content":"hi"}],"tools":[{"type":"web_search_20250305","name":"web_search"}]}'
# A schema that nothing fits, or whose bounds are beyond what is written, is refused in words that say so.
with_schema() { echo "{$question,\"max_tokens\":20,\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":$1}}}"; }
ask 400 /v1/chat/completions -d "$(with_schema '{"enum":[]}')" && holds '"allows no value" in v["error"]["message"]'
for bounds in '"minimum":100000000000000000000' '"minimum":1e300' '"exclusiveMaximum":-1e21'; do
    for type in integer number; do
        ask 400 /v1/chat/completions -d "$(with_schema "{\"type\":\"$type\",$bounds}")" && holds '"minimum and maximum" in v["error"]["message"]'
    done
done
ask 200 /v1/chat/completions -d "$(with_schema '{"type":"integer","minimum":999999999999998,"maximum":1e30}')"
holds 'int(v["choices"][0]["message"]["content"]) >= 999999999999998'
# Beyond what a double holds.
ask 200 /v1/chat/completions -d "$(with_schema '{"type":"integer","minimum":9007199254740993,"maximum":9007199254740993}')"
holds 'v["choices"][0]["message"]["content"] == "9007199254740993"'
# The engine's text over HTTP is the text that `lockstep run` prints.
ask 200 /v1/chat/completions -d "{$question,\"max_tokens\":24}"
holds 'v["choices"][0]["finish_reason"] == "length" and v["usage"]["completion_tokens"] == 24'
python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["choices"][0]["message"]["content"])' \
    "$work/body" >"$work/whole"
"$LOCKSTEP" run "$model" -q --temp 0 -n 24 -p "What is a bit bucket?" >"$work/run" 2>/dev/null
diff <(tr -d '\n' <"$work/run") <(tr -d '\n' <"$work/whole") >/dev/null ||
    fail "HTTP says '$(cat "$work/whole")', lockstep run '$(cat "$work/run")'"
ask 200 /v1/chat/completions -d "{$question,\"max_tokens\":24,\"stream\":true,\"stream_options\":{\"include_usage\":true}}"
tail -n 2 "$work/body" | grep -q '^data: \[DONE\]' || fail "the stream has no end"
sed -n 's/^data: {/{/p' "$work/body" | python3 -c 'import json, sys
text, usage = "", None
for line in sys.stdin:
    v = json.loads(line)
    assert "usage" in v and v["system_fingerprint"].startswith("fp_")
    usage = v["usage"] or usage
    for c in v["choices"]:
        text += c["delta"].get("content") or ""
assert usage["completion_tokens"] == 24, usage
print(text)' >"$work/streamed" || fail "the stream is not as it should be"
diff "$work/whole" "$work/streamed" >/dev/null || fail "streamed: $(cat "$work/streamed")"

ask 200 /v1/chat/completions -d "{$question,\"max_tokens\":3,\"n\":2,\"logprobs\":true,\"top_logprobs\":2}"
holds 'len(v["choices"]) == 2 and [len(t["top_logprobs"]) for t in v["choices"][1]["logprobs"]["content"]] == [2, 2, 2]'
# Of an answer that ends with a call they are the content's alone, and all of these.
first_words='"tools":[{"type":"function","function":{"name":"f"}}],"logprobs":true,"max_tokens":100,"grammar":"root ::= \"Well, then. <tool_call>\\n{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {}}\\n</tool_call>\""'
ask 200 /v1/chat/completions -d "{$question,$first_words}"
holds 'v["choices"][0]["message"]["content"] == "Well, then." and v["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "f"'
holds '"".join(t["token"] for t in v["choices"][0]["logprobs"]["content"]) == "Well, then."'
ask 200 /v1/chat/completions -d "{$question,$first_words,\"stream\":true}"
sed -n 's/^data: {/{/p' "$work/body" | python3 -c 'import json, sys
seen = [c["logprobs"] for line in sys.stdin for c in json.loads(line)["choices"]]
assert "".join(t["token"] for l in seen if l for t in l["content"]) == "Well, then.", seen' || fail "logprobs of a stream that ends with a call"
ask 200 /v1/chat/completions -d '{"messages":[{"role":"user","content":"hi"}],"temperature":1.5,"max_tokens":200,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"a":{"type":"boolean"},"b":{"enum":["x","y"]}},"required":["a","b"]}}}}'
holds 'json.loads(v["choices"][0]["message"]["content"])["b"] in ["x", "y"]'
ask 200 /v1/chat/completions -d '{"messages":[{"role":"user","content":"hi"}],"max_tokens":20,"grammar":"root ::= \"yes\" | \"no\""}'
holds 'v["choices"][0]["message"]["content"] in ["yes", "no"]'
# An end that is to be ignored ends what the grammar has no more for, and nothing else.
ask 200 /v1/chat/completions -d '{"messages":[{"role":"user","content":"hi"}],"max_tokens":20,"ignore_eos":true,"grammar":"root ::= \"yes\" | \"no\""}'
holds 'v["choices"][0]["message"]["content"] in ["yes", "no"] and v["choices"][0]["finish_reason"] == "stop"'
ask 200 /v1/chat/completions -d '{"messages":[{"role":"user","content":"hi"}],"max_tokens":60,"temperature":1.5,"ignore_eos":true,"grammar":"root ::= [a-z]*"}'
holds 'v["usage"]["completion_tokens"] == 60 and v["choices"][0]["finish_reason"] == "length"'
look='"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"unit":{"enum":["C","F"]}},"required":["unit"]}}}]'
tools="$look,\"tool_choice\":\"required\""
ask 200 /v1/chat/completions -d "{$question,$tools,\"parallel_tool_calls\":false}"
holds 'v["choices"][0]["finish_reason"] == "tool_calls" and v["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "look"'
holds 'json.loads(v["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])["unit"] in ["C", "F"]'
# One call at a time, of a model that a grammar of the client's makes write two and go on.
python3 - "$work" <<'END'
import json, sys
call = '<tool_call>\\n{"name": "look", "arguments": {"unit": "C"}}\\n</tool_call>'.replace('"', '\\"')
body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 300, "ignore_eos": True, "n": 2, "seed": 1,
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
        "stream_options": {"include_usage": True}, "grammar": 'root ::= "%s\\n%s" [a-z]*' % (call, call)}
for name, more in (("two", {}), ("one", {"parallel_tool_calls": False}), ("one-stream", {"parallel_tool_calls": False, "stream": True})):
    json.dump(body | more, open("%s/%s" % (sys.argv[1], name), "w"))
END
ask 200 /v1/chat/completions -d "@$work/two"
holds '[len(c["message"]["tool_calls"]) for c in v["choices"]] == [2, 2] and v["usage"]["completion_tokens"] == 600'
ask 200 /v1/chat/completions -d "@$work/one"
holds '[(c["finish_reason"], len(c["message"]["tool_calls"]), c["message"]["content"]) for c in v["choices"]] == [("tool_calls", 1, None)] * 2'
holds 'v["usage"]["completion_tokens"] < 200'
cp "$work/body" "$work/once"
ask 200 /v1/chat/completions -d "@$work/one-stream"
sed -n 's/^data: {/{/p' "$work/body" | python3 -c 'import json, sys
lines = [json.loads(line) for line in sys.stdin]
whole = json.load(open(sys.argv[1]))
assert lines[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"], lines[-1]
for c in whole["choices"]:
    own = [o for v in lines for o in v["choices"] if o["index"] == c["index"]]
    calls = [t for o in own for t in o["delta"].get("tool_calls", [])]
    assert own[-1]["finish_reason"] == "tool_calls" and {t["index"] for t in calls} == {0}, own
    assert "".join(t["function"]["arguments"] for t in calls) == c["message"]["tool_calls"][0]["function"]["arguments"], own
    assert not any(o["delta"].get("content") for o in own), own' "$work/once" || fail "one call, streamed: $(cat "$work/body")"
ask 200 /v1/chat/completions -d '{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"look","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"sunny"}],"max_tokens":5}'
ask 200 /v1/completions -d '{"prompt":["A bit","deadlock"],"max_tokens":4,"temperature":0,"logprobs":1}'
holds 'len(v["choices"]) == 2 and len(v["choices"][1]["logprobs"]["tokens"]) == 4'
ask 200 /v1/embeddings -d '{"input":["a b","c"]}'
holds 'abs(sum(x * x for x in v["data"][1]["embedding"]) - 1) < 1e-5'
ask 200 /tokenize -d '{"content":"hello there"}'
cp "$work/body" "$work/tokens"
ask 200 /detokenize -d "@$work/tokens" && holds 'v["content"] == "hello there"'
ask 400 /detokenize -d '{"tokens":[104,99999]}' && says 'none of the 2048'
ask 200 /metrics && says '^lockstep_first_token_seconds_count [1-9]'
ask 200 / && says '^lockstep serves jargon-3m-f16 '
page=(-H 'Accept: text/html,application/xhtml+xml,*/*;q=0.8') # as browsers ask
ask 200 / "${page[@]}" -D "$work/head"
cmp "$work/body" "$SOURCE_DIR/src/api/page.html" || fail "the page is not page.html"
grep -qi '^content-type: text/html; charset=utf-8' "$work/head" || fail "the page: $(cat "$work/head")"

# ---- Anthropic's and Ollama's words for the same ---------------------------------------------------
asked='"max_tokens":24,"temperature":0,"messages":[{"role":"user","content":[{"type":"text","text":"What is a bit bucket?"}]}]'
same='open(sys.argv[1][:-4] + "whole").read()[:-1]'
ask 200 /v1/messages -d "{$asked}"
holds "v['content'] == [{'type': 'text', 'text': $same}] and v['stop_reason'] == 'max_tokens'"
holds "v['usage']['output_tokens'] == 24"
ask 200 /v1/messages -d '{"max_tokens":4,"messages":[{"role":"user","content":"hi"},{"role":"system","content":[{"type":"text","text":"Be brief."}]}]}'
ask 200 /v1/messages -d "{$asked,\"stream\":true}"
events=$(sed -n 's/^event: //p' "$work/body" | uniq | tr '\n' ' ')
[ "$events" = "message_start ping content_block_start content_block_delta content_block_stop message_delta message_stop " ] ||
    fail "Anthropic's events: $events"
ask 200 /v1/messages/count_tokens -d "{$asked}" && holds "v['input_tokens'] > 5"
ask 200 /v1/messages -d "{$asked,\"max_tokens\":200,\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":{\"enum\":[\"x\",\"y\"]}}}}"
holds "json.loads(v['content'][0]['text']) in ['x', 'y']"
# An answer that was begun goes on, in the same turn.
begun='"messages":[{"role":"user","content":"What is a bit bucket?"},{"role":"assistant","content":"The universal"}]'
ask 200 /v1/completions -d '{"prompt":"<|im_start|>user\nWhat is a bit bucket?<|im_end|>\n<|im_start|>assistant\nThe universal","max_tokens":12,"temperature":0}'
python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["choices"][0]["text"])' "$work/body" >"$work/rest"
rest='open(sys.argv[1][:-4] + "rest").read()[:-1]'
ask 200 /v1/messages -d "{$begun,\"max_tokens\":12,\"temperature\":0}" && holds "v['content'][0]['text'] == $rest"
ask 200 /api/chat -d "{$begun,\"stream\":false,\"options\":{\"num_predict\":12,\"temperature\":0}}" && holds "v['message']['content'] == $rest"
ask 200 /v1/chat/completions -d "{$begun,\"max_tokens\":12,\"temperature\":0,\"continue_final_message\":true}"
holds "v['choices'][0]['message']['content'] == $rest"
ask 400 /v1/chat/completions -d "{$question,\"continue_final_message\":true}" && holds "v['error']['param'] == 'continue_final_message'"
documents() { # the user's: text is read, with its title, as the AI SDK sends files of text
    local document='{"type":"document","title":"%s","source":{"type":"%s",%s}}' ask='{"type":"text","text":"hi"}' one
    local same='"messages":[{"role":"user","content":"a.txt\nA bit.\nhi"}],"temperature":0,"max_tokens":4'
    ask 200 /v1/messages -d "{$same}" && cp "$work/body" "$work/same"
    for one in "$(printf "$document" a.txt text '"media_type":"text/plain","data":"A bit."')" \
        "$(printf "$document" a.txt content '"content":"A bit."')" \
        "$(printf "$document" a.txt content '"content":[{"type":"text","text":"A bit."}]')"; do
        ask 200 /v1/messages -d "{\"messages\":[{\"role\":\"user\",\"content\":[$one,$ask]}],\"temperature\":0,\"max_tokens\":4}"
        holds "(lambda w: v['content'] == w['content'] and sum(v['usage'].values()) == sum(w['usage'].values()))(json.load(open('$work/same')))"
    done
    for one in "$(printf "$document" a.pdf base64 '"media_type":"application/pdf","data":"AAAA"')" \
        "$(printf "$document" a.txt content '"content":[{"type":"image"}]')" "$(printf "$document" a.txt text '"data":3')"; do
        ask 400 /v1/messages -d "{\"messages\":[{\"role\":\"user\",\"content\":[$one,$ask]}],\"max_tokens\":4}"
        says 'messages\[0\]: only text can be read of a document'
    done
}
documents
ask 400 /v1/messages -d '{"messages":[]}' && holds "v['type'] == 'error' and v['error']['type'] == 'invalid_request_error'"
ask 404 /v1/messages -d "{$asked,\"model\":\"claude\"}" && holds "v['error']['type'] == 'not_found_error'"
ask 200 /api/chat -d "{$question,\"stream\":false,\"options\":{\"num_predict\":24,\"temperature\":0}}"
holds "v['message']['content'] == $same and v['done'] and v['done_reason'] == 'length' and v['eval_count'] == 24"
ask 200 /api/generate -d '{"prompt":"What is a bit bucket?","options":{"num_predict":24,"temperature":0}}'
python3 -c 'import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
assert lines[-1]["done"] and not lines[0]["done"]
print("".join(l["response"] for l in lines))' "$work/body" >"$work/streamed" || fail "no lines: $(cat "$work/body")"
diff "$work/whole" "$work/streamed" >/dev/null || fail "Ollama streams: $(cat "$work/streamed")"
ask 200 /api/chat -d '{"messages":[{"role":"user","content":"a"}],"stream":false,"options":{"num_predict":200},"format":{"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"]}}'
holds "json.loads(v['message']['content'])['a'] in [True, False]"
ask 200 /api/embed -d '{"input":["a b","c"]}' && holds "len(v['embeddings']) == 2"
ask 200 /api/tags && holds "v['models'][0]['name'] == v['models'][0]['model'] == 'jargon-3m-f16:latest'"
ask 200 /api/ps && holds "v['models'][0]['model'] == 'jargon-3m-f16:latest'"
ask 200 /api/version && holds "[int(x) for x in v['version'].split('.')] >= [0, 6, 4]" # what Copilot asks for
ask 200 /api/show -d '{"model":"jargon-3m-f16:latest"}' && holds "v['details']['family'] == 'qwen3'"
holds "v['model_info']['general.basename'] == 'jargon-3m-f16' and 'tools' in v['capabilities']"
ask 404 /api/show -d '{"model":"llama3"}' && holds "isinstance(v['error'], str)"
ask 404 /api/show -d '{"name":"llama3"}' && ask 200 /api/show -d '{"name":"jargon-3m-f16"}' # what older clients say
ask 200 /api/embeddings -d '{"model":"jargon-3m-f16","prompt":"a b"}' && holds "abs(sum(x * x for x in v['embedding']) - 1) < 1e-5"

# ---- what programs send ---------------------------------------------------------------------------
ask 200 /v1/chat/completions -d "{$question,\"model\":\"\",\"max_tokens\":24,\"seed\":42.0}"
holds "v['choices'][0]['message']['content'] == $same"
# What asks for nothing changes nothing.
ask 200 /v1/messages -d "{$asked,\"system\":\"\"}" && holds "v['content'][0]['text'] == $same"
ask 200 /v1/messages -d "{$asked,\"system\":[]}" && holds "v['content'][0]['text'] == $same"
ask 200 /api/generate -d '{"prompt":"What is a bit bucket?","system":"","suffix":"","stream":false,"options":{"num_predict":24,"temperature":0}}'
holds "v['response'] == $same"
ask 200 /v1/responses -d '{"input":"What is a bit bucket?","instructions":"","max_output_tokens":24,"temperature":0}'
holds "v['output'][0]['content'][0]['text'] == $same"
ask 200 /v1/completions -d '{"prompt":"A bit","max_tokens":12,"temperature":0,"suffix":"","logprobs":0}'
holds "v['choices'][0]['logprobs']['text_offset'] == [len(''.join(v['choices'][0]['logprobs']['tokens'][:i])) for i in range(len(v['choices'][0]['logprobs']['tokens']))]"
# The token itself is among the likeliest, whether it is one or not, and none hides another.
ask 200 /v1/completions -d '{"prompt":"A bit","max_tokens":12,"temperature":2,"top_k":0,"top_p":1,"min_p":0,"seed":3,"logprobs":2}'
tops="zip(*(v['choices'][0]['logprobs'][k] for k in ('tokens', 'token_logprobs', 'top_logprobs')))"
holds "all(top[t] == p and (len(top) == 2 or len(top) == 3 and p == min(top.values())) for t, p, top in $tops)"
holds "sum(len(top) == 3 for t, p, top in $tops) > 3"
# Without a seed each prompt has one of its own, be they equal: 24 tokens at this temperature are hardly ever the same.
ask 200 /v1/completions -d '{"prompt":["A bit","A bit","A bit"],"max_tokens":24,"temperature":2,"top_k":0,"top_p":1,"min_p":0,"n":2,"ignore_eos":true}'
holds "len({c['text'] for c in v['choices']}) == 6"
ask 200 /v1/completions -d '{"prompt":["A bit","A bit","A bit"],"max_tokens":24,"temperature":2,"top_k":0,"top_p":1,"min_p":0,"n":2,"ignore_eos":true,"seed":7}'
holds "len({c['text'] for c in v['choices']}) == 2"
# Tokens that are parts of a character, or none of the text, move nothing: where a whole one is said to be, it stands.
ask 200 /v1/completions -d '{"prompt":"A bit","max_tokens":60,"temperature":0,"logprobs":0,"grammar":"root ::= \"€ü🙂 some words\""}'
in_place="all(c['text'].startswith(t, i) for t, i in whole) and len(whole) > 3)(v['choices'][0], [(t, i) for t, i in zip(v['choices'][0]['logprobs']['tokens'], v['choices'][0]['logprobs']['text_offset']) if '|' not in t and not t.startswith('bytes:')])"
holds "(lambda c, whole: $in_place"
ask 200 /v1/completions -d '{"prompt":"A bit","max_tokens":40,"temperature":1,"seed":1,"logprobs":0,"logit_bias":{"2046":16}}'
holds "v['choices'][0]['logprobs']['tokens'].count('<|im_start|>') > 3" && holds "(lambda c, whole: $in_place"
# Half a character, a NUL and 2^64 - 1 are JSON, and come out of tools.
ask 200 /v1/chat/completions -d '{"messages":[{"role":"user","content":"a\u0000b\ud83d \\u0000 \ud83d\ude00 \udc00"}],"max_tokens":2}'
cp "$work/body" "$work/mended"
ask 200 /v1/chat/completions -d '{"messages":[{"role":"user","content":"a\ufffdb\ufffd \\u0000 😀 \ufffd"}],"max_tokens":2}'
holds "v['usage']['prompt_tokens'] == json.load(open(sys.argv[1][:-4] + 'mended'))['usage']['prompt_tokens']"
ask 200 /v1/messages -d '{"max_tokens":2,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"a\u0000b"}]}]}'
both_forms='"max_tokens":200,"parallel_tool_calls":false,'"$look"',"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"b":{"enum":["x","y"]}},"required":["b"]}}}'
# A schema that no grammar can say: the call is enforced all the same, unless it is to be strict.
call() { # PARAMETERS [more of the function]
    ask "${want:-200}" /v1/chat/completions -d "{$question,\"max_tokens\":400,\"parallel_tool_calls\":false,\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}},\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":$1${2:-}}}]}"
}
is_call="v['choices'][0]['finish_reason'] == 'length' or v['choices'][0]['message']['tool_calls'][0]['function']['name'] == 'f'"
unsayable='{"type":"object","properties":{"a":{"type":"string","pattern":"^(x)\\1$"}}}'
call "$unsayable" && holds "$is_call" && holds "v['usage']['prompt_tokens'] > 100"
want=400 call "$unsayable" ',"strict":true' && says pattern
call '{"type":"object","properties":{"a":{"type":"string","format":"email","pattern":"^(?!\\.)[a-z]+@[a-z]+$"}},"required":["a"]}' ',"strict":true'
holds "$is_call"
ask 200 /v1/chat/completions -d "{$question,\"max_tokens\":200,\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":{\"type\":\"string\",\"format\":\"date\",\"pattern\":\"^19\"}}}}"
holds "json.loads(v['choices'][0]['message']['content']).startswith('19')"
# A form of the answer leaves room for calls.
ask 200 /v1/chat/completions -d "{$question,$both_forms,\"logit_bias\":{\"60\":100}}"
holds "v['choices'][0]['finish_reason'] == 'tool_calls' and v['choices'][0]['message']['tool_calls'][0]['function']['name'] == 'look'"
# The id of a call follows from the request, so whoever answers it again gives the same.
id_of() { ask 200 /v1/chat/completions -d "{$question,$both_forms,\"logit_bias\":{\"60\":100},\"seed\":$1}" && python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["choices"][0]["message"]["tool_calls"][0]["id"])' "$work/body"; }
[ "$(id_of 5)" = "$(id_of 5)" ] || fail "the same request has calls with other ids"
[ "$(id_of 5)" != "$(id_of 6)" ] || fail "another request has a call with the same id: $(id_of 5)"
# Ollama's arguments are an object, which half of one is not: a call that num_predict or a stop string cuts off is none.
cut='{"messages":[{"role":"user","content":"hi"}],"format":{"enum":["x"]},"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"a":%s},"required":["a"]}}}],"stream":%s,"options":{"temperature":0,"logit_bias":{"60":100},"num_predict":100%s}}'
for stream in true false; do
    ask 200 /api/chat -d "$(printf "$cut" '{"enum":["C"]}' $stream '')" && says '"name":"look","arguments":\{"a":"C"\}'
    for more in '' ',"stop":["<<<<"]'; do
        ask 200 /api/chat -d "$(printf "$cut" '{"type":"string"}' $stream "$more")" && says '"content":"".*"done_reason":"(length|stop)"'
        grep -q tool_calls "$work/body" && fail "Ollama: half a call: $(cat "$work/body")"
    done
done
ask 200 /v1/chat/completions -d "{$question,$both_forms,\"logit_bias\":{\"60\":-100}}"
holds "v['choices'][0]['finish_reason'] == 'length' or json.loads(v['choices'][0]['message']['content'])['b'] in ['x', 'y']"
# Tools of which only some may be called.
two='"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object"}}},{"type":"function","function":{"name":"hear","parameters":{"type":"object"}}}]'
allowed='"mode":"required","tools":[{"type":"function","function":{"name":"hear"}}]'
ask 200 /v1/chat/completions -d "{$question,$two,\"max_tokens\":300,\"parallel_tool_calls\":false,\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{$allowed}}}"
holds "v['choices'][0]['finish_reason'] == 'length' or v['choices'][0]['message']['tool_calls'][0]['function']['name'] == 'hear'"
says '"name": *"hear"|"length"'
ask 400 /v1/chat/completions -d "{$question,$two,\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"any\",\"tools\":[]}}" && says 'mode'
# Content in parts is the same content, beside tools, too.
result() {
    ask 200 /v1/chat/completions -d "{\"messages\":[{\"role\":\"system\",\"content\":$1},{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"look\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":$1}],$two,\"max_tokens\":2}"
}
result '"sunny"' && cp "$work/body" "$work/mended"
result '[{"type":"text","text":"sun"},{"type":"text","text":"ny"}]'
holds "v['usage']['prompt_tokens'] == json.load(open(sys.argv[1][:-4] + 'mended'))['usage']['prompt_tokens']"
# Items of earlier answers, by their ids.
ask 200 /v1/responses -d '{"input":"What is a bit bucket?","max_output_tokens":24,"temperature":0}'
item=$(python3 -c 'import json, sys; v = json.load(open(sys.argv[1])); print(v["output"][0]["id"], v["id"])' "$work/body")
ask 200 /v1/responses -d "{\"previous_response_id\":\"${item#* }\",\"input\":\"Go on.\",\"max_output_tokens\":4,\"temperature\":0}"
cp "$work/body" "$work/mended"
ask 200 /v1/responses -d "{\"input\":[{\"role\":\"user\",\"content\":\"What is a bit bucket?\"},{\"type\":\"item_reference\",\"id\":\"${item% *}\"},{\"role\":\"user\",\"content\":\"Go on.\"}],\"max_output_tokens\":4,\"temperature\":0}"
holds "[v['usage']['input_tokens'], v['output'][0]['content'][0]['text']] == (lambda o: [o['usage']['input_tokens'], o['output'][0]['content'][0]['text']])(json.load(open(sys.argv[1][:-4] + 'mended')))"
ask 400 /v1/responses -d '{"input":[{"type":"item_reference","id":"msg_0123456789abcdef0123456700"}]}' && says 'not known here'
ask 400 /v1/responses -d '{"input":[{"type":"item_reference","id":"msg"}]}' && says 'not known here'
# Vectors of many texts, and of one that is too long.
python3 -c 'import json; print(json.dumps({"input": ["a %d" % i for i in range(600)]}))' >"$work/many"
ask 200 /v1/embeddings -d "@$work/many" && holds "len(v['data']) == 600"
python3 -c 'import json; print(json.dumps({"input": "a " * 5000}))' >"$work/long"
ask 200 /api/embed -d "@$work/long" && holds "len(v['embeddings']) == 1"
python3 -c 'import json; print(json.dumps({"input": "a " * 5000, "truncate": False}))' >"$work/long"
ask 400 /api/embed -d "@$work/long" && says 'too long'
ask 400 /api/embed -d '{"input":"a","dimensions":0}' && says 'dimensions'

# ---- a named request, answered twice --------------------------------------------------------------
# The second time its prompt is in the cache, as it may be at one machine and not at the one that stands in. A gateway compares
# their streams event by event (test_up.sh): only what stands at the end may differ.
known=$(printf 'a bit bucket %.0s' $(seq 40))
twice() { # PATH PROMPT'S-FIELD PATTERN-OF-THE-FIGURES [more fields]
    local body="{\"$2\":\"$1 $known\",\"stream\":true,\"max_tokens\":8,\"max_output_tokens\":8,\"options\":{\"num_predict\":8}${4:-}}"
    [ "$2" != messages ] || body=${body/"\"messages\":\"$1 $known\""/"\"messages\":[{\"role\":\"user\",\"content\":\"$1 $known\"}]"}
    ask 200 "$1" -H 'Lockstep-Request: 00112233445566778899aabb-1700000000-1' -d "$body"
    cp "$work/body" "$work/first"
    ask 200 "$1" -H 'Lockstep-Request: 00112233445566778899aabb-1700000000-1' -d "$body"
    cmp -s "$work/first" "$work/body" && fail "$1: nothing tells that the prompt was in the cache"
    diff <(grep -v "$3" "$work/first") <(grep -v "$3" "$work/body") >"$work/diff" || fail "$1: not the same bytes: $(head -c 600 "$work/diff")"
}
twice /v1/messages messages '^data: {"type":"message_delta"'
says '"type":"message_start".*"cache_read_input_tokens":0' && says '"type":"message_delta".*"cache_read_input_tokens":[1-9]'
ask 200 /v1/messages -d "{\"messages\":[{\"role\":\"user\",\"content\":\"/v1/messages $known\"}],\"max_tokens\":8}"
holds "v['usage']['cache_read_input_tokens'] > 0"
twice /v1/chat/completions messages '"usage":{' ',"stream_options":{"include_usage":true}'
twice /v1/completions prompt '"usage":{' ',"stream_options":{"include_usage":true}'
twice /v1/responses input '^data: {"type":"response.\(completed\|incomplete\)"'
twice /api/chat messages '"done":true'
twice /api/generate prompt '"done":true'

# A name whose time is none, or no year of four digits, is no name: the server takes its own.
for name in "-99999999999999999" "-253402300800" "--5" "-1700000000x" "-"; do
    ask 200 /v1/completions -H "Lockstep-Request: 00112233445566778899aabb$name-1" -d '{"prompt":"a","max_tokens":1}'
    holds "abs(v['created'] - __import__('time').time()) < 600"
done

# ---- bad requests -------------------------------------------------------------------------------
refuse() { # STATUS PATTERN BODY
    ask "$1" /v1/chat/completions --data-binary "$3"
    holds 'isinstance(v["error"]["message"], str)'
    says "$2"
}
refuse 400 "messages must be an array" '{"messages":"x"}'
refuse 400 "at least one message" '{"messages":[]}'
refuse 400 "temperature must be a number" "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"temperature\":\"hot\"}"
refuse 400 "tools\[0\].function must be" "{$question,\"tools\":[{\"type\":\"function\"}]}"
refuse 400 "no tools" "{$question,\"tool_choice\":\"required\"}"
refuse 404 "model_not_found" "{$question,\"model\":\"gpt-4o\"}"
# The codes are those of the defect, not of its field.
refuse 400 "model must be a string" "{$question,\"model\":3}"
holds 'v["error"]["code"] is None and v["error"]["param"] == "model"'
ask 400 /v1/responses -d '{"input":"hi","previous_response_id":"resp_none"}' && holds 'v["error"]["code"] == "previous_response_not_found"'
ask 400 /v1/responses -d '{"input":"hi","previous_response_id":3}'
holds 'v["error"]["code"] is None and v["error"]["param"] == "previous_response_id"'
tool_choices() { # of functions that are not there, or of none
    local anthropic='"max_tokens":4,"messages":[{"role":"user","content":"hi"}],"tools":[{"name":"look","input_schema":{"type":"object"}}]'
    refuse 400 'no tool' "{$question,$look,\"max_tokens\":4,\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}}"
    holds 'v["error"]["param"] == "tool_choice"'
    ask 400 /v1/responses -d '{"input":"hi","max_output_tokens":4,"tools":[{"type":"function","name":"look"}],"tool_choice":{"type":"function","name":"g"}}'
    holds 'v["error"]["param"] == "tool_choice" and "no tool \"g\"" in v["error"]["message"]'
    ask 400 /v1/messages -d "{$anthropic,\"tool_choice\":{\"type\":\"tool\",\"name\":\"g\"}}" && says 'tool_choice: there is no tool'
    ask 400 /v1/messages -d "{$anthropic,\"tool_choice\":{\"type\":\"tool\"}}" && says 'tool_choice.name must be a string'
    ask 200 /v1/messages -d "{$anthropic,\"tool_choice\":{\"type\":\"tool\",\"name\":\"look\"}}"
}
tool_choices
threads() { # Anthropic's, kept by the server: its library goes by the code, and sends the whole conversation then
    local asked='"max_tokens":2,"messages":[{"role":"user","content":"hi"}]' path
    for path in /v1/messages /v1/messages/count_tokens; do
        ask 400 $path -d "{$asked,\"thread\":{\"type\":\"continue\",\"previous_message_id\":\"msg_1\"}}"
        holds 'v["error"]["details"]["error_code"] == "thread_unsupported_request" and "thread" in v["error"]["message"]'
        ask 200 $path -d "{$asked,\"thread\":null}"
    done
    ask 400 /v1/messages -d '{"max_tokens":2,"messages":[]}' && holds '"details" not in v["error"]'
}
threads
for type in web_search web_search_2025_08_26 web_search_preview web_search_preview_2025_03_11 file_search computer computer_use \
    computer_use_preview code_interpreter programmatic_tool_calling image_generation mcp local_shell shell apply_patch tool_search; do
    tool="{\"type\":\"$type\"}" # as OpenAI's library names its own: left out beside a function, refused alone
    ask 200 /v1/responses -d "{\"input\":\"hi\",\"max_output_tokens\":2,\"tools\":[$tool,{\"type\":\"function\",\"name\":\"look\"}]}"
    ask 400 /v1/responses -d "{\"input\":\"hi\",\"max_output_tokens\":2,\"tools\":[$tool]}" && says "$type"
done
ask 404 /nothing
ask 405 /v1/models -X DELETE -D "$work/head"
grep -qi '^allow: GET, HEAD' "$work/head" || fail "a wrong method: $(cat "$work/head")"
refuse 400 "use tools" "{$question,\"functions\":[{\"name\":\"look\"}]}"
refuse 400 "only .*text" "{$question,\"modalities\":[\"text\",\"audio\"]}"
ask 400 /api/generate -d '{"prompt":"a","images":["AAAA"]}'
ask 200 /api/generate -d '{"prompt":"a","stream":false,"options":{"num_predict":2,"repeat_last_n":-1,"top_k":-1}}'

# ---- a client that hangs up --------------------------------------------------------------------
# What it asked for, half a minute's work, is no longer computed.
curl -sN -m 0.5 "$url/v1/chat/completions" -d "{$question,\"ignore_eos\":true,\"n\":64,\"stream\":true}" >/dev/null
for _ in $(seq 600); do
    ask 200 /metrics
    grep -q '^lockstep_requests_running 0' "$work/body" && break
    sleep 0.05
done
says '^lockstep_requests_running 0'
[ "$(sed -n 's/^lockstep_generated_tokens_total //p' "$work/body")" -lt 25000 ] || fail "all of it was computed"

# ---- the end finishes what runs -------------------------------------------------------------------
curl -sN -m 60 "$url/v1/chat/completions" -d "{$question,\"max_tokens\":100,\"ignore_eos\":true,\"stream\":true}" >"$work/last" &
last=$!
for _ in $(seq 600); do [ -s "$work/last" ] && break; sleep 0.02; done
stop -TERM || fail "SIGTERM: exit status $?"
wait "$last"
grep -q '^data: \[DONE\]' "$work/last" || fail "SIGTERM cut a stream: $(tail -c 200 "$work/last")"

# ---- a short queue -------------------------------------------------------------------------------
# One request for many things is one in the queue.
start --queue 1
ask 200 /v1/embeddings -d "@$work/many" && holds "len(v['data']) == 600"
ask 200 /v1/completions -d '{"prompt":["a","b","c","d","e","f"],"max_tokens":2}' && holds "len(v['choices']) == 6"
stop -TERM

# A long one: as many as may wait do not keep others, and who asks how it is, outside.
start --queue 1000
python3 - "$url" <<'END' || fail "--queue 1000: not everybody gets an answer"
import resource, socket, sys
files = resource.getrlimit(resource.RLIMIT_NOFILE)
if files[1] < 4000:
    sys.exit(print("skip: too few open files are allowed for a long queue"))
resource.setrlimit(resource.RLIMIT_NOFILE, (max(files[0], 2000), files[1]))
clients = [socket.create_connection(("127.0.0.1", int(sys.argv[1].rsplit(":", 1)[1])), 60) for _ in range(600)]
for c in clients:
    c.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert c.recv(4096).startswith(b"HTTP/1.1 200"), "no answer"
END
stop -TERM

# ---- a model whose calls no grammar enforces --------------------------------------------------------
echo '{% for m in messages %}[INST]{{ m.content }}[/INST]{% endfor %}{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS][TOOL_CALLS]{% endif %}' >"$work/mistral.jinja"
python3 "$SOURCE_DIR/tests/support/gguf_with_template.py" "$model" "$work/mistral.gguf" "$work/mistral.jinja"
serve_start "$work/mistral.gguf" --alias jargon-3m-f16
tool_choices
stop -TERM

# ---- a model that thinks ----------------------------------------------------------------------------
# A thought that is streamed to Anthropic's clients ends with its signature, as Anthropic's do.
echo '{% for m in messages %}{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% endfor %}{% if add_generation_prompt and not by_itself %}<think>{% endif %}' >"$work/thinking.jinja"
python3 "$SOURCE_DIR/tests/support/gguf_with_template.py" "$model" "$work/thinking.gguf" "$work/thinking.jinja"
serve_start "$work/thinking.gguf"
ask 200 /v1/messages -d "{$question,\"max_tokens\":4,\"ignore_eos\":true,\"stream\":true}"
grep -A 2 '"type":"signature_delta","signature":""' "$work/body" | grep -q '^event: content_block_stop' && says thinking_delta ||
    fail "a thought has no signature at its end: $(cat "$work/body")"
# Who lets nothing be stored asks for thoughts as encrypted_content, and sends back that alone.
told='"max_output_tokens":4,"ignore_eos":true,"store":false'
tokens() { # of a conversation with the item $work/item, as far as the Python expression KEEP of it
    python3 -c 'import json, sys
item = json.load(open(sys.argv[1]))
user = {"role": "user", "content": "hi"}
print(json.dumps({"max_output_tokens": 1, "input": [user, {k: item[k] for k in eval(sys.argv[2])}, user]}))' "$work/item" "$1" >"$work/back"
    ask 200 /v1/responses -d "@$work/back"
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["usage"]["input_tokens"])' "$work/body"
}
ask 200 /v1/responses -d "{\"input\":\"hi\",$told}" && holds '"encrypted_content" not in v["output"][0]'
ask 200 /v1/responses -d "{\"input\":\"hi\",$told,\"include\":[\"reasoning.encrypted_content\"],\"stream\":true}"
sed -n 's/^data: //p' "$work/body" | python3 -c 'import json, sys
events = [json.loads(l) for l in sys.stdin]
item = [e["item"] for e in events if e["type"] == "response.output_item.done"][0]
assert item == events[-1]["response"]["output"][0], events
print(json.dumps(item))' >"$work/item" || fail "a thought that is streamed: $(cat "$work/body")"
none=$(tokens '("type", "summary")') text=$(tokens '("type", "summary", "content")')
carried=$(tokens '("type", "summary", "encrypted_content")') both=$(tokens 'item')
[ "$text" -gt "$none" ] && [ "$carried" = "$text" ] && [ "$both" = "$text" ] ||
    fail "thoughts sent back: $none tokens without, $text as text, $carried carried, $both both"
echo '{"type":"reasoning","summary":[],"encrypted_content":"gAAAAABo"}' >"$work/item" # OpenAI's own
[ "$(tokens item)" = "$none" ] || fail "what OpenAI encrypted is read as a thought"
# Logprobs are of the content's tokens: not of the thought's, its tags', nor of the blank lines between.
thought="$question,\"chat_template_kwargs\":{\"by_itself\":true},\"logprobs\":true,\"grammar\":\"root ::= \\\"<think>\\\\n\\\" [a-z]* \\\"</think>\\\\n\\\\nWell,\\\\nthen.\\\"\""
for more in '"max_tokens":200' '"max_tokens":200,"stop":["\nthat","n.x"]'; do
    ask 200 /v1/chat/completions -d "{$thought,$more,\"logit_bias\":{\"60\":20}}"
    holds '(lambda c: "".join(t["token"] for t in c["logprobs"]["content"]) == c["message"]["content"] == "Well,\nthen.")(v["choices"][0])'
done
ask 200 /v1/chat/completions -d "{$thought,\"max_tokens\":200,\"logit_bias\":{\"60\":20},\"stream\":true}"
sed -n 's/^data: {/{/p' "$work/body" | python3 -c 'import json, sys
seen = [c["logprobs"] for line in sys.stdin for c in json.loads(line)["choices"]]
assert "".join(t["token"] for l in seen if l for t in l["content"]) == "Well,\nthen.", seen' || fail "logprobs of a stream that begins with a thought"
stop -TERM

# ---- a model without a language ---------------------------------------------------------------------
# Random weights: parts of characters are among the likeliest, each by its bytes.
random=$SHARED_DIR/golden/logits/llama.gguf
if [ -e "$random" ]; then
    serve_start "$random"
    ask 200 /v1/completions -d '{"prompt":[5,6,7],"max_tokens":30,"ignore_eos":true,"temperature":0,"logprobs":20}'
    holds "all(len(top) == 20 and top[t] == p for t, p, top in $tops)"
    holds "'bytes:\\\\x' in ' '.join(t for _, _, top in $tops for t in top)"
    stop -TERM
else
    echo "note: $random is not there: no tokens that are not text are compared"
fi

# ---- a model that writes calls as XML ---------------------------------------------------------------
# A stop string within a call cuts it off, as max_tokens does: half a command does not look like a whole one.
echo '{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}{{ tools | tojson }}<tool_call><function=F><parameter=P></parameter></function></tool_call>{% endif %}' >"$work/xml.jinja"
python3 "$SOURCE_DIR/tests/support/gguf_with_template.py" "$model" "$work/xml.gguf" "$work/xml.jinja"
serve_start "$work/xml.gguf"
python3 - "$work" <<'END'
import json, sys
parameters = {"type": "object", "properties": {"text": {"type": "string"}}}
written = "<tool_call>\n<function=do>\n<parameter=text>\nrm -r /tmp\n\n/x\n</parameter>\n</function>\n</tool_call>\n\n"
body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 300, "temperature": 0,
        "grammar": "root ::= " + json.dumps(written),
        "tools": [{"type": "function", "function": {"name": "do", "parameters": parameters}}]}
for name, more in (("whole", {}), ("after", {"stop": ["l>\n\n"]}), ("within", {"stop": ["\n\n"]})):
    json.dump(body | more, open("%s/%s" % (sys.argv[1], name), "w"))
END
called='v["choices"][0]["finish_reason"], v["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]'
ask 200 /v1/chat/completions -d "@$work/whole" && holds "($called) == ('tool_calls', '{\"text\": \"rm -r /tmp\\\\n\\\\n/x\"}')"
ask 200 /v1/chat/completions -d "@$work/after" && holds "($called) == ('tool_calls', '{\"text\": \"rm -r /tmp\\\\n\\\\n/x\"}')"
ask 200 /v1/chat/completions -d "@$work/within" && holds "($called) == ('stop', '{\"text\": \"rm -r /tmp')"
stop -TERM

# ---- keys, and who may listen ----------------------------------------------------------------------
printf '# people\nsecret-1\n\nsecret-2\n' >"$work/keys"
start --api-key-file "$work/keys"
ask 200 /health
ask 401 /v1/models && holds 'v["error"]["code"] == "invalid_api_key"'
ask 401 /v1/models -H "Authorization: Bearer nonsense"
ask 200 /v1/models -H "Authorization: Bearer secret-2"
ask 200 /v1/models -H "x-api-key: secret-1"
stop -TERM
for wrong in --host= --alias= --cors=page.example; do
    timeout 60 "$LOCKSTEP" serve "$model" --port 0 "$wrong" >"$work/out" 2>"$work/err"
    [ $? = 2 ] && [ "$(grep -c '^lockstep serve: ' "$work/err")" = 1 ] || fail "$wrong: $(cat "$work/err")"
done
# shellcheck disable=SC2086
for file in --api-key-file "--tls-key $work/err --tls-cert"; do
    timeout 60 "$LOCKSTEP" serve "$model" --port 0 $file "$work/no-such-file" >"$work/out" 2>"$work/err"
    [ $? = 2 ] && grep -q "no-such-file: No such file" "$work/err" || fail "no file for $file: $(cat "$work/err")"
done
# Whose end would be missing.
yes '# a long comment' | head -n 20000 >"$work/long-keys"
timeout 60 "$LOCKSTEP" serve "$model" --port 0 --api-key-file "$work/long-keys" >"$work/out" 2>"$work/err"
[ $? = 2 ] && grep -q "long-keys: larger than 262144 bytes" "$work/err" || fail "a long file of keys: $(cat "$work/err")"
timeout 60 "$LOCKSTEP" serve "$model" --port 0 --host 0.0.0.0 >"$work/out" 2>"$work/err"
[ $? = 2 ] || fail "a public address without a key is served"
grep -q -- --insecure "$work/err" || fail "said: $(cat "$work/err")"

# ---- while the model loads ---------------------------------------------------------------------------
# Rank 0 of two, whose rank 1 never comes: it answers that it is loading, and that a port is taken is known at once.
port=$(free_port)
LOCKSTEP_SECRET=x "$LOCKSTEP" serve "$model" --port "$port" --ranks 2 --rank 0 --join "127.0.0.1:$(free_port)" \
    >"$work/out" 2>"$work/err" &
server=$! url=http://127.0.0.1:$port
for _ in $(seq 1200); do
    curl -s -m 1 -o /dev/null "$url/health" && break
    kill -0 "$server" 2>/dev/null || { fail "serve while it loads: $(cat "$work/err")"; break; }
    sleep 0.05
done
ask 503 /health && holds 'v["status"] == "loading"'
ask 200 / "${page[@]}"
ask 503 /v1/messages -d "{$asked}" -D "$work/head" && holds 'v["error"]["type"] == "overloaded_error"'
grep -qi '^retry-after: ' "$work/head" || fail "loading: no Retry-After"
timeout 60 "$LOCKSTEP" serve "$work/absent.gguf" --port "$port" >"$work/out" 2>"$work/err"
[ $? = 1 ] && grep -q 'in use' "$work/err" || fail "a port that is taken: $(cat "$work/err")"
stop -TERM

# ---- HTTPS, and pages of another origin ---------------------------------------------------------------
if command -v openssl >/dev/null; then
    openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/key.pem" -out "$work/cert.pem" -days 2 \
        -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 2>/dev/null || fail "openssl makes no certificate"
    start --tls-cert "$work/cert.pem" --tls-key "$work/key.pem" --cors http://page.example
    case $url in https://*) ;; *) fail "the address is $url" ;; esac
    tls() { curl -sS -m 60 --cacert "$work/cert.pem" "$@"; } # which checks the certificate
    tls "$url/v1/chat/completions" -d "{$question,\"max_tokens\":24,\"stream\":true}" >"$work/body" || fail "no HTTPS"
    says '^data: \[DONE\]'
    # A stream that is kept open, and one that hangs up.
    tls -m 0.3 "$url/v1/chat/completions" -d "{$question,\"ignore_eos\":true,\"n\":64,\"stream\":true}" >/dev/null 2>&1
    tls -X OPTIONS -H 'Origin: http://page.example' -H 'Access-Control-Request-Method: POST' -D "$work/body" -o /dev/null "$url/v1/models"
    says '^HTTP/1.1 204' && says 'Access-Control-Allow-Origin: http://page.example'
    curl -s -m 10 -o /dev/null "http://${url#https://}/health" && fail "plain HTTP is answered at an HTTPS port"
    (printf 'GET / HTTP/1.0\r\n\r\n' >"/dev/tcp/127.0.0.1/${url##*:}") 2>/dev/null # and does no harm
    ask 200 /health
    stop -TERM || fail "SIGTERM: exit status $?"
    timeout 60 "$LOCKSTEP" serve "$model" --port 0 --tls-cert "$work/key.pem" --tls-key "$work/cert.pem" >"$work/out" 2>"$work/err"
    [ $? != 0 ] && grep -q PEM "$work/err" || fail "a certificate that is none: $(cat "$work/err")"
else
    echo "without openssl: HTTPS is not tried"
fi

[ $failures = 0 ] && echo "serve: all as it should be"
[ $failures = 0 ]
