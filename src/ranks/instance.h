/* instance.h: a model open on all its ranks. This process is rank 0; the others are workers
 * that it starts. lockstep.h's struct lockstep and the engine both use it. */
#ifndef LOCKSTEP_RANKS_INSTANCE_H
#define LOCKSTEP_RANKS_INSTANCE_H

#include "lockstep/lockstep.h"
#include "ranks/considered.h"
#include "ranks/launch.h"
#include "ranks/membership.h"
#include "ranks/rank.h"
#include "tokenizer/tokenizer.h"

/* Where the options leave them open. */
#define INSTANCE_DEFAULT_CTX 4096
#define INSTANCE_DEFAULT_CHUNK 512
/* States of recurrent layers that one sequence has: its own, and snapshots. */
#define INSTANCE_STATES 4

struct instance {
    struct rank rank;
    struct launch *launch; /* NULL: alone */
    struct tokenizer *tokenizer;
    struct lockstep_model_info info;
    char arch[64], name[256], parallel[64], computes[256];
    struct rank_report reports[PLAN_MAX_RANKS]; /* as of the (last) opening */
    double began_s;
    struct considered
        *considered; /* before other machines than all were chosen; owned; or NULL */
};

/* Reads the header, plans, and opens the tokenizer. Afterwards rank.job holds final numbers, of
 * which the caller may still change n_chunk, n_runs and n_pages. Call instance_close() in any
 * case. */
enum status instance_plan(struct instance *in, const struct lockstep_options *opt,
                          struct err *err);
/* Starts the workers, loads, fills info. ST_AGAIN: opt->placed chose other machines. */
enum status instance_start(struct instance *in, const struct lockstep_options *opt,
                           struct err *err);

/* ---- after a loss, and when a lost machine is back --------------------------------------- */

/* The ranks that were lost or did not come, a bit each; 0: none, or not known. */
uint64_t instance_lost_ranks(const struct instance *in);

struct recovery {
    /* Between planning and starting: may change what it may after instance_plan(). NULL:
     * nothing is changed. */
    enum status (*size)(void *user, struct err *err);
    /* Before another try: waits for `ms`. why: what the last one failed at. False: no more
     * tries. */
    bool (*wait)(void *user, int ms, const char *why);
    void *user;
};
/* How often what ranks do not survive is tried again. */
#define RECOVERY_TRIES 5
/* Prints the loss (err->text) and what is done about it on stderr, and ends what is left of the
 * ranks. Then it plans and starts again with the survivors, of which there may be fewer than
 * before. File, tokenizer and info stay as they were; reports are the new ranks'. */
enum status instance_recover(struct instance *in, struct membership *left,
                             const struct recovery *how, struct err *err);
/* Opens the model again on the ranks of left->opt. There are more than before, since machines
 * are on trial. If that fails, it goes on without these, as instance_recover() does. */
enum status instance_reopen(struct instance *in, struct membership *left,
                            const struct recovery *how, struct err *err);
/* Fills info from the plan and the reports that there are now. */
void instance_describe(struct instance *in);

/* The whole life of a rank > 0 that another program started (lockstep_follow). */
enum status instance_follow(const struct lockstep_options *opt, struct err *err);
/* Ends the workers. An instance of zeros is fine. */
void instance_close(struct instance *in);

/* Passes st on; where the group was lost, err gets the cause if a worker's end tells it. */
enum status instance_explain(struct instance *in, enum status st, struct err *err);

#endif
