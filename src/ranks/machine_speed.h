/* machine_speed.h: how fast a machine multiplies with weights: what it reads for one token, and
 * what it computes for many at once. It multiplies with zeros, by the products that a model uses,
 * with all threads of a pool. */
#ifndef LOCKSTEP_RANKS_MACHINE_SPEED_H
#define LOCKSTEP_RANKS_MACHINE_SPEED_H

#include "base/pool.h"
#include "format/gguf.h"
#include "kernels/kernels.h"
#include "shaders/shaders.h"

/* At most so much is read, and at least 4 MiB. */
#define MACHINE_SPEED_BYTES ((size_t)128 << 20)

struct machine_speed_wish {
    enum qtype type; /* of the weights: one that wmat_type_supported() */
    size_t bytes;    /* of them */
    const struct kernels *kernels;
    struct pool *pool;
    struct shaders *device; /* that is to compute; NULL: the processor */
    double crossing_s;      /* of a device (device_reading.h) */
};

struct machine_speed;

/* The type that most of the bytes have which are multiplied with. */
enum qtype machine_speed_type(const struct gguf_totals *all);

/* What wish names is borrowed until machine_speed_close(). ST_NO_MEMORY; those of the device. */
enum status machine_speed_open(struct machine_speed **out,
                               const struct machine_speed_wish *wish, struct err *err);
/* Bytes a second with one token; takes about a tenth of a second. */
enum status machine_speed_read(double *rate, struct machine_speed *m, struct err *err);
/* Operations a second with many tokens, 2 for each multiply-add; 0: of a device nobody knows.
 * Takes some hundredths of a second. */
double machine_speed_batch(struct machine_speed *m);
void machine_speed_close(struct machine_speed *m); /* NULL is fine */

#endif
