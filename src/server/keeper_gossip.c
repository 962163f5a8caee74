/* What nodes tell each other: who they are, which deployments they know, and what they do for
 * them. A node asks all others at once, each second; who is asked hears, too. A list of
 * deployments is only told to one that has another. */
#include "server/keeper_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/util.h"

#include <sodium.h>
#include <stdio.h>

/* A node that has not been heard of for so long does nothing any more, as far as the others can
 * know. */
#define DEAD_S 10.0
/* One that hangs holds up the round no longer than that. */
#define EXCHANGE_S 2.0
#define ADDRESSES_MAX 64
/* At an address that was good, before another one's turn. */
#define ADDRESS_TRIES 3

/* ---- what others say --------------------------------------------------------------------- */

static void other_clear(struct other *o) {
    json_decref(o->addresses);
    json_decref(o->runs);
    json_decref(o->able);
    memset(o, 0, sizeof *o);
}

void keeper_drop(struct keeper *k, size_t i) {
    other_clear(&k->others[i]);
    k->others[i] = k->others[--k->n_others];
    memset(&k->others[k->n_others], 0, sizeof k->others[0]);
}

static struct other *other_place(struct keeper *k, const char *id) {
    for (size_t i = 0; i < k->n_others; i++)
        if (str_eq(k->others[i].id, id))
            return &k->others[i];
    return k->n_others < OTHERS_MAX ? &k->others[k->n_others++] : NULL;
}

void keeper_expire(struct keeper *k, double now) {
    for (size_t i = k->n_others; i-- > 0;)
        if (now - k->others[i].heard_s > DEAD_S) {
            if (k->discovery == NULL) /* else that has said so */
                log_warn("%s is not heard of any more", k->others[i].name);
            keeper_drop(k, i);
        }
}

/* "host:port" or "[v6]:port" without its port. */
static void host_part(const char *address, char out[NET_TEXT_BYTES]) {
    const char *colon = strrchr(address, ':');
    snprintf(out, NET_TEXT_BYTES, "%.*s",
             (int)(colon != NULL ? (size_t)(colon - address) : strlen(address)), address);
}

enum status keeper_hear(struct keeper *k, const json_t *said, const char *address,
                        struct err *err) {
    const char *id, *name, *reaches_at = "";
    json_t *runs, *able, *addresses = NULL, *list = NULL;
    bool changed;
    int leaving = 0;
    if (json_unpack((json_t *)(uintptr_t)said, "{s:s, s:s, s:o, s:o, s?o, s?o, s?b, s?s}",
                    "node", &id, "name", &name, "runs", &runs, "able", &able, "addresses",
                    &addresses, "deployments", &list, "leaving", &leaving, "asks",
                    &reaches_at) != 0 ||
        strlen(id) != ID_BYTES - 1 || !deployment_name_is_good(name) || !json_is_object(runs) ||
        !json_is_object(able))
        return err_set(
            err, ST_BAD_INPUT,
            "a node says {\"node\": id, \"name\": .., \"runs\": {..}, \"able\": {..}}");
    if (str_eq(id, k->self))
        return ST_OK;
    struct other *o = other_place(k, id);
    if (o == NULL)
        return err_set(err, ST_NO_MEMORY, "more than %d nodes", OTHERS_MAX);
    if (leaving) {
        keeper_drop(k, (size_t)(o - k->others));
        return ST_OK;
    }
    if (o->id[0] == '\0')
        o->since_s = clock_s();
    snprintf(o->id, sizeof o->id, "%s", id);
    snprintf(o->name, sizeof o->name, "%s", name);
    o->heard_s = clock_s();
    json_decref(o->runs);
    json_decref(o->able);
    o->runs = json_deep_copy(runs);
    o->able = json_deep_copy(able);
    json_decref(o->addresses);
    o->addresses = json_deep_copy(addresses);
    if (address != NULL) {
        snprintf(o->address, sizeof o->address, "%s", address);
        host_part(address, o->host);
    }
    if (*reaches_at != '\0')
        snprintf(o->reaches_at, sizeof o->reaches_at, "%s", reaches_at);
    return list != NULL ? deployments_merge(&k->list, list, &changed, err) : ST_OK;
}

json_t *keeper_say(struct keeper *k, const char *its_digest, const char *address) {
    char digest[DEPLOYMENTS_DIGEST_BYTES];
    deployments_digest(&k->list, digest);
    json_t *o =
        json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "node", k->self, "name", k->name, "digest",
                  digest, "runs", json_deep_copy(k->self_runs), "able",
                  json_deep_copy(k->self_able), "addresses", json_deep_copy(k->self_addresses));
    if (o != NULL && !str_eq(digest, its_digest)) {
        json_object_set_new(o, "deployments", deployments_list(&k->list));
    }
    if (o != NULL && address != NULL)
        json_object_set_new(o, "asks", json_string(address));
    if (o != NULL && k->leaving)
        json_object_set_new(o, "leaving", json_true());
    return o;
}

/* ---- whom the user means ------------------------------------------------------------------- */

/* The next of the words; false: there is none. */
static bool next_word(const char **words, char out[NET_TEXT_BYTES]) {
    if (*words == NULL)
        return false;
    size_t n = strcspn(*words, ",");
    snprintf(out, NET_TEXT_BYTES, "%.*s", n < NET_TEXT_BYTES ? (int)n : 0, *words);
    *words = (*words)[n] == ',' ? *words + n + 1 : NULL;
    return true;
}

static bool is_among(const char *word, const json_t *addresses) {
    size_t i;
    json_t *one;
    json_array_foreach((json_t *)(uintptr_t)addresses, i, one) {
        if (json_is_string(one) && client_is_address(word, json_string_value(one)))
            return true;
    }
    return false;
}

bool keeper_means(const char *words, const struct other *o) {
    char word[NET_TEXT_BYTES];
    while (next_word(&words, word))
        if (*word != '\0' && (str_eq(word, o->name) || client_is_address(word, o->address) ||
                              is_among(word, o->addresses)))
            return true;
    return false;
}

/* Others may reach it at an address that its machine does not have. */
bool keeper_means_self(const struct keeper *k, const char *words) {
    char word[NET_TEXT_BYTES];
    while (next_word(&words, word)) {
        if (*word == '\0')
            continue;
        if (str_eq(word, k->name) || is_among(word, k->self_addresses))
            return true;
        for (size_t i = 0; i < k->n_others; i++)
            if (client_is_address(word, k->others[i].reaches_at))
                return true;
    }
    return false;
}

static void find_own_addresses(struct keeper *k) {
    char list[ADDRESSES_MAX][NET_TEXT_BYTES];
    json_t *found = json_array();
    size_t n = net_own_addresses(k->api_port, list, ADDRESSES_MAX);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(found, json_string(list[i]));
    pthread_mutex_lock(&k->lock);
    json_decref(k->self_addresses);
    k->self_addresses = found;
    pthread_mutex_unlock(&k->lock);
}

/* ---- asking them ------------------------------------------------------------------------- */

static bool in_time(void *user) {
    const struct peer *p = user;
    return clock_s() < p->until_s && (p->keeper->leaving || !keeper_is_closing(p->keeper));
}

static void exchange(struct peer *p) {
    struct keeper *k = p->keeper;
    struct err err = {"it does not say who it is"};
    json_t *question, *answer = NULL;
    pthread_mutex_lock(&k->lock);
    question = keeper_say(k, p->digest, p->address);
    pthread_mutex_unlock(&k->lock);
    if (question == NULL)
        return;
    enum status st = ST_OK;
    if (p->client == NULL)
        st = client_open(&p->client, k->id, p->address, &err);
    if (st == ST_OK) {
        p->until_s = clock_s() + EXCHANGE_S;
        client_ask_whether(p->client, in_time, p);
        st = client_json(p->client, "/v1/deployments/sync", question, &answer, &err);
    }
    json_decref(question);
    if (st == ST_OK) {
        pthread_mutex_lock(&k->lock);
        st = keeper_hear(k, answer, p->address, &err);
        pthread_mutex_unlock(&k->lock);
    }
    const char *digest = json_string_value(json_object_get(answer, "digest"));
    const char *id = json_string_value(json_object_get(answer, "node"));
    if (st == ST_OK && digest != NULL && id != NULL) {
        snprintf(p->digest, sizeof p->digest, "%s", digest);
        snprintf(p->id, sizeof p->id, "%s", id);
        p->n_failed = 0;
    } else {
        log_debug("%s: %s", p->address, err.text);
        client_close(p->client);
        p->client = NULL;
        p->digest[0] = '\0';
        /* One that has answered there may only be slow. */
        if (*p->id == '\0' || ++p->n_failed >= ADDRESS_TRIES)
            p->n_tries++;
    }
    json_decref(answer);
}

/* Somebody to ask, known as `key`; addresses: where. */
static void peer_seen(struct keeper *k, const char *key, char (*addresses)[NET_TEXT_BYTES],
                      size_t n_addresses) {
    struct peer *p = k->peers, *end = p + k->n_peers;
    while (p < end && !str_eq(p->key, key))
        p++;
    if (n_addresses == 0 || p == k->peers + PEERS_MAX)
        return;
    if (p == end) {
        *p = (struct peer){.keeper = k};
        snprintf(p->key, sizeof p->key, "%s", key);
        k->n_peers++;
    }
    p->present = true;
    if (p->client == NULL)
        snprintf(p->address, sizeof p->address, "%s",
                 addresses[(size_t)p->n_tries % n_addresses]);
}

static void find_discovered(struct keeper *k) {
    char key[2 * BEACON_ID_BYTES + 1], addresses[DISCOVERY_ADDRESSES_MAX][NET_TEXT_BYTES];
    size_t n =
        k->discovery != NULL ? discovery_nodes(k->discovery, k->found, DISCOVERY_NODES_MAX) : 0;
    for (size_t i = 0; i < n; i++) {
        sodium_bin2hex(key, sizeof key, k->found[i].beacon.node, BEACON_ID_BYTES);
        peer_seen(k, key, addresses, discovered_addresses(&k->found[i], addresses));
    }
}

static void find_seeds(struct keeper *k) {
    char list[SEEDS_BYTES], *rest = list, *seed, address[1][NET_TEXT_BYTES],
                            key[NET_TEXT_BYTES + 8];
    snprintf(list, sizeof list, "%s", k->seeds != NULL ? k->seeds : "");
    while ((seed = strsep(&rest, ",")) != NULL) {
        if (!client_full_address(seed, address[0], sizeof address[0]))
            continue; /* check_seeds() has refused it */
        snprintf(key, sizeof key, "seed %s", seed);
        peer_seen(k, key, address, 1);
    }
}

/* A seed may be this node, or one that was heard, too. */
static bool is_asked_already(const struct keeper *k, size_t i) {
    const struct peer *p = &k->peers[i];
    if (*p->id == '\0')
        return false;
    for (size_t j = 0; j < i; j++)
        if (str_eq(k->peers[j].id, p->id))
            return true;
    return str_eq(p->id, k->self);
}

/* Beacons are lost where a switch forgets who wants them, or a wireless network is busy: one
 * that has answered a second ago is there all the same. (One that was started again is known by
 * another key, and answers here as that.) */
static bool still_answers(const struct keeper *k, size_t i) {
    const struct peer *p = &k->peers[i];
    bool known = p->client == NULL || str_eq(p->id, k->self);
    for (size_t j = 0; j < k->n_peers && !known; j++)
        known = j != i && str_eq(k->peers[j].id, p->id) && (k->peers[j].present || j < i);
    return !known;
}

static void *exchange_main(void *p) {
    exchange(p);
    return NULL;
}

/* All at once, or those that are off would add up. known: only who has answered before. */
static void exchange_with_all(struct keeper *k, bool known) {
    for (size_t i = 0; i < k->n_peers; i++)
        k->peers[i].asked = !is_asked_already(k, i) && (!known || k->peers[i].client != NULL);
    for (size_t i = 0; i < k->n_peers; i++) {
        struct peer *p = &k->peers[i];
        if (!p->asked || thread_start(&p->thread, exchange_main, p) == 0)
            continue;
        p->asked = false;
        exchange(p);
    }
    for (size_t i = 0; i < k->n_peers; i++)
        if (k->peers[i].asked)
            pthread_join(k->peers[i].thread, NULL);
}

static void *count_ranks(void *user) {
    struct run *r = user;
    int n = tenant_ranks(&r->tenant);
    if (n > 0)
        r->n_ranks = n;
    return NULL;
}

/* Each server here, at once: on how many ranks it is. */
static void ask_servers(struct keeper *k) {
    for (struct run *r = k->runs; r != NULL; r = r->next)
        r->asked = r->tenant.state == TENANT_LISTENING &&
                   thread_start(&r->asking, count_ranks, r) == 0;
}

static void hear_servers(struct keeper *k) {
    for (struct run *r = k->runs; r != NULL; r = r->next)
        if (r->asked)
            pthread_join(r->asking, NULL);
}

void keeper_gossip(struct keeper *k) {
    find_own_addresses(k);
    for (size_t i = 0; i < k->n_peers; i++)
        k->peers[i].present = false;
    find_discovered(k);
    find_seeds(k);
    for (size_t i = k->n_peers; i-- > 0;)
        if (!k->peers[i].present && !still_answers(k, i)) {
            client_close(k->peers[i].client);
            memmove(&k->peers[i], &k->peers[i + 1], (--k->n_peers - i) * sizeof k->peers[0]);
        }
    if (keeper_is_closing(k))
        return;
    ask_servers(k);
    exchange_with_all(k, false);
    hear_servers(k);
}

void keeper_say_goodbye(struct keeper *k) {
    k->leaving = true;
    exchange_with_all(k, true);
}
