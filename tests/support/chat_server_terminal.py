"""chat_server_terminal.py URL: lockstep chat --server at a pseudo-terminal: words that wrap, thoughts that are dim, several
lines, commands, Ctrl-C. The answers are chat_nodes.py's."""
import os
import re
import sys

from terminal import Missing, Terminal

LOCKSTEP = os.environ["LOCKSTEP"]
URL = sys.argv[1]
failures = 0


def chat(*more, **environment):
    return Terminal(LOCKSTEP, "chat", "--server", URL, "--api-key", "abra", *more, **environment)


def case(run):
    global failures
    try:
        run()
    except (Missing, OSError) as error:
        failures += 1
        print(f"FAILED: {run.__name__}: {error}")


def screen(text, columns=36):
    """What a terminal of that width shows: lines of it. Wide characters take two columns."""
    lines, column = [[]], 0
    for token in re.findall(r"\x1b\[[0-9?]*[A-Za-z]|.", text, re.S):
        if token == "\n":
            lines.append([])
        elif token == "\r":
            column = 0
        elif re.fullmatch(r"\x1b\[\d+D", token):
            column -= int(token[2:-1])
        elif token == "\x1b[K":
            lines[-1] = lines[-1][:column]
        elif token[0] != "\x1b":
            width = 2 if ord(token) > 0x2E80 else 1
            if column + width > columns:
                raise Missing(f"a line is longer than {columns} columns: {''.join(lines[-1])!r}")
            lines[-1] = lines[-1][:column] + [token] + [""] * (width - 1)
            column += width
    return ["".join(line) for line in lines]


@case
def words_wrap():
    with chat("-q") as t:
        t.resize(36)
        t.ready()
        t.type("hello\r")
        shown = t.until("2004l(.*?)\r\n\x1b\\[\\?2004h").group(1).decode()
        lines = screen(shown)
        want = ["It holds what nobody wants, \u65e5\u672c\u8a9e", "\u306e\u6587\u7ae0 and", "a-few-words-that-are-not-broken."]
        if [line.rstrip() for line in lines] != want:
            raise Missing(f"the lines are {lines}")


@case
def thoughts_are_dim():
    with chat("-q") as t:
        t.ready()
        t.type("think\r")
        t.until("\x1b\\[2mLet me see")
        t.until("at all.*\x1b\\[0m\r\n\r\nIt holds")
        t.ready()
    with chat("-q", NO_COLOR="1") as t:
        t.ready()
        t.type("think\r")
        t.until("\\[thinking\\]\r\nLet me see")
        t.until("\r\n\\[answer\\]\r\nIt holds")
        if b"\x1b[2m" in t.all:
            raise Missing("NO_COLOR, and thoughts are dim")


@case
def several_lines():
    with chat() as t:
        t.until("Alt-Enter or \"\"\" for several lines")
        t.ready()
        t.type("/nosuch one\x1b\rtwo\r")
        t.until("unknown command /nosuch one\r\ntwo;")
        t.ready()
        t.type('"""/nosuch a\r')
        t.until('""" ')
        t.type('b"""\r')
        t.until("unknown command /nosuch a\r\nb;")
        t.ready()


@case
def what_happened_is_said():
    with chat() as t:
        t.ready()
        t.type("break\r")
        t.until("It holds what nobody.*not-broken\\.\r\n.*\\[http://127.0.0.1:[0-9]* is lost; http://127.0.0.2:[0-9]* goes on\\]")
        t.until("\\[7 \\+ 11 tokens, first after")
        t.ready()
        t.type("told\r")
        t.until("It holds what nobody.*\\[rack is lost; shelf takes over\\]")
        t.ready()


@case
def it_goes_on_after_errors():
    with chat("-q") as t:
        t.ready()
        t.type("fail\r")
        t.until("lockstep chat: http://[0-9.:]*: a rank is lost")
        t.ready()
        t.type("count\r")
        t.until("2004luser\r\n")
        t.ready()
        t.type("/set top-p 7\r")
        t.until("top-p 7: expected a number from 0 to 1")
        t.ready()
        t.type("/load nowhere\r")
        t.until("nowhere: ")
        t.ready()
        t.type("/quit\r")
        t.ends(0)


print("chat with a server at a terminal: all as it should be" if failures == 0 else f"{failures} failures")
sys.exit(failures != 0)
