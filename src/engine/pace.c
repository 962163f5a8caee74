#include "engine/pace.h"

#include "base/util.h"

/* A step weighs half after about 30 more. */
#define KEEP 0.977
/* Until steps of different sizes are known: a token costs this share of a step. */
#define TOKEN_SHARE 0.15

/* Beside a piece a stream may wait this many times as long as usual. */
#define WAIT 2.0
#define FIRST_PIECE 8.0
#define PIECE_MAX 65536.0

/* Slow to grow, quick to shrink. */
static void learn_piece(struct pace *p, size_t n_piece, double seconds) {
    if (p->piece == 0)
        p->piece = FIRST_PIECE;
    if (p->usual_s == 0)
        return;
    if (seconds > WAIT * p->usual_s)
        p->piece = MAX(0.7 * MIN(p->piece, (double)n_piece), 1.0);
    else if (seconds < 0.8 * WAIT * p->usual_s && (double)n_piece >= 0.8 * p->piece)
        p->piece = MIN(1.2 * p->piece + 0.5, PIECE_MAX);
}

/* A step during which the machine did something else says nothing. */
static void learn_usual(struct pace *p, double seconds) {
    if (p->usual_s == 0)
        p->usual_s = seconds;
    double step = MIN(seconds, 2 * p->usual_s) - p->usual_s;
    p->usual_s += (step < 0 ? 0.2 : 0.05) * step;
}

void pace_add(struct pace *p, size_t n_tokens, size_t n_piece, size_t n_streams, double seconds) {
    double n = (double)n_tokens;
    if (n_piece > 0 && n_streams > 0)
        learn_piece(p, n_piece, seconds);
    else if (n_piece == 0)
        learn_usual(p, seconds);
    p->w = KEEP * p->w + 1;
    p->n = KEEP * p->n + n;
    p->nn = KEEP * p->nn + n * n;
    p->t = KEEP * p->t + seconds;
    p->nt = KEEP * p->nt + n * seconds;
}

double pace_token_s(const struct pace *p) {
    if (p->w == 0)
        return 0;
    double mean_n = p->n / p->w, mean_t = p->t / p->w;
    double var = p->nn / p->w - mean_n * mean_n;
    double guess = mean_t * TOKEN_SHARE / (1 + TOKEN_SHARE * (mean_n - 1));
    if (var < 0.25)
        return guess;
    double slope = (p->nt / p->w - mean_n * mean_t) / var;
    /* Noise must not make a token free, nor a step free but for its tokens. */
    return MIN(MAX(slope, mean_t * 0.002), mean_t / mean_n);
}

double pace_step_s(const struct pace *p, size_t n_tokens) {
    if (p->w == 0)
        return 0;
    return MAX(p->t / p->w + pace_token_s(p) * ((double)n_tokens - p->n / p->w),
               pace_token_s(p) * (double)n_tokens);
}

size_t pace_piece(const struct pace *p, size_t n_max) {
    size_t piece = p->piece != 0 ? (size_t)p->piece : (size_t)FIRST_PIECE;
    return MIN(MAX(piece, (size_t)1), n_max);
}
