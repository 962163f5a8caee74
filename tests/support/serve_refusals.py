# What a server must refuse, in every dialect: python3 serve_refusals.py URL MODEL. One line per defect found.
import http.client, json, socket, sys, time
from urllib.parse import urlparse

url, model = urlparse(sys.argv[1]), sys.argv[2]
failures = 0


def fail(text):
    global failures
    failures += 1
    print("FAILED:", text)


def said(text):
    return isinstance(text, str) and len(text) > 10


def openai_error(v):
    return said(v["error"]["message"]) and isinstance(v["error"]["type"], str)


def anthropic_error(v):
    return v["type"] == "error" and said(v["error"]["message"]) and isinstance(v["error"]["type"], str)


def ollama_error(v):
    return said(v["error"])


def conversation(text):
    return {"messages": [{"role": "user", "content": text}]}


# path, a request that says a text, its error's shape, its own name of max_tokens, where a schema stands
dialects = [
    ("/v1/chat/completions", conversation, openai_error, "max_tokens",
     lambda s: {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": s}}}),
    ("/v1/completions", lambda t: {"prompt": t}, openai_error, "max_tokens", None),
    ("/v1/responses", lambda t: {"input": t}, openai_error, "max_output_tokens",
     lambda s: {"text": {"format": {"type": "json_schema", "name": "x", "schema": s}}}),
    ("/v1/embeddings", lambda t: {"input": t}, openai_error, None, None),
    ("/v1/messages", lambda t: {**conversation(t), "max_tokens": 8}, anthropic_error, "max_tokens", None),
    ("/v1/messages/count_tokens", conversation, anthropic_error, None, None),
    ("/api/chat", lambda t: {**conversation(t), "stream": False}, ollama_error, "num_predict",
     lambda s: {"format": s}),
    ("/api/generate", lambda t: {"prompt": t, "stream": False}, ollama_error, "num_predict", lambda s: {"format": s}),
    ("/api/embed", lambda t: {"input": t, "truncate": False}, ollama_error, None, None),
]


def post(path, body):
    c = http.client.HTTPConnection(url.hostname, url.port, timeout=120)
    c.request("POST", path, body)
    r = c.getresponse()
    text = r.read()
    c.close()
    return r.status, text


def refused(dialect, what, body, statuses=(400,), pattern=""):
    path, _, is_error = dialect[:3]
    began = time.monotonic()
    try:
        status, text = post(path, body)
        v = json.loads(text)
        if status not in statuses or not is_error(v) or pattern not in text.decode():
            fail(f"{path}: {what}: status {status}: {text[:300]}")
    except Exception as e:
        fail(f"{path}: {what}: {e!r}")
    if time.monotonic() - began > 60:
        fail(f"{path}: {what}: took {time.monotonic() - began:.0f} s")


def dump(v):
    return json.dumps(v).encode()


deep = 100000
for d in dialects:
    path, say, _, limit, schema = d
    good = say("hi")
    for what, body in [
        ("nothing", b""), ("half", b'{"a":'), ("no JSON", b"hello"), ("two values", b"{} {}"),
        ("an array", b"[]"), ("a number", b"3"), ("null", b"null"), ("a comma too many", b'{"a": 1,}'),
        ("deep arrays", b"[" * deep), ("deep objects", b'{"a":' * deep), ("deep and closed", b"[" * deep + b"]" * deep),
        ("no UTF-8", dump(good).replace(b"hi", b"\xff\xfe")), ("cut UTF-8", dump(good).replace(b"hi", b"\xe2\x82")),
        ("overlong UTF-8", dump(good).replace(b"hi", b"\xc0\xaf")), ("half an escape", dump(good).replace(b"hi", b"\\ud8")),
        ("no number", b'{"n": 1e999}'),
    ]:
        refused(d, what, body)
    refused(d, "another model", dump({**good, "model": "gpt-4o"}), (404,), model)
    refused(d, "model: 3", dump({**good, "model": 3}))
    refused(d, "100 MB", b" " * 100_000_000, (413,), "too large")
    if path not in ("/v1/messages/count_tokens",):
        # LiteLLM and others know it by OpenAI's code, Claude Code by Anthropic's words.
        pattern = "context_length_exceeded" if d[2] is openai_error else "prompt is too long: "
        refused(d, "a long prompt", dump(say("word " * 2000)), pattern=pattern)
        # Of its bytes alone it is known that it cannot fit.
        for words in (pattern, "at least "):
            refused(d, "a huge prompt", dump(say(" " * 4_000_000)), pattern=words)
    field = next(iter(good))
    for wrong in (3, True, {"a": 1}, [[[]]], [None], [3.5], [{"role": 3}]):
        refused(d, f"{field}: {wrong}", dump({**good, field: wrong}))
    if path in ("/v1/completions", "/api/generate"):
        refused(d, "a suffix", dump({**good, "suffix": "there"}), pattern="suffix")
    if path == "/v1/chat/completions":
        refused(d, "no content", dump({"messages": [{"role": "user"}]}), pattern="content is missing")
    if limit is None:
        continue
    inner = (lambda v: {**good, "options": v}) if limit == "num_predict" else (lambda v: {**good, **v})
    for name, wrong in [
        ("temperature", "hot"), ("temperature", -1), ("temperature", 9), ("top_p", [1]), ("top_p", 1.5), ("seed", "x"),
        (limit, "x"), (limit, 1.5), (limit, 10**12), (limit, -5), ("top_k", -2), ("logit_bias", {"x": 1}), ("logit_bias", [1]),
    ]:
        refused(d, f"{name}: {wrong}", dump(inner({name: wrong})))
    for number in (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"nan"):
        refused(d, "temperature: " + number.decode(), dump(inner({"temperature": 77})).replace(b"77", number))
    refused(d, "stream: yes", dump({**good, "stream": "yes"}))
    if schema is None:
        continue
    for bad in [
        {"type": "nonsense"}, {"$ref": "#/nowhere"}, {"$ref": "#"}, {"type": "string", "pattern": "("},
        {"enum": []}, {"type": "array", "items": {"type": "string"}, "minItems": 10**9},
        {"type": "string", "minLength": 10**9}, {"allOf": [{"type": "string"}, {"type": "number"}]},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, {"not": {}},
    ]:
        refused(d, f"schema {bad}", dump({**good, **schema(bad)}))
    nested = {"type": "string"}
    for _ in range(400):
        nested = {"anyOf": [nested]}
    status, _ = post(path, dump({**inner({limit: 2}), **schema(nested)}))
    if status not in (200, 400):
        fail(f"{path}: a deep schema: status {status}")


def raw(what, text, status, error):
    """What is no right HTTP is refused in the dialect of its path, too."""
    with socket.create_connection((url.hostname, url.port), timeout=60) as s:
        s.sendall(text)
        head, _, body = b"".join(iter(lambda: s.recv(65536), b"")).partition(b"\r\n\r\n")
    if head.split()[1:2] != [b"%d" % status] or b"\nContent-Type: application/json" not in head:
        fail(f"{what}: {head[:300]}")
        return
    try:
        if not error(json.loads(body)):
            fail(f"{what}: {body[:300]}")
    except (ValueError, KeyError, TypeError):
        fail(f"{what}: no error in its dialect: {body[:300]}")


for path, _, error, _, _ in dialects:
    line, host = b"POST " + path.encode() + b" HTTP/1.1\r\n", b"Host: localhost\r\n"
    raw(f"{path}: no header", line + host + b"nonsense\r\n\r\n", 400, error)
    raw(f"{path}: no Host", line + b"\r\n", 400, error)
    raw(f"{path}: two Hosts", line + host + host + b"\r\n", 400, error)
    raw(f"{path}: HTTP/3", line.replace(b"/1.1", b"/3.0") + host + b"\r\n", 505, error)
    raw(f"{path}: long headers", line + host + b"X: " + b"x" * 40000, 431, error)
    raw(f"{path}: a long path", line[:-11] + b"?" + b"x" * 10000, 414, error)
    raw(f"{path}: a length beyond numbers", line + host + b"Content-Length: 99999999999999999999\r\n\r\n", 413, error)
    raw(f"{path}: a silly chunk", line + host + b"Transfer-Encoding: chunked\r\n\r\nsilly\r\n", 400, error)
    raw(f"{path}: a large chunk", line + host + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 16 + b"\r\n", 413, error)
raw("no request", b"\x16\x03\x01\r\n\r\n", 400, openai_error)

chat = dialects[0]
for wrong in [
    "root", "root ::= x y", 'root ::= "a', "root ::= root", 'root ::= root "a"', 'root ::= ("a" | root) root', "root ::= [z-a]",
    'root ::= "a"{5,2}', 'x ::= "a"', 'root ::= "a"{1000000000}', 'root ::= ((("a"{1000}){1000}){1000}){1000}',
    "root ::= " + "(" * 100000, 'root ::= a b\na ::= b\nb ::= a', "root ::= " + '"a" | ' * 200000,
    'root ::= ("a" | "b") root',
]:
    for path, body in ((dialects[0], conversation("hi")), (dialects[1], {"prompt": "hi"})):
        refused(path, f"grammar {wrong[:60]}", dump({**body, "max_tokens": 8, "grammar": wrong}))
# Right ones: one that may go on for ever, and two that have nothing to say.
for grammar, letters, finish in [
    ('root ::= ("a" | "b"){200,}', set("ab"), ["length"]), ('root ::= ""', set(), ["stop"]), ('root ::= (""*)*', set(), ["stop"]),
]:
    status, text = post(chat[0], dump({**conversation("hi"), "max_tokens": 30, "grammar": grammar}))
    v = json.loads(text)
    if status != 200 or v["choices"][0]["finish_reason"] not in finish or set(v["choices"][0]["message"]["content"]) - letters:
        fail(f"{grammar}: {status} {text[:300]}")

status, text = post(chat[0], dump({**conversation("hi"), "max_tokens": 3}))
if status != 200:
    fail(f"after all that: {status} {text[:300]}")
sys.exit(failures > 0)
