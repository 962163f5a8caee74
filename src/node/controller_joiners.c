/* controller_joiners.c: which nodes a server began with, and which came later: for those it starts
 * again, once they are ready and it has time. */
#include "node/controller_internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/util.h"

#include <stdio.h>

/* For a node that comes later the server starts again: once it has the model and has been there
 * for so long, no other is about to be as far (it begins to copy within JOIN_SOON_S), and
 * nothing has been answered for a while; at the latest after JOIN_LATEST_PAUSES times what a
 * start takes, or JOIN_LATEST_S. */
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

#define PARTY_KEY_BYTES (64 + 1 + NET_TEXT_BYTES)

static void party_key(char out[PARTY_KEY_BYTES], const struct other *o, const char *address) {
    snprintf(out, PARTY_KEY_BYTES, "%s %s", o->name, address);
}

/* What is noted there of this one; NULL: nothing. One that is back elsewhere is not the same,
 * since its rank is looked for where it was; nor is another one of that name. */
static json_t *note_of(const json_t *list, const struct other *o) {
    char key[PARTY_KEY_BYTES];
    size_t i;
    json_t *address;
    party_key(key, o, o->address);
    json_t *note = json_object_get(list, key);
    json_array_foreach(o->addresses, i, address) {
        if (note != NULL || !json_is_string(address))
            continue;
        party_key(key, o, json_string_value(address));
        note = json_object_get(list, key);
    }
    return note;
}

static bool is_noted(const json_t *list, const struct other *o) {
    return note_of(list, o) != NULL;
}

bool controller_is_refused(const struct replica_run *r, const struct other *o, double now) {
    const json_t *note = note_of(r->refused, o);
    return note != NULL && now < json_real_value(json_object_get(note, "until"));
}

bool controller_refuses_any(const struct replica_run *r, double now) {
    const char *key;
    json_t *note;
    json_object_foreach(r->refused, key, note) {
        if (now < json_real_value(json_object_get(note, "until")))
            return true;
    }
    return false;
}

void controller_look_for_joiners(const struct controller *k, struct replica_run *r,
                                 double now) {
    bool copies = json_is_true(json_object_get(r->wanted, "copies")), more = false;
    const char *joiner = NULL;
    for (size_t i = 0; i < k->n_others && r->replica.state == REPLICA_LISTENING; i++) {
        const struct other *o = &k->others[i];
        if (o->host[0] == '\0' || !controller_takes_part(r, o) || is_noted(r->party, o) ||
            controller_is_refused(r, o, now))
            continue;
        bool ready = !copies || json_object_get(o->able, r->name) != NULL;
        if (ready && now - o->since_s >= JOIN_S)
            joiner = o->name;
        else
            more |= now - o->since_s < (ready ? JOIN_S : JOIN_SOON_S) ||
                    json_is_true(controller_said_of(o, r->name, "copying"));
    }
    snprintf(r->joiner, sizeof r->joiner, "%s", joiner != NULL && !more ? joiner : "");
    if (r->joiner[0] == '\0')
        r->joiner_s = 0;
    else if (r->joiner_s == 0)
        r->joiner_s = now;
}

void controller_remember_party(struct controller *k, struct replica_run *r, double now) {
    json_t *party = json_object();
    json_decref(r->joiners);
    r->joiners = json_object();
    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->n_others; i++) {
        const struct other *o = &k->others[i];
        char key[PARTY_KEY_BYTES];
        if (o->host[0] == '\0' || !controller_takes_part(r, o) ||
            controller_is_refused(r, o, now))
            continue;
        party_key(key, o, o->address);
        json_object_set_new(party, key, json_true());
        if (r->joining && !is_noted(r->party, o))
            json_object_set_new(r->joiners, key, json_string(o->name));
    }
    pthread_mutex_unlock(&k->lock);
    json_decref(r->party);
    r->party = party;
}

bool controller_is_time_to_join(const struct replica_run *r, double now) {
    double latest_s = MIN(JOIN_LATEST_PAUSES * r->replica.load_s, JOIN_LATEST_S);
    return r->joiner[0] != '\0' &&
           (now - r->busy_s >= JOIN_IDLE_S || now - r->joiner_s >= latest_s);
}

void controller_refuse_joiners(struct replica_run *r, double now) {
    const char *key;
    json_t *name;
    if (r->refused == NULL)
        r->refused = json_object();
    json_object_foreach(r->joiners, key, name) {
        json_t *before = json_object_get(json_object_get(r->refused, key), "for");
        double wait = before != NULL
                          ? 2 * json_real_value(before)
                          : REFUSED_PAUSES * MAX(r->replica.load_s, REFUSED_PAUSE_MIN_S);
        wait = MIN(wait, REFUSED_MAX_S);
        log_warn("%s: it does not begin with %s, and goes on without: %s; once more in %.0f s",
                 r->name, json_string_value(name), r->replica.last, wait);
        json_object_set_new(r->refused, key,
                            json_pack("{s:f, s:f}", "for", wait, "until", now + wait));
    }
}

void controller_forgive_joiners(struct replica_run *r) {
    const char *key;
    json_t *one;
    json_object_foreach(r->party, key, one) {
        json_object_del(r->refused, key);
    }
}
