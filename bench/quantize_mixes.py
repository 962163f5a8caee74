#!/usr/bin/env python3
"""How much `lockstep quantize` loses: bench/quantize_mixes.py LOCKSTEP [--libllama FOLDER] [TYPE...]

Each TYPE is written from an F16 model (--model, by default the bundled one), and `lockstep eval` gives the logits
of the new file on a text. Shown are the file's bytes, its perplexity, and the divergence of its probabilities from
those of the F16 file (the mean of sum p ln(p / q), in thousandths of a nat).

--libllama names a folder with llama.cpp's libraries (libllama*.so and libggml*.so). Then llama.cpp writes the same
types, its files are measured in the same manner, and more columns compare the two: by how much our perplexity's
logarithm and our divergence are larger (thousandths of a nat, with the standard error of the paired difference over
windows), and which tensors have other types there.

The text is what the F16 model writes by itself: --windows samples of 256 tokens at temperature 1, token by token, end
tokens included. On such a text the expected difference of two files' log perplexities is that of their divergences,
which is less noisy. The first line shows whether F16 wrote the text: then its perplexity is about exp(the mean entropy
of its probabilities). --text takes another one: a file in windows of 256 tokens, or a folder, of which each file's first
256 tokens are a window. --imatrix FILE weighs errors, in both. Times are of quantizing alone, and the megabytes are those
of the model that is read.
"""
import argparse
import array
import ctypes
import json
import math
import operator
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import time

WINDOW = 256
TYPES = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K_S": 11, "Q3_K_M": 12, "Q3_K_L": 13,
         "Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_S": 16, "Q5_K_M": 17, "Q6_K": 18, "IQ4_NL": 25, "IQ4_XS": 30}
ROOT = pathlib.Path(__file__).resolve().parent.parent


def ask(command, stdin=""):
    done = subprocess.run([str(c) for c in command], input=stdin, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(str(c) for c in command)}: {done.stderr}")
    return done.stdout


# ---- the text ----------------------------------------------------------------------------------


def ids_of(a, text):
    return [int(i) for i in ask([a.lockstep, "tokenize", a.model, "--no-bos"], text).split()]


def windows_of(a):
    """Lists of ids, at most WINDOW each."""
    if a.text:
        path = pathlib.Path(a.text)
        texts = [ids_of(a, f.read_text(encoding="utf-8")) for f in sorted(path.iterdir() if path.is_dir() else [path])]
        found = ([ids[:WINDOW] for ids in texts] if path.is_dir() else
                 [texts[0][i:i + WINDOW] for i in range(0, len(texts[0]) - WINDOW + 1, WINDOW)])
        return [ids for ids in found if len(ids) > 1][:a.windows] or sys.exit(f"{path}: not enough text")
    prompt, found = ids_of(a, a.prompt), []
    for seed in range(a.windows):
        said = ask([a.lockstep, "run", a.model, "--raw", "-q", "--json", "--ignore-end", "-p", a.prompt, "-n", WINDOW,
                    "-t", 1, "--temp", 1, "--top-k", 0, "--top-p", 1, "--min-p", 0, "--seed", seed])
        # The text lacks end tokens, and is not always cut into the ids that made it. So these are asked for.
        found.append((prompt + json.loads(said)["ids"])[:WINDOW])
    return found


# ---- what a file says of it --------------------------------------------------------------------


def log_probabilities(a, model, ids, folder):
    """A row for each id: the logarithms of the probabilities of all tokens after it."""
    out = folder / "logits"
    ask([a.lockstep, "eval", model, "--ids", ",".join(map(str, ids)), "--logits", out, "-q", "-t", 1, "--ctx", WINDOW])
    values = array.array("f", out.read_bytes())
    n = len(values) // len(ids)
    rows = []
    for r in range(len(ids)):
        row = values[r * n:(r + 1) * n]
        most = max(row)
        shift = most + math.log(sum(map(math.exp, (v - most for v in row))))
        rows.append(array.array("f", (v - shift for v in row)))
    return rows


class Meter:
    """Compares files with the F16 one."""

    def __init__(self, a, folder):
        self.a, self.folder, self.windows = a, folder, windows_of(a)
        self.true = [log_probabilities(a, a.model, w, folder) for w in self.windows]
        self.p = [[array.array("f", map(math.exp, row)) for row in rows] for rows in self.true]

    def measure(self, model):
        """Of each window: the sum of minus the logarithm of a token's probability, and that of divergences."""
        losses, divergences = [], []
        for w, ids in enumerate(self.windows):
            rows = log_probabilities(self.a, model, ids, self.folder)
            losses.append(-sum(row[after] for row, after in zip(rows, ids[1:])))
            divergences.append(sum(sum(map(operator.mul, p, map(operator.sub, t, q)))
                                   for p, t, q in zip(self.p[w][:-1], self.true[w], rows)))
        return losses, divergences

    def n_tokens(self):
        return sum(len(ids) - 1 for ids in self.windows)

    def mean(self, sums):
        return sum(sums) / self.n_tokens()

    def paired(self, ours, theirs):
        """By how much ours are larger, in thousandths. Windows are independent; the tokens of one are not."""
        larger = [1000 * (a - b) for a, b in zip(ours, theirs)]
        mean, n = self.mean(larger), len(larger)
        squares = sum((d - mean * (len(ids) - 1))**2 for d, ids in zip(larger, self.windows))
        error = math.sqrt(squares * n / (n - 1)) / self.n_tokens() if n > 1 else math.inf
        return f"{mean:+.1f} ± {error:.1f}"

    def describe_true(self):
        losses = [-row[after] for ids, rows in zip(self.windows, self.true) for row, after in zip(rows, ids[1:])]
        entropies = [-sum(map(operator.mul, p, t)) for ps, ts in zip(self.p, self.true) for p, t in zip(ps[:-1], ts)]
        return (f"perplexity {math.exp(self.mean(losses)):.4g} (of a text of its own: "
                f"{math.exp(self.mean(entropies)):.4g}), {self.n_tokens()} tokens")


# ---- files -------------------------------------------------------------------------------------


def types_of(a, model):
    """The type of each tensor by name."""
    found = re.findall(r"^ *(\S+\.(?:weight|bias)) +(\S+)", ask([a.lockstep, "inspect", model, "--tensors"]), re.M)
    return dict(found)


def quantize_here(a, kind, out):
    begin = time.monotonic()
    ask([a.lockstep, "quantize", a.model, out, kind, "-t", a.threads] + (["--imatrix", a.imatrix] if a.imatrix else []))
    return time.monotonic() - begin


class Entry(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("data", ctypes.POINTER(ctypes.c_float)), ("size", ctypes.c_size_t)]


class Params(ctypes.Structure):
    """llama_model_quantize_params of llama.h."""
    _fields_ = [("n_threads", ctypes.c_int32), ("ftype", ctypes.c_int), ("output_type", ctypes.c_int),
                ("embedding_type", ctypes.c_int), ("allow_requantize", ctypes.c_bool), ("output", ctypes.c_bool),
                ("only_copy", ctypes.c_bool), ("pure", ctypes.c_bool), ("keep_split", ctypes.c_bool),
                ("dry_run", ctypes.c_bool), ("imatrix", ctypes.POINTER(Entry)), ("rest", ctypes.c_void_p * 3)]


def imatrix_entries(path):
    """Of a file in the older format (.dat): the mean square of each column, tensor by tensor."""
    data, at, entries = pathlib.Path(path).read_bytes(), 4, []
    for _ in range(struct.unpack_from("<i", data)[0]):
        n = struct.unpack_from("<i", data, at)[0]
        name = data[at + 4:at + 4 + n]
        calls, size = struct.unpack_from("<ii", data, at + 4 + n)
        at += 12 + n
        values = struct.unpack_from(f"<{size}f", data, at)
        at += 4 * size
        entries.append(Entry(name, (ctypes.c_float * size)(*(v / max(calls, 1) for v in values)), size))
    return (Entry * (len(entries) + 1))(*entries)


class Llama:
    """llama.cpp's quantizer."""

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        for pattern in ("libggml-base*.so*", "libggml.*so*", "libllama.*so*"):
            self.lib = ctypes.CDLL(str(sorted(folder.glob(pattern))[0]), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(sorted(folder.glob("libggml.*so*"))[0])).ggml_backend_load_all_from_path(str(folder).encode())
        self.lib.llama_model_quantize_default_params.restype = Params
        self.log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *said: None)
        self.lib.llama_log_set(self.log, None)

    def quantize(self, a, kind, out):
        params = self.lib.llama_model_quantize_default_params()
        params.n_threads, params.ftype = a.threads, TYPES[kind]
        entries = imatrix_entries(a.imatrix) if a.imatrix else None
        if entries:
            params.imatrix = ctypes.cast(entries, ctypes.POINTER(Entry))
        begin = time.monotonic()
        if self.lib.llama_model_quantize(str(a.model).encode(), str(out).encode(), ctypes.byref(params)) != 0:
            sys.exit(f"llama.cpp writes no {kind}")
        return time.monotonic() - begin


def differences(ours, theirs):
    """"attn_v q6_K not q5_K": what is one type here and another there."""
    found = {}
    for name in sorted(set(ours) | set(theirs)):
        pair = ours.get(name, "none"), theirs.get(name, "none")
        if pair[0] != pair[1]:
            part = re.sub(r"^blk\.\d+\.|\.weight$", "", name)
            found.setdefault((part, *pair), []).append(re.sub(r"^blk\.(\d+)\..*", r"\1", name))
    return "; ".join(f"{part} {'' if at == [part + '.weight'] else 'of ' + ','.join(at) + ' '}is {here}, there {there}"
                     for (part, here, there), at in found.items()) or "the same"


# ------------------------------------------------------------------------------------------------


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("lockstep", help="the program")
    p.add_argument("types", nargs="*", default=list(TYPES), metavar="TYPE", help="Q4_K_M and so on (default: all)")
    p.add_argument("--model", default=ROOT / "models/jargon-3m-f16.gguf", help="an F16 model")
    p.add_argument("--libllama", help="a folder with llama.cpp's libraries")
    p.add_argument("--text", help="a file of text, or a folder of such files")
    p.add_argument("--prompt", default="<|im_start|>user\n", help="what the samples begin with")
    p.add_argument("--windows", type=int, default=48, help="how many, of 256 tokens each (default 48)")
    p.add_argument("--imatrix", help="an importance matrix (.dat)")
    p.add_argument("--threads", type=int, default=os.cpu_count(), help="of quantizing")
    return p.parse_intermixed_args()


def main():
    a = arguments()
    llama = Llama(a.libllama) if a.libllama else None
    size = os.path.getsize(a.model) / 1e6
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        meter = Meter(a, folder)
        print(f"F16: {os.path.getsize(a.model)} bytes, {meter.describe_true()}")
        print("| type | bytes | perplexity | divergence | MB/s |" +
              (" llama.cpp's bytes | perplexity | divergence | MB/s | ln perplexity | divergence | types |"
               if llama else ""))
        print("|---|---|---|---|---|" + ("---|---|---|---|---|---|---|" if llama else ""), flush=True)
        for kind in a.types:
            cells, kinds, found = [kind], [], []
            for writer in [quantize_here] + ([llama.quantize] if llama else []):
                out = folder / "model.gguf"
                seconds = writer(a, kind, out)
                kinds.append(types_of(a, out))
                losses, divergences = meter.measure(out)
                found.append((losses, divergences))
                cells += [str(os.path.getsize(out)), f"{math.exp(meter.mean(losses)):.4g}",
                          f"{1000 * meter.mean(divergences):.1f}", f"{size / seconds:.0f}"]
                out.unlink()
            if llama:
                cells += [*map(meter.paired, *found), differences(*kinds)]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
