/* engine_step.c: a step: which tokens of which sequences, and its results.
 *
 * Every running stream gets its next token, and speculative tokens after it if they pay.
 * Prompts share a piece that the streams can bear (step_cost.h), or the whole step if there are
 * no streams. Planning goes from the oldest to the youngest. So a sequence that is put back for
 * lack of a page is not planned yet. Hidden states (embeddings) and logits take turns: a step
 * makes one kind.
 *
 * A stream with a constraint takes part when its mask is ready (masks.h). A request's text does
 * not depend on the rest of the step. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/util.h"
#include "engine/engine_internal.h"

#include <stdio.h>

/* ---- planning ---------------------------------------------------------------------------- */

struct budget {
    size_t n_decode;  /* streams in the step */
    size_t n_prompts; /* that have not had their share yet */
    size_t piece;     /* tokens left for prompts */
    double work;      /* likewise, as step_cost.h counts it */
    size_t guesses;   /* tokens left for guesses */
    double guess_price;
};

/* Tokens of a prompt that can be computed: the last one gives logits, which need a mask. */
static size_t prompt_left(const struct seq *s) {
    return s->n_ids - s->n_fed - s->no_mask;
}

static bool can_go_on(const struct seq *s) {
    return s->state == SEQ_DECODE ? !s->no_mask : prompt_left(s) > 0;
}

static bool choose_hidden(const struct engine *e) {
    bool any[2] = {false, false};
    for (size_t i = 0; i < e->n_running; i++)
        if (can_go_on(e->running[i]))
            any[e->running[i]->req->r.embed] = true;
    return any[1] && (!any[0] || !e->hidden_last);
}

static struct budget make_budget(struct engine *e, bool hidden) {
    struct budget b = {0};
    size_t n_streams = 0;
    for (size_t i = 0; i < e->n_running; i++) {
        const struct seq *s = e->running[i];
        n_streams += s->state == SEQ_DECODE; /* that wait, whatever the step makes */
        if (s->req->r.embed == hidden && can_go_on(s)) {
            b.n_decode += s->state == SEQ_DECODE;
            b.n_prompts += s->state == SEQ_PROMPT;
        }
    }
    size_t room = engine_n_chunk(e) - b.n_decode;
    size_t most = (size_t)e->cfg.n_step_tokens > b.n_decode
                      ? (size_t)e->cfg.n_step_tokens - b.n_decode
                      : 1;
    b.piece = n_streams > 0 ? MIN(most, room) : room;
    if (b.n_prompts > 0)
        b.work = step_cost_room(&e->step_cost, b.n_decode, n_streams - b.n_decode);
    e->step_sample =
        (struct step_sample){.n_streams = b.n_decode, .n_waiting = n_streams - b.n_decode};
    b.guesses = b.n_prompts > 0 ? 0 : room;
    double step_s = step_cost_of(&e->step_cost, b.n_decode);
    if (step_s > 0)
        b.guess_price = step_cost_token_s(&e->step_cost) / step_s * (double)b.n_decode;
    return b;
}

/* Pages for positions up to n. False: the sequence went back. */
static bool ensure_pages(struct engine *e, struct seq *s, size_t n) {
    while (s->n_pages * KV_PAGE < n)
        if (!queue_add_page(e, s))
            return false;
    return true;
}

/* Guesses never put anybody back. */
static size_t guess(struct engine *e, struct seq *s, struct budget *b) {
    const struct engine_request *r = &s->req->r;
    if (e->cfg.no_speculation || s->constraint != NULL || e->states != NULL)
        return 0; /* a state cannot be rolled back */
    size_t most = MIN((size_t)GUESSES_MAX, b->guesses);
    most = MIN(most, engine_n_ctx(e) - s->n_ids);
    if (r->n_predict >= 0) {
        size_t left = (size_t)r->n_predict - (s->n_ids - s->n_prompt);
        most = MIN(most, left - 1);
    }
    size_t k = ngram_trust_k(&s->trust, b->guess_price, most);
    k = ngram_draft(s->slot->ids, s->n_ids, k);
    while (s->n_pages * KV_PAGE < s->n_ids + k && queue_add_free_page(e, s))
        ;
    k = MIN(k, s->n_pages * KV_PAGE - s->n_ids);
    b->guesses -= k;
    return k;
}

/* Whose mask is made by now, for the whole of the step. Where it allows nothing the sequence
 * ends. */
static void look_at_masks(struct engine *e) {
    for (size_t i = 0; i < e->n_running;) {
        struct seq *s = e->running[i];
        bool constrained = s->constraint != NULL;
        s->no_mask = constrained && !masks_are_made(&s->job);
        s->masked = constrained && !s->no_mask && s->job.allows == ENGINE_ALLOWS_SOME;
        if (constrained && !s->no_mask && s->job.allows == ENGINE_ALLOWS_NONE)
            seq_end(e, s, ENGINE_STOP_ERROR, NULL, ST_BAD_INPUT,
                    s->job.err.text[0] != '\0'
                        ? s->job.err.text
                        : "no token of the vocabulary satisfies the grammar here");
        else
            i++;
    }
}

static void plan_stream(struct engine *e, struct seq *s, struct budget *b) {
    if (!ensure_pages(e, s, s->n_ids))
        return;
    s->n_guesses = guess(e, s, b);
    e->step_sample.n_guesses += s->n_guesses;
    s->n_feed = s->n_rows = 1 + s->n_guesses;
}

/* A row costs as much as the whole vocabulary does, which step_cost.h does not know. */
#define ROWS_BESIDE 16

static void plan_prompt(struct engine *e, struct seq *s, struct budget *b) {
    const struct engine_request *r = &s->req->r;
    bool tells = seq_tells_prompt(s);
    size_t n = MIN(prompt_left(s), div_up(b->piece, b->n_prompts));
    n = step_cost_fit(&e->step_cost, s->n_fed, b->work / (double)b->n_prompts, n);
    if (tells && b->n_decode > 0)
        n = MIN(n, ROWS_BESIDE);
    b->n_prompts--;
    if (n == 0 || !ensure_pages(e, s, s->n_fed + n))
        return;
    double work = step_cost_work(&e->step_cost, s->n_fed, n);
    b->piece -= n;
    b->work -= work;
    e->step_sample.work += work;
    s->n_feed = n;
    e->tells_prompts |= tells;
    s->n_rows = s->n_fed + n == s->n_ids ? 1 : 0;
    if ((r->embed && !r->embed_last) || tells)
        s->n_rows = n;
}

static void plan(struct engine *e) {
    look_at_masks(e);
    e->step.hidden = e->hidden_last = choose_hidden(e);
    e->tells_prompts = false;
    struct budget b = make_budget(e, e->step.hidden);
    for (size_t i = 0; i < e->n_running;) {
        struct seq *s = e->running[i];
        s->n_feed = s->n_guesses = s->n_rows = 0;
        if (s->req->r.embed == e->step.hidden && can_go_on(s)) {
            if (s->state == SEQ_DECODE)
                plan_stream(e, s, &b);
            else
                plan_prompt(e, s, &b);
        }
        if (i < e->n_running && e->running[i] == s)
            states_plan(e, s);
        if (i < e->n_running && e->running[i] == s) /* it may have gone back */
            i++;
    }
}

/* ---- the step in arrays ------------------------------------------------------------------ */

/* The pages of layers with a window that s sees in this step. */
static void lay_out_window(struct engine *e, const struct seq *s, size_t n_pages) {
    size_t n = n_pages - s->window_first;
    BUG_ON(s->window_first != kv_window_first(engine_window(e), (uint32_t)s->n_fed));
    memcpy(e->window_table + e->step.n_window_pages, s->slot->window_pages + s->window_first,
           n * sizeof *e->window_table);
    e->step.n_window_pages += (uint32_t)n;
}

static void lay_out(struct engine *e) {
    struct step *step = &e->step;
    step->n_tokens = step->n_runs = step->n_outputs = 0;
    step->n_pages = step->n_window_pages = 0;
    for (size_t i = 0; i < e->n_running; i++) {
        struct seq *s = e->running[i];
        if (s->n_feed == 0)
            continue;
        const struct step_run run = {.pos = (uint32_t)s->n_fed,
                                     .n_tokens = (uint32_t)s->n_feed,
                                     .page_begin = step->n_pages,
                                     .window_begin = step->n_window_pages};
        step->n_runs += states_runs(e, s, run, e->runs + step->n_runs);
        memcpy(e->tokens + step->n_tokens, s->slot->ids + s->n_fed,
               s->n_feed * sizeof *e->tokens);
        size_t n_pages = div_up(s->n_fed + s->n_feed, KV_PAGE);
        memcpy(e->page_table + step->n_pages, s->slot->pages, n_pages * sizeof *e->page_table);
        if (engine_window(e) != 0)
            lay_out_window(e, s, n_pages);
        step->n_tokens += (uint32_t)s->n_feed;
        step->n_pages += (uint32_t)n_pages;
        s->first_row = step->n_outputs;
        for (size_t j = s->n_feed - s->n_rows; j < s->n_feed; j++) {
            e->rows[step->n_outputs].seq = s;
            e->rows[step->n_outputs].n_history = s->n_fed + j + 1;
            e->outputs[step->n_outputs++] = step->n_tokens - (uint32_t)(s->n_feed - j);
        }
    }
}

/* ---- rows, on the pool's threads --------------------------------------------------------- */

/* Of the token that the prompt has there. */
static void look_row(struct sampler *sm, struct out_row *row, const float *logits) {
    const struct seq *s = row->seq;
    if (row->n_history < s->n_told)
        return; /* computed again, after it was put back */
    row->id = s->slot->ids[row->n_history];
    row->logprob = sampler_logprobs(sm, logits, row->id, row->top, s->req->r.n_top);
}

static void sample_row(void *user, int thread, uint32_t output, const float *logits) {
    struct engine *e = user;
    struct out_row *row = &e->rows[output];
    const struct seq *s = row->seq;
    const struct engine_request *r = &s->req->r;
    struct sampler *sm = &e->samplers[thread];
    if (row->n_history < s->n_prompt) {
        look_row(sm, row, logits);
        return;
    }
    bool early = row->n_history - s->n_prompt < (size_t)r->min_tokens;
    const struct sampler_input in = {
        .logits = logits,
        .banned = r->stop_ids,
        .n_banned = early ? s->req->n_banned : 0,
        .mask = s->masked ? s->slot->mask : NULL,
        .history = s->slot->ids,
        .n_history = row->n_history,
        .n_prompt = s->n_prompt,
        .dry_breakers = s->req->dry_breakers,
        .seed = r->sampling.base.seed + (uint64_t)s->choice,
    };
    row->id = sampler_next(sm, &r->sampling, &in);
    row->logprob = 0;
    row->n_top = r->n_top;
    if (r->chances)
        row->logprob =
            sampler_chances(sm, &r->sampling, &in, row->id, row->top, r->n_top, &row->n_top);
    else if (r->logprobs)
        row->logprob = sampler_logprobs(sm, logits, row->id, row->top, r->n_top);
}

/* On the engine's thread, in order: the order of a sum. */
static bool add_hidden(void *user, uint32_t first, uint32_t n, const float *rows) {
    struct engine *e = user;
    for (uint32_t i = 0; i < n; i++)
        seq_take_hidden(e, e->rows[first + i].seq, rows + (size_t)i * e->in.rank.hp.n_embd);
    return true;
}

/* ---- what comes of it -------------------------------------------------------------------- */

static void note_tokens(struct engine *e, struct seq *s, double now, size_t n) {
    if (s->first_s == 0) {
        s->first_s = now;
        engine_histogram_add(&e->stats.first_token_s, now - s->req->submitted_s);
        n--;
    }
    for (size_t i = 0; i < n; i++)
        engine_histogram_add(&e->stats.between_tokens_s, (now - s->last_s) / (double)n);
    s->last_s = now;
}

/* The tokens that the rows give: each is the next one as long as the guesses before it were
 * right. */
static void take_tokens(struct engine *e, struct seq *s, double now) {
    size_t n_right = 0;
    const int32_t *guesses = s->slot->ids + s->n_ids;
    const struct out_row *rows = e->rows + s->first_row + s->n_rows - 1 - s->n_guesses;
    while (n_right < s->n_guesses && guesses[n_right] == rows[n_right].id)
        n_right++;
    ngram_trust_learn(&s->trust, s->n_guesses, n_right);
    e->stats.speculated += s->n_guesses;
    e->stats.accepted += n_right;
    /* What is fed after the last right guess is garbage, and overwritten by what comes next. */
    s->n_fed += s->n_feed - s->n_guesses + n_right;
    s->state = SEQ_DECODE;
    note_tokens(e, s, now, n_right + 1);
    seq_publish(e, s); /* the right guesses stand behind the tokens already */
    states_step_done(e, s);
    if (s->req->r.n_predict == 0) {
        seq_end(e, s, ENGINE_STOP_LENGTH, NULL, ST_OK, NULL);
        return;
    }
    for (size_t i = 0, n = n_right + 1; i < n; i++)
        if (!seq_take(e, s, &rows[i]))
            return;
}

static void take(struct engine *e, struct seq *s, double now) {
    if (s->n_feed == 0)
        return;
    if (seq_tells_prompt(s))
        seq_tell_prompt(e, s);
    if (!s->req->r.embed && s->n_rows > 0 && s->n_fed + s->n_feed >= s->n_ids) {
        take_tokens(e, s, now);
        return;
    }
    s->n_fed += s->n_feed;
    seq_publish(e, s);
    states_step_done(e, s);
    if (s->req->r.embed && s->n_fed == s->n_ids)
        seq_end_embedding(e, s);
}

static void take_all(struct engine *e) {
    double now = clock_s();
    for (size_t i = 0; i < e->n_running;) {
        struct seq *s = e->running[i];
        take(e, s, now);
        if (i < e->n_running && e->running[i] == s)
            i++;
    }
}

/* ---- the step ---------------------------------------------------------------------------- */

static void count_step(struct engine *e, double seconds) {
    struct model_times times = model_times(e->in.rank.model, false);
    e->step_sample.n_tokens = e->step.n_tokens;
    e->step_sample.seconds = seconds;
    if (!e->tells_prompts)
        step_cost_add(&e->step_cost, &e->step_sample);
    const struct step_sample *sample = &e->step_sample;
    size_t of_streams = MIN(sample->n_streams + sample->n_guesses, sample->n_tokens);
    throughput_add(&e->stats.prompted, clock_s(), sample->n_tokens - of_streams);
    e->stats.steps++;
    e->stats.batch = (int)e->step.n_tokens;
    e->stats.compute_s = (double)(times.step_ns - times.fabric_ns) * 1e-9;
    e->stats.fabric_s = (double)times.fabric_ns * 1e-9;
}

bool step_once(struct engine *e) {
    size_t n_before = e->n_running;
    mem_forbid_begin();
    plan(e);
    bool some_left = e->n_running < n_before; /* others may fit */
    lay_out(e);
    if (e->step.n_tokens > 0) {
        struct err err;
        const struct step_sink logits = {.row = sample_row, .user = e};
        const struct step_sink hidden = {.rows = add_hidden, .user = e};
        double began = clock_s();
        e->lost =
            rank_lead_step(&e->in.rank, &e->step, e->step.hidden ? &hidden : &logits, &err);
        if (e->lost == ST_OK) {
            count_step(e, clock_s() - began);
            take_all(e);
        } else {
            mem_forbid_end();
            instance_explain(&e->in, e->lost, &err);
            snprintf(e->stats.why, sizeof e->stats.why, "%s", err.text);
            mem_forbid_begin();
        }
    }
    mem_forbid_end();
    return e->step.n_tokens > 0 || some_left;
}
