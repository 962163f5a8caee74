"""serve_history.py URL TEMPLATE: conversations with calls, as the clients of each dialect send them back."""
import json
import sys
import urllib.error
import urllib.request

url, template = sys.argv[1:]
failures = 0
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "look", "description": "looks", "parameters": SCHEMA}}]
RESPONSES_TOOLS = [{"type": "function", "name": "look", "description": "looks", "parameters": SCHEMA}]
ANTHROPIC_TOOLS = [{"name": "look", "description": "looks", "input_schema": SCHEMA}]
IMAGE = "[image left out: this model reads text only]"


def post(path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as f:
            return f.status, json.load(f)
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def fail(*what):
    global failures
    failures += 1
    print("FAILED:", template, *what)


def tokens(path, body):
    """Of the prompt; None where there is none."""
    status, v = post(path, body)
    if status != 200:
        fail(path, status, v)
        return None
    if path == "/api/chat":
        return v["prompt_eval_count"]
    if path == "/v1/messages/count_tokens":
        return v["input_tokens"]
    usage = v["usage"]
    if path == "/v1/messages":  # those that were computed, and those that were kept
        return usage["input_tokens"] + usage["cache_read_input_tokens"]
    return usage.get("prompt_tokens", usage.get("input_tokens"))


def same(path, body, plain):
    a, b = tokens(path, body), tokens(path, plain)
    if a != b:
        fail(path, f"{a} tokens rather than {b}:", json.dumps(body))


def chat(result, **fields):
    call = {"id": "call_8315aabbccdd", "type": "function", "function": {"name": "look", "arguments": ""}}
    message = {"role": "assistant", "content": None, "tool_calls": [call], **fields}
    tool = {"role": "tool", "tool_call_id": call["id"], "content": result}
    return {"messages": [{"role": "user", "content": "q"}, message, tool], "tools": TOOLS, "max_tokens": 1}


def responses(result):
    call = {"type": "function_call", "call_id": "call_8315aabbccdd", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": result}
    question = {"role": "user", "content": "q"}
    return {"input": [question, call, output], "tools": RESPONSES_TOOLS, "max_output_tokens": 1}


def anthropic(result):
    call = {"type": "tool_use", "id": "toolu_0123456789", "name": "look", "input": {}}
    back = {"type": "tool_result", "tool_use_id": call["id"], "content": result}
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": [call]},
                {"role": "user", "content": [back]}]
    return {"messages": messages, "tools": ANTHROPIC_TOOLS, "max_tokens": 1}


def ollama(result, **fields):
    message = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look", "arguments": {}}}]}
    tool = {"role": "tool", "tool_name": "look", "content": result, **fields}
    return {"messages": [{"role": "user", "content": "q"}, message, tool], "tools": TOOLS, "stream": False,
            "options": {"num_predict": 1}}


def results():
    """No result is an empty one; of an image it is said that there was one."""
    text = {"type": "text", "text": "seen"}
    same("/v1/chat/completions", chat(None), chat(""))
    same("/v1/chat/completions", chat([{"type": "image_url", "image_url": {"url": "data:"}}]), chat(IMAGE))
    same("/v1/chat/completions", chat("r", refusal=None, function_call=None, audio=None), chat("r"))
    same("/v1/responses", responses(None), responses(""))
    same("/v1/responses", responses([{"type": "input_image", "image_url": "data:"}]), responses(IMAGE))
    same("/v1/messages", anthropic(None), anthropic(""))
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    same("/v1/messages", anthropic([text, image]), anthropic("seen\n" + IMAGE))
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}
    same("/v1/messages", anthropic([document]), anthropic("words"))
    found = {"type": "search_result", "title": "A", "source": "http://b", "content": [{"type": "text", "text": "words"}]}
    same("/v1/messages", anthropic([found]), anthropic("A\nhttp://b\nwords"))
    said = {"messages": [{"role": "user", "content": [found, {"type": "text", "text": "q"}]}], "max_tokens": 1}
    same("/v1/messages", said, {**said, "messages": [{"role": "user", "content": "A\nhttp://b\nwords\nq"}]})
    same("/v1/messages", anthropic([{"type": "tool_reference", "tool_name": "look"}]), anthropic("[the tool look]"))
    same("/api/chat", ollama("seen", images=["AAAA"]), ollama("seen" + IMAGE))
    status, v = post("/v1/messages", anthropic(5))
    if status != 400:
        fail("a number as a result:", status, v)
    user = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]
    status, v = post("/v1/chat/completions", {"messages": user, "max_tokens": 1})
    if status != 400 or "images are not supported by this model" not in v:
        fail("a user's image:", status, v)


def plain_history():
    """A template that knows no tools is told of past calls in text, also once no tools are offered any more."""
    told = [{"role": "user", "content": "q"},
            {"role": "assistant", "content": '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'},
            {"role": "user", "content": "<tool_response>\nseen\n</tool_response>"}]
    plain = {"messages": told, "max_tokens": 1}
    said = chat("seen")
    same("/v1/chat/completions", {**said, "tool_choice": "none"}, plain)
    same("/v1/chat/completions", {**said, "tools": []}, plain)
    said = anthropic("seen")
    for path in "/v1/messages", "/v1/messages/count_tokens":
        same(path, {**said, "tool_choice": {"type": "none"}}, plain)
        same(path, {**said, "tools": []}, plain)
    same("/api/chat", {**ollama("seen"), "tools": []}, {**ollama("seen"), "messages": told, "tools": []})


def turns():
    """Where roles must alternate: neighbours are one message, and the user may speak after a tool's result."""
    def ask(*messages, **fields):
        return {"messages": list(messages), "max_tokens": 1, **fields}
    q, go, answer = ({"role": r, "content": t} for r, t in (("user", "q"), ("user", "go on"), ("assistant", "so")))
    nothing = {"user": {"role": "user", "content": " "}, "assistant": {"role": "assistant", "content": " "}}
    one = {"role": "user", "content": "q\n\ngo on"}
    paths = "/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"
    for path in paths:
        same(path, ask(q, go), ask(one))
        same(path, ask(answer, q), ask(nothing["user"], answer, q))
    said = chat("seen")["messages"]
    blocks = anthropic("seen")["messages"]
    both = {"role": "user", "content": [*blocks[2]["content"], {"type": "text", "text": "go on"}]}
    if template == "google-gemma-2-2b-it":  # results are the user's, too
        calls = {**said[1], "tool_calls": said[1]["tool_calls"] * 2}
        call = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
        seen = "<tool_response>\nseen\n</tool_response>"
        told = [q, {"role": "assistant", "content": call}, {"role": "user", "content": seen + "\n\ngo on"}]
        twice = [q, {"role": "assistant", "content": call + "\n" + call},
                 {"role": "user", "content": seen + "\n\n" + seen}]
        for tools in TOOLS, []:
            same(paths[0], ask(*said, go, tools=tools), ask(*told, tools=tools))
            same(paths[0], ask(q, calls, said[2], said[2], tools=tools), ask(*twice, tools=tools))
        for tools in ANTHROPIC_TOOLS, []:
            for path in paths[1:]:
                same(path, ask(*blocks[:2], both, tools=tools), ask(*told, tools=tools))
    else:
        same(paths[0], ask(*said, go, tools=TOOLS), ask(*said, nothing["assistant"], go, tools=TOOLS))
        for path in paths[1:]:
            same(path, ask(*blocks[:2], both, tools=ANTHROPIC_TOOLS),
                 ask(*blocks, nothing["assistant"], go, tools=ANTHROPIC_TOOLS))


def efforts():
    """An effort turns thinking on where that is a switch, and the client's own word counts."""
    ask = {"messages": [{"role": "user", "content": "q"}], "max_tokens": 1}
    on, off = ({**ask, "chat_template_kwargs": {"enable_thinking": v}} for v in (True, False))
    path = "/v1/chat/completions"
    if tokens(path, on) == tokens(path, off):
        fail("the template knows no enable_thinking")
    same(path, {**ask, "reasoning_effort": "high"}, on)
    same(path, {**ask, "reasoning_effort": "minimal"}, on)
    same(path, {**ask, "reasoning_effort": "none"}, off)
    same(path, {**off, "reasoning_effort": "high"}, off)
    same(path, {**ask, "reasoning_effort": "high", "chat_template_kwargs": {"thinking": False}}, off)
    same("/v1/responses", {"input": "q", "max_output_tokens": 1, "reasoning": {"effort": "low"}},
         {"input": "q", "max_output_tokens": 1, "chat_template_kwargs": {"enable_thinking": True}})
    same("/v1/messages", {**ask, "output_config": {"effort": "high"}}, off)
    same("/v1/messages", {**ask, "output_config": {"effort": "low"}, "thinking": {"type": "adaptive"}},
         {**ask, "thinking": {"type": "enabled"}})
    same("/api/chat", {**ask, "stream": False, "think": "high"}, {**ask, "stream": False, "think": True})


def efforts_of_harmony():
    """The template says the effort in words, each of as many tokens as it has."""
    ask = {"messages": [{"role": "user", "content": "q"}], "max_tokens": 1}
    counted = {}
    for effort in "low", "medium", "high":
        counted[effort] = tokens("/v1/chat/completions", {**ask, "reasoning_effort": effort})
        if tokens("/v1/messages", {**ask, "output_config": {"effort": effort}}) != counted[effort]:
            fail("/v1/messages: effort", effort)
    if len(set(counted.values())) < 2:
        fail("the template says no effort", counted)
    for effort in "xhigh", "max":
        if tokens("/v1/messages", {**ask, "output_config": {"effort": effort}}) != counted["high"]:
            fail("/v1/messages: effort", effort)


results()
if template == "openai-gpt-oss-120b":
    efforts_of_harmony()
if template in ("google-gemma-2-2b-it", "microsoft-Phi-3.5-mini-instruct"):
    plain_history()
if template.startswith("mistralai-") or template == "google-gemma-2-2b-it":
    turns()
if template == "deepseek-ai-DeepSeek-V3.1":
    efforts()
sys.exit(failures > 0)
