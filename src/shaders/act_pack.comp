/* act_pack.comp: act_pack() of kernels.h. Eight lanes have a block of 32 columns of a token. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "exact.glsl"
layout(local_size_x = 8, local_size_y = 8) in;
layout(push_constant) uniform P {
    uvec2 x, f, q, d, sums, start, s, rows; /* rows: of x; 0: row t of token t */
    uint ldx, n_cols, n_tokens, q8;
} p;
shared uint largest[8][8];
shared int sum[8][8];

uint token, gs, group;

uint x_row() { return p.rows != uvec2(0u) ? Words(p.rows).at[token] : token; }

/* The columns as they are, but tidied. */
void pack_floats(uint block, uint part) {
    Floats x = Floats(further(p.x, x_row() * 4u, p.ldx));
    uvec2 f = further(p.f, group * 12u * 4u, p.n_cols);
    for (uint i = 0u; i < 4u; i++) {
        uint c = block * 32u + part * 4u + i;
        if (c < p.n_cols) Floats(f).at[c * gs + token % 12u] = tidy_(x.at[c]);
    }
}

int code(float x, float inverse) {
    float v = mul_(x, inverse);
    if (is_nan(v)) return 127;
    return int(roundEven(clamp(v, -127.0, 127.0)));
}

uint magnitude(float x) { /* NaN counts as nothing */
    uint u = floatBitsToUint(x) & 0x7fffffffu;
    return u > 0x7f800000u ? 0u : u;
}

/* All lanes of the workgroup come here, since they wait for each other. */
void pack_q8(uint block, uint part, uint which, bool valid) {
    Floats x = Floats(further(p.x, x_row() * 4u, p.ldx));
    float v[4];
    uint most = 0u;
    for (uint i = 0u; i < 4u; i++) {
        v[i] = valid ? x.at[block * 32u + part * 4u + i] : 0.0;
        most = max(most, magnitude(v[i]));
    }
    largest[which][part] = most;
    barrier();
    for (uint i = 0u; i < 8u; i++) most = max(most, largest[which][i]);
    float amax = uintBitsToFloat(most);
    bool some = most >= LEAST_BITS;
    float d = some ? div_(amax, 127.0) : 0.0, inverse = some ? div_(127.0, amax) : 0.0;
    uint four = 0u;
    int mine = 0;
    for (uint i = 0u; i < 4u; i++) {
        int c = some ? code(v[i], inverse) : 0;
        mine += c;
        four |= uint(c & 255) << 8u * i;
    }
    sum[which][part] = mine;
    barrier();
    if (!valid) return;
    uint at = group * 12u * (p.n_cols / 32u) + block * gs + token % 12u;
    Words(p.q).at[at * 8u + part] = four;
    if (part != 0u) return;
    int h0 = sum[which][0] + sum[which][1] + sum[which][2] + sum[which][3];
    int h1 = sum[which][4] + sum[which][5] + sum[which][6] + sum[which][7];
    Floats(p.d).at[at] = d;
    Words(p.sums).at[at] = uint(h0 & 0xffff) | uint(h1 & 0xffff) << 16;
    Words(p.start).at[at] = uint(-128 * (h0 + h1));
    Floats(p.s).at[at] = mul_(d, float(h0 + h1));
}

void main() {
    uint part = gl_LocalInvocationID.x, which = gl_LocalInvocationID.y;
    uint block = gl_WorkGroupID.x * 8u + which;
    bool valid = block < (p.n_cols + 31u) / 32u;
    token = gl_WorkGroupID.y;
    group = token / 12u;
    gs = min(p.n_tokens - group * 12u, 12u);
    if (p.q8 != 0u) pack_q8(block, part, which, valid);
    else if (valid) pack_floats(block, part);
}
