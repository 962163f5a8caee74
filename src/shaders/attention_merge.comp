/* attention_merge.comp: merges the partials that attention.comp left, in order of the spans. A
 * workgroup has a head of a token. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "exact.glsl"
#include "attention.glsl"

void main() {
    head = gl_WorkGroupID.x;
    token = gl_WorkGroupID.y;
    lane = gl_LocalInvocationID.x;
    Words query = Words(further(p.queries, token, 16u)); /* struct shaders_query */
    uint first = query.at[1] / SPAN, end = query.at[2];
    partial all = nothing();
    for (uint span = first; span * SPAN < end; span++) {
        Floats from = partial_at(span);
        partial r = nothing();
        r.m = from.at[0];
        r.l = from.at[1];
        for (uint i = 0u; i < DIMS; i++)
            if (i * LANES + lane < p.v_dim) r.o[i] = from.at[2u + i * LANES + lane];
        all = span == first ? r : merged(all, r.m, r.l, r.o);
    }
    write_result(all);
}
