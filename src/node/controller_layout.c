/* controller_layout.c: which nodes compute a deployment, where somebody has chosen them, and how.
 * Others may take over: while one of the chosen is not there, the layout is the fastest of all. */
#include "node/controller_internal.h"

#include "base/util.h"
#include "base/words.h"

#include <stdio.h>

bool controller_has_other_content(const struct replica_run *r, const struct other *o) {
    const char *its = report_of(&o->report, r->name)->content;
    return *its != '\0' && r->content[0] != '\0' && !str_eq(its, r->content);
}

static bool may_compute(const struct replica_run *r, const struct other *o, double now) {
    return o->address[0] != '\0' && controller_takes_part(r, o) &&
           !controller_is_refused(r, o, now) && !controller_has_other_content(r, o);
}

static bool is_here(const struct controller *k, const struct replica_run *r, const char *word,
                    double now) {
    bool here = controller_means_self(k, word);
    for (size_t i = 0; i < k->n_others && !here; i++)
        here = controller_means(word, &k->others[i]) && may_compute(r, &k->others[i], now);
    return here;
}

bool controller_follows_layout(const struct controller *k, const struct replica_run *r,
                               double now) {
    const char *words = r->wanted != NULL ? r->wanted->layout_nodes : NULL;
    bool follows = words != NULL && r->failures == 0 && controller_means_self(k, words);
    char one[NET_TEXT_BYTES];
    while (follows && words_take(&words, one, sizeof one))
        follows = is_here(k, r, one, now);
    return follows;
}

bool controller_computes(const struct controller *k, const struct replica_run *r,
                         const struct other *o, double now) {
    return controller_takes_part(r, o) && (!controller_follows_layout(k, r, now) ||
                                           controller_means(r->wanted->layout_nodes, o));
}

/* With x a machine has one rank (cli/nodes.c), which is what is wanted if each has one. */
void controller_layout_words(const struct deployment *d, char *out, size_t size) {
    const char *text = d->layout_parallel;
    int n_nodes = (int)words_count(d->layout_nodes), n = 0;
    if (str_eq(text, "one rank"))
        snprintf(out, size, "tensor1xpipeline1");
    else if (strchr(text, 'x') != NULL || sscanf(text, "%*[a-z]%4d", &n) != 1)
        snprintf(out, size, "%s", text);
    else if (str_starts(text, "tensor"))
        snprintf(out, size, n == n_nodes ? "tensor%dxpipeline1" : "tensor", n);
    else
        snprintf(out, size, n == n_nodes ? "tensor1xpipeline%d" : "pipeline", n);
}
