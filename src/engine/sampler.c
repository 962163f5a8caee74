/* sampler.c: Penalties, filters, softmax and the draw: from logits to the next token. */
#include "engine/sampler.h"

#include "base/exact.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/util.h"
#include "engine/dry.h"

#include <math.h>

/* Sums over the vocabulary: 8 lanes (id mod 8) within a block, added in order; blocks in order. */
#define SUM_BLOCK 512
#define SUM_LANES 8

/* ---- settings ---------------------------------------------------------------------------- */

void engine_sampling_init(struct engine_sampling *s) {
    static const char *const breakers[] = {"\n", ":", "\"", "*"};
    *s = (struct engine_sampling){
        .typical_p = 1,
        .xtc_threshold = 0.1f,
        .dry = {0, 1.75f, 2, INT32_MAX, breakers, ARRAY_LEN(breakers)},
    };
    lockstep_sampling_init(&s->base);
}

static enum status check_base(const struct lockstep_sampling *s, struct err *err) {
    if (!(s->temperature >= 0 && s->temperature <= 100))
        return err_set(err, ST_BAD_INPUT, "temperature %g: expected 0 to 100",
                       (double)s->temperature);
    if (s->top_k < 0)
        return err_set(err, ST_BAD_INPUT, "top-k %d: expected 0 (off) or more", s->top_k);
    if (!(s->top_p > 0 && s->top_p <= 1))
        return err_set(err, ST_BAD_INPUT, "top-p %g: expected more than 0, at most 1",
                       (double)s->top_p);
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return err_set(err, ST_BAD_INPUT, "min-p %g: expected 0 to 1", (double)s->min_p);
    if (!(s->repeat_penalty > 0 && s->repeat_penalty <= 100))
        return err_set(err, ST_BAD_INPUT,
                       "repeat penalty %g: expected more than 0, at most 100",
                       (double)s->repeat_penalty);
    if (s->repeat_last_n < 0)
        return err_set(err, ST_BAD_INPUT, "repeat-last-n %d: expected 0 or more",
                       s->repeat_last_n);
    return ST_OK;
}

static enum status check_newer(const struct engine_sampling *s, struct err *err) {
    const struct engine_dry *dry = &s->dry;
    if (!(s->top_n_sigma >= 0 && s->top_n_sigma <= 1000))
        return err_set(err, ST_BAD_INPUT, "top-n-sigma %g: expected 0 (off) to 1000",
                       (double)s->top_n_sigma);
    if (!(s->xtc_probability >= 0 && s->xtc_probability <= 1))
        return err_set(err, ST_BAD_INPUT, "XTC's probability %g: expected 0 to 1",
                       (double)s->xtc_probability);
    if (!(s->xtc_threshold >= 0 && s->xtc_threshold <= 1))
        return err_set(err, ST_BAD_INPUT, "XTC's threshold %g: expected 0 to 1",
                       (double)s->xtc_threshold);
    if (!(dry->multiplier >= 0 && dry->multiplier <= 100))
        return err_set(err, ST_BAD_INPUT, "DRY's multiplier %g: expected 0 to 100",
                       (double)dry->multiplier);
    if (!(dry->base >= 1 && dry->base <= 100))
        return err_set(err, ST_BAD_INPUT, "DRY's base %g: expected 1 to 100",
                       (double)dry->base);
    if (dry->allowed_length < 1 || dry->last_n < 0)
        return err_set(err, ST_BAD_INPUT,
                       "DRY with sequences of %d tokens, of the last %d: expected 1 and 0 or "
                       "more",
                       dry->allowed_length, dry->last_n);
    return ST_OK;
}

enum status sampling_check(const struct engine_sampling *s, uint32_t n_vocab, struct err *err) {
    TRY(check_base(&s->base, err));
    TRY(check_newer(s, err));
    if (!(s->typical_p > 0 && s->typical_p <= 1))
        return err_set(err, ST_BAD_INPUT, "typical-p %g: expected more than 0, at most 1",
                       (double)s->typical_p);
    if (!(s->presence_penalty >= -100 && s->presence_penalty <= 100))
        return err_set(err, ST_BAD_INPUT, "presence penalty %g: expected -100 to 100",
                       (double)s->presence_penalty);
    if (!(s->frequency_penalty >= -100 && s->frequency_penalty <= 100))
        return err_set(err, ST_BAD_INPUT, "frequency penalty %g: expected -100 to 100",
                       (double)s->frequency_penalty);
    if (s->n_biases > n_vocab)
        return err_set(err, ST_BAD_INPUT, "%zu biases for a vocabulary of %u", s->n_biases,
                       n_vocab);
    for (size_t i = 0; i < s->n_biases; i++) {
        if (s->biases[i].id < 0 || (uint32_t)s->biases[i].id >= n_vocab)
            return err_set(err, ST_BAD_INPUT,
                           "a bias for token %d, which is not in the "
                           "vocabulary of %u",
                           s->biases[i].id, n_vocab);
        if (!(s->biases[i].bias >= -1e6f && s->biases[i].bias <= 1e6f))
            return err_set(err, ST_BAD_INPUT, "a bias of %g for token %d: expected -1e6 to 1e6",
                           (double)s->biases[i].bias, s->biases[i].id);
    }
    return ST_OK;
}

enum status sampler_init(struct sampler *sm, const struct kernels *kernels, uint32_t n_vocab,
                         uint32_t n_text, struct err *err) {
    struct sampler out = {
        .kernels = kernels, .n_vocab = n_vocab, .n_text = MIN(n_text, n_vocab)};
    out.candidates = mem_calloc(n_vocab, sizeof *out.candidates);
    out.logits = mem_calloc(n_vocab, sizeof *out.logits);
    out.p = mem_calloc(n_vocab, sizeof *out.p);
    out.sums = mem_calloc(div_up(n_vocab, SUM_BLOCK), sizeof *out.sums);
    out.counts = mem_calloc(n_vocab, sizeof *out.counts);
    if (out.candidates == NULL || out.logits == NULL || out.p == NULL || out.sums == NULL ||
        out.counts == NULL) {
        sampler_deinit(&out);
        return err_set(err, ST_NO_MEMORY, "no memory to sample from %u tokens", n_vocab);
    }
    *sm = out;
    return ST_OK;
}

void sampler_deinit(struct sampler *sm) {
    mem_free(sm->candidates);
    mem_free(sm->logits);
    mem_free(sm->p);
    mem_free(sm->sums);
    mem_free(sm->counts);
    *sm = (struct sampler){0};
}

/* ---- penalties, biases, mask ------------------------------------------------------------- */

/* A token seen several times is penalized once: positive logits are divided, negative ones
 * multiplied (Keskar et al., CTRL, arXiv 1909.05858). */
static void penalize_repetition(struct sampler *sm, const struct lockstep_sampling *s,
                                const struct sampler_input *in) {
    size_t n = MIN(in->n_history, (size_t)s->repeat_last_n);
    for (size_t i = in->n_history - n; i < in->n_history; i++) {
        uint32_t id = (uint32_t)in->history[i];
        float v = in->logits[id]; /* from the original: once, however often it occurs */
        sm->logits[id] = v > 0 ? v / s->repeat_penalty : v * s->repeat_penalty;
    }
}

/* logit -= presence + count * frequency for every token that was generated. */
static void penalize_generated(struct sampler *sm, const struct engine_sampling *s,
                               const struct sampler_input *in) {
    for (size_t i = in->n_prompt; i < in->n_history; i++)
        sm->counts[in->history[i]]++;
    for (size_t i = in->n_prompt; i < in->n_history; i++) {
        int32_t id = in->history[i];
        if (sm->counts[id] == 0)
            continue;
        sm->logits[id] -= s->presence_penalty + (float)sm->counts[id] * s->frequency_penalty;
        sm->counts[id] = 0;
    }
}

static void mask_out(struct sampler *sm, const uint64_t *mask) {
    for (uint32_t first = 0; first < sm->n_text; first += 64) {
        uint64_t word = mask[first / 64];
        if (word == UINT64_MAX)
            continue;
        for (uint32_t i = first; i < MIN(first + 64, sm->n_text); i++, word >>= 1)
            if ((word & 1) == 0)
                sm->logits[i] = -INFINITY;
    }
}

/* Keeps the logits within n standard deviations of the best one (Tang et al., Top-nσ, arXiv
 * 2411.07641). Masked tokens have no part in the deviation. */
static void cut_sigma(struct sampler *sm, float n_sigma) {
    double sum = 0, squares = 0, n = 0;
    float best = -INFINITY;
    for (uint32_t i = 0; i < sm->n_text; i++)
        if (sm->logits[i] > -INFINITY) {
            sum += (double)sm->logits[i];
            n++;
            best = MAX(best, sm->logits[i]);
        }
    for (uint32_t i = 0; i < sm->n_text; i++)
        if (sm->logits[i] > -INFINITY)
            squares += ((double)sm->logits[i] - sum / n) * ((double)sm->logits[i] - sum / n);
    const double least = (double)best - (double)n_sigma * sqrt(squares / n);
    for (uint32_t i = 0; i < sm->n_text; i++)
        if ((double)sm->logits[i] < least)
            sm->logits[i] = -INFINITY;
}

/* The logits that count: the model's own where nothing changes them. */
static const float *changed_logits(struct sampler *sm, const struct engine_sampling *s,
                                   const struct sampler_input *in) {
    bool repetition = s->base.repeat_penalty != 1.0f;
    bool generated = s->presence_penalty != 0 || s->frequency_penalty != 0;
    if (!repetition && !generated && s->n_biases == 0 && in->mask == NULL &&
        in->n_banned == 0 && s->dry.multiplier == 0 && s->top_n_sigma == 0)
        return in->logits;
    memcpy(sm->logits, in->logits, sm->n_vocab * sizeof *sm->logits);
    if (repetition)
        penalize_repetition(sm, &s->base, in);
    if (generated)
        penalize_generated(sm, s, in);
    if (s->dry.multiplier != 0)
        dry_penalize(&s->dry, in->dry_breakers, in->history, in->n_history, sm->logits,
                     sm->counts);
    for (size_t i = 0; i < s->n_biases; i++)
        sm->logits[s->biases[i].id] += s->biases[i].bias;
    if (in->mask != NULL)
        mask_out(sm, in->mask);
    for (size_t i = 0; i < in->n_banned; i++)
        sm->logits[in->banned[i]] = -INFINITY;
    if (s->top_n_sigma > 0)
        cut_sigma(sm, s->top_n_sigma);
    return sm->logits;
}

/* ---- ranking ----------------------------------------------------------------------------- */

#define BLOCK_LOGITS 256

/* Whether any of a block's logits is above `best`. No early end, so that the compiler makes
 * vectors of it. */
static bool block_exceeds(const float *logits, float best) {
    int exceeds = 0;
    for (int i = 0; i < BLOCK_LOGITS; i++)
        exceeds |= logits[i] > best;
    return exceeds != 0;
}

/* The largest logit's id, the lowest of equals. Few blocks hold a new one; all other threads
 * wait meanwhile. */
static int32_t argmax(const float *logits, uint32_t n) {
    uint32_t best = 0;
    for (uint32_t first = 0; first < n; first += BLOCK_LOGITS) {
        uint32_t end = MIN(first + BLOCK_LOGITS, n);
        if (end - first == BLOCK_LOGITS && !block_exceeds(logits + first, logits[best]))
            continue;
        for (uint32_t i = first; i < end; i++)
            if (logits[i] > logits[best])
                best = i;
    }
    return (int32_t)best;
}

/* True if a comes before b. */
static bool before(const struct candidate *a, const struct candidate *b) {
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

/* The worst of a heap is its root. */
static void sift_down(struct candidate *heap, size_t n, size_t i) {
    for (;;) {
        size_t worst = i, l = 2 * i + 1, r = l + 1;
        if (l < n && before(&heap[worst], &heap[l]))
            worst = l;
        if (r < n && before(&heap[worst], &heap[r]))
            worst = r;
        if (worst == i)
            return;
        struct candidate c = heap[i];
        heap[i] = heap[worst];
        heap[worst] = c;
        i = worst;
    }
}

static void make_heap(struct candidate *c, size_t n) {
    for (size_t i = n / 2 + 1; i-- > 0;)
        sift_down(c, n, i);
}

/* The worst goes last, again and again (qsort may allocate). */
static void rank(struct candidate *c, size_t n) {
    make_heap(c, n);
    while (n > 1) {
        struct candidate worst = c[0];
        c[0] = c[--n];
        c[n] = worst;
        sift_down(c, n, 0);
    }
}

/* The k best candidates, ranked. A heap keeps the worst of them at hand, so that one comparison
 * dismisses most tokens. */
static size_t take_best(struct sampler *sm, const float *logits, size_t k) {
    struct candidate *c = sm->candidates;
    size_t n = 0;
    for (uint32_t i = 0; i < sm->n_text; i++) {
        struct candidate next = {.logit = logits[i], .id = (int32_t)i};
        if (n < k) {
            c[n++] = next;
            if (n == k)
                make_heap(c, n);
        } else if (before(&next, &c[0])) {
            c[0] = next;
            sift_down(c, n, 0);
        }
    }
    rank(c, n);
    return n;
}

/* ---- weights ----------------------------------------------------------------------------- */

/* sm->p = exp((logit - best) / temperature) of all ids; sm->sums; returns their sum. */
static double weigh_all(struct sampler *sm, const float *logits, float temperature) {
    uint32_t n = sm->n_text;
    float best = logits[argmax(logits, n)];
    double total = 0;
    for (uint32_t i = 0; i < n; i++)
        sm->p[i] = (logits[i] - best) / temperature;
    sm->kernels->exp(sm->p, sm->p, n);
    for (uint32_t first = 0; first < n; first += SUM_BLOCK) {
        double lanes[SUM_LANES] = {0}, sum = 0;
        uint32_t end = MIN(first + SUM_BLOCK, n), i = first;
        for (; i + SUM_LANES <= end; i += SUM_LANES)
            for (int l = 0; l < SUM_LANES; l++)
                lanes[l] += (double)sm->p[i + l];
        for (int l = 0; i < end; i++, l++)
            lanes[l] += (double)sm->p[i];
        for (int l = 0; l < SUM_LANES; l++)
            sum += lanes[l];
        sm->sums[first / SUM_BLOCK] = sum;
        total += sum;
    }
    return total;
}

/* p = exp((logit - best) / temperature) of ranked candidates; returns their sum in rank order. */
static double weigh(struct candidate *c, size_t n, float temperature) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        c[i].p = exact_exp((c[i].logit - c[0].logit) / temperature);
        sum += (double)c[i].p;
    }
    return sum;
}

/* The id at `left` of the weights laid end to end. */
static int32_t draw_from_all(const struct sampler *sm, double left) {
    uint32_t block = 0, n_blocks = (uint32_t)div_up(sm->n_text, SUM_BLOCK);
    while (block + 1 < n_blocks && left >= sm->sums[block])
        left -= sm->sums[block++];
    /* Rounding may carry the end of the weights past their block's sum: then it is the last. */
    uint32_t last = block * SUM_BLOCK;
    for (uint32_t i = last; i < MIN((block + 1) * SUM_BLOCK, sm->n_text); i++) {
        if (sm->p[i] == 0)
            continue;
        last = i;
        left -= (double)sm->p[i];
        if (left < 0)
            break;
    }
    return (int32_t)last;
}

static int32_t draw(const struct candidate *c, size_t n, double left) {
    for (size_t i = 0; i < n; i++) {
        left -= (double)c[i].p;
        if (left < 0)
            return c[i].id;
    }
    return c[n - 1].id;
}

/* ---- cuts -------------------------------------------------------------------------------- */

/* Keeps the candidates whose surprise is nearest to the entropy, until they have typical_p of
 * the mass (Meister et al., Locally Typical Sampling, arXiv 2202.00666). They are then ranked
 * by logit again. */
static size_t cut_typical(struct candidate *c, size_t n, float typical_p) {
    double sum = weigh(c, n, 1.0f), log_sum = exact_log64(sum), entropy = 0;
    float best = c[0].logit;
    for (size_t i = 0; i < n; i++) {
        double p = (double)c[i].p / sum;
        if (p > 0)
            entropy -= p * ((double)(c[i].logit - best) - log_sum);
    }
    /* rank() goes by `logit`: lend it the (negative) distance, keep the logit in p. */
    for (size_t i = 0; i < n; i++) {
        double surprise = log_sum - (double)(c[i].logit - best);
        c[i].p = c[i].logit;
        c[i].logit = -(float)fabs(surprise - entropy);
    }
    rank(c, n);
    double upto = 0;
    size_t keep = 0;
    while (keep < n && (keep == 0 || upto < (double)typical_p * sum))
        upto += (double)exact_exp(c[keep++].p - best);
    for (size_t i = 0; i < keep; i++)
        c[i].logit = c[i].p;
    rank(c, keep);
    return keep;
}

/* How many of the n first ranked candidates, of all or of more, are kept. *sure: no candidate
 * after them could be. */
static size_t cut(const struct candidate *c, size_t n, const struct lockstep_sampling *s,
                  double sum, bool *sure) {
    double upto = 0;
    for (size_t i = 0; i < n; i++) {
        *sure = true;
        if (i > 0 && c[i].p < s->min_p) /* the best has p = 1 */
            return i;
        upto += (double)c[i].p;
        if (s->top_p < 1.0f && upto >= (double)s->top_p * sum)
            return i + 1;
    }
    *sure = false;
    return n;
}

/* Without top-k: ranks only as many candidates as the cuts can keep. */
static size_t kept_of_all(struct sampler *sm, const float *logits,
                          const struct lockstep_sampling *s) {
    double sum = weigh_all(sm, logits, 1.0f);
    for (size_t k = MIN((size_t)128, (size_t)sm->n_text);;
         k = MIN(k * 16, (size_t)sm->n_text)) {
        size_t n = take_best(sm, logits, k);
        weigh(sm->candidates, n, 1.0f);
        bool sure;
        n = cut(sm->candidates, n, s, sum, &sure);
        if (sure || k == sm->n_text)
            return n;
    }
}

static size_t kept(struct sampler *sm, const float *logits, const struct engine_sampling *s) {
    const struct lockstep_sampling *b = &s->base;
    if (b->top_k == 0 && s->typical_p == 1.0f)
        return kept_of_all(sm, logits, b);
    size_t k = b->top_k == 0 ? sm->n_text : MIN((size_t)b->top_k, (size_t)sm->n_text);
    size_t n = take_best(sm, logits, k);
    /* Masked tokens are not candidates. */
    while (n > 1 && sm->candidates[n - 1].logit == -INFINITY)
        n--;
    if (s->typical_p < 1.0f)
        n = cut_typical(sm->candidates, n, s->typical_p);
    bool sure;
    return cut(sm->candidates, n, b, weigh(sm->candidates, n, 1.0f), &sure);
}

/* Exclude Top Choices (p-e-w, text-generation-webui, pull request 6335): of the ranked candidates
 * with p >= threshold all but the last go, now and then. Returns how many. */
static size_t excluded(struct candidate *c, size_t n, const struct engine_sampling *s,
                       const struct sampler_input *in) {
    const uint64_t another = 0x7874632065786330u; /* a stream of its own */
    if (s->xtc_probability == 0 || s->xtc_threshold > 0.5f || n < 2 ||
        rng_uniform(in->seed ^ another, in->n_history) >= (double)s->xtc_probability)
        return 0;
    const double sum = weigh(c, n, 1.0f);
    size_t likely = 0;
    while (likely < n && (double)c[likely].p >= (double)s->xtc_threshold * sum)
        likely++;
    return likely >= 2 ? likely - 1 : 0;
}

/* ---- the whole --------------------------------------------------------------------------- */

static bool draws_from_all(const struct engine_sampling *s) {
    const struct lockstep_sampling *b = &s->base;
    return b->top_k == 0 && b->top_p == 1.0f && b->min_p == 0 && s->typical_p == 1.0f &&
           s->xtc_probability == 0;
}

/* What is drawn from, ranked, with weights; *n: how many; *sum: of their weights. */
static struct candidate *drawn_from(struct sampler *sm, const struct engine_sampling *s,
                                    const struct sampler_input *in, const float *logits,
                                    size_t *n, double *sum) {
    size_t n_kept = kept(sm, logits, s), gone = excluded(sm->candidates, n_kept, s, in);
    struct candidate *c = sm->candidates + gone;
    *n = n_kept - gone;
    *sum = weigh(c, *n, s->base.temperature);
    return c;
}

int32_t sampler_next(struct sampler *sm, const struct engine_sampling *s,
                     const struct sampler_input *in) {
    const struct lockstep_sampling *b = &s->base;
    const float *logits = changed_logits(sm, s, in);
    if (b->temperature == 0)
        return argmax(logits, sm->n_text);
    double u = rng_uniform(in->seed, in->n_history), sum;
    if (draws_from_all(s))
        return draw_from_all(sm, u * weigh_all(sm, logits, b->temperature));
    size_t n;
    const struct candidate *c = drawn_from(sm, s, in, logits, &n, &sum);
    return draw(c, n, u * sum);
}

static int keep_chances(const struct candidate *c, size_t n, double sum, struct engine_top *top,
                        int n_top) {
    int n_kept = 0;
    for (; n_kept < n_top && (size_t)n_kept < n && c[n_kept].p > 0; n_kept++)
        top[n_kept] = (struct engine_top){c[n_kept].id, (float)((double)c[n_kept].p / sum)};
    return n_kept;
}

float sampler_chances(struct sampler *sm, const struct engine_sampling *s,
                      const struct sampler_input *in, int32_t id, struct engine_top *top,
                      int n_top, int *n) {
    const float *logits = changed_logits(sm, s, in);
    struct candidate *c = sm->candidates, one = {.id = id, .p = 1};
    size_t n_all = 1;
    double sum = 1;
    if (s->base.temperature == 0) {
        c = &one;
    } else if (draws_from_all(s)) {
        sum = weigh_all(sm, logits, s->base.temperature);
        n_all = take_best(sm, logits, MIN((size_t)MAX(n_top, 1), (size_t)sm->n_text));
        for (size_t i = 0; i < n_all; i++)
            c[i].p = sm->p[c[i].id];
    } else {
        c = drawn_from(sm, s, in, logits, &n_all, &sum);
    }
    *n = keep_chances(c, n_all, sum, top, n_top);
    if (s->base.temperature != 0 && draws_from_all(s))
        return (float)((double)sm->p[id] / sum);
    for (size_t i = 0; i < n_all; i++)
        if (c[i].id == id)
            return (float)((double)c[i].p / sum);
    return 0;
}

float sampler_logprobs(struct sampler *sm, const float *logits, int32_t id,
                       struct engine_top *top, int n_top) {
    double log_sum = exact_log64(weigh_all(sm, logits, 1.0f));
    float best = logits[argmax(logits, sm->n_text)];
    size_t n = n_top > 0 ? take_best(sm, logits, MIN((size_t)n_top, (size_t)sm->n_text)) : 0;
    for (size_t i = 0; i < n; i++)
        top[i] = (struct engine_top){
            .id = sm->candidates[i].id,
            .logprob = (float)((double)(sm->candidates[i].logit - best) - log_sum),
        };
    return (float)((double)(logits[id] - best) - log_sum);
}
