/* same_model.h: checks that all ranks of a group have opened the same model. With another
 * model's weights on some of them, the answers would be wrong.
 *
 * Before they load, ranks compare what they opened: keys and tensors by name, type and size,
 * and a page or two of each tensor (format/digest.h). A copy may differ in other bytes. The
 * digest of the whole content shows that (base/content.h). It is not needed for ranks of one
 * machine that opened the same file. If a digest is not known yet, it is computed at once for a
 * small model. For a large one a thread that takes half a core computes it in the background,
 * and the digests are compared when all have them.
 *
 * One thread at a time; all ranks make the same calls. */
#ifndef LOCKSTEP_RANKS_SAME_MODEL_H
#define LOCKSTEP_RANKS_SAME_MODEL_H

#include "base/status.h"
#include "fabric/fabric.h"
#include "format/gguf.h"

#include <stdbool.h>
#include <stdint.h>

/* Read at once, which takes one core a third of a second, before a group loads; more is not. */
#define SAME_MODEL_AT_ONCE ((uint64_t)256 << 20)

struct same_model;

/* g stays the caller's until same_model_close(). ST_NO_MEMORY. */
enum status same_model_open(struct same_model **out, const struct gguf *g, struct err *err);
/* Stops reading. NULL is fine. */
void same_model_close(struct same_model *m);

/* Together, on the team of all ranks: compares what is known. With n_at_once, digests of models
 * of up to this many bytes are computed now. ST_BAD_INPUT, on all ranks: a rank's model differs
 * from rank 0's, with the name of its machine. Errors of the fabric. */
enum status same_model_compare(struct same_model *m, struct team *all, int rank, int n_ranks,
                               uint64_t n_at_once, struct err *err);
/* Reads what is not known, if anything is. Without memory for a thread nothing is read. */
void same_model_read_on(struct same_model *m);
/* Rank 0: is it time to compare again? Not once all is known. Allocates nothing. */
bool same_model_is_due(struct same_model *m);

#endif
