#!/bin/bash
# What clients of other servers ask of lockstep serve: forms of an answer by other names, limits, ends, versions,
# with curl. What each is for is in docs/serve.md.
# labels: waits
set -u
command -v curl >/dev/null || { echo "skip: curl is not there"; exit 77; }
command -v python3 >/dev/null || { echo "skip: python3 is not there"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/server.sh"

# ask STATUS PATH [curl options...]: the body goes to $work/body.
ask() {
    local want=$1 path=$2 got
    shift 2
    got=$(curl -sS -m 60 -D "$work/head" -o "$work/body" -w '%{http_code}' "$@" "$url$path")
    [ "$got" = "$want" ] || fail "$path $*: status $got, expected $want: $(head -c 300 "$work/body")"
}
# holds EXPRESSION: true of the body as Python's `v`.
holds() {
    python3 -c 'import json, re, sys
v = json.load(open(sys.argv[1]))
sys.exit(not eval(sys.argv[2]))' "$work/body" "$1" || fail "not so: $1: $(head -c 400 "$work/body")"
}
says() { grep -Eq -e "$1" "$work/body" || fail "expected /$1/: $(head -c 400 "$work/body")"; }

serve_start "$SOURCE_DIR/models/jargon-3m-f16.gguf" -q
messages='"messages":[{"role":"user","content":"What is a bit bucket?"}]'

# ---- forms by the names of vLLM and llama.cpp, in every dialect ------------------------------------------
text_of='(v["choices"][0].get("text") or v["choices"][0].get("message", {}).get("content") if "choices" in v else
v["output"][-1]["content"][0]["text"] if "output" in v else v["content"][0]["text"] if "content" in v else
v.get("response") or v["message"]["content"])'
forms() { # FIELDS EXPRESSION of the text
    local expression="(lambda text: $2)($(tr '\n' ' ' <<<"$text_of"))"
    ask 200 /v1/chat/completions -d "{$messages,\"max_tokens\":60,$1}" && holds "$expression"
    ask 200 /v1/completions -d "{\"prompt\":\"A bit\",\"max_tokens\":60,$1}" && holds "$expression"
    ask 200 /v1/responses -d "{\"input\":\"hi\",\"max_output_tokens\":60,$1}" && holds "$expression"
    ask 200 /v1/messages -d "{$messages,\"max_tokens\":60,$1}" && holds "$expression"
    ask 200 /api/chat -d "{$messages,\"stream\":false,\"options\":{\"num_predict\":60},$1}" && holds "$expression"
    ask 200 /api/generate -d "{\"prompt\":\"hi\",\"stream\":false,\"options\":{\"num_predict\":60},$1}" && holds "$expression"
}
schema='{"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"]}'
forms "\"guided_json\":$schema" 'type(json.loads(text)["a"]) is bool'
forms "\"guided_json\":$(python3 -c 'import json, sys; print(json.dumps(sys.argv[1]))' "$schema")" 'type(json.loads(text)["a"]) is bool'
forms '"guided_regex":"[a-c]{3}-(\\d|x)+y"' 're.fullmatch(r"[a-c]{3}-(\d|x)+y?", text)'
forms '"guided_choice":["rd\"ead","wr\nite"]' 'text in ("rd\"ead", "wr\nite")'
forms '"guided_grammar":"root ::= \"on\" | \"off\""' 'text in ("on", "off")'
forms '"grammar":"root ::= \"on\" | \"off\""' 'text in ("on", "off")'
forms "\"json_schema\":$schema" 'type(json.loads(text)["a"]) is bool'
forms "\"structured_outputs\":{\"json\":$schema}" 'type(json.loads(text)["a"]) is bool'
forms '"structured_outputs":{"regex":"(ab|cd)"}' 'text in ("ab", "cd")'
forms '"structured_outputs":{"choice":["yes","no"]}' 'text in ("yes", "no")'
forms '"structured_outputs":{"grammar":"root ::= \"1\""}' 'text == "1"'
forms '"structured_outputs":{"json_object":true}' 'text.startswith("{")'

refused() { # FIELDS PATTERN
    ask 400 /v1/chat/completions -d "{$messages,\"max_tokens\":8,$1}" && says "$2"
    ask 400 /v1/messages -d "{$messages,\"max_tokens\":8,$1}" && says "$2"
    ask 400 /v1/responses -d "{\"input\":\"hi\",$1}" && says "$2"
    ask 400 /api/chat -d "{$messages,\"stream\":false,$1}" && says "$2"
}
refused '"guided_regex":"("' 'guided_regex: '
refused '"guided_regex":"a)(b"' 'guided_regex: '
refused '"guided_regex":"a{9999}{9999}"' 'guided_regex: '
refused '"guided_regex":3' 'guided_regex must be a string'
refused '"guided_choice":[]' 'guided_choice must be an array of at least one string'
refused '"guided_choice":["a",3]' 'guided_choice\[1\] must be a string'
refused '"guided_json":"no schema"' 'guided_json must be a JSON schema'
refused '"guided_json":{"type":"object"},"guided_regex":"a"' 'guided_json and guided_regex: an answer has one form'
refused '"structured_outputs":{"structural_tag":"x"}' 'structured_outputs.structural_tag is not supported'
refused '"guided_whitespace_pattern":"x"' 'guided_whitespace_pattern is not supported'
refused '"best_of":2' 'best_of is not supported; use n'
refused '"bad_words":["x"]' 'bad_words is not supported'
refused '"stop_token_ids":["x"]' 'stop_token_ids\[0\] is not a token id'
refused '"stop_token_ids":[99999999]' 'stop token 99999999 is not in the vocabulary'
refused '"min_tokens":5,"guided_choice":["a"]' 'min_tokens cannot be kept'
ask 400 /v1/chat/completions -d "{$messages,\"guided_regex\":\"a\",\"response_format\":{\"type\":\"json_object\"}}"
says 'response_format and guided_regex: an answer has one form'

# ---- where an answer ends ----------------------------------------------------------------------------
greedy='"temperature":0,"prompt":"A bit bucket is"'
ask 200 /v1/completions -d "{$greedy,\"max_tokens\":12,\"logprobs\":0}"
third=$(python3 -c 'import json, sys; print("".join(json.load(open(sys.argv[1]))["choices"][0]["logprobs"]["tokens"][2:3]))' "$work/body")
before=$(python3 -c 'import json, sys; print("".join(json.load(open(sys.argv[1]))["choices"][0]["logprobs"]["tokens"][:2]))' "$work/body")
ask 200 /tokenize -d "$(python3 -c 'import json, sys; print(json.dumps({"content": sys.argv[1] + sys.argv[2]}))' "$before" "$third")"
id=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["tokens"][-1])' "$work/body")
ask 200 /v1/completions -d "{$greedy,\"max_tokens\":12,\"stop_token_ids\":[$id]}"
BEFORE=$before python3 -c 'import json, os, sys
c = json.load(open(sys.argv[1]))["choices"][0]
sys.exit(c["text"] != os.environ["BEFORE"] or c["finish_reason"] != "stop")' "$work/body" || fail "stop_token_ids: $(cat "$work/body"), not '$before'"
ask 200 /v1/completions -d "{$greedy,\"max_tokens\":12,\"stop_token_ids\":[$id],\"min_tokens\":9}"
holds 'v["usage"]["completion_tokens"] >= 9'

# ---- samplers ------------------------------------------------------------------------------------------
text_with() { # FIELDS: the text of 40 tokens
    ask 200 /v1/completions -d "{\"prompt\":\"one two three one two three one two\",\"max_tokens\":40,\"seed\":7,\"ignore_eos\":true,$1}"
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["choices"][0]["text"])' "$work/body"
}
plain=$(text_with '"top_k":40')
for fields in '"xtc_probability":1,"xtc_threshold":0.05' '"top_n_sigma":0.5' '"dry_multiplier":5,"dry_allowed_length":1'; do
    text=$(text_with "\"top_k\":40,$fields")
    [ "$text" != "$plain" ] || fail "$fields change nothing"
    [ "$text" = "$(text_with "\"top_k\":40,$fields")" ] || fail "$fields: another text for the same seed"
done
[ "$(text_with '"top_k":40,"xtc_probability":0,"top_n_sigma":-1,"dry_multiplier":0,"mirostat":0')" = "$plain" ] ||
    fail "what is off changes the text"
[ "$(text_with '"top_k":40,"dry_multiplier":5,"dry_penalty_last_n":0')" = "$plain" ] || fail "DRY that looks back on nothing"
refused '"mirostat":2' 'mirostat is not supported'
refused '"dry_base":0' 'dry_base must be (a number )?from 1|dry_base'
refused '"xtc_probability":2' 'xtc_probability'
refused '"dry_sequence_breakers":"x","dry_allowed_length":0' 'dry_allowed_length'

# ---- limits ------------------------------------------------------------------------------------------
ask 200 /v1/chat/completions -d "{$messages,\"max_tokens\":-1}" && holds 'v["usage"]["completion_tokens"] > 0'
ask 200 /v1/completions -d '{"prompt":"hi","max_tokens":0}' && holds 'v["choices"][0]["text"] == ""'
ask 200 /v1/messages -d "{$messages,\"max_tokens\":-1}" && holds 'v["usage"]["output_tokens"] > 0'
for path in /v1/chat/completions /v1/messages; do
    ask 400 $path -d "{$messages,\"max_tokens\":0}" && says 'max_tokens is 0, but an answer has at least one token'
done
ask 400 /v1/responses -d '{"input":"hi","max_output_tokens":0}' && says 'max_output_tokens is 0, but'
ask 400 /v1/messages -d "{$messages}" && says 'max_tokens is missing'

# ---- Ollama ------------------------------------------------------------------------------------------
ask 200 /api/version && holds '[int(x) for x in v["version"].split(".")] >= [0, 13, 4]' # codex --oss asks for it
for name in jargon-3m-f16 jargon-3m-f16:latest; do
    ask 200 /api/pull -d "{\"model\":\"$name\"}" && holds 'v == {"status": "success"}'
done
ask 404 /api/pull -d '{"model":"gpt-oss:20b"}' && says 'does not exist here'
for path in /api/chat /api/generate; do
    body="{$messages,\"prompt\":\"hi\",\"logprobs\":true,\"top_logprobs\":2,\"options\":{\"num_predict\":6,\"temperature\":0}"
    ask 200 $path -d "$body,\"stream\":false}"
    holds '"".join(t["token"] for t in v["logprobs"]) == v.get("response", v.get("message", {}).get("content"))'
    holds '[len(t["top_logprobs"]) for t in v["logprobs"]] == [2] * 6 and all(t["logprob"] <= 0 and t["bytes"] for t in v["logprobs"])'
    cp "$work/body" "$work/whole"
    ask 200 $path -d "$body}"
    python3 -c 'import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
sys.exit(sum((line.get("logprobs", []) for line in lines), []) != json.load(open(sys.argv[2]))["logprobs"])' \
        "$work/body" "$work/whole" || fail "$path: streamed log probabilities are others: $(cat "$work/body")"
done
ask 400 /api/generate -d '{"prompt":"hi","template":"{{ .Prompt }}"}' && says 'template is not supported'
ask 400 /api/generate -d '{"prompt":"hi","context":[1,2]}' && says 'context is not supported'
ask 200 /api/generate -d '{"prompt":"hi","template":"","context":[],"stream":false,"options":{"num_predict":1}}'

# ---- a block that says who pays is no part of the prompt --------------------------------------------------
counted() { # SYSTEM: the tokens of a prompt with it
    ask 200 /v1/messages/count_tokens -d "{$messages,\"system\":$1}"
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["input_tokens"])' "$work/body"
}
plain=$(counted '"You are terse."')
billing='x-anthropic-billing-header: cc_version=2.1.1; cc_entrypoint=cli; cch='
for system in "[{\"type\":\"text\",\"text\":\"${billing}12ab;\"},{\"type\":\"text\",\"text\":\"You are terse.\"}]" \
    "[{\"type\":\"text\",\"text\":\"${billing}12;\\n\\nYou are terse.\"}]" "\"${billing}9;\\nYou are terse.\""; do
    [ "$(counted "$system")" = "$plain" ] || fail "$system counts as $(counted "$system") tokens, not $plain"
done
[ "$(counted "[{\"type\":\"text\",\"text\":\"${billing}1\"}]")" = "$(counted '""')" ] || fail "a billing block alone"
[ "$(counted "\"You are terse. $billing\"")" -gt "$plain" ] || fail "a text in the middle is left out"
ask 400 /v1/messages/count_tokens -d "{$messages,\"system\":5}" && says 'system must be'

# ---- words -----------------------------------------------------------------------------------------------
ask 400 /v1/chat/completions -d '{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:"}}]}]}'
says 'messages\[0\].content: images are not supported by this model'
ask 400 /v1/responses -d '{"input":[{"role":"user","content":[{"type":"input_image","image_url":"data:"}]}]}'
says 'input\[0\].content\[0\]: images are not supported by this model'
ask 400 /v1/messages -d '{"max_tokens":3,"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]}'
says 'messages\[0\]: images are not supported by this model'
ask 400 /api/chat -d '{"messages":[{"role":"user","content":"a","images":["AAAA"]}]}' && says 'images are not supported by this model'
ask 400 /v1/chat/completions -d "{$messages,\"tools\":[{\"type\":\"custom\",\"custom\":{\"name\":\"f\"}}]}"
says 'tools\[0\]: custom tools are not supported; use a function'

# ---- responses ---------------------------------------------------------------------------------------------
ask 200 /v1/responses -d '{"input":[{"role":"user","content":"one"},{"role":"assistant","content":"two"},{"role":"user","content":"three"}],"max_output_tokens":3}'
id=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["id"])' "$work/body")
ask 200 "/v1/responses/$id/input_items?order=asc"
holds '[(m["type"], m["content"][0]["type"], m["content"][0]["text"]) for m in v["data"]] == [("message", "input_text", "one"),
("message", "output_text", "two"), ("message", "input_text", "three")]'
holds 'not v["has_more"] and v["first_id"] == v["data"][0]["id"] and v["last_id"] == v["data"][2]["id"]'
ask 200 "/v1/responses/$id/input_items?limit=2" && holds 'v["has_more"] and [m["content"][0]["text"] for m in v["data"]] == ["three", "two"]'
last=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["last_id"])' "$work/body")
ask 200 "/v1/responses/$id/input_items?after=$last" && holds '[m["content"][0]["text"] for m in v["data"]] == ["one"]'
ask 400 "/v1/responses/$id/input_items?limit=0" && says 'limit must be'
ask 404 /v1/responses/resp_none/input_items
ask 404 "/v1/responses/$id/nothing"
ask 400 "/v1/responses/$id/cancel" -X POST && says 'only a background response can be cancelled'
ask 404 /v1/responses/resp_none/cancel -X POST
ask 200 /v1/responses/input_tokens -d '{"input":"What is a bit bucket?"}' && holds 'v["object"] == "response.input_tokens"'
n=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["input_tokens"])' "$work/body")
ask 200 /v1/responses -d '{"input":"What is a bit bucket?","max_output_tokens":1}' && holds "v['usage']['input_tokens'] == $n"
# A custom tool's input is a text, and a call comes back as one.
patch='"tools":[{"type":"custom","name":"patch","description":"Changes a file.","format":{"type":"grammar","syntax":"lark","definition":"start: /.+/"}}]'
called="$patch,\"tool_choice\":{\"type\":\"custom\",\"name\":\"patch\"},\"temperature\":0,\"max_output_tokens\":400"
ask 200 /v1/responses -d "{\"input\":\"hi\",$called}"
holds '[(i["type"], i["name"], type(i["input"])) for i in v["output"]] == [("custom_tool_call", "patch", str)] and "arguments" not in v["output"][0]'
cp "$work/body" "$work/whole"
ask 200 /v1/responses -d "{\"input\":\"hi\",$called,\"stream\":true}"
sed -n 's/^data: {/{/p' "$work/body" | python3 -c 'import json, sys
events = [json.loads(line) for line in sys.stdin]
whole = json.load(open(sys.argv[1]))["output"][0]["input"]
told = {kind: [e for e in events if e["type"] == "response." + kind] for kind in
        ("custom_tool_call_input.delta", "custom_tool_call_input.done", "function_call_arguments.delta", "output_item.done")}
assert "".join(e["delta"] for e in told["custom_tool_call_input.delta"]) == whole, told
assert told["custom_tool_call_input.done"][0]["input"] == whole == told["output_item.done"][-1]["item"]["input"], told
assert not told["function_call_arguments.delta"]' "$work/whole" || fail "a custom call in a stream: $(cat "$work/body")"
ask 200 /v1/responses -d "{\"input\":[{\"role\":\"user\",\"content\":\"hi\"},{\"type\":\"custom_tool_call\",\"call_id\":\"c\",\"name\":\"patch\",\"input\":\"a\\\"b\"},{\"type\":\"custom_tool_call_output\",\"call_id\":\"c\",\"output\":\"done\"}],$patch,\"max_output_tokens\":2}"
ask 400 /v1/responses -d "{\"input\":[{\"type\":\"custom_tool_call\",\"call_id\":\"c\",\"name\":\"patch\"}]}" && says 'input\[0\].input must be a string'
ask 400 /v1/responses -d '{"input":"hi","background":true,"store":false}' && says 'background needs store'

# ---- llama.cpp's and LM Studio's paths, paths without /v1, a slash at the end --------------------------------
for path in /v1/models /models /v1/models/ /models/; do
    ask 200 $path && holds 'v["data"][0]["max_model_len"] == v["data"][0]["context_length"] == v["data"][0]["meta"]["n_ctx"] > 0'
done
ask 200 /models/jargon-3m-f16 && holds 'v["id"] == "jargon-3m-f16"'
ask 404 /models/other && holds 'v["error"]["code"] == "model_not_found"'
ask 404 /v1/models// && ask 404 /v1 && ask 404 /chat
ask 200 /chat/completions/ -d "{$messages,\"max_tokens\":1}" && holds 'v["object"] == "chat.completion"'
ask 200 /responses -d '{"input":"hi","max_output_tokens":1}'
ask 200 "/responses/$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["id"])' "$work/body")"
ask 400 /messages -d "{$messages}" && holds 'v["type"] == "error"'
ask 200 /api/tags/
ask 200 /api/v0/models && holds 'v["data"][0]["state"] == "loaded" and v["data"][0]["max_context_length"] > 0'
ask 200 /api/v0/models/jargon-3m-f16 && holds 'v["type"] == "llm"'
ask 404 /api/v0/models/other && holds 'v["error"]["code"] == "model_not_found"'
ask 200 /api/v0/chat/completions -d "{$messages,\"max_tokens\":1}"
ask 200 /props && holds 'v["total_slots"] > 0 and v["default_generation_settings"]["n_ctx"] > 0 and "message" in v["chat_template"]'
holds 'v["model_path"] == "jargon-3m-f16.gguf" and not v["modalities"]["vision"]'
ask 200 /slots && holds 'len(v) > 0 and not v[0]["is_processing"]'
ask 200 /apply-template -d "{$messages}" && holds '"What is a bit bucket?" in v["prompt"] and v["prompt"].endswith("assistant\n")'
ask 400 /apply-template -d '{"messages":[]}' && says 'at least one message'
ask 200 /v1/completions -d '{"prompt":"A bit bucket","temperature":0,"max_tokens":7}'
cp "$work/body" "$work/whole"
ask 200 /completion -d '{"prompt":"A bit bucket","temperature":0,"n_predict":7}'
holds 'v["content"] == json.load(open("'"$work/whole"'"))["choices"][0]["text"] and v["stop_type"] == "limit" and v["tokens_predicted"] == 7'
cp "$work/body" "$work/whole"
ask 200 /completion -d '{"prompt":"A bit bucket","temperature":0,"n_predict":7,"stream":true}'
sed -n 's/^data: {/{/p' "$work/body" | python3 -c 'import json, sys
events = [json.loads(line) for line in sys.stdin]
assert [e["stop"] for e in events] == [False] * (len(events) - 1) + [True]
assert "".join(e["content"] for e in events) == json.load(open(sys.argv[1]))["content"]' "$work/whole" || fail "a stream of /completion: $(cat "$work/body")"
ask 200 /completion -d '{"prompt":[1,2,3],"n_predict":1}'
ask 400 /completion -d '{"n_predict":1}' && says 'prompt is missing'
for path in "/infill {\"input_prefix\":\"a\",\"input_suffix\":\"b\"}" "/v1/completions {\"prompt\":\"a\",\"suffix\":\"b\"}" \
    "/api/generate {\"prompt\":\"a\",\"suffix\":\"b\"}"; do
    ask 400 ${path%% *} -d "${path#* }" && says 'no tokens for filling in the middle'
done
ask 200 /metrics
for line in 'vllm:num_requests_running\{model_name="jargon-3m-f16"\} 0' 'vllm:generation_tokens_total\{[^}]*\} [1-9]' \
    'vllm:time_to_first_token_seconds_bucket\{model_name="jargon-3m-f16",le="\+Inf"\} [1-9]' 'llamacpp:tokens_predicted_total [1-9]'; do
    says "^$line"
done
sort "$work/body" | grep '^# TYPE' | uniq -d | grep -q . && fail "a metric is there twice"
python3 -c 'import json, re, sys
known = set(re.findall(r"^# TYPE (\S+)", open(sys.argv[2]).read(), re.M))
for p in json.load(open(sys.argv[1]))["panels"]:
    for t in p["targets"]:
        for name in re.findall(r"lockstep_\w+", t["expr"]):
            assert re.sub("_bucket$", "", name) in known, name' "$SOURCE_DIR/examples/grafana.json" "$work/body" || fail "the dashboard shows what is not there"

# ---- pages of this machine ---------------------------------------------------------------------------------
for origin in http://localhost:3000 app://obsidian.md vscode-webview://abc; do
    ask 204 /v1/chat/completions -X OPTIONS -H "Origin: $origin" -H 'Access-Control-Request-Method: POST'
    grep -qi "^Access-Control-Allow-Origin: $origin.\$" "$work/head" || fail "$origin: $(cat "$work/head")"
    ask 200 /v1/models -H "Origin: $origin"
    grep -qi "^Access-Control-Allow-Origin: $origin.\$" "$work/head" || fail "$origin: $(cat "$work/head")"
done
ask 403 /v1/models -X OPTIONS -H 'Origin: http://evil.example'
! grep -qi '^Access-Control' "$work/head" || fail "http://evil.example: $(cat "$work/head")"

serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"
export LOCKSTEP_KEEP_BILLING_HEADER=1
serve_start "$SOURCE_DIR/models/jargon-3m-f16.gguf" -q
[ "$(counted "\"${billing}9;\\nYou are terse.\"")" -gt "$plain" ] || fail "LOCKSTEP_KEEP_BILLING_HEADER keeps nothing"
serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"

# ---- thoughts, told as summaries if a client asks for these ------------------------------------------------
echo '{% for m in messages %}{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<think>{% endif %}' >"$work/thinking.jinja"
python3 "$SOURCE_DIR/tests/support/gguf_with_template.py" "$SOURCE_DIR/models/jargon-3m-f16.gguf" "$work/thinking.gguf" "$work/thinking.jinja"
serve_start "$work/thinking.gguf" -q
thought='"input":"hi","temperature":0,"max_output_tokens":8,"ignore_eos":true'
ask 200 /v1/responses -d "{$thought}" && holds 'v["output"][0]["content"][0]["type"] == "reasoning_text" and v["output"][0]["summary"] == []'
cp "$work/body" "$work/whole"
for how in '"summary":"auto"' '"generate_summary":"detailed"'; do
    ask 200 /v1/responses -d "{$thought,\"reasoning\":{$how}}"
    holds 'v["output"][0]["content"] == [] and v["output"][0]["summary"][0]["type"] == "summary_text"'
    holds 'v["output"][0]["summary"][0]["text"] == json.load(open("'"$work/whole"'"))["output"][0]["content"][0]["text"]'
done
ask 200 /v1/responses -d "{$thought,\"reasoning\":{\"summary\":\"auto\"},\"stream\":true}"
sed -n 's/^data: {/{/p' "$work/body" | python3 -c 'import json, sys
events = [json.loads(line) for line in sys.stdin]
of = lambda kind: [e for e in events if e["type"] == "response.reasoning_" + kind]
text = json.load(open(sys.argv[1]))["output"][0]["content"][0]["text"]
assert "".join(e["delta"] for e in of("summary_text.delta")) == text == of("summary_text.done")[0]["text"]
assert of("summary_part.added")[0]["part"] == {"type": "summary_text", "text": ""} and of("summary_part.done")[0]["summary_index"] == 0
assert not of("text.delta")' "$work/whole" || fail "a summary in a stream: $(cat "$work/body")"
serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"

# ---- filling in the middle, with a model that has tokens for it ---------------------------------------------
echo '{% for m in messages %}{{ m.content }}{% endfor %}' >"$work/plain.jinja"
fills() { # TOKENS, then the prompt that they make of "the " and " bucket"
    local prompt=$1
    shift
    python3 "$SOURCE_DIR/tests/support/gguf_with_template.py" "$SOURCE_DIR/models/jargon-3m-f16.gguf" "$work/fim.gguf" "$work/plain.jinja" "$@"
    serve_start "$work/fim.gguf" -q
    ask 200 /v1/completions -d "{\"prompt\":\"$prompt\",\"temperature\":0,\"max_tokens\":9}"
    cp "$work/body" "$work/whole"
    local wanted='json.load(open("'"$work/whole"'"))["choices"][0]["text"]'
    ask 200 /infill -d '{"input_prefix":"th","prompt":"e ","input_suffix":" bucket","temperature":0,"n_predict":9}' && holds "v['content'] == $wanted"
    ask 200 /infill -d '{"input_extra":[{"text":"x"}],"input_suffix":" bucket","temperature":0,"n_predict":9}'
    ask 200 /v1/completions -d '{"prompt":"the ","suffix":" bucket","temperature":0,"max_tokens":9}' && holds "v['choices'][0]['text'] == $wanted"
    ask 200 /api/generate -d '{"prompt":"the ","suffix":" bucket","stream":false,"options":{"temperature":0,"num_predict":9}}' && holds "v['response'] == $wanted"
    # What looks like these tokens in the text of a file is none of them.
    ask 200 /infill -d "{\"input_prefix\":\"$1\",\"input_suffix\":\"b\",\"n_predict\":1}" && holds 'v["tokens_evaluated"] > 6'
    ask 400 /infill -d '{"input_extra":[3],"input_suffix":"b"}' && says 'input_extra\[0\].text must be a string'
    ask 400 /v1/completions -d '{"prompt":[1,2],"suffix":"b"}' && says 'suffix needs a prompt that is text'
    serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"
}
fills '<|fim_prefix|>the <|fim_suffix|> bucket<|fim_middle|>' '<|fim_prefix|>' '<|fim_suffix|>' '<|fim_middle|>'
fills '[SUFFIX] bucket[PREFIX]the ' '[SUFFIX]' '[PREFIX]'

# ---- embeddings: pooled as the file says, with fewer dimensions if wanted ------------------------------------
embedded() { # FILE FIELDS: the vector and what it took
    ask 200 /v1/embeddings -d "{\"input\":\"a bit bucket\"${2:-}}"
    cp "$work/body" "$work/$1"
}
same_vector() { # FILE FILE
    python3 -c 'import json, sys
a, b = (json.load(open(f))["data"][0]["embedding"] for f in sys.argv[1:])
sys.exit(a != b)' "$work/$1" "$work/$2"
}
serve_start "$SOURCE_DIR/models/jargon-3m-f16.gguf" -q
embedded mean && embedded mean-said ',"pooling":"mean"' && embedded last ',"pooling":"last"' && embedded short ',"dimensions":8'
same_vector mean mean-said || fail "the mean is not the default"
same_vector mean last && fail "the last state is the mean"
python3 -c 'import json, math, sys
whole, short = (json.load(open(f))["data"][0]["embedding"] for f in sys.argv[1:])
norm = math.sqrt(sum(x * x for x in whole[:8]))
assert len(short) == 8 and all(abs(x / norm - y) < 1e-8 for x, y in zip(whole, short)), short' "$work/mean" "$work/short" || fail "eight dimensions"
ask 200 /api/embed -d '{"input":["a bit bucket"],"dimensions":8}' && holds "v['embeddings'][0] == json.load(open('$work/short'))['data'][0]['embedding']"
ask 400 /v1/embeddings -d '{"input":"a","dimensions":100000}' && says 'dimensions must be a whole number from 1 to'
ask 400 /v1/embeddings -d '{"input":"a","pooling":"rank"}' && says 'pooling must be'
serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"

pooled() { # KEYS...
    python3 "$SOURCE_DIR/tests/support/gguf_with_keys.py" "$SOURCE_DIR/models/jargon-3m-f16.gguf" "$work/pooled.gguf" "$@"
    serve_start "$work/pooled.gguf" -q
}
pooled qwen3.pooling_type=3
embedded says-last && { same_vector says-last last || fail "pooling_type 3 is not the last state"; }
serve_stop
pooled qwen3.pooling_type=2
ask 400 /v1/embeddings -d '{"input":"a"}' && says 'made by \\"cls\\"'
embedded cls-mean ',"pooling":"mean"' && { same_vector cls-mean mean || fail "the request does not decide"; }
serve_stop
# A text gets the end token, whose state is the embedding, also if it is too long.
pooled qwen3.pooling_type=3 tokenizer.ggml.add_eos_token=true
embedded ended && holds "v['usage']['prompt_tokens'] == json.load(open('$work/last'))['usage']['prompt_tokens'] + 1"
same_vector ended last && fail "the end token decides nothing"
python3 -c 'import json; print(json.dumps({"input": "a bit bucket " * 5000}))' >"$work/long"
ask 200 /api/embed -d "@$work/long" && cp "$work/body" "$work/long-ended"
serve_stop
pooled qwen3.pooling_type=3
ask 200 /api/embed -d "@$work/long" && holds "v['embeddings'] != json.load(open('$work/long-ended'))['embeddings']"
serve_stop

# A folder of sentence-transformers: the last state of a text that ends as its tokenizer says.
python3 "$SOURCE_DIR/tests/support/hf_folder.py" "$SOURCE_DIR/models/jargon-3m-f16.gguf" "$work/embedder" || fail "no folder"
echo '[]' >"$work/embedder/modules.json"
python3 - "$work/embedder/tokenizer.json" "$work/embedder/tokenizer_config.json" <<'END'
import json, sys

t = json.load(open(sys.argv[1]))
name = json.load(open(sys.argv[2]))["eos_token"]
name = name["content"] if isinstance(name, dict) else name
t["post_processor"] = {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": name, "type_id": 0}}]}
json.dump(t, open(sys.argv[1], "w"))
END
serve_start "$work/embedder" -q
embedded folder && { same_vector folder ended || fail "the folder pools otherwise than the file"; }
serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"

[ $failures = 0 ] && echo "dialects: all as they should be"
[ $failures = 0 ]
