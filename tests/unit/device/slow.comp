// slow.comp: takes as long as there are workgroups of it. Mesa's llvmpipe ends a shader's loops after 65,535 rounds.
#version 460
#extension GL_EXT_buffer_reference : require
layout(local_size_x = 1) in;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Numbers {
    uint at[];
};

layout(push_constant) uniform Push {
    Numbers x;
    uint start, unused;
};

void main() {
    uint a = x.at[0] + start + gl_WorkGroupID.x;
    for (uint i = 0; i < 60000; i++)
        a = a * 1664525 + (a >> 7) + i;
    if (a == 1)
        x.at[0] = a;
}
