/* kv_store.comp: kv_store() of kernels.h. An invocation has up to 32 dimensions of the key or
 * value of a head of a token. Parts of a word belong to several positions, so they are put
 * there by atomic operations: no two set the same bits. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "exact.glsl"
layout(local_size_x = 64) in;
#define F16 0u /* enum kv_type */
#define F32 1u
#define Q8_0 2u
layout(push_constant) uniform P {
    uvec2 x, pages, slots;
    uint ldx, n_heads, dim;
    uint head_bytes, codes, scales; /* where this part of a head is in its page */
    uint type;
    uint tiles; /* keys [tile][dim][16]; otherwise rows [slot][dim padded to 16] */
} p;

/* Of `size` bytes at byte i from `base`. */
void put(uvec2 base, uint i, uint size, uint v) {
    Words word = Words(further(base, i / 4u, 4u));
    if (size == 4u) {
        word.at[0] = v;
        return;
    }
    uint shift = 8u * (i & 3u), mask = (size == 2u ? 0xffffu : 0xffu) << shift;
    atomicAnd(word.at[0], ~mask);
    atomicOr(word.at[0], v << shift & mask);
}

/* The block's scale, as f16. */
uint scale_of(Floats x, uint begin, uint end) {
    float amax = 0.0;
    for (uint d = begin; d < end; d++) {
        float v = abs(x.at[d]);
        amax = !is_nan(v) && v > amax ? v : amax;
    }
    float d = div_(amax, 127.0);
    return begin < end ? to_f16(d < 65504.0 ? d : 65504.0) : 0u;
}

uint code(float x, float d) {
    float v = d != 0.0 ? div_(x, d) : 0.0;
    return is_nan(v) ? 127u : uint(int(roundEven(clamp(v, -127.0, 127.0)))) & 255u;
}

void main() {
    uint padded = p.tiles != 0u ? p.dim : (p.dim + 15u) / 16u * 16u;
    uint n_blocks = (padded + 31u) / 32u;
    uint i = gl_GlobalInvocationID.x, token = gl_WorkGroupID.y;
    uint head = i / n_blocks, block = i % n_blocks, begin = block * 32u;
    if (head >= p.n_heads) return;
    uint slot = Words(p.slots).at[token], end = min(begin + 32u, padded), real = min(end, p.dim);
    uvec2 base = further(Pairs(p.pages).at[token], head, p.head_bytes);
    uvec2 codes = add64(base, uvec2(p.codes, 0u)), scales = add64(base, uvec2(p.scales, 0u));
    Floats x = Floats(further(further(p.x, token * 4u, p.ldx), head * 4u, p.dim));
    float d = 0.0;
    if (p.type == Q8_0) {
        uint scale = scale_of(x, begin, real);
        uint at = p.tiles != 0u ? (slot / 16u * n_blocks + block) * 16u + slot % 16u
                                : slot * n_blocks + block;
        put(scales, at * 2u, 2u, scale);
        d = from_f16(scale);
    }
    for (uint k = begin; k < end; k++) {
        float v = k < real ? x.at[k] : 0.0;
        uint at = p.tiles != 0u ? (slot / 16u * p.dim + k) * 16u + slot % 16u : slot * padded + k;
        if (p.type == F16) put(codes, 2u * at, 2u, to_f16(v));
        else if (p.type == F32) put(codes, 4u * at, 4u, floatBitsToUint(v));
        else put(codes, at, 1u, code(v, d));
    }
}
