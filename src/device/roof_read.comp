// roof_read.comp: reads memory and does nothing else: a workgroup has 64 KiB, which its lanes read side by side.
#version 460
#extension GL_EXT_buffer_reference : require
layout(local_size_x = 256) in;

layout(buffer_reference, std430, buffer_reference_align = 16) buffer Quads {
    uvec4 at[];
};

layout(push_constant) uniform Push {
    Quads from, to;
};

void main() {
    uint first = gl_WorkGroupID.x * 4096 + gl_LocalInvocationID.x;
    uvec4 all = uvec4(0);
    for (uint i = 0; i < 16; i++) all |= from.at[first + i * 256];
    // What is read is zero, which no compiler knows.
    if ((all.x | all.y | all.z | all.w) != 0) to.at[0] = all;
}
