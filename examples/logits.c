/* logits.c: the logits of all positions of a batch of texts. Prints for each text its tokens, its
 * log-probability after the first token, and the token that the model expects next.
 *
 *     cc logits.c $(pkg-config --cflags --libs lockstep) -lm -o logits
 *     ./logits model.gguf "A bit bucket is" "A kludge is" */
#include <lockstep/lockstep.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

struct score {
    const int32_t *ids;
    size_t n_ids;
    size_t n_vocab;
    double logprob;
    int32_t next; /* the best token after the text */
};

/* log softmax(row)[id] */
static double logprob_of(const float *row, size_t n, int32_t id) {
    double max = row[0], sum = 0;
    for (size_t i = 1; i < n; i++)
        max = fmax(max, row[i]);
    for (size_t i = 0; i < n; i++)
        sum += exp(row[i] - max);
    return row[id] - max - log(sum);
}

/* logits [n, n_vocab]: row i is what follows the token at first_pos + i. A long text comes in
 * several calls. */
static bool add_rows(void *user, size_t first_pos, size_t n, const float *logits) {
    struct score *s = user;
    for (size_t i = 0; i < n; i++) {
        const float *row = logits + i * s->n_vocab;
        size_t pos = first_pos + i;
        if (pos + 1 < s->n_ids) {
            s->logprob += logprob_of(row, s->n_vocab, s->ids[pos + 1]);
            continue;
        }
        for (size_t id = 1; id < s->n_vocab; id++)
            s->next = row[id] > row[s->next] ? (int32_t)id : s->next;
    }
    return true;
}

static enum lockstep_status score(struct lockstep *ls, const char *text, size_t text_len,
                                  struct lockstep_error *err) {
    struct score s = {.n_vocab = (size_t)lockstep_model_info(ls)->n_vocab};
    int32_t *ids = NULL;
    char *next = NULL;
    size_t len;
    enum lockstep_status st =
        lockstep_tokenize(ls, text, text_len, true, false, &ids, &s.n_ids, err);
    s.ids = ids;
    lockstep_reset(ls); /* each text begins at position 0 */
    if (st == LOCKSTEP_OK)
        st = lockstep_eval(ls, ids, s.n_ids, add_rows, &s, err);
    if (st == LOCKSTEP_OK)
        st = lockstep_detokenize(ls, &s.next, 1, true, &next, &len, err);
    if (st == LOCKSTEP_OK)
        printf("%zu tokens, log-probability %.6f, next '%s': %s\n", s.n_ids, s.logprob, next,
               text);
    lockstep_free(next);
    lockstep_free(ids);
    return st;
}

int main(int argc, char **argv) {
    struct lockstep_options opt;
    struct lockstep_error err;
    struct lockstep *ls = NULL;
    if (argc < 3)
        return fprintf(stderr, "usage: logits MODEL TEXT...\n"), 2;

    lockstep_options_init(&opt);
    opt.model_path = argv[1];
    enum lockstep_status st = lockstep_open(&ls, &opt, &err);
    for (int i = 2; i < argc && st == LOCKSTEP_OK; i++)
        st = score(ls, argv[i], strlen(argv[i]), &err);
    if (st != LOCKSTEP_OK)
        puts(err.text);
    lockstep_close(ls);
    return st == LOCKSTEP_OK ? 0 : 1;
}
