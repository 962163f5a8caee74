#!/usr/bin/env python3
"""Makes a Hugging Face folder (or MLX's) from a GGUF, for test_folders.sh.

The mapping is written here a second time, from the names and shapes that transformers' modeling_*.py
and mlx-lm's models/*.py use, and from the rotary conventions of their papers; it shares nothing with
src/hf/hf_*.c. Where a format does not hold the GGUF's numbers exactly (Gemma's norms less one,
computed RoPE factors, quantized weights), --gguf writes a second GGUF with the numbers that
the folder does hold.

usage: hf_folder.py IN.gguf FOLDER [--shards N] [--gguf OUT.gguf]
                    [--weights fp8|fp8-row|fp8-all|fp8-fp4|mxfp8|mlx4|mlx8|mlx-mxfp4|mlx-mxfp8|mlx-nvfp4|int4|mxfp4|
                               nvfp4|modelopt-nvfp4] [--scales f32|f16|bf16] [--group N] [--v5] [--nested]
                    [--granite] [--pieces] [--mlx-lm] [--flat] [--wide]
"""
import argparse
import json
import math
import os
import re
import struct
import sys
from array import array
from bisect import bisect

F32, F16, Q4_0, Q4_1, Q8_0, BF16, MXFP4, NVFP4, I32 = 0, 1, 2, 3, 8, 30, 39, 40, 26
BLOCK = {F32: (1, 4), F16: (1, 2), Q4_0: (32, 18), Q4_1: (32, 20), Q8_0: (32, 34), BF16: (1, 2), MXFP4: (32, 17), NVFP4: (64, 36), I32: (1, 4)}
DTYPE = {F32: "F32", F16: "F16", BF16: "BF16"}

# The regular expressions of published tokenizer.json files.
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve"
         r"|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = ["\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
            "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
SEED = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
PATTERNS = {"qwen35": [QWEN35], "lfm2": [CL100K % r"\p{N}{1,3}"], "pixtral": [CL100K % r"\p{N}{1,3}"],
            "llama-bpe": [CL100K % r"\p{N}{1,3}"], "glm4": [CL100K % r"\p{N}{1,3}"],
            "qwen2": [CL100K % r"\p{N}"], "dbrx": [CL100K % r"\p{N}{1,3}"],
            "seed-coder": [SEED], "tekken": [TEKKEN], "default": None,  # of which no folder says so
             "gpt-4o": [O200K], "minimax-m2": [O200K], "llama4": [O200K],
            "deepseek-v3": DEEPSEEK, "gpt-2": None,
            # Not their own: ids are given, or the same.
            "kimi-k2": DEEPSEEK, "hunyuan": [CL100K % r"\p{N}"], "bailingmoe2": [CL100K % r"\p{N}"],
            "deepseek-llm": DEEPSEEK}
IGNORE_MERGES = {"llama-bpe", "tekken", "lfm2", "pixtral"}


# ---- GGUF ---------------------------------------------------------------------------------

class Gguf:
    SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def __init__(self, path):
        """None: a new one, without keys and tensors."""
        self.bytes = open(path, "rb").read() if path else struct.pack("<4sIQQ", b"GGUF", 3, 0, 0)
        self.at = 8
        n_tensors, n_keys = self.take("QQ")
        self.keys, self.raw = {}, {}
        for _ in range(n_keys):
            name = self.text()
            kind, begin = self.take("I")[0], self.at
            self.keys[name] = self.value(kind)
            self.raw[name] = (kind, self.bytes[begin:self.at])
        self.tensors = {}
        for _ in range(n_tensors):
            name = self.text()
            dims = self.take("%dQ" % self.take("I")[0])
            kind, offset = self.take("IQ")
            self.tensors[name] = [dims, kind, offset]
        begin = (self.at + 31) // 32 * 32
        for t in self.tensors.values():
            dims, kind, offset = t
            size = math.prod(dims) // BLOCK[kind][0] * BLOCK[kind][1]
            t[2] = self.bytes[begin + offset:begin + offset + size]

    def take(self, form):
        form = "<" + form
        v = struct.unpack_from(form, self.bytes, self.at)
        self.at += struct.calcsize(form)
        return v

    def text(self):
        n = self.take("Q")[0]
        s = self.bytes[self.at:self.at + n]
        self.at += n
        return s.decode("utf-8", "surrogateescape")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            of, n = self.take("IQ")
            return [self.value(of) for _ in range(n)]
        return self.take(self.SCALARS[kind])[0]

    def put(self, name, value):
        """A key: a string, a bool, an unsigned or a float of 32 bits, or a list of strings or unsigneds."""
        def encoded(v):
            if isinstance(v, str):
                return 8, struct.pack("<Q", len(v.encode())) + v.encode()
            kind = 7 if isinstance(v, bool) else 4 if isinstance(v, int) else 6
            return kind, struct.pack("<" + self.SCALARS[kind], v)
        self.keys[name] = value
        if isinstance(value, list):
            each = [encoded(v) for v in value]
            self.raw[name] = 9, struct.pack("<IQ", each[0][0], len(each)) + b"".join(v for _, v in each)
        else:
            self.raw[name] = encoded(value)

    def write(self, path):
        """The same keys, the tensors as they are now."""
        out = bytearray(self.bytes[:8] + struct.pack("<QQ", len(self.tensors), len(self.raw)))
        for name, (kind, value) in self.raw.items():
            out += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + value
        offset = 0
        for name, (dims, kind, data) in self.tensors.items():
            out += struct.pack("<Q", len(name)) + name.encode()
            out += struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, kind, offset)
            offset += (len(data) + 31) // 32 * 32
        out += bytes(-len(out) % 32)
        for _, _, data in self.tensors.values():
            out += data + bytes(-len(data) % 32)
        open(path, "wb").write(out)

    def widen(self):
        """Rows of whole blocks of 32, by repeating values: what a quantized folder wants."""
        arch = self.keys["general.architecture"]
        widths, keys = {"gemma4": ({48: 64, 192: 256, 24: 32}, ("attention.key_length", "attention.value_length",
                                                               "rope.dimension_count", "feed_forward_length")),
                        "llama4": ({48: 64, 16: 32}, ())}[arch]
        for name in ("embedding_length", "expert_feed_forward_length") + keys:
            name = arch + "." + name
            self.put(name, widths[self.keys[name]])
        for t in self.tensors.values():
            old, values = t[0], floats(t[1], t[2])
            new = t[0] = tuple(widths.get(d, d) for d in old)
            a, b = old + (1,) * (3 - len(old)), new + (1,) * (3 - len(new))
            t[2] = array("f", [values[(k % a[2] * a[1] + j % a[1]) * a[0] + i % a[0]]
                               for k in range(b[2]) for j in range(b[1]) for i in range(b[0])]).tobytes()

    def become_granite(self):
        """A llama with Granite's four factors."""
        self.raw = {k.replace("llama.", "granite."): v for k, v in self.raw.items()}
        self.put("general.architecture", "granite")
        for k, v in (("embedding_scale", 12.0), ("residual_scale", 0.22), ("attention.scale", 0.0625),
                     ("logit_scale", 8.0)):
            self.put("granite." + k, v)


# ---- numbers ------------------------------------------------------------------------------

def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def f16_bits(x):
    return struct.unpack("<H", struct.pack("<e", x))[0]


def bf16_bits(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16


def bf16_value(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def floats(kind, data):
    if kind == F32:
        return list(array("f", data))
    if kind == F16:
        return list(struct.unpack("<%de" % (len(data) // 2), data))
    return [bf16_value(b) for b in array("H", data)]


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    return mantissa * 2.0 ** -9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)


E4M3 = [e4m3(c) for c in range(127)]
MIDDLES = [(a + b) / 2 for a, b in zip(E4M3, E4M3[1:])]


def to_e4m3(x):
    return bisect(MIDDLES, abs(x)) | (0x80 if x < 0 else 0)


# ---- a tensor of the folder -----------------------------------------------------------------

class Folder:
    def __init__(self, options):
        self.options = options
        self.tensors = {}  # name -> (dtype, shape, bytes)
        self.affine = {}  # MLX: module -> its quantization, where most are mxfp4

    def put(self, name, dtype, shape, data):
        assert name not in self.tensors
        self.tensors[name] = (dtype, list(shape), bytes(data))

    def write(self, path, shards):
        names = sorted(self.tensors)
        parts = [names[i::shards] for i in range(shards)]
        index = {}
        for i, part in enumerate(parts):
            file = "model.safetensors" if shards == 1 else \
                "model-%05d-of-%05d.safetensors" % (i + 1, shards)
            header, at = {"__metadata__": {"format": "pt"}}, 0
            for name in part:
                dtype, shape, data = self.tensors[name]
                header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
                at += len(data)
                index[name] = file
            text = json.dumps(header).encode()
            text += b" " * (-len(text) % 8)
            with open(os.path.join(path, file), "wb") as f:
                f.write(struct.pack("<Q", len(text)) + text)
                for name in part:
                    f.write(self.tensors[name][2])
        if shards > 1:
            with open(os.path.join(path, "model.safetensors.index.json"), "w") as f:
                json.dump({"metadata": {}, "weight_map": index}, f)


def rows_of(dims, kind, data):
    """Rows of a matrix (or of several, one after the other) as bytes."""
    n = dims[0] // BLOCK[kind][0] * BLOCK[kind][1]
    return [data[i:i + n] for i in range(0, len(data), n)]


def unpermute(rows, n_heads):
    """Rotary pairs (2i, 2i + 1) become (i, i + d/2), as modeling_llama.py's rotate_half wants."""
    d = len(rows) // n_heads
    out = []
    for h in range(n_heads):
        head = rows[h * d:(h + 1) * d]
        out += head[0::2] + head[1::2]
    return out


def transpose(rows, size):
    cols = len(rows[0]) // size
    return [b"".join(r[c * size:(c + 1) * size] for r in rows) for c in range(cols)]


# ---- quantized weights: the folder's tensors and what they are worth --------------------------

def put_fp8(folder, name, rows, cols, values, n=0):
    """DeepSeek: one scale for 128 x 128; compressed-tensors: for a row, or for all. Returns the values' F32
    bytes. n: of n matrices in one tensor, each has its own."""
    if n:
        size, parts, worths = rows // n * cols, Folder(folder.options), []
        for i in range(n):
            worths.append(put_fp8(parts, "%d" % i, rows // n, cols, values[i * size:(i + 1) * size])[1])
        for end in ("", "_scale_inv"):
            dtype, shape, _ = parts.tensors["0" + end]
            folder.put(name + end, dtype, [n] + shape, b"".join(parts.tensors["%d%s" % (i, end)][2] for i in range(n)))
        return F32, b"".join(worths)
    powers = folder.options.weights in ("fp8-fp4", "mxfp8", "mlx-mxfp8")  # scales are powers of two
    height, width = {"fp8": (128, 128), "fp8-fp4": (128, 128), "mxfp8": (1, 32), "mlx-mxfp8": (1, 32), "fp8-row": (1, cols), "fp8-all": (rows, cols)}[folder.options.weights]
    br, bc = -(-rows // height), -(-cols // width)
    scales, codes, worth = [], bytearray(rows * cols), array("f", bytes(4 * rows * cols))
    for i in range(br):
        for j in range(bc):
            at = [r * cols + c for r in range(i * height, min(rows, (i + 1) * height))
                  for c in range(j * width, min(cols, (j + 1) * width))]
            scale = f32(max(abs(values[k]) for k in at) / 448) or 1.0
            if folder.options.scales == "bf16":
                scale = bf16_value(bf16_bits(scale))
            if powers:
                scale = 2.0 ** math.ceil(math.log2(scale))
            scales.append(scale)
            for k in at:
                codes[k] = to_e4m3(values[k] / scale)
                worth[k] = (-1 if codes[k] & 128 else 1) * E4M3[codes[k] & 127] * scale
    exponents = bytes(math.frexp(s)[1] - 1 + 127 for s in scales) if powers else None
    if folder.options.weights == "mlx-mxfp8":
        put_mxfp4_parts(folder, name, (rows,), cols, codes, exponents, cols // 4)
        return F32, worth.tobytes()
    folder.put(name, "F8_E4M3", (rows, cols), codes)
    if powers:
        v4 = folder.options.weights == "fp8-fp4"
        folder.put(name[:-len("weight")] + "scale" if v4 else name + "_scale", "F8_E8M0" if v4 else "U8", (br, bc), exponents)
        return F32, worth.tobytes()
    name += "_scale_inv" if height == width == 128 else "_scale"
    shape = (1,) if folder.options.weights == "fp8-all" else (br, bc)
    if folder.options.scales == "bf16":
        folder.put(name, "BF16", shape, array("H", map(bf16_bits, scales)).tobytes())
    else:
        folder.put(name, "F32", shape, array("f", scales).tobytes())
    return F32, worth.tobytes()


def put_mlx(folder, name, rows, cols, values, n=0):
    """mlx.core.quantize: codes in words of 32 bits, the first one lowest; w = scale * q + bias. The
    second GGUF has the same numbers as Q4_1 or Q8_0 (for which bias = -128 * scale)."""
    o = folder.options
    bits, top = (4, 15) if o.weights == "mlx4" else (8, 255)
    to_bits = f16_bits if o.scales == "f16" else bf16_bits  # as most are
    scales, biases, blocks, words = array("H"), array("H"), bytearray(), bytearray()
    for g in range(0, len(values), o.group):
        x = values[g:g + o.group]
        low, high = min(x), max(x)
        if bits == 8:
            high = max(abs(low), abs(high), 1e-3)
            low = -high
        # bf16 has fewer digits than f16: these numbers are both.
        s = bf16_value(bf16_bits(max((high - low) / top, 1e-4)))
        b = bf16_value(bf16_bits(low)) if bits == 4 else -128 * s
        if abs(b) < 1e-4:
            b = 0.0
        q = [min(top, max(0, round((v - b) / s))) for v in x]
        scales.append(to_bits(s))
        biases.append(to_bits(b))
        if bits == 8:
            words += bytes(q)
            for k in range(0, o.group, 32):
                blocks += struct.pack("<e32b", s, *(c - 128 for c in q[k:k + 32]))
        else:
            words += bytes(q[i] | q[i + 1] << 4 for i in range(0, o.group, 2))
            for k in range(0, o.group, 32):
                p = q[k:k + 32]
                blocks += struct.pack("<ee16B", s, b, *(p[i] | p[i + 16] << 4 for i in range(16)))
    lead = (n, rows // n) if n else (rows,)
    module = name[:-len(".weight")]
    kind = "F16" if o.scales == "f16" else "BF16"
    folder.put(name, "U32", lead + (cols * bits // 32,), words)
    folder.put(module + ".scales", kind, lead + (cols // o.group,), scales.tobytes())
    folder.put(module + ".biases", kind, lead + (cols // o.group,), biases.tobytes())
    return (Q4_1 if bits == 4 else Q8_0), bytes(blocks)


E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]  # of the OCP's MX specification; the fourth bit is the sign
E2M1_MIDDLES = [(a + b) / 2 for a, b in zip(E2M1, E2M1[1:])]


def put_mxfp4(folder, name, rows, cols, values, n=0):
    """mlx.core.quantize, mode mxfp4: codes in words of 32 bits, the first one lowest; a power of two for 32 of
    them, without biases. A GGUF's MXFP4 has the same numbers in another order."""
    scales, blocks, words = bytearray(), bytearray(), bytearray()
    for g in range(0, len(values), 32):
        x = values[g:g + 32]
        e = max(0, math.frexp(max(map(abs, x)))[1] - 1 - 2 + 127)  # the largest code is 1.5 * 2 ** 2
        q = [bisect(E2M1_MIDDLES, abs(v) / 2.0 ** (e - 127)) | (8 if v < 0 else 0) for v in x]
        put_mxfp4_block(e, q, scales, words)
        blocks += bytes([e]) + bytes(q[i] | q[i + 16] << 4 for i in range(16))
    put_mxfp4_parts(folder, name, (n, rows // n) if n else (rows,), cols, words, scales)
    return MXFP4, bytes(blocks)


def put_mxfp4_block(e, codes, scales, words):
    scales.append(e)
    words += bytes(codes[i] | codes[i + 1] << 4 for i in range(0, 32, 2))


def put_mxfp4_parts(folder, name, lead, cols, words, scales, n_words=0, group=32):
    folder.put(name, "U32", lead + (n_words or cols // 8,), words)
    folder.put(name[:-len(".weight")] + ".scales", "U8", lead + (cols // group,), scales)


def put_nvfp4(folder, name, rows, cols, values, n=0):
    """NVIDIA's four bits: a scale in e4m3 for 16 values, and one in f32 for the matrix: ModelOpt's multiplies,
    compressed-tensors' divides, MLX has none. A GGUF has the same numbers in another order, and the last one beside
    them: returned third."""
    kind = folder.options.weights
    whole = f32(max(map(abs, values)) / (6 * 448)) if kind != "mlx-nvfp4" else 1.0
    divisor = f32(1 / whole)
    if kind == "nvfp4":
        whole = f32(1 / divisor)
    scales, codes, blocks = bytearray(), bytearray(), bytearray()
    for g in range(0, len(values), 16):
        x = values[g:g + 16]
        scale = max(1, to_e4m3(min(max(map(abs, x)) / 6 / whole, 448)))
        q = [bisect(E2M1_MIDDLES, abs(v) / (E4M3[scale] * whole)) | (8 if v < 0 else 0) for v in x]
        scales.append(scale)
        codes += bytes(q[i] | q[i + 1] << 4 for i in range(0, 16, 2))
        blocks += bytes(q[i] | q[i + 8] << 4 for i in range(8))
    stored = b"".join(bytes(scales[4 * b:4 * b + 4]) + bytes(blocks[32 * b:32 * b + 32]) for b in range(len(values) // 64))
    if kind == "mlx-nvfp4":
        put_mxfp4_parts(folder, name, (n, rows // n) if n else (rows,), cols, codes, scales, group=16)
        return NVFP4, stored, None
    module, packed = name[:-len("weight")], kind == "nvfp4"
    folder.put(name + "_packed" * packed, "U8", (rows, cols // 2), codes)
    folder.put(name + "_scale", "F8_E4M3", (rows, cols // 16), scales)
    folder.put(module + ("weight_global_scale" if packed else "weight_scale_2"), "F32", (1,) if packed else (),
               struct.pack("<f", divisor if packed else whole))
    folder.put(module + ("input_global_scale" if packed else "input_scale"), "F32", (1,) if packed else (), struct.pack("<f", 3))
    if name.endswith("k_proj.weight") and not packed:
        folder.put(module + "k_scale", "F32", (), struct.pack("<f", 1))
    return NVFP4, stored, whole


def put_packed_mxfp4(folder, name, rows, cols, values):
    """compressed-tensors, mxfp4-pack-quantized: MLX's codes and scales as bytes, by other names."""
    own = Folder(folder.options)
    worth = put_mxfp4(own, name, rows, cols, values)
    folder.put(name + "_packed", "U8", (rows, cols // 2), own.tensors[name][2])
    folder.put(name + "_scale", "U8", (rows, cols // 32), own.tensors[name[:-len(".weight")] + ".scales"][2])
    return worth


def put_fp4(folder, name, rows, cols, values):
    """DeepSeek V4's experts: the same as bytes with a sign."""
    own = Folder(folder.options)
    worth = put_mxfp4(own, name, rows, cols, values)
    folder.put(name, "I8", (rows, cols // 2), own.tensors[name][2])
    folder.put(name[:-len("weight")] + "scale", "F8_E8M0", (rows, cols // 32), own.tensors[name[:-len(".weight")] + ".scales"][2])
    return worth


def put_int4(folder, name, rows, cols, values):
    """compressed-tensors, pack-quantized: w = scale * q, q from -8 to 7; q + 8 in words of 32 bits, the first one
    lowest. The second GGUF has the same numbers as Q4_0, or as Q4_1 whose minimum is -8 * scale."""
    o = folder.options
    half = o.scales == "f16"
    to_bits = f16_bits if half else bf16_bits
    scales, blocks, words = array("H"), bytearray(), bytearray()
    for g in range(0, len(values), o.group):
        x = values[g:g + o.group]
        s = bf16_value(bf16_bits(max(max(map(abs, x)) / 7.5, 1e-4)))
        q = [min(7, max(-8, round(v / s))) + 8 for v in x]
        scales.append(to_bits(s))
        words += bytes(q[i] | q[i + 1] << 4 for i in range(0, o.group, 2))
        for k in range(0, o.group, 32):
            p = q[k:k + 32]
            blocks += struct.pack("<e", s) if half else struct.pack("<ee", s, -8 * s)
            blocks += bytes(p[i] | p[i + 16] << 4 for i in range(16))
    kind = "F16" if half else "BF16"
    folder.put(name + "_packed", "I32", (rows, cols // 8), words)
    folder.put(name + "_scale", kind, (rows, cols // o.group), scales.tobytes())
    # As llm-compressor writes it, and as Kimi K2 Thinking has it.
    dtype, form = ("I64", "<qq") if half else ("I32", "<ii")
    folder.put(name + "_shape", dtype, (2,), struct.pack(form, rows, cols))
    return (Q4_0 if half else Q4_1), bytes(blocks)


# ---- architectures ----------------------------------------------------------------------------

COMMON = {"attn_norm.weight": "input_layernorm.weight", "attn_output.weight": "self_attn.o_proj.weight",
          "attn_output.bias": "self_attn.o_proj.bias", "attn_sinks.weight": "self_attn.sinks",
          "ffn_norm.weight": "post_attention_layernorm.weight"}
for p in "qkv":
    for kind in ("weight", "bias"):
        COMMON["attn_%s.%s" % (p, kind)] = "self_attn.%s_proj.%s" % (p, kind)
    COMMON["attn_%s_norm.weight" % p] = "self_attn.%s_norm.weight" % p
for p in ("gate", "up", "down"):
    for kind in ("weight", "bias"):
        COMMON["ffn_%s.%s" % (p, kind)] = "mlp.%s_proj.%s" % (p, kind)
    COMMON["ffn_%s_exps.weight" % p] = "mlp.experts.%%d.%s_proj.weight" % p
    COMMON["ffn_%s_shexp.weight" % p] = "mlp.shared_experts.%s_proj.weight" % p
COMMON["ffn_gate_inp.weight"] = "mlp.gate.weight"
COMMON["exp_probs_b.bias"] = "mlp.gate.e_score_correction_bias"
MIXTRAL = {"ffn_gate_inp.weight": "block_sparse_moe.gate.weight",
           "exp_probs_b.bias": "block_sparse_moe.e_score_correction_bias",
           "ffn_gate_exps.weight": "block_sparse_moe.experts.%d.w1.weight",
           "ffn_down_exps.weight": "block_sparse_moe.experts.%d.w2.weight",
           "ffn_up_exps.weight": "block_sparse_moe.experts.%d.w3.weight"}
LATENT = {"attn_q_a.weight": "self_attn.q_a_proj.weight",
          "attn_q_a_norm.weight": "self_attn.q_a_layernorm.weight",
          "attn_q_b.weight": "self_attn.q_b_proj.weight",
          "attn_kv_a_mqa.weight": "self_attn.kv_a_proj_with_mqa.weight",
          "attn_kv_a_norm.weight": "self_attn.kv_a_layernorm.weight",
          "attn_kv_b.weight": "self_attn.kv_b_proj.weight"}
INDEXED = dict(LATENT, **{"indexer.attn_q_b.weight": "self_attn.indexer.wq_b.weight",  # transformers' GlmMoeDsaIndexer
                          "indexer.attn_k.weight": "self_attn.indexer.wk.weight",
                          "indexer.proj.weight": "self_attn.indexer.weights_proj.weight",
                          "indexer.k_norm.weight": "self_attn.indexer.k_norm.weight",
                          "indexer.k_norm.bias": "self_attn.indexer.k_norm.bias"})
DELTA = {"post_attention_norm.weight": "post_attention_layernorm.weight",
         "attn_qkv.weight": "linear_attn.in_proj_qkv.weight", "attn_gate.weight": "linear_attn.in_proj_z.weight",
         "ssm_beta.weight": "linear_attn.in_proj_b.weight", "ssm_alpha.weight": "linear_attn.in_proj_a.weight",
         "ssm_ba.weight": "linear_attn.in_proj_ba.weight", "ssm_conv1d.weight": "linear_attn.conv1d.weight",
         "ssm_dt.bias": "linear_attn.dt_bias", "ssm_a": "linear_attn.A_log",
         "ssm_norm.weight": "linear_attn.norm.weight", "ssm_out.weight": "linear_attn.out_proj.weight"}
SANDWICH = {"ffn_norm.weight": "pre_feedforward_layernorm.weight",
            "post_attention_norm.weight": "post_attention_layernorm.weight",
            "post_ffw_norm.weight": "post_feedforward_layernorm.weight"}
SPECIAL = {
    "deepseek2": LATENT,
    "deepseek32": INDEXED, "glm-dsa": INDEXED,
    "qwen2moe": {"ffn_gate_inp_shexp.weight": "mlp.shared_expert_gate.weight",
                 "ffn_gate_shexp.weight": "mlp.shared_expert.gate_proj.weight",
                 "ffn_up_shexp.weight": "mlp.shared_expert.up_proj.weight",
                 "ffn_down_shexp.weight": "mlp.shared_expert.down_proj.weight"},
    "glm4moe": {"post_attention_norm.weight": "post_attention_layernorm.weight"},
    "qwen3next": DELTA, "qwen35": DELTA, "qwen35moe": DELTA,
    "gpt-oss": {"post_attention_norm.weight": "post_attention_layernorm.weight",
                "ffn_gate_inp.weight": "mlp.router.weight", "ffn_gate_inp.bias": "mlp.router.bias"},
    "gemma2": SANDWICH,
    "gemma3": SANDWICH,
    "phi3": {"attn_qkv.weight": "self_attn.qkv_proj.weight", "ffn_up.weight": "mlp.gate_up_proj.weight"},
    "minimax-m2": MIXTRAL,
    "seed_oss": {"post_attention_norm.weight": "post_attention_layernorm.weight"},
    "olmo2": {"post_attention_norm.weight": "post_attention_layernorm.weight",
              "post_ffw_norm.weight": "post_feedforward_layernorm.weight"},
    "exaone4": {"post_attention_norm.weight": "post_attention_layernorm.weight",
                "post_ffw_norm.weight": "post_feedforward_layernorm.weight"},
    "glm4": {"post_attention_norm.weight": "post_self_attn_layernorm.weight",
             "post_ffw_norm.weight": "post_mlp_layernorm.weight", "ffn_up.weight": "mlp.gate_up_proj.weight"},
    "ernie4_5-moe": {"exp_probs_b.bias": "mlp.moe_statics.e_score_correction_bias"},
    "granitemoe": {"ffn_gate_inp.weight": "block_sparse_moe.router.layer.weight",
                   "ffn_down_exps.weight": "block_sparse_moe.output_linear.weight",
                   "ffn_down_shexp.weight": "shared_mlp.output_linear.weight"},
}
MAMBA = {"ssm_in.weight": "in_proj.weight", "ssm_conv1d.weight": "conv1d.weight", "ssm_conv1d.bias": "conv1d.bias",
         "ssm_dt.bias": "dt_bias", "ssm_a": "A_log", "ssm_d": "D", "ssm_norm.weight": "norm.weight",
         "ssm_out.weight": "out_proj.weight"}
SPECIAL["granitehybrid"] = {**SPECIAL["granitemoe"], **{k: "mamba." + v for k, v in MAMBA.items()}}
SPECIAL["nemotron_h"] = {**{k: v.replace("self_attn.", "mixer.").replace("mlp.", "mixer.") for k, v in COMMON.items()},
                         **{k: "mixer." + v for k, v in MAMBA.items()}, "attn_norm.weight": "norm.weight",
                         "ffn_latent_down.weight": "mixer.fc1_latent_proj.weight",
                         "ffn_latent_up.weight": "mixer.fc2_latent_proj.weight"}
SPECIAL["nemotron_h_moe"] = SPECIAL["nemotron_h"]
LFM2 = {"attn_norm.weight": "operator_norm.weight", "attn_output.weight": "self_attn.out_proj.weight",
        "attn_q_norm.weight": "self_attn.q_layernorm.weight", "attn_k_norm.weight": "self_attn.k_layernorm.weight",
        "shortconv.in_proj.weight": "conv.in_proj.weight", "shortconv.conv.weight": "conv.conv.weight",
        "shortconv.out_proj.weight": "conv.out_proj.weight", "ffn_norm.weight": "ffn_norm.weight",
        "ffn_gate_inp.weight": "feed_forward.gate.weight", "exp_probs_b.bias": "feed_forward.expert_bias"}
for p, w in (("gate", "w1"), ("down", "w2"), ("up", "w3")):
    LFM2["ffn_%s.weight" % p] = "feed_forward.%s.weight" % w
    LFM2["ffn_%s_exps.weight" % p] = "feed_forward.experts.%%d.%s.weight" % w
SPECIAL["lfm2"] = SPECIAL["lfm2moe"] = LFM2
for arch in ("qwen3next", "qwen35moe"):
    SPECIAL[arch] = {**DELTA, **SPECIAL["qwen2moe"]}
GEMMA = {**SPECIAL["gemma3"], "inp_gate.weight": "per_layer_input_gate.weight", "proj.weight": "per_layer_projection.weight",
         "post_norm.weight": "post_per_layer_input_norm.weight"}
SPECIAL["gemma4"] = {**GEMMA, "layer_output_scale.weight": "layer_scalar", "ffn_gate_inp.weight": "router.proj.weight",
                     "ffn_gate_inp.scale": "router.scale", "ffn_down_exps.scale": "router.per_expert_scale",
                     "ffn_gate_up_exps.weight": "experts.gate_up_proj", "ffn_down_exps.weight": "experts.down_proj",
                     "pre_ffw_norm_2.weight": "pre_feedforward_layernorm_2.weight",
                     "post_ffw_norm_1.weight": "post_feedforward_layernorm_1.weight",
                     "post_ffw_norm_2.weight": "post_feedforward_layernorm_2.weight"}
SPECIAL["gemma3n"] = {**GEMMA, "altup_correct_scale.weight": "altup.correct_output_scale",
                      "altup_correct_coef.weight": "altup.correction_coefs.weight",
                      "altup_predict_coef.weight": "altup.prediction_coefs.weight",
                      "altup_router.weight": "altup.modality_router.weight",
                      "altup_router_norm.weight": "altup.router_norm.weight",
                      "laurel_l.weight": "laurel.linear_left.weight", "laurel_r.weight": "laurel.linear_right.weight",
                      "laurel_post_norm.weight": "laurel.post_laurel_norm.weight"}
SPECIAL["llama4"] = {"ffn_gate_inp.weight": "feed_forward.router.weight"}
for p in ("gate", "up", "down"):
    SPECIAL["llama4"]["ffn_%s.weight" % p] = "feed_forward.%s_proj.weight" % p
    SPECIAL["llama4"]["ffn_%s_shexp.weight" % p] = "feed_forward.shared_expert.%s_proj.weight" % p
    SPECIAL["llama4"]["ffn_%s_exps.weight" % p] = "feed_forward.experts.%%d.%s_proj.weight" % p
KIMI = {**LATENT, **MIXTRAL, "exp_probs_b.bias": "block_sparse_moe.gate.e_score_correction_bias",
        "ssm_a": "self_attn.A_log", "ssm_dt.bias": "self_attn.dt_bias", "ssm_beta.weight": "self_attn.b_proj.weight",
        "ssm_norm.weight": "self_attn.o_norm.weight"}
for p in "qkv":
    KIMI["ssm_conv1d_%s.weight" % p] = "self_attn.%s_conv1d.weight" % p
for p in ("f_a", "f_b", "g_a", "g_b"):
    KIMI["ssm_%s.weight" % p] = "self_attn.%s_proj.weight" % p
SPECIAL["minimax-m3"] = dict(MIXTRAL)
for p in "qk":
    for kind in ("proj", "norm"):
        SPECIAL["minimax-m3"]["indexer.%s_%s.weight" % (p, kind)] = "self_attn.index_%s_%s.weight" % (p, kind)
SPECIAL["step35"] = {"attn_gate.weight": "self_attn.g_proj.weight", "ffn_gate_inp.weight": "moe.gate.weight",
                     "exp_probs_b.bias": "moe.router_bias"}
DEEPSEEK4 = {"attn_norm.weight": "attn_norm.weight", "ffn_norm.weight": "ffn_norm.weight", "attn_sinks.weight": "attn.attn_sink",
             "attn_q_a.weight": "attn.wq_a.weight", "attn_q_a_norm.weight": "attn.q_norm.weight", "attn_q_b.weight": "attn.wq_b.weight",
             "attn_kv.weight": "attn.wkv.weight", "attn_kv_a_norm.weight": "attn.kv_norm.weight",
             "attn_output_a.weight": "attn.wo_a.weight", "attn_output_b.weight": "attn.wo_b.weight",
             "indexer.attn_q_b.weight": "attn.indexer.wq_b.weight", "indexer.proj.weight": "attn.indexer.weights_proj.weight",
             "ffn_gate_inp.weight": "ffn.gate.weight", "exp_probs_b.bias": "ffn.gate.bias", "ffn_gate_tid2eid.weight": "ffn.gate.tid2eid"}
for of, name in (("attn", "attn."), ("indexer", "attn.indexer.")):  # the published folder's; mlx-lm's are in MLX
    for p, w in (("kv", "wkv.weight"), ("gate", "wgate.weight"), ("ape", "ape"), ("norm", "norm.weight")):
        DEEPSEEK4["%s_compressor_%s.weight" % (of, p)] = name + "compressor." + w
for of in ("attn", "ffn"):
    for p in ("fn", "base", "scale"):
        DEEPSEEK4["hc_%s_%s.weight" % (of, p)] = "hc_%s_%s" % (of, p)
for p, w in (("gate", "w1"), ("down", "w2"), ("up", "w3")):
    DEEPSEEK4["ffn_%s_exps.weight" % p] = "ffn.experts.%%d.%s.weight" % w
    DEEPSEEK4["ffn_%s_shexp.weight" % p] = "ffn.shared_experts.%s.weight" % w
SPECIAL["deepseek4"] = DEEPSEEK4
SPECIAL["mimo2"] = {"attn_sinks.weight": "self_attn.attention_sink_bias"}
SPECIAL["hunyuan-moe"] = {"attn_q_norm.weight": "self_attn.query_layernorm.weight",
                          "attn_k_norm.weight": "self_attn.key_layernorm.weight", "ffn_gate_inp.weight": "mlp.gate.wg.weight"}
SPECIAL["hunyuan-dense"] = SPECIAL["hunyuan-moe"]
SPECIAL["bailingmoe2"] = {"attn_qkv.weight": "attention.query_key_value.weight", "attn_output.weight": "attention.dense.weight",
                          "attn_q_norm.weight": "attention.query_layernorm.weight",
                          "attn_k_norm.weight": "attention.key_layernorm.weight", "exp_probs_b.bias": "mlp.gate.expert_bias"}
for p in ("gate", "up", "down"):
    for names in (KIMI, SPECIAL["minimax-m3"]):
        names["ffn_%s_shexp.weight" % p] = "block_sparse_moe.shared_experts.%s_proj.weight" % p
    SPECIAL["step35"]["ffn_%s_exps.weight" % p] = "moe.%s_proj.weight" % p
    SPECIAL["step35"]["ffn_%s_shexp.weight" % p] = "share_expert.%s_proj.weight" % p
    SPECIAL["hunyuan-moe"]["ffn_%s_shexp.weight" % p] = "mlp.shared_mlp.%s_proj.weight" % p
SPECIAL["kimi-linear"] = KIMI
SPECIAL["kimi-k3"] = {**KIMI, "ssm_g.weight": "self_attn.g_proj.weight", "attn_gate.weight": "self_attn.g_proj.weight",
                      "ffn_routed_down.weight": "block_sparse_moe.routed_expert_down_proj.weight",
                      "ffn_routed_norm.weight": "block_sparse_moe.routed_expert_norm.weight",
                      "ffn_routed_up.weight": "block_sparse_moe.routed_expert_up_proj.weight",
                      "attn_res_score.weight": "self_attention_res_%s.weight", "ffn_res_score.weight": "mlp_res_%s.weight"}
# What mlx-lm calls otherwise.
MLX = {"kimi-linear": [("block_sparse_moe.gate.e_score", "mlp.e_score"), ("block_sparse_moe", "mlp"), ("_conv1d.", "_conv.conv.")],
       "step35": [("moe.gate.", "mlp.gate.gate."), ("moe.router_bias", "mlp.gate.router_bias"), ("share_expert", "mlp.share_expert"),
                  ("moe.", "mlp.switch_mlp.")],
       "deepseek4": [("hc_attn_", "attn_hc."), ("hc_ffn_", "ffn_hc."), ("gate.bias", "gate.e_score_correction_bias"),
                     ("shared_experts.w1", "shared_experts.gate_proj"), ("shared_experts.w2", "shared_experts.down_proj"),
                     ("shared_experts.w3", "shared_experts.up_proj")],
       "bailingmoe2": [("mlp.gate.weight", "mlp.gate.gate_proj.weight")]}
# Models that see pictures: the outer type, what the tensors' names begin with, and with --mlx-lm.
OUTER = {"gemma4": ("gemma4", "model.language_model.", "language_model.model."),
         "gemma3n": ("gemma3n", "model.language_model.", "model.language_model."),
         "llama4": ("llama4", "language_model.model.", "language_model.model."),
         "kimi-k3": ("kimi_k3", "language_model.model.", "language_model.model."),
         "minimax-m3": ("minimax_m3_vl", "language_model.model.", "language_model.model."),
         "qwen3vl": ("qwen3_vl", "model.language_model.", "language_model.model.")}
# Tensors outside of the layers.
ENDS = {"token_embd.weight": "embed_tokens.weight", "output_norm.weight": "norm.weight",
        "token_embd_norm.weight": "embedding_norm.weight", "per_layer_token_embd.weight": "embed_tokens_per_layer.weight",
        "per_layer_model_proj.weight": "per_layer_model_projection.weight",
        "per_layer_proj_norm.weight": "per_layer_projection_norm.weight", "output_res_score.weight": "output_attn_res_%s.weight",
        "output_hc_fn.weight": "hc_head.fn", "output_hc_base.weight": "hc_head.base", "output_hc_scale.weight": "hc_head.scale"}
MODEL_TYPE = {"lfm2moe": "lfm2_moe", "granitehybrid": "granitemoehybrid", "nemotron_h_moe": "nemotron_h",
              "qwen3next": "qwen3_next", "qwen35": "qwen3_5", "qwen35moe": "qwen3_5_moe",
              "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe", "qwen3vl": "qwen3_vl_text", "gpt-oss": "gpt_oss",
              "glm4moe": "glm4_moe", "gemma3": "gemma3_text", "phi3": "phi3", "minimax-m2": "minimax_m2",
              "ernie4_5-moe": "ernie4_5_moe"}


class Maker:
    def __init__(self, g, folder):
        self.g, self.folder = g, folder
        self.arch = g.keys["general.architecture"]
        self.n_heads = self.key("attention.head_count")
        self.n_kv = self.key("attention.head_count_kv")
        if isinstance(self.n_kv, list):  # none in layers that are not attention
            self.kv_of_layers, self.n_kv = self.n_kv, max(self.n_kv)
        self.outer = None
        self.n_experts = self.key("expert_count", 0)
        self.names = dict(COMMON)
        self.names.update(SPECIAL.get(self.arch, {}))
        if self.arch == "llama" and self.n_experts:
            self.names.update(MIXTRAL)
        if folder.options.mlx_lm:
            for old, new in MLX.get(self.arch, []):
                self.names = {k: v.replace(old, new) for k, v in self.names.items()}
            self.names.update({"attn_k_b.weight": "self_attn.embed_q.weight", "attn_v_b.weight": "self_attn.unembed_out.weight"})
        self.prefix = "model."
        self.grouped, self.joined = {}, {}

    def key(self, name, default=None):
        return self.g.keys.get(self.arch + "." + name, default)

    # ---- config.json

    def knows_arch(self):
        return hasattr(self, "config_" + self.arch.replace("-", "_"))

    def config(self):
        k, arch = self.key, self.arch
        c = {"max_position_embeddings": k("context_length"), "hidden_size": k("embedding_length"),
             "num_hidden_layers": k("block_count"), "intermediate_size": k("feed_forward_length"),
             "num_attention_heads": self.n_heads, "num_key_value_heads": self.n_kv,
             "rms_norm_eps": k("attention.layer_norm_rms_epsilon"), "rope_theta": k("rope.freq_base"),
             "head_dim": k("attention.key_length"), "hidden_act": "silu",
             "vocab_size": len(self.g.keys["tokenizer.ggml.tokens"]),
             "tie_word_embeddings": "output.weight" not in self.g.tensors,
             "model_type": MODEL_TYPE.get(arch, arch), "torch_dtype": "float32", "rope_scaling": None}
        getattr(self, "config_" + arch.replace("-", "_"))(c)
        if self.folder.options.granite:
            c.update(model_type="granite", embedding_multiplier=12, residual_multiplier=0.22,
                     attention_multiplier=0.0625, logits_scaling=8)
            self.g.become_granite()
        if self.folder.options.v5:
            self.rope_parameters(c)
        if self.outer and not self.folder.options.flat:
            kind, self.prefix, mlx = self.outer
            if self.folder.options.mlx_lm:
                self.prefix = mlx
            self.folder.put("vision_tower.embeddings.weight", "F32", (2, 2), bytes(16))
            return {"model_type": kind, "text_config": c}
        if self.folder.options.nested and arch == "deepseek2":  # Kimi K2.5
            self.prefix = "language_model.model."
            self.folder.put("vision_tower.embeddings.weight", "F32", (2, 2), bytes(16))
            c["model_type"] = "kimi_k2"
            return {"model_type": "kimi_k25", "text_config": c}
        if self.folder.options.nested:
            gemma = arch == "gemma3"
            self.prefix = "language_model.model." if gemma else "model.language_model."
            self.folder.put("vision_tower.embeddings.weight", "F32", (2, 2), bytes(16))
            outer = c["model_type"]
            c["model_type"] = outer if gemma else outer + "_text"
            return {"model_type": "gemma3" if gemma else outer, "text_config": c,
                    "tie_word_embeddings": c["tie_word_embeddings"]}
        return c

    def rope_parameters(self, c):
        """transformers 5: what concerns RoPE is in one object, or in one for each kind of layer."""
        rope = dict(c.pop("rope_scaling") or {"rope_type": "default"})
        rope["rope_type"] = rope.pop("type", None) or rope["rope_type"]
        if self.arch == "deepseek4":
            part = {"partial_rotary_factor": c.pop("qk_rope_head_dim") / c["head_dim"]}
            words = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
            n, hashed = c["num_hidden_layers"], c.pop("num_hash_layers")
            c.update(part, layer_types=[words[r] for r in c.pop("compress_ratios")[:n]],
                     compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 128},
                     mlp_layer_types=["hash_moe" if i < hashed else "moe" for i in range(n)],
                     rope_parameters={"main": {"rope_type": "default", "rope_theta": c.pop("rope_theta"), **part},
                                      "compress": {**rope, "rope_theta": c.pop("compress_rope_theta"), "attention_factor": 1.0, **part}})
            return
        if self.arch == "mimo2":
            part = {"rope_type": "default", "partial_rotary_factor": c.pop("partial_rotary_factor")}
            window, moe = c.pop("hybrid_layer_pattern"), c.pop("moe_layer_freq")
            c.update(rms_norm_eps=c.pop("layernorm_epsilon"), layer_types=["sliding_attention" if w else "full_attention" for w in window],
                     mlp_layer_types=["sparse" if m else "dense" for m in moe],
                     rope_parameters={"full_attention": {**part, "rope_theta": c.pop("rope_theta")},
                                      "sliding_attention": {**part, "rope_theta": c.pop("swa_rope_theta")}})
            for name in [n for n in c if n.startswith(("swa_", "add_"))] + ["scoring_func", "topk_method", "n_shared_experts"]:
                del c[name]
            self.names["attn_sinks.weight"] = "self_attn.sinks"
            return
        rope["rope_theta"] = c.pop("rope_theta")
        for name in ("partial_rotary_factor", "original_max_position_embeddings"):
            if name in c:
                rope[name] = c.pop(name)
        if self.arch == "gemma3":
            rope = {"full_attention": rope,
                    "sliding_attention": {"rope_type": "default",
                                          "rope_theta": c.pop("rope_local_base_freq")}}
            del c["sliding_window_pattern"]
            c["layer_types"] = ["full_attention" if i % 6 == 5 else "sliding_attention"
                                for i in range(c["num_hidden_layers"])]
        c["rope_parameters"] = rope

    def llama3_factors(self, s, base, d):
        """What divides the frequencies of d rotated dimensions (transformers' modeling_rope_utils.py)."""
        factors, original = [], s["original_max_position_embeddings"]
        low, high = s["low_freq_factor"], s["high_freq_factor"]
        for i in range(d // 2):
            wave = 2 * math.pi * base ** (2 * i / d)
            if wave < original / high:
                factors.append(1.0)
            elif wave > original / low:
                factors.append(s["factor"])
            else:
                smooth = (original / wave - low) / (high - low)
                factors.append(1 / ((1 - smooth) / s["factor"] + smooth))
        return factors

    def set_factors(self, factors):
        self.g.tensors["rope_freqs.weight"][2] = array("f", factors).tobytes()

    def config_gemma4(self, c):
        """modeling_gemma4.py: the layers without a window have heads of global_head_dim, of which rope turns a part."""
        k, t = self.key, self.g.tensors
        window = k("attention.sliding_window_pattern")
        kv = k("attention.head_count_kv")
        kv = kv if isinstance(kv, list) else [kv] * len(window)
        full = window.index(False)
        width = c["intermediate_size"]
        del c["rope_theta"], c["rope_scaling"], c["hidden_act"]
        factors = floats(F32, t["rope_freqs.weight"][2])
        n = next(i for i, v in enumerate(factors) if v != 1.0)
        self.set_factors([1.0] * n + [1e30] * (len(factors) - n))
        c.update(model_type="gemma4_text", hidden_activation="gelu_pytorch_tanh", global_head_dim=k("attention.key_length"),
                 head_dim=k("attention.key_length_swa"), sliding_window=k("attention.sliding_window"),
                 layer_types=["sliding_attention" if w else "full_attention" for w in window],
                 num_key_value_heads=kv[window.index(True)], num_global_key_value_heads=kv[full],
                 attention_k_eq_v="blk.%d.attn_v.weight" % full not in t, attention_bias=False,
                 num_kv_shared_layers=k("attention.shared_kv_layers"), use_bidirectional_attention="vision",
                 hidden_size_per_layer_input=k("embedding_length_per_layer_input"),
                 final_logit_softcapping=k("final_logit_softcapping"), use_double_wide_mlp=isinstance(width, list),
                 intermediate_size=width[0] if isinstance(width, list) else width, enable_moe_block=bool(self.n_experts),
                 rope_parameters={"full_attention": {"rope_type": "proportional", "rope_theta": k("rope.freq_base"),
                                                     "partial_rotary_factor": 2 * n / k("attention.key_length")},
                                  "sliding_attention": {"rope_type": "default", "rope_theta": k("rope.freq_base_swa")}})
        if self.n_experts:
            c.update(num_experts=self.n_experts, top_k_experts=k("expert_used_count"),
                     moe_intermediate_size=k("expert_feed_forward_length"))
        self.outer = OUTER["gemma4"]
        if self.folder.options.flat:
            c["hidden_size_per_layer_input"] = c["hidden_size_per_layer_input"] or None

    def config_gemma3n(self, c):
        k = self.key
        n = c["num_hidden_layers"]
        del c["hidden_act"]
        c.update(model_type="gemma3n_text", hidden_activation="gelu_pytorch_tanh", intermediate_size=[c["intermediate_size"]] * n,
                 rope_local_base_freq=k("rope.freq_base_swa"), sliding_window=k("attention.sliding_window"),
                 num_kv_shared_layers=k("attention.shared_kv_layers"), altup_num_inputs=k("altup.num_inputs"),
                 altup_active_idx=k("altup.active_idx"), altup_correct_scale=True, altup_coef_clip=120.0, laurel_rank=64,
                 hidden_size_per_layer_input=k("embedding_length_per_layer_input"),
                 final_logit_softcapping=k("final_logit_softcapping"),
                 activation_sparsity_pattern=[0.95 if i < 10 else 0.0 for i in range(n)],
                 layer_types=["full_attention" if i % 5 == 4 else "sliding_attention" for i in range(n)])
        self.outer = OUTER["gemma3n"]
        # The table of layers' inputs is shorter than the embedding, whose last tokens are pictures.
        dims, kind, data = self.g.tensors["per_layer_token_embd.weight"]
        cut = dims[1] * 15 // 16 * dims[0] * 4
        self.g.tensors["per_layer_token_embd.weight"][2] = data[:cut] + bytes(len(data) - cut)
        c["vocab_size_per_layer_input"] = dims[1] * 15 // 16

    def latent(self, c):
        k = self.key
        rope = k("rope.dimension_count")
        c.update(num_key_value_heads=self.n_heads, kv_lora_rank=k("attention.kv_lora_rank"), q_lora_rank=None, qk_rope_head_dim=rope,
                 qk_nope_head_dim=k("attention.key_length_mla", k("attention.key_length")) - rope,
                 v_head_dim=k("attention.value_length_mla", k("attention.value_length")))
        self.join_kv_b(c["qk_nope_head_dim"], c["v_head_dim"])

    def config_kimi_linear(self, c):
        """modeling_kimi.py: layers are counted from 1."""
        k, kv = self.key, self.kv_of_layers
        c["model_max_length"] = c.pop("max_position_embeddings")
        self.latent(c)
        c.update(model_type="kimi_linear", num_experts=self.n_experts, num_experts_per_token=k("expert_used_count"),
                 moe_intermediate_size=k("expert_feed_forward_length"), num_shared_experts=k("expert_shared_count"),
                 first_k_dense_replace=k("leading_dense_block_count"), moe_renormalize=True, moe_layer_freq=1,
                 moe_router_activation_func="sigmoid", routed_scaling_factor=k("expert_weights_scale"), num_expert_group=1,
                 topk_group=1, use_grouped_topk=True, mla_use_nope=True, linear_attn_config={
                     "full_attn_layers": [i + 1 for i, n in enumerate(kv) if n], "num_heads": self.n_heads,
                     "kda_layers": [i + 1 for i, n in enumerate(kv) if not n], "head_dim": k("kda.head_dim"),
                     "short_conv_kernel_size": k("ssm.conv_kernel")})

    def config_kimi_k3(self, c):
        k = self.key
        self.config_kimi_linear(c)
        c.update(hidden_act="situ", q_lora_rank=k("attention.q_lora_rank"), max_position_embeddings=c.pop("model_max_length"),
                 activation_situ_beta=k("activation.situ_beta"), activation_situ_linear_beta=k("activation.situ_linear_beta"),
                 attn_res_block_size=k("attn_res.block_size"), routed_expert_hidden_size=k("expert_latent_length"),
                 latent_moe_use_norm=True, mla_use_output_gate=True, topk_method="noaux_tc")
        c["linear_attn_config"].update(gate_lower_bound=k("kda.gate_lower_bound"), use_full_rank_gate=True)
        self.outer = OUTER["kimi-k3"]

    def config_minimax_m3(self, c):
        k = self.key
        freq = [int(i >= k("leading_dense_block_count")) for i in range(c["num_hidden_layers"])]
        c.update(model_type="minimax_m2", hidden_act="swigluoai", dense_intermediate_size=c["intermediate_size"],
                 intermediate_size=k("expert_feed_forward_length"), n_shared_experts=k("expert_shared_count"),
                 shared_intermediate_size=k("expert_feed_forward_length"), num_local_experts=self.n_experts,
                 num_experts_per_tok=k("expert_used_count"), routed_scaling_factor=k("expert_weights_scale"), use_gemma_norm=True,
                 rotary_dim=k("rope.dimension_count"), partial_rotary_factor=k("rope.dimension_count") / c["head_dim"],
                 scoring_func="sigmoid", use_qk_norm=True, qk_norm_type="per_head", use_routing_bias=True, swiglu_alpha=1.702,
                 swiglu_limit=7.0, moe_layer_freq=freq, sparse_attention_config={
                     "use_sparse_attention": True, "sparse_attention_freq": freq, "sparse_disable_index_value": freq,
                     "sparse_num_index_heads": k("attention.indexer.head_count"), "sparse_score_type": "max",
                     "sparse_index_dim": k("attention.indexer.key_length"), "sparse_init_block": 0,
                     "sparse_topk_blocks": k("attention.indexer.top_k"), "sparse_block_size": k("attention.indexer.block_size"),
                     "sparse_local_block": k("attention.indexer.local_blocks")})
        self.outer = OUTER["minimax-m3"]
        if self.folder.options.flat:
            c["model_type"] = "minimax_m3"

    def config_step35(self, c):
        """modeling_step3p5.py: lists have entries for the layers that predict further tokens, too."""
        k = self.key
        window = k("attention.sliding_window_pattern")
        full, other = window.index(False), window.index(True)
        s = {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 32.0,
             "original_max_position_embeddings": 64}
        half = self.llama3_factors(s, c["rope_theta"], c["head_dim"] // 2)
        self.set_factors(half + [1.0] * len(half))
        bases = (c["rope_theta"], k("rope.freq_base_swa"))
        del c["num_key_value_heads"], c["hidden_act"]
        limits = lambda name: [v or None for v in k(name)] + [None]
        c.update(model_type="step3p5", num_attention_heads=self.n_heads[full], num_attention_groups=self.kv_of_layers[full],
                 attention_other_setting={"attention_type": "sliding_attention", "num_attention_heads": self.n_heads[other],
                                          "num_attention_groups": self.kv_of_layers[other], "head_dim": c["head_dim"]},
                 sliding_window=k("attention.sliding_window"), rope_theta=[bases[w] for w in window] + [bases[1]],
                 layer_types=["sliding_attention" if w else "full_attention" for w in window] + ["sliding_attention"],
                 partial_rotary_factors=[1.0 if w else 0.5 for w in window] + [1.0], yarn_only_types=["full_attention"],
                 rope_scaling=s, moe_num_experts=self.n_experts, moe_top_k=k("expert_used_count"), zero_centered=True,
                 moe_intermediate_size=k("expert_feed_forward_length"), share_expert_dim=k("expert_shared_feed_forward_length"),
                 moe_layers_enum=",".join(map(str, range(k("leading_dense_block_count"), c["num_hidden_layers"]))),
                 moe_router_activation="sigmoid", moe_router_scaling_factor=k("expert_weights_scale"), norm_expert_weight=True,
                 use_moe_router_bias=True, use_head_wise_attn_gate=True, use_qk_norm=True, num_nextn_predict_layers=1,
                 swiglu_limits=limits("swiglu_clamp_exp"), swiglu_limits_shared=limits("swiglu_clamp_shexp"))

    def config_deepseek4(self, c):
        """config.json of DeepSeek-V4-Flash; the last ratio is that of the layer which predicts a further token."""
        k = self.key
        del c["intermediate_size"]
        scaling = {"type": "yarn", "factor": k("rope.scaling.factor"), "beta_fast": k("rope.scaling.yarn_beta_fast", 32),
                   "beta_slow": k("rope.scaling.yarn_beta_slow", 1),
                   "original_max_position_embeddings": k("rope.scaling.original_context_length")}
        c.update(model_type="deepseek_v4", rope_scaling=scaling, compress_rope_theta=k("attention.compress_rope_freq_base"),
                 qk_rope_head_dim=k("rope.dimension_count"), q_lora_rank=k("attention.q_lora_rank"),
                 o_lora_rank=k("attention.output_lora_rank"), o_groups=k("attention.output_group_count"),
                 compress_ratios=k("attention.compress_ratios") + [0], sliding_window=k("attention.sliding_window"),
                 index_n_heads=k("attention.indexer.head_count"), index_head_dim=k("attention.indexer.key_length"),
                 index_topk=k("attention.indexer.top_k"), hc_mult=k("hyper_connection.count"), hc_eps=k("hyper_connection.epsilon"),
                 hc_sinkhorn_iters=k("hyper_connection.sinkhorn_iterations"), n_routed_experts=self.n_experts,
                 num_experts_per_tok=k("expert_used_count"), moe_intermediate_size=k("expert_feed_forward_length"),
                 n_shared_experts=k("expert_shared_count"), num_hash_layers=k("hash_layer_count"), norm_topk_prob=True,
                 routed_scaling_factor=k("expert_weights_scale"), scoring_func="sqrtsoftplus", topk_method="noaux_tc",
                 swiglu_limit=(k("swiglu_clamp_exp") + [0])[0] if isinstance(k("swiglu_clamp_exp"), list) else k("swiglu_clamp_exp"),
                 num_nextn_predict_layers=1, attention_bias=False)
        if not self.folder.options.mlx_lm:
            self.prefix = ""
            self.folder.put("mtp.0.norm.weight", "F32", (1,), bytes(4))

    def config_mimo2(self, c):
        """config.json of MiMo-V2-Flash."""
        k = self.key
        window = k("attention.sliding_window_pattern")
        full, other = window.index(False), window.index(True)
        c.update(model_type="mimo_v2_flash", num_attention_heads=self.n_heads[full], num_key_value_heads=self.kv_of_layers[full],
                 swa_num_attention_heads=self.n_heads[other], swa_num_key_value_heads=self.kv_of_layers[other],
                 v_head_dim=k("attention.value_length"), swa_head_dim=c["head_dim"], swa_v_head_dim=k("attention.value_length"),
                 hybrid_layer_pattern=[int(w) for w in window], partial_rotary_factor=0.334, swa_rope_theta=k("rope.freq_base_swa"),
                 moe_layer_freq=[int("blk.%d.ffn_gate_inp.weight" % i in self.g.tensors) for i in range(len(window))],
                 sliding_window=k("attention.sliding_window"), attention_value_scale=k("attention.value_scale"),
                 add_swa_attention_sink_bias=True, add_full_attention_sink_bias=False, layernorm_epsilon=c.pop("rms_norm_eps"),
                 n_routed_experts=self.n_experts, num_experts_per_tok=k("expert_used_count"), n_shared_experts=None,
                 moe_intermediate_size=k("expert_feed_forward_length"), scoring_func="sigmoid", topk_method="noaux_tc",
                 n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=None, attention_bias=False)
        self.folder.put("model.mtp.layers.0.enorm.weight", "F32", (1,), bytes(4))

    def config_hunyuan_moe(self, c):
        """modeling_hunyuan_v1_moe.py: alpha multiplies the base."""
        k = self.key
        n, d = c["num_hidden_layers"], c.pop("head_dim")
        c.update(model_type="hunyuan_v1_moe", attention_head_dim=d, rope_theta=10000.0, num_experts=self.n_experts,
                 rope_scaling={"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1},
                 moe_topk=[k("expert_used_count")] * n, moe_intermediate_size=[k("expert_feed_forward_length")] * n,
                 num_shared_expert=[1] * n, intermediate_size=k("expert_shared_feed_forward_length"), use_mixed_mlp_moe=True,
                 use_qk_norm=True, use_cla=False, norm_topk_prob=True, routed_scaling_factor=1.0, moe_layer_num_skipped=0)
        self.g.put("hunyuan-moe.rope.freq_base", f32(10000.0 * 1000.0 ** (d / (d - 2))))

    def config_hunyuan_dense(self, c):
        c.update(model_type="hunyuan_v1_dense", use_qk_norm=True, use_cla=False, num_experts=1)

    def config_bailingmoe2(self, c):
        k = self.key
        c.update(model_type="bailing_moe", num_experts=self.n_experts, num_experts_per_tok=k("expert_used_count"),
                 moe_intermediate_size=k("expert_feed_forward_length"), num_shared_experts=k("expert_shared_count"),
                 moe_shared_expert_intermediate_size=k("expert_shared_feed_forward_length"), n_group=k("expert_group_count"),
                 topk_group=k("expert_group_used_count"), routed_scaling_factor=k("expert_weights_scale"), score_function="sigmoid",
                 first_k_dense_replace=k("leading_dense_block_count"), norm_topk_prob=True, use_qk_norm=True, use_bias=False,
                 use_qkv_bias=False, norm_head=False, moe_router_enable_expert_bias=True, rotary_dim=k("rope.dimension_count"),
                 partial_rotary_factor=k("rope.dimension_count") / c["head_dim"], num_nextn_predict_layers=0)

    def config_llama4(self, c):
        k = self.key
        s = {"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,  # as Scout's
             "original_max_position_embeddings": 64}
        if "rope_freqs.weight" in self.g.tensors:
            self.set_factors(self.llama3_factors(s, c["rope_theta"], c["head_dim"]))
            c["rope_scaling"] = s
        step = k("interleave_moe_layer_step")
        c.update(model_type="llama4_text", intermediate_size_mlp=k("feed_forward_length"),
                 intermediate_size=k("expert_feed_forward_length"), num_local_experts=self.n_experts,
                 num_experts_per_tok=k("expert_used_count"), interleave_moe_layer_step=step,
                 moe_layers=list(range(step - 1, c["num_hidden_layers"], step)), use_qk_norm=True, attention_bias=False,
                 no_rope_layers=[int((i + 1) % 4 != 0) for i in range(c["num_hidden_layers"])],
                 attention_chunk_size=8192, attn_temperature_tuning=4, floor_scale=8192, attn_scale=0.1)
        self.outer = OUTER["llama4"]

    def config_llama(self, c):
        if self.key("rope.scale_linear"):
            c["rope_scaling"] = {"type": "linear", "factor": self.key("rope.scale_linear")}
        if self.n_experts:
            c.update(model_type="mixtral", num_local_experts=self.n_experts,
                     num_experts_per_tok=self.key("expert_used_count"), sliding_window=None)
        if "rope_freqs.weight" in self.g.tensors:
            # The golden file's: sized so that a context of 79 tokens sees it.
            s = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                 "original_max_position_embeddings": 64}
            c["rope_scaling"] = s
            factors = self.llama3_factors(s, c["rope_theta"], c["head_dim"])
            old = floats(F32, self.g.tensors["rope_freqs.weight"][2])
            assert all(abs(a - b) < 1e-5 * b for a, b in zip(factors, old)), (factors, old)
            self.set_factors(factors)

    def config_mistral3(self, c):
        k = self.key
        c.pop("rope_scaling")
        c.update(model_type="ministral3", rope_parameters={
            "rope_theta": c.pop("rope_theta"), "rope_type": "yarn", "factor": k("rope.scaling.factor"),
            "original_max_position_embeddings": k("rope.scaling.original_context_length"), "mscale": 1.0,
            "mscale_all_dim": 1.0, "beta_fast": 32.0, "beta_slow": 1.0,
            "llama_4_scaling_beta": k("attention.temperature_scale")})

    def config_smollm3(self, c):
        c.update(no_rope_layer_interval=4, use_sliding_window=False, sliding_window=None, attention_bias=False,
                 no_rope_layers=[int((i + 1) % 4 != 0) for i in range(c["num_hidden_layers"])],
                 layer_types=["full_attention"] * c["num_hidden_layers"])

    def config_seed_oss(self, c):
        c.update(attention_bias=True, attention_out_bias=False, mlp_bias=False)

    def windows(self, c, period):
        window = self.key("attention.sliding_window")
        c["sliding_window"] = window
        c["layer_types"] = ["sliding_attention" if window and (i + 1) % period else "full_attention"
                            for i in range(c["num_hidden_layers"])]

    def config_olmo2(self, c):
        k = self.key
        del c["head_dim"]
        if k("attention.sliding_window"):
            self.windows(c, 4)
            c.update(model_type="olmo3", rope_scaling={
                "rope_type": "yarn", "factor": k("rope.scaling.factor"), "beta_fast": 32, "beta_slow": 1,
                "original_max_position_embeddings": k("rope.scaling.original_context_length")})

    def config_exaone4(self, c):
        self.windows(c, 4)
        c["sliding_window_pattern"] = "LLLG" if c["sliding_window"] else None

    def config_ernie4_5(self, c):
        c["use_bias"] = False

    def config_ernie4_5_moe(self, c):
        k = self.key
        c.update(use_bias=False, moe_num_experts=self.n_experts, moe_k=k("expert_used_count"),
                 moe_intermediate_size=k("expert_feed_forward_length"), moe_num_shared_experts=k("expert_shared_count"),
                 moe_layer_start_index=k("leading_dense_block_count"), moe_layer_interval=1)

    def config_dots1(self, c):
        k = self.key
        c.update(n_routed_experts=self.n_experts, num_experts_per_tok=k("expert_used_count"),
                 moe_intermediate_size=k("expert_feed_forward_length"), n_shared_experts=k("expert_shared_count"),
                 first_k_dense_replace=k("leading_dense_block_count"), norm_topk_prob=True, n_group=1, topk_group=1,
                 routed_scaling_factor=k("expert_weights_scale"), scoring_func="sigmoid",
                 layer_types=["full_attention"] * c["num_hidden_layers"])

    def config_gemma(self, c):
        c.update(hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh")

    def config_gemma2(self, c):
        k = self.key
        c.update(hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh",
                 sliding_window=k("attention.sliding_window"), query_pre_attn_scalar=c["head_dim"],
                 attn_logit_softcapping=k("attn_logit_softcapping"),
                 final_logit_softcapping=k("final_logit_softcapping"))

    def config_cohere2(self, c):
        del c["rms_norm_eps"]
        c.update(layer_norm_eps=self.key("attention.layer_norm_epsilon"), logit_scale=self.key("logit_scale"),
                 sliding_window=self.key("attention.sliding_window"), sliding_window_pattern=4, attention_bias=False)

    def config_glm4(self, c):
        c.update(partial_rotary_factor=self.key("rope.dimension_count") / c["head_dim"], attention_bias=True)

    def config_qwen2(self, c):
        c.update(use_sliding_window=False, sliding_window=4096)

    def config_qwen2moe(self, c):
        c.update(use_sliding_window=False, sliding_window=4096, num_experts=self.n_experts,
                 num_experts_per_tok=self.key("expert_used_count"), norm_topk_prob=False,
                 moe_intermediate_size=self.key("expert_feed_forward_length",
                                                c["intermediate_size"] // self.key("expert_used_count")),
                 decoder_sparse_step=1,
                 shared_expert_intermediate_size=self.key("expert_shared_feed_forward_length",
                                                          c["intermediate_size"]),
                 mlp_only_layers=[])
        del c["head_dim"]

    def config_qwen3(self, c):
        c.update(use_sliding_window=False, attention_bias=False)

    def config_qwen3vl(self, c):
        self.outer = OUTER["qwen3vl"]
        self.config_qwen3(c)
        c["rope_scaling"] = {"rope_type": "default", "mrope_section": self.key("rope.dimension_sections")[:3],
                             "mrope_interleaved": True}

    def config_qwen3next(self, c):
        """modeling_qwen3_next.py: q, k, v and z of a key head stand together in one matrix; norms less one, but for
        that of the gated results."""
        k = self.key
        n_k, n_v, d = k("ssm.group_count"), k("ssm.time_step_rank"), k("ssm.state_size")
        self.per, self.v_dim = n_v // n_k, k("ssm.inner_size") // n_v
        c.update(linear_num_key_heads=n_k, linear_num_value_heads=n_v, linear_key_head_dim=d, hidden_act="silu",
                 linear_value_head_dim=self.v_dim, linear_conv_kernel_dim=k("ssm.conv_kernel"),
                 partial_rotary_factor=k("rope.dimension_count") / c["head_dim"],
                 layer_types=["full_attention" if i % 4 == 3 else "linear_attention"
                              for i in range(c["num_hidden_layers"])])
        if self.n_experts:
            self.config_qwen3moe(c)
            c["shared_expert_intermediate_size"] = k("expert_shared_feed_forward_length")
        if self.arch == "qwen3next":
            self.join_qkvz(n_k, d)

    def config_qwen35(self, c):
        """Matrices of their own; value heads stand group by group, where the GGUF has the first of each group first."""
        self.config_qwen3next(c)
        c["attn_output_gate"] = True
        if self.n_experts:
            del c["intermediate_size"]
        n_k, keys = self.key("ssm.group_count"), 2 * self.key("ssm.group_count") * self.key("ssm.state_size")
        self.grouped = {"attn_qkv.weight": (keys, self.v_dim), "attn_gate.weight": (0, self.v_dim),
                        "ssm_conv1d.weight": (keys, self.v_dim), "ssm_beta.weight": (0, 1), "ssm_alpha.weight": (0, 1),
                        "ssm_dt.bias": (0, 1), "ssm_a": (0, 1), "ssm_out.weight": (0, self.v_dim)}
        self.order = [j * n_k + g for g in range(n_k) for j in range(self.per)]

    config_qwen35moe = config_qwen35

    def join_qkvz(self, n_k, d):
        for name in [n for n in self.g.tensors if n.endswith("attn_qkv.weight")]:
            (dims, kind, qkv), (_, _, z) = self.g.tensors[name], self.g.tensors[name.replace("qkv", "gate")]
            qkv, z, v = rows_of(dims, kind, qkv), rows_of(dims, kind, z), self.per * self.v_dim
            rows = []
            for h in range(n_k):
                rows += qkv[h * d:(h + 1) * d] + qkv[(n_k + h) * d:(n_k + h + 1) * d]
                rows += qkv[2 * n_k * d + h * v:2 * n_k * d + (h + 1) * v] + z[h * v:(h + 1) * v]
            self.joined[name] = (dims[0], kind, rows)

    def config_lfm2(self, c):
        """modeling_lfm2.py: the width of the FFN is two thirds of that in config.json, times a factor, rounded up."""
        del c["rms_norm_eps"], c["head_dim"]
        c.update(norm_eps=self.key("attention.layer_norm_rms_epsilon"), conv_L_cache=self.key("shortconv.l_cache"),
                 conv_bias=False, block_auto_adjust_ff_dim=True,
                 intermediate_size=3 * c["intermediate_size"] - 3, block_ffn_dim_multiplier=0.5, block_multiple_of=8,
                 layer_types=["full_attention" if n else "conv" for n in self.kv_of_layers])

    def config_lfm2moe(self, c):
        self.config_lfm2(c)
        k = self.key
        c.update(num_experts=self.n_experts, num_experts_per_tok=k("expert_used_count"), num_dense_layers=k("leading_dense_block_count"),
                 moe_intermediate_size=k("expert_feed_forward_length"), norm_topk_prob=True, use_expert_bias=True,
                 routed_scaling_factor=1.0, full_attn_idxs=[i for i, n in enumerate(self.kv_of_layers) if n])
        c["intermediate_size"] = k("feed_forward_length")
        c["block_auto_adjust_ff_dim"] = False
        del c["layer_types"]  # older files

    def config_granitehybrid(self, c):
        k = self.key
        self.config_granitemoe(c)
        c.update(model_type="granitemoehybrid", position_embedding_type="nope", head_dim=k("attention.key_length"),
                 mamba_n_heads=k("ssm.time_step_rank"), mamba_d_head=k("ssm.inner_size") // k("ssm.time_step_rank"),
                 mamba_d_state=k("ssm.state_size"), mamba_n_groups=k("ssm.group_count"), mamba_d_conv=k("ssm.conv_kernel"),
                 mamba_expand=2, mamba_conv_bias=True, mamba_proj_bias=False,
                 layer_types=["attention" if n else "mamba" for n in self.kv_of_layers])

    def config_nemotron_h(self, c):
        k = self.key
        del c["rms_norm_eps"], c["hidden_act"]
        self.prefix = "backbone."
        widths = k("feed_forward_length")
        letter = lambda kv, ff: "*" if kv else ("E" if self.n_experts else "-") if ff else "M"
        c.update(hybrid_override_pattern="".join(map(letter, self.kv_of_layers, widths)), mlp_hidden_act="relu2",
                 layer_norm_epsilon=k("attention.layer_norm_rms_epsilon"), intermediate_size=max(widths), use_bias=False,
                 mamba_num_heads=k("ssm.time_step_rank"), mamba_head_dim=k("ssm.inner_size") // k("ssm.time_step_rank"),
                 ssm_state_size=k("ssm.state_size"), n_groups=k("ssm.group_count"), conv_kernel=k("ssm.conv_kernel"),
                 use_conv_bias=True, mlp_bias=False, attention_bias=False)
        if self.n_experts:
            c.update(n_routed_experts=self.n_experts, num_experts_per_tok=k("expert_used_count"),
                     moe_intermediate_size=k("expert_feed_forward_length"), n_shared_experts=k("expert_shared_count"),
                     moe_shared_expert_intermediate_size=k("expert_shared_feed_forward_length"), n_group=1, topk_group=1,
                     norm_topk_prob=k("expert_weights_norm"), routed_scaling_factor=k("expert_weights_scale"))
            if k("moe_latent_size", 0):
                c.update(moe_latent_size=k("moe_latent_size"))

    config_nemotron_h_moe = config_nemotron_h

    def config_granitemoe(self, c):
        k = self.key
        shared = k("expert_shared_feed_forward_length", 0)
        c.update(model_type="granitemoeshared" if shared else "granitemoe", num_local_experts=self.n_experts,
                 num_experts_per_tok=k("expert_used_count"), embedding_multiplier=k("embedding_scale"),
                 residual_multiplier=k("residual_scale"), attention_multiplier=k("attention.scale"),
                 logits_scaling=k("logit_scale"), attention_bias=False, router_aux_loss_coef=0.0)
        if shared:
            c["shared_intermediate_size"] = shared
        del c["head_dim"]

    def config_qwen3moe(self, c):
        c.update(num_experts=self.n_experts, num_experts_per_tok=self.key("expert_used_count"),
                 moe_intermediate_size=self.key("expert_feed_forward_length"), norm_topk_prob=True,
                 decoder_sparse_step=1, mlp_only_layers=[])

    def config_deepseek2(self, c):
        k = self.key
        sigmoid = k("expert_gating_func") == 2
        rope = k("rope.dimension_count")
        log_mul = k("rope.scaling.yarn_log_multiplier")
        key_len = k("attention.key_length_mla", k("attention.key_length"))
        v_len = k("attention.value_length_mla", k("attention.value_length"))
        c.update(model_type="deepseek_v3" if sigmoid else "deepseek_v2", head_dim=rope,
                 num_key_value_heads=self.n_heads,
                 kv_lora_rank=k("attention.kv_lora_rank"),
                 q_lora_rank=k("attention.q_lora_rank") or None, qk_rope_head_dim=rope,
                 qk_nope_head_dim=key_len - rope, v_head_dim=v_len,
                 n_routed_experts=self.n_experts, num_experts_per_tok=k("expert_used_count"),
                 moe_intermediate_size=k("expert_feed_forward_length"),
                 n_shared_experts=k("expert_shared_count"),
                 first_k_dense_replace=k("leading_dense_block_count"), moe_layer_freq=1,
                 norm_topk_prob=k("expert_weights_norm"),
                 routed_scaling_factor=k("expert_weights_scale"),
                 n_group=k("expert_group_count", 1), topk_group=k("expert_group_used_count", 1),
                 scoring_func="sigmoid" if sigmoid else "softmax",
                 topk_method="noaux_tc" if sigmoid else
                             "group_limited_greedy" if k("expert_group_count", 1) > 1 else "greedy")
        if k("rope.scaling.type") == "yarn":
            mscale = round(log_mul * 10, 6)
            c["rope_scaling"] = {"type": "yarn", "factor": k("rope.scaling.factor"), "beta_fast": 32,
                                 "beta_slow": 1, "mscale": mscale, "mscale_all_dim": mscale,
                                 "original_max_position_embeddings":
                                     k("rope.scaling.original_context_length")}
        self.join_kv_b(key_len - rope, v_len)

    def indexed(self, c):
        k = self.key
        self.config_deepseek2(c)
        c.update(num_hidden_layers=k("block_count") - k("nextn_predict_layers", 0),
                 num_nextn_predict_layers=k("nextn_predict_layers", 0), scoring_func="sigmoid", topk_method="noaux_tc",
                 index_n_heads=k("attention.indexer.head_count"), index_head_dim=k("attention.indexer.key_length"),
                 index_topk=k("attention.indexer.top_k"))

    def config_deepseek32(self, c):
        self.indexed(c)
        c["model_type"] = "deepseek_v32"

    def config_glm_dsa(self, c):
        k = self.key
        self.indexed(c)
        c["model_type"] = "glm_moe_dsa"
        if k("attention.indexer.types"):  # GLM-5.2
            c["indexer_types"] = ["full" if t else "shared" for t in k("attention.indexer.types")]
            n_dense = k("leading_dense_block_count") if self.n_experts else k("block_count")
            c["mlp_layer_types"] = ["dense" if i < n_dense else "sparse" for i in range(c["num_hidden_layers"])]
            del c["first_k_dense_replace"]

    def join_kv_b(self, nope, v_len):
        """modeling_deepseek.py: kv_b_proj's rows are, head by head, the keys', then the values'. mlx-lm splits them as the
        GGUF does."""
        if self.folder.options.mlx_lm:
            return
        for name in [n for n in self.g.tensors if n.endswith("attn_k_b.weight")]:
            k, v = self.g.tensors.pop(name), self.g.tensors.pop(name.replace("k_b", "v_b"))
            rank = v[0][0]
            keys, values = rows_of(*k), rows_of(*v)
            rows = []
            for h in range(self.n_heads):
                rows += transpose(keys[h * rank:(h + 1) * rank], 4)
                rows += values[h * v_len:(h + 1) * v_len]
            self.g.tensors[name.replace("k_b", "kv_b")] = [(rank, len(rows)), F32, b"".join(rows)]

    def config_gpt_oss(self, c):
        k = self.key
        c.update(num_local_experts=self.n_experts, num_experts_per_tok=k("expert_used_count"),
                 sliding_window=k("attention.sliding_window"), swiglu_limit=7.0, attention_bias=True,
                 layer_types=["full_attention" if i % 2 else "sliding_attention"
                              for i in range(k("block_count"))],
                 rope_scaling={"rope_type": "yarn", "factor": k("rope.scaling.factor"),
                               # OpenAI's say False, of which llama.cpp, whose logits the golden ones are, knows nothing.
                               "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True,
                               "original_max_position_embeddings":
                                   k("rope.scaling.original_context_length")})

    def config_glm4moe(self, c):
        k = self.key
        c.update(num_hidden_layers=k("block_count") - k("nextn_predict_layers", 0),
                 num_nextn_predict_layers=k("nextn_predict_layers", 0),
                 partial_rotary_factor=k("rope.dimension_count") / k("attention.key_length"),
                 n_routed_experts=self.n_experts, num_experts_per_tok=k("expert_used_count"),
                 moe_intermediate_size=k("expert_feed_forward_length"),
                 n_shared_experts=k("expert_shared_count"),
                 first_k_dense_replace=k("leading_dense_block_count"),
                 norm_topk_prob=k("expert_weights_norm"),
                 routed_scaling_factor=k("expert_weights_scale"), n_group=1, topk_group=1,
                 attention_bias=True, use_qk_norm=True)

    def config_gemma3(self, c):
        k = self.key
        del c["hidden_act"]
        c.update(hidden_activation="gelu_pytorch_tanh", sliding_window=k("attention.sliding_window"),
                 sliding_window_pattern=6, rope_local_base_freq=k("rope.freq_base_swa"),
                 query_pre_attn_scalar=k("attention.key_length"),
                 rope_scaling={"rope_type": "linear", "factor": k("rope.scaling.factor")},
                 final_logit_softcapping=k("final_logit_softcapping"))

    def config_phi3(self, c):
        k, t = self.key, self.g.tensors
        c.update(original_max_position_embeddings=k("rope.scaling.original_context_length"),
                 rope_scaling={"type": "longrope", "attention_factor": k("rope.scaling.attn_factor"),
                               "long_factor": floats(F32, t["rope_factors_long.weight"][2]),
                               "short_factor": floats(F32, t["rope_factors_short.weight"][2])})

    def config_minimax_m2(self, c):
        k = self.key
        c.update(num_local_experts=self.n_experts, num_experts_per_tok=k("expert_used_count"),
                 rotary_dim=k("rope.dimension_count"), scoring_func="sigmoid", use_qk_norm=True,
                 qk_norm_type="per_layer")

    # ---- tensors

    def put_matrix(self, gguf_name, name, rows, cols, kind, data, n=0):
        """[rows, cols], perhaps quantized; then the second GGUF's tensor changes too. `data` is in the
        GGUF's order of rows; `self.order` puts it into the folder's."""
        o = self.folder.options
        quantize = o.weights and kind != MXFP4 and cols % max(32, o.group) == 0 and \
            not re.search("ffn_gate_inp|hc_|_compressor|indexer.proj", gguf_name) and (o.weights != "mxfp4" or "_exps" in gguf_name) and \
            (o.weights.startswith("mlx") or not re.match("token_embd|output", gguf_name))
        if not quantize:
            shape = (n, rows // n, cols) if n else (rows, cols)
            self.folder.put(name, DTYPE[kind], shape, data)
            return None
        values = floats(kind, data)
        if o.weights == "fp8-fp4" and "_exps" in gguf_name:
            return put_fp4(self.folder, name, rows, cols, values)
        if o.weights.startswith("fp8") or o.weights.endswith("mxfp8"):
            return put_fp8(self.folder, name, rows, cols, values, n)
        if o.weights.endswith("nvfp4"):
            worth = put_nvfp4(self.folder, name, rows, cols, values, n)
            if worth[2] is not None:
                own = self.g.tensors.setdefault(gguf_name[:-len("weight")] + "scale", [(0,), F32, b""])
                own[:] = [(own[0][0] + 1,), F32, own[2] + struct.pack("<f", worth[2])]
            return worth[:2]
        if o.weights == "mxfp4":
            return put_packed_mxfp4(self.folder, name, rows, cols, values)
        if o.weights == "int4":
            return put_int4(self.folder, name, rows, cols, values)
        if o.weights == "mlx-mxfp4" and (not o.group or "_exps" in gguf_name):
            return put_mxfp4(self.folder, name, rows, cols, values, n)
        if o.weights == "mlx-mxfp4":
            self.folder.affine[name[:-len(".weight")]] = {"group_size": o.group, "bits": 8}
        return put_mlx(self.folder, name, rows, cols, values, n)

    def put_recurrent(self, gguf_name, name):
        """What is special in the tensors of layers with a state; False: nothing is."""
        dims, kind, data = self.g.tensors[gguf_name]
        part = gguf_name.split(".", 2)[-1]
        if part in ("ssm_d", "ssm_norm.weight") and len(dims) == 2:
            dims = (math.prod(dims),)
            self.folder.put(name, DTYPE[kind], dims, data)
            return True
        if part == "ssm_a":
            dims = (math.prod(dims),)
            logs = [f32(math.log(-v)) for v in floats(kind, data)]
            self.g.tensors[gguf_name][2] = array("f", [-math.exp(v) for v in logs]).tobytes()
            data = array("f", logs).tobytes()
        if gguf_name in self.joined:
            cols, kind, rows = self.joined[gguf_name]
            self.folder.put(name.replace("qkv", "qkvz"), DTYPE[kind], (len(rows), cols), b"".join(rows))
            return True
        if self.joined and part == "attn_gate.weight":
            return True  # joined
        if part in self.grouped:
            first, block = self.grouped[part]
            cells = [data[i:i + 4] for i in range(0, len(data), 4)] if len(dims) == 1 else rows_of(dims, kind, data)
            if part == "ssm_out.weight":
                cells = transpose(cells, BLOCK[kind][1])
            blocks = [cells[first + i * block:first + (i + 1) * block] for i in range(len(self.order))]
            cells = cells[:first] + [c for i in self.order for c in blocks[i]]
            if part == "ssm_out.weight":
                cells = transpose(cells, BLOCK[kind][1])
            data = b"".join(cells)
        if "conv" in part and part.endswith(".weight") and "proj" not in part and "norm" not in part:
            channels = math.prod(dims[1:])
            shape = (channels, dims[0], 1) if self.folder.options.mlx_lm else (channels, 1, dims[0])
            self.folder.put(name, DTYPE[kind], shape, data)
        elif part == "ssm_a" and self.arch == "kimi-k3":  # longer than there are heads
            self.folder.put(name, DTYPE[kind], (dims[0] + 2,), data + bytes(8))
        elif part == "ssm_a" and self.arch == "kimi-linear":
            self.folder.put(name, DTYPE[kind], (1, 1, dims[0], 1), data)
        elif part in self.grouped or part == "ssm_a":
            self.folder.put(name, DTYPE[kind], dims[::-1], data)
        else:
            return False
        return True

    def put_tensor(self, gguf_name, name):
        dims, kind, data = self.g.tensors[gguf_name]
        if re.search(r"ssm_|shortconv|attn_(qkv|gate)", gguf_name) and self.put_recurrent(gguf_name, name):
            return
        if "res_score" in gguf_name:  # a norm's weights times those of a projection to one number
            norms = [2.0 if i % 3 else 0.5 for i in range(dims[0])]
            self.folder.put(name % "norm", "F32", dims, array("f", norms).tobytes())
            self.folder.put(name % "proj", "F32", (1, dims[0]),
                            array("f", [v / n for v, n in zip(floats(kind, data), norms)]).tobytes())
            return
        if gguf_name == "per_layer_token_embd.weight" and self.arch == "gemma3n":  # less than the embedding
            cut = dims[1] * 15 // 16
            self.folder.put(name, DTYPE[kind], (cut, dims[0]), data[:cut * dims[0] * BLOCK[kind][1]])
            return
        if kind == I32:
            wide = struct.pack("<%dq" % (len(data) // 4), *array("i", data))
            self.folder.put(name, *("I32", dims[::-1], data) if self.folder.options.mlx_lm else ("I64", dims[::-1], wide))
            return
        if gguf_name.endswith("ffn_gate_inp_shexp.weight"):  # a matrix of one row there
            self.folder.put(name, DTYPE[kind], (1,) + tuple(dims), data)
            return
        if gguf_name.endswith("exp_probs_b.bias") and self.arch == "ernie4_5-moe":  # likewise
            self.folder.put(name, DTYPE[kind], (1,) + tuple(dims), data)
            return
        if len(dims) == 1:
            delta = self.arch in ("qwen3next", "qwen35", "qwen35moe")
            if "norm" in gguf_name and (self.arch in ("gemma", "gemma2", "gemma3", "minimax-m3") or (
                    (delta and "ssm_norm" not in gguf_name or self.arch == "step35") and not self.folder.options.mlx_lm)):
                less = [f32(v - 1) for v in floats(kind, data)]
                self.g.tensors[gguf_name][2] = array("f", [v + 1 for v in less]).tobytes()
                data = array("f", less).tobytes()
            if self.arch == "llama" and re.search(r"attn_[qk]\.bias", gguf_name):
                heads = self.n_heads if "attn_q" in gguf_name else self.n_kv
                data = array("f", unpermute(floats(kind, data), heads)).tobytes()
            self.folder.put(name, DTYPE[kind], dims, data)
            return
        if "_exps" in gguf_name:
            self.put_experts(gguf_name, name)
            return
        if len(dims) == 3:  # of heads
            worth = self.put_matrix(gguf_name, name, dims[1] * dims[2], dims[0], kind, data, dims[2])
            if worth:
                self.g.tensors[gguf_name][1:] = worth
            return
        rows = rows_of(dims, kind, data)
        heads = None
        if self.arch in ("llama", "granitemoe", "granitehybrid", "mistral3", "smollm3") and re.search(r"attn_[qk]\.weight", gguf_name):
            heads = self.n_heads if "attn_q" in gguf_name else self.n_kv
            rows = unpermute(rows, heads)
        worth = self.put_matrix(gguf_name, name, dims[1], dims[0], kind, b"".join(rows))
        if worth:
            rows = rows_of(dims, *worth)
            if heads:  # back to pairs
                d, order = len(rows) // heads, []
                for h in range(heads):
                    for i in range(d // 2):
                        order += [h * d + i, h * d + d // 2 + i]
                rows = [rows[i] for i in order]
            self.g.tensors[gguf_name][1:] = [worth[0], b"".join(rows)]

    def put_experts(self, gguf_name, name):
        dims, kind, data = self.g.tensors[gguf_name]
        size = len(data) // dims[2]
        o = self.folder.options
        if self.arch == "step35" or o.weights and o.weights.startswith("mlx") or o.mlx_lm:
            part = re.search("ffn_(.*)_exps", gguf_name).group(1)
            stack = "experts" if self.arch == "llama4" else "switch_mlp"
            name = re.sub(r"experts\.%d.*", "%s.%s_proj.weight" % (stack, part), name)
            worth = self.put_matrix(gguf_name, name, dims[1] * dims[2], dims[0], kind, data, dims[2])
            if worth:
                self.g.tensors[gguf_name][1:] = worth
            return
        worths = []
        for e in range(dims[2]):
            worths.append(self.put_matrix(gguf_name, name % e, dims[1], dims[0], kind,
                                          data[e * size:(e + 1) * size]))
        if worths[0]:
            self.g.tensors[gguf_name][1:] = [worths[0][0], b"".join(w[1] for w in worths)]

    def put_stacked_experts(self, layer):
        """modeling_qwen3_5_moe.py: gate's rows, then up's, of each expert; no names of single experts."""
        blk, out = "blk.%d." % layer, "%slayers.%d.mlp.experts." % (self.prefix, layer)
        (gate, kind, a), (_, _, b), (down, _, c) = [self.g.tensors[blk + "ffn_%s_exps.weight" % p]
                                                    for p in ("gate", "up", "down")]
        size, n = len(a) // gate[2], gate[2]
        both = b"".join(part[e * size:(e + 1) * size] for e in range(n) for part in (a, b))
        self.folder.put(out + "gate_up_proj", DTYPE[kind], (n, 2 * gate[1], gate[0]), both)
        self.folder.put(out + "down_proj", DTYPE[kind], down[::-1], c)

    def put_gemma4_experts(self, gguf_name, out):
        """modeling_gemma4.py: gate over up, all experts in one tensor; mlx-lm: one tensor each."""
        o, (dims, kind, data) = self.folder.options, self.g.tensors[gguf_name]
        if not o.mlx_lm:
            worth = self.put_matrix(gguf_name, out + self.names[gguf_name.split(".", 2)[2]], dims[1] * dims[2], dims[0], kind, data,
                                    dims[2])
            if worth:
                self.g.tensors[gguf_name][1:] = worth
            return
        n, parts = dims[2], ("gate", "up") if "gate_up" in gguf_name else ("down",)
        rows = rows_of(dims, kind, data)
        each, worths = len(rows) // n // len(parts), []
        for i, part in enumerate(parts):
            own = [r for e in range(n) for r in rows[(e * len(parts) + i) * each:(e * len(parts) + i + 1) * each]]
            name = "%sexperts.switch_glu.%s_proj.weight" % (out, part)
            worth = self.put_matrix(gguf_name, name, n * each, dims[0], kind, b"".join(own), n)
            worths.append(worth and rows_of(dims, *worth))
        if worths[0]:
            self.g.tensors[gguf_name][1:] = [worth[0], b"".join(
                r for e in range(n) for w in worths for r in w[e * each:(e + 1) * each])]

    def put_llama4_experts(self, layer):
        """modeling_llama4.py: [expert, in, out], gate's columns, then up's."""
        blk, out = "blk.%d." % layer, "%slayers.%d.feed_forward.experts." % (self.prefix, layer)
        (gate, kind, a), (_, _, b), (down, _, c) = [self.g.tensors[blk + "ffn_%s_exps.weight" % p]
                                                    for p in ("gate", "up", "down")]
        experts = lambda dims, data: [rows_of(dims, kind, data)[e * dims[1]:(e + 1) * dims[1]] for e in range(dims[2])]
        size = BLOCK[kind][1]
        both = b"".join(r for x, y in zip(experts(gate, a), experts(gate, b)) for r in transpose(x + y, size))
        self.folder.put(out + "gate_up_proj", DTYPE[kind], (gate[2], gate[0], 2 * gate[1]), both)
        turned = b"".join(r for x in experts(down, c) for r in transpose(x, size))
        self.folder.put(out + "down_proj", DTYPE[kind], (down[2], down[0], down[1]), turned)

    def put_granite_experts(self, layer):
        """modeling_granitemoe.py: gate's rows, then up's, of each expert in one tensor of three dimensions."""
        blk, out = "blk.%d." % layer, "model.layers.%d." % layer
        pick = lambda what: self.g.tensors[blk + "ffn_%s.weight" % what]
        (gate, kind, a), (_, _, b) = pick("gate_exps"), pick("up_exps")
        size, n = len(a) // gate[2], gate[2]
        both = b"".join(part[e * size:(e + 1) * size] for e in range(n) for part in (a, b))
        self.folder.put(out + "block_sparse_moe.input_linear.weight", DTYPE[kind], (n, 2 * gate[1], gate[0]), both)
        down, kind, data = pick("down_exps")
        self.folder.put(out + self.names["ffn_down_exps.weight"], DTYPE[kind], down[::-1], data)
        if blk + "ffn_gate_shexp.weight" in self.g.tensors:
            (gate, kind, a), (_, _, b) = pick("gate_shexp"), pick("up_shexp")
            self.folder.put(out + "shared_mlp.input_linear.weight", DTYPE[kind], (2 * gate[1], gate[0]), a + b)

    def put_gpt_oss_experts(self, layer):
        """gate and up rows take turns; MXFP4 as openai ships it (blocks of 16 bytes of neighbouring pairs, and
        exponents), F32 as modeling_gpt_oss.py has it: [expert, in, out]."""
        blk, out = "blk.%d." % layer, "model.layers.%d.mlp.experts." % layer
        pick = lambda what: self.g.tensors[blk + "ffn_%s_exps." % what]
        gate, up, down = [self.g.tensors[blk + "ffn_%s_exps.weight" % p] for p in ("gate", "up", "down")]
        n = gate[0][2]
        if (self.folder.options.weights or "").startswith("mlx"):
            self.put_mlx_gpt_oss_experts(blk, out)
            return

        def experts(t):
            rows = rows_of(*t)
            return [rows[e * t[0][1]:(e + 1) * t[0][1]] for e in range(n)]

        both = [[r for pair in zip(a, b) for r in pair] for a, b in zip(experts(gate), experts(up))]
        for name, of, cols in (("gate_up_proj", both, gate[0][0]), ("down_proj", experts(down), down[0][0])):
            if gate[1] == MXFP4:
                blocks, scales = bytearray(), bytearray()
                for r in (r for e in of for r in e):
                    for b in range(0, len(r), 17):
                        scales.append(r[b])
                        codes = [c & 15 for c in r[b + 1:b + 17]] + [c >> 4 for c in r[b + 1:b + 17]]
                        blocks += bytes(codes[i] | codes[i + 1] << 4 for i in range(0, 32, 2))
                shape = (n, len(of[0]), cols // 32)
                self.folder.put(out + name + "_blocks", "U8", shape + (16,), blocks)
                self.folder.put(out + name + "_scales", "U8", shape, scales)
            else:
                size = BLOCK[gate[1]][1]
                data = b"".join(r for e in of for r in transpose(e, size))
                self.folder.put(out + name, DTYPE[gate[1]], (n, cols, len(of[0])), data)
        gate, up, down = [self.g.tensors[blk + "ffn_%s_exps.bias" % p] for p in ("gate", "up", "down")]
        both = array("f")
        for a, b in zip(floats(F32, gate[2]), floats(F32, up[2])):
            both.extend((a, b))
        self.folder.put(out + "gate_up_proj_bias", "F32", (n, 2 * gate[0][0]), both.tobytes())
        self.folder.put(out + "down_proj_bias", "F32", (n, down[0][0]), down[2])

    def put_mlx_gpt_oss_experts(self, blk, out):
        """As mlx-lm's gpt_oss.py splits them; MXFP4 stays what it is."""
        for p in ("gate", "up", "down"):
            weight, bias = [self.g.tensors[blk + "ffn_%s_exps.%s" % (p, kind)] for kind in ("weight", "bias")]
            name, (dims, kind, data) = out + "%s_proj.weight" % p, weight
            self.folder.put(out + "%s_proj.bias" % p, "F32", bias[0][::-1], bias[2])
            if kind == MXFP4:
                scales, words = bytearray(), bytearray()
                for b in range(0, len(data), 17):
                    q = data[b + 1:b + 17]
                    put_mxfp4_block(data[b], [c & 15 for c in q] + [c >> 4 for c in q], scales, words)
                put_mxfp4_parts(self.folder, name, dims[:0:-1], dims[0], words, scales)
                continue
            weight[1:] = self.put_matrix(blk + "ffn_%s_exps.weight" % p, name, dims[1] * dims[2], dims[0], kind, data,
                                         dims[2]) or (kind, data)

    def all_tensors(self, n_layers):
        for name in list(self.g.tensors):
            m = re.match(r"blk\.(\d+)\.(.*)", name)
            if name in ENDS:
                mamba = {"embed_tokens.weight": "embeddings.weight", "norm.weight": "norm_f.weight"}
                ling = {"embed_tokens.weight": "word_embeddings.weight"}
                v4 = {"embed_tokens.weight": "embed.weight", **{"hc_head." + p: "hc_head_" + p for p in ("fn", "base", "scale")}}
                other = mamba if self.prefix == "backbone." else ling if self.arch == "bailingmoe2" else {} if self.prefix else v4
                self.put_tensor(name, self.prefix + other.get(ENDS[name], ENDS[name]))
            elif name == "output.weight" and not self.prefix:
                self.put_tensor(name, "head.weight")
            elif name == "output.weight":
                self.put_tensor(name, ("language_model." if self.prefix == "language_model.model." else "") + "lm_head.weight")
            elif name.startswith("altup_"):  # one matrix for each stream but the first
                dims, kind, data = self.g.tensors[name]
                for i in range(dims[2]):
                    size = len(data) // dims[2]
                    self.folder.put("%saltup_%sprojections.%d.weight" % (self.prefix, "unembed_" * ("unembd" in name), i),
                                    DTYPE[kind], dims[1::-1], data[i * size:(i + 1) * size])
            elif name.startswith("rope_"):
                continue  # config.json
            elif int(m.group(1)) >= n_layers:
                # Layers that predict further tokens: there, and not read.
                dims, kind, data = self.g.tensors[name]
                self.folder.put("model.layers.%s.%s" % m.groups(), DTYPE[kind], dims[::-1], data)
            elif self.arch == "gemma4" and "_exps.weight" in name:
                self.put_gemma4_experts(name, "%slayers.%s." % (self.prefix, m.group(1)))
            elif self.arch == "llama4" and "_exps" in name and not self.folder.options.weights and not self.folder.options.mlx_lm:
                if m.group(2) == "ffn_gate_exps.weight":
                    self.put_llama4_experts(int(m.group(1)))
            elif self.arch == "gpt-oss" and "_exps" in name:
                if m.group(2) == "ffn_gate_exps.weight":
                    self.put_gpt_oss_experts(int(m.group(1)))
            elif self.arch == "qwen35moe" and "_exps" in name and not self.folder.options.mlx_lm:
                if m.group(2) == "ffn_gate_exps.weight":
                    self.put_stacked_experts(int(m.group(1)))
            elif self.arch in ("granitemoe", "granitehybrid") and re.search("_exps|(gate|up)_shexp", name):
                if m.group(2) == "ffn_gate_exps.weight":
                    self.put_granite_experts(int(m.group(1)))
            else:
                self.put_tensor(name, "%slayers.%s.%s" % (self.prefix, m.group(1), self.names[m.group(2)]))


# ---- tokenizer.json ------------------------------------------------------------------------------

def spm_merges(tokens, scores):
    """transformers' convert_slow_tokenizer.py: every pair of tokens that makes a token, by its score."""
    vocab = {t: i for i, t in enumerate(tokens)}
    merges = []
    for t, i in vocab.items():
        pairs = [(t[:k], t[k:]) for k in range(1, len(t)) if t[:k] in vocab and t[k:] in vocab]
        pairs.sort(key=lambda p: (vocab[p[0]], vocab[p[1]]))
        merges += [(-scores[i], i, k, p) for k, p in enumerate(pairs)]
    return [[p[0], p[1]] for _, _, _, p in sorted(merges)]


def tokenizer(keys):
    k = lambda name, default=None: keys.get("tokenizer.ggml." + name, default)
    tokens, types = k("tokens"), k("token_type")
    spm = k("model") == "llama"
    added = [{"id": i, "content": t, "special": types[i] != 4, "rstrip": False, "lstrip": False,
              "normalized": False, "single_word": False}
             for i, t in enumerate(tokens) if types[i] in (2, 3, 4)]
    vocab = {t: i for i, t in enumerate(tokens) if types[i] in (1, 6) or (spm and types[i] != 4)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    model = {"type": "BPE", "vocab": vocab, "unk_token": None, "byte_fallback": spm}
    if spm:
        unknown = [t for i, t in enumerate(tokens) if types[i] == 2]
        model["unk_token"] = unknown[0] if unknown else None
        model["merges"] = spm_merges(tokens, k("scores"))
        pre = None
        normalizer = {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}
    elif k("pre") == "gemma4":  # SentencePiece's tokens with merges
        pre = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
        normalizer = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
        model.update(merges=k("merges"), byte_fallback=True)
    else:
        name = k("pre")
        model["merges"] = k("merges")
        model["ignore_merges"] = name in IGNORE_MERGES
        normalizer = {"type": "NFC"} if name == "qwen2" else None
        pre = dict(byte_level, use_regex=True)
        if PATTERNS[name]:
            pre = {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False}
                for p in PATTERNS[name]] + [dict(byte_level, use_regex=False)]}
    bos = k("bos_token_id")
    post = None
    if k("add_bos_token", spm) and bos is not None:
        post = {"type": "TemplateProcessing", "pair": [], "special_tokens": {},
                "single": [{"SpecialToken": {"id": tokens[bos], "type_id": 0}},
                           {"Sequence": {"id": "A", "type_id": 0}}]}
    settings = {}
    for name in ("bos", "eos", "padding", "unknown"):
        i = k(name + "_token_id")
        if i is not None:
            settings[{"padding": "pad", "unknown": "unk"}.get(name, name) + "_token"] = tokens[i]
    if keys.get("tokenizer.chat_template"):
        settings["chat_template"] = keys["tokenizer.chat_template"]
    return {"version": "1.0", "added_tokens": added, "normalizer": normalizer, "pre_tokenizer": pre,
            "post_processor": post, "decoder": None, "model": model}, settings


# ---- tokenizer.model: a protocol buffer, sentencepiece_model.proto ------------------------------------

def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])


def field(number, value):
    """An integer, a float of 32 bits, or bytes."""
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def piece(text, score, kind):
    return field(1, field(1, text.encode("utf-8", "surrogateescape")) + field(2, float(score)) + field(3, kind))


def pieces_file(pieces, kind=2, byte_fallback=1, suffix=0, chars=b"", prefix=1, trim=0, escape=1):
    trainer = (field(1, b"text.txt") + field(3, kind) + field(4, len(pieces)) + field(10, 0.9995) + field(24, suffix) +
               field(35, byte_fallback) + field(40, 0) + field(43, (1 << 64) - 1))
    normalizer = field(1, b"identity") + field(2, chars) + field(3, prefix) + field(4, trim) + field(5, escape)
    return b"".join(pieces) + field(2, trainer) + field(3, normalizer)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("gguf_in")
    a.add_argument("folder")
    a.add_argument("--shards", type=int, default=1)
    a.add_argument("--gguf")
    a.add_argument("--weights", choices=("fp8", "fp8-row", "fp8-all", "fp8-fp4", "mxfp8", "mlx4", "mlx8", "mlx-mxfp4", "mlx-mxfp8",
                                         "mlx-nvfp4", "int4", "mxfp4", "nvfp4", "modelopt-nvfp4"))
    a.add_argument("--scales", choices=("f32", "f16", "bf16"), default="f32")
    a.add_argument("--v5", action="store_true", help="config.json as transformers 5 writes it")
    a.add_argument("--granite", action="store_true", help="a llama with Granite's factors")
    a.add_argument("--mlx-lm", action="store_true", help="norms and convolutions as mlx-lm stores them")
    a.add_argument("--wide", action="store_true", help="first make all rows whole blocks of 32")
    a.add_argument("--flat", action="store_true", help="the language model alone, where others see pictures")
    a.add_argument("--nested", action="store_true", help="the language model of one that sees pictures")
    a.add_argument("--group", type=int, default=0)
    a.add_argument("--pieces", action="store_true", help="of a vocabulary: tokenizer.model instead of tokenizer.json, and "
                   "a token <|added|> behind the pieces")
    o = a.parse_args()
    g = Gguf(o.gguf_in)
    os.makedirs(o.folder, exist_ok=True)
    if o.wide:
        g.widen()
    if g.tensors:
        folder = Folder(o)
        m = Maker(g, folder)
        if not m.knows_arch():
            sys.exit(77)
        config = m.config()
        m.all_tensors(config.get("text_config", config)["num_hidden_layers"])
        if o.weights in ("fp8", "fp8-fp4"):
            config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3",
                                             "weight_block_size": [128, 128]}
        elif o.weights == "modelopt-nvfp4":
            config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"],
                                             "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"}}
        elif o.weights and not o.weights.startswith("mlx"):
            int4, mxfp4 = o.weights == "int4", o.weights in ("mxfp4", "nvfp4")
            weights = {"num_bits": 4 if int4 or mxfp4 else 8, "type": "int" if int4 else "float", "symmetric": True,
                       "actorder": None, "dynamic": False, "group_size": o.group or None,
                       "strategy": {"int4": "group", "mxfp4": "group", "mxfp8": "group", "nvfp4": "tensor_group", "fp8-row": "channel", "fp8-all": "tensor"}[o.weights]}
            inputs = None if int4 or mxfp4 else {"num_bits": 8, "type": "float", "dynamic": True, "strategy": "token"}
            config["quantization_config"] = {
                "quant_method": "compressed-tensors", "ignore": ["lm_head"],
                "format": "pack-quantized" if int4 else "float-quantized",
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights,
                                              "format": {"mxfp4": "mxfp4-pack-quantized", "nvfp4": "nvfp4-pack-quantized",
                                                         "mxfp8": "mxfp8-quantized"}.get(o.weights),
                                              "input_activations": inputs, "output_activations": None}}}
        elif o.weights:
            # As mlx-lm writes it, twice; a module's own entry without a mode is affine.
            config["quantization"] = {"group_size": o.group, "bits": int(o.weights[-1])}
            if o.weights in ("mlx-mxfp8", "mlx-nvfp4"):
                config["quantization"].update(mode=o.weights[4:], group_size=32 if o.weights == "mlx-mxfp8" else 16)
            if o.weights == "mlx-mxfp4":
                config["quantization"] = {"group_size": 32, "bits": 4, "mode": "mxfp4", **folder.affine}
            config["quantization_config"] = config["quantization"]
    else:  # a vocabulary: the smallest model that has it
        n = len(g.keys["tokenizer.ggml.tokens"])
        folder = Folder(o)
        zeros = lambda *shape: ("F32", shape, bytes(4 * math.prod(shape)))
        config = {"model_type": "llama", "max_position_embeddings": 64, "hidden_size": 1,
                  "num_hidden_layers": 1, "intermediate_size": 1, "num_attention_heads": 1,
                  "head_dim": 2, "tie_word_embeddings": True}
        folder.put("model.embed_tokens.weight", *zeros(n + o.pieces, 1))
    with open(os.path.join(o.folder, "config.json"), "w") as f:
        json.dump(config, f)
    folder.write(o.folder, o.shards)
    text, settings = tokenizer(g.keys)
    settings["model_max_length"] = int(1e30)  # transformers' word for "no limit", in most published folders
    if o.pieces:
        k = [g.keys["tokenizer.ggml." + name] for name in ("tokens", "scores", "token_type")]
        settings["added_tokens_decoder"] = {str(t.pop("id")): t for t in text["added_tokens"]}
        settings["added_tokens_decoder"][str(n)] = {"content": "<|added|>", "special": True}
        with open(os.path.join(o.folder, "tokenizer.model"), "wb") as f:
            f.write(pieces_file([piece(*p) for p in zip(*k)]))
    else:
        with open(os.path.join(o.folder, "tokenizer.json"), "w") as f:
            json.dump(text, f)
    with open(os.path.join(o.folder, "tokenizer_config.json"), "w") as f:
        json.dump(settings, f)
    if o.gguf:
        g.write(o.gguf)


if __name__ == "__main__":
    main()
