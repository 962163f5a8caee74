// multiply_add.comp: x[i] = x[i] * FACTOR + summand, of n numbers from two folded dimensions of workgroups.
#version 460
#extension GL_EXT_buffer_reference : require
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint FACTOR = 1;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Numbers {
    uint at[];
};

layout(push_constant) uniform Push {
    Numbers x;
    uint n, summand;
    uint unused[27];
    uint last; // a second summand, at the end of what can be pushed
};

void main() {
    uint i = (gl_WorkGroupID.x + gl_WorkGroupID.y * 65535) * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (i < n)
        x.at[i] = x.at[i] * FACTOR + summand + last;
}
