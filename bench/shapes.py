#!/usr/bin/env python3
"""Prompts and tokens of models whose layers differ, beside Qwen3 30B A3B: bench/shapes.py PROGRAM [PROGRAM...]

Each round runs `lockstep bench -r 1` with every program (a build of lockstep) and every shape in turn: a few layers
with the true widths and random weights (lockstep synth). Shown are the medians of the fractions of the roofs, and
those of each round's ratio to the first shape's, with quartiles. With several programs: of each to the first one, too.
Then the same for tokens after 1,024 and after --deep tokens of context, of a model whose layers are all delta nets.

The models take 12 GB in --dir, and are made once.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

SHAPES = {"qwen3-30b-a3b": 4, "qwen3-next-80b-a3b": 4, "gemma-4-26b-a4b": 6}
NETS = ("qwen3-next-80b-a3b", 3)  # the fourth layer would be attention
PARTS = {"prompt": "prompt_peak_fraction", "tokens": "gen_roof_fraction"}


def make(program, folder, shape, layers, kind):
    path = os.path.join(folder, f"{shape}-{layers}-{kind}.gguf")
    if not os.path.exists(path):
        subprocess.run([program, "synth", "--shape", shape, "--layers", str(layers), "--type", kind, path],
                       check=True, stdout=subprocess.DEVNULL)
    return path


def measure(program, model, *options):
    out = subprocess.run([program, "bench", model, "-q", "-r", "1", "--json", *options], check=True,
                         capture_output=True, text=True).stdout
    return json.loads(out)


def spread(values):
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def ratios(runs, key, other, field):
    return spread([a[field] / b[field] for a, b in zip(runs[key], runs[other])])


def show(runs, first, fields):
    for key, results in runs.items():
        for part, field in fields.items():
            value = statistics.median(r[field] for r in results)
            rate = statistics.median(r["prompt_tokens_per_s" if part == "prompt" else "gen_tokens_per_s"]
                                     for r in results)
            line = f"{os.path.basename(key[0]):12} {key[1]:22} {part:7} {rate:8.1f}/s {value:5.2f} of the roof"
            if key[1] != first:
                line += f", {ratios(runs, key, (key[0], first), field)} of {first}'s"
            programs = [k[0] for k in runs]
            if key[0] != programs[0]:
                line += f", {ratios(runs, key, (programs[0], key[1]), field)} of {os.path.basename(programs[0])}'s"
            print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--type", default="q4_K")
    parser.add_argument("--deep", type=int, default=32768)
    parser.add_argument("--deep-rounds", type=int, default=1, help="0: leaves the contexts out")
    parser.add_argument("--dir", help="where the models are kept (default: a folder that is removed afterwards)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = args.dir or made
        models = {s: make(args.programs[0], folder, s, n, args.type) for s, n in SHAPES.items()}
        runs = {(p, s): [] for p in args.programs for s in models}
        for _ in range(args.rounds):
            for key in runs:
                runs[key].append(measure(key[0], models[key[1]], "-p", "512", "-n", "64"))
        show(runs, next(iter(models)), PARTS)
        nets = make(args.programs[0], folder, *NETS, args.type)
        depths = [1024, args.deep]
        runs = {(p, f"after {d}"): [] for p in args.programs for d in depths}
        for _ in range(args.deep_rounds):
            for program in args.programs:
                for depth in depths:
                    runs[program, f"after {depth}"].append(
                        measure(program, nets, "-p", "1", "-n", "128", "-d", str(depth)))
        if args.deep_rounds:
            show(runs, f"after {depths[0]}", {"tokens": PARTS["tokens"]})
    return 0


if __name__ == "__main__":
    sys.exit(main())
