/* bench_masks.c: how long it takes to find the tokens that may come next.
 *
 *     bench_masks MODEL.gguf [SCHEMAS.jsonl] [--each]
 *
 * MODEL.gguf is any file with a vocabulary. A line of SCHEMAS.jsonl is
 *
 *     {"name": ..., "schema": ..., "instances": [{"valid": true, "texts": [...]}, ...]}
 *
 * For each valid instance the grammar of the schema is opened anew, as a request would, so that
 * nothing is known of it yet. The instance's tokens are then fed one by one. The time of a mask
 * is the processor's, and includes accepting the token before it. Of the texts of an instance
 * (its keys in several orders) the first one that the grammar accepts is taken. An instance
 * without one is counted and left out.
 *
 * One more grammar is hard on purpose: (w " "?)*, w a choice of 40 words of up to 12 letters that
 * can be told apart in many ways.
 *
 * Shown: the number of masks, the mean, the median, the 99th and 99.9th percentile and the
 * largest. --each: one line for each instance as well. */
#include "base/median.h"
#include "base/mem.h"
#include "base/util.h"
#include "grammar/grammar.h"
#include "schema/json_schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct times {
    double *s;
    size_t n, cap;
};

struct bench {
    struct tokenizer *t;
    struct token_trie *trie;
    struct times masks, opens;
    int n_schemas, n_refused, n_texts, n_not_accepted, n_stopped;
    bool each;
};

__attribute__((noreturn)) static void die(const char *what) {
    fprintf(stderr, "bench_masks: %s\n", what);
    exit(1);
}

/* Of this thread: others may use the machine meanwhile. */
static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void add_time(struct times *t, double s) {
    if (!mem_reserve(&t->s, &t->cap, t->n + 1, sizeof *t->s))
        die("no memory");
    t->s[t->n++] = s;
}

static void show(const char *what, const struct times *t) {
    double sum = 0;
    for (size_t i = 0; i < t->n; i++)
        sum += t->s[i];
    printf(
        "%-16s %7zu  mean %8.1f us  median %8.1f  99 %% %9.1f  99.9 %% %9.1f  largest %9.1f\n",
        what, t->n, t->n > 0 ? sum / (double)t->n * 1e6 : 0, quantile(t->s, t->n, 0.5) * 1e6,
        quantile(t->s, t->n, 0.99) * 1e6, quantile(t->s, t->n, 0.999) * 1e6,
        quantile(t->s, t->n, 1) * 1e6);
}

static struct grammar *open_grammar(struct bench *b, const char *gbnf, struct err *err) {
    struct grammar *g;
    return grammar_open(&g, gbnf, strlen(gbnf), b->trie, err) == ST_OK ? g : NULL;
}

static struct grammar_matcher *open_matcher(struct grammar *g) {
    struct grammar_matcher *m;
    struct err err;
    if (grammar_matcher_open(&m, g, &err) != ST_OK)
        die(err.text);
    return m;
}

static bool accepts(struct bench *b, const char *gbnf, const char *text) {
    struct err err;
    struct grammar *g = open_grammar(b, gbnf, &err);
    if (g == NULL)
        return false;
    struct grammar_matcher *m = open_matcher(g);
    bool ok = grammar_matcher_accept_bytes(m, text, strlen(text)) && grammar_matcher_may_end(m);
    grammar_matcher_close(m);
    grammar_close(g);
    return ok;
}

/* Feeds text, which the grammar accepts. Masks go to all and to mine. */
static void walk(struct bench *b, const char *gbnf, const char *text, struct times *mine) {
    struct err err;
    int32_t *ids;
    size_t n;
    double began = cpu_s();
    struct grammar *g = open_grammar(b, gbnf, &err);
    add_time(&b->opens, cpu_s() - began);
    if (g == NULL || tokenize(b->t, text, strlen(text), 0, &ids, &n, &err) != ST_OK)
        die(err.text);
    struct grammar_matcher *m = open_matcher(g);
    for (size_t i = 0; i <= n; i++) {
        const uint64_t *mask;
        began = cpu_s();
        if (i > 0 && !grammar_matcher_accept(m, ids[i - 1]))
            die("a token is refused of a text that is accepted");
        if (grammar_matcher_mask(m, &mask, &err) != ST_OK) {
            printf("stopped: %s\n", err.text);
            b->n_stopped++;
            break;
        }
        add_time(mine, cpu_s() - began);
        if (i < n && (mask[ids[i] / 64] >> ids[i] % 64 & 1) == 0)
            die("the mask lacks the next token of a text that is accepted");
    }
    for (size_t i = 0; i < mine->n; i++)
        add_time(&b->masks, mine->s[i]);
    grammar_matcher_close(m);
    grammar_close(g);
    mem_free(ids);
}

static void use_instance(struct bench *b, const char *gbnf, const json_t *instance,
                         const char *name) {
    size_t i;
    const json_t *text;
    if (!json_is_true(json_object_get(instance, "valid")))
        return;
    json_array_foreach(json_object_get(instance, "texts"), i, text) {
        if (!accepts(b, gbnf, json_string_value(text)))
            continue;
        struct times mine = {0};
        walk(b, gbnf, json_string_value(text), &mine);
        if (b->each)
            show(name, &mine);
        mem_free(mine.s);
        b->n_texts++;
        return;
    }
    b->n_not_accepted++;
}

static void use_line(struct bench *b, const char *line) {
    struct err err;
    char *gbnf;
    size_t i;
    const json_t *instance;
    json_t *j = json_loads(line, JSON_ALLOW_NUL, NULL);
    const char *name = json_string_value(json_object_get(j, "name"));
    b->n_schemas++;
    /* A line that jansson does not read (numbers beyond a double) counts as refused. */
    if (j != NULL && json_schema_to_gbnf(json_object_get(j, "schema"), &gbnf, &err) == ST_OK) {
        json_array_foreach(json_object_get(j, "instances"), i, instance)
            use_instance(b, gbnf, instance, name != NULL ? name : "?");
        mem_free(gbnf);
    } else {
        b->n_refused++;
    }
    json_decref(j);
}

static void use_schemas(struct bench *b, const char *path) {
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t cap = 0;
    if (f == NULL)
        die("the file of schemas cannot be opened");
    while (getline(&line, &cap, f) > 0)
        use_line(b, line);
    free(line);
    fclose(f);
    printf("%d schemas, %d refused; %d instances, %d more not accepted, %d stopped\n",
           b->n_schemas, b->n_refused, b->n_texts, b->n_not_accepted, b->n_stopped);
    show("opening", &b->opens);
    show("schemas", &b->masks);
}

static void use_hard_grammar(struct bench *b) {
    char gbnf[2048], *at = gbnf + sprintf(gbnf, "root ::= (w \" \"?)*\nw ::= ");
    struct times mine = {0};
    for (int i = 0; i < 40; i++)
        at += sprintf(at, "%s\"%c\" [a-z]{0,%d}", i > 0 ? " | " : "", 'a' + i % 26, i % 12);
    walk(b, gbnf, "some words in a row that could all be read in many ways indeed", &mine);
    show("the hard grammar", &mine);
    mem_free(mine.s);
}

int main(int argc, char **argv) {
    struct bench b = {0};
    struct gguf *g;
    struct err err;
    const char *schemas = NULL;
    if (argc < 2)
        die("usage: bench_masks MODEL.gguf [SCHEMAS.jsonl] [--each]");
    for (int i = 2; i < argc; i++)
        if (str_eq(argv[i], "--each"))
            b.each = true;
        else
            schemas = argv[i];
    if (gguf_open(&g, argv[1], NULL, &err) != ST_OK || tokenizer_open(&b.t, g, &err) != ST_OK)
        die(err.text);
    double began = cpu_s();
    if (token_trie_open(&b.trie, b.t, &err) != ST_OK)
        die(err.text);
    printf("%d tokens, %.1f ms for their trie\n", b.trie->n_tokens, (cpu_s() - began) * 1e3);
    if (schemas != NULL)
        use_schemas(&b, schemas);
    use_hard_grammar(&b);
    mem_free(b.masks.s);
    mem_free(b.opens.s);
    token_trie_close(b.trie);
    tokenizer_close(b.t);
    gguf_close(g);
    return 0;
}
