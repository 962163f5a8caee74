/* record.c: each function of shaders.h as a run on the device. */
#include "shaders/record.h"

/* ---- products ---------------------------------------------------------------------------- */

void shaders_act_pack(struct shaders *s, const struct act *a, const float *x, size_t ldx) {
    shaders_act_pack_rows(s, a, x, ldx, NULL);
}

void shaders_act_pack_rows(struct shaders *s, const struct act *a, const float *x, size_t ldx,
                           const uint32_t *rows) {
    bool q8 = a->kind == ACT_Q8;
    struct {
        uint64_t x, f, q, d, sums, start, s, rows;
        uint32_t ldx, n_cols, n_tokens, q8;
    } push = {at(s, x), 0, 0, 0, 0, 0, 0, at(s, rows), ld(ldx), a->n_cols, a->n_tokens, q8};
    if (q8) {
        push.q = at(s, a->q);
        push.d = at(s, a->d);
        push.sums = at(s, a->sums);
        push.start = at(s, a->start);
        push.s = at(s, a->s);
    } else {
        push.f = at(s, a->f);
    }
    touches_floats(s, x, a->n_cols, a->n_tokens);
    touches(s, q8 ? (void *)a->q : a->f, a->n_cols, q8 ? 1 : sizeof(float), a->n_tokens);
    RUN(s, SHADER_ACT_PACK, push, div_up(a->n_cols, 8 * ACT_BLOCK), a->n_tokens);
}

struct product_push { /* matmul.comp, matmul_tiles.comp */
    uint64_t tiles, values, d, sums, s, y, rows;
    uint32_t n_cols, col_phase, tile_bytes, n_tokens, ldy, seg_cols;
    float scale;
    uint32_t n_used;
    uint64_t choices, matrices;
    uint32_t n_tiles, n_experts;
    uint64_t groups;
    uint32_t n_squares, unused;
};
_Static_assert(sizeof(struct product_push) <= 128, "push constants");

static struct product_push product_push(const struct shaders *s, const struct wmat *w,
                                        const struct act *x, void *y, size_t ldy,
                                        const uint32_t *rows, uint32_t seg_cols) {
    const bool q8 = x->kind == ACT_Q8;
    BUG_ON(w->tile_bytes > UINT32_MAX);
    return (struct product_push){.tiles = at(s, w->tiles),
                                 .values = q8 ? at(s, x->q) : at(s, x->f),
                                 .d = q8 ? at(s, x->d) : 0,
                                 .sums = q8 ? at(s, x->sums) : 0,
                                 .s = q8 ? at(s, x->s) : 0,
                                 .y = at(s, y),
                                 .rows = at(s, rows),
                                 .n_cols = w->n_cols,
                                 .col_phase = w->col_phase,
                                 .tile_bytes = (uint32_t)w->tile_bytes,
                                 .n_tokens = x->n_tokens,
                                 .ldy = ld(ldy),
                                 .seg_cols = seg_cols,
                                 .scale = w->scale,
                                 .n_tiles = wmat_n_tiles(w)};
}

static void touches_act(struct shaders *s, const struct act *x) {
    const bool q8 = x->kind == ACT_Q8;
    touches(s, q8 ? (void *)x->q : x->f, x->n_cols, q8 ? 1 : sizeof(float), x->n_tokens);
}

static void product_of_piece(struct shaders *s, enum product p, const struct wmat *w,
                             const struct act *x, void *y, size_t ldy, const uint32_t *rows,
                             uint32_t seg_cols, bool beside) {
    const struct device_kernel *k = s->products[w->type][p];
    BUG_ON(k == NULL); /* shaders_prepare() */
    const bool fixed = p >= PRODUCT_FIXED_ONE;
    const struct product_push push = product_push(s, w, x, y, ldy, rows, seg_cols);
    touches(s, w->tiles, w->tile_bytes, 1, wmat_n_tiles(w));
    touches_act(s, x);
    touches(s, y, w->n_rows, fixed ? sizeof(int64_t) : sizeof(float), x->n_tokens);
    uint32_t x_groups = wmat_n_tiles(w), y_groups = 1;
    if (p == PRODUCT_FEW || p == PRODUCT_FIXED_FEW) {
        y_groups = act_n_groups(x->n_tokens) * (uint32_t)div_up(ACT_GROUP, SHADERS_TOKENS);
    } else if (p == PRODUCT_MANY || p == PRODUCT_FIXED_MANY) {
        /* Those of the same rows follow each other: a cache has the weights. */
        x_groups = (uint32_t)div_up(x->n_tokens, SHADERS_SIDE);
        y_groups = (uint32_t)div_up(w->n_rows, SHADERS_SIDE);
    }
    (beside ? device_run_beside : device_run)(s->d, k, &push, sizeof push, x_groups, y_groups,
                                              1);
}

/* A matrix may lie in several pieces of mapped memory, cut between tiles: a run for each. */
static void product(struct shaders *s, enum product p, const struct wmat *w,
                    const struct act *x, void *y, size_t ldy, const uint32_t *rows,
                    uint32_t seg_cols, bool beside) {
    const size_t size = p >= PRODUCT_FIXED_ONE ? sizeof(int64_t) : sizeof(float);
    for (uint32_t begin = 0; begin < w->n_rows;) {
        struct wmat part = *w;
        part.tiles += begin / TILE_ROWS * w->tile_bytes;
        const size_t n_tiles = device_reach(s->d, part.tiles) / w->tile_bytes;
        BUG_ON(n_tiles == 0);
        part.n_rows = (uint32_t)MIN(n_tiles * TILE_ROWS, (size_t)(w->n_rows - begin));
        product_of_piece(s, p, &part, x, (uint8_t *)y + begin * size, ldy, rows, seg_cols,
                         beside || begin != 0);
        begin += part.n_rows;
    }
}

static enum product product_for(bool fixed, uint32_t n_tokens) {
    enum product p = PRODUCT_ONE;
    if (n_tokens > 1)
        p = n_tokens < SHADERS_MANY ? PRODUCT_FEW : PRODUCT_MANY;
    return fixed ? p + PRODUCT_FIXED_ONE : p;
}

void shaders_matmul(struct shaders *s, const struct wmat *w, const struct act *x, float *y,
                    size_t ldy, bool beside) {
    product(s, product_for(false, x->n_tokens), w, x, y, ldy, NULL, 0, beside);
}

void shaders_matmul_fixed(struct shaders *s, const struct wmat *w, const struct act *x,
                          int64_t *y, size_t ldy, uint32_t seg_cols) {
    shaders_matmul_fixed_add(s, w, x, y, ldy, NULL, seg_cols);
}

void shaders_matmul_fixed_add(struct shaders *s, const struct wmat *w, const struct act *x,
                              int64_t *y, size_t ldy, const uint32_t *rows, uint32_t seg_cols) {
    product(s, product_for(true, x->n_tokens), w, x, y, ldy, rows, seg_cols, false);
}

/* ---- norms ------------------------------------------------------------------------------- */

static void norms(struct shaders *s, struct rows y, struct rows x, const float *w, uint32_t n,
                  uint32_t n_heads, size_t stride, uint32_t n_tokens, float eps) {
    struct {
        uint64_t y, x, w;
        uint32_t ldy, ldx, stride, n;
        float eps;
        uint32_t unused;
    } push = {at(s, y.p), at(s, x.p), at(s, w), ld(y.ld), ld(x.ld), ld(stride), n, eps, 0};
    touches_floats(s, x.p, n, (size_t)n_heads * n_tokens);
    touches_floats(s, y.p, n, (size_t)n_heads * n_tokens);
    touches_floats(s, w, n, (size_t)n_heads * n_tokens);
    RUN(s, SHADER_RMSNORM, push, n_heads, n_tokens);
}

void shaders_rmsnorm(struct shaders *s, struct rows y, struct rows x, const float *w,
                     uint32_t n, uint32_t n_rows, float eps) {
    norms(s, y, x, w, n, 1, 0, n_rows, eps);
}

void shaders_head_norms(struct shaders *s, struct rows x, const float *w, uint32_t head_dim,
                        uint32_t n_heads, size_t stride, uint32_t n_tokens, float eps) {
    norms(s, x, x, w, head_dim, n_heads, stride, n_tokens, eps);
}

enum lanes16_op { CENTER, PLAIN_NORM }; /* lanes16.comp */

static void lanes16(struct shaders *s, enum lanes16_op op, struct rows y, struct rows x,
                    size_t stride, uint32_t n, uint32_t n_heads, uint32_t n_tokens, float eps) {
    struct {
        uint64_t y, x;
        uint32_t ldy, ldx, stride, n, op;
        float eps;
    } push = {at(s, y.p), at(s, x.p), ld(y.ld), ld(x.ld), ld(stride), n, op, eps};
    touches_floats(s, x.p, n, (size_t)n_heads * n_tokens);
    touches_floats(s, y.p, n, (size_t)n_heads * n_tokens);
    RUN(s, SHADER_LANES16, push, n_heads, n_tokens);
}

void shaders_center(struct shaders *s, struct rows y, struct rows x, uint32_t n,
                    uint32_t n_rows) {
    lanes16(s, CENTER, y, x, 0, n, 1, n_rows, 0);
}

void shaders_plain_norms(struct shaders *s, struct rows x, uint32_t head_dim, uint32_t n_heads,
                         size_t stride, uint32_t n_tokens, float eps) {
    lanes16(s, PLAIN_NORM, x, x, stride, head_dim, n_heads, n_tokens, eps);
}

struct row_norm_push { /* row_norm.comp */
    uint64_t x, sums, w;
    uint32_t ldx, ld_sums, head_dim, n_heads;
    enum { SQUARES, NORM } op;
    float count, eps;
};

void shaders_row_squares(struct shaders *s, int64_t *sums, size_t ld_sums, struct rows x,
                         uint32_t head_dim, uint32_t n_heads, uint32_t n_tokens) {
    struct row_norm_push push = {at(s, x.p), at(s, sums), 0,       ld(x.ld), ld(ld_sums),
                                 head_dim,   n_heads,     SQUARES, 0,        0};
    touches_floats(s, x.p, (size_t)n_heads * head_dim, n_tokens);
    touches(s, sums, 1, sizeof *sums, n_tokens);
    RUN(s, SHADER_ROW_NORM, push, n_tokens, 1);
}

void shaders_row_norm(struct shaders *s, struct rows x, const int64_t *sums, size_t ld_sums,
                      const float *w, uint32_t n, float count, uint32_t n_tokens, float eps) {
    struct row_norm_push push = {at(s, x.p), at(s, sums), at(s, w), ld(x.ld), ld(ld_sums),
                                 n,          1,           NORM,     count,    eps};
    touches_floats(s, x.p, n, n_tokens);
    touches(s, sums, 1, sizeof *sums, n_tokens);
    touches_floats(s, w, n, n_tokens);
    RUN(s, SHADER_ROW_NORM, push, n_tokens, 1);
}

/* ---- vectors ----------------------------------------------------------------------------- */

enum vector_op {
    FIXED_ADD,
    FIXED_GET,
    ADD,
    SCALE,
    SOFTCAP,
    FIXED_BIAS,
    SCALE_ROWS,
    FIXED_ZERO,
    TIMES
}; /* vector.comp */

#define VECTOR_LANES 256

static void vector(struct shaders *s, enum vector_op op, void *x, size_t ldx, const void *y,
                   size_t ldy, uint32_t n, uint32_t n_rows, float by) {
    struct {
        uint64_t x, y;
        uint32_t ldx, ldy, n, op;
        float by;
        uint32_t unused;
    } push = {at(s, x), at(s, y), ld(ldx), ld(ldy), n, op, by, 0};
    const bool x_is_fixed = op == FIXED_BIAS || op == FIXED_ZERO;
    const bool y_is_fixed = op == FIXED_ADD || op == FIXED_GET;
    touches(s, x, n, x_is_fixed ? sizeof(int64_t) : sizeof(float), n_rows);
    touches(s, y, op == SCALE_ROWS ? 1 : n, y_is_fixed ? sizeof(int64_t) : sizeof(float),
            n_rows);
    RUN(s, SHADER_VECTOR, push, div_up(n, VECTOR_LANES), n_rows);
}

void shaders_fixed_add(struct shaders *s, struct rows x, const int64_t *acc, size_t ld_acc,
                       uint32_t n, uint32_t n_rows) {
    vector(s, FIXED_ADD, x.p, x.ld, acc, ld_acc, n, n_rows, 0);
}

void shaders_fixed_get(struct shaders *s, struct rows x, const int64_t *acc, size_t ld_acc,
                       uint32_t n, uint32_t n_rows) {
    vector(s, FIXED_GET, x.p, x.ld, acc, ld_acc, n, n_rows, 0);
}

void shaders_add(struct shaders *s, struct rows y, struct rows x, uint32_t n, uint32_t n_rows) {
    vector(s, ADD, y.p, y.ld, x.p, x.ld, n, n_rows, 0);
}

void shaders_times(struct shaders *s, struct rows y, struct rows x, uint32_t n,
                   uint32_t n_rows) {
    vector(s, TIMES, y.p, y.ld, x.p, x.ld, n, n_rows, 0);
}

void shaders_add_vector(struct shaders *s, struct rows y, const float *x, uint32_t n,
                        uint32_t n_rows) {
    vector(s, ADD, y.p, y.ld, x, 0, n, n_rows, 0);
}

void shaders_scale(struct shaders *s, struct rows x, float by, uint32_t n, uint32_t n_rows) {
    vector(s, SCALE, x.p, x.ld, NULL, 0, n, n_rows, by);
}

void shaders_scale_rows(struct shaders *s, struct rows x, const float *by, uint32_t n,
                        uint32_t n_rows) {
    vector(s, SCALE_ROWS, x.p, x.ld, by, 1, n, n_rows, 0);
}

void shaders_softcap(struct shaders *s, struct rows x, float cap, uint32_t n, uint32_t n_rows) {
    vector(s, SOFTCAP, x.p, x.ld, NULL, 0, n, n_rows, cap);
}

void shaders_fixed_bias(struct shaders *s, int64_t *acc, size_t ld_acc, const float *bias,
                        float by, uint32_t n, uint32_t n_rows) {
    vector(s, FIXED_BIAS, acc, ld_acc, bias, 0, n, n_rows, by);
}

void shaders_fixed_zero(struct shaders *s, int64_t *acc, size_t ld_acc, uint32_t n,
                        uint32_t n_rows) {
    vector(s, FIXED_ZERO, acc, ld_acc, NULL, 0, n, n_rows, 0);
}

void shaders_copy(struct shaders *s, void *to, size_t to_stride, const void *from,
                  size_t from_stride, size_t n, uint32_t n_rows) {
    BUG_ON((to_stride | from_stride | n) % 4 != 0);
    struct {
        uint64_t to, from;
        uint32_t to_stride, from_stride, n, unused;
    } push = {at(s, to), at(s, from), ld(to_stride / 4), ld(from_stride / 4), ld(n / 4), 0};
    touches(s, to, n, 1, n_rows);
    touches(s, from, n, 1, n_rows);
    RUN(s, SHADER_COPY, push, div_up(n / 4, VECTOR_LANES), n_rows);
}

void shaders_rope(struct shaders *s, struct rows x, uint32_t n_heads, size_t stride,
                  uint32_t n_rot, const float *cos, const float *sin, enum rope_mode mode,
                  uint32_t n_tokens) {
    struct {
        uint64_t x, cos, sin;
        uint32_t ldx, stride, n_heads, n_rot, neox, unused;
    } push = {at(s, x.p), at(s, cos), at(s, sin),        ld(x.ld), ld(stride),
              n_heads,    n_rot,      mode == ROPE_NEOX, 0};
    touches_floats(s, x.p, (size_t)n_heads * n_rot, n_tokens);
    touches_floats(s, cos, n_rot / 2, n_tokens);
    touches_floats(s, sin, n_rot / 2, n_tokens);
    RUN(s, SHADER_ROPE, push, div_up((size_t)n_heads * (n_rot / 2), 64), n_tokens);
}

#define ACTIVATE_SWIGLU_LIMITED 6 /* activate.comp: beyond enum ffn_act */

bool shaders_activate(struct shaders *s, enum ffn_act act, struct situ_params situ, float limit,
                      struct rows gate, struct rows up, uint32_t n, uint32_t n_rows) {
    uint32_t form = act;
    if (act > FFN_RELU2)
        return false;
    if (act == FFN_SWIGLU_CLAMPED && limit == 0.0f)
        form = FFN_SWIGLU;
    if (act == FFN_SWIGLU && limit != 0.0f)
        form = ACTIVATE_SWIGLU_LIMITED;
    struct {
        uint64_t gate, up;
        uint32_t ld_gate, ld_up, n, act;
        float limit, situ_gate, situ_up;
        uint32_t unused;
    } push = {at(s, gate.p),
              act == FFN_RELU2 ? 0 : at(s, up.p),
              ld(gate.ld),
              ld(up.ld),
              n,
              form,
              limit,
              situ.gate,
              situ.up,
              0};
    touches_floats(s, gate.p, n, n_rows);
    touches_floats(s, act == FFN_RELU2 ? NULL : up.p, n, n_rows);
    RUN(s, SHADER_ACTIVATE, push, div_up(n, VECTOR_LANES), n_rows);
    return true;
}

enum heads_op { GATE_VALUES, GATE_HEADS, SCALE_HEADS }; /* heads.comp */

static void heads(struct shaders *s, enum heads_op op, const struct shaders_heads *h,
                  const float *by, size_t ld_by, size_t stride_by) {
    struct {
        uint64_t x, by;
        uint32_t ldx, ld_by, stride, stride_by, n, op;
    } push = {at(s, h->x.p), at(s, by),     ld(h->x.ld), ld(ld_by),
              ld(h->stride), ld(stride_by), h->dim,      op};
    touches_floats(s, h->x.p, (size_t)h->n_heads * h->dim, h->n_tokens);
    touches_floats(s, by,
                   op == SCALE_HEADS ? 1 : h->n_heads * (op == GATE_HEADS ? 1 : (size_t)h->dim),
                   h->n_tokens);
    if (h->n_heads != 0)
        device_run(s->d, s->kernels[SHADER_HEADS], &push, sizeof push,
                   (uint32_t)div_up(h->dim, 64), h->n_heads, h->n_tokens);
}

void shaders_gate_heads(struct shaders *s, const struct shaders_heads *h, struct rows gates,
                        size_t gate_stride, bool one) {
    heads(s, one ? GATE_HEADS : GATE_VALUES, h, gates.p, gates.ld, gate_stride);
}

void shaders_scale_heads(struct shaders *s, const struct shaders_heads *h, const float *by) {
    heads(s, SCALE_HEADS, h, by, 1, 0);
}

/* ---- experts ----------------------------------------------------------------------------- */

bool shaders_can_route(const struct router *r) {
    return r->n_experts <= SHADERS_EXPERTS_MAX && r->n_used <= SHADERS_USED_MAX &&
           r->n_groups <= SHADERS_EXPERT_GROUPS_MAX && r->gating != GATING_SQRT_SOFTPLUS;
}

void shaders_route(struct shaders *s, const struct router *r,
                   const struct shaders_routing *tokens) {
    BUG_ON(!shaders_can_route(r));
    struct {
        uint64_t logits, bias, choice_bias, expert_scale, choices, shared_logits,
            shared_weights;
        uint32_t ld_logits, ld_shared, n_experts, n_used, n_groups, n_groups_used;
        uint32_t groups_by_best, gating, normalize;
        float scale;
    } push = {at(s, tokens->logits.p),
              at(s, r->bias),
              at(s, r->choice_bias),
              at(s, r->expert_scale),
              at(s, tokens->out),
              at(s, tokens->shared_logits.p),
              at(s, tokens->shared_weights),
              ld(tokens->logits.ld),
              ld(tokens->shared_logits.ld),
              r->n_experts,
              r->n_used,
              r->n_groups,
              r->n_groups_used,
              r->groups_by_best,
              r->gating,
              r->normalize,
              r->scale};
    touches_floats(s, tokens->logits.p, r->n_experts, tokens->n_tokens);
    touches(s, tokens->out, r->n_used, sizeof *tokens->out, tokens->n_tokens);
    RUN(s, SHADER_ROUTE, push, tokens->n_tokens, 1);
}

struct shaders_matrix shaders_matrix(const struct shaders *s, const struct wmat *w) {
    const bool held = w->n_rows != 0 && w->n_cols != 0;
    BUG_ON(held && device_reach(s->d, w->tiles) < wmat_bytes(w));
    return (struct shaders_matrix){.tiles = held ? at(s, w->tiles) : 0, .scale = w->scale};
}

/* The most squares that experts have (groups.glsl): each has SHADERS_MANY choices or more. */
static uint32_t most_squares(uint32_t n_choices, uint32_t n_experts) {
    return MIN(n_choices / SHADERS_SIDE + n_experts, n_choices / SHADERS_MANY);
}

size_t shaders_group_words(uint32_t n_choices, uint32_t n_experts) {
    return n_experts + 1 + 2 * (size_t)most_squares(n_choices, n_experts) + n_choices;
}

void shaders_group(struct shaders *s, const struct shaders_chosen *c) {
    const uint32_t n = c->n_tokens * c->n_used;
    struct {
        uint64_t choices, groups;
        uint32_t n, n_experts, n_squares, begin, end, unused;
    } push = {
        at(s, c->choices), at(s, c->groups), n, c->n_experts, most_squares(n, c->n_experts),
        c->begin,          c->end,           0};
    BUG_ON(c->n_experts > SHADERS_EXPERTS_MAX);
    touches(s, c->choices, 1, sizeof *c->choices, n);
    touches(s, c->groups, shaders_group_words(n, c->n_experts), sizeof *c->groups, 1);
    RUN(s, SHADER_GROUP, push, 1, 1);
}

static void run_product(struct shaders *s, const struct wmat *like, enum product p,
                        const struct product_push *push, uint32_t x, uint32_t y, bool beside) {
    const struct device_kernel *k = s->products[like->type][p];
    BUG_ON(k == NULL);
    (beside ? device_run_beside : device_run)(s->d, k, push, sizeof *push, x, y, 1);
}

/* As products of one matrix do: squares of an expert's choices, and beside them what is left. */
static void grouped_product(struct shaders *s, bool fixed, const struct shaders_chosen *c,
                            const struct wmat *like, struct product_push push, bool beside) {
    const uint32_t n_squares = most_squares(c->n_tokens * c->n_used, c->n_experts);
    push.groups = at(s, c->groups);
    push.n_experts = c->n_experts;
    push.n_squares = n_squares;
    touches(s, like->tiles, like->tile_bytes * wmat_n_tiles(like), 1, c->end - c->begin);
    run_product(s, like, fixed ? PRODUCT_FIXED_FEW : PRODUCT_FEW, &push, wmat_n_tiles(like),
                c->n_experts, beside);
    run_product(s, like, fixed ? PRODUCT_FIXED_MANY : PRODUCT_MANY, &push, n_squares,
                (uint32_t)div_up(like->n_rows, SHADERS_SIDE), true);
}

static void chosen_product(struct shaders *s, bool fixed, const struct shaders_chosen *c,
                           const struct shaders_matrix *matrices, const struct wmat *like,
                           struct product_push push, uint32_t n_rows, bool beside) {
    push.n_used = c->n_used;
    push.choices = at(s, c->choices);
    push.matrices = at(s, matrices);
    if (c->groups != NULL) {
        grouped_product(s, fixed, c, like, push, beside);
        return;
    }
    touches(s, like->tiles, like->tile_bytes * wmat_n_tiles(like), c->n_used, c->n_tokens);
    run_product(s, like, fixed ? PRODUCT_FIXED_ONE : PRODUCT_ONE, &push, wmat_n_tiles(like),
                n_rows, beside);
}

void shaders_chosen_matmul(struct shaders *s, const struct shaders_chosen *c,
                           const struct shaders_matrix *matrices, const struct wmat *like,
                           const struct act *x, struct rows y, bool beside) {
    const uint32_t n_rows = c->n_tokens * c->n_used;
    touches_act(s, x);
    touches_floats(s, y.p, like->n_rows, n_rows);
    chosen_product(s, false, c, matrices, like, product_push(s, like, x, y.p, y.ld, NULL, 0),
                   n_rows, beside);
}

void shaders_chosen_matmul_fixed(struct shaders *s, const struct shaders_chosen *c,
                                 const struct shaders_matrix *matrices, const struct wmat *like,
                                 const struct act *x, int64_t *y, size_t ldy, uint32_t seg_cols,
                                 bool adds) {
    struct product_push push = product_push(s, like, x, y, ldy, NULL, seg_cols);
    push.rows = adds; /* whether there are any is all that is asked */
    touches_act(s, x);
    touches(s, y, like->n_rows, sizeof *y, c->n_tokens);
    if (c->groups != NULL && !adds)
        shaders_fixed_zero(s, y, ldy, like->n_rows, c->n_tokens);
    chosen_product(s, true, c, matrices, like, push, c->n_tokens, false);
}

enum chosen_op { CHOSEN_ADD, CHOSEN_FIXED }; /* chosen.comp */

static void biases(struct shaders *s, enum chosen_op op, const struct shaders_chosen *c,
                   void *x, size_t ldx, const float *bias, size_t stride, uint32_t n) {
    struct {
        uint64_t x, bias, choices;
        uint32_t ldx, ld_bias, n, n_used, begin, end, op, unused;
    } push = {at(s, x), at(s, bias), at(s, c->choices), ld(ldx), ld(stride),
              n,        c->n_used,   c->begin,          c->end,  op,
              0};
    const uint32_t n_rows = c->n_tokens * c->n_used;
    touches(s, x, n, op == CHOSEN_FIXED ? sizeof(int64_t) : sizeof(float),
            op == CHOSEN_FIXED ? c->n_tokens : n_rows);
    touches_floats(s, bias, n, n_rows);
    RUN(s, SHADER_CHOSEN, push, div_up(n, VECTOR_LANES),
        op == CHOSEN_FIXED ? c->n_tokens : n_rows);
}

void shaders_chosen_weigh(struct shaders *s, const struct shaders_chosen *c,
                          const struct act *to, const struct act *x) {
    const bool q8 = x->kind == ACT_Q8;
    struct {
        uint64_t from, d, sums, start, to, to_d, to_sums, to_start, to_s, choices;
        uint32_t n_cols, n_tokens, n_used;
        float least;
    } push = {.from = q8 ? at(s, x->q) : at(s, x->f),
              .to = q8 ? at(s, to->q) : at(s, to->f),
              .choices = at(s, c->choices),
              .n_cols = x->n_cols,
              .n_tokens = c->n_tokens,
              .n_used = c->n_used,
              .least = ACT_LEAST_SCALE};
    if (q8) {
        push.d = at(s, x->d), push.to_d = at(s, to->d);
        push.sums = at(s, x->sums), push.to_sums = at(s, to->sums);
        push.start = at(s, x->start), push.to_start = at(s, to->start);
        push.to_s = at(s, to->s);
    }
    touches_act(s, x);
    touches_act(s, to);
    RUN(s, SHADER_ACT_WEIGH, push, div_up(x->n_cols, 64 * ACT_BLOCK), c->n_tokens * c->n_used);
}

void shaders_chosen_add(struct shaders *s, const struct shaders_chosen *c, struct rows x,
                        const float *bias, size_t stride, uint32_t n) {
    biases(s, CHOSEN_ADD, c, x.p, x.ld, bias, stride, n);
}

void shaders_chosen_fixed_bias(struct shaders *s, const struct shaders_chosen *c, int64_t *acc,
                               size_t ld_acc, const float *bias, size_t stride, uint32_t n) {
    biases(s, CHOSEN_FIXED, c, acc, ld_acc, bias, stride, n);
}

void shaders_chosen_scale(struct shaders *s, const struct shaders_chosen *c, struct rows x,
                          uint32_t n) {
    const size_t apart = sizeof *c->choices / sizeof(float);
    vector(s, SCALE_ROWS, x.p, x.ld, &c->choices->weight, apart, n, c->n_tokens * c->n_used, 0);
}

/* ---- the cache, attention ---------------------------------------------------------------- */

/* Keys in tiles of positions, or rows of values. */
static void store_part(struct shaders *s, const struct kv_shape *shape, bool tiles,
                       struct rows x, uint32_t dim, size_t codes, size_t scales,
                       const uint64_t *pages, const uint32_t *slots, uint32_t n_tokens) {
    const struct kv_layout l = kv_layout(shape);
    struct {
        uint64_t x, pages, slots;
        uint32_t ldx, n_heads, dim, head_bytes, codes, scales, type, tiles;
    } push = {at(s, x.p),        at(s, pages), at(s, slots), ld(x.ld),
              shape->n_kv_heads, dim,          ld(l.bytes),  ld(codes),
              ld(scales),        shape->type,  tiles};
    size_t n_blocks = div_up(tiles ? dim : round_up(dim, TILE_ROWS), KV_BLOCK);
    touches_floats(s, x.p, (size_t)shape->n_kv_heads * dim, n_tokens);
    touches(s, pages, 1, sizeof *pages, n_tokens);
    touches(s, slots, 1, sizeof *slots, n_tokens);
    RUN(s, SHADER_KV_STORE, push, div_up(shape->n_kv_heads * n_blocks, 64), n_tokens);
}

void shaders_kv_store(struct shaders *s, const struct kv_shape *shape, struct rows k,
                      struct rows v, const uint64_t *pages, const uint32_t *slots,
                      uint32_t n_tokens) {
    const struct kv_layout l = kv_layout(shape);
    store_part(s, shape, !shape->latent, k, shape->k_dim, 0, l.k_scales, pages, slots,
               n_tokens);
    if (!shape->latent)
        store_part(s, shape, false, v, shape->v_dim, l.v, l.v_scales, pages, slots, n_tokens);
}

/* Workgroups of a token and a span, of up to `together` heads of a kv head (attention.comp). */
static uint32_t workgroups(const struct shaders_attention *a, uint32_t together) {
    const uint32_t parts = (uint32_t)div_up(a->group, together), first = a->first_head,
                   last = first + a->n_heads - 1;
    return a->n_heads == 0 ? 0
                           : (last / a->group * parts + last % a->group / together) -
                                 (first / a->group * parts + first % a->group / together) + 1;
}

/* Spans side by side where one token or a few have too few heads to keep a device busy, and
 * there is space for the partials; 0: a workgroup takes all spans of its heads. */
static uint32_t spans_side_by_side(const struct shaders_attention *a) {
    enum { ENOUGH = 1024 };
    size_t n_spans = div_up(a->max_end, ATTN_SPAN), heads = (size_t)a->n_heads * a->n_tokens;
    if (n_spans < 2 || heads >= ENOUGH ||
        heads * n_spans > SHADERS_PARTIALS / (a->shape->v_dim + 2))
        return 0;
    return (uint32_t)n_spans;
}

uint32_t shaders_heads_together(uint32_t group) {
    return (uint32_t)div_up(group, div_up(group, SHADERS_HEADS_MOST));
}

/* Few workgroups leave parts of a device idle, and none waits for the cache: then each has one
 * head. A software device has few processors. */
static uint32_t heads_together(const struct shaders *s, const struct shaders_attention *a) {
    const size_t enough = device_info(s->d)->kind == DEVICE_SOFTWARE ? 8 : 128,
                 n_spans = MAX(spans_side_by_side(a), 1u);
    const uint32_t together = shaders_heads_together(a->group);
    return workgroups(a, together) * a->n_tokens * n_spans >= enough ? together : 1;
}

void shaders_attention(struct shaders *s, const struct shaders_attention *a) {
    shaders_attention_by(s, a, heads_together(s, a));
}

void shaders_attention_by(struct shaders *s, const struct shaders_attention *a,
                          uint32_t together) {
    const struct kv_layout l = kv_layout(a->shape);
    const uint32_t n_spans = spans_side_by_side(a);
    const struct device_kernel *k = s->attention[a->shape->type][together - 1];
    BUG_ON(k == NULL || a->shape->v_dim > 1024); /* shaders_prepare_attention() */
    struct {
        uint64_t queries, pages, q, out, sinks, partials;
        uint32_t ldq, q_stride, ld_out, out_stride, first_head, group, first_kv;
        uint32_t k_dim, v_dim, latent, head_bytes, k_scales, v, v_scales, n_spans;
        float scale, softcap;
        uint32_t n_heads;
    } push = {at(s, a->queries), at(s, a->pages), at(s, a->q.p),
              at(s, a->out.p),   at(s, a->sinks), n_spans != 0 ? at(s, s->partials) : 0,
              ld(a->q.ld),       ld(a->q_stride), ld(a->out.ld),
              ld(a->out_stride), a->first_head,   a->group,
              a->first_kv,       a->shape->k_dim, a->shape->v_dim,
              a->shape->latent,  ld(l.bytes),     ld(l.k_scales),
              ld(l.v),           ld(l.v_scales),  n_spans,
              a->scale,          a->softcap,      a->n_heads};
    _Static_assert(sizeof push <= 128, "push constants");
    touches_floats(s, a->q.p, (size_t)a->n_heads * a->shape->k_dim, a->n_tokens);
    touches_floats(s, a->out.p, (size_t)a->n_heads * a->shape->v_dim, a->n_tokens);
    touches_floats(s, a->sinks, a->n_heads, 1);
    touches(s, a->queries, 1, sizeof *a->queries, a->n_tokens);
    touches(s, a->pages, div_up(a->max_end, KV_PAGE), sizeof *a->pages, 1);
    device_run(s->d, k, &push, sizeof push, workgroups(a, together), a->n_tokens,
               n_spans != 0 ? n_spans : 1);
    if (n_spans != 0)
        RUN(s, SHADER_ATTENTION_MERGE, push, a->n_heads, a->n_tokens);
}
