"""gguf_with_template.py IN OUT TEMPLATE [TOKEN ...]: the model IN with another chat template, at OUT. The last tokens of
its vocabulary become control tokens of these names; no merge makes them."""
import struct
import sys

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9
KEY = b"tokenizer.chat_template"
TOKENS, TYPES, MERGES = (b"tokenizer.ggml." + k for k in (b"tokens", b"token_type", b"merges"))
CONTROL = struct.pack("<i", 3)


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, form):
        (v,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return v

    def string(self):
        n = self.number("Q")
        self.at += n
        return self.data[self.at - n : self.at]

    def skip(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            kind, n = self.number("I"), self.number("Q")
            for _ in range(n):
                self.skip(kind)
        else:
            self.at += SIZES[kind]


def string(text):
    return struct.pack("<Q", len(text)) + text


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


def pairs_of(r, n):
    pairs = {}
    for _ in range(n):
        key, kind = r.string(), r.number("I")
        begin = r.at
        r.skip(kind)
        pairs[key] = kind, r.data[begin : r.at]
    return pairs


def main(source, target, template, *names):
    r = Reader(open(source, "rb").read())
    magic, version, n_tensors, n_keys = (r.number(f) for f in ("I", "I", "Q", "Q"))
    pairs = pairs_of(r, n_keys)
    pairs[KEY] = STRING, string(open(template, "rb").read())
    renamed(pairs, [n.encode() for n in names])
    begin = r.at
    for _ in range(n_tensors):
        r.string()
        n_dims = r.number("I")
        r.at += 8 * n_dims + 4 + 8 # the sizes, the type, the offset
    out = struct.pack("<IIQQ", magic, version, n_tensors, len(pairs))
    out += b"".join(string(k) + struct.pack("<I", kind) + v for k, (kind, v) in pairs.items())
    out += r.data[begin : r.at]
    out += b"\0" * (-len(out) % 32) + r.data[(r.at + 31) // 32 * 32 :]
    open(target, "wb").write(out)


main(*sys.argv[1:])
