"""top_terminal.py URL DIR: lockstep top at a pseudo-terminal: frames that fit, views, scrolling, a window that changes, an answer
that changes, every way to end. cluster_view.py answers with DIR/cluster.json."""
import fcntl
import json
import os
import re
import signal
import struct
import sys
import termios
import time
import unicodedata

from terminal import WAIT_S, Missing, Terminal

LOCKSTEP = os.environ["LOCKSTEP"]
URL, DIR = sys.argv[1:]
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
failures = 0


def put(cluster):
    with open(os.path.join(DIR, "cluster.json.part"), "w") as f:
        json.dump(cluster, f)
    os.rename(os.path.join(DIR, "cluster.json.part"), os.path.join(DIR, "cluster.json"))


def columns(text):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


class Top(Terminal):
    def __init__(self, *more, **environment):
        super().__init__(LOCKSTEP, "top", "--server", URL, *more, **environment)

    def left(self):
        """Whether the terminal is put back, once the program has ended."""
        self.until(re.escape(LEAVE.decode()) + "$")
        if self.all.count(ENTER) != 1:
            raise Missing(f"the terminal is entered {self.all.count(ENTER)} times")

    def window(self, columns, lines):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def frame(self, holds, width=80, height=24):
        """The next whole frame that has the pattern: its lines, without styles. Each must fit."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            shown = self.until("\x1b\\[H(.*?q quits[^\r\n]*?\x1b\\[K)(?=\x1b\\[H)").group(1).decode()
            lines = [re.sub(r"\x1b\[[0-9?]*[A-Za-z]", "", line).rstrip() for line in shown.split("\n")]
            if re.search(holds, "\n".join(lines)) and len(lines) == height:
                for line in lines:
                    if columns(line) > width:
                        raise Missing(f"a line is longer than {width} columns: {line!r}")
                return lines
        raise Missing(f"no frame has {holds!r}")


def case(run):
    global failures
    try:
        run()
    except (Missing, OSError) as error:
        failures += 1
        print(f"FAILED: {run.__name__}: {error}")


cluster = json.load(open(os.path.join(DIR, "cluster.json")))


@case
def an_overview_fits():
    with Top() as t:
        lines = t.frame("qwen")
        want = [
            r"^lockstep top  rack  2 nodes, 1 lost  1 model  48\.1 tokens/s$",
            r"^\[overview\]  nodes   models   events$",
            r"^rack  +here +16 +1\.2  \[#########=\+::\.+\] 64\.0 GB of 100 GB$",
            r"^shelf +lost 12 s +8 ",
            r"^\u65e5\u672c\?\[2J  +here",
            r"^qwen +listening +48\.1 +900 +2 +1 +25 %  rack, shelf$",
            r"^qwen to shelf: 50 %  2\.00 GB of 4\.00 GB  110 MB/s  18 s left$",
            r"^\d\d:\d\d:\d\d lost +shelf is lost$",
        ]
        for pattern in want:
            if not any(re.search(pattern, line) for line in lines):
                raise Missing(f"no line is {pattern!r} in {lines}")
        if not re.search(b"\x1b\\[3[0-9]m", t.all):
            raise Missing("no colours")
        t.type("q")
        t.ends(0)
        t.left()


@case
def views_and_scrolling():
    with Top(NO_COLOR="1") as t:
        t.frame("\\[overview\\]")
        t.type("\t")
        lines = t.frame("\\[nodes\\]")
        if not any("qwen rank 0 on the processor: weights 30.0 GB, cache 5.00 GB, buffers 5.00 GB; layers 0-15" in x for x in lines):
            # 80 columns cut it
            if not any("qwen rank 0 on the processor: weights 30.0 GB, cache 5.00 GB, buffers 5.00 GB" in x for x in lines):
                raise Missing(f"no worker: {lines}")
        t.type("\x1b[C")
        t.frame("\\[models\\]")
        t.type("\x1b[D\x1b[D")
        t.frame("\\[overview\\]")
        t.type("4")
        lines = t.frame("\\[events\\]")
        if "shelf is lost" not in lines[4]:
            raise Missing(f"the latest event is not the first: {lines}")
        t.type("\x1b[B\x1b[B")
        lines = t.frame("\\[events\\]\n\n[0-9:]* joined")
        if "event 99" not in lines[3]:
            raise Missing(f"it does not scroll: {lines}")
        # A sentence that is longer than the line has further ones.
        cluster["events"].append({"time": 1, "kind": "placed", "sentence": "word " * 20 + "end"})
        put(cluster)
        t.type("\x1b[H")
        lines = t.frame(" {20}word[a-z ]* end\n")
        if not lines[4].endswith("word") or not lines[5].endswith("end"):
            raise Missing(f"a long sentence is {lines[4:6]}")
        cluster["events"].pop()
        put(cluster)
        t.type("\x1b[F")
        lines = t.frame("event 0\n")
        if "event 0" not in lines[22]:
            raise Missing(f"the end is elsewhere: {lines}")
        t.type("\x1b[H")
        t.frame("EVENTS")
        t.type("\x1bx\x1b[99~")  # keys that mean nothing
        t.type("1")
        t.frame("\\[overview\\]")
        if re.search(b"\x1b\\[[0-9]*m", t.all.replace(b"\x1b[0m\x1b[?7h", b"")):
            raise Missing("NO_COLOR, and styles")
        t.type("\x03")
        t.ends(130)


@case
def a_window_that_changes():
    with Top() as t:
        t.frame("qwen")
        for width, height in ((40, 10), (132, 50), (20, 5), (80, 24)):
            t.window(width, height)
            t.process.send_signal(signal.SIGWINCH)
            t.frame("lockstep top", width, height)
        t.type("q")
        t.ends(0)


@case
def what_changes_is_seen():
    with Top() as t:
        t.frame("48\\.1 tokens/s")
        cluster["deployments"][0]["tokens_per_second"] = 12.5
        put(cluster)
        t.frame("12\\.5 tokens/s")
        with open(os.path.join(DIR, "status"), "w") as f:
            f.write("401")
        t.frame("for \\d+ s: http://[0-9.:]*: a key is needed")
        os.remove(os.path.join(DIR, "status"))
        put({"self": 1, "nodes": 3, "deployments": [1, {"name": None}], "events": {"x": 1}})  # nonsense is no harm
        t.frame("0\\.0 tokens/s")
        put(cluster)
        t.frame("12\\.5 tokens/s")
        t.type("q")
        t.ends(0)


@case
def every_way_to_end():
    for number in signal.SIGTERM, signal.SIGHUP, signal.SIGINT:
        with Top() as t:
            t.frame("qwen")
            t.process.send_signal(number)
            t.ends(130)
            t.left()


@case
def stop_and_go_on():
    with Terminal("bash", "--norc", "--noprofile", "-i") as t:
        t.until("shell\\$ ")
        t.type(f"{LOCKSTEP} top --server {URL}\r")
        t.until("q quits")
        t.type("\x1a")
        t.until("\x1b\\[\\?1049l.*Stopped")
        t.until("shell\\$ ")
        t.type("fg\r")
        t.until("\x1b\\[\\?1049h.*q quits")
        t.type("q")
        t.until("\x1b\\[\\?1049l.*shell\\$ ")


print("top at a terminal: all as it should be" if failures == 0 else f"{failures} failures")
sys.exit(failures != 0)
