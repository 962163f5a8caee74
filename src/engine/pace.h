/* pace.h: how long a step takes, learnt from the steps: a fixed part (the weights are read once) and
 * a part for each token. Decides how large a step may be, never what is computed. */
#ifndef LOCKSTEP_ENGINE_PACE_H
#define LOCKSTEP_ENGINE_PACE_H

#include <stddef.h>

struct pace {
    double w, n, nn, t, nt; /* weighted sums over steps: 1, n_tokens, n^2, seconds, n * seconds */
    double usual_s;         /* of a step of streams alone, lately; 0: not known yet */
    double piece;           /* tokens of prompts beside streams; 0: not known yet */
};

/* A step has taken so long; n_piece of its n_tokens were of prompts, n_streams streams waited. */
void pace_add(struct pace *p, size_t n_tokens, size_t n_piece, size_t n_streams, double seconds);

/* Seconds of a step, and of one more token in it. Guesses until enough steps of different sizes
 * are known. */
double pace_step_s(const struct pace *p, size_t n_tokens);
double pace_token_s(const struct pace *p);

/* How many tokens of prompts may come on top of those of running streams, so that these wait
 * about twice as long as usual: a piece that took longer makes the next one smaller, since a token
 * late in a long prompt costs more than an early one. 1 to n_max. */
size_t pace_piece(const struct pace *p, size_t n_max);

#endif
