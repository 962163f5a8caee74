"""chat_nodes.py DIR: two nodes of a cluster that answer a chat at one port of 127.0.0.1 and 127.0.0.2, for lockstep chat.
DIR/url gets the first one's address, DIR/names the names of requests. What is asked decides what happens:
"break": the first node breaks off in the middle, and the second one gives the same answer; "other": it gives another;
"think": there are thoughts, in long lines; "fail": an error comes in the stream; "settings": the request itself."""
import http.server
import json
import os
import sys
import threading

TEXT = "It holds what nobody wants, \u65e5\u672c\u8a9e\u306e\u6587\u7ae0 and a-few-words-that-are-not-broken."
THOUGHTS = "Let me see what the question may mean before anything is said about it at all."
DIR = sys.argv[1]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def reply(self, value, status=200):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.headers.get("Authorization") != "Bearer abra":
            self.reply({"error": {"message": "a key is needed"}}, 401)
        elif self.path == "/v1/models":
            self.reply({"data": [{"id": "m", "owned_by": "lockstep"}]})
        elif self.path == "/v1/cluster":
            self.reply({"self": "one", "nodes": [{"name": "one", "address": "127.0.0.1"}, {"name": "two", "address": "127.0.0.2"}, {"name": "three"}]})
        else:
            self.reply({"error": {"message": "no such path"}}, 404)

    def event(self, value):
        data = ("data: " + (value if isinstance(value, str) else json.dumps(value)) + "\n\n").encode()
        for piece in data[:7], data[7:]:  # nor need an event come in one piece
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.flush()

    def delta(self, **what):
        self.event({"choices": [{"index": 0, "delta": what}]})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = request["messages"][-1]["content"]
        first = self.server.server_address[0] == "127.0.0.1"
        with open(os.path.join(DIR, "names"), "a") as f:
            print(self.headers["Lockstep-Request"], file=f)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        text = TEXT
        if said == "settings":
            text = json.dumps({k: v for k, v in request.items() if k not in ("messages", "stream_options")}, sort_keys=True)
        if said == "count":
            text = " ".join(m["role"] for m in request["messages"])
        if said == "other" and not first:
            text = text.replace("holds", "keeps")
        if said == "think":
            for word in THOUGHTS.split(" "):
                self.delta(reasoning_content=word + " ")
        if said == "told":
            comment = b': lockstep {"lost": "rack", "next": "shelf", "sentence": "rack is lost; shelf takes over"}\n\n: still at work\n\n: lockstep {nonsense\n\n'
            self.wfile.write(b"%x\r\n%s\r\n" % (len(comment), comment))
        step = 5 if first else 7  # another division into events
        for i in range(0, len(text), step):
            if said in ("break", "other") and first and i >= 20:
                self.close_connection = True
                self.connection.close()
                return
            if said == "fail" and i >= 20:
                self.event({"error": {"message": "a rank is lost"}})
                return
            self.delta(content=text[i : i + step])
        self.event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 11}})
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        pass


one = Server(("127.0.0.1", 0), Handler)
two = Server(("127.0.0.2", one.server_address[1]), Handler)
threading.Thread(target=two.serve_forever, daemon=True).start()
with open(os.path.join(DIR, "url.part"), "w") as f:
    f.write(f"http://127.0.0.1:{one.server_address[1]}\n")
os.rename(os.path.join(DIR, "url.part"), os.path.join(DIR, "url"))
one.serve_forever()
