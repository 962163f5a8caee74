/* api_grammar.c: turns a request's GBNF grammar or JSON schema into a mask of tokens for each
 * step. */
#include "engine/api_grammar.h"

#include "base/c_locale.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/util.h"
#include "schema/json_schema.h"

#include <string.h>

static enum status schema_to_gbnf(const char *text, char **gbnf, struct err *err) {
    json_error_t why;
    json_t *schema = json_read(text, strlen(text), JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (schema == NULL)
        return err_set(err, ST_BAD_INPUT, "the schema is not valid JSON: line %d: %s", why.line,
                       why.text);
    enum status st = json_schema_to_gbnf(schema, gbnf, err);
    json_decref(schema);
    return st;
}

static enum status open_text(struct api_grammar *g, const struct lockstep_request *req,
                             struct err *err) {
    char *own = NULL;
    if (req->json_schema != NULL)
        TRY(schema_to_gbnf(req->json_schema, &own, err));
    const char *gbnf = own != NULL ? own : req->grammar;
    enum status st = grammar_open(&g->grammar, gbnf, strlen(gbnf), g->trie, err);
    mem_free(own);
    return st;
}

/* The trie is made for the first grammar of a model and kept. */
static enum status open_trie(struct lockstep *ls, struct err *err) {
    return ls->trie != NULL ? ST_OK : token_trie_open(&ls->trie, ls->in.tokenizer, err);
}

enum status api_grammar_open(struct api_grammar *g, struct lockstep *ls,
                             const struct lockstep_request *req, struct err *err) {
    *g = (struct api_grammar){.ignore_end = req->ignore_end};
    if (req->grammar == NULL && req->json_schema == NULL)
        return ST_OK;
    if (req->grammar != NULL && req->json_schema != NULL)
        return err_set(err, ST_BAD_INPUT,
                       "a request has a grammar or a JSON schema, not both of them");
    TRY(open_trie(ls, err));
    g->trie = ls->trie;
    locale_t callers = c_locale_begin(); /* schemas have numbers */
    enum status st = open_text(g, req, err);
    c_locale_end(callers);
    TRY(st);
    TRY(grammar_matcher_open(&g->matcher, g->grammar, err));
    size_t n_bits = MAX((size_t)ls->in.info.n_vocab, (size_t)g->trie->n_tokens);
    g->mask = mem_calloc(div_up(n_bits, 64), sizeof *g->mask);
    return g->mask != NULL ? ST_OK : err_set(err, ST_NO_MEMORY, "no memory for a grammar");
}

void api_grammar_close(struct api_grammar *g) {
    grammar_matcher_close(g->matcher);
    grammar_close(g->grammar);
    mem_free(g->mask);
}

enum status api_grammar_next(struct api_grammar *g, int32_t id, struct err *err) {
    const uint64_t *allowed;
    if (g->mask == NULL)
        return ST_OK;
    if (id != TOKEN_NONE)
        BUG_ON(!grammar_matcher_accept(g->matcher, id));
    TRY(grammar_matcher_mask(g->matcher, &allowed, err));
    size_t size = div_up((size_t)g->trie->n_tokens, 64) * sizeof *g->mask;
    memcpy(g->mask, allowed, size);
    if (!g->ignore_end)
        return ST_OK;
    token_mask_clear_ends(g->trie, g->mask);
    if (token_mask_is_empty(g->trie, g->mask)) /* the text is complete: it ends nevertheless */
        memcpy(g->mask, allowed, size);
    return ST_OK;
}
