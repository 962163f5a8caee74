# A rank dies under load: python3 serve_lost.py LOCKSTEP MODEL. Streams in every dialect, and whole answers
# beside them, hear of it within a second, /health says why, and with --restart the server comes back.
import http.client, json, os, signal, subprocess, sys, threading, time

program, model = sys.argv[1:]
failures = 0


def fail(text):
    global failures
    failures += 1
    print("FAILED:", text)


def sse(text):
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def ndjson(text):
    return [json.loads(line) for line in text.splitlines()]


messages = [{"role": "user", "content": "What is a bit bucket?"}]
endless = {"ignore_eos": True, "stream": True}
# path, request, how its stream is read, the sentence in what must be its last event
dialects = [
    ("/v1/chat/completions", {"messages": messages, **endless}, sse, lambda e: e["error"]["message"]),
    ("/v1/chat/completions", {"messages": messages, **endless, "n": 3}, sse, lambda e: e["error"]["message"]),
    ("/v1/completions", {"prompt": ["A bit", "A byte"], "max_tokens": 7000, **endless}, sse, lambda e: e["error"]["message"]),
    ("/v1/responses", {"input": "What?", **endless}, sse,
     lambda e: e["type"] == "response.failed" and e["response"]["status"] == "failed" and e["response"]["error"]["message"]),
    ("/v1/messages", {"messages": messages, "max_tokens": 7000, **endless}, sse,
     lambda e: e["type"] == "error" and e["error"]["message"]),
    ("/api/chat", {"messages": messages, "options": {"ignore_eos": True}}, ndjson, lambda e: e["error"]),
    ("/api/generate", {"prompt": "What?", "options": {"ignore_eos": True}}, ndjson, lambda e: e["error"]),
]


class Server:
    def __init__(self, *options):
        self.process = subprocess.Popen(
            [program, "serve", model, "-q", "--port", "0", "--ranks", "2", "--threads", "1", *options], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True)
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])

    def ask(self, method, path, body=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        c.request(method, path, json.dumps(body) if body is not None else None)
        r = c.getresponse()
        return r.status, r.read().decode()

    def worker(self):
        found = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True).stdout.split()
        return int(found[0])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60)
        if status != 0:
            fail(f"the server ended with status {status}")


class Request(threading.Thread):
    """Reads an answer to its end. started: something of it has come."""

    def __init__(self, server, dialect, whole=False):
        super().__init__(daemon=True)
        self.server, self.dialect, self.whole = server, dialect, whole
        self.started, self.text, self.ended = threading.Event(), "", 0
        self.start()

    def run(self):
        path, body, _, _ = self.dialect
        if self.whole:
            body = {**body, "stream": False}
            self.started.set()
        c = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=120)
        c.request("POST", path, json.dumps(body))
        r = c.getresponse()
        self.status, data = r.status, b""
        while True:
            piece = r.read1(65536)
            if not piece:
                break
            data += piece
            if len(data) > 3000:
                self.started.set()
        self.ended = time.monotonic()
        self.text = data.decode()


def check_rank_metrics(server):
    text = server.ask("GET", "/metrics")[1]
    for name in ("compute_seconds_total", "fabric_seconds_total", "resident_bytes"):
        for rank in (0, 1):
            line = [l for l in text.splitlines() if l.startswith(f'lockstep_rank_{name}{{rank="{rank}"}} ')]
            if len(line) != 1 or not float(line[0].split()[1]) > 0:
                fail(f"/metrics: rank_{name} of rank {rank}: {line}")


def kill_under_load(server):
    """Seconds until the last stream knew."""
    requests = [Request(server, d) for d in dialects] + [Request(server, d, whole=True) for d in dialects]
    for r in requests:
        r.started.wait(60)
    os.kill(server.worker(), signal.SIGKILL)
    killed = time.monotonic()
    for r in requests:
        r.join(60)
        path, _, read, sentence = r.dialect
        what = f"{path}{' (whole)' if r.whole else ''}"
        try:
            if r.whole:
                said, want = r.text, 503
            else:
                said, want = sentence(read(r.text)[-1]), 200
            if r.status != want or "rank 1" not in said:
                fail(f"{what}: status {r.status}: {said!r}")
        except Exception as e:
            fail(f"{what}: {e!r}: {r.text[-300:]}")
    return max(r.ended for r in requests) - killed


def health(server):
    status, text = server.ask("GET", "/health")
    return status, json.loads(text)


short = {"messages": messages, "temperature": 0, "max_tokens": 20}

# ---- without --restart: it stays down, and says why -----------------------------------------------------------
server = Server()
status, before = server.ask("POST", "/v1/chat/completions", short)
before = json.loads(before)["choices"][0]["message"]["content"]
check_rank_metrics(server)
kill_under_load(server)
status, v = health(server)
if status != 503 or v["status"] != "unhealthy" or "rank 1" not in v["why"]:
    fail(f"/health: {status} {v}")
for path, body, _, _ in dialects:
    status, text = server.ask("POST", path, body)
    if status != 503 or "rank 1" not in text:
        fail(f"{path} after the loss: {status} {text[:200]}")
if "\nlockstep_healthy 0\n" not in server.ask("GET", "/metrics")[1]:
    fail("/metrics does not say that it is unhealthy")
server.stop()

# ---- with --restart: it comes back, twice; a busy machine has several tries for the second ----------------------
server = Server("--restart")
took = []
while len(took) < 2 or (min(took) > 1.0 and len(took) < 5):
    took.append(kill_under_load(server))
    until = time.monotonic() + 60
    while health(server)[0] != 200 and time.monotonic() < until:
        time.sleep(0.05)
    status, text = server.ask("POST", "/v1/chat/completions", short)
    if status != 200 or json.loads(text)["choices"][0]["message"]["content"] != before:
        fail(f"after the restart: {status} {text[:300]}, expected {before!r}")
if min(took) > 1.0:
    fail(f"the streams heard of it after {took} s")
server.stop()
print(f"lost ranks: {2 * len(dialects)} requests heard of it after {', '.join(f'{t:.2f}' for t in took)} s")
sys.exit(failures > 0)
