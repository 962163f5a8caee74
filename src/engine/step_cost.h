/* step_cost.h: predicts how long a step takes, from measured steps. It decides how large a step
 * may be, never what is computed.
 *
 * It answers two questions. What does one more token cost (step_cost_token_s)? A step has a
 * fixed part, since the weights are read once, and a part for each token. And how much prompt
 * work may a step hold beside streams (step_cost_room)? Enough that hardly any step takes three
 * times as long as usual. If steps take the expected time, a piece makes one twice as long. The
 * later the last steps were, the smaller the piece, down to 1.6 times. So prompts get a third
 * to a half of the machine.
 *
 * The second answer needs the usual time and the addition per prompt token. Both are measured,
 * since a model made from the cost of the first few tokens is wrong by more than the bound.
 * `usual` is one of the quicker of the last steps that held streams alone. The addition is the
 * median of the last pieces. So one slow step of a busy machine changes nothing, and a lasting
 * slowdown of the whole machine soon cancels out. While prompts wait for long, every few steps
 * one is made without them, to measure the usual time again. */
#ifndef LOCKSTEP_ENGINE_STEP_COST_H
#define LOCKSTEP_ENGINE_STEP_COST_H

#include <stdbool.h>
#include <stddef.h>

#define STEP_COST_USUAL 5   /* steps of streams alone that are remembered */
#define STEP_COST_PIECES 15 /* and pieces */

struct step_cost {
    double w, n, nn, t,
        nt; /* weighted sums over steps: 1, n_tokens, n^2, seconds, n * seconds */

    double attn_whole, attn_window; /* of a token's work: for each position that it sees */
    size_t window;                  /* positions that attn_window is for at most */

    struct {
        size_t n_streams;
        double seconds;
    } usual[STEP_COST_USUAL];
    struct {
        size_t n_streams;
        double work, seconds;
        double usual; /* how many usual steps it took, by what was usual then */
        double late;  /* seconds by those that were expected; 1: as long */
    } pieces[STEP_COST_PIECES];
    size_t n_usual, n_pieces; /* ever; the last ones are kept, in turn */
    size_t since_usual;       /* steps with streams and pieces since */
    double worst_late;        /* as `late`, of pieces and of streams alone, slowly forgotten */
    double alone_s;           /* of a token's work in a step of prompts alone; 0: not known */
};

/* The work of a token at position 0 is 1; each position before it adds attn_whole, and each of
 * the last `window` ones attn_window. */
void step_cost_init(struct step_cost *p, double attn_whole, double attn_window, size_t window);
double step_cost_work(const struct step_cost *p, size_t pos, size_t n_tokens);
/* How many tokens from pos on are at most so much work; at most n_max. One at least if there is
 * any: the prompt has to end some time. */
size_t step_cost_fit(const struct step_cost *p, size_t pos, double work, size_t n_max);

struct step_sample {
    size_t n_tokens;  /* in all */
    size_t n_streams; /* that got a token */
    size_t n_waiting; /* streams that did not: the step made something else */
    size_t n_guesses; /* of streams */
    double work;      /* of prompts; 0: none */
    double seconds;
};
void step_cost_add(struct step_cost *p, const struct step_sample *s);

/* Seconds of a step, and of one more token in it. Guesses until enough steps of different sizes
 * are known. */
double step_cost_of(const struct step_cost *p, size_t n_tokens);
double step_cost_token_s(const struct step_cost *p);

/* How much prompt work fits the next step beside n_streams streams that get a token and
 * n_waiting ones that do not. 0: this step is theirs alone. If no stream waits, prompts get
 * steps of about a second, so that new requests do not wait long either. */
double step_cost_room(const struct step_cost *p, size_t n_streams, size_t n_waiting);

#endif
