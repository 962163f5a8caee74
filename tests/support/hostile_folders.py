#!/usr/bin/env python3
"""Makes hostile folders from a good one, for test_folders_hostile.sh: hostile_folders.py GOOD OUT.
Prints one line each: its name, and what the refusal must mention."""
import base64
import copy
import json
import math
import os
import shutil
import struct
import sys

from hf_folder import field, piece, pieces_file

good, out = sys.argv[1:]
raw = open(good + "/model.safetensors", "rb").read()
n_header = struct.unpack("<Q", raw[:8])[0]
HEADER, DATA = json.loads(raw[8:8 + n_header]), raw[8 + n_header:]
CONFIG = json.load(open(good + "/config.json"))
TOKENIZER = json.load(open(good + "/tokenizer.json"))
Q = "model.layers.0.self_attn.q_proj.weight"
K = "model.layers.0.self_attn.k_proj.weight"


def folder(name, says, **files):
    """The good folder with some files replaced; None: it is not there."""
    path = os.path.join(out, name)
    os.makedirs(path)
    for f in os.listdir(good):
        if f not in files:
            os.symlink(os.path.join(os.path.abspath(good), f), os.path.join(path, f))
    for f, data in files.items():
        if data is not None:
            open(os.path.join(path, f), "wb").write(data if isinstance(data, bytes) else data.encode())
    print(name, says, sep="\t")


def shard(header, data=DATA):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def header(name, says, change):
    h = copy.deepcopy(HEADER)
    h = change(h) or h
    folder(name, says, **{"model.safetensors": shard(h)})


def config(name, says, **change):
    c = dict(CONFIG)
    for k, v in change.items():
        if v is ...:
            c.pop(k, None)
        else:
            c[k] = v
    folder(name, says, **{"config.json": json.dumps(c)})


def tokenizer(name, says, change):
    t = copy.deepcopy(TOKENIZER)
    t = change(t) or t
    folder(name, says, **{"tokenizer.json": json.dumps(t)})


# The least that a tiktoken.model has.
RANKS = [b"%s %d" % (base64.b64encode(bytes([b])), b) for b in range(256)]


def tiktoken(name, says, lines=RANKS, **settings):
    """A folder with tiktoken.model instead of tokenizer.json."""
    s = {"tokenizer_class": "TikTokenTokenizer", "eos_token": "[EOS]",
         "added_tokens_decoder": {"257": {"content": "[EOS]", "special": True}}, **settings}
    folder(name, says, **{"tokenizer.json": None, "tokenizer_config.json": json.dumps(s),
                          "tiktoken.model": b"\n".join(lines)})


# The least that a tokenizer.model has.
PIECES = [piece("<unk>", 0, 2), piece("<s>", 0, 3), piece("</s>", 0, 3)] + [piece("<0x%02X>" % b, 0, 6) for b in range(256)]


def sentencepiece(name, says, data=None, **kinds):
    """A folder with tokenizer.model instead of tokenizer.json."""
    settings = kinds.pop("settings", "{}")
    folder(name, says, **{"tokenizer.json": None, "tokenizer_config.json": settings,
                          "tokenizer.model": pieces_file(PIECES, **kinds) if data is None else data})


def setting(key, value, tensor=Q):
    def change(h):
        h[tensor][key] = value
    return change


def text_header(name, says, old, new):
    text = json.dumps(HEADER)
    assert old in text, old
    folder(name, says, **{"model.safetensors": shard(text.replace(old, new, 1).encode())})


deep = b"[" * 100000 + b"]" * 100000

# ---- safetensors
folder("st-empty", "empty", **{"model.safetensors": b""})
folder("st-4-bytes", "only 4 bytes", **{"model.safetensors": b"\x08\0\0\0"})
folder("st-header-past-end", "header of", **{"model.safetensors": struct.pack("<Q", len(raw)) + raw[8:]})
folder("st-header-2e63", "header of", **{"model.safetensors": struct.pack("<Q", 1 << 63) + raw[8:]})
folder("st-header-max", "header of", **{"model.safetensors": b"\xff" * 8 + raw[8:]})
folder("st-header-cut", "JSON", **{"model.safetensors": struct.pack("<Q", n_header - 40) + raw[8:]})
folder("st-not-json", "JSON", **{"model.safetensors": shard(b"hello there")})
folder("st-array", "JSON", **{"model.safetensors": shard(b"[1, 2]")})
folder("st-deep", "JSON", **{"model.safetensors": shard(b'{"a":' + deep + b"}")})
folder("st-no-bytes-of-header", "JSON", **{"model.safetensors": struct.pack("<Q", 0) + DATA})
folder("st-latin1", "JSON", **{"model.safetensors": shard(b'{"\xe9": 1}')})
folder("st-truncated", "truncated", **{"model.safetensors": raw[:-1]})
folder("st-truncated-half", "truncated", **{"model.safetensors": raw[:len(raw) // 2]})
header("st-tensor-number", "object", lambda h: h.__setitem__(Q, 7))
header("st-no-dtype", "dtype", lambda h: h[Q].pop("dtype") and None)
header("st-dtype-unknown", "F77", setting("dtype", "F77"))
header("st-dtype-number", "dtype", setting("dtype", 3))
header("st-dtype-size", "data_offsets", setting("dtype", "F16"))
header("st-dtype-integers", "I32", setting("dtype", "I32"))
header("st-no-shape", "shape", lambda h: h[Q].pop("shape") and None)
header("st-shape-text", "shape", setting("shape", "4x4"))
header("st-shape-negative", "count", setting("shape", [-1, 96]))
header("st-shape-float", "count", setting("shape", [256.0, 96]))
header("st-shape-overflow", "overflow", setting("shape", [1 << 40, 1 << 40]))
header("st-shape-overflow-63", "overflow", setting("shape", [1 << 62, 2]))
header("st-shape-9", "shape", setting("shape", [1] * 9))
header("st-shape-other", "data_offsets", setting("shape", [256, 95]))
header("st-shape-turned", "expected", setting("shape", HEADER[Q]["shape"][::-1]))
header("st-shape-flat", "", setting("shape", [256 * 96]))
header("st-shape-5", "dimensions", setting("shape", [1, 1, 1, 256, 96]))
header("st-no-offsets", "data_offsets", lambda h: h[Q].pop("data_offsets") and None)
header("st-offsets-1", "data_offsets", setting("data_offsets", [0]))
header("st-offsets-negative", "data_offsets", setting("data_offsets", [-98304, 0]))
header("st-offsets-swapped", "data_offsets", setting("data_offsets", HEADER[Q]["data_offsets"][::-1]))
header("st-offsets-past-end", "truncated",
       setting("data_offsets", [len(DATA), len(DATA) + 98304]))
header("st-offsets-2e62", "truncated", setting("data_offsets", [1 << 62, (1 << 62) + 98304]))
text_header("st-offsets-huge", "JSON", '"data_offsets": [0, ', '"data_offsets": [0, 99999999999999999999')
text_header("st-offsets-float", "data_offsets", '"data_offsets": [0, ', '"data_offsets": [0.5, ')
header("st-overlap", "overlap", setting("data_offsets", [o + 4 for o in HEADER[K]["data_offsets"]], K))
header("st-overlap-same", "overlap",
       lambda h: h.__setitem__("again", copy.deepcopy(h[Q])))
folder("st-duplicate", "JSON", **{"model.safetensors": shard(
    json.dumps(HEADER).replace('"%s"' % K, '"%s"' % Q, 1).encode())})
header("st-name-empty", "name", lambda h: h.__setitem__("", h.pop(K)))
header("st-name-long", "name", lambda h: h.__setitem__("x" * 300, h.pop(K)))
header("st-missing", "attn_k.weight", lambda h: h.pop(K) and None)
header("st-missing-embedding", "embed_tokens", lambda h: h.pop("model.embed_tokens.weight") and None)
header("st-unknown-tensor", "o_proj.bias", lambda h: h.__setitem__(
    "model.layers.0.self_attn.o_proj.bias", {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}))
header("st-fp8-without-scales", "scale_inv", lambda h: h[Q].update(
    dtype="F8_E4M3", shape=[4 * HEADER[Q]["shape"][0], HEADER[Q]["shape"][1]]))
header("st-mlx-without-scales", "scales", setting("dtype", "U32"))


def mlx(name, says, quantization, scales=None, dtype="U8"):
    """The query matrix as packed words, and scales of this shape behind all data."""
    h, data = copy.deepcopy(HEADER), DATA
    h[Q]["dtype"] = "U32"
    if scales:
        size = math.prod(scales) * {"U8": 1, "F32": 4}[dtype]
        h[Q[:-len("weight")] + "scales"] = {"dtype": dtype, "shape": scales, "data_offsets": [len(data), len(data) + size]}
        data += b"\x7f" * size
    folder(name, says, **{"model.safetensors": shard(h, data),
                          "config.json": json.dumps({**CONFIG, "quantization": quantization})})


rows, words = HEADER[Q]["shape"]
MX = {"group_size": 32, "bits": 4, "mode": "mxfp4"}
mlx("st-mlx-mode", "mxfp6", {**MX, "mode": "mxfp6"})
mlx("st-mlx-mode-own", "mxfp2", {**MX, Q[:-len(".weight")]: {**MX, "mode": "mxfp2"}})
mlx("st-mlx-mxfp8-four-bits", "codes of 4 bits", {**MX, "mode": "mxfp8"}, [rows, words // 4])
mlx("st-mlx-nvfp4-group", "in nvfp4 of 16", {**MX, "mode": "nvfp4"}, [rows, words // 4])
mlx("st-mlx-nvfp4-floats", "codes of 4 bits", {**MX, "mode": "nvfp4", "group_size": 16}, [rows, words // 2], "F32")
mlx("st-mxfp4-no-scales", "scales alone", MX)
mlx("st-mxfp4-rows", "scales alone", MX, [rows // 2, words // 4])
mlx("st-mxfp4-vector", "scales alone", MX, [rows])
mlx("st-mxfp4-short", "codes of 4 bits", MX, [rows, 1])
mlx("st-mxfp4-group", "scales alone, of 32", {**MX, "group_size": 64}, [rows, words // 8])
mlx("st-mxfp4-floats", "codes of 4 bits", MX, [rows, words // 4], "F32")
mlx("st-mxfp4-shape", "expected", MX, [rows, words // 4])  # eight times as many values as there should be
for form, parts in (("gptq", ("qweight", "qzeros", "scales", "g_idx")), ("awq", ("qweight", "qzeros", "scales"))):
    # config.json does not say it.
    header("st-" + form, "GPTQ or AWQ", lambda h: [h.pop(Q)] and [h.__setitem__(
        Q.replace("weight", part), {"dtype": "I32", "shape": [0], "data_offsets": [0, 0]}) for part in parts] and h)


def packed(name, says, change=lambda h: None, dims=(256, 96)):
    """Query weights in codes of 4 bits, as compressed-tensors has them."""
    h, at = copy.deepcopy(HEADER), HEADER[Q]["data_offsets"][0]
    del h[Q]
    for part, dtype, shape, size in (("packed", "I32", [256, 12], 12288), ("scale", "BF16", [256, 3], 1536),
                                     ("shape", "I64", [2], 16)):
        h["%s_%s" % (Q, part)] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    change(h)
    folder(name, says, **{"model.safetensors": shard(h, DATA[:at - 16] + struct.pack("<qq", *dims) + DATA[at:])})


packed("int4-no-scale", "weight_scale", lambda h: h.pop(Q + "_scale") and None)
packed("int4-no-shape", "weight_shape", lambda h: h.pop(Q + "_shape") and None)
packed("int4-shape-type", "weight_shape", setting("dtype", "F64", Q + "_shape"))
packed("int4-shape-lies", "weight_shape", dims=(256, 95))
packed("int4-shape-negative", "weight_shape", dims=(-256, 96))
packed("int4-shape-turned", "weight_shape", dims=(96, 256))
packed("int4-scale-rows", "weight_scale", setting("shape", [128, 6], Q + "_scale"))
packed("int4-scale-f32", "data_offsets", setting("dtype", "F32", Q + "_scale"))
packed("int4-groups", "groups of 32", lambda h: h[Q + "_scale"].update(dtype="F32", shape=[256, 1], data_offsets=[
    h[Q + "_scale"]["data_offsets"][0], h[Q + "_scale"]["data_offsets"][0] + 1024]))
packed("int4-zero-points", "zero_point", lambda h: h.__setitem__(Q + "_zero_point", {
    "dtype": "I32", "shape": [0], "data_offsets": [0, 0]}))
packed("int4-vector", "weight_scale", setting("shape", [3072], Q + "_packed"))
packed("int4-words", "weight_shape", lambda h: h[Q + "_packed"].update(shape=[128, 24]))


def fp8(name, says, dtype, shape, size):
    """Query weights in FP8 with such scales."""
    h, at = copy.deepcopy(HEADER), HEADER[Q]["data_offsets"][0]
    h[Q].update(dtype="F8_E4M3", data_offsets=[at, at + 24576])
    h[Q + "_scale"] = {"dtype": dtype, "shape": shape, "data_offsets": [at + 24576, at + 24576 + size]}
    folder(name, says, **{"model.safetensors": shard(h)})


fp8("fp8-half-of-the-rows", "_scale", "F32", [128, 1], 512)
fp8("fp8-two-a-row", "_scale", "F32", [256, 2], 2048)
fp8("fp8-two", "_scale", "F32", [2], 8)
fp8("fp8-a-vector", "_scale", "BF16", [256], 512)
fp8("fp8-integers", "_scale", "I32", [256, 1], 1024)
fp8("fp8-none", "_scale", "F32", [0, 1], 0)
fp8("fp8-exponents-half", "_scale", "U8", [128, 3], 384)
fp8("fp8-exponents-four", "_scale", "F8_E8M0", [256, 4], 1024)


def fp4(name, says, shape):
    """Query weights in four bits, as DeepSeek V4's experts, with such scales."""
    h, at = copy.deepcopy(HEADER), HEADER[Q]["data_offsets"][0]
    h[Q].update(dtype="I8", shape=[256, 48], data_offsets=[at, at + 12288])
    h[Q[:-len("weight")] + "scale"] = {"dtype": "F8_E8M0", "shape": shape,
                                       "data_offsets": [at + 12288, at + 12288 + math.prod(shape)]}
    folder(name, says, **{"model.safetensors": shard(h)})


for n, shape in enumerate(([256, 2], [128, 3], [768], [256, 0], [256, 3, 1])):
    fp4("fp4-scales-%d" % n, "an exponent for 32 values", shape)


def nvfp4(name, says, scale=2.0, kind="weight_scale_2", shape=(256, 6), one=()):
    """Query weights in NVFP4, with such a number for all."""
    h, at = copy.deepcopy(HEADER), HEADER[Q]["data_offsets"][0]
    h[Q].update(dtype="U8", shape=[256, 48], data_offsets=[at, at + 12288])
    h[Q + "_scale"] = {"dtype": "F8_E4M3", "shape": shape, "data_offsets": [at + 12288, at + 12288 + math.prod(shape)]}
    number = struct.pack("<%df" % math.prod(one), *[scale] * math.prod(one))
    begin = at + 12288 + 2048
    h[Q[:-len("weight")] + kind] = {"dtype": "F32", "shape": one, "data_offsets": [begin, begin + len(number)]}
    folder(name, says, **{"model.safetensors": shard(h, DATA[:begin] + number + DATA[begin + len(number):])})


nvfp4("nvfp4-no-number", "one for all", kind="weight_scale_3")
nvfp4("nvfp4-two-numbers", "one for all", one=(2,))
nvfp4("nvfp4-zero", "not a number above 0", 0.0)
nvfp4("nvfp4-by-zero", "not a number above 0", 0.0, "weight_global_scale")
nvfp4("nvfp4-negative", "not a number above 0", -1.0)
nvfp4("nvfp4-nan", "not a number above 0", math.nan)
nvfp4("nvfp4-infinite", "not a number above 0", math.inf)
nvfp4("nvfp4-half-of-the-rows", "a number for 16", shape=(128, 12))
nvfp4("nvfp4-of-32", "a number for 16", shape=(256, 3))
nvfp4("nvfp4-rows", "whole blocks of 64")  # 96 values
header("fp4-without-scales", "weights of type I8", lambda h: h[Q].update(dtype="I8", shape=[256, 384]))
folder("st-missing-file", "model.safetensors", **{"model.safetensors": None})

# ---- model.safetensors.index.json
ONE = {n: "model.safetensors" for n in HEADER if n != "__metadata__"}


def index(name, says, weight_map):
    folder(name, says, **{"model.safetensors.index.json": json.dumps({"weight_map": weight_map})})


index("index-missing-shard", "No such file", {**ONE, Q: "model-00002-of-00002.safetensors"})
index("index-parent", "not the name of a shard", {**ONE, Q: "../qwen3/model.safetensors"})
index("index-absolute", "not the name of a shard", {**ONE, Q: "/etc/hosts.safetensors"})
index("index-hidden", "not the name of a shard", {**ONE, Q: "..safetensors"})
index("index-other-file", "not the name of a shard", {**ONE, Q: "config.json"})
index("index-number", "not the name of a shard", {**ONE, Q: 3})
index("index-empty", "weight_map", {})
index("index-array", "weight_map", [])
index("index-lies", "is not", {**ONE, "model.nothing": "model.safetensors"})
folder("index-truncated", "JSON", **{"model.safetensors.index.json": '{"weight_map": {"a": '})
folder("index-deep", "JSON", **{"model.safetensors.index.json": deep})

# ---- config.json
folder("config-missing", "config.json", **{"config.json": None})
folder("config-empty", "empty", **{"config.json": ""})
folder("config-truncated", "JSON", **{"config.json": json.dumps(CONFIG)[:-30]})
folder("config-array", "JSON", **{"config.json": "[]"})
folder("config-deep", "JSON", **{"config.json": b'{"a":' + deep + b"}"})
folder("config-duplicate", "JSON", **{"config.json": '{"model_type": "qwen3", "model_type": "llama"}'})
folder("config-nan", "JSON", **{"config.json": json.dumps({**CONFIG, "rms_norm_eps": float("nan")})})
config("config-no-type", "model_type", model_type=...)
config("config-type-number", "model_type", model_type=3)
config("config-type-unknown", "rwkv", model_type="rwkv")
for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
            "max_position_embeddings", "head_dim"):
    config("config-%s-negative" % key, key, **{key: -1})
    config("config-%s-huge" % key, "", **{key: 1 << 62})
    config("config-%s-max" % key, "", **{key: (1 << 32) - 1})
    config("config-%s-text" % key, key, **{key: "many"})
    config("config-%s-fraction" % key, key, **{key: 1.5})
    config("config-%s-0" % key, "", **{key: 0})
for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
            "max_position_embeddings"):
    config("config-%s-missing" % key, "", **{key: ...})
config("config-kv-heads-3", "heads", num_key_value_heads=3)
config("config-eps-text", "rms_norm_eps", rms_norm_eps="small")
config("config-eps-2", "epsilon", rms_norm_eps=2)
config("config-theta-0", "freq_base", rope_theta=0)
config("config-act", "hidden_act", hidden_act="relu2")
config("config-windows", "use_sliding_window", use_sliding_window=True)
config("config-layer-types", "layer_types", layer_types=["sliding_attention"])
config("config-rope-unknown", "spiral", rope_scaling={"rope_type": "spiral", "factor": 2})
config("config-rope-negative", "factor", rope_scaling={"rope_type": "yarn", "factor": -2})
for key, factor in (("linear", 6e-20), ("yarn", 6e-20), ("linear", 1e-38)):
    config("config-rope-%s-%g" % (key, factor), "radians a position", rope_scaling={"rope_type": key, "factor": factor})
config("config-rope-llama3-tiny", "radians a position", rope_scaling={
    "rope_type": "llama3", "factor": 6e-20, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8})
config("config-rope-beta-0", "turns", rope_scaling={"rope_type": "yarn", "factor": 2, "beta_fast": 0})
config("config-rope-beta-negative", "turns", rope_scaling={"rope_type": "yarn", "factor": 2, "beta_slow": -1})
config("config-rope-truncate", "truncate", rope_scaling={"rope_type": "yarn", "factor": 2, "truncate": 0})
config("config-rope-llama3", "llama3", rope_scaling={"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                                                     "high_freq_factor": 1})
config("config-rope-longrope", "factor", rope_scaling={"rope_type": "longrope", "long_factor": [1, "x"]})
config("config-rotary-0", "partial_rotary_factor", partial_rotary_factor=0)
INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}


def compressed(weights=INT4, form="pack-quantized", **more):
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": {"weights": weights, **more}}}


for what, q in (("format", compressed(form="nvfp4-pack-quantized")), ("bits", compressed({**INT4, "num_bits": 8})),
                ("type", compressed({**INT4, "type": "float"})), ("zeros", compressed({**INT4, "symmetric": False})),
                ("inputs", compressed(input_activations={"num_bits": 8})), ("none", {"quant_method": "compressed-tensors"}),
                ("fp8-int", compressed({**INT4, "num_bits": 8}, "float-quantized")),
                ("fp4", compressed({**INT4, "type": "float"}, "float-quantized")),
                ("weights", compressed(7)), ("groups", {**compressed(), "config_groups": [1]})):
    config("config-compressed-" + what, "compressed-tensors", quantization_config=q)
for method in ("gptq", "awq", "bitsandbytes"):
    config("config-" + method, "quantized by %s " % method, quantization_config={"quant_method": method, "bits": 4})
config("config-fp8-blocks", "", quantization_config={"quant_method": "fp8", "weight_block_size": [0, -1]},
       num_hidden_layers=0)

# ---- tokenizer.json
folder("tok-missing", "tokenizer.json", **{"tokenizer.json": None})
folder("tok-truncated", "JSON", **{"tokenizer.json": json.dumps(TOKENIZER)[:-300]})
folder("tok-deep", "JSON", **{"tokenizer.json": b'{"model":' + deep + b"}"})
folder("tok-settings", "JSON", **{"tokenizer_config.json": "{"})
tokenizer("tok-no-model", "model", lambda t: t.pop("model") and None)
tokenizer("tok-unigram", "Unigram", lambda t: t["model"].update(type="Unigram"))
tokenizer("tok-vocab-list", "vocab", lambda t: t["model"].update(vocab=[]))
tokenizer("tok-id-negative", "id", lambda t: t["model"]["vocab"].update(a=-1))
tokenizer("tok-id-huge", "rows", lambda t: t["model"]["vocab"].update(a=1 << 40))
tokenizer("tok-id-text", "id", lambda t: t["model"]["vocab"].update(a="7"))
tokenizer("tok-id-twice", "same id", lambda t: t["model"]["vocab"].update(a=t["model"]["vocab"]["b"]))
tokenizer("tok-added-huge", "rows", lambda t: t["added_tokens"][0].update(id=1 << 31))
tokenizer("tok-added-no-content", "added_tokens", lambda t: t["added_tokens"][0].pop("content") and None)
tokenizer("tok-merges-number", "merges", lambda t: t["model"].update(merges=7))
tokenizer("tok-merge-number", "merges", lambda t: t["model"].update(merges=[7]))
tokenizer("tok-merge-one", "merge", lambda t: t["model"].update(merges=["ab"]))
tokenizer("tok-merge-three", "merges", lambda t: t["model"].update(merges=[["a", "b", "c"]]))
tokenizer("tok-pre-missing", "pre_tokenizer", lambda t: t.update(pre_tokenizer=None))
tokenizer("tok-pre-unknown", "pre_tokenizer", lambda t: t["pre_tokenizer"]["pretokenizers"][0].update(
    pattern={"Regex": "(a+)+$"}))
tokenizer("tok-pre-type", "Whitespace", lambda t: t.update(pre_tokenizer={"type": "Whitespace"}))
tokenizer("tok-pre-many", "too many", lambda t: t.update(pre_tokenizer={
    "type": "Sequence", "pretokenizers": [{"type": "Digits"}] * 20}))
tokenizer("tok-lowercase", "Lowercase", lambda t: t.update(normalizer={"type": "Lowercase"}))
tokenizer("tok-replace", "Replace", lambda t: t.update(normalizer={
    "type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}))
tokenizer("tok-prepend", "Prepend", lambda t: t.update(normalizer={"type": "Prepend", "prepend": "\u2581"}))
tokenizer("tok-normalizers", "Sequence", lambda t: t.update(normalizer={
    "type": "Sequence", "normalizers": [{"type": "Sequence", "normalizers": [{"type": "Lowercase"}]}]}))
tokenizer("tok-single-word", "single_word", lambda t: t["added_tokens"][0].update(single_word=True))

# ---- the same in SentencePiece's kind
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
META = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}


def spm(name, says, normalizer=None, pre=META):
    def change(t):
        t["model"].update(byte_fallback=True)
        t.update(normalizer=normalizer, pre_tokenizer=pre)
    tokenizer(name, says, change)


def steps(key, *list):
    return {"type": "Sequence", key: list}


spm("spm-replace-letter", "Replace", {**REPLACE, "pattern": {"String": "x"}})
spm("spm-replace-regex", "Replace", {**REPLACE, "pattern": {"Regex": " "}})
spm("spm-replace-other", "Replace", steps("normalizers", {"type": "NFC"}, {**REPLACE, "content": "_"}))
spm("spm-replace-nothing", "Replace", {"type": "Replace"})
spm("spm-prepend", "Prepend", {"type": "Prepend", "prepend": "_"})
spm("spm-lowercase", "Lowercase", steps("normalizers", REPLACE, {"type": "Lowercase"}))
spm("spm-pre-type", "BertPreTokenizer", None, {"type": "BertPreTokenizer"})
spm("spm-pre-none", "(none)", None, {})
spm("spm-pre-bytes", "ByteLevel", None, {"type": "ByteLevel", "add_prefix_space": False})
spm("spm-pre-digits", "Digits", None, steps("pretokenizers", {"type": "Digits", "individual_digits": True}, META))
spm("spm-pre-within", "Sequence", None, steps("pretokenizers", steps("pretokenizers", META)))
spm("spm-meta-other", "Metaspace", None, {**META, "replacement": "_"})
spm("spm-meta-splits", "Metaspace", None, {**META, "split": True})
spm("spm-meta-may-split", "Metaspace", None, {k: v for k, v in META.items() if k != "split"})
spm("spm-split-regex", "Split", REPLACE, {**SPLIT, "pattern": {"Regex": "."}})
spm("spm-split-invert", "Split", REPLACE, {**SPLIT, "invert": True})
spm("spm-split-spaces", "Split", None, SPLIT)

# ---- tiktoken.model
tiktoken("tik-empty", "empty", [])
tiktoken("tik-no-byte", "0xff", RANKS[:-1])
tiktoken("tik-no-space", "line 257", RANKS + [b"YWI=257"])
tiktoken("tik-no-rank", "line 257", RANKS + [b"YWI= "])
tiktoken("tik-no-token", "line 257", RANKS + [b" 256"])
tiktoken("tik-rank-text", "rank", RANKS + [b"YWI= 25x"])
tiktoken("tik-rank-negative", "rank", RANKS + [b"YWI= -1"])
tiktoken("tik-rank-huge", "line 257", RANKS + [b"YWI= 99999999999999999999"])
tiktoken("tik-rank-gap", "rank 300", RANKS + [b"YWI= 300"])
tiktoken("tik-rank-twice", "same id", RANKS + [b"YWI= 255"])
tiktoken("tik-not-base64", "base64", RANKS + [b"Y!I= 256"])
tiktoken("tik-no-padding", "base64", RANKS + [b"YWI 256"])
tiktoken("tik-token-long", "1024", RANKS + [base64.b64encode(b"a" * 1025) + b" 256"])
tiktoken("tik-token-twice", "already", RANKS + [b"YQ== 256"])
tiktoken("tik-too-many", "rows", RANKS + [b"%s %d" % (base64.b64encode(b"%4d" % i), i) for i in range(256, 300)])
tiktoken("tik-binary", "line 1", [b"\x80" * 100000])
tiktoken("tik-no-class", "tokenizer_class", tokenizer_class=None)
tiktoken("tik-other-class", "QWenTokenizer", tokenizer_class="QWenTokenizer")
for key in ("7", "1000000", "-1", "18446744073709551873", "x", ""):
    tiktoken("tik-added-id-" + (key or "none"), "added_tokens_decoder", added_tokens_decoder={key: {"content": "[EOS]"}})
tiktoken("tik-added-no-content", "added_tokens_decoder", added_tokens_decoder={"257": {}})
tiktoken("tik-added-number", "added_tokens_decoder", added_tokens_decoder={"257": 7})

# ---- tokenizer.model
whole = pieces_file(PIECES)
sentencepiece("sp-empty", "empty", b"")
sentencepiece("sp-json", "SentencePiece", b'{"model": {}}')
sentencepiece("sp-no-pieces", "no pieces", pieces_file([]))
sentencepiece("sp-cut", "cut off", whole[:-3])
sentencepiece("sp-cut-in-piece", "cut off", whole[:3000])
sentencepiece("sp-length-2e63", "cut off", whole + b"\x0a" + b"\xff" * 8 + b"\x7f")
sentencepiece("sp-varint-endless", "cut off", whole + b"\xff" * 1000)
sentencepiece("sp-group", "broken", whole + b"\x0b")
sentencepiece("sp-field-0", "broken", whole + b"\x02\x00")
sentencepiece("sp-broken-piece", "broken", pieces_file(PIECES + [field(1, b"\x0a\x7fab")]))
sentencepiece("sp-broken-trainer", "broken", whole + field(2, b"\x18"))
sentencepiece("sp-broken-normalizer", "broken", whole + field(3, b"\x12\x05a"))
sentencepiece("sp-no-text", "piece 259", pieces_file(PIECES + [field(1, b"")]))
sentencepiece("sp-zero-byte", "piece 259", pieces_file(PIECES + [piece("a\0b", 0, 1)]))
sentencepiece("sp-long", "piece 259", pieces_file(PIECES + [piece("a" * 5000, 0, 1)]))
sentencepiece("sp-not-utf-8", "UTF-8", pieces_file(PIECES + [piece("a\udcff", 0, 1)]))
sentencepiece("sp-twice", "already", pieces_file(PIECES + [piece("</s>", 0, 3)]))
sentencepiece("sp-nan", "score", pieces_file(PIECES + [piece("ab", float("nan"), 1)]))
sentencepiece("sp-type", "type", pieces_file(PIECES + [piece("ab", 0, 1 << 40)]))
sentencepiece("sp-too-many", "rows", pieces_file(PIECES + [piece("t%d" % i, 0, 1) for i in range(5000)]))
sentencepiece("sp-unigram", "unigram", kind=1)
sentencepiece("sp-kind", "kind 99", kind=99)
sentencepiece("sp-no-bytes", "byte_fallback", byte_fallback=0)
sentencepiece("sp-nfkc", "precompiled_charsmap", chars=b"\x01\x02")
sentencepiece("sp-trims", "remove_extra_whitespaces", trim=1)
sentencepiece("sp-suffix", "treat_whitespace_as_suffix", suffix=1)
sentencepiece("sp-escape", "escape_whitespaces", escape=0)
for key in ("-1", "x", "", "99999999999999999999"):
    sentencepiece("sp-added-id-" + (key or "none"), "added_tokens_decoder",
                  settings=json.dumps({"added_tokens_decoder": {key: {"content": "[EOS]"}}}))
sentencepiece("sp-added-number", "added_tokens_decoder", settings=json.dumps({"added_tokens_decoder": {"1": 7}}))
sentencepiece("sp-added-no-content", "content", settings=json.dumps({"added_tokens_decoder": {"259": {}}}))
