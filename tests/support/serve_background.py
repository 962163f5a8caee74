"""Responses in the background, by their requests: serve_background.py alone|keys|end URL [PID]."""
import http.client
import json
import os
import signal
import sys
import time
import urllib.parse

host = urllib.parse.urlparse(sys.argv[2]).netloc
GREEDY = {"input": "What is a bit bucket?", "temperature": 0, "max_output_tokens": 24}
LONG = {"input": "What?", "temperature": 0, "max_output_tokens": 3000, "ignore_eos": True}
SECONDS = 1.5  # that a long answer takes, so that it can be cut, however slow the server is
DONE = ("completed", "incomplete", "failed", "cancelled")


def send(method, path, body=None, key=None, name=None):
    c = http.client.HTTPConnection(host, timeout=60)
    headers = {"Authorization": "Bearer " + key} if key else {}
    if name:
        headers["Lockstep-Request"] = name
    c.request(method, path, json.dumps(body) if body is not None else None, headers)
    return c, c.getresponse()


def ask(method, path, body=None, want=200, **how):
    c, r = send(method, path, body, **how)
    text = r.read()
    assert r.status == want, (method, path, r.status, text[:300])
    c.close()
    return json.loads(text)


def create(**fields):
    return ask("POST", "/v1/responses", {**fields, "background": True})


def poll(response):
    until = time.time() + 60
    while response["status"] not in DONE:
        assert response["status"] in ("queued", "in_progress") and time.time() < until, response["status"]
        time.sleep(0.01)
        response = ask("GET", "/v1/responses/" + response["id"])
    return response


def text_of(response):
    return "".join(p["text"] for o in response["output"] for p in o["content"])


def events(r, n=None):
    """The events of a stream, or the first n of them."""
    found, data = [], None
    while n is None or len(found) < n:
        line = r.readline()
        if not line:
            break
        if line.startswith(b"data: "):
            found.append(json.loads(line[6:]))
    return found


def stream(path, body=None, n=None, **how):
    c, r = send("POST" if body else "GET", path, body, **how)
    assert r.status == 200, (r.status, r.read()[:300])
    found = events(r, n)
    r.close()
    c.close()
    return found


def measure():
    ask("POST", "/v1/responses", GREEDY)
    begun = time.time()
    ask("POST", "/v1/responses", {**LONG, "max_output_tokens": 100})
    LONG["max_output_tokens"] = max(150, min(3000, int(100 * SECONDS / (time.time() - begun))))


def alone():
    plain = ask("POST", "/v1/responses", GREEDY)

    # Asked for, and seen until it is there.
    begun = time.time()
    queued = create(**GREEDY)
    assert queued["status"] == "queued" and queued["background"] is True and queued["output"] == [] and queued["store"]
    done = poll(queued)
    assert done["status"] == plain["status"] == "incomplete" and text_of(done) == text_of(plain) != ""
    assert done["usage"]["output_tokens"] == 24 and done["background"] is True
    assert ask("GET", "/responses/" + done["id"]) == done
    # What has ended is told again; the conversation goes on from it.
    assert ask("POST", f"/v1/responses/{done['id']}/cancel") == done
    more = ask("POST", "/v1/responses", {**GREEDY, "previous_response_id": done["id"], "input": "Go on."})
    assert more["usage"]["input_tokens"] > plain["usage"]["input_tokens"] + 20
    assert len(ask("GET", f"/v1/responses/{done['id']}/input_items")["data"]) == 1

    # Streamed: the same words; again from any place, also after the end.
    first = stream("/v1/responses", {**GREEDY, "background": True, "stream": True})
    assert [e["sequence_number"] for e in first] == list(range(len(first)))
    assert [e["type"] for e in first[:3]] == ["response.created", "response.queued", "response.in_progress"]
    assert [e["response"]["status"] for e in first[:3]] == ["queued", "queued", "in_progress"]
    assert "".join(e["delta"] for e in first if e["type"] == "response.output_text.delta") == text_of(plain)
    one = "/v1/responses/" + first[0]["response"]["id"]
    assert first[-1]["type"] == "response.incomplete" and first[-1]["response"] == ask("GET", one)
    assert stream(one + "?stream=true") == first
    assert stream(one + "?stream=true&starting_after=4") == first[5:]
    assert stream(one + "?stream=true&starting_after=100000") == []
    for wrong in ("-1", "x", "", "1x"):
        ask("GET", one + "?stream=true&starting_after=" + wrong, want=400)
    why = ask("GET", f"/v1/responses/{done['id']}?stream=true", want=400)
    assert "made with stream" in why["error"]["message"] and why["error"]["param"] == "stream"
    ask("GET", f"/v1/responses/{plain['id']}?stream=true", want=400)
    ask("GET", "/v1/responses/resp_none?stream=true", want=404)
    ask("DELETE", one)
    ask("GET", one, want=404)
    ask("GET", one + "?stream=true", want=404)

    # A client that goes away does not end it; two read on at once, from where they were.
    whole = ask("POST", "/v1/responses", LONG)
    c, r = send("POST", "/v1/responses", {**LONG, "background": True, "stream": True})
    begun = events(r, 9)
    r.close()
    c.close()
    one = "/v1/responses/" + begun[0]["response"]["id"]
    assert ask("GET", one)["status"] == "in_progress"
    why = ask("POST", "/v1/responses", {"input": "hi", "previous_response_id": begun[0]["response"]["id"]}, want=400)
    assert "still under way" in why["error"]["message"]
    assert len(ask("GET", one + "/input_items")["data"]) == 1
    ca, ra = send("GET", one + "?stream=true&starting_after=8")
    cb, rb = send("GET", one + "?stream=true&starting_after=8")
    rest = events(ra)
    assert rest == events(rb) and [e["sequence_number"] for e in begun + rest] == list(range(len(begun + rest)))
    assert "".join(e["delta"] for e in begun + rest if e["type"] == "response.output_text.delta") == text_of(whole)

    # It is under way before its first token: as soon as its prompt is computed. That takes some steps, within one of which the
    # client cancels it, if the client is not too slow.
    for i in range(20):
        c, r = send("POST", "/v1/responses", {**GREEDY, "input": f"{i} " + "a " * 6000, "background": True, "stream": True})
        begun = events(r, 3)
        one = "/v1/responses/" + begun[0]["response"]["id"]
        seen = ask("GET", one)["status"]
        cancelled = ask("POST", one + "/cancel")
        begun += events(r)
        if cancelled["usage"]["output_tokens"] == 0:
            break
    assert seen == "in_progress" and cancelled["status"] == "cancelled" and cancelled["output"] == [], (seen, cancelled["usage"])
    assert [e["type"].removeprefix("response.") for e in begun] == ["created", "queued", "in_progress", "cancelled"]

    # Cancelled: what there is stays; again, it is the same.
    c, r = send("POST", "/v1/responses", {**LONG, "background": True, "stream": True})
    begun = events(r, 30)
    one = "/v1/responses/" + begun[0]["response"]["id"]
    cancelled = ask("POST", one + "/cancel")
    assert cancelled["status"] == "cancelled" and cancelled["error"] is None, cancelled["status"]
    assert text_of(whole).startswith(text_of(cancelled)) and 0 < len(text_of(cancelled)) < len(text_of(whole))
    assert cancelled["output"][0]["status"] == "incomplete" and cancelled["usage"]["output_tokens"] > 0
    begun += events(r)
    assert begun[-1]["type"] == "response.cancelled" and begun[-1]["response"] == cancelled
    assert ask("POST", one + "/cancel") == ask("GET", one) == cancelled
    assert stream(one + "?stream=true") == begun
    queued = create(**LONG)
    ask("DELETE", "/v1/responses/" + queued["id"])
    ask("GET", "/v1/responses/" + queued["id"], want=404)
    ask("POST", f"/v1/responses/{queued['id']}/cancel", want=404)
    ask("POST", f"/v1/responses/{plain['id']}/cancel", want=400)

    # A request that is asked again under its name is not computed again.
    name = "00112233445566778899aabb-1700000000-1"
    a = ask("POST", "/v1/responses", {**LONG, "background": True}, name=name)
    b = ask("POST", "/v1/responses", {**LONG, "background": True}, name=name)
    assert a == b and a["id"] == "resp_00112233445566778899aabb"
    assert ask("POST", f"/v1/responses/{a['id']}/cancel")["status"] == "cancelled"

    # Refused.
    why = ask("POST", "/v1/responses", {**GREEDY, "background": True, "store": False}, want=400)
    assert "background needs store" in why["error"]["message"] and why["error"]["param"] == "background"
    why = ask("POST", "/v1/responses", {"input": "a " * 9000, "background": True}, want=400)
    assert why["error"]["code"] == "context_length_exceeded"
    for streams in (False, True):
        ask("POST", "/v1/responses", {**GREEDY, "background": True, "stream": streams, "model": "other"}, want=404)

    # As many as may be; cancelling them makes room.
    several = [create(**LONG) for _ in range(256)]
    why = ask("POST", "/v1/responses", {**LONG, "background": True}, want=503)
    assert "as many as may be: 256 of 256" in why["error"]["message"], why
    for response in several:
        assert ask("POST", f"/v1/responses/{response['id']}/cancel")["status"] in ("cancelled", "incomplete")
    assert text_of(poll(create(**GREEDY))) == text_of(plain)


def keys():
    made = ask("POST", "/v1/responses", {**LONG, "background": True, "stream": False}, key="first")
    one = "/v1/responses/" + made["id"]
    streamed = stream("/v1/responses", {**GREEDY, "background": True, "stream": True}, key="first")
    two = "/v1/responses/" + streamed[0]["response"]["id"]
    for method, path in (("GET", one), ("POST", one + "/cancel"), ("DELETE", one), ("GET", one + "/input_items"), ("GET", two),
                         ("GET", two + "?stream=true"), ("POST", two + "/cancel"), ("DELETE", two)):
        ask(method, path, want=404, key="second")
        ask(method, path, want=401)
    ask("POST", "/v1/responses", {"input": "hi", "previous_response_id": streamed[0]["response"]["id"]}, want=400, key="second")
    assert ask("POST", one + "/cancel", key="first")["status"] == "cancelled"
    assert stream(two + "?stream=true", key="first") == streamed
    # A name that is another's does not lead to what is theirs, nor does it take its place.
    name = made["id"][len("resp_"):] + "-1700000000-1"
    ask("POST", "/v1/responses", {**GREEDY, "background": True}, key="second", name=name)
    assert ask("GET", one, key="first")["status"] == "cancelled"


def end():
    c, r = send("POST", "/v1/responses", {**LONG, "background": True, "stream": True})
    begun = events(r, 5)
    several = [create(**LONG) for _ in range(20)]
    assert several[-1]["status"] == "queued"
    os.kill(int(sys.argv[3]), signal.SIGTERM)
    rest = events(r)
    last = rest[-1]
    assert last["type"] == "response.incomplete" and last["response"]["usage"]["output_tokens"] == LONG["max_output_tokens"], last["type"]


if sys.argv[1] != "keys":
    measure()
{"alone": alone, "keys": keys, "end": end}[sys.argv[1]]()
