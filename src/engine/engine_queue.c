/* engine_queue.c: which sequences wait, which is next, which is put back.
 *
 * First come those that were put back, the oldest first: they have been served already. Then
 * comes the client with the fewest running sequences; among several, the one that was served
 * longest ago; of one client, the oldest. The next one is admitted when there are pages for all
 * its tokens and one more for every running sequence. None overtakes it, so short prompts do
 * not starve a long one. If pages run out later, the youngest is put back, so the oldest always
 * makes progress. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/util.h"
#include "engine/engine_internal.h"

void queue_put(struct engine *e, struct engine_request_handle *req) {
    req->next = e->requests;
    e->requests = req;
    for (int i = 0; i < req->r.n_choices; i++)
        req->seqs[i].age = e->next_age++;
    e->stats.requests++;
}

/* ---- the order -----------------------------------------------------------------------------
 */

static size_t running_of_client(const struct engine *e, uint64_t client) {
    size_t n = 0;
    for (size_t i = 0; i < e->n_running; i++)
        n += e->running[i]->req->r.client == client;
    return n;
}

static uint64_t last_turn(const struct engine *e, uint64_t client) {
    for (size_t i = 0; i < TURNS_MAX; i++)
        if (e->turns[i].client == client)
            return e->turns[i].last;
    return 0;
}

static void note_turn(struct engine *e, uint64_t client) {
    struct turn *at = &e->turns[0]; /* its own entry, or the oldest */
    for (size_t i = 0; i < TURNS_MAX; i++) {
        if (e->turns[i].client == client) {
            at = &e->turns[i];
            break;
        }
        if (e->turns[i].last < at->last)
            at = &e->turns[i];
    }
    *at = (struct turn){.client = client, .last = ++e->next_turn};
}

/* The first choice computes the prompt, the others find its pages. */
static bool is_ready(const struct engine *e, const struct seq *s) {
    const struct seq *first = &s->req->seqs[0];
    return s->state == SEQ_WAITING && (s == first || e->cfg.no_prefix_cache ||
                                       first->first_s != 0 || first->state == SEQ_ENDED);
}

struct claim {
    struct seq *seq;
    bool back; /* it was put back */
    size_t n_running;
    uint64_t last;
};

static bool comes_before(const struct claim *a, const struct claim *b) {
    if (b->seq == NULL || a->back != b->back)
        return b->seq == NULL || a->back;
    if (!a->back && a->n_running != b->n_running)
        return a->n_running < b->n_running;
    if (!a->back && a->last != b->last)
        return a->last < b->last;
    return a->seq->age < b->seq->age;
}

static struct seq *who_is_next(const struct engine *e) {
    struct claim best = {0};
    for (struct engine_request_handle *req = e->requests; req != NULL; req = req->next) {
        struct claim c = {.last = UINT64_MAX};
        for (int i = 0; i < req->r.n_choices; i++) {
            c.seq = &req->seqs[i];
            c.back = c.seq->slot != NULL;
            if (!is_ready(e, c.seq) || (!c.back && e->free_slot == NULL))
                continue;
            if (!c.back && c.last == UINT64_MAX) {
                c.n_running = running_of_client(e, req->r.client);
                c.last = last_turn(e, req->r.client);
            }
            if (comes_before(&c, &best))
                best = c;
        }
    }
    return best.seq;
}

/* ---- admission --------------------------------------------------------------------------- */

/* Of the found pages, keeps and holds as many as the sequence can continue from: the pages that
 * the next token sees through a window must be known too. */
static void find_window(struct engine *e, struct seq *s) {
    uint32_t *pages = s->slot->pages, window = engine_window(e);
    size_t n = 0, known_from = 0; /* all from known_from on */
    for (size_t i = 0; i < s->n_pages; i++) {
        if (!pages_window_known(e->pages, pages[i]))
            known_from = i + 1;
        if (known_from <= kv_window_first(window, (uint32_t)(i + 1) * KV_PAGE))
            n = i + 1;
    }
    pages_release(e->pages, pages + n, s->n_pages - n);
    s->n_pages = n;
    s->window_first = kv_window_first(window, (uint32_t)n * KV_PAGE);
    for (size_t i = s->window_first; i < n; i++)
        s->slot->window_pages[i] = pages_window_hold(e->pages, pages[i]);
}

/* Tokens at the beginning whose rows nobody wants. */
static size_t without_rows(const struct seq *s) {
    const struct engine_request *r = &s->req->r;
    if (r->embed && !r->embed_last)
        return 0;
    if (seq_tells_prompt(s))
        return s->n_told > 0 ? s->n_told - 1 : 0;
    return s->n_ids - 1; /* the last token is always computed */
}

/* Holds the known pages of the beginning. */
static void find_pages(struct engine *e, struct seq *s) {
    size_t n = without_rows(s) / KV_PAGE;
    uint32_t before = PAGE_NONE;
    while (s->n_pages < n) {
        before = pages_find(e->pages, before, s->slot->ids + s->n_pages * KV_PAGE);
        if (before == PAGE_NONE)
            break;
        s->slot->pages[s->n_pages++] = before;
    }
    if (engine_window(e) != 0)
        find_window(e, s);
    states_find(e, s);
    s->n_known_pages = s->n_pages;
    s->n_fed = s->n_pages * KV_PAGE;
}

static void drop_pages(struct engine *e, struct seq *s) {
    for (size_t i = s->window_first; engine_window(e) != 0 && i < s->n_pages; i++)
        pages_window_release(e->pages, s->slot->window_pages[i]);
    pages_release(e->pages, s->slot->pages, s->n_pages);
    states_end(e, s);
    s->n_pages = s->n_known_pages = s->window_first = s->n_fed = 0;
}

/* What a sequence lacks of a kind: up to its last token, and of windows what it can hold at
 * once. */
static size_t lacks(const struct engine *e, const struct seq *s, enum kv_kind kind) {
    size_t all = div_up(s->n_ids, KV_PAGE), held = s->n_pages;
    if (kind == KV_WINDOW) {
        held -= s->window_first;
        all = MIN(all - MIN(all, s->window_first), (size_t)e->n_window_most);
    }
    return all > held ? all - held : 0;
}

static bool has_room_of(const struct engine *e, const struct seq *s, enum kv_kind kind,
                        size_t available) {
    size_t wanted = lacks(e, s, kind);
    for (size_t i = 0; i < e->n_running; i++)
        wanted += 1 + lacks(e, e->running[i], kind);
    return wanted <= available;
}

static bool has_room(const struct engine *e, const struct seq *s) {
    return has_room_of(e, s, KV_WHOLE, pages_available(e->pages)) &&
           (engine_window(e) == 0 ||
            has_room_of(e, s, KV_WINDOW, pages_window_available(e->pages)));
}

static void start_running(struct engine *e, struct seq *s) {
    size_t at = e->n_running++;
    for (; at > 0 && e->running[at - 1]->age > s->age; at--)
        e->running[at] = e->running[at - 1];
    e->running[at] = s;
    s->state = SEQ_PROMPT;
    memset(s->slot->sum, 0, e->in.rank.hp.n_embd * sizeof *s->slot->sum);
}

/* Shown at once, not after the step: a request is among the queued or the running as long as it
 * is there. */
static void note_running(struct engine *e, struct engine_request_handle *req) {
    bool begins = !req->started;
    pthread_mutex_lock(&e->lock);
    e->n_queued -= begins && !req->r.follows;
    req->started = true;
    e->n_back = queue_count_back(e);
    e->shown.running = (int)e->n_running;
    pthread_mutex_unlock(&e->lock);
    if (!begins || req->r.on_begun == NULL)
        return;
    mem_forbid_end();
    req->r.on_begun(req->r.user);
    mem_forbid_begin();
}

static bool admit(struct engine *e, struct seq *s) {
    bool back = s->slot != NULL;
    if (!back)
        seq_begin(e, s);
    find_pages(e, s);
    if (!has_room(e, s) || !states_begin(e, s)) {
        drop_pages(e, s);
        if (!back) {
            s->slot->next_free = e->free_slot;
            e->free_slot = s->slot;
            s->slot = NULL;
        }
        return false;
    }
    if (!back) {
        s->admitted_s = clock_s();
        s->n_cached = s->n_fed;
        e->stats.tokens_cached += s->n_cached;
        e->stats.tokens_prompt += s->n_prompt;
        engine_histogram_add(&e->stats.queue_s, s->admitted_s - s->req->submitted_s);
        note_turn(e, s->req->r.client);
        if (s->constraint != NULL)
            masks_begin(e->masks, &s->job, TOKEN_NONE);
    }
    start_running(e, s);
    note_running(e, s->req);
    return true;
}

void queue_admit(struct engine *e) {
    for (;;) {
        struct seq *s = who_is_next(e);
        if (s == NULL || !admit(e, s))
            return;
    }
}

static bool runs(const struct engine_request_handle *req) {
    for (int i = 0; i < req->r.n_choices; i++)
        if (req->seqs[i].state == SEQ_PROMPT || req->seqs[i].state == SEQ_DECODE)
            return true;
    return false;
}

int queue_count_back(const struct engine *e) {
    int n = 0;
    for (const struct engine_request_handle *req = e->requests; req != NULL; req = req->next)
        n += req->started && !runs(req);
    return n;
}

/* ---- going back -------------------------------------------------------------------------- */

void queue_stop_running(struct engine *e, struct seq *s) {
    size_t at = 0;
    while (e->running[at] != s)
        at++;
    e->n_running--;
    for (; at < e->n_running; at++)
        e->running[at] = e->running[at + 1];
    drop_pages(e, s);
}

void queue_put_back(struct engine *e, struct seq *s) {
    queue_stop_running(e, s);
    s->state = SEQ_WAITING;
    s->n_feed = 0;
}

bool queue_add_free_page(struct engine *e, struct seq *s) {
    bool window = engine_window(e) != 0;
    if (pages_available(e->pages) == 0 || (window && pages_window_available(e->pages) == 0))
        return false;
    if (window)
        s->slot->window_pages[s->n_pages] = pages_window_take(e->pages);
    s->slot->pages[s->n_pages++] = pages_take(e->pages);
    return true;
}

bool queue_add_page(struct engine *e, struct seq *s) {
    while (!queue_add_free_page(e, s)) {
        struct seq *youngest = e->running[e->n_running - 1];
        queue_put_back(e, youngest);
        e->stats.preemptions++;
        if (youngest == s)
            return false;
    }
    return true;
}
