#!/usr/bin/env python3
"""What reference.py has no layers for, in float64 as there: delta nets with a decay for each head, Mamba-2, short
convolutions, layers whose heads differ, Gemma 4 and Kimi K3. Written from the papers, from transformers'
modeling_*.py, and from the formulas of docs/models/kimi-k3.md.

usage: reference_newer.py COMMAND ...   as reference.py
"""
import math
import sys

import reference
from reference import Model, best, dot, gelu, product, sigmoid, softmax


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
    SIGMOID = {"nemotron_h_moe", "lfm2moe", "step35"}
    NORMALIZED = {"qwen3next", "qwen35moe", "mistral3", "lfm2moe", "ernie4_5-moe", "gemma4"}

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

    def slides(self, layer):
        return bool(self.of_layer("attention.sliding_window_pattern", layer))

    def kind(self, layer):
        """Of this layer: the size of a head, RoPE's frequencies, the window or 0."""
        dim, base, window = self.key_dim, self.key("rope.freq_base", 10000.0), 0
        rot = self.key("rope.dimension_count", dim)
        if self.arch not in ("gemma4", "step35"):
            slides = self.arch == "lfm2" and "attention.sliding_window" not in self.without
            return dim, self.freqs, self.key("attention.sliding_window", 0) if slides else 0
        slides = self.slides(layer)
        if slides:
            dim = self.key("attention.key_length_swa", dim)
            rot = self.key("rope.dimension_count_swa", rot)
            base = self.key("rope.freq_base_swa", base)
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
        if self.has(layer, "attn_k.weight"):
            k = self.project(layer, x, "k", n_kv, dim)
            v = self.project(layer, x, "v", n_kv, dim) if self.has(layer, "attn_v.weight") else k
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
        scale = 1.0 if self.arch == "gemma4" else self.key("attention.scale", 1 / math.sqrt(dim))
        for h, query in enumerate(q):
            p = softmax([scale * dot(query, keys[h // group]) for keys, _ in seen])
            out.append([sum(w * values[h // group][i] for w, (_, values) in zip(p, seen)) for i in range(dim)])
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
        add = self.key("residual_scale", 1.0)
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
        by = math.sqrt(self.width) if gemma else self.key("embedding_scale", 1.0)
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
            cap = self.key("final_logit_softcapping", 0)
            yield [cap * math.tanh(v / cap) for v in y] if cap else y
