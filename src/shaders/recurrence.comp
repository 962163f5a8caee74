/* recurrence.comp: recurrence() of kernels/recurrent.h. A workgroup has 16 columns of a head's
 * state, a column of them each 16 lanes, while the tokens [begin, end) of a run pass. Decaying and
 * learning are of each number by itself; the two sums over a column are one lane's. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "exact.glsl"
#include "recurrent.glsl"
layout(local_size_x = 256) in;
#define ROWS 128u /* SHADERS_STATE_ROWS */
layout(push_constant) uniform P {
    uvec2 rows, out_, runs, heads;
    uvec2 d; /* of all heads: a result gets its value times d, too; 0: none */
    uint ld, ld_out, state_at; /* floats from where a state begins */
    uint head_floats, k_dim, v_dim;
    uint q_at, k_at, v_at; /* in a token's row */
    uint decay_step, delta, n_runs, begin, end;
} p;
shared float state[ROWS * 16u];
shared float q[ROWS], k[ROWS], decay[ROWS];
shared float d[16];

uint lane, column, row0; /* of the 16 columns; the rows of this lane are row0, row0 + 16... */
uint local_head, first_column;
Head head;

Floats tile_of(uvec2 state) {
    uvec2 base = further(further(state, p.state_at, 4u), local_head * 4u, p.head_floats);
    return Floats(further(base, first_column * 4u, p.k_dim));
}

void load(uvec2 from) {
    for (uint i = row0; i < p.k_dim; i += 16u)
        state[i * 16u + column] = from != uvec2(0u) ? tile_of(from).at[i * 16u + column] : 0.0;
}

void store(uvec2 to) {
    for (uint i = row0; i < p.k_dim; i += 16u)
        tile_of(to).at[i * 16u + column] = state[i * 16u + column];
}

void load_token(Floats row) {
    if (lane >= p.k_dim) return;
    float key = row.at[p.k_at + head.group * p.k_dim + lane];
    k[lane] = p.delta != 0u ? not_less(key) : key;
    q[lane] = row.at[p.q_at + head.group * p.k_dim + lane];
    decay[lane] = row.at[head.decay + lane * p.decay_step];
}

/* What this column learns. */
float lesson(Floats row, bool pad) {
    float own = pad ? 0.0 : row.at[p.v_at + head.at + first_column + column], sum = 0.0;
    if (p.delta != 0u) {
        for (uint i = 0u; i < p.k_dim; i++) sum = fma_(state[i * 16u + column], k[i], sum);
        own = add_(own, -sum);
    }
    return tidy_(mul_(own, row.at[head.beta]));
}

float result(Floats row) {
    float sum = 0.0;
    for (uint i = 0u; i < p.k_dim; i++) sum = fma_(state[i * 16u + column], q[i], sum);
    sum = tidy_(sum);
    if (p.d == uvec2(0u)) return sum;
    float own = row.at[p.v_at + head.at + first_column + column];
    return tidy_(add_(sum, mul_(Floats(p.d).at[head.head], own)));
}

void pass(uint token) {
    Floats row = Floats(further(p.rows, token * 4u, p.ld));
    bool pad = first_column + column >= p.v_dim;
    load_token(row);
    barrier();
    for (uint i = row0; i < p.k_dim; i += 16u)
        state[i * 16u + column] = mul_(state[i * 16u + column], decay[i]);
    barrier();
    if (row0 == 0u) d[column] = lesson(row, pad);
    barrier();
    for (uint i = row0; i < p.k_dim; i += 16u)
        state[i * 16u + column] = tidy_(fma_(k[i], d[column], state[i * 16u + column]));
    barrier();
    if (row0 == 0u && !pad)
        Floats(further(p.out_, token * 4u, p.ld_out)).at[local_head * p.v_dim + first_column + column] =
            result(row);
    barrier();
}

void main() {
    uint i = gl_WorkGroupID.y, n_tiles = (p.v_dim + 15u) / 16u;
    lane = gl_LocalInvocationID.x;
    column = lane % 16u;
    row0 = lane / 16u;
    local_head = gl_WorkGroupID.x / n_tiles;
    first_column = gl_WorkGroupID.x % n_tiles * 16u;
    head = head_at(p.heads, local_head);
    if (goes_on(p.runs, i, p.n_runs)) return; /* of all lanes alike */
    do {
        Run run = run_at(p.runs, i);
        uint begin = max(run.first, p.begin), end = min(run.end, p.end);
        if (begin < end) {
            load(begin == run.first ? run.from : run.to);
            for (uint t = begin; t < end; t++) pass(t);
            store(run.to);
        }
        i++;
    } while (goes_on(p.runs, i, p.n_runs));
}
