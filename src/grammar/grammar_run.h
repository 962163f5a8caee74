/* grammar_run.h: a grammar in use: shared by grammar.c (states and their transitions) and
 * grammar_mask.c (masks).
 *
 * A configuration is a node and a frame: the automaton's position in a rule, and the calls that
 * wait for it. Frames are numbered. Equal frames exist once and share their tails. A state is a
 * sorted set of configurations that are about to read a byte, and whether the text may end.
 * States are numbered too, so the same place in the grammar has the same number. The table of
 * transitions (state x class of bytes) is filled as it is used. State DEAD has no
 * configurations. */
#ifndef LOCKSTEP_GRAMMAR_GRAMMAR_RUN_H
#define LOCKSTEP_GRAMMAR_GRAMMAR_RUN_H

#include "grammar/grammar.h"
#include "grammar/grammar_impl.h"
#include "grammar/token_shapes.h"

#define DEAD 0
#define UNKNOWN UINT32_MAX
#define CUT (UNKNOWN - 1) /* as DEAD, but because a limit was met */

/* Beyond SOFT, everything unused is dropped before the next mask or token. A single step may go
 * beyond it, up to HARD; what it finds after that counts as not allowed. */
#define SOFT_STATES (1u << 14)
#define HARD_STATES (1u << 16)
#define SOFT_CONFIGS (1u << 20)
#define HARD_CONFIGS (1u << 22)
#define SOFT_FRAMES (1u << 18)
#define HARD_FRAMES (1u << 20)
/* Readings of one text at the same time. */
#define STATE_MAX_CONFIGS 2048
#define CLOSURE_MAX 8192
#define WORK_OF_CONFIG 8

struct config {
    uint32_t node;
    uint32_t frame; /* 0: nothing waits */
};

struct frame {
    uint32_t node; /* where the caller goes on */
    uint32_t below;
    uint32_t depth;
    uint32_t chain; /* of the hash table */
};

struct state {
    uint32_t first, n; /* configs[first .. first+n) */
    uint32_t chain;    /* of the hash table */
    bool may_end;
    uint32_t mask; /* in masks.kept, or NO_MASK */
};

struct seen {
    uint64_t config;
    uint32_t turn;
};

/* The hash tables have one fixed size: the limits above keep their chains short. */
#define STATE_BUCKETS (1u << 14)
#define FRAME_BUCKETS (1u << 16)
#define SEEN_SIZE (4 * CLOSURE_MAX)

/* The masks in the cache: their maximal number, and bytes. The oldest are dropped first. */
#define KEPT_MASKS 4096
#define KEPT_MASK_BYTES ((size_t)16 << 20)
#define NO_MASK UINT32_MAX

struct kept_mask {
    uint32_t state; /* DEAD: the slot is empty */
    uint32_t n_ids; /* of ids, if words is NULL */
    uint64_t *words;
    int32_t *ids;
};

/* grammar_mask.c's. */
struct masks_of_grammar {
    uint32_t *path; /* [trie->max_depth + 1] states of a walk */
    uint64_t *mask; /* [n_words] the one being made or shown */
    size_t n_words;
    struct kept_mask *kept; /* [KEPT_MASKS] a ring */
    size_t oldest, n_kept, kept_bytes;
};

struct grammar {
    const struct token_trie *trie;
    struct grammar_automaton a;
    int32_t tokens[GRAMMAR_MAX_TOKENS]; /* [n_tokens] what GRAMMAR_TOKEN_BYTE + i stands for */
    size_t n_tokens;
    uint32_t start; /* a state */
    bool gave_up;   /* the last closure met a limit */
    int64_t work;   /* units since it was charged last */
    int64_t credit; /* units left for this grammar */
    struct grammar_matcher *matchers;

    struct frame *frames; /* [0] is not a frame */
    struct state *states;
    struct config *configs;
    uint32_t *table; /* [n_states, a.n_classes] */
    size_t n_frames, n_states, n_configs;
    size_t frames_cap, states_cap, configs_cap, table_cap;
    uint32_t *frame_buckets, *state_buckets;

    /* one closure */
    struct config *todo, *found;
    size_t n_todo, n_found;
    bool may_end;
    struct seen *seen; /* [SEEN_SIZE], those of this turn */
    uint32_t turn;
    size_t n_seen;

    struct masks_of_grammar masks;
};

struct grammar_matcher {
    struct grammar *g;
    struct grammar_matcher *prev, *next;
    uint32_t state;
    bool ended;
};

/* Of a step that is not in the table. */
uint32_t grammar_find_step(struct grammar *g, uint32_t from, size_t class);

static inline uint32_t grammar_step(struct grammar *g, uint32_t from, uint8_t byte) {
    size_t class = g->a.class_of[byte];
    uint32_t to = g->table[from * g->a.n_classes + class];
    if (to < CUT)
        return to;
    return to == CUT ? DEAD : grammar_find_step(g, from, class);
}

/* A byte of a text: those of tokens are in none. */
static inline uint32_t grammar_step_text(struct grammar *g, uint32_t from, uint8_t byte) {
    return byte < GRAMMAR_TOKEN_BYTE ? grammar_step(g, from, byte) : DEAD;
}

/* Between steps: if the tables have become large, drops what no matcher uses. False: nothing
 * has changed. */
bool grammar_tidy(struct grammar *g);

/* grammar_mask.c. False: no memory; masks_deinit() is due in any case. */
bool masks_init(struct grammar *g);
void masks_deinit(struct grammar *g);
/* The states have other numbers now. */
void masks_forget(struct grammar *g);

#endif
