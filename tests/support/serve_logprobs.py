"""Probabilities of prompts and of answers: serve_logprobs.py URL."""
import json
import math
import sys
import urllib.error
import urllib.request

url = sys.argv[1]


def ask(path, body, want=200):
    try:
        with urllib.request.urlopen(url + path, json.dumps(body).encode(), timeout=60) as r:
            status, text = r.status, r.read()
    except urllib.error.HTTPError as e:
        status, text = e.code, e.read()
    assert status == want, (path, body, status, text[:300])
    return text if body.get("stream") else json.loads(text)


def complete(**fields):
    return ask("/v1/completions", {"temperature": 0, **fields})


def pieces(text):
    return [json.loads(line[6:]) for line in text.decode().splitlines() if line.startswith("data: {")]


def tokens(text):
    return ask("/tokenize", {"content": text})["tokens"]


# ---- a harness's request, and what it reads of the answer ----------------------------------------------------
# lm-eval's local-completions: prompts as tokens or text, one token more, which it leaves out.
HARNESS = {"model": "jargon-3m-f16", "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}


def harness_score(choice, n_context):
    """As its parse_logprobs(): the sum of the continuation, and whether it is the greedy one."""
    logprobs = choice["logprobs"]
    own = logprobs["token_logprobs"][n_context:-1]
    tops = logprobs["top_logprobs"][n_context:-1]
    return sum(own), all(token == max(top.values()) for token, top in zip(own, tops))


context = "What is a bit bucket? "
answer = complete(prompt=context, max_tokens=40, logprobs=1)["choices"][0]
ids, greedy = tokens(context), answer["logprobs"]
# The greedy answer's tokens, by their own words: each is text that says which it is.
whole = ids + [i for t in greedy["tokens"] for i in tokens(t)]
assert len(whole) == len(ids) + 40
scored = complete(prompt=whole, **HARNESS)["choices"][0]
# Token by token or at once: the same numbers, in every digit.
assert scored["logprobs"]["token_logprobs"][len(ids):-1] == greedy["token_logprobs"]
assert scored["logprobs"]["top_logprobs"][len(ids):-1] == greedy["top_logprobs"]
assert harness_score(scored, len(ids)) == (sum(greedy["token_logprobs"]), True)
assert scored["text"].startswith(context + answer["text"])
assert harness_score(complete(prompt=whole[:-1] + [whole[0]], **HARNESS)["choices"][0], len(ids))[1] is False

# Several at once, of any kind, and again, when they are in the cache: each as if it were alone.
texts = ["What is a bit bucket?", whole, "A", "caf\u00e9 \u2603", ids + ids]
together = complete(prompt=whole, **{**HARNESS, "max_tokens": 0})["choices"][0]
alone = [complete(prompt=t, **HARNESS)["choices"][0] for t in texts]
many = [complete(prompt=t, **HARNESS) for t in (texts[1:2] * 3, texts[4:])]
for choices, same in zip(many, (alone[1], alone[4])):
    for c in choices["choices"]:
        assert {**c, "index": 0} == same
assert together["logprobs"]["token_logprobs"] == alone[1]["logprobs"]["token_logprobs"][:-1]
assert together["text"] == ask("/detokenize", {"tokens": whole})["content"]

# ---- the shape -------------------------------------------------------------------------------------------
for choice, text in zip(alone, texts):
    p = choice["logprobs"]
    n = len(p["tokens"])
    assert n == len(p["token_logprobs"]) == len(p["top_logprobs"]) == len(p["text_offset"])
    assert p["token_logprobs"][0] is None and p["top_logprobs"][0] is None
    assert all(v <= 0 and math.isfinite(v) for v in p["token_logprobs"][1:])
    assert all(p["tokens"][i] in p["top_logprobs"][i] for i in range(1, n))
    if isinstance(text, str):
        assert choice["text"].startswith(text)
    plain = [i for i in range(n) if not p["tokens"][i].startswith("bytes:")]
    for i in plain:
        assert choice["text"][p["text_offset"][i]:].startswith(p["tokens"][i]), (i, p["tokens"][i], choice["text"])
    if len(plain) == n:
        assert "".join(p["tokens"]) == choice["text"]
zero = complete(prompt="A bit bucket", echo=True, logprobs=0, max_tokens=0)
assert zero["choices"][0]["text"] == "A bit bucket" and zero["usage"]["completion_tokens"] == 0
assert all(len(top) == 1 for top in zero["choices"][0]["logprobs"]["top_logprobs"][1:])
five = complete(prompt="A bit bucket", echo=True, logprobs=5, max_tokens=0)["choices"][0]["logprobs"]
assert all(5 <= len(top) <= 6 for top in five["top_logprobs"][1:])
assert five["token_logprobs"] == zero["choices"][0]["logprobs"]["token_logprobs"]
bare = complete(prompt="A bit", echo=True, max_tokens=3)["choices"][0]
assert bare["logprobs"] is None and bare["text"] == "A bit" + complete(prompt="A bit", max_tokens=3)["choices"][0]["text"]

# Streamed: the prompt first, once for each choice.
for fields in ({"max_tokens": 4}, {"max_tokens": 0}, {"max_tokens": 4, "n": 2}, {"max_tokens": 4, "logprobs": 1}):
    request = {"prompt": ["A bit", "A byte"], "echo": True, **fields}
    expected = complete(**request)["choices"]
    events = pieces(complete(**request, stream=True))
    for choice in expected:
        parts = [e["choices"][0] for e in events if e["choices"][0]["index"] == choice["index"]]
        assert "".join(c["text"] for c in parts) == choice["text"], (fields, parts)
        if "logprobs" in fields:
            assert sum((c["logprobs"]["tokens"] for c in parts if c["logprobs"]), []) == choice["logprobs"]["tokens"]
            assert sum((c["logprobs"]["text_offset"] for c in parts if c["logprobs"]), []) == choice["logprobs"]["text_offset"]
        assert parts[-1]["finish_reason"] == "length"

# Refused.
why = ask("/v1/completions", {"prompt": [[5] * 400] * 64, "echo": True, "logprobs": 20, "max_tokens": 0}, want=400)
assert "the prompts may have 25600 tokens" in why["error"]["message"], why
ask("/v1/completions", {"prompt": [[5] * 400] * 64, "echo": True, "max_tokens": 0})
why = ask("/v1/completions", {"prompt": "a", "suffix": "b", "echo": True}, want=400)
assert "echo is not supported with a suffix" in why["error"]["message"]
ask("/v1/completions", {"prompt": "a", "echo": "yes"}, want=400)
ask("/v1/completions", {"prompt": [[1 << 30]], "echo": True}, want=400)

# ---- n_probs, as llama.cpp's server has it ------------------------------------------------------------------
plain = complete(prompt="A bit bucket", max_tokens=6, logprobs=3)["choices"][0]
r = ask("/completion", {"prompt": "A bit bucket", "n_predict": 6, "temperature": 0, "n_probs": 3})
probs = r["completion_probabilities"]
assert len(probs) == r["tokens_predicted"] == 6 and "".join(p["token"] for p in probs) == r["content"] == plain["text"]
for p, logprob, top in zip(probs, plain["logprobs"]["token_logprobs"], plain["logprobs"]["top_logprobs"]):
    assert set(p) == {"id", "token", "bytes", "logprob", "top_logprobs"} and len(p["top_logprobs"]) == 3
    assert p["logprob"] == logprob and bytes(p["bytes"]).decode() == p["token"]
    assert {t["token"]: t["logprob"] for t in p["top_logprobs"]} == top and p["top_logprobs"][0]["id"] == p["id"]
assert "completion_probabilities" not in ask("/completion", {"prompt": "A", "n_predict": 1})
events = pieces(ask("/completion", {"prompt": "A bit bucket", "n_predict": 6, "temperature": 0, "n_probs": 3, "stream": True}))
assert sum((e["completion_probabilities"] for e in events), []) == probs and events[-1]["stop"]
# After all settings: what is drawn from, and nothing else.
for settings, n in (({"temperature": 0}, 1), ({"top_k": 2, "top_p": 1, "min_p": 0}, 2), ({"top_k": 0, "top_p": 1, "min_p": 0}, 5)):
    r = ask("/completion", {"prompt": "A bit", "n_predict": 8, "n_probs": 5, "post_sampling_probs": True, "seed": 3, **settings})
    for p in r["completion_probabilities"]:
        assert set(p) == {"id", "token", "bytes", "prob", "top_probs"} and 1 <= len(p["top_probs"]) <= n
        total = sum(t["prob"] for t in p["top_probs"])
        assert total < 1 + 1e-6 and (n == 5 or total > 1 - 1e-6), total
        assert 0 < p["prob"] <= p["top_probs"][0]["prob"] <= 1
ask("/completion", {"prompt": "A", "n_probs": 21}, want=400)
ask("/infill", {"input_prefix": "A", "input_suffix": "b", "n_probs": 2}, want=400)
