/* recurrent.glsl: what the shaders of recurrent layers share: heads, the runs of a step and their
 * states. A workgroup takes a run and those after it that go on from its state, or nothing if the
 * run itself goes on. */
struct Head { /* struct shaders_recurrent_head: places are floats of a token's row */
    uint head, group, at, beta, decay;
};

Head head_at(uvec2 heads, uint i) {
    Words h = Words(further(heads, i, 20u));
    return Head(h.at[0], h.at[1], h.at[2], h.at[3], h.at[4]);
}

struct Run { /* struct shaders_run: tokens [first, end) of the step, addresses of states */
    uint first, end;
    uvec2 from, to;
};

Run run_at(uvec2 runs, uint i) {
    Pairs r = Pairs(further(runs, i, 24u));
    uvec2 tokens = r.at[0];
    return Run(tokens.x, tokens.x + tokens.y, r.at[1], r.at[2]);
}

bool goes_on(uvec2 runs, uint i, uint n_runs) {
    if (i == 0u || i >= n_runs) return false;
    uvec2 from = run_at(runs, i).from;
    return from != uvec2(0u) && from == run_at(runs, i - 1u).to;
}

/* A decay or a part of a key, as the recurrence takes them: below RECURRENCE_LEAST it is 0. */
float not_less(float x) {
    return (floatBitsToUint(x) & 0x7fffffffu) < 0x35800000u ? 0.0 : x;
}
