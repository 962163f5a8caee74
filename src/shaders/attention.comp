/* attention.comp: attention() of kernels.h. A workgroup has a few heads of a token that read the
 * same kv head, so that each key and value is read and decoded once for all of them. Within a span:
 * positions side by side for the logits and their weights, 16 lanes for the sum of a head's,
 * dimensions side by side for the values. The spans' partials are merged in order; or a
 * workgroup has one span of its heads, and attention_merge.comp merges them. */
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "exact.glsl"
layout(constant_id = 2) const uint TYPE = 0;
#define F16 0u /* enum kv_type */
#define F32 1u
#define Q8_0 2u
layout(constant_id = 3) const uint HEADS = 1; /* of a workgroup at most */
#include "attention.glsl"

/* Of each head: [HEADS, SPAN], [HEADS, 16], [HEADS, LANES]. */
shared float logits[HEADS * SPAN]; /* and then weights */
shared float sums[HEADS * 16u];
shared float largest[HEADS * LANES];

uint first_head, n_heads; /* this workgroup's, of the rank's */
uint kv_head;
uint first_page;
partial spans[HEADS]; /* of the span at hand */
partial all[HEADS];

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

float scaled(float dot_) {
    float x = mul_(dot_, p.scale);
    return p.softcap != 0.0 ? mul_(p.softcap, tanh_(div_(x, p.softcap))) : x;
}

/* Of a position for each head, to logits [i]. Where there are fewer heads, the last one's also
 * stands for those that are not there. */
void logits_of(Floats q, uint pos, uint i) {
    uvec2 base = head_of(pos), scales = add64(base, uvec2(p.k_scales, 0u));
    uint slot = pos % PAGE, padded = (p.k_dim + 15u) / 16u * 16u;
    bool latent = p.latent != 0u;
    uint n_blocks = ((latent ? padded : p.k_dim) + 31u) / 32u;
    uint at = latent ? slot * padded : slot / 16u * p.k_dim * 16u + slot % 16u;
    uint scale = latent ? slot * n_blocks : slot / 16u * n_blocks * 16u + slot % 16u;
    uint next = latent ? 1u : 16u;
    float dots[HEADS];
    uint q_at[HEADS];
    [[unroll]] for (uint h = 0u; h < HEADS; h++) {
        dots[h] = 0.0;
        q_at[h] = min(h, n_heads - 1u) * p.q_stride;
    }
    for (uint d = 0u; d < p.k_dim; d++) {
        float key = cached(base, at + d * next, scales, scale + d / 32u * next);
        [[unroll]] for (uint h = 0u; h < HEADS; h++)
            dots[h] = fma_(q.at[q_at[h] + d], key, dots[h]);
    }
    [[unroll]] for (uint h = 0u; h < HEADS; h++) logits[h * SPAN + i] = dots[h];
    [[dont_unroll]] for (uint h = 0u; h < HEADS; h++)
        logits[h * SPAN + i] = scaled(logits[h * SPAN + i]);
}

float value(uint pos, uint d) {
    uvec2 base = head_of(pos);
    uint slot = pos % PAGE, n = ((p.latent != 0u ? p.k_dim : p.v_dim) + 15u) / 16u * 16u;
    return cached(add64(base, uvec2(p.v, 0u)), slot * n + d, add64(base, uvec2(p.v_scales, 0u)),
                  slot * ((n + 31u) / 32u) + d / 32u);
}

/* largest[h * LANES]: of a head's logits [0, n) that are not NaN. */
void find_largest(uint n) {
    [[dont_unroll]] for (uint h = 0u; h < HEADS; h++) {
        float m = -INF;
        for (uint i = lane; i < n; i += LANES) {
            float x = logits[h * SPAN + i];
            m = !is_nan(x) && x > m ? x : m;
        }
        largest[h * LANES + lane] = m;
    }
    barrier();
    for (uint half_ = LANES / 2u; half_ >= 1u; half_ /= 2u) {
        if (lane < half_)
            [[unroll]] for (uint i = lane; i < HEADS * LANES; i += LANES)
                largest[i] = max(largest[i], largest[i + half_]);
        barrier();
    }
}

/* sums[h * 16]: of a head's weights of positions [begin, end), by 16 lanes and the tree. */
void sum_weights(uint begin, uint end) {
    uint h = lane / 16u, of = lane % 16u;
    if (h < HEADS) {
        float sum = 0.0;
        for (uint pos = begin + (of + 16u - begin % 16u) % 16u; pos < end; pos += 16u)
            sum = add_(sum, logits[h * SPAN + pos - begin]);
        sums[lane] = sum;
    }
    barrier();
    for (uint half_ = 8u; half_ >= 1u; half_ /= 2u) {
        if (h < HEADS && of < half_) sums[lane] = add_(sums[lane], sums[lane + half_]);
        barrier();
    }
}

/* The softmax partials of positions [begin, end) of a span. */
void partials_of(Floats q, uint begin, uint end) {
    barrier(); /* the span before this one is read */
    for (uint pos = begin + lane; pos < end; pos += LANES) logits_of(q, pos, pos - begin);
    barrier();
    find_largest(end - begin);
    [[dont_unroll]] for (uint h = 0u; h < HEADS; h++)
        for (uint i = h * SPAN + lane; i < h * SPAN + end - begin; i += LANES)
            logits[i] = attn_weight(add_(logits[i], -largest[h * LANES]));
    barrier();
    sum_weights(begin, end);
    for (uint i = 0u; i < DIMS; i++) {
        float o[HEADS];
        uint d = i * LANES + lane;
        [[unroll]] for (uint h = 0u; h < HEADS; h++) o[h] = 0.0;
        if (d < p.v_dim)
            for (uint pos = begin; pos < end; pos++) {
                float v = value(pos, d);
                [[unroll]] for (uint h = 0u; h < HEADS; h++)
                    o[h] = fma_(logits[h * SPAN + pos - begin], v, o[h]);
            }
        [[unroll]] for (uint h = 0u; h < HEADS; h++) spans[h].o[i] = tidy_(o[h]);
    }
    [[unroll]] for (uint h = 0u; h < HEADS; h++) {
        spans[h].m = largest[h * LANES];
        spans[h].l = sums[h * 16u];
    }
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

/* A kv head's heads in order, HEADS at a time: those of this workgroup that the rank has. */
void take_heads() {
    uint parts = (p.group + HEADS - 1u) / HEADS, kv = p.first_head / p.group;
    uint part = p.first_head % p.group / HEADS + gl_WorkGroupID.x;
    kv += part / parts;
    uint begin = kv * p.group + part % parts * HEADS;
    uint end = min(min(begin + HEADS, (kv + 1u) * p.group), p.first_head + p.n_heads);
    begin = max(begin, p.first_head);
    kv_head = kv - p.first_kv;
    first_head = begin - p.first_head;
    n_heads = end - begin;
}

/* The span is taken: its partials go to memory, or to those of all spans. */
void end_span(uint span, bool all_spans, bool first) {
    [[dont_unroll]] for (uint h = 0u; h < n_heads; h++) {
        head = first_head + h;
        if (!all_spans) write_partial(span, spans[h]);
        else if (first) all[h] = spans[h];
        else all[h] = merged(all[h], spans[h].m, spans[h].l, spans[h].o);
    }
}

void main() {
    token = gl_WorkGroupID.y;
    lane = gl_LocalInvocationID.x;
    take_heads();
    Words query = Words(further(p.queries, token, 16u)); /* struct shaders_query */
    first_page = query.at[0];
    uint begin = query.at[1], end = query.at[2];
    Floats q = Floats(further(further(p.q, token * 4u, p.ldq), first_head * 4u, p.q_stride));
    bool all_spans = p.partials == uvec2(0u), first = true;
    [[dont_unroll]] for (uint h = 0u; h < HEADS; h++) all[h] = nothing();
    uint span = all_spans ? begin / SPAN : gl_WorkGroupID.z;
    uint span_end = all_spans ? (end + SPAN - 1u) / SPAN : span + 1u;
    for (; span < span_end && span * SPAN < end; span++) {
        if ((span + 1u) * SPAN <= begin) continue; /* a span of no position, of all lanes alike */
        partials_of(q, max(begin, span * SPAN), min(end, (span + 1u) * SPAN));
        end_span(span, all_spans, first);
        first = false;
    }
    [[dont_unroll]] for (uint h = 0u; all_spans && h < n_heads; h++) {
        head = first_head + h;
        write_result(all[h]);
    }
}
