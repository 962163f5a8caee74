/* engine_internal.h: shared by the engine's files.
 *
 *   engine.c         the thread, and what other threads call
 *   engine_open.c    opening, and opening again after a rank was lost or is back
 *   engine_rejoin.c  asks lost machines whether they are back
 *   engine_queue.c   which sequences wait, which is next, which is put back
 *   engine_step.c    a step: which tokens of which sequences, and its results
 *   engine_seq.c     a sequence's life: tokens, text, stops, its end
 *   masks.c          threads that make the masks of constraints
 *
 * The engine's thread owns everything except what `lock` guards and the request's `cancelled`.
 *
 * A request has n_choices sequences. A sequence gets a slot (all the memory that it needs) when
 * it is first admitted, and keeps it to its end. While it runs it also holds pages. A sequence
 * that was put back waits with its slot and without pages. One that ends while a helper thread
 * makes its mask *lingers*: its end has been reported, but slot and request are released
 * afterwards. */
#ifndef LOCKSTEP_ENGINE_ENGINE_INTERNAL_H
#define LOCKSTEP_ENGINE_ENGINE_INTERNAL_H

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/masks.h"
#include "engine/ngram_draft.h"
#include "engine/pages.h"
#include "engine/rejoin.h"
#include "engine/sampler.h"
#include "engine/states.h"
#include "engine/step_cost.h"
#include "engine/stops.h"
#include "engine/view.h"
#include "ranks/instance.h"
#include "ranks/membership.h"

#include <pthread.h>
#include <stdatomic.h>

#define CHOICES_MAX 64
#define STOPS_MAX 64
#define STOP_BYTES_MAX 1024
#define TOP_MAX 20
/* Guesses in a step: with the token before them a group of activations. */
#define GUESSES_MAX (ACT_GROUP - 1)
#define TURNS_MAX 256

enum seq_state {
    SEQ_WAITING, /* for its first or another admission */
    SEQ_PROMPT,  /* runs; some known tokens are not in the cache yet */
    SEQ_DECODE,  /* runs; all but the newest are */
    SEQ_ENDED
};

/* What the sampler says of one row of logits. */
struct out_row {
    struct seq *seq;
    size_t n_history; /* tokens up to and with the row's */
    int32_t id;
    float logprob;
    struct engine_top top[TOP_MAX];
    int n_top;
};

struct slot {
    int32_t *ids;    /* [n_ctx + 1 + GUESSES_MAX] prompt and what came; guesses behind them */
    uint32_t *pages; /* [div_up(n_ctx, KV_PAGE)] */
    uint32_t *window_pages; /* likewise, of layers with a window; NULL: there are none */
    uint64_t *mask;         /* [div_up(n_vocab, 64)]; the helper's while it makes one */
    char *held;             /* [held_cap] text not let out yet: a stop string may have begun */
    double *sum;            /* [n_embd] of hidden states */
    struct slot *next_free;
};

struct seq {
    struct engine_request_handle *req;
    int choice;
    enum seq_state state;
    uint64_t age;        /* lower is older; the youngest goes back first */
    void *constraint;    /* owned; NULL: none */
    struct mask_job job; /* with a constraint: of the next token, into slot->mask */
    struct seq *next_lingering;
    struct slot *slot;
    size_t n_ids, n_prompt, n_fed; /* n_fed: in the cache */
    size_t n_pages, n_known_pages; /* held; of these, findable */
    size_t window_first;           /* window pages before this one are given back */
    /* Where layers are recurrent, while it runs: the slot with the state of n_fed tokens, held; its
     * own slot, held, which is mostly the same; and the page of its last snapshot while it
     * generates. */
    uint32_t from_state, own_state, snapshot_page;
    size_t n_held; /* bytes */
    struct token_stream stream;
    struct ngram_trust trust;
    size_t n_cached;
    size_t n_told;                      /* tokens of the prompt that on_prompt has got */
    double admitted_s, first_s, last_s; /* clock times; 0: not yet */

    /* In the step being made. */
    size_t n_feed, n_guesses, n_rows, first_row;
    size_t snapshot_at;     /* n_fed of a snapshot; 0: none */
    uint32_t snapshot_slot; /* held */
    bool no_mask;           /* the next token's mask is still being made */
    bool masked;            /* the next token, by slot->mask; never without a constraint */
};

struct engine_request_handle {
    struct engine_request r; /* pointers are to copies */
    struct stop *stops;      /* [r.n_stops] */
    size_t n_banned;         /* r.stop_ids here: all that may not come before r.min_tokens */
    uint64_t *dry_breakers;  /* dry.h; NULL without DRY */
    struct seq *seqs;        /* [n_choices] */
    int n_left;              /* sequences that have not ended */
    int n_lingering;         /* that have, while a helper thread makes their mask */
    struct mask_line line;
    bool started; /* a sequence was admitted */
    double submitted_s;
    atomic_bool cancelled;              /* relaxed; `lock` orders what follows */
    struct engine_request_handle *next; /* in the inbox or the list of all */
};

/* When a client was last served. */
struct turn {
    uint64_t client, last;
};

struct engine {
    struct engine_config cfg;
    struct instance in; /* info and tokenizer never change; all else is the engine's thread's */
    struct membership left;
    uint64_t n_given;         /* tokens and embeddings that requests have got */
    uint64_t n_given_at_loss; /* when a rank was lost last */
    double formed_s;          /* clock: when the model was opened again last, */
    double forming_s;         /* and how long that took */
    int n_fruitless;          /* losses in a row with nothing to show in between */
    struct rejoin rejoin;
    struct engine_ask {
        pid_t pid; /* 0: none */
        double began_s;
    } asks[FABRIC_MAX_RANKS]; /* by machine, as rejoin's bits */
    double busy_s; /* clock: when there was a request last, while machines are left out */
    pthread_t thread;
    bool has_thread;

    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* Guarded by lock. */
    struct engine_request_handle *inbox, **inbox_end;
    /* requests with no admitted sequence yet, without those that follow others */
    int n_queued;
    int n_back; /* requests with admitted sequences, none of which runs now */
    bool closing, any_cancelled;
    bool mask_made;            /* since the engine's thread looked last */
    struct engine_stats shown; /* a copy of stats as of the last step */
    struct engine_rank_stats ranks[PLAN_MAX_RANKS];
    struct engine_view *view; /* owned */
    int pids[PLAN_MAX_RANKS];

    struct engine_stats stats;
    enum status lost; /* not ST_OK: nothing is computed any more; stats.why says why */
    struct engine_request_handle *requests; /* all that live */
    struct masks *masks;
    struct seq *lingering; /* keep slot and request until their mask is made */
    bool rests;            /* the last round had nothing to compute */
    struct pages *pages;
    struct states *states;  /* NULL: no layer is recurrent */
    uint32_t n_window_most; /* window pages that a sequence holds at once */
    struct step_cost step_cost;
    double asked_s; /* when the ranks were asked last how they are */
    uint64_t next_age, next_turn;
    struct turn turns[TURNS_MAX];

    struct slot *slots, *free_slot;
    size_t n_slots, held_cap;
    struct seq **running; /* [n_slots] by age, the oldest first */
    size_t n_running;
    bool hidden_last;               /* the last step made hidden states */
    struct step_sample step_sample; /* what the step being made holds */
    bool tells_prompts;             /* some of its rows are of prompts */

    /* The step; see struct step. */
    struct step step;
    int32_t *tokens;          /* [n_chunk] */
    struct step_run *runs;    /* [ENGINE_RUNS * n_slots] */
    uint32_t *page_table;     /* [n_slots * div_up(n_ctx, KV_PAGE)] */
    uint32_t *window_table;   /* likewise */
    uint32_t *outputs;        /* [n_chunk] */
    struct out_row *rows;     /* [n_chunk] of outputs */
    struct sampler *samplers; /* [n_samplers], one a thread */
    int n_samplers;
    float *embedding; /* [n_embd] */
};

/* n_ctx and n_vocab: from any thread. */
static inline uint32_t engine_n_ctx(const struct engine *e) {
    return (uint32_t)e->in.info.n_ctx;
}
static inline uint32_t engine_n_chunk(const struct engine *e) {
    return e->in.rank.job.n_chunk;
}
/* Of the layers that have one; 0: none has. */
static inline uint32_t engine_window(const struct engine *e) {
    return e->in.rank.hp.window;
}
/* Runs of a sequence in a step: its tokens up to a snapshot, and after it. */
#define ENGINE_RUNS 2
static inline uint32_t engine_n_vocab(const struct engine *e) {
    return (uint32_t)e->in.info.n_vocab;
}

/* For thread_cond_wait_until() on `wake`. */
static inline uint64_t engine_ms_from_now(int ms) {
    return clock_ns() + (uint64_t)ms * 1000000;
}

void engine_histogram_add(struct engine_histogram *h, double seconds);

/* What the ranks have said of themselves, for engine_rank_stats() and engine_view(); with e->lock
 * held. */
void engine_show_reports(struct engine *e, const struct rank_report *reports);
/* engine_view.c: the same, of these ranks from here on: for engine_view(). And what they say later
 * of their work. */
void view_begin(struct engine *e, const struct rank_report *reports);
void view_go_on(struct engine *e, const struct rank_report *reports);

/* engine_open.c: all but the thread. engine_close_parts() is due in any case. */
enum status engine_open_parts(struct engine *e, struct err *err);
void engine_close_parts(struct engine *e);
/* The group was lost: everybody goes back into the queue, and the model is opened again with
 * those that are left. Where that cannot be done `lost` stays, and it is not tried again. */
void engine_recover(struct engine *e);
/* Likewise, if no rank was lost: membership_take_back() has been called. why: the reason given
 * to requests meanwhile. */
void engine_reopen(struct engine *e, const char *why);

/* engine_rejoin.c: once a round. Takes machines in that are back. */
void engine_look_out(struct engine *e);
void engine_stop_asking(struct engine *e);

/* engine_queue.c */
void queue_put(struct engine *e, struct engine_request_handle *req);
/* Admits the sequences that fit. */
void queue_admit(struct engine *e);
/* The sequence's next page, of each kind; puts younger sequences back to get one. False: it
 * went back itself. */
bool queue_add_page(struct engine *e, struct seq *s);
/* The same, but puts no sequence back. False: there is no page. */
bool queue_add_free_page(struct engine *e, struct seq *s);
/* What n_back is now. */
int queue_count_back(const struct engine *e);
/* Out of the running ones; its pages are released. */
void queue_stop_running(struct engine *e, struct seq *s);
/* The same for one that is to go on later. */
void queue_put_back(struct engine *e, struct seq *s);

/* engine_step.c: one step, if anything runs. False: all running sequences wait for a mask. */
bool step_once(struct engine *e);

/* engine_seq.c */
void seq_begin(struct engine *e, struct seq *s);
/* Makes pages findable that are full by now, and gives those of windows back that the next
 * token does not see any more. */
void seq_publish(struct engine *e, struct seq *s);
/* engine_states.c: of models with recurrent layers, else nothing happens.
 *
 * Of the found pages, keeps those up to the last snapshot. */
void states_find(struct engine *e, struct seq *s);
/* Before a sequence runs; false: there is no slot for it. */
bool states_begin(struct engine *e, struct seq *s);
void states_end(struct engine *e, struct seq *s);
/* Whether and where s, whose n_feed is planned, leaves a snapshot in this step. */
void states_plan(struct engine *e, struct seq *s);
/* The runs of s; returns how many. */
uint32_t states_runs(struct engine *e, const struct seq *s, struct step_run run,
                     struct step_run out[ENGINE_RUNS]);
/* After the step, when n_fed and the known pages are up to date. */
void states_step_done(struct engine *e, struct seq *s);

/* Whether on_prompt is still to get tokens: rows that do not sample, but look at what is known. */
static inline bool seq_tells_prompt(const struct seq *s) {
    return s->req->r.prompt_logprobs && s->choice == 0 && s->n_told < s->n_prompt;
}
/* Those of the step's rows. */
void seq_tell_prompt(struct engine *e, struct seq *s);

/* One more token; false if the sequence ended with it. */
bool seq_take(struct engine *e, struct seq *s, const struct out_row *row);
void seq_take_hidden(struct engine *e, struct seq *s, const float *row);
void seq_end_embedding(struct engine *e, struct seq *s);
/* Lets go of those that have ended and whose mask is made. */
void seq_end_lingering(struct engine *e);
/* The request is freed with its last sequence. why: of ENGINE_STOP_ERROR. */
void seq_end(struct engine *e, struct seq *s, enum engine_stop stop, const char *stop_string,
             enum status st, const char *why);
void request_end(struct engine *e, struct engine_request_handle *req, enum engine_stop stop,
                 enum status st, const char *why);
void request_free(struct engine_request_handle *req);

#endif
