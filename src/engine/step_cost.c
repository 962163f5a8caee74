/* step_cost.c: Learns from measured steps how long the next one takes, and how large it may be.
 */
#include "engine/step_cost.h"

#include "base/median.h"
#include "base/util.h"

/* A step weighs half after about 30 more. */
#define KEEP 0.977
/* Until steps of different sizes are known: a token costs this share of a step. */
#define TOKEN_SHARE 0.15
/* A step that took longer than this many times what was expected counts as if it had not. */
#define SURPRISE 2.0

/* Beside a piece, a stream shall wait for at most this many usual steps: nearly always, and in
 * the worst case that is remembered. Occasional disturbances, and changes of the usual time,
 * keep both below three. */
#define WAIT_NEARLY_ALWAYS 2.2
#define NEARLY_ALWAYS 0.9
#define WAIT_MOST 2.9
/* So a piece may take this many usual steps more, by how late the last ones were. */
#define MORE_LEAST 0.6
#define MORE_MOST 1.0
#define MORE_FIRST 0.8 /* while that is not known */
/* The worst case decays by half in 1,400 steps, about as many as a long prompt takes. Lateness
 * beyond the last of these values does not count, since no piece is small enough for it. */
#define WORST_KEEP 0.9995
#define WORST_FIRST 1.4
#define WORST_MOST (WAIT_MOST / (1 + MORE_LEAST))
/* Streams that get nothing from the step wait for its fixed part as well, which is about a
 * usual step. */
#define MORE_WAITING 0.5
/* A piece that was felt less than this was hidden by noise: it says that larger ones are
 * possible, not how large. */
#define FELT 0.25
/* A small piece costs more for each token than a step full of them. */
#define SMALL_PIECE 1.5
/* How often steps have only streams while prompts wait. They are more frequent while the usual
 * time is in doubt, because a piece took less or more than these shares of the expected time. */
#define LOOK_OFTEN 3
#define LOOK_RARELY 16
#define DOUBT_LESS 0.75
#define DOUBT_MORE 1.3
/* For prompts alone: seconds, and work that always fits (the weights are read once). */
#define ALONE_S 1.0
#define ALONE_LEAST 64.0

void step_cost_init(struct step_cost *p, double attn_whole, double attn_window, size_t window) {
    *p = (struct step_cost){.attn_whole = attn_whole,
                            .attn_window = attn_window,
                            .window = window,
                            .worst_late = WORST_FIRST};
}

double step_cost_work(const struct step_cost *p, size_t pos, size_t n_tokens) {
    double work = 0;
    for (size_t i = pos; i < pos + n_tokens; i++)
        work += 1 + p->attn_whole * (double)i + p->attn_window * (double)MIN(i, p->window);
    return work;
}

size_t step_cost_fit(const struct step_cost *p, size_t pos, double work, size_t n_max) {
    size_t n = 0;
    if (work <= 0)
        return 0;
    while (n < n_max && (work -= step_cost_work(p, pos + n, 1)) > -1e-6)
        n++;
    return MAX(n, MIN(n_max, (size_t)1));
}

/* ---- what is usual ----------------------------------------------------------------------- */

/* Estimates a step of n streams alone, rather too low than too high: disturbances only make
 * steps longer. A step of fewer streams takes no longer, and one of more streams at most
 * proportionally longer. 0: not known. */
static double usual_s(const struct step_cost *p, size_t n_streams) {
    double v[STEP_COST_USUAL];
    size_t n = MIN(p->n_usual, (size_t)STEP_COST_USUAL);
    for (size_t i = 0; i < n; i++)
        v[i] =
            p->usual[i].seconds * MIN(1.0, (double)n_streams / (double)p->usual[i].n_streams);
    return quantile(v, n, 0.25);
}

/* Whether most of what is remembered was with about as many streams. */
static bool usual_is_known(const struct step_cost *p, size_t n_streams) {
    size_t n_near = 0;
    for (size_t i = 0; i < MIN(p->n_usual, (size_t)STEP_COST_USUAL); i++)
        n_near += 4 * p->usual[i].n_streams >= 3 * n_streams &&
                  3 * p->usual[i].n_streams <= 4 * n_streams;
    return n_near > STEP_COST_USUAL / 2;
}

/* Seconds of a token's work beside n streams, given the present usual time. Before the
 * first piece: a whole step, or the token's share of a large step if that is less. */
static double work_s(const struct step_cost *p, size_t n_streams) {
    double v[STEP_COST_PIECES];
    size_t n = MIN(p->n_pieces, (size_t)STEP_COST_PIECES);
    for (size_t i = 0; i < n; i++) {
        double usual = usual_s(p, p->pieces[i].n_streams);
        v[i] = MAX(p->pieces[i].seconds - usual, FELT * usual) / p->pieces[i].work;
    }
    if (n > 0)
        return quantile(v, n, 0.5);
    double most = usual_s(p, n_streams);
    return p->alone_s > 0 ? MIN(SMALL_PIECE * p->alone_s, most) : most;
}

/* Work of prompts beside n streams, so that the step takes at most this many usual ones,
 * however the cost of a piece grows with its size. A step of k times the tokens takes at most k
 * times as long as a measured one. Small pieces may cost nothing, since the processor waits for
 * the weights meanwhile; a larger one may cost all of the processor's time. A line through
 * small pieces does not show that. Rounded up to the next token, or small pieces would not
 * grow. Before the first piece: by a step of prompts alone. */
static double sure_work(const struct step_cost *p, size_t n_streams, double limit) {
    double usual = usual_s(p, n_streams);
    double most =
        p->alone_s > 0 ? MAX((limit - 1) * usual / (SMALL_PIECE * p->alone_s), 1.0) : 1;
    for (size_t i = 0; i < MIN(p->n_pieces, (size_t)STEP_COST_PIECES); i++) {
        double n = (double)p->pieces[i].n_streams;
        double took = p->pieces[i].usual * usual_s(p, p->pieces[i].n_streams);
        double tokens = (n + p->pieces[i].work) * limit * usual / took;
        most = MAX(most, tokens - (double)n_streams + 1);
    }
    return most;
}

static void learn_late(struct step_cost *p, double late) {
    p->worst_late = 1 + WORST_KEEP * (p->worst_late - 1);
    if (late <= WORST_MOST)
        p->worst_late = MAX(p->worst_late, late);
}

static void learn_piece(struct step_cost *p, const struct step_sample *s) {
    size_t n = s->n_streams + s->n_waiting;
    p->since_usual++;
    if (p->n_usual == 0)
        return;
    double expected = usual_s(p, n) + work_s(p, n) * s->work;
    size_t i = p->n_pieces++ % STEP_COST_PIECES;
    p->pieces[i].n_streams = n;
    p->pieces[i].work = s->work;
    p->pieces[i].seconds = s->seconds;
    p->pieces[i].usual = s->seconds / usual_s(p, n);
    p->pieces[i].late = expected > 0 ? s->seconds / expected : 1;
    if (p->n_pieces > STEP_COST_PIECES) /* or it may be that a piece's cost is not known yet */
        learn_late(p, p->pieces[i].late);
}

/* The last piece took another time than expected. */
static bool in_doubt(const struct step_cost *p) {
    if (p->n_pieces == 0)
        return false;
    double late = p->pieces[(p->n_pieces - 1) % STEP_COST_PIECES].late;
    return late < DOUBT_LESS || late > DOUBT_MORE;
}

/* How many additional usual steps a piece may take beside streams that get a token. */
static double more(const struct step_cost *p) {
    double late[STEP_COST_PIECES];
    if (p->n_pieces < STEP_COST_PIECES)
        return MORE_FIRST;
    for (size_t i = 0; i < STEP_COST_PIECES; i++)
        late[i] = p->pieces[i].late;
    double nearly_always = WAIT_NEARLY_ALWAYS / quantile(late, STEP_COST_PIECES, NEARLY_ALWAYS);
    double wait = MIN(nearly_always, WAIT_MOST / p->worst_late);
    return MIN(MAX(wait - 1, MORE_LEAST), MORE_MOST);
}

static void learn_usual(struct step_cost *p, const struct step_sample *s) {
    if (usual_is_known(p, s->n_streams))
        learn_late(p, s->seconds / usual_s(p, s->n_streams));
    size_t i = p->n_usual++ % STEP_COST_USUAL;
    p->usual[i].n_streams = s->n_streams;
    p->usual[i].seconds = s->seconds;
    p->since_usual = 0;
}

/* ---- a line through the steps ------------------------------------------------------------ */

static void learn_line(struct step_cost *p, double n, double seconds) {
    if (p->w > 2)
        seconds = MIN(seconds, SURPRISE * step_cost_of(p, (size_t)n));
    p->w = KEEP * p->w + 1;
    p->n = KEEP * p->n + n;
    p->nn = KEEP * p->nn + n * n;
    p->t = KEEP * p->t + seconds;
    p->nt = KEEP * p->nt + n * seconds;
}

double step_cost_token_s(const struct step_cost *p) {
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

double step_cost_of(const struct step_cost *p, size_t n_tokens) {
    if (p->w == 0)
        return 0;
    return MAX(p->t / p->w + step_cost_token_s(p) * ((double)n_tokens - p->n / p->w),
               step_cost_token_s(p) * (double)n_tokens);
}

/* ---- the step ---------------------------------------------------------------------------- */

void step_cost_add(struct step_cost *p, const struct step_sample *s) {
    if (s->work > 0 && s->n_streams + s->n_waiting > 0)
        learn_piece(p, s);
    else if (s->work > 0)
        p->alone_s = s->seconds / s->work;
    else if (s->n_streams > 0 && s->n_guesses == 0)
        learn_usual(p, s);
    learn_line(p, (double)s->n_tokens, s->seconds);
}

double step_cost_room(const struct step_cost *p, size_t n_streams, size_t n_waiting) {
    size_t n = n_streams + n_waiting;
    if (n == 0)
        return p->alone_s > 0 ? MAX(ALONE_S / p->alone_s, ALONE_LEAST) : ALONE_LEAST;
    size_t look = in_doubt(p) || !usual_is_known(p, n) ? LOOK_OFTEN : LOOK_RARELY;
    if (n_waiting == 0 && (p->n_usual == 0 || p->since_usual >= look))
        return 0;
    if (p->n_usual == 0)
        return 1;
    double added = n_waiting > 0 ? MORE_WAITING : more(p);
    return MIN(added * usual_s(p, n) / work_s(p, n), sure_work(p, n, 1 + added));
}
