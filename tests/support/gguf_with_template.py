"""gguf_with_template.py IN OUT TEMPLATE: the model IN with another chat template, at OUT."""
import struct
import sys

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9
KEY = b"tokenizer.chat_template"


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
    for _ in range(n):
        key, kind = r.string(), r.number("I")
        begin = r.at
        r.skip(kind)
        if key != KEY:
            yield string(key) + struct.pack("<I", kind) + r.data[begin : r.at]


def main(source, target, template):
    r = Reader(open(source, "rb").read())
    magic, version, n_tensors, n_keys = (r.number(f) for f in ("I", "I", "Q", "Q"))
    pairs = list(pairs_of(r, n_keys))
    pairs.append(string(KEY) + struct.pack("<I", STRING) + string(open(template, "rb").read()))
    begin = r.at
    for _ in range(n_tensors):
        r.string()
        n_dims = r.number("I")
        r.at += 8 * n_dims + 4 + 8 # the sizes, the type, the offset
    out = struct.pack("<IIQQ", magic, version, n_tensors, len(pairs)) + b"".join(pairs)
    out += r.data[begin : r.at]
    out += b"\0" * (-len(out) % 32) + r.data[(r.at + 31) // 32 * 32 :]
    open(target, "wb").write(out)


main(*sys.argv[1:])
