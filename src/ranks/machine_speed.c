/* machine_speed.c: times products with a tall matrix of zeros. */
#include "ranks/machine_speed.h"

#include "base/clock.h"
#include "base/median.h"
#include "base/mem.h"
#include "base/util.h"
#include "ranks/device_reading.h"

#define COLS 2048
#define READ_SECONDS 0.1
#define READ_TRIES 9
#define BYTES_LEAST ((size_t)4 << 20)
/* Of a prompt: so many tokens at once, with so much of the matrix. */
#define BATCH_TOKENS 48
#define BATCH_BYTES ((size_t)2 << 20)
#define BATCH_SECONDS 0.03
#define BATCH_TRIES 5

struct machine_speed {
    struct machine_speed_wish wish;
    struct wmat w;     /* all of it: for one token */
    struct wmat first; /* its first rows: for many */
    uint8_t *tiles;
    size_t bytes;
    struct act x, many;
    float *x_block;
    size_t x_bytes;
    float *y;
    size_t y_bytes;
    struct device_reading device; /* of one that has one */
};

enum qtype machine_speed_type(const struct gguf_totals *all) {
    enum qtype best = QT_F32;
    for (uint32_t i = 0; i < QT_N; i++)
        if (wmat_type_supported(i) && all->types[i].n_bytes > all->types[best].n_bytes)
            best = i;
    return best;
}

/* ---- what is multiplied ------------------------------------------------------------------ */

static void touch_on_thread(void *arg, struct pool *pool, int thread) {
    struct machine_speed *m = arg;
    size_t begin, end;
    (void)thread;
    while (pool_claim(pool, wmat_n_tiles(&m->w), 64, &begin, &end))
        memset(m->tiles + begin * m->w.tile_bytes, 0, (end - begin) * m->w.tile_bytes);
}

static void read_on_thread(void *arg, struct pool *pool, int thread) {
    struct machine_speed *m = arg;
    size_t begin, end;
    (void)thread;
    while (pool_claim(pool, wmat_n_tiles(&m->w), 4, &begin, &end))
        m->wish.kernels->matmul(&m->w, &m->x, m->y, m->w.n_rows, (uint32_t)begin,
                                (uint32_t)end);
}

static void batch_on_thread(void *arg, struct pool *pool, int thread) {
    struct machine_speed *m = arg;
    size_t begin, end;
    (void)thread;
    while (pool_claim(pool, wmat_n_tiles(&m->first), 4, &begin, &end))
        m->wish.kernels->matmul(&m->first, &m->many, m->y, m->first.n_rows, (uint32_t)begin,
                                (uint32_t)end);
}

/* f32, or codes, scales, sums in their forms: whichever is larger is the first. */
static struct act act_of(const struct machine_speed *m, size_t n_tokens) {
    size_t n_blocks = n_tokens * (COLS / ACT_BLOCK);
    float *x = m->x_block;
    return (struct act){.kind = act_kind_for(m->wish.type),
                        .n_tokens = (uint32_t)n_tokens,
                        .n_cols = COLS,
                        .f = x,
                        .d = x,
                        .s = x + n_blocks,
                        .sums = (struct act_sums *)(x + 2 * n_blocks),
                        .start = (int32_t *)(x + 3 * n_blocks),
                        .q = (int8_t *)(x + 4 * n_blocks)};
}

static struct wmat tall(enum qtype type, size_t bytes) {
    struct wmat tile = wmat_shape(type, TILE_ROWS, COLS, 0);
    size_t n_tiles = div_up(bytes, tile.tile_bytes);
    return wmat_shape(type, (uint32_t)(n_tiles * TILE_ROWS), COLS, 0);
}

static enum status open_device(struct machine_speed *m, struct err *err) {
    const struct device_block blocks[3] = {
        {m->tiles, m->bytes}, {m->x_block, m->x_bytes}, {m->y, m->y_bytes}};
    return m->wish.device != NULL ? device_reading_open(&m->device, m->wish.device, &m->w,
                                                        &m->x, m->y, blocks, err)
                                  : ST_OK;
}

enum status machine_speed_open(struct machine_speed **out,
                               const struct machine_speed_wish *wish, struct err *err) {
    struct machine_speed *m = mem_calloc(1, sizeof *m);
    if (m == NULL)
        return err_set(err, ST_NO_MEMORY, "no memory to measure how fast it is");
    m->wish = *wish;
    size_t bytes = MIN(MAX(wish->bytes, BYTES_LEAST), MACHINE_SPEED_BYTES);
    m->w = tall(wish->type, bytes);
    m->first = tall(wish->type, BATCH_BYTES);
    m->bytes = wmat_bytes(&m->w);
    m->x_bytes = (size_t)BATCH_TOKENS * 2 * COLS * sizeof(float);
    m->y_bytes =
        MAX((size_t)m->w.n_rows, (size_t)m->first.n_rows * BATCH_TOKENS) * sizeof(float);
    m->tiles = mem_huge_alloc(m->bytes);
    m->x_block = mem_huge_alloc(m->x_bytes);
    m->y = mem_huge_alloc(m->y_bytes);
    if (m->tiles == NULL || m->y == NULL || m->x_block == NULL) {
        machine_speed_close(m);
        return err_set(err, ST_NO_MEMORY, "no memory to measure how fast it is");
    }
    m->w.tiles = m->first.tiles = m->tiles;
    m->x = act_of(m, 1);
    m->many = act_of(m, BATCH_TOKENS);
    pool_run(wish->pool, touch_on_thread, m);
    enum status st = open_device(m, err);
    if (st != ST_OK)
        machine_speed_close(m);
    else
        *out = m;
    return st;
}

void machine_speed_close(struct machine_speed *m) {
    if (m == NULL)
        return;
    if (device_reading_close(&m->device)) { /* else it is nobody's */
        mem_huge_free(m->tiles, m->bytes);
        mem_huge_free(m->x_block, m->x_bytes);
        mem_huge_free(m->y, m->y_bytes);
    }
    mem_free(m);
}

/* ---- measuring --------------------------------------------------------------------------- */

static enum status read_once(double *seconds, struct machine_speed *m, struct err *err) {
    if (m->wish.device != NULL)
        return device_reading_time(seconds, &m->device, m->wish.crossing_s, err);
    double began = clock_s();
    pool_run(m->wish.pool, read_on_thread, m);
    *seconds = clock_s() - began;
    return ST_OK;
}

enum status machine_speed_read(double *rate, struct machine_speed *m, struct err *err) {
    double seconds[READ_TRIES], first = clock_s();
    size_t n = 0;
    enum status st = read_once(&seconds[0], m, err); /* not counted: the threads wake up */
    while (st == ST_OK && n < READ_TRIES && (n == 0 || clock_s() - first < READ_SECONDS)) {
        st = read_once(&seconds[n], m, err);
        n += st == ST_OK;
    }
    *rate = n > 0 ? (double)m->bytes / MAX(median(seconds, n), 1e-9) : 0;
    return st;
}

double machine_speed_batch(struct machine_speed *m) {
    double seconds[BATCH_TRIES], first = clock_s();
    size_t n = 0;
    if (m->wish.device != NULL)
        return 0;
    while (n < BATCH_TRIES && (n == 0 || clock_s() - first < BATCH_SECONDS)) {
        double began = clock_s();
        pool_run(m->wish.pool, batch_on_thread, m);
        seconds[n++] = clock_s() - began;
    }
    return 2.0 * m->first.n_rows * COLS * BATCH_TOKENS / MAX(median(seconds, n), 1e-9);
}
