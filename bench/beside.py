#!/usr/bin/env python3
"""Speeds beside llama.cpp's, on the same file and threads: bench/beside.py LOCKSTEP BENCH_BATCH --libllama FOLDER MODEL...

Each round runs both engines in turn, each in a process of its own: a prompt of random tokens, tokens after it, and
tokens of several streams that decode together. Shown are the medians of the rates in tokens per second, and the
median of each round's ratio with quartiles, so what slows the machine down for a while slows both.

FOLDER has llama.cpp's libraries (libllama*.so and libggml*.so). A model is a GGUF file; `lockstep synth --shape S
--type T FILE` makes one with true widths and random weights.
"""
import argparse
import ctypes
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import time

TRIES = 4  # a stream of random weights may end at once, and then they do not meet
I32, U32, PTR = ctypes.c_int32, ctypes.c_uint32, ctypes.c_void_p


# ---- the other engine --------------------------------------------------------------------------


class Opaque(ctypes.Structure):
    """Parameters that are used as they come. They are larger in no version; the callee reads its own size."""
    _fields_ = [("bytes", ctypes.c_uint64 * 64)]


class ContextParams(ctypes.Structure):
    """The beginning of llama_context_params."""
    _fields_ = [("n_ctx", U32), ("n_batch", U32), ("n_ubatch", U32), ("n_seq_max", U32), ("rest", ctypes.c_uint64 * 64)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", I32), ("token", ctypes.POINTER(I32)), ("embd", PTR), ("pos", ctypes.POINTER(I32)),
                ("n_seq_id", ctypes.POINTER(I32)), ("seq_id", ctypes.POINTER(ctypes.POINTER(I32))),
                ("logits", ctypes.POINTER(ctypes.c_int8))]


class Other:
    def __init__(self, folder, model, threads, positions, streams):
        folder = pathlib.Path(folder)
        for pattern in ("libggml-base*.so*", "libggml.*so*", "libllama.*so*"):
            self.lib = ctypes.CDLL(str(sorted(folder.glob(pattern))[0]), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(sorted(folder.glob("libggml.*so*"))[0])).ggml_backend_load_all_from_path(str(folder).encode())
        lib = self.lib
        self.log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *said: None)
        lib.llama_log_set(self.log, None)
        lib.llama_model_default_params.restype = Opaque
        lib.llama_context_default_params.restype = ContextParams
        lib.llama_batch_init.restype = Batch
        for name in ("llama_model_load_from_file", "llama_init_from_model", "llama_model_get_vocab", "llama_get_memory"):
            getattr(lib, name).restype = PTR
        lib.llama_init_from_model.argtypes = [PTR, ContextParams]
        lib.llama_decode.argtypes = [PTR, Batch]
        lib.llama_set_n_threads.argtypes = [PTR, I32, I32]
        lib.llama_get_memory.argtypes = lib.llama_model_get_vocab.argtypes = lib.llama_vocab_n_tokens.argtypes = [PTR]
        lib.llama_memory_clear.argtypes = [PTR, ctypes.c_bool]
        lib.llama_synchronize.argtypes = [PTR]
        loaded = lib.llama_model_load_from_file(model.encode(), lib.llama_model_default_params())
        params = lib.llama_context_default_params()
        if (params.n_batch, params.n_seq_max) != (2048, 1):
            sys.exit("this version of llama.cpp has other parameters")
        params.n_ctx, params.n_seq_max = streams * positions, streams
        self.ctx = loaded and lib.llama_init_from_model(loaded, params)
        if not self.ctx:
            sys.exit(f"llama.cpp does not open {model}")
        lib.llama_set_n_threads(self.ctx, threads, threads)
        self.n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(loaded))
        self.batch = lib.llama_batch_init(max(2048, streams), 0, 1)

    def step(self, entries):
        """Decodes (token, position, stream, whether logits are wanted) together."""
        b = self.batch
        b.n_tokens = len(entries)
        for i, (token, pos, stream, last) in enumerate(entries):
            b.token[i], b.pos[i], b.n_seq_id[i], b.seq_id[i][0], b.logits[i] = token, pos, 1, stream, last
        if self.lib.llama_decode(self.ctx, b) != 0:
            sys.exit("llama.cpp fails to decode")
        self.lib.llama_synchronize(self.ctx)

    def prompt(self, n, stream):
        self.step([(random.randrange(self.n_vocab), i, stream, i == n - 1) for i in range(n)])

    def clear(self):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.ctx), True)

    def measure(self, a):
        began = time.monotonic()
        self.prompt(a.prompt, 0)
        prompt_s = time.monotonic() - began
        self.clear()
        self.prompt(2, 0)
        began = time.monotonic()
        for i in range(a.tokens):
            self.step([(random.randrange(self.n_vocab), 2 + i, 0, True)])
        tokens_s = time.monotonic() - began
        self.clear()
        for stream in range(a.streams):
            self.prompt(a.short, stream)
        began = time.monotonic()
        for i in range(a.tokens):
            self.step([(random.randrange(self.n_vocab), a.short + i, s, True) for s in range(a.streams)])
        streams_s = time.monotonic() - began
        return {"prompt": a.prompt / prompt_s, "tokens": a.tokens / tokens_s, "streams": a.tokens * a.streams / streams_s}


# ---- both --------------------------------------------------------------------------------------


def measure_ours(a, model):
    out = subprocess.run([a.lockstep, "bench", model, "-q", "-r", "1", "--json", "-p", str(a.prompt), "-n", str(a.tokens),
                          "-t", str(a.threads)], check=True, capture_output=True, text=True).stdout
    both = json.loads(out)
    for _ in range(TRIES):
        ran = subprocess.run([a.bench_batch, model, "--streams", str(a.streams), "--threads", str(a.threads), "--rounds",
                              "1", "--predict", str(a.tokens), "--prompt", str(a.short)], capture_output=True, text=True)
        streams = re.search(rf"^ *{a.streams}\b\D+([0-9.]+)", ran.stdout, re.M)
        if streams:
            break
    else:
        sys.exit(f"bench_batch says:\n{ran.stdout}{ran.stderr}")
    return {"prompt": both["prompt_tokens_per_s"], "tokens": both["gen_tokens_per_s"], "streams": float(streams[1])}


def measure_theirs(a, model):
    out = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--only", model], check=True, capture_output=True,
                         text=True).stdout
    return json.loads(out)


def spread(values):
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("lockstep", help="the program")
    p.add_argument("bench_batch", help="build/bench/bench_batch")
    p.add_argument("models", nargs="+", metavar="MODEL")
    p.add_argument("--libllama", required=True, help="a folder with llama.cpp's libraries")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--prompt", type=int, default=512, help="tokens of the prompt (default 512)")
    p.add_argument("--tokens", type=int, default=32, help="tokens after it, and of each stream (default 32)")
    p.add_argument("--streams", type=int, default=16, help="(default 16)")
    p.add_argument("--short", type=int, default=8, help="tokens of a stream's prompt (default 8)")
    p.add_argument("--only", help=argparse.SUPPRESS)  # of a process that measures llama.cpp once
    return p.parse_intermixed_args()


def main():
    a = arguments()
    if a.only:
        positions = max(a.prompt, 2 + a.tokens, a.short + a.tokens)
        print(json.dumps(Other(a.libllama, a.only, a.threads, positions, a.streams).measure(a)))
        return
    print("| model | prompt | llama.cpp's | ratio | tokens | llama.cpp's | ratio | "
          f"{a.streams} streams | llama.cpp's | ratio |\n|" + "---|" * 10, flush=True)
    for model in a.models:
        rounds = [(measure_ours(a, model), measure_theirs(a, model)) for _ in range(a.rounds)]
        cells = [pathlib.Path(model).stem]
        for part in ("prompt", "tokens", "streams"):
            cells += [f"{statistics.median(r[i][part] for r in rounds):.1f}" for i in (0, 1)]
            cells.append(spread([ours[part] / theirs[part] for ours, theirs in rounds]))
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
