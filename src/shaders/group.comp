/* group.comp: the choices of many tokens, grouped by expert: what products of experts read (matmul.comp,
 * matmul_tiles.comp). One workgroup does it. In which order an expert's choices stand is left open:
 * each is a row of its own, and sums over them are of integers.
 *
 * groups: first [n_experts + 1], the place in `rows` where an expert's choices begin; squares
 * [n_squares] of expert and first place, whose choices are taken SIDE at a time, the others having
 * no expert; rows, the choices' numbers. */
#version 460
#extension GL_GOOGLE_include_directive : require
#include "exact.glsl"
#include "groups.glsl"
#define LANES 256u
#define EACH 4u /* experts of a lane: SHADERS_EXPERTS_MAX in all */
layout(local_size_x = 256) in;
layout(push_constant) uniform P {
    uvec2 choices, groups;
    uint n, n_experts, n_squares, begin, end, unused; /* n choices; the experts that are held */
} p;
shared uint n_of[LANES * EACH]; /* choices; in the end the next place */
shared uint choices_to[LANES], squares_to[LANES]; /* up to a lane's experts, and with them */

uint lane;

uint expert_of(uint choice) { return Pairs(p.choices).at[choice].x; }
bool is_held(uint expert) { return expert >= p.begin && expert < p.end; }

void count() {
    for (uint k = 0u; k < EACH; k++) n_of[k * LANES + lane] = 0u;
    barrier();
    for (uint i = lane; i < p.n; i += LANES)
        if (is_held(expert_of(i))) atomicAdd(n_of[expert_of(i)], 1u);
    barrier();
}

/* Each lane's sums of those before it. */
void add_up() {
    uint choices = 0u, squares = 0u;
    for (uint k = 0u; k < EACH; k++) {
        choices += n_of[lane * EACH + k];
        squares += squares_of(n_of[lane * EACH + k]);
    }
    choices_to[lane] = choices;
    squares_to[lane] = squares;
    barrier();
    for (uint by = 1u; by < LANES; by *= 2u) {
        choices = lane >= by ? choices_to[lane - by] : 0u;
        squares = lane >= by ? squares_to[lane - by] : 0u;
        barrier();
        choices_to[lane] += choices;
        squares_to[lane] += squares;
        barrier();
    }
}

void write_experts() {
    Words first = Words(p.groups);
    uint place = lane > 0u ? choices_to[lane - 1u] : 0u;
    uint square = lane > 0u ? squares_to[lane - 1u] : 0u;
    if (lane == 0u) first.at[0] = 0u;
    for (uint k = 0u; k < EACH && lane * EACH + k < p.n_experts; k++) {
        uint expert = lane * EACH + k, n = n_of[expert];
        n_of[expert] = place;
        for (uint j = 0u; j < squares_of(n); j++, square++) {
            uint at = squares_at(p.n_experts, square);
            first.at[at] = expert;
            first.at[at + 1u] = place + j * SIDE_TOKENS;
        }
        place += n;
        first.at[expert + 1u] = place;
    }
    for (uint j = squares_to[LANES - 1u] + lane; j < p.n_squares; j += LANES)
        first.at[squares_at(p.n_experts, j)] = NO_EXPERT;
}

void main() {
    lane = gl_LocalInvocationID.x;
    count();
    add_up();
    write_experts();
    barrier();
    for (uint i = lane; i < p.n; i += LANES)
        if (is_held(expert_of(i))) {
            uint place = atomicAdd(n_of[expert_of(i)], 1u);
            Words(p.groups).at[rows_at(p.n_experts, p.n_squares, place)] = i;
        }
}
