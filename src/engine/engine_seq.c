/* engine_seq.c: a sequence's life: its slot, its tokens and their text, its end. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/util.h"
#include "engine/engine_internal.h"

#include <math.h>

void seq_begin(struct engine *e, struct seq *s) {
    const struct engine_request *r = &s->req->r;
    s->slot = e->free_slot;
    e->free_slot = s->slot->next_free;
    memcpy(s->slot->ids, r->ids, r->n_ids * sizeof *r->ids);
    s->n_ids = s->n_prompt = r->n_ids;
    s->n_held = 0;
    token_stream_init(&s->stream, e->in.tokenizer, r->special);
    /* What an answer begins with follows other text. */
    s->stream.started = true;
    ngram_trust_init(&s->trust);
    if (s->constraint != NULL)
        s->job = (struct mask_job){.constraint = &r->constraint,
                                   .state = s->constraint,
                                   .line = &s->req->line,
                                   .mask = s->slot->mask};
}

void seq_publish(struct engine *e, struct seq *s) {
    uint32_t *pages = s->slot->pages, *windows = s->slot->window_pages;
    for (; (s->n_known_pages + 1) * KV_PAGE <= s->n_fed; s->n_known_pages++) {
        size_t i = s->n_known_pages;
        pages[i] = pages_publish(e->pages, pages[i], i > 0 ? pages[i - 1] : PAGE_NONE,
                                 s->slot->ids + i * KV_PAGE);
        if (engine_window(e) != 0)
            windows[i] = pages_window_publish(e->pages, pages[i], windows[i]);
    }
    if (engine_window(e) == 0)
        return;
    size_t first = kv_window_first(engine_window(e), (uint32_t)s->n_fed);
    for (; s->window_first < first; s->window_first++)
        pages_window_release(e->pages, windows[s->window_first]);
}

/* ---- tokens ------------------------------------------------------------------------------ */

/* Callbacks are the caller's: they may allocate. */
static void tell(struct seq *s, const struct engine_token *t) {
    const struct engine_request *r = &s->req->r;
    if (r->on_token == NULL)
        return;
    mem_forbid_end();
    r->on_token(r->user, t);
    mem_forbid_begin();
}

static void tell_prompt_token(struct seq *s, float logprob, const struct engine_top *top,
                              int n_top) {
    const struct engine_request *r = &s->req->r;
    const struct engine_token t = {.id = s->slot->ids[s->n_told++],
                                   .logprob = logprob,
                                   .top = top,
                                   .n_top = n_top,
                                   .n_prompt = s->n_prompt,
                                   .n_cached = s->n_cached};
    mem_forbid_end();
    r->on_prompt(r->user, &t);
    mem_forbid_begin();
}

void seq_tell_prompt(struct engine *e, struct seq *s) {
    const struct out_row *row = e->rows + s->first_row;
    if (s->n_told == 0)
        tell_prompt_token(s, NAN, NULL, 0);
    for (size_t i = 0; i < s->n_rows; i++, row++)
        if (row->n_history == s->n_told && s->n_told < s->n_prompt) {
            tell_prompt_token(s, row->logprob, row->top, s->req->r.n_top);
            e->n_given++;
        }
}

/* What a token means for its sequence. */
struct token_effect {
    bool over;
    enum engine_stop stop;
    const char *stop_string;
    size_t n_out; /* bytes of held text that go out with it */
};

static bool is_stop(const struct engine_request *r, int32_t id) {
    for (size_t i = 0; i < r->n_stop_ids; i++)
        if (r->stop_ids[i] == id)
            return true;
    return false;
}

static struct token_effect judge(struct engine *e, struct seq *s, int32_t id) {
    const struct engine_request *r = &s->req->r;
    struct token_effect v = {.stop = ENGINE_STOP_LENGTH};
    size_t n_generated = s->n_ids - s->n_prompt;
    char *held = s->slot->held;
    bool end = tokenizer_is_end(e->in.tokenizer, id), stopped = is_stop(r, id);
    if (!end && !stopped)
        s->n_held +=
            token_stream_put(&s->stream, id, held + s->n_held, e->held_cap - s->n_held);
    int which;
    v.n_out = stops_scan(s->req->stops, r->n_stops, held, s->n_held, &which);
    if (stopped || (end && (!r->ignore_end || s->constraint != NULL))) {
        v.over = true;
        v.stop = ENGINE_STOP_END;
    } else if (which >= 0) {
        return (struct token_effect){true, ENGINE_STOP_STRING, s->req->stops[which].text,
                                     v.n_out};
    } else {
        v.over = (r->n_predict >= 0 && n_generated >= (size_t)r->n_predict) ||
                 s->n_ids > engine_n_ctx(e);
    }
    if (v.over) { /* nothing follows: out with the rest */
        s->n_held += token_stream_end(&s->stream, held + s->n_held, e->held_cap - s->n_held);
        v.n_out = s->n_held;
    }
    return v;
}

bool seq_take(struct engine *e, struct seq *s, const struct out_row *row) {
    struct slot *slot = s->slot;
    slot->ids[s->n_ids++] = row->id;
    e->stats.tokens_generated++;
    throughput_add(&e->stats.generated, clock_s(), 1);
    e->n_given++;
    struct token_effect v = judge(e, s, row->id);
    if (!v.over && s->constraint != NULL)
        masks_begin(e->masks, &s->job, row->id);
    const struct engine_token t = {
        .choice = s->choice,
        .id = row->id,
        .text = slot->held,
        .len = v.n_out,
        .logprob = row->logprob,
        .top = row->top,
        .n_top = row->n_top,
        .n_prompt = s->n_prompt,
        .n_cached = s->n_cached,
        .n_generated = s->n_ids - s->n_prompt,
    };
    tell(s, &t);
    s->n_held -= v.n_out;
    memmove(slot->held, slot->held + v.n_out, s->n_held);
    if (v.over)
        seq_end(e, s, v.stop, v.stop_string, ST_OK, NULL);
    return !v.over;
}

/* ---- embeddings -------------------------------------------------------------------------- */

void seq_take_hidden(struct engine *e, struct seq *s, const float *row) {
    uint32_t n = e->in.rank.hp.n_embd;
    for (uint32_t i = 0; i < n; i++)
        s->slot->sum[i] += (double)row[i];
}

void seq_end_embedding(struct engine *e, struct seq *s) {
    const struct engine_request *r = &s->req->r;
    uint32_t n = e->in.rank.hp.n_embd;
    double n_rows = r->embed_last ? 1.0 : (double)s->n_prompt;
    for (uint32_t i = 0; i < n; i++)
        e->embedding[i] = (float)(s->slot->sum[i] / n_rows);
    mem_forbid_end();
    if (r->on_embedding != NULL)
        r->on_embedding(r->user, e->embedding, n);
    mem_forbid_begin();
    e->n_given++;
    seq_end(e, s, ENGINE_STOP_END, NULL, ST_OK, NULL);
}

/* ---- the end ----------------------------------------------------------------------------- */

void request_free(struct engine_request_handle *req) {
    for (int i = 0; req->seqs != NULL && i < req->r.n_choices; i++)
        if (req->seqs[i].constraint != NULL && req->r.constraint.free != NULL)
            req->r.constraint.free(req->seqs[i].constraint);
    for (size_t i = 0; req->stops != NULL && i < req->r.n_stops; i++)
        mem_free(req->stops[i].text);
    mem_free(req->stops);
    mem_free(req->seqs);
    mem_free((void *)(uintptr_t)req->r.ids);
    mem_free((void *)(uintptr_t)req->r.stop_ids);
    mem_free((void *)(uintptr_t)req->r.sampling.biases);
    mem_free(req->dry_breakers);
    mem_free(req);
}

static void unlink_request(struct engine *e, struct engine_request_handle *req) {
    struct engine_request_handle **at = &e->requests;
    while (*at != req)
        at = &(*at)->next;
    *at = req->next;
    if (req->started)
        return;
    pthread_mutex_lock(&e->lock);
    e->n_queued -= !req->r.follows;
    pthread_mutex_unlock(&e->lock);
}

static struct engine_done done_of(const struct seq *s) {
    double now = clock_s(), admitted = s->admitted_s != 0 ? s->admitted_s : now;
    double first = s->first_s != 0 ? s->first_s : now;
    return (struct engine_done){
        .choice = s->choice,
        .last = s->req->n_left == 1,
        .n_prompt = s->req->r.n_ids,
        .n_cached = s->n_cached,
        .n_generated = s->admitted_s != 0 ? s->n_ids - s->n_prompt : 0,
        .queued_s = admitted - s->req->submitted_s,
        .prompt_s = first - admitted,
        .generate_s = now - first,
    };
}

static void give_slot_back(struct engine *e, struct seq *s) {
    s->slot->next_free = e->free_slot;
    e->free_slot = s->slot;
    s->slot = NULL;
}

static void free_if_over(struct engine_request_handle *req) {
    if (req->n_left == 0 && req->n_lingering == 0)
        request_free(req);
}

void seq_end(struct engine *e, struct seq *s, enum engine_stop stop, const char *stop_string,
             enum status st, const char *why) {
    struct engine_request_handle *req = s->req;
    struct engine_done done = done_of(s);
    done.stop = stop;
    done.stop_string = stop_string;
    done.st = st;
    done.error = why;
    if (s->state == SEQ_PROMPT || s->state == SEQ_DECODE)
        queue_stop_running(e, s);
    if (s->slot != NULL && s->constraint != NULL && !masks_drop(e->masks, &s->job)) {
        s->next_lingering = e->lingering;
        e->lingering = s;
        req->n_lingering++;
    } else if (s->slot != NULL) {
        give_slot_back(e, s);
    }
    s->state = SEQ_ENDED;
    s->n_feed = 0;
    mem_forbid_end();
    if (req->r.on_done != NULL)
        req->r.on_done(req->r.user, &done);
    mem_forbid_begin();
    if (--req->n_left == 0) {
        unlink_request(e, req);
        free_if_over(req);
    }
}

void seq_end_lingering(struct engine *e) {
    for (struct seq **at = &e->lingering; *at != NULL;) {
        struct seq *s = *at;
        if (!masks_are_made(&s->job)) {
            at = &s->next_lingering;
            continue;
        }
        *at = s->next_lingering;
        give_slot_back(e, s);
        s->req->n_lingering--;
        free_if_over(s->req);
    }
}

void request_end(struct engine *e, struct engine_request_handle *req, enum engine_stop stop,
                 enum status st, const char *why) {
    int n = req->r.n_choices, n_left = req->n_left;
    for (int i = 0; i < n && n_left > 0; i++)
        if (req->seqs[i].state != SEQ_ENDED) {
            n_left--;
            seq_end(e, &req->seqs[i], stop, NULL, st, why);
        }
}
