// halve.comp: halves numbers: a subnormal stays one, unless the device flushes them.
#version 460
#extension GL_EXT_buffer_reference : require
layout(local_size_x = 64) in;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Numbers {
    float at[];
};

layout(push_constant) uniform Push {
    Numbers x;
};

void main() {
    x.at[gl_GlobalInvocationID.x] *= 0.5;
}
