#!/usr/bin/env python3
"""Tiny models of architectures that golden/ has none of, and their logits in float64, for test_reference.sh.

The forward pass is written from the papers and from transformers' modeling_*.py: one token after the other,
latent attention expanded into keys and values, experts one by one. It shares nothing with src/ but
the names in the file, and what it has in common with the golden models is compared with their logits.

usage: reference.py models FOLDER            NAME.gguf of each
       reference.py make FOLDER              NAME.true.f32 too, and ids; fails if a feature makes no
                                             difference or a choice of experts is close
       reference.py rename IN.gguf OUT.gguf OLD NEW...  the same with keys under other names
       reference.py beside IN.gguf OUT.gguf NAME...      the same with vectors of these names too
       reference.py logits IN.gguf IDS OUT [WITHOUT...]  float32 rows, one for each id
       reference.py cap IN.gguf OUT.gguf IN.f32 OUT.f32 C  the same with gemma3's softcap of C, and its logits
       reference.py suppress IN.gguf OUT.gguf IN.f32 OUT.f32 ID...  the same with tokens that never come
       reference.py compare A B TOLERANCE    fails if they are further apart; B may have more rows
"""
import math
import os
import random
import struct
import sys
from array import array
from operator import mul

from hf_folder import F32, Gguf, floats


def dot(a, b):
    return sum(map(mul, a, b))


def product(rows, x):
    return [dot(r, x) for r in rows]


def softmax(x):
    top = max(x)
    e = [math.exp(v - top) for v in x]
    total = sum(e)
    return [v / total for v in e]


def sigmoid(x):
    return 1 / (1 + math.exp(-max(x, -700)))


def capped(logits, cap):
    return [cap * math.tanh(v / cap) for v in logits] if cap else logits


def gelu(x):
    """The tanh form, as gelu_pytorch_tanh."""
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def best(scores, n):
    """Indices of the n highest, and by how much the last of them wins."""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    gap = scores[order[n - 1]] - scores[order[n]] if n < len(order) else math.inf
    return order[:n], gap


class Model:
    # arch: pairs (2i, 2i + 1) turn together; if not, (i, i + n/2)
    PAIRS = {"llama", "deepseek2", "granite", "granitemoe", "smollm3", "ernie4_5", "glm4", "llama4",
             "glm-dsa", "deepseek32", "cohere2"}
    NORM_AFTER_ROPE = {"hunyuan-dense"}
    GELU = {"gemma", "gemma2"}
    ONE_WITHOUT_WINDOW_IN = {"olmo2": 4, "exaone4": 4, "gemma2": 2, "cohere2": 4}  # layers

    def __init__(self, g, without=()):
        self.g, self.arch, self.without = g, g.keys["general.architecture"], without
        self.gap = math.inf  # of the closest choice of experts or groups
        key = self.key
        self.n_heads = key("attention.head_count")
        self.n_kv = key("attention.head_count_kv", self.n_heads)
        # Of each layer; those without attention have no keys.
        self.n_heads, self.n_kv = (max(n) if isinstance(n, list) else n for n in (self.n_heads, self.n_kv))
        self.states = {}  # of layers that have one in place of keys and values
        self.width = key("embedding_length")
        self.eps = key("attention.layer_norm_epsilon", key("attention.layer_norm_rms_epsilon"))
        self.latent = key("attention.kv_lora_rank", 0)
        self.key_dim = key("attention.key_length_mla", key("attention.key_length", self.width // self.n_heads))
        self.v_dim = key("attention.value_length_mla", key("attention.value_length", self.key_dim))
        self.n_rot = key("rope.dimension_count", self.key_dim)
        self.freqs = self.frequencies()
        self.scale = key("attention.scale", 1 / math.sqrt(self.key_dim))
        if key("rope.scaling.yarn_log_multiplier", 0) and self.arch != "mistral3":
            # DeepSeek: mscale = 0.1 * mscale_all_dim * ln(factor) + 1, squared on the logits
            self.scale *= (1 + key("rope.scaling.yarn_log_multiplier") *
                           math.log(key("rope.scaling.factor"))) ** 2
        self.window = key("attention.sliding_window", 0)
        self.index_keys, self.chosen = {}, []
        self.cache = {}

    def sees_all(self, layer):
        return not self.window or (layer + 1) % self.ONE_WITHOUT_WINDOW_IN[self.arch] == 0

    def has_rope(self, layer):
        if self.arch in ("smollm3", "llama4") and "nope" not in self.without:  # no_rope_layer_interval
            return (layer + 1) % 4 != 0
        return not (self.arch in ("exaone4", "cohere2") and self.window and self.sees_all(layer)) or "nope" in self.without

    def key(self, name, default=None):
        return default if name in self.without else self.g.keys.get(self.arch + "." + name, default)

    def has(self, layer, name):
        return "blk.%d.%s" % (layer, name) in self.g.tensors

    def rows(self, name):
        """A vector as one row; a stack of matrices as a list of them."""
        if name not in self.cache:
            dims, kind, data = self.g.tensors[name]
            v = floats(kind, data)
            rows = [v[i:i + dims[0]] for i in range(0, len(v), dims[0])]
            if len(dims) == 3:
                rows = [rows[i:i + dims[1]] for i in range(0, len(rows), dims[1])]
            self.cache[name] = rows
        return self.cache[name]

    def w(self, layer, name):
        return self.rows("blk.%d.%s" % (layer, name))

    def norm(self, x, weight):
        if self.arch == "cohere2" and "mean" not in self.without:  # LayerNorm without a bias
            mean = sum(x) / len(x)
            x = [v - mean for v in x]
        r = 1 / math.sqrt(dot(x, x) / len(x) + self.eps)
        return [v * r * g for v, g in zip(x, weight[0])]

    def norm_if(self, layer, name, x):
        if not self.has(layer, name + ".weight") or name in self.without:
            return x
        return self.norm(x, self.w(layer, name + ".weight"))

    def plus_bias(self, layer, name, y):
        if not self.has(layer, name + ".bias") or name + ".bias" in self.without:
            return y
        return [a + b for a, b in zip(y, self.w(layer, name + ".bias")[0])]

    # ---- RoPE

    def frequencies(self, base=None):
        """arXiv 2309.00071 where the file says yarn."""
        n, base = self.n_rot, base or self.key("rope.freq_base", 10000.0)
        freqs = [base ** (-2 * i / n) for i in range(n // 2)]
        if self.key("rope.scaling.type") != "yarn":
            # position interpolation, arXiv 2306.15595
            return [f / self.key("rope.scale_linear", 1.0) for f in freqs]
        trained, factor = self.key("rope.scaling.original_context_length"), self.key("rope.scaling.factor")
        turns = lambda beta: n * math.log(trained / (beta * 2 * math.pi)) / (2 * math.log(base))
        low, high = turns(32), turns(1)
        if "truncate" not in self.without:  # transformers' name for it
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, n - 1)
        ramp = [min(max((i - low) / max(high - low, 0.001), 0), 1) for i in range(n // 2)]
        return [f / factor * r + f * (1 - r) for f, r in zip(freqs, ramp)]

    def turn(self, x, pos, plain=False, halves=False):
        """plain: OLMo 3's layers with a window know nothing of YaRN. halves: not as arch, never in pairs."""
        if self.arch in ("kimi-linear", "nemotron_h_moe") and "nope" not in self.without:
            return list(x)
        out, half = list(x), self.n_rot // 2
        base = self.key("rope.freq_base", 10000.0)
        freqs = [base ** (-2 * i / self.n_rot) for i in range(half)] if plain else self.freqs
        by = 1.0
        if not plain and self.key("rope.scaling.type") == "yarn" and not self.key("rope.scaling.yarn_log_multiplier", 0):
            by = 1 + 0.1 * math.log(self.key("rope.scaling.factor"))  # arXiv 2309.00071, section 3.4
        for i, f in enumerate(freqs):
            a, b = (2 * i, 2 * i + 1) if self.arch in self.PAIRS and not halves else (i, i + half)
            c, s = by * math.cos(pos * f), by * math.sin(pos * f)
            out[a], out[b] = x[a] * c - x[b] * s, x[a] * s + x[b] * c
        return out

    # ---- Kimi Delta Attention, arXiv 2510.26692, as the recurrence of section 2 (fla's naive_recurrent_kda)

    def convolved(self, layer, x, which, past):
        """A causal convolution of each channel, then SiLU; past: the inputs so far."""
        past.append(product(self.w(layer, "attn_%s.weight" % which), x))
        taps = self.w(layer, "ssm_conv1d_%s.weight" % which)
        taps = [t[0] for t in taps] if isinstance(taps[0][0], (list, array)) else taps
        n = len(taps[0])
        out = []
        for c, w in enumerate(taps):
            seen = [p[c] for p in past[-n:]]
            v = dot(w[n - len(seen):], seen)
            out.append(v * sigmoid(v))
        return out

    def channel_decay(self, rate, x):
        return math.exp(rate * math.log1p(math.exp(x)))

    def delta(self, layer, x):
        n, d = self.n_heads, self.key("kda.head_dim")
        state = self.states.setdefault(layer, ([], [], [], [[[0.0] * d for _ in range(d)] for _ in range(n)]))
        q, k, v = (self.convolved(layer, x, which, past) for which, past in zip("qkv", state))
        low = lambda name: product(self.w(layer, "ssm_%s_b.weight" % name),
                                   product(self.w(layer, "ssm_%s_a.weight" % name), x))
        decay = low("f")
        gate = product(self.w(layer, "ssm_g.weight"), x) if self.has(layer, "ssm_g.weight") else low("g")
        beta = product(self.w(layer, "ssm_beta.weight"), x)
        rate = sum(map(list, self.w(layer, "ssm_a")), [])
        bias = self.w(layer, "ssm_dt.bias")[0]
        out = []
        for h in range(n):
            part = lambda y: y[h * d:(h + 1) * d]
            unit = lambda y: [e / math.sqrt(dot(y, y) + 1e-6) for e in y]
            qh, kh, vh, s = [e / math.sqrt(d) for e in unit(part(q))], unit(part(k)), part(v), state[3][h]
            by = [self.channel_decay(rate[h], g + b) for g, b in zip(part(decay), part(bias))]
            if "by_channel" in self.without:
                by = [sum(by) / d] * d
            for i in range(d):
                s[i] = [e * by[i] for e in s[i]]
            learned = [(vh[j] - sum(s[i][j] * kh[i] for i in range(d))) * sigmoid(beta[h]) for j in range(d)]
            for i in range(d):
                s[i] = [e + kh[i] * l for e, l in zip(s[i], learned)]
            o = self.norm([sum(s[i][j] * qh[i] for i in range(d)) for j in range(d)],
                          self.w(layer, "ssm_norm.weight"))
            out += [a * sigmoid(g) for a, g in zip(o, part(gate))]
        return product(self.w(layer, "attn_output.weight"), out)

    # ---- attention

    def project(self, layer, x, which, n, dim):
        y = product(self.w(layer, "attn_%s.weight" % which), x)
        if self.has(layer, "attn_%s.bias" % which) and "qkv_bias" not in self.without:
            y = [a + b for a, b in zip(y, self.w(layer, "attn_%s.bias" % which)[0])]
        norm = "attn_%s_norm.weight" % which
        if self.has(layer, norm) and len(self.w(layer, norm)[0]) == len(y) and n > 1:  # over the whole row
            y = self.norm(y, self.w(layer, norm))
        return [y[i * dim:(i + 1) * dim] for i in range(n)]

    def head_norms(self, layer, which, heads):
        norm = "attn_%s_norm.weight" % which
        if not self.has(layer, norm) or len(self.w(layer, norm)[0]) != self.key_dim or "qk_norm" in self.without:
            return heads
        return [self.norm(h, self.w(layer, norm)) for h in heads]

    def qkv(self, layer, x, pos):
        q = self.project(layer, x, "q", self.n_heads, self.key_dim)
        k = self.project(layer, x, "k", self.n_kv, self.key_dim)
        v = self.project(layer, x, "v", self.n_kv, self.v_dim)
        after = (self.arch in self.NORM_AFTER_ROPE) != ("norm_after_rope" in self.without)
        if not after:
            q, k = self.head_norms(layer, "q", q), self.head_norms(layer, "k", k)
        if self.has_rope(layer):
            plain = self.arch == "olmo2" and not self.sees_all(layer) and "plain_windows" not in self.without
            q, k = [self.turn(h, pos, plain) for h in q], [self.turn(h, pos, plain) for h in k]
        if self.arch == "llama4" and self.has_rope(layer) and "qk_norm" not in self.without:
            ones = [[1.0] * self.key_dim]
            q, k = [self.norm(h, ones) for h in q], [self.norm(h, ones) for h in k]
        if after:
            q, k = self.head_norms(layer, "q", q), self.head_norms(layer, "k", k)
        return q, k, v

    def latent_qkv(self, layer, x, pos):
        """arXiv 2405.04434, section 2.1.2, as modeling_deepseek.py has it: nothing absorbed."""
        nope = self.key_dim - self.n_rot
        if self.has(layer, "attn_q_a.weight"):
            low = self.norm(product(self.w(layer, "attn_q_a.weight"), x), self.w(layer, "attn_q_a_norm.weight"))
            y = product(self.w(layer, "attn_q_b.weight"), low)
        else:
            y = product(self.w(layer, "attn_q.weight"), x)
        heads = [y[i * self.key_dim:(i + 1) * self.key_dim] for i in range(self.n_heads)]
        q = [h[:nope] + self.turn(h[nope:], pos) for h in heads]
        y = product(self.w(layer, "attn_kv_a_mqa.weight"), x)
        latent = self.norm(y[:self.latent], self.w(layer, "attn_kv_a_norm.weight"))
        turned = self.turn(y[self.latent:], pos)
        k, v = [], []
        for h in range(self.n_heads):
            if self.has(layer, "attn_kv_b.weight"):
                begin = h * (nope + self.v_dim)
                both = product(self.w(layer, "attn_kv_b.weight")[begin:begin + nope + self.v_dim], latent)
                k.append(both[:nope] + turned)
                v.append(both[nope:])
            else:  # the keys' matrix is stored by columns
                key = self.w(layer, "attn_k_b.weight")[h]
                k.append([dot([r[i] for r in key], latent) for i in range(nope)] + turned)
                v.append(product(self.w(layer, "attn_v_b.weight")[h], latent))
        return q, k, v

    def choice(self, layer, x, pos):
        """The positions that DeepSeek-V3.2's indexer chooses (arXiv 2512.02556, section 2.1; LayerNorm and RoPE as in
        its inference/model.py). A layer without one: those of the last layer that has one."""
        n, dim, top = (self.key("attention.indexer." + k) for k in ("head_count", "key_length", "top_k"))
        if not self.key("attention.indexer.types", [True] * 99)[layer]:
            return range(pos + 1) if "shared_choice" in self.without else self.chosen
        low = self.norm(product(self.w(layer, "attn_q_a.weight"), x), self.w(layer, "attn_q_a_norm.weight"))
        y = product(self.w(layer, "indexer.attn_q_b.weight"), low)
        k = product(self.w(layer, "indexer.attn_k.weight"), x)
        mean = sum(k) / dim
        by = 1 / math.sqrt(sum((v - mean) ** 2 for v in k) / dim + 1e-6)
        norm, bias = (self.w(layer, "indexer.k_norm." + s)[0] for s in ("weight", "bias"))
        k = [(v - mean) * by * a + b for v, a, b in zip(k, norm, bias)]
        keys = self.index_keys.setdefault(layer, [])
        halves = self.arch == "deepseek32"
        keys.append(self.turn(k, pos, halves=halves))
        q = [self.turn(y[i * dim:(i + 1) * dim], pos, halves=halves) for i in range(n)]
        weights = [v / math.sqrt(n * dim) for v in product(self.w(layer, "indexer.proj.weight"), x)]
        scores = [sum(w * max(dot(h, k), 0) for w, h in zip(weights, q)) for k in keys]
        chosen, gap = best(scores, min(top, len(scores)))
        self.gap, self.chosen = min(self.gap, gap), sorted(chosen)
        return self.chosen

    def blocks(self, layer, x, pos, group):
        """MiniMax M3: the positions of the blocks that a key-value head chooses, by their best key; its own counts."""
        size, dim, top, local = (self.key("attention.indexer." + k) for k in
                                 ("block_size", "key_length", "top_k", "local_blocks"))
        q = product(self.w(layer, "indexer.q_proj.weight"), x)[group * dim:(group + 1) * dim]
        q = self.turn(self.norm(q, self.w(layer, "indexer.q_norm.weight")), pos)
        keys = self.index_keys.setdefault(layer, [])
        if group == 0:
            k = self.norm(product(self.w(layer, "indexer.k_proj.weight"), x), self.w(layer, "indexer.k_norm.weight"))
            keys.append(self.turn(k, pos))
        scores = [max(dot(q, k) for k in keys[i:i + size]) for i in range(0, len(keys), size)]
        own = len(scores) - (0 if "local" in self.without else local)
        left = top - (len(scores) - own)
        chosen, gap = best(scores[:own], min(left, own)) if own > 0 and left > 0 else ([], math.inf)
        self.gap = min(self.gap, gap)
        chosen = sorted(chosen) + list(range(max(own, 0), len(scores)))
        return [i for b in chosen for i in range(b * size, min((b + 1) * size, len(keys)))]

    def attention(self, layer, x, pos, past):
        if self.has(layer, "ssm_f_a.weight"):
            return self.delta(layer, x)
        q, k, v = (self.latent_qkv if self.latent else self.qkv)(layer, x, pos)
        past.append((k, v))
        sees = [past] * len(k)
        if self.has(layer, "indexer.q_proj.weight") and "attention.indexer.top_k" not in self.without:
            sees = [[past[i] for i in self.blocks(layer, x, pos, g)] for g in range(len(k))]
        elif self.key("attention.indexer.top_k", 0) and self.latent:
            past = [past[i] for i in self.choice(layer, x, pos)]
        if not self.sees_all(layer):
            past = past[-self.window:]
        if not self.has(layer, "indexer.q_proj.weight"):
            sees = [past] * len(k)
        out, group = [], len(q) // len(k)
        for h, query in enumerate(q):
            past = sees[h // group]
            p = softmax(capped([self.scale * dot(query, keys[h // group]) for keys, _ in past],
                               self.key("attn_logit_softcapping", 0)))
            for i in range(self.v_dim):
                out.append(sum(w * values[h // group][i] for w, (_, values) in zip(p, past)))
        out = self.gated(layer, x, out)
        return self.plus_bias(layer, "attn_output", product(self.w(layer, "attn_output.weight"), out))

    def gated(self, layer, x, out):
        return out

    # ---- FFN

    def ffn(self, layer, name, x, nth=None):
        names = ["ffn_%s%s" % (p, name) for p in ("gate", "up", "down")]
        if self.arch == "nemotron_h_moe":  # no gate
            up, down = (w if nth is None else w[nth] for w in (self.w(layer, n + ".weight") for n in names[1:]))
            square = 1 if "squared" in self.without else 2
            return product(down, [max(v, 0) ** square for v in product(up, x)])
        if not self.has(layer, names[0] + ".weight"):  # gate over up in one matrix
            both = self.w(layer, names[1] + ".weight")
            parts = [both[:len(both) // 2], both[len(both) // 2:], self.w(layer, names[2] + ".weight")]
        else:
            parts = [self.w(layer, n + ".weight") for n in names]
        gate, up, down = parts if nth is None else [p[nth] for p in parts]
        g, u = (self.plus_bias(layer, n, product(w, x)) for n, w in zip(names, (gate, up)))
        if self.arch == "minimax-m3" and "clamped" not in self.without:  # gpt-oss's
            g, u = [min(a, 7) for a in g], [min(max(b, -7), 7) + 1 for b in u]
            return product(down, [a * sigmoid(1.702 * a) * b for a, b in zip(g, u)])
        act = gelu if self.arch in self.GELU and "gelu" not in self.without else lambda a: a * sigmoid(a)
        return self.plus_bias(layer, names[2], product(down, [act(a) * b for a, b in zip(g, u)]))

    def choose(self, layer, x):
        """Expert -> weight."""
        n, n_used = self.key("expert_count"), self.key("expert_used_count")
        logits = product(self.w(layer, "ffn_gate_inp.weight"), x)
        chosen_only = self.arch == "granitemoe"  # softmax over the chosen logits
        sigmoids = self.key("expert_gating_func", 2 if self.arch == "llama4" else 1) == 2
        p = logits if chosen_only else [sigmoid(v) for v in logits] if sigmoids else softmax(logits)
        scores = list(p)
        if self.has(layer, "exp_probs_b.bias"):
            scores = [a + b for a, b in zip(p, self.w(layer, "exp_probs_b.bias")[0])]
        groups, n_groups_used = self.key("expert_group_count", 1), self.key("expert_group_used_count", 1)
        if groups > 1 and "groups" not in self.without:
            # noaux_tc: a group's two best together; group_limited_greedy: its best
            size = n // groups
            top = lambda g: sorted(scores[g * size:(g + 1) * size])[::-1]
            two = sigmoids or "greedy" in self.without
            kept, gap = best([sum(top(g)[:2 if two else 1]) for g in range(groups)], n_groups_used)
            self.gap = min(self.gap, gap)
            scores = [s if i // size in kept else -math.inf for i, s in enumerate(scores)]
        chosen, gap = best(scores, n_used)
        self.gap = min(self.gap, gap)
        weights = [p[i] for i in chosen]
        if chosen_only and "softmax" not in self.without:
            weights = softmax(weights)
        normalize = self.key("expert_weights_norm", self.arch in ("qwen3moe", "llama"))
        if normalize != ("normalize" in self.without):
            weights = [w / sum(weights) for w in weights]
        scale = self.key("expert_weights_scale", 0) or 1
        return {i: w * scale for i, w in zip(chosen, weights)}

    def experts(self, layer, x):
        """The experts of Nemotron 3 Super read x through a matrix, and their sum goes through another."""
        whole, chosen = x, self.choose(layer, x)
        if self.has(layer, "ffn_latent_down.weight"):
            x = product(self.w(layer, "ffn_latent_down.weight"), x)
        out = [0.0] * len(x)
        for i, weight in chosen.items():
            if self.arch == "llama4" and "weighs_input" not in self.without:
                weighted, weight = [weight * v for v in x], 1.0
                out = [a + b for a, b in zip(out, self.ffn(layer, "_exps", weighted, i))]
                continue
            out = [a + weight * b for a, b in zip(out, self.ffn(layer, "_exps", x, i))]
        if self.has(layer, "ffn_latent_up.weight"):
            x, out = whole, product(self.w(layer, "ffn_latent_up.weight"), out)
        if self.has(layer, "ffn_down_shexp.weight") and "shared" not in self.without:
            weight = 1.0
            if self.has(layer, "ffn_gate_inp_shexp.weight") and "shared_router" not in self.without:
                weight = sigmoid(dot(self.w(layer, "ffn_gate_inp_shexp.weight")[0], x))
            out = [a + weight * b for a, b in zip(out, self.ffn(layer, "_shexp", x))]
        return out

    # ---- the whole

    def logits(self, ids):
        if self.arch == "deepseek4":
            from reference_deepseek4 import DeepSeek4
            yield from DeepSeek4(self).logits(ids)
            return
        past = [[] for _ in range(self.key("block_count") - self.key("nextn_predict_layers", 0))]
        head = "output.weight" if "output.weight" in self.g.tensors else "token_embd.weight"
        add = self.key("residual_scale", 1.0)
        for pos, i in enumerate(ids):
            by = math.sqrt(self.width) if self.arch in ("gemma", "gemma2") else self.key("embedding_scale", 1.0)
            x = [v * (1.0 if "embedding_scale" in self.without else by) for v in self.rows("token_embd.weight")[i]]
            for layer in range(len(past)):
                if self.arch == "nemotron_h_moe":  # one block with one norm
                    normed = self.norm_if(layer, "attn_norm", x)
                    y = self.attention(layer, normed, pos, past[layer]) if self.has(layer, "attn_q.weight") else \
                        self.experts(layer, normed)
                    x = [a + b for a, b in zip(x, y)]
                    continue
                read = self.norm_if(layer, "attn_norm", x)
                y = self.attention(layer, read, pos, past[layer])
                y = self.norm_if(layer, "post_attention_norm", y)
                x = [a + add * b for a, b in zip(x, y)]
                normed = read if self.arch == "cohere2" else self.norm_if(layer, "ffn_norm", x)
                y = self.experts(layer, normed) if self.has(layer, "ffn_gate_inp.weight") else \
                    self.ffn(layer, "", normed)
                y = self.norm_if(layer, "post_ffw_norm", y)
                x = [a + add * b for a, b in zip(x, y)]
            x = self.norm(x, self.rows("output_norm.weight"))
            by = self.key("logit_scale", 1.0)
            by = by if self.arch == "cohere2" else 1 / by
            yield capped([v * by for v in product(self.rows(head), x)],
                         self.key("final_logit_softcapping", 0))


# ---- models ---------------------------------------------------------------------------------

N_VOCAB = 288  # 256 bytes, some words, some control tokens


class Maker:
    """Random weights: normal, such that activations keep their size and logits deviate by about 3."""

    def __init__(self, arch, seed, **keys):
        self.g, self.random = Gguf(None), random.Random(seed)
        self.g.put("general.architecture", arch)
        for name, v in keys.items():
            self.g.put("%s.%s" % (arch, name.replace("__", ".")), v)
        self.key = lambda name, default=0: keys.get(name.replace(".", "__"), default)
        self.vocabulary()

    def vocabulary(self):
        """Byte-level BPE: GPT-2 writes the bytes that do not print as U+0100 on."""
        printing = [b for b in range(256) if 0x21 <= b <= 0x7e or 0xa1 <= b and b != 0xad]
        rest = [b for b in range(256) if b not in printing]
        chars = {b: chr(b) for b in printing}
        chars.update((b, chr(256 + i)) for i, b in enumerate(rest))
        merges = ["t h", "th e", "i n", "Ġ the", "a n", "an d", "e r", "o n"]
        tokens = [chars[b] for b in range(256)] + [m.replace(" ", "") for m in merges]
        types = [1] * len(tokens)
        while len(tokens) < N_VOCAB:
            tokens.append("<|%d|>" % len(tokens))
            types.append(3)
        for name, v in (("model", "gpt2"), ("pre", "qwen2"), ("tokens", tokens), ("token_type", types),
                        ("merges", merges), ("eos_token_id", N_VOCAB - 1)):
            self.g.put("tokenizer.ggml." + name, v)

    def add(self, name, dims, sigma, mean=0.0):
        values = array("f", (self.random.gauss(mean, sigma) for _ in range(math.prod(dims))))
        self.g.tensors[name] = [dims, F32, values.tobytes()]

    def matrix(self, name, cols, *rows, by=1.0):
        self.add(name, (cols,) + rows, by / math.sqrt(cols))

    def norm(self, name, n):
        self.add(name, (n,), 0.2, 1.0)

    def ffn(self, prefix, suffix, n_ff, *n):
        e = self.key("embedding_length")
        for part, dims in (("gate", (e, n_ff)), ("up", (e, n_ff)), ("down", (n_ff, e))):
            self.matrix("%sffn_%s%s.weight" % (prefix, part, suffix), *dims, *n, by=1.5)

    def experts(self, prefix, n_ff, n_ff_shared):
        n = self.key("expert_count")
        self.matrix(prefix + "ffn_gate_inp.weight", self.key("embedding_length"), n, by=2.0)
        self.ffn(prefix, "_exps", n_ff, n)
        if n_ff_shared:
            self.ffn(prefix, "_shexp", n_ff_shared)

    def attention(self, prefix, bias, norms=None):
        """norms: None, or of each "head", or of the whole "row"."""
        e, n_heads, n_kv = (self.key(k) for k in ("embedding_length", "attention.head_count",
                                                  "attention.head_count_kv"))
        dim = self.key("attention.key_length", e // n_heads)
        for which, n in (("q", n_heads), ("k", n_kv)) if norms else ():
            self.norm("%sattn_%s_norm.weight" % (prefix, which), dim if norms == "head" else n * dim)
        for which, n in (("q", n_heads), ("k", n_kv), ("v", n_kv)):
            self.matrix("%sattn_%s.weight" % (prefix, which), e, n * dim)
            if bias:
                self.add("%sattn_%s.bias" % (prefix, which), (n * dim,), 0.5)
        self.matrix(prefix + "attn_output.weight", n_heads * dim, e)

    def latent_attention(self, prefix):
        k = self.key
        e, n, rank, q_rank = (k(x) for x in ("embedding_length", "attention.head_count",
                                             "attention.kv_lora_rank", "attention.q_lora_rank"))
        dim, v_dim, rot = k("attention.key_length"), k("attention.value_length"), k("rope.dimension_count")
        if q_rank:
            self.matrix(prefix + "attn_q_a.weight", e, q_rank)
            self.norm(prefix + "attn_q_a_norm.weight", q_rank)
            self.matrix(prefix + "attn_q_b.weight", q_rank, n * dim)
        else:
            self.matrix(prefix + "attn_q.weight", e, n * dim)
        self.matrix(prefix + "attn_kv_a_mqa.weight", e, rank + rot)
        self.norm(prefix + "attn_kv_a_norm.weight", rank)
        self.matrix(prefix + "attn_kv_b.weight", rank, n * (dim - rot + v_dim))
        self.matrix(prefix + "attn_output.weight", n * v_dim, e)

    def model(self, layer, norms=("attn_norm", "ffn_norm"), tied=False):
        e = self.key("embedding_length")
        scale = self.key("embedding_scale", 1.0)
        self.matrix("token_embd.weight", e, N_VOCAB, by=3.0 if tied else math.sqrt(e) / scale)
        for i in range(self.key("block_count")):
            prefix = "blk.%d." % i
            for name in norms:
                self.norm(prefix + name + ".weight", e)
            layer(i, prefix)
        self.norm("output_norm.weight", e)
        if not tied:
            self.matrix("output.weight", e, N_VOCAB, by=3.0 * self.key("logit_scale", 1.0))
        return self.g


COMMON = dict(context_length=512, block_count=2, attention__layer_norm_rms_epsilon=1e-6)


def qwen2moe(seed, first):
    """Qwen1.5-MoE-A2.7B and Qwen2-57B-A14B; the first files of the former have fewer keys."""
    keys = dict(COMMON, embedding_length=64, feed_forward_length=96, attention__head_count=4,
                attention__head_count_kv=2, rope__freq_base=1e6, expert_count=8, expert_used_count=3)
    if not first:
        keys.update(expert_feed_forward_length=24, expert_shared_feed_forward_length=80)
    m = Maker("qwen2moe", seed, **keys)

    def layer(i, prefix):
        m.attention(prefix, bias=True)
        m.experts(prefix, 32 if first else 24, 96 if first else 80)
        m.add(prefix + "ffn_gate_inp_shexp.weight", (64,), 2 / 8)
    return m.model(layer)


def granite_code(seed):
    """Granite Code of 3B and 8B: LlamaForCausalLM with attention_bias and mlp_bias."""
    m = Maker("llama", seed, **COMMON, embedding_length=64, feed_forward_length=96, attention__head_count=4,
              attention__head_count_kv=2, attention__key_length=16, rope__freq_base=1e4)

    def layer(i, prefix):
        m.attention(prefix, bias=True)
        m.ffn(prefix, "", 96)
        for name, n in (("attn_output", 64), ("ffn_gate", 96), ("ffn_up", 96), ("ffn_down", 64)):
            m.add("%s%s.bias" % (prefix, name), (n,), 0.5)
    return m.model(layer)


def stretched(seed):
    """A llama of 2023 whose context was stretched (vicuna-16k, Llama-2-7B-32K): the first key for it."""
    m = Maker("llama", seed, **COMMON, embedding_length=64, feed_forward_length=96, attention__head_count=4,
              attention__head_count_kv=4, attention__key_length=16, rope__freq_base=1e4, rope__scale_linear=4.0)

    def layer(i, prefix):
        m.attention(prefix, bias=False)
        m.ffn(prefix, "", 96)
    return m.model(layer)


def deepseek_v2(seed):
    """DeepSeek-V2 of 236B: groups of experts by softmax (group_limited_greedy). Rows are whole blocks of 32, so that
    it can be FP8, whose blocks of 128 x 128 then end within a head's keys."""
    m = Maker("deepseek2", seed, **COMMON, embedding_length=64, feed_forward_length=96, attention__head_count=4,
              attention__head_count_kv=4, attention__key_length=32, attention__value_length=16,
              attention__kv_lora_rank=64, attention__q_lora_rank=64, rope__dimension_count=8,
              rope__freq_base=1e4, rope__scaling__type="yarn", rope__scaling__factor=40.0,
              rope__scaling__original_context_length=64, rope__scaling__yarn_log_multiplier=0.0707,
              expert_count=12, expert_used_count=3, expert_group_count=4, expert_group_used_count=2,
              expert_feed_forward_length=32, expert_shared_count=2, leading_dense_block_count=1,
              expert_weights_norm=False, expert_weights_scale=4.0, expert_gating_func=1)

    def layer(i, prefix):
        m.latent_attention(prefix)
        if i < 1:
            m.ffn(prefix, "", 96)
        else:
            m.experts(prefix, 32, 64)
    return m.model(layer)


def glm_5_2(seed):
    """GLM-5.2: of these layers the first and the last have an indexer, the others use what the first has chosen."""
    types = [True, False, False, True]
    m = Maker("glm-dsa", seed, **dict(COMMON, block_count=4), embedding_length=64, feed_forward_length=96,
              attention__head_count=4, attention__head_count_kv=4, attention__key_length=24,
              attention__value_length=16, attention__kv_lora_rank=32, attention__q_lora_rank=32,
              rope__dimension_count=8, rope__freq_base=1e4, attention__indexer__head_count=6,
              attention__indexer__key_length=20, attention__indexer__top_k=9, attention__indexer__types=types)

    def layer(i, prefix):
        m.latent_attention(prefix)
        m.ffn(prefix, "", 96)
        if types[i]:
            m.matrix(prefix + "indexer.attn_q_b.weight", 32, 6 * 20)
            m.matrix(prefix + "indexer.attn_k.weight", 64, 20)
            m.matrix(prefix + "indexer.proj.weight", 64, 6)
            m.norm(prefix + "indexer.k_norm.weight", 20)
            m.add(prefix + "indexer.k_norm.bias", (20,), 0.3)
    return m.model(layer)


def kimi_linear(seed, n_heads=3, d=20, taps=3, v_dim=12, **keys):
    """Kimi Linear with heads of its own sizes and a convolution of 3; two delta nets, then latent attention, twice."""
    pattern = [0, 0, 1, 0, 1]
    m = Maker("kimi-linear", seed, **dict(dict(
        COMMON, block_count=len(pattern), embedding_length=64, feed_forward_length=96, attention__head_count=n_heads,
        attention__head_count_kv=pattern, attention__key_length=28, attention__value_length=v_dim,
        attention__kv_lora_rank=32, rope__dimension_count=8, rope__freq_base=1e4, ssm__conv_kernel=taps,
        kda__head_dim=d, expert_count=8, expert_used_count=3, expert_gating_func=2, expert_feed_forward_length=32,
        expert_shared_count=1, leading_dense_block_count=1, expert_weights_norm=True, expert_weights_scale=2.5), **keys))

    def layer(i, prefix):
        if pattern[i]:
            m.latent_attention(prefix)
        else:
            n = n_heads * d
            for which in "qkv":
                m.matrix("%sattn_%s.weight" % (prefix, which), 64, n)
                m.matrix("%sssm_conv1d_%s.weight" % (prefix, which), taps, 1, n)
            for which in "fg":
                m.matrix("%sssm_%s_a.weight" % (prefix, which), 64, d)
                m.matrix("%sssm_%s_b.weight" % (prefix, which), d, n)
            m.matrix(prefix + "ssm_beta.weight", 64, n_heads)
            m.add(prefix + "ssm_a", (1, n_heads), 0.3, -1.0)
            m.add(prefix + "ssm_dt.bias", (n,), 1.0, -1.0)
            m.norm(prefix + "ssm_norm.weight", d)
            m.matrix(prefix + "attn_output.weight", n, 64)
        if i < 1:
            m.ffn(prefix, "", 96)
        else:
            m.experts(prefix, 32, 32)
            m.add(prefix + "exp_probs_b.bias", (8,), 0.3)
    return m.model(layer)


def nemotron_3(seed, latent=32, n_ff=32, n_ff_shared=48, n_experts=8):
    """Nemotron 3 Super: experts in a latent space. There is no Mamba-2 in it: golden models have that."""
    pattern = [2, 0, 2, 0]
    m = Maker("nemotron_h_moe", seed, **dict(
        COMMON, block_count=len(pattern)), embedding_length=64, feed_forward_length=[0 if n else n_ff for n in pattern],
        attention__head_count=4, attention__head_count_kv=pattern, attention__key_length=16,
        attention__value_length=16, rope__freq_base=1e4, ssm__conv_kernel=4, ssm__state_size=16, ssm__group_count=2,
        ssm__inner_size=64, ssm__time_step_rank=4, expert_count=n_experts, expert_used_count=3, expert_gating_func=2,
        expert_feed_forward_length=n_ff, expert_shared_count=1, expert_shared_feed_forward_length=n_ff_shared,
        expert_weights_norm=True, expert_weights_scale=2.5, moe_latent_size=latent)

    def layer(i, prefix):
        if pattern[i]:
            for which, n in (("q", 4), ("k", 2), ("v", 2)):
                m.matrix("%sattn_%s.weight" % (prefix, which), 64, n * 16)
            m.matrix(prefix + "attn_output.weight", 64, 64)
            return
        m.matrix(prefix + "ffn_gate_inp.weight", 64, n_experts, by=2.0)
        m.add(prefix + "exp_probs_b.bias", (n_experts,), 0.3)
        m.matrix(prefix + "ffn_latent_down.weight", 64, latent)
        m.matrix(prefix + "ffn_latent_up.weight", latent, 64)
        for suffix, width, ff, n in (("_exps", latent, n_ff, (n_experts,)), ("_shexp", 64, n_ff_shared, ())):
            m.matrix("%sffn_up%s.weight" % (prefix, suffix), width, ff, *n)
            m.matrix("%sffn_down%s.weight" % (prefix, suffix), ff, width, *n)
    return m.model(layer, ("attn_norm",))


def minimax_m3(seed, block=6, top=3, local=2, n_heads=6, n_kv=3, dim=20, index_dim=12, n_dense=2, tied=False):
    """MiniMax M3 with two local blocks, heads of an index narrower than the others, and two layers that see all."""
    m = Maker("minimax-m3", seed, **dict(
        COMMON, block_count=4), embedding_length=64, feed_forward_length=96, attention__head_count=n_heads,
        attention__head_count_kv=n_kv, attention__key_length=dim, attention__value_length=dim, rope__freq_base=1e4,
        rope__dimension_count=8, expert_count=8, expert_used_count=3, expert_gating_func=2,
        expert_feed_forward_length=32, expert_shared_count=1, leading_dense_block_count=n_dense,
        expert_weights_norm=True, expert_weights_scale=2.0, attention__indexer__head_count=n_kv,
        attention__indexer__key_length=index_dim, attention__indexer__top_k=top, attention__indexer__block_size=block,
        attention__indexer__local_blocks=local)

    def layer(i, prefix):
        m.attention(prefix, False, "head")
        if i < n_dense:
            m.ffn(prefix, "", 96)
            return
        m.matrix(prefix + "indexer.q_proj.weight", 64, n_kv * index_dim)
        m.matrix(prefix + "indexer.k_proj.weight", 64, index_dim)
        m.norm(prefix + "indexer.q_norm.weight", index_dim)
        m.norm(prefix + "indexer.k_norm.weight", index_dim)
        m.experts(prefix, 32, 32)
        m.add(prefix + "exp_probs_b.bias", (8,), 0.3)
    return m.model(layer, tied=tied)


def granite_moe(seed, n_ff_shared):
    """Granite 3's: a llama with factors, experts weighted by a softmax over the chosen."""
    keys = dict(COMMON, embedding_length=64, feed_forward_length=32, attention__head_count=4,
                attention__head_count_kv=2, rope__freq_base=1e4, expert_count=8, expert_used_count=3,
                embedding_scale=12.0, residual_scale=0.22, attention__scale=0.125, logit_scale=6.0)
    if n_ff_shared:
        keys["expert_shared_feed_forward_length"] = n_ff_shared
    m = Maker("granitemoe", seed, **keys)

    def layer(i, prefix):
        m.attention(prefix, bias=False)
        m.experts(prefix, 32, n_ff_shared)
    return m.model(layer)


PLAIN = dict(COMMON, embedding_length=64, feed_forward_length=96, attention__head_count=4,
             attention__head_count_kv=2, attention__key_length=16, attention__value_length=16, rope__freq_base=1e4)
POST = ("post_attention_norm", "post_ffw_norm")


def plain(arch, seed, norms=("attn_norm", "ffn_norm"), head_norms=None, bias=False, tied=False, fused=False, **keys):
    """A llama but for what is said."""
    m = Maker(arch, seed, **dict(PLAIN, **keys))

    def layer(i, prefix):
        m.attention(prefix, bias, head_norms)
        if fused:
            m.matrix(prefix + "ffn_up.weight", 64, 2 * 96, by=1.5)
            m.matrix(prefix + "ffn_down.weight", 96, 64, by=1.5)
        else:
            m.ffn(prefix, "", 96)
    return m.model(layer, norms, tied)


def dots1(seed):
    """dots.llm1: one dense layer, then experts behind a sigmoid gate with a bias that only chooses."""
    m = Maker("dots1", seed, **dict(PLAIN, expert_count=8, expert_used_count=3, expert_feed_forward_length=32,
                                    expert_shared_count=2, leading_dense_block_count=1, expert_weights_norm=True,
                                    expert_weights_scale=2.5, expert_gating_func=2))

    def layer(i, prefix):
        m.attention(prefix, False, "head")
        if i < 1:
            m.ffn(prefix, "", 96)
        else:
            m.experts(prefix, 32, 64)
            m.add(prefix + "exp_probs_b.bias", (8,), 0.3)
    return m.model(layer)


def llama4(seed):
    """Scout's kinds of layers, with whole blocks of 32, so that it can be quantized."""
    m = Maker("llama4", seed, **dict(PLAIN, block_count=4, expert_count=4, expert_used_count=1,
                                     expert_feed_forward_length=32, interleave_moe_layer_step=2))

    def layer(i, prefix):
        m.attention(prefix, False)
        if i % 2 == 0:
            m.ffn(prefix, "", 96)
        else:
            m.experts(prefix, 32, 32)
    return m.model(layer)


def deepseek4(seed):
    import reference_deepseek4
    return reference_deepseek4.small(Maker, seed, N_VOCAB)


MODELS = {
    "deepseek4-small": (lambda: deepseek4(1), ["indexer", "overlap", "compressed_4", "sinkhorn", "q_norm", "sinks", "clamped",
                                               "compress_base", "rope.scaling.type"]),
    "scout": (lambda: llama4(3), ["nope", "qk_norm", "weighs_input", "shared"]),
    "smollm3": (lambda: plain("smollm3", 1, block_count=4, tied=True), ["nope"]),
    "ernie4_5": (lambda: plain("ernie4_5", 1, tied=True), []),
    "hunyuan-dense": (lambda: plain("hunyuan-dense", 1, head_norms="head", tied=True), ["norm_after_rope", "qk_norm"]),
    "gemma": (lambda: plain("gemma", 1, tied=True), ["gelu", "embedding_scale"]),
    "gemma2": (lambda: plain("gemma2", 1, ("attn_norm", "ffn_norm") + POST, tied=True, block_count=4,
                             attention__sliding_window=16, attn_logit_softcapping=2.0, final_logit_softcapping=4.0),
               ["gelu", "embedding_scale", "attention.sliding_window", "attn_logit_softcapping",
                "final_logit_softcapping", "post_ffw_norm"]),
    "cohere2": (lambda: plain("cohere2", 1, ("attn_norm",), tied=True, block_count=4, attention__sliding_window=16,
                              attention__layer_norm_epsilon=1e-5, logit_scale=0.5),
                ["nope", "attention.sliding_window", "mean", "logit_scale"]),
    "qwen3vl": (lambda: plain("qwen3vl", 1, head_norms="head", rope__dimension_sections=[4, 4, 4, 0],
                              n_deepstack_layers=3), ["qk_norm"]),
    "glm4": (lambda: plain("glm4", 1, ("attn_norm", "ffn_norm") + POST, bias=True, fused=True,
                           rope__dimension_count=8), ["qkv_bias", "post_attention_norm", "post_ffw_norm"]),
    "exaone4": (lambda: plain("exaone4", 1, POST, "head", block_count=4, attention__sliding_window=16),
                ["nope", "attention.sliding_window", "qk_norm", "post_ffw_norm"]),
    "exaone4-small": (lambda: plain("exaone4", 2, POST, "head", tied=True), ["qk_norm"]),
    "olmo3": (lambda: plain("olmo2", 1, POST, "row", block_count=4, attention__sliding_window=16,
                            rope__scaling__type="yarn", rope__scaling__factor=8.0,
                            rope__scaling__original_context_length=64),
              ["attention.sliding_window", "plain_windows", "rope.scaling.type", "post_attention_norm"]),
    "dots1": (lambda: dots1(1), ["qk_norm", "normalize", "shared", "expert_weights_scale"]),
    "qwen2moe": (lambda: qwen2moe(5, False), ["qkv_bias", "normalize", "shared", "shared_router"]),
    "qwen2moe-first": (lambda: qwen2moe(4, True), ["shared_router"]),
    "granite-code": (lambda: granite_code(1), ["qkv_bias", "attn_output.bias", "ffn_gate.bias", "ffn_up.bias",
                                               "ffn_down.bias"]),
    "llama-stretched": (lambda: stretched(1), ["rope.scale_linear"]),
    "granitemoe": (lambda: granite_moe(1, 0), ["softmax", "embedding_scale", "residual_scale",
                                                  "attention.scale", "logit_scale"]),
    "granitemoe-shared": (lambda: granite_moe(1, 48), ["shared"]),
    "glm-5.2": (lambda: glm_5_2(1), ["attention.indexer.top_k", "shared_choice"]),
    "kimi-linear-small": (lambda: kimi_linear(1), ["by_channel", "nope", "normalize", "shared"]),
    "nemotron-3": (lambda: nemotron_3(1), ["nope", "squared", "normalize", "shared", "expert_weights_scale"]),
    "minimax-m3-small": (lambda: minimax_m3(1), ["attention.indexer.top_k", "local", "clamped", "qk_norm", "shared"]),
    "deepseek2-v2": (lambda: deepseek_v2(5), ["groups", "greedy", "normalize", "shared", "expert_weights_scale",
                                             "rope.scaling.type", "rope.scaling.yarn_log_multiplier", "truncate"]),
}


def write_rows(path, rows):
    with open(path, "wb") as f:
        for r in rows:
            array("f", r).tofile(f)


def write_models(folder, models=MODELS):
    for name, (build, _) in models.items():
        build().write(os.path.join(folder, name + ".gguf"))


def make(folder, models=MODELS, model=Model, n_ids=56):
    write_models(folder, models)
    rng = random.Random(0)
    ids = [rng.randrange(N_VOCAB) for _ in range(n_ids)]
    open(os.path.join(folder, "ids"), "w").write(",".join(map(str, ids)))
    for name, (_, features) in models.items():
        path = os.path.join(folder, name)
        g = Gguf(path + ".gguf")
        m = model(g)
        rows = list(m.logits(ids))
        write_rows(path + ".true.f32", rows)
        flat = [v for r in rows for v in r]
        print("%-16s logits deviate by %.2f, the closest choice by %.1e" %
              (name, math.sqrt(dot(flat, flat) / len(flat)), m.gap))
        # f32 rounds scores by some 1e-6.
        if m.gap < 1e-4:
            sys.exit("%s: a choice is too close: take another seed" % name)
        for feature in features:
            other = list(model(g, [feature]).logits(ids))
            change = sorted(max(abs(a - b) for a, b in zip(r, o)) for r, o in zip(rows, other))
            print("%-16s without %s: median %.2f, largest %.2f" %
                  ("", feature, change[len(change) // 2], change[-1]))
            if change[-1] < 0.1:
                sys.exit("%s: %s makes no difference" % (name, feature))


def rename(source, target, names):
    g, names = Gguf(source), dict(zip(names[::2], names[1::2]))
    if not all(old in g.keys for old in names):
        sys.exit("%s lacks one of %s" % (source, " ".join(names)))
    g.raw = {names.get(k, k): v for k, v in g.raw.items()}
    g.write(target)


def beside(source, target, names):
    g = Gguf(source)
    n = g.tensors["output_norm.weight"][0][0]
    for name in names:
        g.tensors[name] = [(n,), F32, array("f", [0.5] * n).tobytes()]
    g.write(target)


def cap(source, target, logits, capped, c):
    g = Gguf(source)
    g.put("gemma3.final_logit_softcapping", c)
    g.write(target)
    write_rows(capped, [[c * math.tanh(x / c) for x in array("f", open(logits, "rb").read())]])


def suppress(source, target, logits, suppressed, *ids):
    """Tokens that never come: their logits are -inf, which compare() takes for the same."""
    g, ids = Gguf(source), list(map(int, ids))
    g.put("tokenizer.ggml.suppress_tokens", ids)
    g.write(target)
    x, n = array("f", open(logits, "rb").read()), g.tensors["token_embd.weight"][0][1]
    for row in range(0, len(x), n):
        for i in ids:
            x[row + i] = -math.inf
    write_rows(suppressed, [x])


def compare(a, b, tolerance):
    x, y = (array("f", open(p, "rb").read()) for p in (a, b))
    if len(x) > len(y) or len(x) == 0:
        sys.exit("%s has %d numbers, %s has %d" % (a, len(x), b, len(y)))
    worst = max(0 if p == q else abs(p - q) for p, q in zip(x, y))
    print("%s: largest difference %.2e" % (a, worst))
    if not worst <= tolerance:
        sys.exit("%s and %s differ by more than %g" % (a, b, tolerance))


if __name__ == "__main__":
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "models":
        write_models(*arguments)
    elif command == "make":
        make(*arguments)
    elif command == "rename":
        rename(*arguments[:2], arguments[2:])
    elif command == "beside":
        beside(*arguments[:2], arguments[2:])
    elif command == "cap":
        cap(*arguments[:4], float(arguments[4]))
    elif command == "suppress":
        suppress(*arguments)
    elif command == "logits":
        write_rows(arguments[2], Model(Gguf(arguments[0]), arguments[3:]).logits(list(map(int, arguments[1].split(",")))))
    else:
        compare(arguments[0], arguments[1], float(arguments[2]))
