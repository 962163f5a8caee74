/* recurrent.glsl: what the shaders of recurrent layers share: heads, the runs of a step and their
 * states. A workgroup takes a run and those after it that go on from its state, or nothing if the
 * run itself goes on. */
#define NONE 0xffffffffu

struct Head { /* struct shaders_recurrent_head: places are floats of a token's row */
    uint head, group, at, beta, decay;
};

Head head_at(uvec2 heads, uint i) {
    Words h = Words(further(heads, i, 20u));
    return Head(h.at[0], h.at[1], h.at[2], h.at[3], h.at[4]);
}

struct Run { /* struct shaders_run: tokens [first, end) of the step, slots of states */
    uint first, end, from, to;
};

Run run_at(uvec2 runs, uint i) {
    uvec4 r = Quads(further(runs, i, 16u)).at[0];
    return Run(r.x, r.x + r.y, r.z, r.w);
}

bool goes_on(uvec2 runs, uint i, uint n_runs) {
    if (i == 0u || i >= n_runs) return false;
    uint from = run_at(runs, i).from;
    return from != NONE && from == run_at(runs, i - 1u).to;
}

/* A decay or a part of a key, as the recurrence takes them: below RECURRENCE_LEAST it is 0. */
float not_less(float x) {
    return (floatBitsToUint(x) & 0x7fffffffu) < 0x35800000u ? 0.0 : x;
}
