/* The table of links, and how the two ends of a pair agree on one of them. */
#include "fabric/links.h"

#include "base/util.h"
#include "fabric/net.h"

#include <string.h>

const struct link_ops *const link_table[] = {&link_shm, &link_verbs, &link_tcp, &link_ucx,
                                             NULL};

static bool same_host(const struct link_env *env) {
    return memcmp(env->self->host_id, env->other->host_id, sizeof env->self->host_id) == 0;
}

static bool wired(const struct link_env *env) {
    return env->cfg->wires == NULL || (env->cfg->wires[env->rank] >> env->peer & 1) != 0;
}

/* Where no cable is, RDMA cannot be: such a pair talks over the bootstrap's network. */
static bool allowed(const struct link_ops *ops, const struct link_env *env) {
    if (!wired(env) && ops->id == FABRIC_LINK_VERBS)
        return false;
    if (!wired(env) && env->cfg->link == FABRIC_LINK_VERBS)
        return ops->id == FABRIC_LINK_TCP;
    if (env->cfg->link != FABRIC_LINK_AUTO && env->cfg->link != ops->id)
        return false;
    return !ops->same_host_only || same_host(env);
}

/* Both sides tell and hear; blocking, bounded by the deadline. */
static enum status exchange(int fd, const struct wire_offer *mine, struct wire_offer *theirs,
                            uint64_t deadline_ns, struct err *err) {
    TRY(net_write(fd, mine, sizeof *mine, deadline_ns, err));
    TRY(net_read(fd, theirs, sizeof *theirs, deadline_ns, err));
    if (theirs->link != mine->link)
        return err_set(err, ST_BAD_INPUT,
                       "the two sides are configured for different links (%u here, %u there)",
                       mine->link, theirs->link);
    return ST_OK;
}

enum { OFFER_NO, OFFER_YES, OFFER_AGAIN }; /* wire_offer.ok */

static uint32_t as_offer(enum status st) {
    return st == ST_OK ? OFFER_YES : st == ST_AGAIN ? OFFER_AGAIN : OFFER_NO;
}

/* ST_UNSUPPORTED: this link cannot be, try the next; `why` says what was in the way here.
 * ST_AGAIN: try this one again. */
static enum status try_link(struct link **out, const struct link_ops *ops, struct link_env *env,
                            int side_fd, uint64_t deadline_ns, struct err *why,
                            struct err *err) {
    struct link *l = NULL;
    struct wire_offer mine = {.link = ops->id}, theirs;
    mine.ok = as_offer(ops->offer(&l, env, mine.blob, why));
    enum status st = exchange(side_fd, &mine, &theirs, deadline_ns, err);
    if (st == ST_OK && mine.ok == OFFER_YES && theirs.ok == OFFER_YES) {
        mine.ok = as_offer(ops->accept(l, env, theirs.blob, why));
        st = exchange(side_fd, &mine, &theirs, deadline_ns, err);
    }
    if (st == ST_OK && mine.ok == OFFER_YES && theirs.ok == OFFER_YES) {
        if (ops->ready != NULL)
            ops->ready(l);
        l->name = ops->name;
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
                                      struct link_env *env, int side_fd, uint64_t deadline_ns,
                                      struct err *why, struct err *err) {
    for (int i = 0; i < RETRIES; i++) {
        enum status st = try_link(out, ops, env, side_fd, deadline_ns, why, err);
        if (st != ST_AGAIN)
            return st;
        poll(NULL, 0, RETRY_MS);
    }
    return ST_UNSUPPORTED;
}

enum status link_open(struct link **out, struct link_env *env, int side_fd,
                      uint64_t deadline_ns, struct err *err) {
    struct err why = {.text = "the other side cannot"};
    for (const struct link_ops *const *ops = link_table; *ops != NULL; ops++) {
        if (!allowed(*ops, env))
            continue;
        enum status st = try_link_patiently(out, *ops, env, side_fd, deadline_ns, &why, err);
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
