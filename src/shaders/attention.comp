/* attention.comp: attention() of kernels.h. A workgroup has a head of a token. Within a span:
 * positions side by side for the logits and their weights, 16 lanes for the sum of these,
 * dimensions side by side for the values. The spans' partials are merged in order; or a
 * workgroup has one span of a head, and attention_merge.comp merges them. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "exact.glsl"
layout(constant_id = 2) const uint TYPE = 0;
#define F16 0u /* enum kv_type */
#define F32 1u
#define Q8_0 2u
#include "attention.glsl"

shared float logits[SPAN];
shared float sums[16];
shared float largest[LANES];

uint kv_head;
uint first_page;

uint half_at(uvec2 base, uint i) {
    return Words(base).at[i / 2u] >> 16u * (i & 1u) & 0xffffu;
}

/* Value i of those at `base`, whose scale is number `scale` of those at `scales`. */
float cached(uvec2 base, uint i, uvec2 scales, uint scale) {
    if (TYPE == F16) return from_f16(half_at(base, i));
    if (TYPE == F32) return Floats(base).at[i];
    int code = bitfieldExtract(int(Words(base).at[i / 4u]), int(8u * (i & 3u)), 8);
    return mul_(from_f16(half_at(scales, scale)), float(code));
}

uvec2 head_of(uint pos) {
    return further(Pairs(p.pages).at[first_page + pos / PAGE], kv_head, p.head_bytes);
}

float logit(Floats q, uint pos) {
    uvec2 base = head_of(pos), scales = add64(base, uvec2(p.k_scales, 0u));
    uint slot = pos % PAGE, padded = (p.k_dim + 15u) / 16u * 16u;
    bool latent = p.latent != 0u;
    uint n_blocks = ((latent ? padded : p.k_dim) + 31u) / 32u;
    uint at = latent ? slot * padded : slot / 16u * p.k_dim * 16u + slot % 16u;
    uint scale = latent ? slot * n_blocks : slot / 16u * n_blocks * 16u + slot % 16u;
    uint next = latent ? 1u : 16u;
    float dot_ = 0.0;
    for (uint d = 0u; d < p.k_dim; d++)
        dot_ = fma_(q.at[d], cached(base, at + d * next, scales, scale + d / 32u * next), dot_);
    float x = mul_(dot_, p.scale);
    return p.softcap != 0.0 ? mul_(p.softcap, tanh_(div_(x, p.softcap))) : x;
}

float value(uint pos, uint d) {
    uvec2 base = head_of(pos);
    uint slot = pos % PAGE, n = ((p.latent != 0u ? p.k_dim : p.v_dim) + 15u) / 16u * 16u;
    return cached(add64(base, uvec2(p.v, 0u)), slot * n + d, add64(base, uvec2(p.v_scales, 0u)),
                  slot * ((n + 31u) / 32u) + d / 32u);
}

/* Of logits [0, n) that are not NaN. */
float largest_logit(uint n) {
    float m = -INF;
    for (uint i = lane; i < n; i += LANES)
        m = !is_nan(logits[i]) && logits[i] > m ? logits[i] : m;
    largest[lane] = m;
    barrier();
    for (uint half_ = LANES / 2u; half_ >= 1u; half_ /= 2u) {
        if (lane < half_) largest[lane] = max(largest[lane], largest[lane + half_]);
        barrier();
    }
    return largest[0];
}

/* Of the weights of positions [begin, end), by 16 lanes and the tree. */
float sum_of_weights(uint begin, uint end) {
    if (lane < 16u) {
        float sum = 0.0;
        for (uint pos = begin + (lane + 16u - begin % 16u) % 16u; pos < end; pos += 16u)
            sum = add_(sum, logits[pos - begin]);
        sums[lane] = sum;
    }
    barrier();
    for (uint half_ = 8u; half_ >= 1u; half_ /= 2u) {
        if (lane < half_) sums[lane] = add_(sums[lane], sums[lane + half_]);
        barrier();
    }
    return sums[0];
}

/* The softmax partial of positions [begin, end) of a span. */
partial partial_of(Floats q, uint begin, uint end) {
    partial r;
    barrier(); /* the span before this one is read */
    for (uint pos = begin + lane; pos < end; pos += LANES) logits[pos - begin] = logit(q, pos);
    barrier();
    r.m = largest_logit(end - begin);
    for (uint i = lane; i < end - begin; i += LANES)
        logits[i] = attn_weight(add_(logits[i], -r.m));
    barrier();
    r.l = sum_of_weights(begin, end);
    for (uint i = 0u; i < DIMS; i++) {
        float sum = 0.0;
        uint d = i * LANES + lane;
        if (d < p.v_dim)
            for (uint pos = begin; pos < end; pos++)
                sum = fma_(logits[pos - begin], value(pos, d), sum);
        r.o[i] = tidy_(sum);
    }
    return r;
}

void write_partial(uint span, partial r) {
    Floats to = partial_at(span);
    if (lane == 0u) {
        to.at[0] = r.m;
        to.at[1] = r.l;
    }
    for (uint i = 0u; i < DIMS; i++)
        if (i * LANES + lane < p.v_dim) to.at[2u + i * LANES + lane] = r.o[i];
}

void main() {
    head = gl_WorkGroupID.x;
    token = gl_WorkGroupID.y;
    lane = gl_LocalInvocationID.x;
    kv_head = (p.first_head + head) / p.group - p.first_kv;
    Words query = Words(further(p.queries, token, 16u)); /* struct shaders_query */
    first_page = query.at[0];
    uint begin = query.at[1], end = query.at[2];
    Floats q = Floats(further(further(p.q, token * 4u, p.ldq), head * 4u, p.q_stride));
    bool all_spans = p.partials == uvec2(0u), first = true;
    partial all = nothing();
    uint span = all_spans ? begin / SPAN : gl_WorkGroupID.z;
    uint span_end = all_spans ? (end + SPAN - 1u) / SPAN : span + 1u;
    for (; span < span_end && span * SPAN < end; span++) {
        if ((span + 1u) * SPAN <= begin) continue; /* a span of no position, of all lanes alike */
        partial r = partial_of(q, max(begin, span * SPAN), min(end, (span + 1u) * SPAN));
        if (!all_spans) write_partial(span, r);
        else if (first) all = r;
        else all = merged(all, r.m, r.l, r.o);
        first = false;
    }
    if (all_spans) write_result(all);
}
