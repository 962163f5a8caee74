/* fim.c: Finds the tokens by which models fill in the middle, and writes prompts with them. */
#include "server/fim.h"

#include "base/mem.h"
#include "base/util.h"

#include <string.h>

/* By the names that families give them; without `middle` the prefix comes last. */
static const struct fim_tokens {
    const char *prefix, *suffix, *middle;
} families[] = {{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
                {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
                {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
                {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
                {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
                {"[PREFIX]", "[SUFFIX]", NULL}};

struct prompt_ids {
    int32_t *ids;
    size_t n;
};

/* begin: the token that begins texts comes first, if the model has one. */
static enum status add_text(struct service *s, struct prompt_ids *out, const char *text,
                            bool begin, bool special, struct err *err) {
    int32_t *ids = NULL;
    size_t n = 0;
    if (text == NULL || *text == '\0')
        return ST_OK;
    TRY(service_tokenize(s, text, strlen(text), begin, special, &ids, &n, err));
    int32_t *all = mem_realloc(out->ids, (out->n + n + 1) * sizeof *all);
    if (all != NULL) {
        memcpy(all + out->n, ids, n * sizeof *all);
        *out = (struct prompt_ids){all, out->n + n};
    }
    mem_free(ids);
    return all != NULL ? ST_OK : err_set(err, ST_NO_MEMORY, "no memory for a prompt");
}

static bool is_token(struct service *s, const char *name) {
    int32_t *ids = NULL;
    struct err err;
    size_t n = 0;
    if (name == NULL)
        return true;
    bool read = service_tokenize(s, name, strlen(name), false, true, &ids, &n, &err) == ST_OK;
    mem_free(ids);
    return read && n == 1;
}

static const struct fim_tokens *tokens_of(struct service *s) {
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        if (is_token(s, families[i].prefix) && is_token(s, families[i].suffix) &&
            is_token(s, families[i].middle))
            return &families[i];
    return NULL;
}

enum status fim_prompt(struct service *s, const char *prefix, const char *suffix, int32_t **ids,
                       size_t *n_ids, struct err *err) {
    const struct fim_tokens *t = tokens_of(s);
    struct prompt_ids out = {0};
    if (t == NULL)
        return err_set(err, ST_UNSUPPORTED,
                       "this model has no tokens for filling in the middle, so a suffix has no "
                       "place");
    bool prefix_last = t->middle == NULL;
    const char *const parts[] = {
        prefix_last ? t->suffix : t->prefix, prefix_last ? suffix : prefix,
        prefix_last ? t->prefix : t->suffix, prefix_last ? prefix : suffix, t->middle};
    enum status st = ST_OK;
    for (size_t i = 0; i < ARRAY_LEN(parts) && st == ST_OK; i++)
        st = add_text(s, &out, parts[i], i == 0, i % 2 == 0, err);
    if (st != ST_OK) {
        mem_free(out.ids);
        return st;
    }
    *ids = out.ids;
    *n_ids = out.n;
    return ST_OK;
}
