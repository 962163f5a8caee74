#!/usr/bin/env python3
"""Folders with small tokenizers of SentencePiece's kind, for test_folder_tokenizers.sh.

usage: folder_tokenizers.py FOLDER KIND     a model of one layer with a tokenizer:

gemma, gemma-pieces    Gemma's in small, as tokenizer.json or as tokenizer.model
never, first, always   Mistral's in small: Metaspace with this prepend_scheme
prepend                Llama's in small: a normalizer that puts U+2581 in front
"""
import json
import os
import sys

from hf_folder import Folder, piece, pieces_file

BYTES = ["<0x%02X>" % i for i in range(256)]


def added(tokens, ids, special):
    return [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": special} for i in ids]


# Gemma's lines and runs of spaces are added tokens that are not special, and pieces of type USER_DEFINED.
GEMMA = ["<pad>", "<eos>", "<bos>", "<unk>", "\n", "\n\n", "▁▁", "▁▁▁", "▁▁▁▁"] + BYTES + ["▁", "a", "b", "▁a", "▁b"]

# All sizes of Gemma 3 have one tokenizer.json; those that see no pictures have no row for this token.
PICTURE = "<image_soft_token>"


def gemma():
    merges = [["\n", "\n"], ["▁", "▁"], ["▁", "▁▁"], ["▁▁", "▁"], ["▁▁", "▁▁"], ["▁", "▁▁▁"], ["▁▁▁", "▁"],
              ["▁", "a"], ["▁", "b"]]
    return {"version": "1.0", "added_tokens": added(GEMMA, range(4), True) + added(GEMMA, range(4, 9), False) +
            added(GEMMA + [PICTURE], [len(GEMMA)], True),
            "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                              "invert": False},
            "post_processor": None, "decoder": None,
            "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                      "vocab": {t: i for i, t in enumerate(GEMMA)}, "merges": merges}}


def gemma_pieces():
    types = [3, 3, 3, 2] + [4] * 5 + [6] * 256 + [1] * 5
    scores = [0.0] * 265 + [-3.0, -4.0, -5.0, -1.0, -2.0]
    return pieces_file([piece(*p) for p in zip(GEMMA, scores, types)], prefix=0)


# The vocabulary that the cases of Llama and Mistral need.
LLAMA = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"] + BYTES + ["▁", "h", "i", "▁h", "▁hi", "▁▁", "hi"]


def llama(kind):
    normalizer, pre = None, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": kind, "split": False}
    if kind == "prepend":
        pre, normalizer = None, {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    return {"version": "1.0", "added_tokens": added(LLAMA, range(5), True), "normalizer": normalizer,
            "pre_tokenizer": pre, "post_processor": None, "decoder": None,
            "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                      "vocab": {t: i for i, t in enumerate(LLAMA)}, "merges": ["h i", "▁ hi", "▁ ▁", "▁ h"]}}


def main():
    path, kind = sys.argv[1:]
    is_gemma = kind.startswith("gemma")

    class Options:
        weights = None
    folder = Folder(Options)
    n = len(GEMMA if is_gemma else LLAMA)
    folder.put("model.embed_tokens.weight", "F32", (n, 1), bytes(4 * n))
    config = {"model_type": "llama", "max_position_embeddings": 64, "hidden_size": 1, "num_hidden_layers": 1,
              "intermediate_size": 1, "num_attention_heads": 1, "head_dim": 2, "tie_word_embeddings": True}
    bos, eos = ("<bos>", "<eos>") if is_gemma else ("<s>", "</s>")
    settings = {"bos_token": bos, "eos_token": eos, "add_bos_token": True}
    os.makedirs(path)
    folder.write(path, 1)
    files = [("config.json", config), ("tokenizer_config.json", settings)]
    if kind != "gemma-pieces":
        files.append(("tokenizer.json", gemma() if is_gemma else llama(kind)))
    else:
        files.append(("added_tokens.json", {PICTURE: len(GEMMA)}))
        with open(os.path.join(path, "tokenizer.model"), "wb") as f:
            f.write(gemma_pieces())
    for name, value in files:
        with open(os.path.join(path, name), "w") as f:
            json.dump(value, f)


main()
