#!/usr/bin/env python3
"""What one client's request does to the others: bench/stalls.py PROGRAM [PROGRAM...]

Each program (a build of lockstep) serves the same model, one after the other. A steady stream runs, and
/health is asked 20 times a second, each time over a new connection, while one of these is under way:

  grammar   20 tokens of a grammar of an alternation of 40 words, 0.7 kB
  spaces    a prompt of 4 million spaces
  keys      a body of 30 MB with 2.2 million keys
  objects   a body of 15 MB with 5 million empty objects
  silent    600 connections that send nothing

Shown are the stream's usual gap between two tokens (the median) without and with it, its largest one, the slowest
/health, how the request ended, and the server's memory: before, at most, after. A phase ends with the request,
after 2 s at the earliest and --limit at the latest (shown as >). The model is made (lockstep synth: two layers of
Qwen3 0.6B with its true vocabulary of 151,936 tokens) unless --model names one. The clients run on the same
machine, so on two cores a gap is that of the machine, too: the phase "nothing" says how much.
"""
import argparse
import json
import multiprocessing
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

SILENT = 600
HEALTH_S = 0.05


def grammar():
    rng = random.Random(1)
    words = " | ".join(f'"{rng.choice("abcdefghijklmnopqrstuvwxyz")}" [a-z]{{0,{i % 12}}}' for i in range(40))
    return f'root ::= (w " "?)*\nw ::= {words}\n'


def bodies():
    asked = {"prompt": "x", "max_tokens": 20}
    return {
        "nothing": None,
        "grammar": json.dumps({**asked, "grammar": grammar()}).encode(),
        "spaces": json.dumps({**asked, "prompt": " " * 4_000_000}).encode(),
        "keys": b'{"prompt":"x",' + b",".join(b'"k%07d":0' % i for i in range(2_300_000)) + b"}",
        "objects": b'{"prompt":[' + b",".join([b"{}"] * 5_000_000) + b"]}",
        "silent": None,
    }


def connect(port, timeout):
    return socket.create_connection(("127.0.0.1", port), timeout=timeout)


def post(port, body, result):
    """Of a process of its own: its status, or what became of it."""
    try:
        with connect(port, 600) as s:
            head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            s.sendall(head % len(body) + body)
            result.put(s.recv(65536).split(b" ", 2)[1].decode())
    except (OSError, IndexError) as e:
        result.put(type(e).__name__)


class Server:
    def __init__(self, program, model, threads):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([program, "serve", model, "--port", "0", "-q", "--ctx", "4096", "--kv-memory", "1G",
                                         "-t", str(threads)], stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        found = re.search(r":(\d+)$", line.strip())
        if not found:
            sys.exit(f"{program} serve: {line}")
        self.port = int(found[1])

    def memory(self):
        """MiB of the heap now, and at most since the last look."""
        with open(f"/proc/{self.process.pid}/status") as f:
            v = dict(line.split(":", 1) for line in f)
        with open(f"/proc/{self.process.pid}/clear_refs", "w") as f:
            f.write("5")
        return int(v["VmRSS"].split()[0]) / 1024, int(v["VmHWM"].split()[0]) / 1024

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Stream(threading.Thread):
    """Asks for one stream after the other, and notes when tokens come."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.over, self.times, self.n_failed = port, False, [], 0
        self.lock = threading.Lock()

    def run(self):
        body = json.dumps({"prompt": "once", "max_tokens": 4000, "ignore_eos": True, "stream": True, "seed": 1}).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        while not self.over:
            with connect(self.port, 600) as s:
                s.sendall(head + body)
                with self.lock:
                    self.times.append(None)  # no gap from here to the next
                while not self.over and (some := s.recv(65536)):
                    now = time.monotonic()
                    if b"data: " in some:
                        with self.lock:
                            self.times.append(now)

    def gaps(self, begin, end):
        """Those that end within the phase, and the one that has not ended."""
        with self.lock:
            times = list(self.times)
        out = [b - a for a, b in zip(times, times[1:]) if a and b and begin <= b <= end]
        if times and times[-1] and times[-1] < end:
            out.append(end - times[-1])
        return out


class Health(threading.Thread):
    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.over, self.asked, self.times = port, False, None, []

    def run(self):
        while not self.over:
            self.asked = time.monotonic()
            try:
                with connect(self.port, 600) as s:
                    s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    good = s.recv(4096).startswith(b"HTTP/1.1 200")
            except OSError:
                good = False
            self.times.append((self.asked, time.monotonic() - self.asked if good else float("inf")))
            self.asked = None
            time.sleep(HEALTH_S)

    def slowest(self, begin, end):
        """Of those that were under way in the phase."""
        asked = self.asked
        waits = [end - asked] if asked else []
        return max(waits + [t for at, t in list(self.times) if at + t >= begin and at <= end], default=0)


def phase(server, stream, health, name, body, limit):
    before, _ = server.memory()
    begin, how, sockets, attack = time.monotonic(), "", [], None
    if name == "silent":
        sockets = [connect(server.port, 60) for _ in range(SILENT)]
        time.sleep(min(5, limit))
    elif body is None:
        time.sleep(3)
    else:
        result = multiprocessing.Queue()
        attack = multiprocessing.Process(target=post, args=(server.port, body, result), daemon=True)
        attack.start()
        try:
            how = result.get(timeout=limit)
            took = time.monotonic() - begin
            how = f"{how} after {took:.1f} s"
            time.sleep(max(0, 2 - took))
        except Exception:
            how = f"> {limit} s"
    end = time.monotonic()
    gaps, slowest = stream.gaps(begin, end), health.slowest(begin, end)
    after, most = server.memory()
    for s in sockets:
        s.close()
    if attack:
        attack.terminate()
        attack.join()
    return {"usual": statistics.median(gaps) if gaps else float("nan"), "largest": max(gaps, default=float("nan")),
            "health": slowest, "how": how, "memory": (before, most, after)}


def settle(server, limit):
    """Until /health is prompt and nothing but the stream runs: what a phase has begun is over."""
    until = time.monotonic() + limit
    while time.monotonic() < until:
        begin = time.monotonic()
        try:
            with connect(server.port, 600) as s:
                s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                text = s.recv(4096)
        except OSError:
            text = b""
        if time.monotonic() - begin < 0.2 and b'"running":1,"queued":0' in text.replace(b" ", b""):
            return
        time.sleep(0.2)


def measure(program, args, all_bodies):
    server = Server(program, args.model, args.threads)
    stream, health = Stream(server.port), Health(server.port)
    rows = {}
    try:
        stream.start()
        health.start()
        time.sleep(3)
        for name in args.only.split(","):
            rows[name] = phase(server, stream, health, name, all_bodies[name], args.limit)
            settle(server, 120)
    finally:
        stream.over = health.over = True
        server.stop()
    return rows


def show(program, rows):
    print(f"\n{program}\n")
    print("| under way | usual gap | largest gap | in usual ones | slowest /health | it ended | memory before, at most, after |")
    print("|---|---|---|---|---|---|---|")
    quiet = rows["nothing"]["usual"]
    for name, r in rows.items():
        memory = ", ".join(f"{m:.0f}" for m in r["memory"])
        print(f"| {name} | {r['usual'] * 1e3:.1f} ms | {r['largest'] * 1e3:.1f} ms | {r['largest'] / quiet:.1f} | "
              f"{r['health'] * 1e3:.0f} ms | {r['how']} | {memory} MiB |")
    sys.stdout.flush()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("programs", nargs="+")
    p.add_argument("--model", help="a GGUF file with a large vocabulary")
    p.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    p.add_argument("--limit", type=float, default=20, help="seconds for a phase")
    p.add_argument("--only", default="nothing,grammar,spaces,keys,objects,silent")
    args = p.parse_args()
    args.only = ",".join(dict.fromkeys(["nothing"] + args.only.split(",")))
    with tempfile.TemporaryDirectory() as work:
        if args.model is None:
            args.model = os.path.join(work, "model.gguf")
            subprocess.run([args.programs[0], "synth", args.model, "--shape", "qwen3-0.6b", "--layers", "2", "--type", "q4_0"],
                           check=True, stdout=subprocess.DEVNULL)
        all_bodies = bodies()
        for program in args.programs:
            show(program, measure(program, args, all_bodies))


if __name__ == "__main__":
    main()
