"""gguf_keys.py: the keys of a GGUF file as they lie in it, {name: (kind, bytes)}, and a copy with others."""
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
U32, BOOL, STRING, ARRAY = 4, 7, 8, 9


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


def pairs_of(r, n):
    pairs = {}
    for _ in range(n):
        key, kind = r.string(), r.number("I")
        begin = r.at
        r.skip(kind)
        pairs[key] = kind, r.data[begin : r.at]
    return pairs


def load(source):
    """Its keys, and what store() needs beside them."""
    r = Reader(open(source, "rb").read())
    magic, version, n_tensors, n_keys = (r.number(f) for f in ("I", "I", "Q", "Q"))
    pairs = pairs_of(r, n_keys)
    begin = r.at
    for _ in range(n_tensors):
        r.string()
        n_dims = r.number("I")
        r.at += 8 * n_dims + 4 + 8  # the sizes, the type, the offset
    return pairs, (magic, version, n_tensors, r.data[begin : r.at], r.data[(r.at + 31) // 32 * 32 :])


def store(target, pairs, rest):
    magic, version, n_tensors, infos, data = rest
    out = struct.pack("<IIQQ", magic, version, n_tensors, len(pairs))
    out += b"".join(string(k) + struct.pack("<I", kind) + v for k, (kind, v) in pairs.items())
    out += infos
    open(target, "wb").write(out + b"\0" * (-len(out) % 32) + data)
