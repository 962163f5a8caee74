"""gguf_with_template.py IN OUT TEMPLATE [TOKEN ...]: the model IN with another chat template, at OUT. The last tokens of
its vocabulary become control tokens of these names; no merge makes them."""
import struct
import sys

from gguf_keys import ARRAY, STRING, Reader, load, store, string

KEY = b"tokenizer.chat_template"
TOKENS, TYPES, MERGES = (b"tokenizer.ggml." + k for k in (b"tokens", b"token_type", b"merges"))
CONTROL = struct.pack("<i", 3)


def strings(data):
    r = Reader(data)
    r.number("I")
    return [r.string() for _ in range(r.number("Q"))]


def array(kind, items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def renamed(pairs, names):
    if not names:
        return
    tokens = strings(pairs[TOKENS][1])
    gone = set(tokens[-len(names) :])
    tokens[-len(names) :] = names
    merges = [m for m in strings(pairs[MERGES][1]) if m.replace(b" ", b"") not in gone]
    pairs[TOKENS] = ARRAY, array(STRING, [string(t) for t in tokens])
    pairs[MERGES] = ARRAY, array(STRING, [string(m) for m in merges])
    pairs[TYPES] = ARRAY, pairs[TYPES][1][: -4 * len(names)] + CONTROL * len(names)


def main(source, target, template, *names):
    pairs, rest = load(source)
    pairs[KEY] = STRING, string(open(template, "rb").read())
    renamed(pairs, [n.encode() for n in names])
    store(target, pairs, rest)


main(*sys.argv[1:])
