"""mentions.py: files named in comments and documents that are not there, as FILE:LINE: NAME. Run at the top of the tree.

A mention is name.c, name.h, room/name.c, also with `*` in it. It must be, or be the end of, the path of a file of the
tree. Headers of the system and of libraries are those that some file includes as <name.h>, or that CMake looks for.
"""
import fnmatch
import os
import re
import sys

MENTION = re.compile(r"(?<![\w.<$/*}-])((?:[\w.*-]+/)*[a-z0-9_*]+(?:\.inc)?\.[ch])(?![\w*(])")
COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.S)
SYSTEM = re.compile(r"#\s*include\s*<([^>]+)>|find_path\(\w+ ([\w/.]+)\)|check_include_file\(([\w/.]+)")

OF_SYSTEMS = {  # which no file includes: the sources of Linux and Darwin
    "asm/prctl.h", "fpu/types.h", "include/net/tcp_states.h", "os/os_sync_wait_on_address.h", "bsd/sys/ulock.h",
}

texts = {}
for folder, folders, names in os.walk("."):
    folders[:] = [f for f in folders if not f.startswith((".git", "build", "node_modules"))]
    for name in names:
        if name.endswith((".c", ".h", ".md")) or name == "CMakeLists.txt":
            path = os.path.relpath(os.path.join(folder, name), ".")
            with open(path, encoding="utf-8") as f:
                texts[path] = f.read()
suffixes = {"/".join(path.split("/")[i:]) for path in texts for i in range(path.count("/") + 1)}
system = {name for text in texts.values() for found in SYSTEM.findall(text) for name in found if name}
system |= {name.rsplit("/", 1)[-1] for name in system}


def is_there(name):
    return name in suffixes or name in system or name in OF_SYSTEMS or ("*" in name and any(fnmatch.fnmatch(s, name) for s in suffixes))


def prose(path, text):
    """(line, text) of each piece of prose."""
    if path.endswith(".md"):
        yield 1, text
    elif not path.endswith(".txt"):
        for m in COMMENT.finditer(text):
            if m.group()[0] == "/":
                yield text.count("\n", 0, m.start()) + 1, m.group()


missing = 0
for path, text in texts.items():
    for line, piece in prose(path, text):
        for m in MENTION.finditer(piece):
            if not is_there(m.group(1)):
                print(f"{path}:{line + piece.count(chr(10), 0, m.start())}: {m.group(1)}")
                missing += 1
sys.exit(missing > 0)
