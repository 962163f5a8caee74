"""Requests by the name of the client that sends them: client_requests.py URL [fim]."""
import json
import sys
import urllib.error
import urllib.request

url = sys.argv[1]
MODEL = "jargon-3m-f16"
MESSAGES = [{"role": "user", "content": "What is a bit bucket?"}]


def ask(path, body=None, want=200, method=None, headers=None):
    """Text of the answer and its headers; or its JSON, if it is some."""
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json", **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as r:
            status, text, told = r.status, r.read().decode(), r.headers
    except urllib.error.HTTPError as e:
        status, text, told = e.code, e.read().decode(), e.headers
    assert status == want, (path, body, status, text[:400])
    try:
        return json.loads(text), told
    except ValueError:
        return text, told


def answer(path, body=None, **how):
    return ask(path, body, **how)[0]


def pieces(text):
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def llama_vim():
    """Its fim_inline(): the fields it names, under the names it names; and the warm-up before it."""
    fields = ["content", "timings/prompt_n", "timings/prompt_ms", "timings/prompt_per_token_ms", "timings/prompt_per_second",
              "timings/predicted_n", "timings/predicted_ms", "timings/predicted_per_token_ms", "timings/predicted_per_second",
              "truncated", "tokens_cached"]
    request = {"input_prefix": "The bit bucket\n", "input_suffix": "\nof a machine\n", "prompt": "is ", "n_predict": 12, "n_indent": 0,
               "input_extra": [{"text": "A byte is eight bits.\n", "time": 17, "filename": "bytes.txt"}], "top_k": 40, "top_p": 0.99,
               "stream": False, "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True, "t_max_prompt_ms": 500,
               "t_max_predict_ms": 1000, "response_fields": fields}
    r = answer("/infill", request)
    assert set(r) == set(fields) and isinstance(r["content"], str) and r["truncated"] is False
    assert r["timings/predicted_n"] <= 12 and r["timings/predicted_per_second"] > 0
    r = answer("/infill", {**request, "input_prefix": "", "input_suffix": "", "prompt": "", "n_predict": 0, "response_fields": [""]})
    assert isinstance(r, dict)
    assert "content" in answer("/infill", {**request, "response_fields": []})


def continue_autocomplete():
    """OpenAI's older API with a suffix, as Continue and Tabby ask for completions of code."""
    r = answer("/v1/completions", {"model": "coder", "prompt": "The bit ", "suffix": " of it", "max_tokens": 8, "temperature": 0.01,
                                   "stop": ["\n\n"], "stream": False})
    assert isinstance(r["choices"][0]["text"], str)


def sillytavern():
    """Text completions with llama.cpp's API: its sliders, all of them, as it sends them when they are off and on."""
    off = {"prompt": "A bit bucket", "max_new_tokens": 8, "max_tokens": 8, "n_predict": 8, "temperature": 1, "top_p": 1, "top_k": 0,
           "typical_p": 1, "typical": 1, "min_p": 0.1, "top_n_sigma": 0, "repetition_penalty": 1.1, "repeat_penalty": 1.1,
           "repetition_penalty_range": 0, "repeat_last_n": 64, "frequency_penalty": 0, "presence_penalty": 0, "do_sample": True,
           "dynatemp_range": 0, "dynatemp_exponent": 1, "smoothing_factor": 0, "mirostat_mode": 0, "mirostat": 0, "mirostat_tau": 5,
           "mirostat_eta": 0.1, "dry_multiplier": 0, "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": 0,
           "dry_sequence_breakers": "[\"\\n\",\":\",\"\\\"\",\"*\"]", "xtc_probability": 0, "xtc_threshold": 0.1, "tfs": 1, "tfs_z": 1, "top_a": 0,
           "min_keep": 0, "penalize_nl": False, "ignore_eos": False, "ban_eos_token": False, "add_bos_token": True, "grammar": "",
           "json_schema": None, "n_probs": 10, "logit_bias": [], "seed": 7, "stop": ["\nUser:"], "stopping_strings": ["\nUser:"],
           "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "tfs_z", "typical_p", "xtc", "top_p", "adaptive_p", "min_p", "temperature"],
           "cache_prompt": True, "api_type": "llamacpp", "truncation_length": 512}
    plain = answer("/completion", {**off, "stream": False})
    assert len(plain["completion_probabilities"]) == plain["tokens_predicted"] and len(plain["completion_probabilities"][0]["top_logprobs"]) == 10
    events = pieces(answer("/completion", {**off, "stream": True}))
    assert "".join(e["content"] for e in events) == plain["content"] and events[-1]["stop"]
    # A slider that is moved moves the text; the list of breakers, in each form that programs store it, is that list.
    song = {**off, "prompt": "one two three, one two three, one two", "n_predict": 30, "max_tokens": 30, "ignore_eos": True, "min_p": 0, "top_k": 40}
    base = answer("/completion", song)["content"]
    for moved in ({"dry_multiplier": 4, "dry_allowed_length": 1, "dry_penalty_last_n": -1}, {"xtc_probability": 1, "xtc_threshold": 0.02},
                  {"top_n_sigma": 0.3}, {"repeat_penalty": 1.9, "repetition_penalty": 1.9, "repeat_last_n": -1}):
        assert answer("/completion", {**song, **moved})["content"] != base, moved
    dry = {**song, "temperature": 0, "dry_multiplier": 4, "dry_allowed_length": 1, "dry_penalty_last_n": -1}
    texts = [answer("/completion", {**dry, "dry_sequence_breakers": b})["content"] for b in (["o", "e", "t", " "], [])]
    assert texts[0] != texts[1], texts
    for breakers in (["o", "e", "t", " "], []):
        as_list = answer("/completion", {**dry, "dry_sequence_breakers": breakers})["content"]
        for text in (json.dumps(breakers), json.dumps(breakers)[1:-1]):
            if text != "":
                assert answer("/completion", {**dry, "dry_sequence_breakers": text})["content"] == as_list, text
    assert "mirostat is not supported" in json.dumps(answer("/completion", {**off, "mirostat": 2, "mirostat_mode": 2}, want=400))
    # Tokens that are banned, in llama.cpp's form.
    first = answer("/completion", {**off, "temperature": 0})["completion_probabilities"][0]["id"]
    for bias in ([[first, False]], [[first, -100]], {str(first): -100}):
        assert answer("/completion", {**off, "temperature": 0, "logit_bias": bias})["completion_probabilities"][0]["id"] != first
    answer("/completion", {**off, "logit_bias": [[first]]}, want=400)
    # What it asks before: the template, and tokens of a text.
    assert "message" in answer("/props")["chat_template"] and answer("/tokenize", {"content": "A bit"})["tokens"]


def zed():
    """LM Studio's API: what its list must have, by the types that it is read into; and a chat with a tool."""
    for m in answer("/api/v0/models")["data"]:
        assert m["type"] in ("llm", "embeddings", "vlm") and m["state"] in ("loaded", "loading", "not-loaded")
        assert m["compatibility_type"] in ("gguf", "mlx") and all(isinstance(m[k], str) for k in ("id", "object", "publisher", "arch", "quantization"))
        assert m["max_context_length"] >= m["loaded_context_length"] > 0 and "tool_use" in m["capabilities"]
    tool = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}}
    text = answer("/api/v0/chat/completions", {"model": MODEL, "messages": [{"role": "system", "content": "Be brief."}] + MESSAGES, "stream": True,
                                               "max_tokens": 8, "stop": [], "temperature": 0.5, "tools": [tool], "tool_choice": "auto"})
    events = pieces(text)
    assert all(isinstance(e[k], str) for e in events for k in ("model", "object")) and events[-1]["choices"][0]["finish_reason"]
    assert text.rstrip().endswith("data: [DONE]")


def obsidian():
    """Obsidian's and VS Code's windows, and pages of another port, ask before they ask."""
    for origin in ("app://obsidian.md", "vscode-webview://1h2k3", "http://localhost:5173", "http://127.0.0.1:3000"):
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type",
                 "Access-Control-Request-Private-Network": "true"}
        told = ask("/v1/chat/completions", method="OPTIONS", want=204, headers=asked)[1]
        assert told["Access-Control-Allow-Origin"] == origin and told["Access-Control-Allow-Private-Network"] == "true"
        told = ask("/v1/chat/completions", {"model": MODEL, "messages": MESSAGES, "max_tokens": 2}, headers={"Origin": origin})[1]
        assert told["Access-Control-Allow-Origin"] == origin


def open_webui():
    """Lists with either API, a chat in each, and a picture, which gets clear words."""
    assert answer("/v1/models/")["data"][0]["id"] == MODEL and answer("/api/tags")["models"][0]["model"].startswith(MODEL)
    assert answer("/api/version")["version"]
    chat = {"model": MODEL, "messages": MESSAGES, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 4}
    assert pieces(answer("/v1/chat/completions", chat))[-1]["usage"]["completion_tokens"] > 0
    lines = answer("/api/chat", {"model": f"{MODEL}:latest", "messages": MESSAGES, "stream": True, "options": {"num_predict": 4, "repeat_last_n": 64,
                                 "mirostat": 0, "tfs_z": 1, "num_ctx": 512}, "keep_alive": "5m"})
    assert json.loads(lines.splitlines()[-1])["done"] is True
    image = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]
    assert "images are not supported by this model" in answer("/v1/chat/completions", {**chat, "messages": image}, want=400)["error"]["message"]


def langchain():
    """Its classes send -1 for no limit; vLLM's sends all that vLLM knows, with what is off left at its default."""
    vllm = {"model": MODEL, "prompt": "A bit bucket", "n": 1, "best_of": 1, "presence_penalty": 0.0, "frequency_penalty": 0.0, "temperature": 1.0,
            "top_p": 1.0, "top_k": -1, "use_beam_search": False, "stop": None, "ignore_eos": False, "max_tokens": 8, "logprobs": None,
            "stop_token_ids": [], "min_tokens": 0, "skip_special_tokens": True, "spaces_between_special_tokens": True}
    assert answer("/v1/completions", vllm)["usage"]["completion_tokens"] <= 8
    assert answer("/v1/chat/completions", {"model": MODEL, "messages": MESSAGES, "max_tokens": -1})["usage"]["completion_tokens"] > 0
    assert "best_of is not supported; use n" in answer("/v1/completions", {**vllm, "best_of": 3}, want=400)["error"]["message"]
    # Embeddings of as few numbers as its index has.
    assert len(answer("/v1/embeddings", {"model": MODEL, "input": [[1, 2, 3]], "dimensions": 16})["data"][0]["embedding"]) == 16


def vllm_benchmark():
    """vLLM's own benchmark: exact lengths, by ignore_eos and min_tokens, and the ends that tests of models name."""
    body = {"model": MODEL, "prompt": "A bit bucket", "temperature": 0.0, "repetition_penalty": 1.0, "max_tokens": 32, "logprobs": None, "stream": True,
            "ignore_eos": True, "stream_options": {"include_usage": True}, "min_tokens": 32}
    assert pieces(answer("/v1/completions", body))[-1]["usage"]["completion_tokens"] == 32
    plain = answer("/v1/completions", {**body, "stream": False, "stream_options": None, "logprobs": 1})["choices"][0]["logprobs"]["tokens"]
    end = answer("/tokenize", {"content": plain[3]})["tokens"]
    if len(end) == 1:
        r = answer("/v1/completions", {**body, "stream": False, "stream_options": None, "min_tokens": 0, "stop_token_ids": end})
        assert r["choices"][0]["finish_reason"] == "stop" and r["choices"][0]["text"] == "".join(plain[:plain.index(plain[3])])


def guidance_and_outlines():
    """Forms of an answer by the names of vLLM's older and newer versions, in extra_body of OpenAI's library."""
    chat = {"model": MODEL, "messages": MESSAGES, "max_tokens": 60}
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    for form in ({"guided_json": schema}, {"structured_outputs": {"json": schema}}, {"json_schema": schema}):
        assert type(json.loads(answer("/v1/chat/completions", {**chat, **form})["choices"][0]["message"]["content"])["a"]) is bool
    for form in ({"guided_choice": ["on", "off"]}, {"guided_regex": "(on|off)"}, {"guided_grammar": 'root ::= "on" | "off"'},
                 {"structured_outputs": {"choice": ["on", "off"]}}, {"grammar": 'root ::= "on" | "off"'}):
        assert answer("/v1/chat/completions", {**chat, **form})["choices"][0]["message"]["content"] in ("on", "off")
        assert answer("/v1/messages", {**chat, **form})["content"][0]["text"] in ("on", "off")
        r = answer("/v1/responses", {"model": MODEL, "input": "hi", "max_output_tokens": 60, **form})
        assert r["output"][0]["content"][0]["text"] in ("on", "off")


def lists_of_contexts():
    """Roo Code and others read the context of a model from the list, each under its name."""
    m = answer("/v1/models")["data"][0]
    assert m["max_model_len"] == m["context_length"] == m["meta"]["n_ctx"] == answer("/props")["default_generation_settings"]["n_ctx"] > 0
    assert answer("/models")["data"][0]["id"] == m["id"] and len(answer("/slots")) == answer("/props")["total_slots"]


def dashboards():
    """A dashboard for vLLM and one for llama.cpp: the names that their panels ask for."""
    text = answer("/metrics")
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:prompt_tokens_total", "vllm:generation_tokens_total",
                 "vllm:time_to_first_token_seconds_bucket", "llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total"):
        assert f"\n{name}" in text, name


def codex_oss():
    """Before its first turn Codex asks Ollama which version it is, what is there, and pulls it."""
    assert [int(n) for n in answer("/api/version")["version"].split(".")] >= [0, 13, 4]
    assert any(m["name"] == f"{MODEL}:latest" for m in answer("/api/tags")["models"])
    assert answer("/api/pull", {"model": f"{MODEL}:latest", "stream": False})["status"] == "success"


def claude_code():
    """Its first block of instructions differs with each conversation, and is no part of the prompt."""
    def count(billing):
        system = [{"type": "text", "text": t} for t in billing + ["You are terse."]]
        return answer("/v1/messages/count_tokens", {"model": MODEL, "system": system, "messages": MESSAGES})["input_tokens"]
    assert count(["x-anthropic-billing-header: cc_version=2.1.1; cc_entrypoint=cli; cch=0f3;"]) == count([])


for client in ([llama_vim, continue_autocomplete] if sys.argv[2:] == ["fim"] else
               [sillytavern, zed, obsidian, open_webui, langchain, vllm_benchmark, guidance_and_outlines, lists_of_contexts, dashboards,
                codex_oss, claude_code]):
    client()
    print("ok", client.__name__)
