/* groups.glsl: choices that are grouped by expert, as group.comp writes them (shaders_group_words()).
 * Whole squares of tokens are taken, and a last one if it has enough of them (matmul_tiles.comp);
 * matmul.comp takes the rest. */
#define SIDE_TOKENS 64u /* SHADERS_SIDE */
#define MANY_TOKENS 24u /* SHADERS_MANY */
#define NO_EXPERT 0xffffffffu

uint rest_of(uint n) { return n % SIDE_TOKENS < MANY_TOKENS ? n % SIDE_TOKENS : 0u; }
uint squares_of(uint n) { return (n - rest_of(n) + SIDE_TOKENS - 1u) / SIDE_TOKENS; }
uint squares_at(uint n_experts, uint square) { return n_experts + 1u + 2u * square; }
uint rows_at(uint n_experts, uint n_squares, uint place) {
    return n_experts + 1u + 2u * n_squares + place;
}

/* To the sum at this address, to which other workgroups add at the same time. */
void add_beside(uvec2 address, uvec2 value) {
    Words sum = Words(address);
    uint high = value.y;
    if (value.x != 0u && atomicAdd(sum.at[0], value.x) + value.x < value.x) high++;
    if (high != 0u) atomicAdd(sum.at[1], high);
}
