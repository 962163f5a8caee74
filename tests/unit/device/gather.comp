// gather.comp: copies numbers from one place to another.
#version 460
#extension GL_EXT_buffer_reference : require
layout(local_size_x = 64) in;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Numbers {
    uint at[];
};

layout(push_constant) uniform Push {
    Numbers from, to;
};

void main() {
    uint i = gl_GlobalInvocationID.x;
    to.at[i] = from.at[i];
}
