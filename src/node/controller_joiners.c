/* controller_joiners.c: which nodes a server started with, and which came later. For the latter
 * it starts again, once they are ready and it is idle. */
#include "node/controller_internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/util.h"

#include <stdio.h>

/* The server starts again for a node that comes later. Conditions: the node has the model and
 * has been there this long; no other node is about to be ready (it begins to copy within
 * JOIN_SOON_S); and nothing has been answered for a while. It happens at the latest after
 * JOIN_LATEST_PAUSES times the duration of a start, or JOIN_LATEST_S. */
#define JOIN_S 10.0
#define JOIN_SOON_S 30.0
#define JOIN_IDLE_S 3.0
#define JOIN_LATEST_PAUSES 5.0
#define JOIN_LATEST_S 600.0
/* One with which it does not begin is tried again after two pauses (what a start takes), then
 * after four, and so on. */
#define REFUSED_PAUSES 2.0
#define REFUSED_PAUSE_MIN_S 2.0
#define REFUSED_MAX_S 3600.0

/* Its entry for a node, by one of the node's addresses; NULL: it has none. */
static struct party_member *find_at(const struct party *p, const char *name,
                                    const char *address) {
    for (size_t i = 0; i < p->n; i++)
        if (str_eq(p->list[i].name, name) && str_eq(p->list[i].address, address))
            return &p->list[i];
    return NULL;
}

static struct party_member *find(const struct party *p, const struct other *o) {
    struct party_member *m = find_at(p, o->name, o->address);
    for (size_t i = 0; i < o->addresses.n && m == NULL; i++)
        m = find_at(p, o->name, o->addresses.list[i]);
    return m;
}

/* NULL: no memory. */
static struct party_member *add(struct party *p, const char *name, const char *address) {
    struct party_member *m = find_at(p, name, address);
    if (m != NULL)
        return m;
    if (!mem_reserve(&p->list, &p->cap, p->n + 1, sizeof *p->list))
        return NULL;
    m = &p->list[p->n++];
    *m = (struct party_member){.wait_s = 0};
    snprintf(m->name, sizeof m->name, "%s", name);
    snprintf(m->address, sizeof m->address, "%s", address);
    return m;
}

void controller_forget_party(struct party *p) {
    mem_free(p->list);
    *p = (struct party){.list = NULL};
}

bool controller_is_refused(const struct replica_run *r, const struct other *o, double now) {
    const struct party_member *m = find(&r->refused, o);
    return m != NULL && now < m->until_s;
}

bool controller_refuses_any(const struct replica_run *r, double now) {
    for (size_t i = 0; i < r->refused.n; i++)
        if (now < r->refused.list[i].until_s)
            return true;
    return false;
}

void controller_look_for_joiners(const struct controller *k, struct replica_run *r,
                                 double now) {
    bool copies = r->wanted != NULL && r->wanted->copies, more = false;
    const char *joiner = NULL;
    for (size_t i = 0; i < k->n_others && r->replica.state == REPLICA_LISTENING; i++) {
        const struct other *o = &k->others[i];
        if (o->host[0] == '\0' || !controller_computes(k, r, o, now) ||
            find(&r->party, o) != NULL || controller_is_refused(r, o, now))
            continue;
        bool ready = !copies || report_able(&o->report, r->name) != NULL;
        if (ready && now - o->since_s >= JOIN_S)
            joiner = o->name;
        else
            more |= now - o->since_s < (ready ? JOIN_S : JOIN_SOON_S) ||
                    report_of(&o->report, r->name)->copying;
    }
    snprintf(r->joiner, sizeof r->joiner, "%s", joiner != NULL && !more ? joiner : "");
    if (r->joiner[0] == '\0')
        r->joiner_s = 0;
    else if (r->joiner_s == 0)
        r->joiner_s = now;
}

void controller_remember_party(struct controller *k, struct replica_run *r, double now) {
    struct party party = {.list = NULL};
    r->joiners.n = 0;
    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->n_others; i++) {
        const struct other *o = &k->others[i];
        if (o->host[0] == '\0' || !controller_computes(k, r, o, now) ||
            controller_is_refused(r, o, now))
            continue;
        add(&party, o->name, o->address);
        if (r->joining && find(&r->party, o) == NULL)
            add(&r->joiners, o->name, o->address);
    }
    pthread_mutex_unlock(&k->lock);
    controller_forget_party(&r->party);
    r->party = party;
}

bool controller_is_time_to_join(const struct replica_run *r, double now) {
    double latest_s = MIN(JOIN_LATEST_PAUSES * r->replica.load_s, JOIN_LATEST_S);
    return r->joiner[0] != '\0' &&
           (now - r->busy_s >= JOIN_IDLE_S || now - r->joiner_s >= latest_s);
}

void controller_refuse_joiners(struct replica_run *r, double now) {
    for (size_t i = 0; i < r->joiners.n; i++) {
        const struct party_member *joiner = &r->joiners.list[i];
        struct party_member *m = add(&r->refused, joiner->name, joiner->address);
        double first_s = REFUSED_PAUSES * MAX(r->replica.load_s, REFUSED_PAUSE_MIN_S);
        if (m == NULL)
            continue;
        m->wait_s = MIN(m->wait_s > 0 ? 2 * m->wait_s : first_s, REFUSED_MAX_S);
        m->until_s = now + m->wait_s;
        log_warn("%s: it does not begin with %s, and goes on without: %s; once more in %.0f s",
                 r->name, m->name, r->replica.last, m->wait_s);
    }
}

void controller_forgive_joiners(struct replica_run *r) {
    for (size_t i = r->refused.n; i-- > 0;) {
        const struct party_member *m = &r->refused.list[i];
        if (find_at(&r->party, m->name, m->address) != NULL)
            r->refused.list[i] = r->refused.list[--r->refused.n];
    }
}
