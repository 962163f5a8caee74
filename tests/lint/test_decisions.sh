#!/bin/bash
# No program looks into a sentence that was written for people (base/status.h): functions that compare or search text
# are never given one. Sentences are `text` of a struct err, `sentence`, what a child has said last (`last`,
# `complaint`, `lost_text`), and what a node or an engine tells (`error`, `why`). And a controller decides by structs:
# JSON is read where it comes in (node/report.h, cluster/deployment.h).
set -u
cd "${SOURCE_DIR:-$(dirname "$0")/../..}" || exit 1
command -v python3 >/dev/null || { echo "skip: python3 is not there"; exit 77; }
failures=0
for question in owner layout joiners copy serve standby ports; do
    grep -nH 'json_[a-z_]*(' "src/node/controller_$question.c" && { echo "a controller asks JSON"; failures=1; }
done
python3 - src <<'E2' || failures=1
import pathlib, re, sys

LOOK = r"\b(?:str_eq|str_starts|str_ends|str_has\w*|strstr|strcasestr|strn?cmp|strn?casecmp|strchr|strrchr|strpbrk|strspn|strcspn|memmem|memcmp|" \
       r"sscanf|regexec|fnmatch)\s*\("
SENTENCE = re.compile(r"\b(?:err|why|failure|reason)\w*\s*(?:\.|->)\s*text\b|->\s*(?:last|complaint|lost_text|lack_why|closed)\b|"
                      r"\.(?:last|complaint|lost_text|lack_why|closed)\b|\b(?:sentence|why|complaint)\b(?!\s*(?:\.|->|\())|(?:->|\.)error\b")


# The arguments of the call whose parenthesis opens before `at`, without string literals.
def arguments(text, at):
    depth, end = 1, at
    while depth and end < len(text):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    return text[at:end - 1]


def decisions(text):
    text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)
    for m in re.finditer(LOOK, text):
        if SENTENCE.search(arguments(text, m.end())):
            yield text.count("\n", 0, m.start()) + 1


# What it finds, and what it lets be.
for bad in ('str_starts(err->text, TOO_LONG)', 'strstr(\n    why.text, "x")', 'if (!strncmp(sentence, "a", 1))', 'str_eq(t->last, "ready")',
            'strchr(p->err.text, 58)', 'memmem(done->error, n, "x", 1)', 'strcmp(f(err.text), "")'):
    assert list(decisions(bad)), bad
for good in ('err.text[0] != 0', 'err_set(err, st, "%s", why.text)', 'str_eq(name, "sentence")', '/* strstr(err.text, "x") */', 'strlen(sentence)',
             'str_eq(json_text(o, "error"), other->name)'):
    assert not list(decisions(good)), good
found = [f"{path}:{line}" for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.[ch]")) for line in decisions(path.read_text())]
for place in found:
    print(f"{place}: decides by looking into a sentence: give the error a code (enum err_code), or the reply a field")
sys.exit(1 if found else 0)
E2
[ $failures = 0 ]
