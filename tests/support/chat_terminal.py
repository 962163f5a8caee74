"""chat_terminal.py MODEL SLOW: lockstep chat at a pseudo-terminal: Ctrl-C, Ctrl-Z, a window that changes, two at once, every
way to end. SLOW is the same model with a template that takes long."""
import os
import re
import signal
import subprocess
import sys

from terminal import Missing, Terminal

LOCKSTEP = os.environ["LOCKSTEP"]
# Its tokens come slowly enough to be stopped.
SLOWLY = ("--ranks", "2", "-t", "1", "--emulate-link", "latency=20ms", "--temp", "0")
failures = 0


def chat(model, *more, **environment):
    return Terminal(LOCKSTEP, "chat", model, "-q", *more, **environment)


def case(run):
    global failures
    try:
        run()
    except (Missing, OSError, subprocess.TimeoutExpired) as error:
        failures += 1
        print(f"FAILED: {run.__name__}: {error}")


def knows_its_prompt(t):
    """Still there, and takes commands."""
    t.type("/nosuch\r")
    t.until("unknown command /nosuch;")
    t.ready()


MODEL, SLOW = sys.argv[1:]


@case
def ctrl_c_before_the_answer():
    with chat(SLOW, "-n", "3") as t:
        t.ready()
        t.type("hello\r")
        t.until_cooked()  # Enter was read; the template runs
        t.type("\x03")
        t.ready()
        knows_its_prompt(t)


@case
def ctrl_c_in_the_answer():
    with chat(MODEL, *SLOWLY) as t:
        t.ready()
        t.type("What is a bit bucket?\r")
        t.until("2004l[^>]*[a-z]{3}")
        t.type("\x03\x03")
        t.until("\\^C")
        t.ready()
        t.type("\x03")
        t.ready()
        knows_its_prompt(t)


@case
def ctrl_c_among_other_keys():
    with chat(MODEL) as t:
        t.ready()
        t.type("abc\x03/nosuch")  # all at once
        t.ready()
        t.type("\r")
        t.until("unknown command /nosuch;")


@case
def ctrl_c_at_an_empty_prompt():
    with chat(MODEL) as t:
        for _ in range(4):
            t.ready()
            t.type("\x03")
        t.ready()
        knows_its_prompt(t)


@case
def window_changes():
    with chat(MODEL) as t:
        t.ready()
        t.type("/nosuch 456789 1234")
        t.until("1234")
        t.resize(14)
        t.until("\r.*> /nosuch 4567.*89 1234")
        t.type("\r")
        t.until("unknown command /nosuch 456789 1234;")


@case
def stop_and_go_on():
    with Terminal("bash", "--norc", "--noprofile", "-i") as t:
        t.until("shell\\$ ")
        t.type(f"{LOCKSTEP} chat {MODEL} -q\r")
        t.until("\n")
        t.ready()
        t.type("/nosu")
        t.until("/nosu")
        t.type("\x1a")
        t.until("Stopped")
        t.until("shell\\$ ")
        t.type("stty -a; echo done\r")
        if not re.search(b" icanon", t.until("speed.*done").group()):
            raise Missing("the terminal is left raw")
        t.until("shell\\$ ")
        t.type("fg\r")
        t.until("> /nosu")
        t.until_cooked(False)
        t.type("ch\r")
        t.until("unknown command /nosuch;")
        t.ready()
        t.type("/quit\r")
        t.until("shell\\$ ")


@case
def paste_of_several_lines():
    with chat(MODEL) as t:
        t.until("\x1b\\[\\?2004h")
        t.ready()
        # With every end of line that terminals send; some of it only looks like the end of the paste.
        t.type("/no\x1b[200~such\rtwo\r\nth\x1b[20ree\nDr\u00fcck \u65e5\x1b[201~!")
        t.until("!")
        t.type("\r")
        t.until("unknown command /nosuch\r\ntwo\r\nth\x1b\\[20ree\r\nDr\u00fcck \u65e5!;")
        t.ready()
        t.type("\x1b[A")  # in the history it is one message
        t.until("/nosuch.*two.*ree.*!")
        t.type("\r")
        t.until("unknown command /nosuch\r\ntwo")
        t.until("\x1b\\[\\?2004h")
        t.ready()
        t.type("\x1b[200~half\x03")
        t.ready()
        knows_its_prompt(t)


@case
def two_at_once_remember():
    """The history has the lines of both, whoever wrote last; and what a link leads to stays there."""
    def says(t, word):
        t.type(f"/{word}\r")
        t.until(f"unknown command /{word};")
        t.ready()

    os.makedirs("home/elsewhere")
    os.symlink("elsewhere/history", "home/.lockstep_history")
    open("home/elsewhere/history", "w").close()
    home = {"HOME": os.path.join(os.getcwd(), "home")}
    with chat(MODEL, **home) as one, chat(MODEL, **home) as other:
        one.ready()
        other.ready()
        says(one, "first")
        says(other, "second")
        says(one, "third")
        one.type("\x1b[A\x1b[A")
        one.until("/third.*/?second")
        one.type("\x1b[A")
        one.until("first")
        one.type("\x03")
        one.ready()
    if not os.path.islink("home/.lockstep_history"):
        raise Missing("the link is gone")
    mode = os.stat("home/.lockstep_history").st_mode & 0o777
    if mode != 0o600:
        raise Missing(f"anybody may read the history: {mode:o}")
    kept = re.findall("/(first|second|third)", open("home/.lockstep_history").read())
    if kept != ["first", "second", "third"]:
        raise Missing(f"the history is {kept}")
    # Where it cannot be written, they are remembered until the end.
    os.makedirs("home/elsewhere/history.part")
    with chat(MODEL, **home) as t:
        t.ready()
        says(t, "fourth")
        says(t, "fifth")
        t.type("\x1b[A\x1b[A")
        t.until("/fifth.*fourth|fifth.*o.*u")


@case
def a_model_commands_no_terminal():
    """A word of the answer is made a sequence that colours, then clears."""
    def text(*words):
        return subprocess.run([LOCKSTEP, "run", *words, "-p", "What is a bit bucket?", "-n", "40", "--temp", "0", "-q"],
                              capture_output=True, check=True).stdout

    of = lambda s: len(s.encode()).to_bytes(8, "little") + s.encode()
    with open(MODEL, "rb") as f:
        model = f.read()
    assert model.count(of("\u0120the")) == 1
    with open("rude.gguf", "wb") as f:
        f.write(model.replace(of("\u0120the"), of("\u011b[2J"[:4])))
    piped = text("rude.gguf")
    if b"\x1b[2J" not in piped:
        raise Missing(f"a pipe gets the bytes as they are: {piped!r}")
    with Terminal(LOCKSTEP, "run", "rude.gguf", "-p", "What is a bit bucket?", "-n", "40", "--temp", "0", "-q") as t:
        t.until("\\^\\[\\[2J")
        t.ends(0)
        if b"\x1b" in t.all:
            raise Missing(f"the terminal is told {t.all!r}")
    ids = subprocess.run([LOCKSTEP, "tokenize", MODEL, "--no-bos"], input=b" the", capture_output=True, check=True).stdout
    decode = f"echo {ids.decode().strip()} | {LOCKSTEP} tokenize rude.gguf --decode"
    if (piped := subprocess.run(["bash", "-c", decode], capture_output=True, check=True).stdout) != b"\x1b[2J":
        raise Missing(f"a pipe gets the bytes as they are: {piped!r}")
    with Terminal("bash", "-c", decode) as t:
        t.until("\\^\\[\\[2J")
        t.ends(0)
        if b"\x1b" in t.all:
            raise Missing(f"the terminal is told {t.all!r}")


@case
def a_dumb_terminal():
    def no_escapes(t):
        if b"\x1b" in t.all:
            raise Missing(f"no escape sequences: {t.all!r}")

    for term in "dumb", "":
        with Terminal(LOCKSTEP, "chat", MODEL, "-n", "1", TERM=term) as t:
            t.ready()
            knows_its_prompt(t)
            t.type("hi\r")
            t.until("tokens/s")
            t.ready()
            no_escapes(t)
        with Terminal(LOCKSTEP, "quantize", MODEL, "dumb.gguf", "q8_0", TERM=term) as t:
            t.until("bits per weight")
            t.ends(0)
            no_escapes(t)


@case
def every_way_to_end():
    def ended(status, end):
        with chat(MODEL) as t:
            t.ready()
            end(t)
            t.ends(status)

    ended(0, lambda t: t.type("\x04"))
    ended(0, lambda t: t.type("/quit\r"))
    ended(130, lambda t: t.process.send_signal(signal.SIGTERM))
    ended(-signal.SIGHUP, lambda t: t.process.send_signal(signal.SIGHUP))
    ended(-signal.SIGQUIT, lambda t: t.type("abc\x1c"))


print("chat at a terminal: all as it should be" if failures == 0 else f"{failures} failures")
sys.exit(failures != 0)
