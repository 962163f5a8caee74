/* attention.glsl: what the two shaders of attention share: their parameters, and the softmax
 * of spans, which are merged in order. */
#define SPAN 512u /* ATTN_SPAN */
#define PAGE 64u  /* KV_PAGE */
#define LANES 256u
#define DIMS 4u /* dimensions of a lane: so heads have up to 1024 */
layout(local_size_x = 256) in;

layout(push_constant) uniform P {
    uvec2 queries, pages, q, out_, sinks;
    uvec2 partials; /* [token][head][span] of m, l, o [v_dim]; 0: a workgroup has all spans */
    uint ldq, q_stride, ld_out, out_stride;
    uint first_head, group, first_kv;
    uint k_dim, v_dim, latent;
    uint head_bytes, k_scales, v, v_scales;
    uint n_spans;
    float scale, softcap;
    uint n_heads;
} p;

uint lane, head, token;

/* The partial of one span, or of all before it. */
struct partial {
    float m, l;
    float o[DIMS]; /* of this lane: dimensions i * LANES + lane */
};

float attn_weight(float x) { return !is_nan(x) && x < -27.0 ? 0.0 : exp_(x); }

/* `all`, and then the span with m, l, o. */
partial merged(partial all, float m, float l, const float o[DIMS]) {
    float both = m > all.m ? m : all.m;
    float before = attn_weight(add_(all.m, -both)), now = attn_weight(add_(m, -both));
    all.m = both;
    all.l = fma_(all.l, before, mul_(l, now));
    for (uint i = 0u; i < DIMS; i++) all.o[i] = tidy_(fma_(all.o[i], before, mul_(o[i], now)));
    return all;
}

partial nothing() {
    partial r;
    r.m = -INF;
    r.l = 0.0;
    for (uint i = 0u; i < DIMS; i++) r.o[i] = 0.0;
    return r;
}

/* The sink comes last: as a span with l = 1 and o = 0. */
void write_result(partial all) {
    float sink = p.sinks != uvec2(0u) ? Floats(p.sinks).at[head] : -INF;
    if (floatBitsToUint(sink) != 0xff800000u) all = merged(all, sink, 1.0, nothing().o);
    Floats out_ = Floats(further(further(p.out_, token * 4u, p.ld_out), head * 4u, p.out_stride));
    for (uint i = 0u; i < DIMS; i++) {
        uint d = i * LANES + lane;
        if (d < p.v_dim) out_.at[d] = tidy_(div_(all.o[i], all.l));
    }
}

Floats partial_at(uint span) {
    uint i = (token * p.n_heads + head) * p.n_spans + span;
    return Floats(further(p.partials, i * 4u, p.v_dim + 2u));
}
