/* rmsnorm.comp: rmsnorm() of kernels.h. A workgroup has a head of a token, or
 * all of it: its lanes are the 256 of the sum. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "exact.glsl"
#define LANES 256u /* EXACT_LANES */
layout(local_size_x = 256) in;
layout(push_constant) uniform P {
    uvec2 y, x, w;
    uint ldy, ldx, stride; /* from token to token, from head to head */
    uint n;
    float eps;
} p;
shared float lanes[LANES];

uvec2 row(uvec2 base, uint ld) {
    return further(further(base, gl_WorkGroupID.y * 4u, ld), gl_WorkGroupID.x * 4u, p.stride);
}

void main() {
    uint t = gl_LocalInvocationID.x;
    Floats x = Floats(row(p.x, p.ldx)), y = Floats(row(p.y, p.ldy));
    float sum = 0.0;
    for (uint i = t; i < p.n; i += LANES) sum = fma_(x.at[i], x.at[i], sum);
    lanes[t] = sum;
    barrier();
    for (uint half_ = LANES / 2u; half_ >= 1u; half_ /= 2u) {
        if (t < half_) lanes[t] = add_(lanes[t], lanes[t + half_]);
        barrier();
    }
    float mean = div_(lanes[0], float(p.n));
    float r = div_(1.0, sqrt_(add_(mean, p.eps)));
    for (uint i = t; i < p.n; i += LANES) {
        float v = mul_(x.at[i], r);
        y.at[i] = tidy_(p.w == uvec2(0u) ? v : mul_(v, Floats(p.w).at[i]));
    }
}
