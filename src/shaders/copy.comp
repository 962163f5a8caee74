/* copy.comp: words of rows from one place to another. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "exact.glsl"
layout(local_size_x = 256) in;
layout(push_constant) uniform P {
    uvec2 to, from;
    uint to_stride, from_stride; /* words */
    uint n;
} p;

void main() {
    uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
    if (i < p.n)
        Words(further(p.to, row * 4u, p.to_stride)).at[i] =
            Words(further(p.from, row * 4u, p.from_stride)).at[i];
}
