#!/bin/bash
# lockstep serve with Kimi K3's template and tokens: calls and forms of the answer are enforced between the model's own
# tags, which no client sees. The model is small and says anything; what it is held to is what counts.
set -u
command -v python3 >/dev/null || { echo "skip: python3 is not there"; exit 77; }
template=$SHARED_DIR/golden/chat-templates/templates/Kimi-K3.jinja
[ -f "$template" ] || { echo "skip: $template is not there"; exit 77; }
. "$SOURCE_DIR/tests/support/scratch.sh"
. "$SOURCE_DIR/tests/support/server.sh"

python3 "$SOURCE_DIR/tests/support/gguf_with_template.py" "$SOURCE_DIR/models/jargon-3m-f16.gguf" "$work/model.gguf" \
    "$template" '<|open|>' '<|close|>' '<|sep|>' '<|end_of_msg|>' || { echo "FAILED: no model"; exit 1; }
serve_start "$work/model.gguf" -q
timeout 200 python3 - "$url" <<'END' || fail "kimi-k3: $(cat "$work/err")"
import json, sys, urllib.error, urllib.request

CLOSE = {"2045": 100}  # the token <|close|>
failures = 0


def post(path, body):
    request = urllib.request.Request(sys.argv[1] + path, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def chat(**more):
    body = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "max_tokens": 150,
            "reasoning_effort": "none", **more}
    status, text = post("/v1/chat/completions", body)
    if status != 200:
        raise SystemExit(f"status {status}: {text}")
    return text if body.get("stream") else json.loads(text)


def check(what, good, seen):
    global failures
    if not good:
        failures += 1
        print(f"FAILED: {what}: {seen}", file=sys.stderr)


def tool(name, properties, **more):
    parameters = {"type": "object", "properties": properties, "required": list(properties), **more}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


look = tool("look", {"unit": {"enum": ["C", "F"]}, "deep": {"type": "boolean"}})
say = tool("say", {"text": {"type": "string"}})
short = tool("short", {"text": {"type": "string", "maxLength": 2}})

# Calls that must come: of one of the functions, of this one, of one after the other.
v = chat(tools=[look], tool_choice="required", parallel_tool_calls=False)["choices"][0]
call = v["message"]["tool_calls"][0]["function"]
arguments = json.loads(call["arguments"])
check("a call", call["name"] == "look" and v["finish_reason"] == "tool_calls" and not v["message"]["content"], v)
check("its arguments", list(arguments) == ["unit", "deep"] and arguments["unit"] in "CF" and
      arguments["deep"] in (True, False), v)
v = chat(tools=[look, say], tool_choice={"type": "function", "function": {"name": "say"}}, logit_bias=CLOSE,
         parallel_tool_calls=False)["choices"][0]
check("an empty string", v["message"]["tool_calls"][0]["function"] == {"name": "say", "arguments": '{"text": ""}'}, v)
v = chat(tools=[look], tool_choice="required", logit_bias={"2044": 100})["choices"][0]  # <|open|>: another call
check("many calls", len(v["message"]["tool_calls"]) > 1, v)
v = chat(tools=[short], tool_choice="required", parallel_tool_calls=False)["choices"][0]
call = v["message"]["tool_calls"][0]["function"]
check("a schema that asks more", len(json.loads(call["arguments"])["text"]) <= 2, v)

# A form, alone and where calls may stand for it.
form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {
    "type": "object", "properties": {"b": {"enum": ["x", "y"]}}, "required": ["b"], "additionalProperties": False}}}
v = chat(response_format=form)["choices"][0]
check("a form", json.loads(v["message"]["content"])["b"] in "xy" and v["finish_reason"] == "stop", v)
v = chat(response_format=form, tools=[look], logit_bias={"2045": -100})["choices"][0]
check("a form beside tools", json.loads(v["message"]["content"])["b"] in "xy", v)
v = chat(response_format=form, tools=[look], logit_bias=CLOSE, parallel_tool_calls=False)["choices"][0]
check("a call in place of it", v["message"]["tool_calls"][0]["function"]["name"] == "look", v)

# A stream has the same.
text = chat(tools=[look], tool_choice="required", parallel_tool_calls=False, stream=True)
check("a stream", '"name":"look"' in text.replace(" ", "") and "<|" not in text, text)

# What the template is told: how hard to think, that calls must come, the form.
def prompt(**more):
    return chat(max_tokens=1, **more)["usage"]["prompt_tokens"]

plain = prompt()
check("thinking", prompt(reasoning_effort="low") > plain + 20, plain)
check("an effort that the template does not know", prompt(reasoning_effort="medium") == prompt(reasoning_effort="high"),
      plain)
check("a form is told", prompt(response_format=form) > plain + 20, plain)
check("that a call must come", prompt(tools=[look], tool_choice="required") > prompt(tools=[look]) + 10, plain)
v = chat(reasoning_effort="low", max_tokens=4, ignore_eos=True)["choices"][0]["message"]
check("thoughts", v.get("reasoning_content") and not v["content"], v)
sys.exit(failures != 0)
END
serve_stop || fail "the server ended with status $?: $(tail -n 5 "$work/err")"

[ $failures = 0 ] && echo "kimi-k3: calls and forms are held to its tags"
[ $failures = 0 ]
