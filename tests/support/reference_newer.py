#!/usr/bin/env python3
"""What reference.py has no layers for, in float64 as there: delta nets with a decay for each head, Mamba-2, short
convolutions, layers whose heads differ, Gemma 4 and Kimi K3. Written from the papers, from transformers'
modeling_*.py, and from the formulas of docs/models/kimi-k3.md.

usage: reference_newer.py make FOLDER      as reference.py
       reference_newer.py logits IN.gguf IDS OUT [WITHOUT...]
       reference_newer.py drop IN.gguf OUT.gguf TENSOR
"""
import math
import sys

import reference
from hf_folder import Gguf
from reference import COMMON, Maker, Model, best, dot, gelu, product, sigmoid, softmax


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return x if x > 30 else math.log1p(math.exp(x))


def plus(a, b):
    return [x + y for x, y in zip(a, b)]


def unit(x):
    r = 1 / math.sqrt(dot(x, x) + 1e-6)
    return [v * r for v in x]


def cut(x, *sizes):
    """Pieces of x; the last one is the rest."""
    out, at = [], 0
    for n in sizes:
        out.append(x[at:at + n])
        at += n
    return out + [x[at:]]


class Newer(Model):
    PAIRS = Model.PAIRS | {"mistral3", "granitehybrid", "ernie4_5-moe"}
    FFN_NORM = {"qwen3next": "post_attention_norm", "qwen35": "post_attention_norm",
                "qwen35moe": "post_attention_norm"}
    ONE_BLOCK = {"nemotron_h", "nemotron_h_moe"}  # a layer: one block behind one norm
    NO_ROPE = {"nemotron_h", "nemotron_h_moe", "kimi-linear", "kimi-k3"}
    SIGMOID = {"nemotron_h_moe", "lfm2moe", "step35", "mimo2"}
    NORMALIZED = {"qwen3next", "qwen35moe", "mistral3", "lfm2moe", "ernie4_5-moe", "gemma4", "kimi-linear", "mimo2"}

    def of_layer(self, name, layer):
        v = self.key(name)
        return v[layer] if isinstance(v, list) else v

    # ---- layers that keep a state

    def convolution(self, layer, name, past, x):
        """A causal convolution of each channel; past: the inputs so far."""
        past.append(x)
        n = len(self.w(layer, name)[0])
        seen = past[-n:]
        out = [dot(taps[n - len(seen):], [s[c] for s in seen]) for c, taps in enumerate(self.w(layer, name))]
        return out

    def state(self, layer, heads, rows, cols):
        zeros = [[[0.0] * cols for _ in range(rows)] for _ in range(heads)]
        return self.states.setdefault(layer, ([], zeros))

    def delta_inputs(self, layer, x, n_k, n_v, d, dv):
        """Queries, keys and values in a row, and the gates of the results."""
        if not self.has(layer, "ssm_in.weight"):
            return product(self.w(layer, "attn_qkv.weight"), x), product(self.w(layer, "attn_gate.weight"), x)
        y, each = product(self.w(layer, "ssm_in.weight"), x), n_v // n_k * dv
        heads = [cut(y[i * (2 * d + 2 * each):], d, d, each, each) for i in range(n_k)]
        row = [sum((h[i] for h in heads), []) for i in range(4)]
        return row[0] + row[1] + row[2], row[3]

    def delta_net(self, layer, x):
        """Gated DeltaNet, arXiv 2412.06464, as transformers' torch_recurrent_gated_delta_rule."""
        n_k, n_v, d, inner = (self.key("ssm." + k) for k in ("group_count", "time_step_rank", "state_size", "inner_size"))
        dv, ratio = inner // n_v, n_v // n_k
        past, states = self.state(layer, n_v, d, dv)
        row, z = self.delta_inputs(layer, x, n_k, n_v, d, dv)
        q, k, v = cut([silu(a) for a in self.convolution(layer, "ssm_conv1d.weight", past, row)], n_k * d, n_k * d)
        if self.has(layer, "ssm_ba.weight"):  # of each key head: betas, then alphas
            ba = product(self.w(layer, "ssm_ba.weight"), x)
            beta = [ba[h // ratio * 2 * ratio + h % ratio] for h in range(n_v)]
            alpha = [ba[h // ratio * 2 * ratio + ratio + h % ratio] for h in range(n_v)]
        else:
            beta, alpha = (product(self.w(layer, "ssm_%s.weight" % w), x) for w in ("beta", "alpha"))
        rate, bias = self.w(layer, "ssm_a")[0], self.w(layer, "ssm_dt.bias")[0]
        tiled = (self.arch != "qwen3next") != ("tiled" in self.without)
        out = []
        for h, s in enumerate(states):
            of = h % n_k if tiled else h // ratio
            qh, kh = (unit(a[of * d:(of + 1) * d]) for a in (q, k))
            by = 1.0 if "decay" in self.without else math.exp(rate[h] * softplus(alpha[h] + bias[h]))
            for i in range(d):
                s[i] = [a * by for a in s[i]]
            learned = [(v[h * dv + j] - sum(s[i][j] * kh[i] for i in range(d))) * sigmoid(beta[h]) for j in range(dv)]
            for i in range(d):
                s[i] = [a + kh[i] * b for a, b in zip(s[i], learned)]
            o = [sum(s[i][j] * qh[i] for i in range(d)) / math.sqrt(d) for j in range(dv)]
            out += [a * silu(g) for a, g in zip(self.norm(o, self.w(layer, "ssm_norm.weight")), z[h * dv:(h + 1) * dv])]
        return product(self.w(layer, "ssm_out.weight"), out)

    def mamba2(self, layer, x):
        """arXiv 2405.21060, as the recurrence; the gate comes before the norm of each group."""
        inner, groups, n, heads = (self.key("ssm." + k) for k in ("inner_size", "group_count", "state_size", "time_step_rank"))
        dim, per = inner // heads, heads // groups
        past, states = self.state(layer, heads, dim, n)
        z, row, dt = cut(product(self.w(layer, "ssm_in.weight"), x), inner, inner + 2 * groups * n)
        row = plus(self.convolution(layer, "ssm_conv1d.weight", past, row), self.w(layer, "ssm_conv1d.bias")[0])
        u, b, c = cut([silu(v) for v in row], inner, groups * n)
        dt = [softplus(v) for v in plus(dt, self.w(layer, "ssm_dt.bias")[0])]
        rate, skip = ([r[0] for r in self.w(layer, name)] for name in ("ssm_a", "ssm_d"))
        y = []
        for h, s in enumerate(states):
            g = h // per if "groups" not in self.without else h % groups
            bh, ch, by = b[g * n:(g + 1) * n], c[g * n:(g + 1) * n], math.exp(dt[h] * rate[h])
            for i in range(dim):
                v = u[h * dim + i]
                s[i] = [a * by + dt[h] * v * e for a, e in zip(s[i], bh)]
                y.append(dot(s[i], ch) + ("skip" not in self.without) * skip[h] * v)
        y, width, norm = [a * silu(g) for a, g in zip(y, z)], inner // groups, self.w(layer, "ssm_norm.weight")
        out = sum((self.norm(y[g * width:(g + 1) * width], [norm[g]]) for g in range(groups)), [])
        return product(self.w(layer, "ssm_out.weight"), out)

    def short_convolution(self, layer, x):
        """LFM2, as transformers' Lfm2ShortConv."""
        b, c, u = cut(product(self.w(layer, "shortconv.in_proj.weight"), x), self.width, self.width)
        past, _ = self.state(layer, 0, 0, 0)
        y = self.convolution(layer, "shortconv.conv.weight", past, [p * q for p, q in zip(b, u)])
        return product(self.w(layer, "shortconv.out_proj.weight"), [p * q for p, q in zip(c, y)])

    # ---- attention

    def project(self, layer, x, which, n, dim):
        """Q, K and V may have one matrix."""
        if not self.has(layer, "attn_qkv.weight"):
            return super().project(layer, x, which, n, dim)
        heads = [self.of_layer("attention.head_count", layer)] + 2 * [self.of_layer("attention.head_count_kv", layer)]
        nth = "qkv".index(which)
        begin, end = sum(heads[:nth]) * dim, sum(heads[:nth + 1]) * dim
        y = product(self.w(layer, "attn_qkv.weight")[begin:end], x)
        if self.has(layer, "attn_qkv.bias"):
            y = plus(y, self.w(layer, "attn_qkv.bias")[0][begin:end])
        return [y[i * dim:(i + 1) * dim] for i in range(n)]

    def slides(self, layer):
        return bool(self.of_layer("attention.sliding_window_pattern", layer))

    def kind(self, layer):
        """Of this layer: the size of a head, RoPE's frequencies, the window or 0."""
        dim, base, window = self.key_dim, self.key("rope.freq_base", 10000.0), 0
        rot = self.key("rope.dimension_count", dim)
        if self.arch not in ("gemma4", "step35", "mimo2"):
            slides = self.arch == "lfm2" and "attention.sliding_window" not in self.without
            return dim, self.freqs, self.key("attention.sliding_window", 0) if slides else 0
        slides = self.slides(layer)
        if slides:
            dim = self.key("attention.key_length_swa", dim)
            rot = self.key("rope.dimension_count_swa", rot)
            base = self.key("rope.freq_base_swa", 10000.0)
            window = self.key("attention.sliding_window", 0)
        elif self.arch == "step35":  # partial_rotary_factors
            rot //= 2
        freqs = [base ** (-2 * i / rot) for i in range(rot // 2)]
        if not slides and "rope_freqs.weight" in self.g.tensors and "rope_freqs" not in self.without:
            freqs = [f / by for f, by in zip(freqs, self.rows("rope_freqs.weight")[0])]
        return dim, freqs, window

    def turn(self, x, pos, plain=False, halves=False):
        return list(x) if self.arch in self.NO_ROPE else super().turn(x, pos, plain, halves)

    def turned(self, x, pos, freqs, by=1.0):
        out, half = list(x), len(freqs)
        if self.arch in self.NO_ROPE or self.arch == "granitehybrid" and not self.key("rope.scaling.finetuned", True):
            return out
        for i, f in enumerate(freqs):
            a, b = (2 * i, 2 * i + 1) if self.arch in self.PAIRS else (i, i + half)
            c, s = by * math.cos(pos * f), by * math.sin(pos * f)
            out[a], out[b] = x[a] * c - x[b] * s, x[a] * s + x[b] * c
        return out

    def grouped_attention(self, layer, x, pos, past):
        dim, freqs, window = self.kind(layer)
        n, n_kv = self.of_layer("attention.head_count", layer), self.of_layer("attention.head_count_kv", layer)
        gated = self.arch in self.FFN_NORM  # Qwen3-Next's
        q = self.project(layer, x, "q", n, 2 * dim if gated else dim)
        gates = [h[dim:] for h in q] if gated else None
        q = self.head_normed(layer, "q", [h[:dim] for h in q])
        fused = self.has(layer, "attn_qkv.weight")
        if fused or self.has(layer, "attn_k.weight"):
            k = self.project(layer, x, "k", n_kv, dim)
            v_dim = self.key("attention.value_length") if self.arch == "mimo2" else dim
            v = self.project(layer, x, "v", n_kv, v_dim) if fused or self.has(layer, "attn_v.weight") else k
            k = [self.turned(h, pos, freqs) for h in self.head_normed(layer, "k", k)]
            if self.arch == "gemma4":
                v = [self.norm(h, [[1.0] * dim]) for h in v]
            past.append((k, v))
        q = [self.turned(h, pos, freqs) for h in q]
        grows = self.key("attention.temperature_scale", 0)
        if grows:  # mistral3
            by = 1 + grows * math.log(1 + pos // self.key("rope.scaling.original_context_length"))
            q = [[v * by for v in h] for h in q]
        seen, out, group = past[-window:] if window else past, [], n // n_kv
        sinks = self.has(layer, "attn_sinks.weight") and "sinks" not in self.without
        by = self.key("attention.value_scale", 1.0)
        scale = 1.0 if self.arch == "gemma4" else self.key("attention.scale", 0) or 1 / math.sqrt(dim)
        for h, query in enumerate(q):
            sink = [self.w(layer, "attn_sinks.weight")[0][h]] if sinks else []
            p = softmax([scale * dot(query, keys[h // group]) for keys, _ in seen] + sink)
            out.append([by * sum(w * values[h // group][i] for w, (_, values) in zip(p, seen))
                        for i in range(len(v[0]) if self.arch == "mimo2" else dim)])
        if gates and "gates" not in self.without:
            out = [[a * sigmoid(b) for a, b in zip(o, g)] for o, g in zip(out, gates)]
        if self.has(layer, "attn_gate.weight") and "gates" not in self.without:  # one number for each head
            by = product(self.w(layer, "attn_gate.weight"), x)
            out = [[a * sigmoid(b) for a in o] for o, b in zip(out, by)]
        y = product(self.w(layer, "attn_output.weight"), sum(out, []))
        return self.plus_bias(layer, "attn_output", y)

    def head_normed(self, layer, which, heads):
        name = "attn_%s_norm.weight" % which
        if not self.has(layer, name) or "qk_norm" in self.without:
            return heads
        return [self.norm(h, self.w(layer, name)) for h in heads]

    def gated(self, layer, x, out):
        """Kimi K3: each value of latent attention has a gate."""
        if not self.has(layer, "attn_gate.weight"):
            return out
        return [a * sigmoid(g) for a, g in zip(out, product(self.w(layer, "attn_gate.weight"), x))]

    def channel_decay(self, rate, x):
        least = self.key("kda.gate_lower_bound", 0)
        return math.exp(least * sigmoid(-rate * x)) if least else super().channel_decay(rate, x)

    def attention(self, layer, x, pos, past):
        if self.latent:
            return super().attention(layer, x, pos, past)
        if self.has(layer, "ssm_d"):
            return self.mamba2(layer, x)
        if self.has(layer, "ssm_a"):
            return self.delta_net(layer, x)
        if self.has(layer, "shortconv.in_proj.weight"):
            return self.short_convolution(layer, x)
        return self.grouped_attention(layer, x, pos, past)

    # ---- FFN

    def limit(self, layer, name):
        v = self.key("swiglu_clamp_" + ("exp" if name == "_exps" else "shexp"), 0)
        return (v[layer] if isinstance(v, list) else v) or math.inf

    def ffn(self, layer, name, x, nth=None):
        matrix = lambda part: (lambda w: w if nth is None else w[nth])(self.w(layer, "ffn_%s%s.weight" % (part, name)))
        with_bias = lambda part, y: self.plus_bias(layer, "ffn_%s%s" % (part, name), y)
        if self.arch in self.ONE_BLOCK:  # no gate
            return with_bias("down", product(matrix("down"), [max(v, 0) ** 2 for v in with_bias("up", product(matrix("up"), x))]))
        if nth is not None and self.has(layer, "ffn_gate_up_exps.weight"):
            both = matrix("gate_up")
            gate, up = both[:len(both) // 2], both[len(both) // 2:]
        else:
            gate, up = matrix("gate"), matrix("up")
        act = gelu if self.arch == "gemma4" else silu
        if self.arch == "kimi-k3":
            b, l = self.key("activation.situ_beta"), self.key("activation.situ_linear_beta")
            return product(matrix("down"), [b * math.tanh(g / b) * sigmoid(g) * l * math.tanh(u / l)
                                            for g, u in zip(product(gate, x), product(up, x))])
        most = self.limit(layer, name)
        g = [min(act(v), most) for v in with_bias("gate", product(gate, x))]
        u = [min(max(v, -most), most) for v in with_bias("up", product(up, x))]
        return with_bias("down", product(matrix("down"), [a * b for a, b in zip(g, u)]))

    def choose(self, layer, x):
        n_used = self.key("expert_used_count")
        if self.arch == "gemma4":
            x = [v / math.sqrt(self.width) * s for v, s in
                 zip(self.norm(x, [[1.0] * self.width]), self.w(layer, "ffn_gate_inp.scale")[0])]
        logits = product(self.w(layer, "ffn_gate_inp.weight"), x)
        func = self.key("expert_gating_func", 2 if self.arch in self.SIGMOID else 1)
        p = [sigmoid(v) for v in logits] if func == 2 else softmax(logits)
        if self.arch == "granitehybrid":  # softmax over the chosen
            p = logits
        scores = plus(p, self.w(layer, "exp_probs_b.bias")[0]) if self.has(layer, "exp_probs_b.bias") else p
        chosen, gap = best(scores, n_used)
        self.gap = min(self.gap, gap)
        w = [p[i] for i in chosen]
        if self.arch == "granitehybrid":
            w = softmax(w)
        elif self.key("expert_weights_norm", self.arch in self.NORMALIZED) and "normalize" not in self.without:
            w = [v / sum(w) for v in w]
        scale = self.key("expert_weights_scale", 0) or 1
        of = self.w(layer, "ffn_down_exps.scale")[0] if self.has(layer, "ffn_down_exps.scale") else [1.0] * 999
        return {i: v * scale * of[i] for i, v in zip(chosen, w)}

    def beside(self, layer, x):
        """Gemma 4: experts beside the dense FFN."""
        y = self.ffn(layer, "", self.norm_if(layer, "ffn_norm", x))
        if not self.has(layer, "ffn_gate_inp.weight"):
            return y
        read = self.norm_if(layer, "pre_ffw_norm_2", x)
        out = [0.0] * self.width
        for i, w in self.choose(layer, x).items():
            out = plus(out, [w * v for v in self.ffn(layer, "_exps", read, i)])
        return plus(self.norm_if(layer, "post_ffw_norm_1", y), self.norm_if(layer, "post_ffw_norm_2", out))

    def experts(self, layer, x):
        if not self.has(layer, "ffn_routed_down.weight"):
            return super().experts(layer, x)
        read, out = product(self.w(layer, "ffn_routed_down.weight"), x), None
        for i, w in self.choose(layer, x).items():
            y = [w * v for v in self.ffn(layer, "_exps", read, i)]
            out = plus(out, y) if out else y
        out = product(self.w(layer, "ffn_routed_up.weight"), self.norm_if(layer, "ffn_routed_norm", out))
        return plus(out, self.ffn(layer, "_shexp", x))

    # ---- the whole

    def mixed(self, kept, x, score):
        """Kimi K3: a mixture of the streams that were kept and the current one."""
        streams, ones = kept + [x], [[1.0] * self.width]
        p = softmax([dot(score[0], self.norm(s, ones)) for s in streams])
        return [sum(w * v for w, v in zip(p, column)) for column in zip(*streams)]

    def mixed_layers(self, x, pos, caches):
        kept = []
        for layer, past in enumerate(caches):
            y = self.mixed(kept, x, self.w(layer, "attn_res_score.weight"))
            y = self.attention(layer, self.norm_if(layer, "attn_norm", y), pos, past)
            if layer % self.key("attn_res.block_size") == 0:
                kept.append(x)
                x = y
            else:
                x = plus(x, y)
            y = self.norm_if(layer, "ffn_norm", self.mixed(kept, x, self.w(layer, "ffn_res_score.weight")))
            x = plus(x, self.experts(layer, y) if self.has(layer, "ffn_gate_inp.weight") else self.ffn(layer, "", y))
        return self.mixed(kept, x, self.rows("output_res_score.weight"))

    def block(self, layer, x, pos, past):
        add = self.key("residual_scale", 0) or 1.0
        into = lambda x, y: [a + add * b for a, b in zip(x, y)]
        ffn = lambda y: self.experts(layer, y) if self.has(layer, "ffn_gate_inp.weight") else self.ffn(layer, "", y)
        if self.arch in self.ONE_BLOCK:
            y = self.norm_if(layer, "attn_norm", x)
            mixes = self.has(layer, "attn_q.weight") or self.has(layer, "ssm_in.weight")
            return into(x, self.attention(layer, y, pos, past) if mixes else ffn(y))
        x = into(x, self.attention(layer, self.norm_if(layer, "attn_norm", x), pos, past))
        return into(x, ffn(self.norm_if(layer, self.FFN_NORM.get(self.arch, "ffn_norm"), x)))

    def gemma_block(self, layer, x, pos, past, of_token):
        y = self.attention(layer, self.norm_if(layer, "attn_norm", x), pos, past)
        x = plus(x, self.norm_if(layer, "post_attention_norm", y))
        x = plus(x, self.norm_if(layer, "post_ffw_norm", self.beside(layer, x)))
        if of_token and "layer_input" not in self.without:
            y = [gelu(a) * b for a, b in zip(product(self.w(layer, "inp_gate.weight"), x), of_token[layer])]
            x = plus(x, self.norm_if(layer, "post_norm", product(self.w(layer, "proj.weight"), y)))
        if self.has(layer, "layer_output_scale.weight"):
            x = [v * self.w(layer, "layer_output_scale.weight")[0][0] for v in x]
        return x

    def layer_inputs(self, token, x):
        """Per-Layer Embeddings, as transformers' project_per_layer_inputs."""
        n = self.key("embedding_length_per_layer_input", 0)
        if not n:
            return None
        whole = [v / math.sqrt(self.width) for v in product(self.rows("per_layer_model_proj.weight"), x)]
        own = self.rows("per_layer_token_embd.weight")[token]
        return [[(a * math.sqrt(n) + b) / math.sqrt(2) for a, b in
                 zip(own[i:i + n], self.norm(whole[i:i + n], self.rows("per_layer_proj_norm.weight")))]
                for i in range(0, len(whole), n)]

    def cache_of(self, layer, caches):
        """The layers at the end use the cache of the last earlier one of their kind."""
        n_own = len(caches) - self.key("attention.shared_kv_layers", 0)
        if layer < n_own:
            return caches[layer]
        return caches[max(i for i in range(n_own) if self.slides(i) == self.slides(layer))]

    def logits(self, ids):
        caches = [[] for _ in range(self.key("block_count") - self.key("nextn_predict_layers", 0))]
        gemma = self.arch == "gemma4"
        by = math.sqrt(self.width) if gemma else self.key("embedding_scale", 0) or 1.0
        head = "output.weight" if "output.weight" in self.g.tensors else "token_embd.weight"
        norm = "output_norm.weight" if "output_norm.weight" in self.g.tensors else "token_embd_norm.weight"
        for pos, i in enumerate(ids):
            x = [v * by for v in self.rows("token_embd.weight")[i]]
            of_token = self.layer_inputs(i, x) if gemma else None
            if self.arch == "kimi-k3":
                x, caches_of = self.mixed_layers(x, pos, caches), []
            else:
                caches_of = caches
            for layer in range(len(caches_of)):
                if gemma:
                    x = self.gemma_block(layer, x, pos, self.cache_of(layer, caches), of_token)
                else:
                    x = self.block(layer, x, pos, caches[layer])
            y = [v / self.key("logit_scale", 1.0) for v in product(self.rows(head), self.norm(x, self.rows(norm)))]
            cap = self.key("final_logit_softcapping", 30.0 if gemma else 0)  # Gemma 4's own
            yield [cap * math.tanh(v / cap) for v in y] if cap else y


# ---- models: what the golden ones do not have -------------------------------------------------

class Newest(Maker):
    def model(self, layer, norms=("attn_norm", "ffn_norm"), tied=False):
        return super().model(layer, norms, tied)

    def mamba2(self, prefix, inner, groups, state, heads, taps):
        channels = inner + 2 * groups * state
        self.matrix(prefix + "ssm_in.weight", 64, inner + channels + heads)
        self.matrix(prefix + "ssm_conv1d.weight", taps, channels)
        self.add(prefix + "ssm_conv1d.bias", (channels,), 0.3)
        self.add(prefix + "ssm_dt.bias", (heads,), 0.5)
        self.add(prefix + "ssm_a", (1, heads), 0.3, -1.0)
        self.add(prefix + "ssm_d", (1, heads), 0.3, 1.0)
        self.add(prefix + "ssm_norm.weight", (inner // groups, groups), 0.2, 1.0)
        self.matrix(prefix + "ssm_out.weight", inner, 64)

    def heads(self, prefix, n, n_kv, dim, *, bias=False, norms=False, doubled=False, fused=False, value=True):
        rows = n * dim * (2 if doubled else 1), n_kv * dim, n_kv * dim
        if fused:
            self.matrix(prefix + "attn_qkv.weight", 64, sum(rows))
        for which, r in () if fused else zip("qkv" if value else "qk", rows):
            self.matrix("%sattn_%s.weight" % (prefix, which), 64, r)
        for which, r in zip(["qkv"] if fused else "qkv", [sum(rows)] if fused else rows) if bias else ():
            self.add("%sattn_%s.bias" % (prefix, which), (r,), 0.5)
        for which in "qk" if norms else "":
            self.norm("%sattn_%s_norm.weight" % (prefix, which), dim)
        self.matrix(prefix + "attn_output.weight", n * dim, 64)


WIDE = dict(COMMON, embedding_length=64, feed_forward_length=96, attention__head_count=4, attention__head_count_kv=2,
            attention__key_length=16, attention__value_length=16, rope__dimension_count=16, rope__freq_base=1e4)


def qwen_next(arch, seed, recurrent, n_k, ratio, d, taps, listed):
    """listed: attention.recurrent_layers says it, and full_attention_interval something else."""
    n, expert = n_k * ratio, arch != "qwen35"
    keys = dict(WIDE, block_count=len(recurrent), rope__dimension_count=4, ssm__conv_kernel=taps, ssm__state_size=d,
                ssm__group_count=n_k, ssm__time_step_rank=n, ssm__inner_size=n * d, full_attention_interval=2)
    if listed:
        keys["attention__recurrent_layers"] = recurrent
    if expert:
        keys.update(expert_count=8, expert_used_count=3, expert_feed_forward_length=16,
                    expert_shared_feed_forward_length=24)
    m = Newest(arch, seed, **keys)

    def layer(i, prefix):
        if not recurrent[i]:
            m.heads(prefix, 4, 2, 16, norms=True, doubled=True)
        else:
            channels = (2 * n_k + n) * d
            if arch == "qwen3next" and d % 16 == 0:
                m.matrix(prefix + "ssm_in.weight", 64, channels + n * d)
            else:
                m.matrix(prefix + "attn_qkv.weight", 64, channels)
                m.matrix(prefix + "attn_gate.weight", 64, n * d)
            for name in ["ba"] if arch == "qwen3next" else ["beta", "alpha"]:
                m.matrix("%sssm_%s.weight" % (prefix, name), 64, 2 * n if name == "ba" else n)
            m.matrix(prefix + "ssm_conv1d.weight", taps, channels)
            m.add(prefix + "ssm_dt.bias", (n,), 0.5)
            m.add(prefix + "ssm_a", (n,), 0.3, -1.0)
            m.norm(prefix + "ssm_norm.weight", d)
            m.matrix(prefix + "ssm_out.weight", n * d, 64)
        if expert:
            m.experts(prefix, 16, 24)
            m.add(prefix + "ffn_gate_inp_shexp.weight", (64,), 0.2)
        else:
            m.ffn(prefix, "", 96)
    return m.model(layer, ("attn_norm", "post_attention_norm"))


def nemotron_h(seed):
    """Biases, three groups, a convolution of 3; blocks that begin with an FFN and end with attention."""
    pattern = "FMAFMA"
    m = Newest("nemotron_h", seed, **dict(
        WIDE, block_count=len(pattern), attention__head_count_kv=[2 if c == "A" else 0 for c in pattern],
        feed_forward_length=[96 if c == "F" else 0 for c in pattern], ssm__conv_kernel=3, ssm__state_size=12,
        ssm__group_count=3, ssm__time_step_rank=6, ssm__inner_size=96))

    def layer(i, prefix):
        if pattern[i] == "M":
            m.mamba2(prefix, 96, 3, 12, 6, 3)
        elif pattern[i] == "A":
            m.heads(prefix, 4, 2, 16, bias=True)
            m.add(prefix + "attn_output.bias", (64,), 0.5)
        else:
            for name, dims in (("up", (64, 96)), ("down", (96, 64))):
                m.matrix("%sffn_%s.weight" % (prefix, name), *dims, by=1.5)
                m.add("%sffn_%s.bias" % (prefix, name), (dims[1],), 0.5)
    return m.model(layer, ("attn_norm",))


def granite_hybrid(seed):
    """Dense, with RoPE, two groups, biases where attention is, and factors of 0, which count as none."""
    pattern = [0, 2, 0, 2]
    m = Newest("granitehybrid", seed, **dict(
        WIDE, block_count=4, attention__head_count_kv=pattern, ssm__conv_kernel=4, ssm__state_size=16, ssm__group_count=2,
        ssm__time_step_rank=4, ssm__inner_size=64, attention__scale=0.0, residual_scale=0.0, embedding_scale=0.0,
        logit_scale=2.0))

    def layer(i, prefix):
        if pattern[i]:
            m.heads(prefix, 4, 2, 16, bias=True)
        else:
            m.mamba2(prefix, 64, 2, 16, 4, 4)
        m.ffn(prefix, "", 96)
    m.key = (lambda key: lambda name, default=0: key(name, default) or default)(m.key)
    return m.model(layer)


def lfm2(seed, pattern, window, taps=4):
    keys = dict(WIDE, block_count=len(pattern), attention__head_count_kv=pattern, shortconv__l_cache=taps)
    if window:
        keys["attention__sliding_window"] = window
    m = Newest("lfm2", seed, **keys)

    def layer(i, prefix):
        if pattern[i]:
            m.heads(prefix, 4, pattern[i], 16, norms=True)
        else:
            m.matrix(prefix + "shortconv.in_proj.weight", 64, 192)
            m.matrix(prefix + "shortconv.conv.weight", taps, 64)
            m.matrix(prefix + "shortconv.out_proj.weight", 64, 64)
        m.ffn(prefix, "", 96)
    g = m.model(layer, tied=True)
    g.tensors["token_embd_norm.weight"] = g.tensors.pop("output_norm.weight")
    return g


def step35(seed, pattern, factors, **keys):
    """Heads of either kind of layer in odd numbers; clamps on every layer; no dense layer; no rope.freq_base_swa."""
    heads = [5 if slides else 3 for slides in pattern]
    m = Newest("step35", seed, **dict(dict(
        WIDE, block_count=len(pattern), attention__head_count=heads, attention__head_count_kv=[1] * len(pattern),
        rope__freq_base=5e4, attention__sliding_window=7, attention__sliding_window_pattern=pattern, expert_count=8,
        expert_used_count=3, expert_feed_forward_length=16, expert_shared_feed_forward_length=40,
        expert_weights_scale=1.5, expert_weights_norm=True), **keys))

    def layer(i, prefix):
        m.heads(prefix, heads[i], 1, 16, norms=True)
        m.matrix(prefix + "attn_gate.weight", 64, heads[i])
        m.experts(prefix, 16, 40)
    m.add("rope_freqs.weight", (factors,), 0.3, 2.0)
    return m.model(layer)


def mimo2(seed, pattern):
    """MiMo-V2-Flash: sinks where a layer has a window, values narrower than keys, the first layer dense."""
    heads, kv = [4] * len(pattern), [2 if slides else 1 for slides in pattern]
    m = Newest("mimo2", seed, **dict(
        WIDE, block_count=len(pattern), attention__head_count=heads, attention__head_count_kv=kv,
        attention__key_length=24, attention__value_length=16, rope__dimension_count=8, rope__freq_base=5e4,
        rope__freq_base_swa=1e4, attention__sliding_window=7, attention__sliding_window_pattern=pattern,
        attention__value_scale=0.7, expert_count=8, expert_used_count=3, expert_feed_forward_length=16,
        expert_gating_func=2, expert_weights_norm=True))

    def layer(i, prefix):
        m.matrix(prefix + "attn_q.weight", 64, 4 * 24)
        m.matrix(prefix + "attn_k.weight", 64, kv[i] * 24)
        m.matrix(prefix + "attn_v.weight", 64, kv[i] * 16)
        m.matrix(prefix + "attn_output.weight", 4 * 16, 64)
        if pattern[i]:
            m.add(prefix + "attn_sinks.weight", (4,), 1.0)
        if i == 0:
            m.ffn(prefix, "", 96)
        else:
            m.experts(prefix, 16, 0)
            m.add(prefix + "exp_probs_b.bias", (8,), 0.3)
    return m.model(layer)


def gemma4(seed, pattern, shared, values, layer_input=0, n_experts=0):
    """values: whether windowed and full layers have attn_v. No softcap of its own, no rope.freq_base_swa."""
    n = len(pattern)
    ff = [96 if i < n - shared else 64 for i in range(n)]
    kv = [2 if slides else 1 for slides in pattern]
    keys = dict(WIDE, block_count=n, attention__head_count_kv=kv, feed_forward_length=ff, attention__key_length=24,
                attention__value_length=24, rope__dimension_count=24, attention__key_length_swa=16,
                attention__value_length_swa=16, rope__dimension_count_swa=16, rope__freq_base=1e5,
                attention__sliding_window=9, attention__sliding_window_pattern=pattern,
                attention__shared_kv_layers=shared, embedding_length_per_layer_input=layer_input)
    if n_experts:
        keys.update(expert_count=n_experts, expert_used_count=2, expert_feed_forward_length=24)
    m = Newest("gemma4", seed, **keys)

    def layer(i, prefix):
        dim = 16 if pattern[i] else 24
        own = i < n - shared
        m.heads(prefix, 4, kv[i], dim, norms=True, value=values[not pattern[i]])
        for name in () if own else ("k.weight", "v.weight", "k_norm.weight"):
            m.g.tensors.pop(prefix + "attn_" + name, None)
        m.ffn(prefix, "", ff[i])
        if n_experts:
            m.matrix(prefix + "ffn_gate_inp.weight", 64, n_experts, by=2.0)
            m.norm(prefix + "ffn_gate_inp.scale", 64)
            m.ffn(prefix, "_exps", 24, n_experts)
            for name in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"):
                m.norm(prefix + name + ".weight", 64)
        if layer_input:
            m.matrix(prefix + "inp_gate.weight", 64, layer_input)
            m.matrix(prefix + "proj.weight", layer_input, 64)
            m.norm(prefix + "post_norm.weight", 64)
    m.add("rope_freqs.weight", (12,), 0.3, 2.0)
    if layer_input:
        m.add("per_layer_token_embd.weight", (layer_input * n, reference.N_VOCAB), 0.5)
        m.matrix("per_layer_model_proj.weight", 64, layer_input * n)
        m.norm("per_layer_proj_norm.weight", layer_input)
    return m.model(layer, ("attn_norm", "ffn_norm") + reference.POST, tied=True)


def bailing(seed):
    """Two shared experts of the width that the key says of one; no group; all of a head turns."""
    m = Newest("bailingmoe2", seed, **dict(
        WIDE, expert_count=8, expert_used_count=3, expert_feed_forward_length=16, expert_shared_count=2,
        expert_shared_feed_forward_length=24, leading_dense_block_count=1, expert_weights_norm=True,
        expert_weights_scale=2.5, expert_gating_func=2))

    def layer(i, prefix):
        m.heads(prefix, 4, 2, 16, norms=True, fused=True)
        if i < 1:
            m.ffn(prefix, "", 96)
        else:
            m.experts(prefix, 16, 48)
            m.add(prefix + "exp_probs_b.bias", (8,), 0.3)
    return m.model(layer)


def mistral3(seed):
    """Experts, heads that share one key, one matrix for Q, K and V with a bias; YaRN without its magnitude."""
    m = Newest("mistral3", seed, **dict(
        WIDE, attention__head_count_kv=1, expert_count=6, expert_used_count=2, rope__scaling__type="yarn",
        rope__scaling__factor=8.0, rope__scaling__original_context_length=12, rope__scaling__yarn_log_multiplier=1.0,
        attention__temperature_scale=0.5))

    def layer(i, prefix):
        m.heads(prefix, 4, 1, 16, bias=True, fused=True)
        m.experts(prefix, 96, 0)
    return m.model(layer)


def kimi(seed):
    """No expert_weights_norm: Kimi Linear normalizes."""
    g = reference.kimi_linear(seed, n_heads=2, d=16)
    for part in (g.keys, g.raw):
        del part["kimi-linear.expert_weights_norm"]
    return g


YES, NO = True, False
MODELS = {
    "qwen35-listed": (lambda: qwen_next("qwen35", 1, [NO, YES, YES, NO, YES], 3, 3, 8, 3, True), ["tiled", "decay", "gates"]),
    "qwen35moe-all": (lambda: qwen_next("qwen35moe", 1, [YES, YES], 1, 4, 16, 4, True), ["decay", "shared"]),
    "qwen3next-joint": (lambda: qwen_next("qwen3next", 2, [YES, NO, YES, NO], 2, 3, 16, 2, False), ["tiled", "shared_router"]),
    "nemotron-biases": (lambda: nemotron_h(1), ["groups", "skip", "qkv_bias", "ffn_up.bias", "ffn_down.bias"]),
    "granite-dense": (lambda: granite_hybrid(1), ["qkv_bias", "groups"]),
    "lfm2-window": (lambda: lfm2(1, [0, 2, 0, 2], 6), ["attention.sliding_window", "qk_norm"]),
    "lfm2-all": (lambda: lfm2(2, [0, 0, 0], 0, 2), []),
    "step35-odd": (lambda: step35(1, [NO, YES, YES], 8, swiglu_clamp_exp=[0.5, 1.0, 0.7], swiglu_clamp_shexp=[0.4, 0.6, 0.0]),
                   ["rope_freqs", "gates", "swiglu_clamp_exp", "swiglu_clamp_shexp"]),
    "step35-full": (lambda: step35(1, [NO, NO], 4), ["rope_freqs", "gates"]),
    "mimo2-flash": (lambda: mimo2(2, [NO, YES, YES, NO, YES]), ["sinks", "attention.value_scale", "normalize"]),
    "gemma4-out-of-order": (lambda: gemma4(1, [NO, YES, YES, YES, NO, YES], 3, (YES, NO), 8), ["rope_freqs", "layer_input"]),
    "gemma4-experts": (lambda: gemma4(4, [YES, NO, YES], 0, (NO, YES), 0, 6), ["rope_freqs"]),
    "bailing-two-shared": (lambda: bailing(1), ["shared", "normalize"]),
    "mistral3-experts": (lambda: mistral3(1), ["attention.temperature_scale", "normalize"]),
    "kimi-normalized": (lambda: kimi(1), ["normalize"]),
}

if __name__ == "__main__":
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "make":
        reference.make(arguments[0], MODELS, Newer, 40)
    elif command == "drop":
        model = Gguf(arguments[0])
        del model.tensors[arguments[2]]
        model.write(arguments[1])
    else:
        reference.write_rows(arguments[2], Newer(Gguf(arguments[0]), arguments[3:]).logits(list(map(int, arguments[1].split(",")))))
