/* pace.h: how long a step takes, learnt from the steps. Decides how large a step may be, never
 * what is computed.
 *
 * Two things are asked of it. What one more token costs (pace_token_s): a fixed part of a step,
 * since the weights are read once, and a part for each token. And how much of prompts a step may
 * hold beside streams (pace_room): so much that hardly any step takes three times as long as
 * usual. Where steps take what is expected of them, a piece makes one twice as long; the later the
 * last ones were, the less, down to 1.6: that leaves the prompts a third to a half of the machine.
 *
 * The second needs what is usual, and what a token of a prompt adds. Both are measured, since a
 * model of the first few tokens' cost is off by more than the bound: `usual` is one of the
 * quicker of the last steps that held streams alone, the addition the middle one of the last
 * pieces'. So one slow step of a busy machine changes nothing, and where the whole machine has
 * become slower that soon cancels out. While prompts wait for long, a step in every few is made
 * without them, to see what is usual by now. */
#ifndef LOCKSTEP_ENGINE_PACE_H
#define LOCKSTEP_ENGINE_PACE_H

#include <stdbool.h>
#include <stddef.h>

#define PACE_USUAL 5   /* steps of streams alone that are remembered */
#define PACE_PIECES 15 /* and pieces */

struct pace {
    double w, n, nn, t,
        nt; /* weighted sums over steps: 1, n_tokens, n^2, seconds, n * seconds */

    double attn_whole, attn_window; /* of a token's work: for each position that it sees */
    size_t window;                  /* positions that attn_window is for at most */

    struct {
        size_t n_streams;
        double seconds;
    } usual[PACE_USUAL];
    struct {
        size_t n_streams;
        double work, seconds;
        double usual; /* how many usual steps it took, by what was usual then */
        double late;  /* seconds by those that were expected; 1: as long */
    } pieces[PACE_PIECES];
    size_t n_usual, n_pieces; /* ever; the last ones are kept, in turn */
    size_t since_usual;       /* steps with streams and pieces since */
    double worst_late;        /* as `late`, of pieces and of streams alone, slowly forgotten */
    double alone_s;           /* of a token's work in a step of prompts alone; 0: not known */
};

/* The work of a token at position 0 is 1; each position before it adds attn_whole, and each of
 * the last `window` ones attn_window. */
void pace_init(struct pace *p, double attn_whole, double attn_window, size_t window);
double pace_work(const struct pace *p, size_t pos, size_t n_tokens);
/* How many tokens from pos on are at most so much work; at most n_max. One at least if there is
 * any: the prompt has to end some time. */
size_t pace_fit(const struct pace *p, size_t pos, double work, size_t n_max);

struct pace_step {
    size_t n_tokens;  /* in all */
    size_t n_streams; /* that got a token */
    size_t n_waiting; /* streams that did not: the step made something else */
    size_t n_guesses; /* of streams */
    double work;      /* of prompts; 0: none */
    double seconds;
};
void pace_add(struct pace *p, const struct pace_step *s);

/* Seconds of a step, and of one more token in it. Guesses until enough steps of different sizes
 * are known. */
double pace_step_s(const struct pace *p, size_t n_tokens);
double pace_token_s(const struct pace *p);

/* How much work of prompts fits the next step beside n_streams streams that get a token and
 * n_waiting ones that do not. 0: this step is to be theirs alone. Prompts that nobody waits for
 * get steps of about a second, so that who comes meanwhile is not kept waiting either. */
double pace_room(const struct pace *p, size_t n_streams, size_t n_waiting);

#endif
