"""joint_ssm_in.py IN OUT: a qwen3next GGUF of f32 as the first files of that family are: attn_qkv
and attn_gate of each delta net as one ssm_in, of each key head q, k, its value heads, its z heads."""
import struct
import sys

data = open(sys.argv[1], "rb").read()
at = 8
FORMATS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd"))


def take(fmt):
    global at
    value = struct.unpack_from("<" + fmt, data, at)[0]
    at += struct.calcsize("<" + fmt)
    return value


def string():
    global at
    n = take("Q")
    at += n
    return data[at - n:at].decode("utf-8", "surrogateescape")


def value(kind):
    if kind == 8:
        return string()
    if kind == 9:
        inner, n = take("I"), take("Q")
        return [value(inner) for _ in range(n)]
    return take(FORMATS[kind])


n_tensors, n_keys = take("Q"), take("Q")
keys_from = at
keys = {}
for _ in range(n_keys):
    name = string()
    keys[name] = value(take("I"))
keys_bytes = data[keys_from:at]
tensors = []
for _ in range(n_tensors):
    name = string()
    dims = [take("Q") for _ in range(take("I"))]
    tensors.append((name, dims, take("I"), take("Q")))
align = keys.get("general.alignment", 32)
first = -(-at // align) * align
size = lambda dims: 4 * dims[0] * (dims[1] if len(dims) > 1 else 1) * (dims[2] if len(dims) > 2 else 1)
parts = {name: data[first + begin:first + begin + size(dims)] for name, dims, _, begin in tensors}
k = keys["qwen3next.ssm.state_size"]
n_k = keys["qwen3next.ssm.group_count"]
v = keys["qwen3next.ssm.inner_size"] // n_k  # value rows of a key head
made = []
for name, dims, kind, _ in tensors:
    assert kind == 0, name
    if name.endswith("attn_gate.weight"):
        continue
    if name.endswith("attn_qkv.weight"):
        row = 4 * dims[0]
        qkv, z = parts[name], parts[name.replace("attn_qkv", "attn_gate")]
        cut = lambda b, begin, n: b[begin * row:(begin + n) * row]
        joint = b"".join(cut(qkv, h * k, k) + cut(qkv, (n_k + h) * k, k) + cut(qkv, 2 * n_k * k + h * v, v) + cut(z, h * v, v)
                         for h in range(n_k))
        made.append((name.replace("attn_qkv", "ssm_in"), [dims[0], n_k * (2 * k + 2 * v)], joint))
    else:
        made.append((name, dims, parts[name]))
out = data[:8] + struct.pack("<QQ", len(made), n_keys) + keys_bytes
body = b""
for name, dims, content in made:
    text = name.encode()
    out += struct.pack("<Q", len(text)) + text + struct.pack("<I", len(dims)) + struct.pack("<%dQ" % len(dims), *dims)
    out += struct.pack("<IQ", 0, len(body))
    body += content + b"\0" * (-len(content) % align)
out += b"\0" * (-len(out) % align)
open(sys.argv[2], "wb").write(out + body)
