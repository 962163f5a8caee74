// roof_peak.comp: multiply-adds on registers: eight chains in each lane, of packed int8 or of f32.
#version 460
#extension GL_EXT_buffer_reference : require
#ifdef DOT
#extension GL_EXT_spirv_intrinsics : require
/* Of Vulkan 1.3, by name unknown to this compiler: OpSDot of four int8 in a word. */
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4450)
int packed_dot(int a, int b, spirv_literal int format);
#endif
layout(local_size_x = 256) in;
layout(constant_id = 0) const uint FLOATS = 0;

layout(buffer_reference, std430, buffer_reference_align = 16) buffer Words {
    int at[];
};

layout(push_constant) uniform Push {
    Words to;
    uint n;   // rounds
    int word; // unknown to the compiler
};

int dot4(int x, int y) {
#ifdef DOT
    return packed_dot(x, y, 0);
#else
    return bitfieldExtract(x, 0, 8) * bitfieldExtract(y, 0, 8) + bitfieldExtract(x, 8, 8) * bitfieldExtract(y, 8, 8) +
           bitfieldExtract(x, 16, 8) * bitfieldExtract(y, 16, 8) + (x >> 24) * (y >> 24);
#endif
}

void main() {
    int sums[8];
    float floats[8];
    float by = float(word);
    for (int i = 0; i < 8; i++) floats[i] = float(sums[i] = int(gl_GlobalInvocationID.x) + i);
    for (uint round = 0; round < n; round++)
        for (int i = 0; i < 8; i++) {
            if (FLOATS != 0)
                floats[i] = fma(floats[i], by, by);
            else
                sums[i] += dot4(sums[i], word);
        }
    int all = 0;
    for (int i = 0; i < 8; i++) all |= FLOATS != 0 ? floatBitsToInt(floats[i]) : sums[i];
    if (all == 0x12345678) to.at[0] = all;
}
