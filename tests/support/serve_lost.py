# A rank dies under load: python3 serve_lost.py LOCKSTEP MODEL FOLDER. Streams in every dialect, and whole answers
# beside them, hear of it within a second, /health says why, and with --restart the server comes back. With --failover
# nobody hears of it: every answer goes on as if nothing had happened, on the machines that are left. FOLDER is for files.
import http.client, json, os, resource, signal, socket, subprocess, sys, threading, time

program, model, folder = sys.argv[1:]
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
    def __init__(self, *options, ranks=("--ranks", "2"), env={}, files=None):
        self.process = subprocess.Popen(
            [program, "serve", model, "-q", "--port", "0", *ranks, "--threads", "1", *options], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env={**os.environ, **env},
            preexec_fn=files and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))))
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])

    def ask(self, method, path, body=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        c.request(method, path, json.dumps(body) if body is not None else None)
        r = c.getresponse()
        return r.status, r.read().decode()

    def worker(self):
        """A rank, and none of the server's other children: it asks lost machines now and then whether they are back."""
        ranks = ["pgrep", "-P", str(self.process.pid), "-f", "lockstep worker"]
        found = subprocess.run(ranks, capture_output=True, text=True).stdout.split()
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
        self.started, self.status, self.text, self.ended = threading.Event(), 0, "", 0
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

# ---- with --until-lost: it ends, and its clients' connections break; none is told of an error ---------------------------
server = Server("--until-lost")
broken = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
broken.request("POST", "/v1/completions", json.dumps({"prompt": "A bit", "max_tokens": 7000, **endless}))
answer = broken.getresponse()
data = answer.read(3000)
os.kill(server.worker(), signal.SIGKILL)
try:
    data += answer.read()
    fail(f"--until-lost: a stream ends as if it were whole: {data[-300:]}")
except (http.client.IncompleteRead, ConnectionError) as e:
    data += getattr(e, "partial", b"")
if b"error" in data:
    fail(f"--until-lost: a client hears of it: {data[-300:]}")
status = server.process.wait(60)
if status != 3:
    fail(f"--until-lost: status {status}")

# ---- with --failover: the same texts, whatever dies ---------------------------------------------------------------
plain = {"stream": True, "ignore_eos": True, "max_tokens": 400}
sampled = {**plain, "temperature": 1, "seed": 5}
# as above; the last: what an event adds to which choice's text
lasting = [
    ("/v1/chat/completions", {"messages": messages, **sampled}, sse,
     lambda e: [(c["index"], c["delta"].get("content") or "") for c in e["choices"]]),
    ("/v1/chat/completions", {"messages": messages, **sampled, "n": 3}, sse,
     lambda e: [(c["index"], c["delta"].get("content") or "") for c in e["choices"]]),
    ("/v1/completions", {"prompt": ["A bit", "A byte"], **sampled}, sse, lambda e: [(c["index"], c["text"]) for c in e["choices"]]),
    ("/v1/responses", {"input": "What?", "stream": True, "ignore_eos": True, "max_output_tokens": 400, "temperature": 0}, sse,
     lambda e: [(0, e["delta"])] if e["type"] == "response.output_text.delta" else []),
    ("/v1/messages", {"messages": messages, **plain, "temperature": 0}, sse,
     lambda e: [(0, e["delta"]["text"])] if e["type"] == "content_block_delta" else []),
    ("/api/chat", {"messages": messages, "options": {"ignore_eos": True, "num_predict": 400, "seed": 5}}, ndjson,
     lambda e: [(0, e["message"]["content"])]),
    ("/api/generate", {"prompt": "What?", "options": {"ignore_eos": True, "num_predict": 400, "seed": 5}}, ndjson,
     lambda e: [(0, e["response"])]),
]


def texts(request):
    _, _, read, adds = request.dialect
    out = {}
    try:
        for event in read(request.text):
            for choice, text in adds(event):
                out[choice] = out.get(choice, "") + text
    except Exception as e:
        fail(f"{request.dialect[0]}: status {request.status}, {e!r}: {request.text[-300:]}")
    return out


def ask_all(server, kill=False):
    requests = [Request(server, d) for d in lasting]
    if kill:
        for r in requests:
            r.started.wait(60)
        os.kill(server.worker(), signal.SIGKILL)
    for r in requests:
        r.join(120)
    return [texts(r) for r in requests]


def metric(server, name):
    lines = [l for l in server.ask("GET", "/metrics")[1].splitlines() if l.startswith(f"lockstep_{name} ")]
    return float(lines[0].split()[1])


def check_failover(server, ranks_left):
    """Loses a rank once for each of ranks_left; as many are to go on."""
    for n, left in enumerate(ranks_left):
        if ask_all(server, kill=True) != undisturbed:
            fail(f"loss {n + 1}: other texts than without it")
        until = time.monotonic() + 60  # where the answers had ended already, nobody has noticed yet
        while (health(server)[0] != 200 or metric(server, "recoveries_total") <= n) and time.monotonic() < until:
            time.sleep(0.05)
        found = metric(server, "recoveries_total"), metric(server, "ranks")
        if found != (n + 1, left):
            fail(f"loss {n + 1}: recoveries and ranks are {found}, expected {n + 1} and {left}")
        told = server.ask("GET", "/metrics")[1].count("\nlockstep_rank_resident_bytes{")
        if told != left:
            fail(f"loss {n + 1}: /metrics tells of {told} ranks")


server = Server(ranks=())
undisturbed = ask_all(server)
server.stop()
if not all(len(text) > 400 for answer in undisturbed for text in answer.values()) or len(undisturbed[1]) != 3:
    fail(f"answers are too short to be interrupted: {undisturbed}")
server = Server("--failover", ranks=("--ranks", "3", "--split", "3,2,1"))
check_failover(server, [3, 3])
server.stop()

# Clients that do nothing but stay do not take the files that a new rank needs.
server = Server("--failover", files=128)
asking = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)


def ask_on(path):
    asking.request("GET", path)
    r = asking.getresponse()
    return r.status, r.read().decode()


ask_on("/health")
staying = [socket.create_connection(("127.0.0.1", server.port), 60) for _ in range(140)]
os.kill(server.worker(), signal.SIGKILL)
until = time.monotonic() + 60
while "\nlockstep_recoveries_total 1\n" not in ask_on("/metrics")[1] and time.monotonic() < until:
    time.sleep(0.05)
status, text = ask_on("/health")
if status != 200:
    fail(f"beside clients that only stay no rank comes back: {text}")
for c in staying:
    c.close()
server.stop()

# Machines, by an ssh that goes nowhere and notes where a rank was to start: a lost one that does not answer (to
# lockstep --version) gets none from then on. test_engine_lost.c has those that come back.
ssh, called = os.path.join(folder, "ssh"), os.path.join(folder, "called")
with open(ssh, "w") as f:
    f.write(f'#!/bin/bash\n[ "$3" != --version ] || exit 255\necho "$1" >>{called}\nshift\nexec bash -c "exec $*"\n')
os.chmod(ssh, 0o755)
server = Server("--failover", ranks=("--hosts", "127.0.0.1,b,c", "--split", "1,2,3"), env={"LOCKSTEP_SSH": ssh})
check_failover(server, [2, 1])
server.stop()
if sorted(open(called).read().split()) not in (["b", "b", "c"], ["b", "c", "c"]):
    fail(f"machines were called that are gone: {open(called).read()}")
print(f"lost ranks: {2 * len(dialects)} requests heard of it after {', '.join(f'{t:.2f}' for t in took)} s")
sys.exit(failures > 0)
