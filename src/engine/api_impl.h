/* api_impl.h: shared by the files that implement lockstep.h: the open model and its one
 * sequence. The sequence's pages are the cache's, in order. For layers with a window they wrap
 * around: page i of the sequence is page i mod n of the cache. */
#ifndef LOCKSTEP_ENGINE_API_IMPL_H
#define LOCKSTEP_ENGINE_API_IMPL_H

#include "base/status.h"
#include "grammar/token_trie.h"
#include "lockstep/lockstep.h"
#include "ranks/instance.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

struct lockstep {
    struct instance in;
    struct membership left;
    struct token_trie *trie; /* of its tokens; NULL before the first grammar */

    /* The sequence: what the cache holds. */
    int32_t *ids; /* [n_ctx] */
    size_t n_ids;
    size_t n_owed;          /* of ids, after a recovery that failed: held before; else 0 */
    uint32_t *pages;        /* [div_up(n_ctx, KV_PAGE)] 0, 1, 2... */
    uint32_t *window_pages; /* [as many]: what a step sees of these */
    uint32_t window_low;    /* pages before this one were overwritten */
    /* Of recurrent layers: the number of tokens behind the state in each slot, 0: none; the
     * slot with the state of n_ids; and whether that is a snapshot, which the next step does
     * not overwrite. */
    size_t state_ids[INSTANCE_STATES];
    uint32_t state;
    bool at_snapshot;
    uint32_t *outputs;     /* [n_chunk] */
    atomic_bool cancelled; /* set anywhere, relaxed; taken back when a call begins */

    /* the process that opened it: a child of fork() has neither its threads nor its ranks */
    pid_t owner;
    atomic_bool
        busy;     /* a call computes: acquire in api_call_begin(), release in api_call_end() */
    bool in_step; /* of its steps: the ranks compute, and rows() may be called */
};
enum lockstep_status api_done(enum status st);
/* A struct lockstep_error is a struct err under its public name; NULL: *local. */
struct err *api_err(struct lockstep_error *err, struct err *local);

/* ---- structs of callers that know fewer or more fields ----------------------------------- */

/* Sets the first size bytes of a caller's struct to ours and zeros. Its first field is its
 * size. */
void api_give_defaults(void *theirs, size_t size, const void *ours, size_t ours_size);
/* Copies a caller's struct over ours, which has the defaults. ST_BAD_INPUT for one that was not
 * initialised, or has fields beyond ours that are not zero. name: "options". */
enum status api_take(void *ours, size_t ours_size, const void *theirs, const char *name,
                     struct err *err);

/* ---- may this call be made now? ---------------------------------------------------------- */

/* A recovery may have failed. */
enum status api_check_open(const struct lockstep *ls, struct err *err);
/* Before what computes, and after it. */
enum status api_call_begin(struct lockstep *ls, struct err *err);
void api_call_end(struct lockstep *ls);
/* Before calls that query the ranks, which listen between steps. */
enum status api_check_ask(const struct lockstep *ls, struct err *err);
enum status api_check_ids(const struct lockstep *ls, const int32_t *ids, size_t n,
                          struct err *err);
/* The context holds n_ids tokens and an answer. bound: "" or "at least ", before the number. */
enum status api_check_room(const struct lockstep *ls, const char *bound, size_t n_ids,
                           struct err *err);
bool api_is_cancelled(struct lockstep *ls);

/* ---- the sequence (api_sequence.c) ------------------------------------------------------- */

/* The rows of one step, for a caller that needs them. */
struct api_rows {
    bool (*rows)(void *user, size_t first_pos, size_t n, const float *logits);
    void *user;
    size_t first_pos;
    uint32_t n_given; /* rows of this step; those of a step that is made again are known */
    bool stopped;
};

/* Feeds n <= n_chunk tokens; the last n_outputs of them give logits. */
enum status api_feed(struct lockstep *ls, const int32_t *ids, size_t n, size_t n_outputs,
                     struct api_rows *sink, struct err *err);
/* Goes back to the first n positions, or to none if a window's pages before these are gone. */
void api_rewind(struct lockstep *ls, size_t n);
/* Before a call does anything: the model is open, and its cache holds the sequence. */
enum status api_resume(struct lockstep *ls, struct err *err);

#endif
