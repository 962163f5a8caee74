"""hub.py FOLDER CERT KEY: imitates Hugging Face's hub over HTTPS, as its API is documented, and its storage on another
port. FOLDER/repos/ORG/REPO has the files. A line of FOLDER/mode changes what the storage and the hub do, each line once
for each time that it stands there:

    cut N       the next file's bytes end after N
    stall       the next file's bytes stop after 1000, with the connection open
    wrong       a byte of the next file is another one
    busy N      the next request of a file gets 429, and Retry-After: N
    broken      the next request of a file gets 500
    expired     the next request at the storage gets 403
    whole       the next range is ignored: 200
    slow N      all files come with N bytes a second, while this line stands there

It writes FOLDER/log (one line for each request), FOLDER/served (bytes of weights sent, all in all, counted before a client has
them), FOLDER/sending (files that are being sent now), FOLDER/ports.
"""
import hashlib
import http.server
import json
import os
import ssl
import sys
import threading
import time
import urllib.parse

folder, cert, key = sys.argv[1:4]
lock = threading.Lock()
counted = {"served": 0, "sending": 0}
TOKEN = "hf_good"


def log(line):
    with lock, open(f"{folder}/log", "a") as f:
        f.write(line + "\n")


def write(name, text):
    """A file that whoever reads it finds whole."""
    with open(f"{folder}/{name}.new", "w") as f:
        f.write(text)
    os.replace(f"{folder}/{name}.new", f"{folder}/{name}")


def count(name, n):
    with lock:
        counted[name] += n
        write(name, f"{counted[name]}\n")


def take_mode(*names):
    """The first line of the modes that has one of these names, which is then gone; 'slow' stays."""
    with lock:
        try:
            lines = open(f"{folder}/mode").read().splitlines()
        except FileNotFoundError:
            return None
        for i, line in enumerate(lines):
            if line.split()[0] in names:
                if line.split()[0] != "slow":
                    del lines[i]
                    write("mode", "\n".join(lines) + "\n" if lines else "")
                return line.split()
    return None


def is_large(name):
    return name.endswith((".gguf", ".safetensors", ".bin"))


def describe(repo):
    """What the hub says about a repository, with its commit."""
    root, files = f"{folder}/repos/{repo}", []
    for at, _, names in os.walk(root):
        for name in sorted(names):
            path = os.path.join(at, name)
            data, rel = open(path, "rb").read(), os.path.relpath(path, root)
            one = {"rfilename": rel, "size": len(data), "blobId": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()}
            if is_large(rel):
                one["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
            files.append(one)
    files.sort(key=lambda one: one["rfilename"])
    if os.path.exists(f"{root}.list"):  # a hostile list
        files = json.load(open(f"{root}.list"))
    sha = hashlib.sha1(json.dumps(files).encode()).hexdigest()
    return {"id": repo, "sha": sha, "siblings": files, "gated": False}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, code):
        self.say(status, json.dumps({"error": code}).encode(), X_Error_Code=code)

    def send_file(self, path, weights):
        count("sending", 1)
        try:
            self.send_parts(path, weights)
        finally:
            count("sending", -1)

    def send_piece(self, piece, weights):
        count("served", len(piece) if weights else 0)
        try:
            self.wfile.write(piece)
        except OSError:  # the client is gone
            count("served", -len(piece) if weights else 0)
            raise

    def send_parts(self, path, weights):
        data, start, status = open(path, "rb").read(), 0, 200
        stop = len(data)
        if take_mode("wrong"):
            data = data[:-1] + bytes([data[-1] ^ 1])
        asked = self.headers.get("Range")
        if asked and not take_mode("whole"):
            start, last = asked.split("=")[1].split("-")
            start, stop, status = int(start), int(last) + 1 if last else len(data), 206
            if start >= len(data):
                return self.say(416, Content_Range=f"bytes */{len(data)}")
        body, end = data[start:stop], None
        cut = take_mode("cut", "stall")
        if cut:
            end = int(cut[1]) if cut[0] == "cut" else 1000
        self.send_response(status)
        self.send_header("ETag", '"' + hashlib.md5(data).hexdigest() + '"')
        self.send_header("Accept-Ranges", "bytes")
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{min(stop, len(data)) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        body = body[:end]
        for at in range(0, len(body), 16384):
            piece = body[at:at + 16384]
            slow = take_mode("slow")
            if slow:
                time.sleep(len(piece) / int(slow[1]))
            self.send_piece(piece, weights)
        if cut and cut[0] == "stall":
            time.sleep(8)
        if cut:
            self.close_connection = True

    def is_allowed(self, repo):
        token = self.headers.get("Authorization", "")
        if token not in ("", f"Bearer {TOKEN}"):
            self.refuse(401, "Unauthorized")
            return False
        if repo == "org/private" and not token:
            self.refuse(401, "RepoNotFound")
            return False
        if repo == "org/gated":
            self.refuse(403 if token else 401, "GatedRepo")
            return False
        if not os.path.isdir(f"{folder}/repos/{repo}"):
            self.refuse(404, "RepoNotFound")
            return False
        return True

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(url.path).strip("/")
        role = self.server.role
        log(f"{role} {path} token={'yes' if self.headers.get('Authorization') else 'no'} range={self.headers.get('Range')}")
        if role == "storage":
            if take_mode("expired"):
                return self.say(403)
            return self.send_file(f"{folder}/repos/{path}", True)
        parts = path.split("/")
        if parts[:2] == ["api", "models"]:
            repo = "/".join(parts[2:4])
            if repo == "org/old":  # renamed
                return self.say(307, Location=self.path.replace("org/old", "org/tiny"))
            if not self.is_allowed(repo):
                return None
            answer = describe(repo)
            if parts[5] not in ("main", answer["sha"]):
                return self.refuse(404, "RevisionNotFound")
            return self.say(200, json.dumps(answer).encode(), Content_Type="application/json")
        repo, name = "/".join(parts[:2]), "/".join(parts[4:])
        if repo == "org/old":
            return self.say(307, Location=self.path.replace("org/old", "org/tiny"))
        if not self.is_allowed(repo):
            return None
        mode = take_mode("busy", "broken")
        if mode:
            return self.say(429, Retry_After=mode[1]) if mode[0] == "busy" else self.say(500)
        file = f"{folder}/repos/{repo}/{name}"
        if not os.path.exists(file):
            return self.refuse(404, "EntryNotFound")
        answer = describe(repo)
        if parts[3] != answer["sha"]:
            return self.refuse(404, "EntryNotFound")
        if not is_large(name):
            return self.send_file(file, False)
        one = [f for f in answer["siblings"] if f["rfilename"] == name][0]
        return self.say(302, Location=f"https://localhost:{ports['storage']}/{repo}/{urllib.parse.quote(name)}?signed=1",
                        X_Linked_ETag='"' + one["lfs"]["sha256"] + '"', X_Linked_Size=str(one["size"]), X_Repo_Commit=answer["sha"])


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):  # clients that are killed
        pass


ports = {}
for role in "hub", "storage":
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server = Server(("127.0.0.1", 0), Handler)
    server.role = role
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    ports[role] = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
write("ports", f"{ports['hub']} {ports['storage']}\n")
sys.stdin.read()  # ends with whoever has started it
