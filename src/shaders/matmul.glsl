/* matmul.glsl: what shaders of products share: the weights of a row of the processor's tiles.
 * Included after the push constants, of which it reads col_phase. */
#ifdef DOT
#extension GL_EXT_spirv_intrinsics : require
/* Of Vulkan 1.3, by name unknown to this compiler: OpSDot of four int8 in a word. */
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4450)
int packed_dot(int a, int b, spirv_literal int format);
#endif

/* Of tile_formats in kernels/tiles.h. */
layout(constant_id = 2) const uint SCALES = 1; /* enum tile_scales */
layout(constant_id = 3) const uint LOW = 8;
layout(constant_id = 4) const uint HIGH = 0;
layout(constant_id = 5) const uint BIAS = 128;
layout(constant_id = 6) const uint BY_TABLE = 0;
layout(constant_id = 7) const uint TABLE0 = 0; /* 16 values of int8 */
layout(constant_id = 8) const uint TABLE1 = 0;
layout(constant_id = 9) const uint TABLE2 = 0;
layout(constant_id = 10) const uint TABLE3 = 0;
layout(constant_id = 11) const float D_FACTOR = 1.0;
layout(constant_id = 12) const uint FLOATS = 0; /* FLOATS_... */

#define D 1u
#define D_M 2u
#define D_M_BF16 3u
#define E8M0 4u
#define D_D 5u
#define SCALE 6u
#define SCALE_MIN 7u
#define HALVES 8u
#define HALVES_MIN 9u

#define FLOATS_F32 1u
#define FLOATS_F16 2u
#define FLOATS_BF16 3u
#define FLOATS_F8 4u
#define PIECE 256u

const bool TWO = SCALES == D_M || SCALES == D_M_BF16 || SCALES == D_D || SCALES == SCALE_MIN ||
                 SCALES == HALVES_MIN;

Words tile;
uint lane; /* the row of it */

/* ---- codes ------------------------------------------------------------------------------- */

const uint CODES_AT = SCALES == E8M0 || SCALES == SCALE                         ? 16u
                      : SCALES == D || SCALES == SCALE_MIN || SCALES == HALVES ? 32u
                                                                                : 64u;
const uint BLOCK_BYTES = CODES_AT + (LOW + HIGH) * 64u;

uint super_of(uint b) { return (p.col_phase / 32u + b) / 8u; }

uint block_at(uint b) {
    return (SCALES >= SCALE ? (super_of(b) + 1u) * 64u : 0u) + b * BLOCK_BYTES;
}

uint super_at(uint b) {
    uint super = super_of(b), first = super > 0u ? super * 8u - p.col_phase / 32u : 0u;
    return block_at(first) - 64u;
}

uint byte_at(uint at) { return tile.at[at / 4u] >> 8u * (at & 3u) & 255u; }
uint half_at(uint at) { return tile.at[at / 4u] >> 8u * (at & 2u) & 0xffffu; }
int signed_byte_at(uint at) { return bitfieldExtract(int(byte_at(at)), 0, 8); }

/* The four codes of vector v of this lane's row, a byte each. */
uint codes(uint at, uint v) {
    uint base = at / 4u + lane, c;
    if (LOW == 8u) {
        c = tile.at[base + 16u * v];
    } else if (LOW == 4u) {
        c = tile.at[base + 16u * (v & 3u)] >> (v < 4u ? 0u : 4u) & 0x0f0f0f0fu;
    } else if (LOW == 6u) {
        base += v / 4u * 48u;
        if (v % 4u < 3u)
            c = tile.at[base + 16u * (v % 4u)] & 0x3f3f3f3fu;
        else
            c = (tile.at[base] >> 6 & 0x03030303u) | (tile.at[base + 16u] >> 6 & 0x03030303u) << 2 |
                (tile.at[base + 32u] >> 6 & 0x03030303u) << 4;
    } else {
        c = tile.at[base + 16u * (v / 4u)] >> 2u * (v & 3u) & 0x03030303u;
    }
    if (HIGH == 1u) c |= (tile.at[at / 4u + lane + 16u * LOW] >> v & 0x01010101u) << LOW;
    return c;
}

uint looked_up(uint code) {
    uint word = code < 8u ? (code < 4u ? TABLE0 : TABLE1) : (code < 12u ? TABLE2 : TABLE3);
    return word >> 8u * (code & 3u) & 255u;
}

/* The weights, as int8 in a word: code - BIAS without a borrow between bytes, or by the table. */
uint weights(uint at, uint v) {
    uint c = codes(at, v);
    if (BY_TABLE != 0u)
        return looked_up(c & 255u) | looked_up(c >> 8 & 255u) << 8 |
               looked_up(c >> 16 & 255u) << 16 | looked_up(c >> 24) << 24;
    return LOW == 8u ? c ^ 0x80808080u
                     : ((c | 0x80808080u) - BIAS * 0x01010101u) ^ 0x80808080u;
}

/* ---- blocks ------------------------------------------------------------------------------ */

/* Of a block of this lane's row, what does not depend on the token. */
struct block {
    uint w[8];
    float d, m;        /* the block's, or its superblock's */
    int s0, s1;        /* scales and, */
    int min0, min1; /* where they are integers, mins */
};

/* All but the weights. */
block scales_of(uint b) {
    block r;
    uint at = block_at(b);
    r.d = 0.0, r.m = 0.0, r.s0 = 0, r.s1 = 0, r.min0 = 0, r.min1 = 0;
    if (SCALES == E8M0) {
        r.d = uintBitsToFloat(max(byte_at(at + lane), 1u) - 1u << 23);
    } else if (SCALES == D_M_BF16) {
        r.d = from_bf16(half_at(at + 2u * lane));
        r.m = from_bf16(half_at(at + 32u + 2u * lane));
    } else if (SCALES < SCALE) {
        r.d = from_f16(half_at(at + 2u * lane));
        if (TWO) r.m = from_f16(half_at(at + 32u + 2u * lane));
    } else {
        uint super = super_at(b);
        r.d = mul_(from_f16(half_at(super + 2u * lane)), D_FACTOR);
        if (TWO) r.m = from_f16(half_at(super + 32u + 2u * lane));
        r.s0 = signed_byte_at(at + lane);
        if (SCALES == SCALE_MIN) r.min0 = int(byte_at(at + 16u + lane));
        if (SCALES >= HALVES) r.s1 = signed_byte_at(at + 16u + lane);
        if (SCALES == HALVES_MIN) {
            r.min0 = int(byte_at(at + 32u + lane));
            r.min1 = int(byte_at(at + 48u + lane));
        }
    }
    if ((SCALES == D_M || SCALES == D_M_BF16) && BIAS != 0u) r.m = fma_(float(BIAS), r.d, r.m);
    return r;
}

block block_of(uint b) {
    block r = scales_of(b);
    uint at = block_at(b) + CODES_AT;
    for (uint v = 0u; v < 8u; v++) r.w[v] = weights(at, v);
    return r;
}

/* ---- floats ------------------------------------------------------------------------------ */

float weight(uint c) {
    if (FLOATS == FLOATS_F32) return uintBitsToFloat(tile.at[c * 16u + lane]);
    if (FLOATS == FLOATS_F16) return from_f16(half_at(c * 32u + 2u * lane));
    if (FLOATS == FLOATS_BF16) return from_bf16(half_at(c * 32u + 2u * lane));
    uint at = c / 32u * (64u + 512u);
    return mul_(from_e4m3(byte_at(at + 64u + c % 32u * 16u + lane)),
                uintBitsToFloat(tile.at[at / 4u + lane]));
}
