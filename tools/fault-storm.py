#!/usr/bin/env python3
"""Random faults against a model that several machines keep up together, and clients that compare every word.

    sudo tools/fault-storm.py --faults 100 --seed 7

Five machines, each a network namespace with a disk (a tmpfs) and a `lockstep node` of its own, are joined by a bridge.
`lockstep up` puts a small model up on all of them. Four clients ask one machine after the other, streamed and not, with
and without a seed. They compare the answers with what `lockstep run` says on one machine. Each client has a cable of its
own to each machine, so a fault hits the cluster and not the question.

Faults are drawn from the seed before the storm begins: their kind, machine and duration. At most two machines are hit
at a time. It holds if
  - no word is wrong,
  - no request is lost, except those that were under way at a machine whose node was killed (one that is told to end
    may refuse new requests, and has ten seconds to finish those that it has),
  - within 30 s of the end of the last fault (--within) all ranks compute again.

The exit status is 0 if it holds, 1 if it does not, 77 if this system cannot run it. What all nodes said is kept in a
folder if it does not hold, or with --logs.

The tool runs in namespaces of its own (processes, mounts, network), so all that it starts ends with it.
"""
import argparse
import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NAMES = ["ann", "bob", "cat", "dan", "eve", "fay", "gus", "hal"]
PORT = 8099
MODEL = "m.gguf"
DISK_BYTES = 64 << 20
N_TOKENS = 40
FINISH_S = 9           # a node that is told to end gives what runs a second more
REQUEST_LIMIT_S = 150  # longer than a gateway waits for a server, and loading on a busy machine
BACK_LIMIT_S = 180     # for the ranks at the end: what is beyond --within is a failure, but worth to know
STAYS_S = 6            # longer than --silence, after which a rank counts as lost
RESTART_LIMIT_S = 60   # for a node to take connections again after its start


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--faults", type=int, default=100, help="how many (default 100)")
    p.add_argument("--seed", type=int, default=1, help="the faults are a function of this (default 1)")
    p.add_argument("--kinds", default="", help="only these, separated by commas (default all): " + ", ".join(KINDS))
    p.add_argument("--machines", type=int, default=5, choices=range(3, 9), help="default 5")
    p.add_argument("--clients", type=int, default=4, help="default 4")
    p.add_argument("--within", type=float, default=30, help="seconds for all ranks to be back at the end (default 30)")
    p.add_argument("--pace", type=float, default=1, help="all durations and pauses times this (default 1)")
    p.add_argument("--json", action="store_true", help="prints one JSON object at the end instead of the table")
    p.add_argument("--logs", help="keeps what the nodes say in this folder, whatever comes of it")
    p.add_argument("--program", default=os.environ.get("LOCKSTEP", SOURCE + "/build/lockstep"), help="default build/lockstep")
    p.add_argument("--model", default=SOURCE + "/models/jargon-3m-f16.gguf", help="default the one in models/")
    p.add_argument("--clock", help="the library made from tests/support/wrong_clock.c (default beside the program)")
    a = p.parse_args()
    unknown = [k for k in a.kinds.split(",") if k and k not in KINDS]
    if unknown:
        p.error("there is no kind " + ", ".join(unknown))
    a.program, a.model = os.path.abspath(a.program), os.path.abspath(a.model)
    a.clock = os.path.abspath(a.clock or os.path.dirname(a.program) + "/tests/libwrong_clock.so")
    return a


# ---- namespaces ----------------------------------------------------------------------------------

def skip(why):
    print("skip:", why)
    sys.exit(77)


def enter_namespaces():
    """Runs this program again in namespaces of its own. A shell is process 1 there: it reaps orphans."""
    if os.environ.get("FAULT_STORM") == "inside":
        return
    tools = ["ip", "nsenter", "unshare", "mount", "tc"]
    missing = [t for t in tools if shutil.which(t) is None]
    if missing:
        skip("no " + ", ".join(missing))
    own = ["unshare", "-n", "-m", "-p", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0 or subprocess.run([*own, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        skip("no right to make network namespaces")
    os.environ["FAULT_STORM"] = "inside"
    os.execvp(own[0], [*own, "sh", "-c", '"$@"; exit $?', "sh", sys.executable, os.path.abspath(__file__), *sys.argv[1:]])


def run(*words, check=True):
    done = subprocess.run(words, capture_output=True, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.returncode == 0


def namespace_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:  # it has ended
        return None


class Machine:
    """A network namespace, with a cable to the others (`wire`) and one to the clients (`front`)."""

    def __init__(self, number, storm):
        self.number, self.name, self.storm = number, NAMES[number - 1], storm
        self.address, self.gateway_address = f"10.9.0.{number}", f"10.8.{number}.1"
        self.disk = f"{storm.work}/{self.name}"
        self.model = f"{self.disk}/models/{MODEL}"
        self.log = f"{storm.work}/logs/{self.name}.log"
        self.clock = f"{storm.work}/{self.name}.clock"
        self.node = None
        self.away = []  # [from when on requests here may be lost, when it took connections again or None]
        self.restarted_s = 0
        self.set_clock(0)
        os.mkdir(self.disk)
        run("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", self.disk)
        os.mkdir(f"{self.disk}/models")
        self.sleeper = subprocess.Popen(["unshare", "-n", "-m", "sleep", "infinity"])
        while namespace_of(self.sleeper.pid) in (None, namespace_of("self")):
            time.sleep(0.01)
        self.namespace = namespace_of(self.sleeper.pid)
        self.cable("wire", f"p{number}", f"{self.address}/24")
        self.cable("front", f"f{number}", f"{self.gateway_address}/30")
        run("ip", "link", "set", f"p{number}", "master", "switch")
        run("ip", "addr", "add", f"10.8.{number}.2/30", "dev", f"f{number}")
        self.on("ip", "link", "set", "lo", "up")
        self.on("mount", "--bind", self.disk, storm.home)

    def cable(self, inside, outside, address):
        run("ip", "link", "add", "name", outside, "type", "veth", "peer", "name", inside, "netns", str(self.sleeper.pid))
        run("ip", "link", "set", outside, "up")
        self.on("ip", "link", "set", inside, "up")
        self.on("ip", "addr", "add", address, "dev", inside)

    def command(self, *words):
        return ["nsenter", "-t", str(self.sleeper.pid), "-n", "-m", *words]

    def on(self, *words, check=True):
        return run(*self.command(*words), check=check)

    def environment(self):
        home = self.storm.home
        env = {**os.environ, "HOME": home, "XDG_DATA_HOME": home + "/data", "LOCKSTEP_CLUSTER_KEY": self.storm.key}
        if self.storm.has_clock:
            env |= {"LD_PRELOAD": self.storm.args.clock, "WRONG_CLOCK": self.clock}
        return env

    def start(self):
        home = self.storm.home
        words = self.command(self.storm.args.program, "node", "--name", self.name, "--models", home + "/models", "--state", home + "/state")
        self.node = subprocess.Popen(words, env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT)
        threading.Thread(target=self.listen, args=(self.node.stdout,), daemon=True).start()
        self.restarted_s = time.monotonic()

    def listen(self, words):
        """Keeps what the node says, with the time."""
        with open(self.log, "a", buffering=1) as log:
            for line in words:
                log.write(f"{time.monotonic() - self.storm.begin_s:7.1f} {line.decode(errors='replace')}")

    def has_said(self, words):
        return os.path.exists(self.log) and words in open(self.log).read()

    def processes(self):
        """pid: what it is ("node", "serve", "worker", ...), of all of lockstep that runs on it."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if namespace_of(pid) != self.namespace:
                continue
            with contextlib.suppress(OSError):
                words = open(f"/proc/{pid}/cmdline").read().split("\0")
                if words[0].endswith("lockstep") and len(words) > 1:
                    found[int(pid)] = words[1]
        return found

    def serves(self):
        return "serve" in self.processes().values()

    def send_signal(self, sig, kinds):
        """To all processes of these kinds; whom it reached."""
        pids = [pid for pid, kind in self.processes().items() if kinds is None or kind in kinds]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)
        return pids

    def kill(self, sig, kinds):
        """Ends its node (and more, if kinds say so): with SIGKILL what is asked here now is lost."""
        if not self.is_away():
            self.away.append([time.monotonic() + (0 if sig == signal.SIGKILL else FINISH_S), None])
        self.restarted_s = 0
        self.send_signal(sig, kinds)
        try:
            self.node.wait(20)
        except subprocess.TimeoutExpired:
            self.node.kill()
            self.node.wait()

    def is_away(self):
        return bool(self.away) and self.away[-1][1] is None

    def took_connection(self):
        if self.is_away() and self.restarted_s:
            self.away[-1][1] = time.monotonic()

    def may_refuse(self):
        """It was ended, or has only just been started."""
        return self.is_away() and (self.restarted_s == 0 or time.monotonic() - self.restarted_s < RESTART_LIMIT_S)

    def may_have_lost(self, begin, end):
        return any(at <= end and (back is None or back >= begin) for at, back in self.away)

    def set_clock(self, ahead_s):
        with open(self.clock, "r+b" if os.path.exists(self.clock) else "wb") as f:
            f.write(struct.pack("q", int(ahead_s * 1e9)))

    def get(self, path, timeout=5):
        c = http.client.HTTPConnection(self.gateway_address, PORT, timeout=timeout)
        try:
            c.request("GET", path)
            r = c.getresponse()
            return r.status, r.read().decode()
        finally:
            c.close()

    def n_ranks(self):
        """How many compute, as this machine's port says; 0: it does not say, or the ranks are just coming together."""
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            status, text = self.get("/metrics")
            values = dict(line.rsplit(" ", 1) for line in text.splitlines() if status == 200 and not line.startswith("#"))
            return int(values.get("lockstep_ranks", 0)) * int(values.get("lockstep_healthy", 0))
        return 0


# ---- faults --------------------------------------------------------------------------------------

class Fault:
    """One kind of fault. Drawn before the storm (`draw`), done to the machine (`begin`), and undone (`heal`)."""
    seconds = (1, 12)  # how long it lasts

    def __init__(self, rng, machines):
        self.target = rng.choice(machines)
        self.at_server = True if rng.random() < 1 / 3 else None  # rather the machine that serves, if it is free then
        self.lasts = rng.uniform(*self.seconds)
        self.draw(rng, machines)

    def draw(self, rng, machines):
        pass

    def others(self):
        """Further machines that it hits."""
        return []

    def what(self):
        return ""

    def begin(self):
        pass

    def heal(self):
        pass


class Kill(Fault):
    """A process, or all of a machine as when its power fails (then its wire falls silent first)."""
    def draw(self, rng, machines):
        self.victim = rng.choice(["node", "machine", "serve", "worker"])
        self.at_server = {"serve": True, "worker": False}.get(self.victim, self.at_server)
        self.lasts = rng.uniform(0.2, 12) if self.victim in ("node", "machine") else 0.1

    def what(self):
        return self.victim

    def begin(self):
        m = self.target
        if self.victim in ("serve", "worker"):
            m.send_signal(signal.SIGKILL, [self.victim])
        elif self.victim == "node":
            m.kill(signal.SIGKILL, ["node"])
        else:
            m.on("ip", "link", "set", "wire", "down")
            m.kill(signal.SIGKILL, None)

    def heal(self):
        if self.victim == "machine":
            self.target.on("ip", "link", "set", "wire", "up")
        if self.victim in ("node", "machine"):
            self.target.start()


class Stop(Fault):
    seconds = (1, 20)

    def draw(self, rng, machines):
        self.victim = rng.choice(["node", "machine", "serve", "worker"])
        self.at_server = {"serve": True, "worker": False}.get(self.victim, self.at_server)

    def what(self):
        return self.victim

    def begin(self):
        self.pids = self.target.send_signal(signal.SIGSTOP, None if self.victim == "machine" else [self.victim])

    def heal(self):
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class LinkDown(Fault):
    seconds = (0.3, 15)

    def begin(self):
        self.target.on("ip", "link", "set", "wire", "down")

    def heal(self):
        self.target.on("ip", "link", "set", "wire", "up")


class OneWay(Fault):
    """What the machine sends, or what it is sent, is lost: all of it, or a part."""
    seconds = (1, 15)

    def draw(self, rng, machines):
        self.way, self.part = rng.choice(["egress", "ingress"]), rng.choice([1, 1, 0.3, 0.1])

    def what(self):
        return f"{100 * self.part:.0f} % of what it {'sends' if self.way == 'egress' else 'is sent'}"

    def begin(self):
        # Classic BPF: a random number; above the limit the frame passes (TC_ACT_OK), else it is dropped (TC_ACT_SHOT).
        program = f"4,32 0 0 4294963256,37 1 0 {int(self.part * 0xffffffff)},6 0 0 2,6 0 0 0"
        self.target.on("tc", "qdisc", "add", "dev", "wire", "clsact")
        self.target.on("tc", "filter", "add", "dev", "wire", self.way, "prio", "1", "bpf", "bytecode", program, "direct-action")

    def heal(self):
        self.target.on("tc", "qdisc", "del", "dev", "wire", "clsact")

    @staticmethod
    def why_not(storm):
        works = run("tc", "qdisc", "add", "dev", "lo", "clsact", check=False) and run(
            "tc", "filter", "add", "dev", "lo", "egress", "prio", "1", "bpf", "bytecode", "1,6 0 0 0", "direct-action", check=False)
        run("tc", "qdisc", "del", "dev", "lo", "clsact", check=False)
        return "" if works else "this kernel's traffic control has no BPF filters"


class Partition(Fault):
    """Two machines see each other, and none of the rest."""
    seconds = (2, 15)

    def draw(self, rng, machines):
        self.friend = rng.choice([m for m in machines if m != self.target])

    def others(self):
        return [self.friend]

    def what(self):
        return f"with {self.friend.name}"

    def begin(self):
        for m in (self.target, self.friend):
            run("ip", "link", "set", f"p{m.number}", "master", "split")

    def heal(self):
        for m in (self.target, self.friend):
            run("ip", "link", "set", f"p{m.number}", "master", "switch")


class DiskFull(Fault):
    def begin(self):
        with open(self.target.disk + "/full", "wb", buffering=0) as f, contextlib.suppress(OSError):
            while True:
                f.write(b"\0" * 4096)

    def heal(self):
        os.unlink(self.target.disk + "/full")


class ModelFault(Fault):
    """The machine's copy of the model is not what it was; it is put right in place, or by a new file."""
    seconds = (2, 20)

    def draw(self, rng, machines):
        self.by_rename, self.place = rng.random() < 0.5, rng.random()

    def rename_over(self, bytes_):
        with open(self.target.model + ".new", "wb") as f:
            f.write(bytes_)
        os.rename(self.target.model + ".new", self.target.model)

    def write_in_place(self, bytes_):
        with open(self.target.model, "r+b" if os.path.exists(self.target.model) else "wb") as f:
            f.write(bytes_)

    def heal(self):
        (self.rename_over if self.by_rename else self.write_in_place)(self.target.storm.model_bytes)


class Truncated(ModelFault):
    def begin(self):
        size = int(self.place * len(self.target.storm.model_bytes))
        with open(self.target.model, "ab") as f:
            f.truncate(size)

    def what(self):
        return f"to {100 * self.place:.0f} %"


class Replaced(ModelFault):
    def begin(self):
        self.rename_over(self.target.storm.other_bytes)


class Rewritten(ModelFault):
    def begin(self):
        self.write_in_place(self.target.storm.other_bytes)


class Clock(Fault):
    """Jumps while the node runs, or is wrong already when it begins."""
    def draw(self, rng, machines):
        self.ahead_s = rng.choice([-1, 1]) * rng.choice([2, 90, 7200, 86400 * 400])
        self.restarts = rng.random() < 0.3

    def what(self):
        return f"{self.ahead_s:+d} s" + (", at its start" if self.restarts else "")

    def begin(self):
        if self.restarts:
            self.target.kill(signal.SIGTERM, ["node"])
        self.target.set_clock(self.ahead_s)
        if self.restarts:
            self.target.start()

    def heal(self):
        self.target.set_clock(0)

    @staticmethod
    def why_not(storm):
        return "" if storm.has_clock else f"{storm.args.clock} is not there, or does not work with this program"


KINDS = {"kill": Kill, "stop": Stop, "link-down": LinkDown, "one-way": OneWay, "partition": Partition, "disk-full": DiskFull,
         "truncated": Truncated, "replaced": Replaced, "rewritten": Rewritten, "clock": Clock}


# ---- clients -------------------------------------------------------------------------------------

PROMPTS = ["What is a bit bucket?", "The hacker", "A system that", "In the beginning, computers"]


class Case:
    """A question, and its answer's words as one machine alone says them."""

    def __init__(self, storm, prompt, temperature, seed):
        self.body = {"prompt": prompt, "max_tokens": N_TOKENS, "temperature": temperature, "seed": seed, "ignore_eos": True}
        words = [storm.args.program, "run", storm.args.model, "--raw", "--json", "-q", "--ignore-end", "-t", "1", "-p", prompt,
                 "-n", str(N_TOKENS), "--temp", str(temperature), "--seed", str(seed)]
        self.text = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)["text"]


class Lost(Exception):
    pass


class Wrong(Exception):
    pass


class Client(threading.Thread):
    """Asks one machine after the other."""

    def __init__(self, number, storm):
        super().__init__(daemon=True)
        self.number, self.storm = number, storm
        self.rng = random.Random(f"{storm.args.seed} {number}")
        self.n_answers = self.n_refused = 0
        self.wrong, self.lost, self.lost_at_killed = [], [], []
        self.longest = (0, "")
        self.busy_since = None

    def run(self):
        at = self.number
        while not self.storm.ending.is_set():
            machine = self.storm.machines[at % len(self.storm.machines)]
            at += 1
            self.ask(machine, self.rng.choice(self.storm.cases), self.rng.random() < 0.6)
            self.storm.ending.wait(self.rng.uniform(0.2, 1.2) * self.storm.args.pace)

    def ask(self, machine, case, stream):
        begin = self.last = time.monotonic()
        self.busy_since, self.where = begin, machine.name
        c = http.client.HTTPConnection(machine.gateway_address, PORT, timeout=REQUEST_LIMIT_S)
        try:
            try:
                c.connect()
            except ConnectionRefusedError:
                if not machine.may_refuse():
                    raise
                self.n_refused += 1
                return
            machine.took_connection()
            c.request("POST", "/v1/completions", json.dumps({**case.body, "stream": stream}), {"Content-Type": "application/json"})
            response = c.getresponse()
            if response.status == 503 and response.getheader("Lockstep-Ending") and machine.is_away():
                self.n_refused += 1
                return
            self.read(response, case.text, stream)
            self.n_answers += 1
        except Wrong as e:
            self.note(self.wrong, machine, begin, str(e))
        except (Lost, OSError, http.client.HTTPException, ValueError) as e:
            at_killed = machine.may_have_lost(begin, time.monotonic())
            self.note(self.lost_at_killed if at_killed else self.lost, machine, begin, f"{type(e).__name__}: {e}")
        finally:
            self.busy_since = None
            c.close()

    def note(self, where, machine, begin, text):
        entry = {"at_s": self.storm.seconds(begin), "after_s": round(time.monotonic() - begin, 1), "client": self.number,
                 "machine": machine.name, "what": text}
        where.append(entry)
        kind = "wrong words" if where is self.wrong else "lost, at a killed machine" if where is self.lost_at_killed else "LOST"
        self.storm.say(f"client {self.number} at {machine.name}: {kind} after {entry['after_s']} s: {text}")

    def heard(self):
        now = time.monotonic()
        if now - self.last > self.longest[0]:
            self.longest = (now - self.last, f"client {self.number} at {self.where}, {self.storm.seconds(now)} s")
        self.last = now

    def read(self, response, expected, stream):
        if response.status != 200:
            raise Lost(f"{response.status} {response.read(300).decode(errors='replace')}")
        text = ""
        if not stream:
            text = json.loads(response.read())["choices"][0]["text"]
            self.heard()
        for line in response if stream else []:
            self.heard()
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                if "error" in event:
                    raise Lost(line.decode(errors="replace").strip())
                text += event["choices"][0]["text"]
            if not expected.startswith(text):
                raise Wrong(f"{text!r} instead of {expected!r}")
            if line.startswith(b"data: [DONE]"):
                break
        else:
            if stream:
                raise Lost(f"the stream ends after {text!r}")
        if text != expected:
            raise Wrong(f"{text!r} instead of {expected!r}")


# ---- the storm -----------------------------------------------------------------------------------

class Storm:
    def __init__(self, args):
        self.args, self.begin_s, self.ending = args, time.monotonic(), threading.Event()
        self.work = tempfile.mkdtemp(prefix="fault-storm.")
        self.home, self.key = self.work + "/home", self.work + "/key"
        self.speaking = threading.Lock()
        self.active, self.clients, self.left_out = [], [], {}
        self.result = {"seed": args.seed, "faults": []}
        for folder in (self.home, self.work + "/logs"):
            os.mkdir(folder)
        self.has_clock = os.path.exists(args.clock) and subprocess.run(
            [args.program, "--version"], env={**os.environ, "LD_PRELOAD": args.clock}, capture_output=True).returncode == 0
        self.model_bytes = open(args.model, "rb").read()
        self.other_bytes = other_model(self.model_bytes)

    def seconds(self, t):
        return round(t - self.begin_s, 1)

    def say(self, text):
        with self.speaking:
            print(f"{time.monotonic() - self.begin_s:7.1f} {text}", file=sys.stderr if self.args.json else sys.stdout, flush=True)

    # -- the cluster

    def make_cluster(self):
        for name in ("switch", "split"):
            run("ip", "link", "add", "name", name, "type", "bridge")
            run("ip", "link", "set", name, "up")
        run("ip", "link", "set", "lo", "up")
        subprocess.run([self.args.program, "key"], env={**os.environ, "LOCKSTEP_CLUSTER_KEY": self.key}, capture_output=True, check=True)
        self.machines = [Machine(i + 1, self) for i in range(self.args.machines)]
        self.machines[0].storm.write_model(self.machines[0])
        for m in self.machines:
            m.start()
        self.wait("the nodes do not begin", 60, lambda: all(m.has_said("listens on port") for m in self.machines))

    def write_model(self, machine):
        with open(machine.model, "wb") as f:
            f.write(self.model_bytes)

    def wait(self, complaint, limit_s, condition):
        until = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > until:
                raise RuntimeError(complaint)
            time.sleep(0.1)

    def put_up(self):
        first = self.machines[0]
        words = [self.args.program, "up", f"{self.home}/models/{MODEL}", "--port", str(PORT), "-t", "1", "--ctx", "256", "--insecure",
                 "--link", "tcp", "--emulate-link", "latency=500us", "--nodes", ",".join(m.name for m in self.machines)]
        done = subprocess.run(first.command(*words), env=first.environment(), capture_output=True, text=True, timeout=200)
        if done.returncode != 0:
            raise RuntimeError(f"lockstep up: {done.stderr}")
        self.wait("not all ranks compute", 120, lambda: all(m.n_ranks() == len(self.machines) for m in self.machines))
        self.wait("not all have the model", 120, lambda: all(self.has_model(m) for m in self.machines))

    def has_model(self, machine):
        return os.path.exists(machine.model) and os.path.getsize(machine.model) == len(self.model_bytes)

    # -- faults

    def kinds(self):
        wanted = [k for k in self.args.kinds.split(",") if k] or list(KINDS)
        for kind in wanted:
            why = getattr(KINDS[kind], "why_not", lambda storm: "")(self)
            if why:
                self.left_out[kind] = why
                self.say(f"skip: {kind}: {why}")
        return [k for k in wanted if k not in self.left_out]

    def draw(self):
        """The plan: [begin, end, number, kind, fault], in time. Every fourth begins while the one before is under way."""
        rng, t, plan, alone, deck = random.Random(self.args.seed), 0.0, [], True, []
        kinds = self.kinds()
        for number in range(1, self.args.faults + 1):
            deck = deck or rng.sample(kinds, len(kinds))  # all are drawn equally often
            kind = deck.pop()
            fault = KINDS[kind](rng, self.machines)
            lasts = fault.lasts * self.args.pace
            within_last = rng.random() < 0.25 and plan and not alone and not fault.others()
            if within_last:
                before = plan[-1]
                t = (before[0] + before[1]) / 2
                within_last = not before[4].others()
            if not within_last and plan:
                t = max(p[1] for p in plan[-2:]) + rng.uniform(0.5, 6) * self.args.pace
            plan.append((t, t + lasts, number, kind, fault))
            alone = within_last
        return plan

    def choose(self, fault):
        """The machine that a fault hits: none that another one hits just now."""
        hit = [m for f in self.active for m in (f.target, *f.others())]
        free = [m for m in [fault.target, *self.machines] if m not in hit and m not in fault.others()]
        if fault.at_server is not None:
            free.sort(key=lambda m: m.serves() != fault.at_server)
        fault.target = free[0]

    def begin_fault(self, number, kind, fault):
        self.choose(fault)
        self.active.append(fault)
        serving = " (serves)" if fault.target.serves() else ""
        fault.entry = {"number": number, "kind": kind, "target": fault.target.name, "what": fault.what(), "serves": bool(serving),
                       "begin_s": self.seconds(time.monotonic())}
        self.result["faults"].append(fault.entry)
        self.say(f"fault {number}: {kind} {fault.what()} at {fault.target.name}{serving}")
        fault.begin()

    def heal_fault(self, number, kind, fault):
        fault.heal()
        self.active.remove(fault)
        fault.entry["end_s"] = self.seconds(time.monotonic())
        self.say(f"       {number}: {kind} at {fault.target.name} is over")

    def rage(self):
        plan = self.draw()
        events = sorted([(p[0], 0, *p[2:]) for p in plan] + [(p[1], 1, *p[2:]) for p in plan], key=lambda e: e[:3])
        begin = time.monotonic()
        for t, ends, number, kind, fault in events:
            late = time.monotonic() - begin - t
            if late < 0:
                time.sleep(-late)
            else:
                begin += late
            (self.heal_fault if ends else self.begin_fault)(number, kind, fault)
        return time.monotonic()

    # -- afterwards

    def wait_for_ranks(self, since):
        """Until all ranks compute, as every machine says, and go on for STAYS_S: a loss is not noticed at once."""
        n, begin = len(self.machines), None
        while time.monotonic() < since + BACK_LIMIT_S:
            ranks = {m.name: m.n_ranks() for m in self.machines}
            whole = all(r == n for r in ranks.values()) and sum(m.serves() for m in self.machines) == 1
            begin = begin or time.monotonic() if whole else None
            if whole and time.monotonic() - begin >= STAYS_S:
                return ranks, begin - since
            time.sleep(0.3)
        return ranks, None

    def end_clients(self):
        self.ending.set()
        for c in self.clients:
            c.join(REQUEST_LIMIT_S + 20)
            if c.is_alive():
                c.lost.append({"client": c.number, "machine": c.where, "what": "no answer yet"})

    def add_up(self, ranks, back_s):
        r = self.result
        every = lambda key: [entry for c in self.clients for entry in getattr(c, key)]
        longest = max((c.longest for c in self.clients), default=(0, ""))
        r |= {"answers": sum(c.n_answers for c in self.clients), "wrong": every("wrong"), "lost": every("lost"),
              "lost_at_killed": every("lost_at_killed"), "refused": sum(c.n_refused for c in self.clients),
              "longest_pause_s": round(longest[0], 1), "longest_pause": longest[1], "machines": len(self.machines), "ranks": ranks,
              "ranks_back_s": None if back_s is None else round(back_s, 1), "left_out": self.left_out,
              "seconds": self.seconds(time.monotonic())}
        r["holds"] = r["answers"] > 0 and not r["wrong"] and not r["lost"] and back_s is not None and back_s <= self.args.within

    def table(self):
        r = self.result
        if self.args.json:
            print(json.dumps(r))
            return
        back = f"after {r['ranks_back_s']} s" if r["ranks_back_s"] is not None else f"not within {BACK_LIMIT_S} s"
        rows = [("faults", len(r["faults"])), ("answers", r["answers"]), ("wrong words", len(r["wrong"])),
                ("requests lost", len(r["lost"])),
                ("  besides, under way at a machine that was killed", len(r["lost_at_killed"])),
                ("  besides, refused by one that ended, until it was back", r["refused"]),
                ("longest pause", f"{r['longest_pause_s']} s ({r['longest_pause']})"),
                ("ranks", f"{min(r['ranks'].values())} to {max(r['ranks'].values())} of {r['machines']}, {back} (goal: {self.args.within:.0f} s)")]
        for name, value in rows:
            print(f"{name:56} {value}")
        print("it holds" if r["holds"] else "IT DOES NOT HOLD")

    def keep_logs(self):
        folder = self.args.logs or self.work + "-logs"
        shutil.copytree(self.work + "/logs", folder, dirs_exist_ok=True)
        with open(folder + "/result.json", "w") as f:
            json.dump(self.result, f, indent=1)
        print(f"what the nodes said is in {folder}", file=sys.stderr)

    def weather(self):
        self.make_cluster()
        self.put_up()
        self.say(f"{len(self.machines)} machines serve; expected words are computed")
        self.cases = [Case(self, p, t, s) for p in PROMPTS for t, s in ((0, 0), (1, 5), (0.8, 77))]
        self.clients = [Client(i, self) for i in range(self.args.clients)]
        for c in self.clients:
            c.start()
        since = self.rage()
        ranks, back_s = self.wait_for_ranks(since)
        self.end_clients()
        self.add_up(ranks, back_s)
        self.table()
        return self.result["holds"]

    def close(self):
        for m in getattr(self, "machines", []):
            m.send_signal(signal.SIGCONT, None)
            m.send_signal(signal.SIGKILL, None)
            run("umount", "-l", m.disk, check=False)
        shutil.rmtree(self.work, ignore_errors=True)


def other_model(bytes_):
    """A model that loads, and says other words: two parts of the weights have changed places."""
    n = len(bytes_) // 64 * 4
    at, to = len(bytes_) // 2 // 64 * 64, len(bytes_) // 4 * 3 // 64 * 64
    b = bytearray(bytes_)
    b[at:at + n], b[to:to + n] = b[to:to + n], b[at:at + n]
    return bytes(b)


def main():
    args = arguments()
    enter_namespaces()
    storm = Storm(args)
    holds = False
    try:
        holds = storm.weather()
    finally:
        if args.logs or not holds:
            storm.keep_logs()
        storm.close()
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
