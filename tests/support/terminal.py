"""terminal.py: a program at a pseudo-terminal, for tests: what it shows, and keys for it."""
import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time

WAIT_S = 60  # what never comes costs this


class Missing(Exception):
    pass


class Terminal:
    def __init__(self, *words, **environment):
        self.master, self.slave = os.openpty()
        self.resize(80)
        self.modes = termios.tcgetattr(self.slave)
        self.seen = self.all = b""

        def lead_session():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            words, stdin=self.slave, stdout=self.slave, stderr=self.slave, preexec_fn=lead_session,
            env=dict(os.environ, **{"TERM": "xterm", "PS1": "shell$ ", "HOME": os.getcwd(), **environment}))

    def __enter__(self):
        return self

    def __exit__(self, *why):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)

    def resize(self, columns):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def type(self, text):
        os.write(self.master, text if isinstance(text, bytes) else text.encode())

    def until(self, pattern):
        """What comes up to and with the pattern."""
        end = time.monotonic() + WAIT_S
        while True:
            found = re.search(pattern.encode(), self.seen, re.S)
            if found:
                self.seen = self.seen[found.end() :]
                return found
            if time.monotonic() > end or self.process.poll() is not None and not select.select([self.master], [], [], 0)[0]:
                raise Missing(f"{pattern!r} does not come; exit status {self.process.poll()}; after {self.all[-400:]!r}")
            if select.select([self.master], [], [], 0.1)[0]:
                more = os.read(self.master, 65536)
                self.seen, self.all = self.seen + more, self.all + more

    def until_cooked(self, cooked=True):
        end = time.monotonic() + WAIT_S
        while bool(termios.tcgetattr(self.master)[3] & termios.ICANON) != cooked:
            if time.monotonic() > end:
                raise Missing(f"the terminal is never {'cooked' if cooked else 'raw'}")
            time.sleep(0.002)

    def ready(self):
        """A prompt, and the editor reads keys."""
        self.until("> ")
        self.until_cooked(False)

    def ends(self, status):
        got = self.process.wait(WAIT_S)
        if got != status:
            raise Missing(f"exit status {got}, expected {status}")
        if termios.tcgetattr(self.slave) != self.modes:
            raise Missing("the terminal is left in another mode")


