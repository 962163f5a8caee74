"""cluster_view.py DIR: answers GET /v1/cluster with the JSON of DIR/cluster.json, as it is at that time. DIR/url gets the address.
DIR/status, if it is there, is the status of all answers."""
import http.server
import os
import sys

DIR = sys.argv[1]


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *words):
        pass

    def do_GET(self):
        status, body = 200, b"{}"
        if os.path.exists(os.path.join(DIR, "status")):
            status, body = int(open(os.path.join(DIR, "status")).read()), b'{"error": {"message": "a key is needed"}}'
        elif self.path == "/v1/cluster":
            body = open(os.path.join(DIR, "cluster.json"), "rb").read()
        else:
            status = 404
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
with open(os.path.join(DIR, "url.part"), "w") as f:
    f.write(f"http://127.0.0.1:{server.server_address[1]}\n")
os.rename(os.path.join(DIR, "url.part"), os.path.join(DIR, "url"))
server.serve_forever()
