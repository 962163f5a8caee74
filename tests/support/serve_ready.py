# serve_ready.py LOCKSTEP MODEL: how lockstep serve and lockstep node tell a program that they are ready. What is
# expected is in src/cli/ready.h and, of the datagrams, in sd_notify(3).
import json, os, signal, socket, subprocess, sys, urllib.request

lockstep, model = sys.argv[1:]
LIMIT_S = 60
words = {
    "serve": ["serve", model, "--port", "0", "--ctx", "128", "-t", "1", "--ranks", "2", "-q"],
    "node": ["node", "--no-discovery", "--port", "0", "--host", "127.0.0.1", "--name", "ann", "--models", ".", "--state", "state"],
}


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"FAILED: {what}: {got!r}, expected {wanted!r}")


def start(command, ready=None, **environment):
    more = ["--ready-fd", str(ready)] if ready is not None else []
    env = {**os.environ, "LOCKSTEP_CLUSTER_KEY": "key", **environment}
    return subprocess.Popen([lockstep, *words[command], *more], env=env, stdout=subprocess.DEVNULL,
                            pass_fds=[ready] if ready is not None else [])


def end(process):
    process.send_signal(signal.SIGTERM)
    return process.wait(LIMIT_S)


# The line, and then the end of the pipe, though the processes that the command has started live on.
def line_of(command):
    r, w = os.pipe()
    process = start(command, w)
    os.close(w)
    text = b""
    while piece := os.read(r, 4096):
        text += piece
    os.close(r)
    expect(f"{command}: lines", text.count(b"\n"), 1)
    return process, json.loads(text)


process, line = line_of("serve")
expect("serve: keys", sorted(line), ["address", "model", "pid", "port", "ranks", "tls", "url"])
expect("serve: address", (line["address"], line["tls"], line["ranks"]), ("127.0.0.1", False, 2))
expect("serve: url", line["url"], f"http://127.0.0.1:{line['port']}")
expect("serve: pid", line["pid"], process.pid)
with urllib.request.urlopen(line["url"] + "/health", timeout=LIMIT_S) as answer:
    expect("serve: /health", answer.status, 200)
expect("serve: exit status", end(process), 0)

process, line = line_of("node")
expect("node: line", line, {"address": "127.0.0.1", "name": "ann", "pid": process.pid, "port": line["port"]})
socket.create_connection(("127.0.0.1", line["port"]), LIMIT_S).close()
expect("node: exit status", end(process), 0)

# The service manager's socket: a path, and a name of Linux' abstract name space.
for command in words:
    for name in ["notify", "\0lockstep-" + str(os.getpid())] if sys.platform == "linux" else ["notify"]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.settimeout(LIMIT_S)
            manager.bind(name)
            process = start(command, NOTIFY_SOCKET=os.path.abspath(name) if name[0] != "\0" else "@" + name[1:])
            expect(f"{command}: first datagram", manager.recv(100), b"READY=1")
            if os.path.exists(f"/proc/{process.pid}/task"):
                children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
                for child in children:
                    with open(f"/proc/{child}/environ", "rb") as f:
                        expect(f"{command}: NOTIFY_SOCKET of a child", b"NOTIFY_SOCKET=" in f.read(), False)
            process.send_signal(signal.SIGTERM)
            expect(f"{command}: second datagram", manager.recv(100), b"STOPPING=1")
            expect(f"{command}: exit status", process.wait(LIMIT_S), 0)
            if os.path.exists(name.replace("\0", "@")):
                os.unlink(name)

# Nobody listens: a manager that is gone is no reason to end, whoever asked for the line is.
process = start("node", NOTIFY_SOCKET=os.path.abspath("nobody"))
expect("no manager: lives", process.poll(), None)
r, w = os.pipe()
os.close(r)
unread = start("node", w)
expect("no reader: exit status", unread.wait(LIMIT_S), 1)
os.close(w)

# It fails before it is ready: the pipe ends without a line.
words["serve"][1] = "no-such-model.gguf"
r, w = os.pipe()
failed = start("serve", w)
os.close(w)
expect("no model: the line", os.read(r, 100), b"")
expect("no model: exit status", failed.wait(LIMIT_S), 2)

expect("no manager: exit status", end(process), 0)
print("ready lines and datagrams are as they are documented")
