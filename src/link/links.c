/* links.c: the table of links, and how the two ends of a pair agree on one of them. */
#include "link/links.h"

#include "base/util.h"
#include "net/net.h"

#include <string.h>

const struct link_ops *const link_table[] = {&link_shm, &link_verbs, &link_tcp, &link_ucx,
                                             NULL};

static bool same_host(const struct link_env *env) {
    return memcmp(env->self->host_id, env->other->host_id, sizeof env->self->host_id) == 0;
}

static bool wired(const struct link_env *env) {
    return env->cfg->wires == NULL || (env->cfg->wires[env->rank] >> env->peer & 1) != 0;
}

/* Where no cable is (it was said, or found), RDMA cannot be: such a pair talks over the
 * bootstrap's network. */
static bool allowed(const struct link_ops *ops, const struct link_env *env) {
    bool cable = wired(env) && !env->no_cable;
    if (!cable && ops->id == FABRIC_LINK_VERBS)
        return false;
    if (!cable && env->cfg->link == FABRIC_LINK_VERBS)
        return ops->id == FABRIC_LINK_TCP;
    if (env->cfg->link != FABRIC_LINK_AUTO && env->cfg->link != ops->id)
        return false;
    return !ops->same_host_only || same_host(env);
}

const char *link_name(enum fabric_link id) {
    for (const struct link_ops *const *ops = link_table; *ops != NULL; ops++)
        if ((*ops)->id == id)
            return (*ops)->name;
    return "auto";
}

/* Both sides send and receive; blocking, bounded by the deadline. */
static enum status exchange(const struct link_env *env, const struct wire_offer *mine,
                            struct wire_offer *theirs, struct err *err) {
    TRY(net_write(env->side_fd, mine, sizeof *mine, env->deadline_ns, err));
    TRY(net_read(env->side_fd, theirs, sizeof *theirs, env->deadline_ns, err));
    if (theirs->link != mine->link)
        return err_set(err, ST_BAD_INPUT,
                       "the two sides are configured for different links (%s here, %s there)",
                       link_name((enum fabric_link)mine->link),
                       link_name((enum fabric_link)theirs->link));
    return ST_OK;
}

enum { OFFER_NO, OFFER_YES, OFFER_AGAIN }; /* wire_offer.ok */

enum status link_talk(struct link_env *env, enum fabric_link id, const uint8_t *mine,
                      uint8_t *theirs, struct err *err) {
    struct wire_offer out = {.link = id, .ok = OFFER_YES}, in;
    memcpy(out.blob, mine, sizeof out.blob);
    TRY(exchange(env, &out, &in, err));
    memcpy(theirs, in.blob, sizeof in.blob);
    return ST_OK;
}

/* A peer that is silent for this long may be slow, but is not reachable by a cable. The group
 * must form in time even if one rank has no cable to any other. */
#define SEARCHES_PER_SILENCE 6
#define SEARCHES_PER_BOOTSTRAP 4

uint64_t link_search_ns(const struct fabric_config *cfg) {
    uint64_t silence_ns = (uint64_t)cfg->silence_ms * 1000000u;
    uint64_t each_ns = (uint64_t)cfg->bootstrap_ms * 1000000u / (uint64_t)cfg->n_ranks;
    if (cfg->link != FABRIC_LINK_AUTO && cfg->link != FABRIC_LINK_VERBS)
        return 0;
    return MIN(silence_ns / SEARCHES_PER_SILENCE, each_ns / SEARCHES_PER_BOOTSTRAP);
}

static uint32_t as_offer(enum status st) {
    return st == ST_OK ? OFFER_YES : st == ST_AGAIN ? OFFER_AGAIN : OFFER_NO;
}

/* ST_UNSUPPORTED: this link cannot be, try the next; `why` says what was in the way here.
 * ST_AGAIN: try this one again. */
static enum status try_link(struct link **out, const struct link_ops *ops, struct link_env *env,
                            struct err *why, struct err *err) {
    struct link *l = NULL;
    struct wire_offer mine = {.link = ops->id}, theirs;
    mine.ok = as_offer(ops->offer(&l, env, mine.blob, why));
    enum status st = exchange(env, &mine, &theirs, err);
    if (st == ST_OK && mine.ok == OFFER_YES && theirs.ok == OFFER_YES) {
        mine.ok = as_offer(ops->accept(l, env, theirs.blob, why));
        st = exchange(env, &mine, &theirs, err);
    }
    if (st == ST_OK && mine.ok == OFFER_YES && theirs.ok == OFFER_YES) {
        if (ops->ready != NULL)
            ops->ready(l);
        l->name = ops->name;
        env->opened = ops->id;
        *out = l;
        return ST_OK;
    }
    link_close(l);
    if (st != ST_OK)
        return st;
    bool again = mine.ok != OFFER_NO && theirs.ok != OFFER_NO;
    return again ? ST_AGAIN : ST_UNSUPPORTED;
}

#define RETRIES 50
#define RETRY_MS 2

static enum status try_link_patiently(struct link **out, const struct link_ops *ops,
                                      struct link_env *env, struct err *why, struct err *err) {
    enum status st = ops->find != NULL ? ops->find(env, why) : ST_OK;
    if (st != ST_OK) {
        *err = *why;
        return st;
    }
    for (int i = 0; i < RETRIES; i++) {
        st = try_link(out, ops, env, why, err);
        if (st != ST_AGAIN)
            return st;
        poll(NULL, 0, RETRY_MS);
    }
    return ST_UNSUPPORTED;
}

enum status link_open(struct link **out, struct link_env *env, struct err *err) {
    struct err why = {.text = "the other side cannot"};
    for (const struct link_ops *const *ops = link_table; *ops != NULL; ops++) {
        if (!allowed(*ops, env))
            continue;
        enum status st = try_link_patiently(out, *ops, env, &why, err);
        if (st == ST_OK && env->cfg->emulate != NULL)
            st = link_emulate(out, env, err);
        if (st != ST_UNSUPPORTED)
            return st;
    }
    return err_set(err, ST_UNSUPPORTED, "no link to rank %d can be opened: %s", env->peer,
                   same_host(env) || env->cfg->link != FABRIC_LINK_SHM
                       ? why.text
                       : "shared memory needs both ranks on one host");
}

void link_close(struct link *l) {
    if (l != NULL)
        l->ops->close(l);
}
