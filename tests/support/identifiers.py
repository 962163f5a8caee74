"""identifiers.py FILE...: the identifiers of C files, one a line as FILE:LINE:NAME, without those in comments and strings."""
import re
import sys

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|\b[A-Za-z_]\w*|\n', re.S)

for path in sys.argv[1:]:
    line = 1
    with open(path, encoding="utf-8") as f:
        for token in TOKEN.findall(f.read()):
            if token[0].isalpha() or token[0] == "_":
                print(f"{path}:{line}:{token}")
            line += token.count("\n")
