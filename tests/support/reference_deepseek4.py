"""DeepSeek V4 in float64, for reference.py: four residual streams, keys that are compressed by blocks, experts that
the first layers choose by the token. Written from the model card's words, one token after the other; nothing is
shared with src/ but the names in the file."""
import math
import struct

from reference import best, dot, product, sigmoid, softmax


def softplus(x):
    return max(x, 0) + math.log1p(math.exp(-abs(x)))


def turned(x, pos, freqs, back=False):
    """The last 2 * len(freqs) values, in neighbouring pairs."""
    out, first = list(x), len(x) - 2 * len(freqs)
    for i, f in enumerate(freqs):
        a, b = first + 2 * i, first + 2 * i + 1
        c, s = math.cos(pos * f), math.sin(pos * f) * (-1 if back else 1)
        out[a], out[b] = x[a] * c - x[b] * s, x[a] * s + x[b] * c
    return out


def small(maker, seed, n_vocab):
    """Other sizes than golden's, in whole blocks of 32 so that it can be quantized; more groups, three streams, a
    window that ends within a block."""
    ratios, e, dim, rank, index = [4, 0, 4], 64, 32, 32, (12, 32)
    m = maker("deepseek4", seed, context_length=512, block_count=len(ratios), embedding_length=e,
              attention__layer_norm_rms_epsilon=1e-6, attention__head_count=6, attention__head_count_kv=1,
              attention__key_length=dim, attention__value_length=dim, attention__q_lora_rank=rank,
              attention__output_lora_rank=rank, attention__output_group_count=3,
              attention__compress_ratios=ratios, attention__compress_rope_freq_base=4e4,
              attention__sliding_window=7, attention__indexer__head_count=index[0],
              attention__indexer__key_length=index[1], attention__indexer__top_k=4,
              rope__dimension_count=8, rope__freq_base=1e4, rope__scaling__type="yarn",
              rope__scaling__factor=8.0, rope__scaling__original_context_length=32,
              hyper_connection__count=3, hyper_connection__sinkhorn_iterations=6,
              hyper_connection__epsilon=1e-6, expert_count=8, expert_used_count=3, expert_shared_count=1,
              expert_feed_forward_length=32, expert_gating_func=4, expert_weights_norm=True,
              expert_weights_scale=2.0, hash_layer_count=1, swiglu_clamp_exp=1.5)

    def compressor(prefix, width):
        m.matrix(prefix + "_compressor_kv.weight", e, 2 * width)
        m.matrix(prefix + "_compressor_gate.weight", e, 2 * width, by=2.0)
        m.add(prefix + "_compressor_ape.weight", (2 * width, 4), 1.0)
        m.norm(prefix + "_compressor_norm.weight", width)

    def hyper(prefix, n, n_scales):
        m.matrix(prefix + "_fn.weight", 3 * e, n)
        m.add(prefix + "_scale.weight", (n_scales,), 0.2, 1.0)
        m.add(prefix + "_base.weight", (n,), 0.5)

    def layer(i, prefix):
        hyper(prefix + "hc_attn", 15, 3)
        hyper(prefix + "hc_ffn", 15, 3)
        m.matrix(prefix + "attn_q_a.weight", e, rank)
        m.norm(prefix + "attn_q_a_norm.weight", rank)
        m.matrix(prefix + "attn_q_b.weight", rank, 6 * dim)
        m.matrix(prefix + "attn_kv.weight", e, dim)
        m.norm(prefix + "attn_kv_a_norm.weight", dim)
        m.add(prefix + "attn_sinks.weight", (6,), 1.0)
        m.matrix(prefix + "attn_output_a.weight", 2 * dim, 3 * rank)
        m.matrix(prefix + "attn_output_b.weight", 3 * rank, e, by=2.0)
        if ratios[i]:
            compressor(prefix + "attn", dim)
            compressor(prefix + "indexer", index[1])
            m.matrix(prefix + "indexer.attn_q_b.weight", rank, index[0] * index[1])
            m.matrix(prefix + "indexer.proj.weight", e, index[0])
        m.experts(prefix, 32, 32)
        if i == 0:
            table = [v for _ in range(n_vocab) for v in m.random.sample(range(8), 3)]
            m.g.tensors[prefix + "ffn_gate_tid2eid.weight"] = [(3, n_vocab), 26, struct.pack("<%di" % len(table), *table)]
        else:
            m.add(prefix + "exp_probs_b.bias", (8,), 0.3)
    hyper("output_hc", 3, 1)
    return m.model(layer)


class Compressor:
    """Of one layer: what it makes of whole blocks of tokens."""

    def __init__(self, model, layer, prefix, ratio, freqs):
        self.w = lambda name: model.w(layer, "%s_compressor_%s.weight" % (prefix, name))
        self.model, self.ratio, self.freqs = model, ratio, freqs
        self.kv, self.gate, self.keys = [], [], []

    def add(self, x):
        """The next token's normed input."""
        at = len(self.kv) % self.ratio
        self.kv.append(product(self.w("kv"), x))
        self.gate.append([g + a for g, a in zip(product(self.w("gate"), x), self.w("ape")[at])])
        if at != self.ratio - 1:
            return
        first = len(self.kv) - self.ratio
        d = len(self.w("norm")[0])
        own = [(self.gate[t][-d:], self.kv[t][-d:]) for t in range(first, first + self.ratio)]
        before = []
        if len(self.kv[0]) == 2 * d and first > 0 and "overlap" not in self.model.without:
            before = [(self.gate[t][:d], self.kv[t][:d]) for t in range(first - self.ratio, first)]
        key = []
        for c in range(d):
            p = softmax([g[c] for g, _ in before + own])
            key.append(dot(p, [v[c] for _, v in before + own]))
        self.keys.append(turned(self.model.norm(key, self.w("norm")), first, self.freqs))


class DeepSeek4:
    """Takes the place of Model's attention, streams and choice of experts."""

    def __init__(self, model):
        self.m, self.key, self.w = model, model.key, model.w
        self.n = self.key("hyper_connection.count")
        self.eps = self.key("hyper_connection.epsilon")
        self.ratios = self.key("attention.compress_ratios")
        n_rot, base = self.key("rope.dimension_count"), self.key("rope.freq_base")
        self.plain = [base ** (-2 * i / n_rot) for i in range(n_rot // 2)]
        self.long = self.plain if "compress_base" in model.without else model.frequencies(
            self.key("attention.compress_rope_freq_base"))
        self.window, self.heads, self.indexes = {}, {}, {}

    # ---- hyper-connections, arXiv 2512.24880

    def mixed(self, streams, fn, n):
        flat = [v for s in streams for v in s]
        by = 1 / math.sqrt(dot(flat, flat) / len(flat) + self.m.eps)
        return [by * v for v in product(fn, flat)]

    def coefficients(self, streams, layer, half):
        n = self.n
        fn, scale, base = (self.w(layer, "hc_%s_%s.weight" % (half, p)) for p in ("fn", "scale", "base"))
        m, s, b = self.mixed(streams, fn, n), scale[0], base[0]
        pre = [sigmoid(m[i] * s[0] + b[i]) + self.eps for i in range(n)]
        post = [2 * sigmoid(m[n + i] * s[1] + b[n + i]) for i in range(n)]
        rows = [softmax([m[2 * n + i * n + j] * s[2] + b[2 * n + i * n + j] for j in range(n)]) for i in range(n)]
        c = [[v + self.eps for v in r] for r in rows]
        for step in range(self.key("hyper_connection.sinkhorn_iterations")):
            if "sinkhorn" in self.m.without:
                break
            if step > 0:
                c = [[v / (sum(r) + self.eps) for v in r] for r in c]
            columns = [sum(r[j] for r in c) + self.eps for j in range(n)]
            c = [[v / columns[j] for j, v in enumerate(r)] for r in c]
        return pre, post, c

    def half(self, streams, layer, which, norm, block):
        n = self.n
        pre, post, c = self.coefficients(streams, layer, which)
        x = [dot(pre, column) for column in zip(*streams)]
        y = block(self.m.norm(x, self.w(layer, norm + ".weight")))
        return [[post[to] * v + dot([c[i][to] for i in range(n)], column) for v, column in zip(y, zip(*streams))]
                for to in range(n)]

    def joined(self, streams):
        m = self.mixed(streams, self.m.rows("output_hc_fn.weight"), self.n)
        scale, base = (self.m.rows("output_hc_%s.weight" % p)[0] for p in ("scale", "base"))
        pre = [sigmoid(v * scale[0] + b) + self.eps for v, b in zip(m, base)]
        return [dot(pre, column) for column in zip(*streams)]

    # ---- attention

    def chosen(self, layer, low, x, pos, compressor):
        """Which compressed keys a query of a layer with an indexer sees."""
        n, dim, top = (self.key("attention.indexer." + k) for k in ("head_count", "key_length", "top_k"))
        y = product(self.w(layer, "indexer.attn_q_b.weight"), low)
        q = [turned(y[i * dim:(i + 1) * dim], pos, self.long) for i in range(n)]
        weights = product(self.w(layer, "indexer.proj.weight"), x)
        scores = [sum(w * max(dot(h, k), 0) for w, h in zip(weights, q)) for k in compressor.keys]
        if not scores or "indexer" in self.m.without:
            return range(len(scores))
        kept, gap = best(scores, min(top, len(scores)))
        self.m.gap = min(self.m.gap, gap)
        return sorted(kept)

    def attention(self, layer, x, pos):
        ratio = self.ratios[layer]
        freqs = self.long if ratio else self.plain
        low = self.m.norm(product(self.w(layer, "attn_q_a.weight"), x), self.w(layer, "attn_q_a_norm.weight"))
        y = product(self.w(layer, "attn_q_b.weight"), low)
        dim, n_heads = self.key("attention.key_length"), self.key("attention.head_count")
        ones = [[1.0] * dim]
        plain_norm = (lambda h: h) if "q_norm" in self.m.without else lambda h: self.m.norm(h, ones)
        q = [turned(plain_norm(y[i * dim:(i + 1) * dim]), pos, freqs) for i in range(n_heads)]
        kv = self.m.norm(product(self.w(layer, "attn_kv.weight"), x), self.w(layer, "attn_kv_a_norm.weight"))
        own = self.window.setdefault(layer, [])
        own.append(turned(kv, pos, freqs))
        keys = own[-self.key("attention.sliding_window"):]
        if ratio and "compressed_%d" % ratio not in self.m.without:
            c = self.heads.setdefault(layer, Compressor(self.m, layer, "attn", ratio, freqs))
            c.add(x)
            seen = range(len(c.keys))
            if ratio == 4:
                i = self.indexes.setdefault(layer, Compressor(self.m, layer, "indexer", ratio, freqs))
                i.add(x)
                seen = self.chosen(layer, low, x, pos, i)
            keys = keys + [c.keys[i] for i in seen]
        sinks, out = self.w(layer, "attn_sinks.weight")[0], []
        for h, query in enumerate(q):
            logits = [dot(query, k) / math.sqrt(dim) for k in keys]
            p = softmax(logits + ([] if "sinks" in self.m.without else [sinks[h]]))
            out.append(turned([dot(p, column) for column in zip(*keys)], pos, freqs, back=True))
        groups = self.key("attention.output_group_count")
        rank, per = self.key("attention.output_lora_rank"), n_heads // groups
        low = []
        for g in range(groups):
            part = [v for h in out[g * per:(g + 1) * per] for v in h]
            low += product(self.w(layer, "attn_output_a.weight")[g * rank:(g + 1) * rank], part)
        return product(self.w(layer, "attn_output_b.weight"), low)

    # ---- experts

    def expert(self, layer, suffix, x, nth=None):
        gate, up, down = (self.w(layer, "ffn_%s%s.weight" % (p, suffix)) for p in ("gate", "up", "down"))
        if nth is not None:
            gate, up, down = gate[nth], up[nth], down[nth]
        limits = self.key("swiglu_clamp_exp")
        limit = math.inf if "clamped" in self.m.without else limits[layer] if isinstance(limits, list) else limits
        g = [min(v, limit) for v in product(gate, x)]
        u = [min(max(v, -limit), limit) for v in product(up, x)]
        return product(down, [a * sigmoid(a) * b for a, b in zip(g, u)])

    def experts(self, layer, x, token):
        n_used = self.key("expert_used_count")
        p = [math.sqrt(softplus(v)) for v in product(self.w(layer, "ffn_gate_inp.weight"), x)]
        if layer < self.key("hash_layer_count"):
            dims, _, data = self.m.g.tensors["blk.%d.ffn_gate_tid2eid.weight" % layer]
            kept = struct.unpack_from("<%di" % n_used, data, 4 * n_used * token)
        else:
            bias = self.w(layer, "exp_probs_b.bias")[0]
            kept, gap = best([a + b for a, b in zip(p, bias)], n_used)
            self.m.gap = min(self.m.gap, gap)
        total = sum(p[i] for i in kept)
        out = self.expert(layer, "_shexp", x)
        for i in kept:
            weight = p[i] / total * self.key("expert_weights_scale")
            out = [a + weight * b for a, b in zip(out, self.expert(layer, "_exps", x, i))]
        return out

    def logits(self, ids):
        for pos, token in enumerate(ids):
            streams = [list(self.m.rows("token_embd.weight")[token]) for _ in range(self.n)]
            for layer in range(self.key("block_count")):
                streams = self.half(streams, layer, "attn", "attn_norm", lambda x: self.attention(layer, x, pos))
                streams = self.half(streams, layer, "ffn", "ffn_norm", lambda x: self.experts(layer, x, token))
            x = self.m.norm(self.joined(streams), self.m.rows("output_norm.weight"))
            yield product(self.m.rows("output.weight"), x)
