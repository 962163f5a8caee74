// trial_fma.comp: r[i] = fma(a[i], b[i], c[i]), to see whether it is fused on this device.
#version 460
#extension GL_EXT_buffer_reference : require
layout(local_size_x = 64) in;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats {
    float at[];
};

layout(push_constant) uniform Push {
    Floats a, b, c, r;
    uint n;
};

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < n) {
        precise float x = fma(a.at[i], b.at[i], c.at[i]);
        r.at[i] = x;
    }
}
