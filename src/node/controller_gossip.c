/* controller_gossip.c: what nodes tell each other: their identity, the nodes and deployments
 * that they know, and what they do for these. A node asks all others at once, each second. A
 * node that is asked learns from the question, too. A list of deployments or nodes is sent only
 * to a node that has another list.
 *
 * There is one list of nodes (k->others: those that were heard within DEAD_S). A node may get
 * into it by its beacon, as a seed, by its own question, from another node, or because it was
 * there when this node last ran. */
#include "node/controller_internal.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sentence.h"
#include "base/thread.h"
#include "base/util.h"
#include "base/words.h"
#include "node/node.h"

#include <sodium.h>
#include <stdio.h>

/* A node that has not been heard for this long counts as doing nothing. */
#define DEAD_S 10.0
/* One that hangs holds up the round no longer than that. */
#define EXCHANGE_S 2.0
#define ADDRESSES_MAX 64
/* A node that asks, but is not reached for this long, is logged. */
#define UNREACHED_S 10.0
#define SEED_KEY "seed "
/* At an address that was good, before another one's turn. */
#define ADDRESS_TRIES 3

/* ---- what others say --------------------------------------------------------------------- */

static void other_clear(struct other *o) {
    addresses_deinit(&o->addresses);
    report_deinit(&o->report);
    memset(o, 0, sizeof *o);
}

void controller_drop(struct controller *k, size_t i) {
    other_clear(&k->others[i]);
    k->others[i] = k->others[--k->n_others];
    memset(&k->others[k->n_others], 0, sizeof k->others[0]);
}

static struct other *other_place(struct controller *k, const char *id) {
    for (size_t i = 0; i < k->n_others; i++)
        if (str_eq(k->others[i].id, id))
            return &k->others[i];
    return k->n_others < OTHERS_MAX ? &k->others[k->n_others++] : NULL;
}

static void told_drop(struct controller *k, size_t i) {
    addresses_deinit(&k->told[i].addresses);
    k->told[i] = k->told[--k->n_told];
    memset(&k->told[k->n_told], 0, sizeof k->told[0]);
}

/* It cannot be given a rank, and what it serves cannot be asked for here. */
static void warn_of_unreached(struct other *o, double now) {
    if (o->warned || o->host[0] != '\0' || now - o->since_s < UNREACHED_S)
        return;
    o->warned = true;
    log_warn("%s asks this node, but does not answer at %s: it takes no part here", o->name,
             o->asked_from[0] != '\0' ? o->asked_from : "any address");
}

void controller_expire(struct controller *k, double now) {
    for (size_t i = k->n_told; i-- > 0;)
        if (now - k->told[i].told_s > DEAD_S)
            told_drop(k, i);
    for (size_t i = 0; i < k->n_others; i++)
        warn_of_unreached(&k->others[i], now);
    for (size_t i = k->n_others; i-- > 0;)
        if (now - k->others[i].heard_s > DEAD_S) {
            if (k->discovery == NULL) /* else that has said so */
                log_warn("%s is no longer heard", k->others[i].name);
            overview_miss(k->overview, &k->others[i], false);
            controller_drop(k, i);
        }
}

/* "host:port" or "[v6]:port" without its port. */
static void host_part(const char *address, char out[NET_TEXT_BYTES]) {
    const char *colon = strrchr(address, ':');
    snprintf(out, NET_TEXT_BYTES, "%.*s",
             (int)(colon != NULL ? (size_t)(colon - address) : strlen(address)), address);
}

/* {id: [addresses]} */
static void hear_of_others(struct controller *k, const json_t *knows, double now) {
    const char *id;
    json_t *addresses;
    json_object_foreach((json_t *)(uintptr_t)knows, id, addresses) {
        struct told *t = k->told, *end = t + k->n_told;
        if (strlen(id) != ID_BYTES - 1 || str_eq(id, k->self))
            continue;
        while (t < end && !str_eq(t->id, id))
            t++;
        if (t == k->told + OTHERS_MAX)
            return;
        k->n_told += t == end;
        snprintf(t->id, sizeof t->id, "%s", id);
        addresses_deinit(&t->addresses);
        addresses_parse(&t->addresses, addresses, PEER_ADDRESSES_MAX);
        t->told_s = now;
    }
}

/* Where it was seen to ask from, which its machine itself need not know. */
static void note_host(struct other *o, const char *from, int port) {
    if (from == NULL || *from == '\0' || port <= 0)
        return;
    net_join(o->asked_from, sizeof o->asked_from, from, port);
}

static enum status no_place(struct controller *k, const char *name, struct err *err) {
    if (!k->said_full)
        log_warn("there are more than %d other nodes: %s takes no part here", OTHERS_MAX, name);
    k->said_full = true;
    return err_set(err, ST_NO_MEMORY, "more than %d nodes", OTHERS_MAX);
}

/* A node that was started again has another id, and answers where the earlier one did. */
static void forget_earlier(struct controller *k, const char *id, const char *name,
                           const char *address) {
    for (size_t i = k->n_others; i-- > 0;) {
        const struct other *o = &k->others[i];
        if (!str_eq(o->id, id) && str_eq(o->name, name) && str_eq(o->address, address))
            controller_drop(k, i);
    }
}

/* What a node says, as far as it is looked at before anything is changed. */
struct said {
    const char *id, *name, *reaches_at, *machine, *version;
    json_t *runs, *able, *addresses, *knows,
        *list; /* borrowed; NULL: not said, but the first two */
    int leaving, port;
};

static enum status read_said(struct said *out, const json_t *said, struct err *err) {
    *out = (struct said){.reaches_at = "", .machine = "", .version = ""};
    if (json_unpack((json_t *)(uintptr_t)said,
                    "{s:s, s:s, s:o, s:o, s?o, s?o, s?b, s?s, s?o, s?s, s?s, s?i}", "node",
                    &out->id, "name", &out->name, "runs", &out->runs, "able", &out->able,
                    "addresses", &out->addresses, "deployments", &out->list, "leaving",
                    &out->leaving, "asks", &out->reaches_at, "knows", &out->knows, "machine",
                    &out->machine, "version", &out->version, "port", &out->port) != 0 ||
        strlen(out->id) != ID_BYTES - 1 || !deployment_name_is_good(out->name) ||
        !json_is_object(out->runs) || !json_is_object(out->able))
        return err_set(
            err, ST_BAD_INPUT,
            "a node says {\"node\": id, \"name\": .., \"runs\": {..}, \"able\": {..}}");
    return ST_OK;
}

static void take_said(struct other *o, const struct said *said) {
    o->heard_s = clock_s();
    if (o->id[0] == '\0')
        o->since_s = o->heard_s;
    snprintf(o->id, sizeof o->id, "%s", said->id);
    snprintf(o->name, sizeof o->name, "%s", said->name);
    snprintf(o->machine, sizeof o->machine, "%s", said->machine);
    sentence_print(o->version, sizeof o->version, "%s", said->version);
    addresses_deinit(&o->addresses);
    addresses_parse(&o->addresses, said->addresses, PEER_ADDRESSES_MAX);
    if (*said->reaches_at != '\0')
        snprintf(o->reaches_at, sizeof o->reaches_at, "%s", said->reaches_at);
}

enum status controller_hear(struct controller *k, const json_t *json, const char *address,
                            const char *from, struct err *err) {
    struct said said;
    struct node_report report;
    bool changed;
    TRY(read_said(&said, json, err));
    if (str_eq(said.id, k->self))
        return ST_OK;
    TRY(report_parse(&report, said.runs, said.able, err));
    struct other *o = other_place(k, said.id);
    if (o == NULL || said.leaving) {
        report_deinit(&report);
        if (o == NULL)
            return no_place(k, said.name, err);
        overview_miss(k->overview, o, true);
        controller_drop(k, (size_t)(o - k->others));
        return ST_OK;
    }
    take_said(o, &said);
    report_deinit(&o->report);
    o->report = report;
    note_host(o, from, said.port);
    if (address != NULL) {
        snprintf(o->address, sizeof o->address, "%s", address);
        host_part(address, o->host);
    }
    hear_of_others(k, said.knows, o->heard_s);
    overview_hear(k->overview, o);
    if (address != NULL)
        forget_earlier(k, said.id, said.name, address);
    return said.list != NULL ? deployments_merge(&k->list, said.list, &changed, err) : ST_OK;
}

/* Of the set of nodes that are there, this one among them. */
static void members_digest(const struct controller *k, char out[DEPLOYMENTS_DIGEST_BYTES]) {
    json_t *ids = json_pack("{s:b}", k->self, 1);
    for (size_t i = 0; i < k->n_others; i++)
        json_object_set_new(ids, k->others[i].id, json_true());
    deployments_json_digest(ids, out);
    json_decref(ids);
}

struct addresses controller_addresses(const struct other *o) {
    struct addresses all = {.list = NULL};
    if (o->address[0] != '\0')
        addresses_add(&all, o->address);
    else if (o->asked_from[0] != '\0')
        addresses_add(&all, o->asked_from);
    addresses_add_all(&all, &o->addresses);
    return all;
}

static json_t *say_others(const struct controller *k) {
    json_t *knows = json_object();
    for (size_t i = 0; i < k->n_others; i++) {
        struct addresses addresses = controller_addresses(&k->others[i]);
        json_object_set_new(knows, k->others[i].id, addresses_json(&addresses));
        addresses_deinit(&addresses);
    }
    return knows;
}

json_t *controller_say(struct controller *k, const char *its_digest, const char *its_members,
                       const char *address) {
    char digest[DEPLOYMENTS_DIGEST_BYTES], members[DEPLOYMENTS_DIGEST_BYTES];
    deployments_digest(&k->list, digest);
    members_digest(k, members);
    json_t *o = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:o, s:o, s:o}", "node", k->self, "name", k->name,
        "machine", k->machine, "version", LOCKSTEP_VERSION, "digest", digest, "members",
        members, "port", k->api_port, "runs", report_runs_json(&k->self_report), "able",
        report_able_json(&k->self_report), "addresses", addresses_json(&k->self_addresses));
    if (o != NULL && !str_eq(digest, its_digest))
        json_object_set_new(o, "deployments", deployments_list(&k->list));
    if (o != NULL && !str_eq(members, its_members))
        json_object_set_new(o, "knows", say_others(k));
    if (o != NULL && address != NULL)
        json_object_set_new(o, "asks", json_string(address));
    if (o != NULL && k->leaving)
        json_object_set_new(o, "leaving", json_true());
    return o;
}

/* ---- the list ---------------------------------------------------------------------------- */

/* As GET /v1/nodes has them: [{"address", "interface"}]. */
static json_t *describe_addresses(const struct addresses *a) {
    json_t *list = json_array();
    for (size_t i = 0; i < a->n; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:s}", "address", a->list[i], "interface", ""));
    return list;
}

static json_t *describe_other(const struct other *o, double now) {
    struct addresses addresses = controller_addresses(o);
    json_t *node = json_pack("{s:s, s:s, s:s, s:o, s:f}", "name", o->name, "version",
                             o->version, "machine", o->machine, "addresses",
                             describe_addresses(&addresses), "age_s", now - o->heard_s);
    addresses_deinit(&addresses);
    return node;
}

static bool is_one_of(const char *address, char list[][NET_TEXT_BYTES], size_t n) {
    while (n > 0)
        if (str_eq(list[--n], address))
            return true;
    return false;
}

/* Does it stand for itself in the list, or one that was started again in its place? */
static bool is_other(const struct controller *k, const struct discovered *d) {
    char id[ID_BYTES], addresses[DISCOVERY_ADDRESSES_MAX][NET_TEXT_BYTES];
    size_t n = discovered_addresses(d, addresses);
    sodium_bin2hex(id, sizeof id, d->beacon.node, BEACON_ID_BYTES);
    for (size_t i = 0; i < k->n_others; i++) {
        const struct other *o = &k->others[i];
        if (str_eq(o->id, id) ||
            (str_eq(o->name, d->beacon.name) && is_one_of(o->address, addresses, n)))
            return true;
    }
    return false;
}

json_t *controller_nodes(struct controller *k, json_t **self) {
    struct discovered *found = mem_calloc(DISCOVERY_NODES_MAX, sizeof *found);
    json_t *list = json_array();
    double now = clock_s();
    size_t n = found != NULL && k->discovery != NULL
                   ? discovery_nodes(k->discovery, found, DISCOVERY_NODES_MAX)
                   : 0;
    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->n_others; i++)
        json_array_append_new(list, describe_other(&k->others[i], now));
    for (size_t i = 0; i < n; i++)
        if (!is_other(k, &found[i]))
            json_array_append_new(list, node_seen_json(&found[i]));
    *self = json_pack("{s:s, s:s, s:s, s:o, s:f}", "name", k->name, "version", LOCKSTEP_VERSION,
                      "machine", k->machine, "addresses",
                      describe_addresses(&k->self_addresses), "age_s", 0.0);
    pthread_mutex_unlock(&k->lock);
    mem_free(found);
    return list;
}

/* ---- which nodes the user means ---------------------------------------------------------- */

static bool is_among(const char *word, const struct addresses *addresses) {
    for (size_t i = 0; i < addresses->n; i++)
        if (client_is_address(word, addresses->list[i]))
            return true;
    return false;
}

bool controller_means(const char *words, const struct other *o) {
    char word[NET_TEXT_BYTES];
    while (words_take(&words, word, sizeof word))
        if (*word != '\0' && (str_eq(word, o->name) || client_is_address(word, o->address) ||
                              is_among(word, &o->addresses)))
            return true;
    return false;
}

/* Others may reach it at an address that its machine does not have. */
bool controller_means_self(const struct controller *k, const char *words) {
    char word[NET_TEXT_BYTES];
    while (words_take(&words, word, sizeof word)) {
        if (*word == '\0')
            continue;
        if (str_eq(word, k->name) || is_among(word, &k->self_addresses))
            return true;
        for (size_t i = 0; i < k->n_others; i++)
            if (client_is_address(word, k->others[i].reaches_at))
                return true;
    }
    return false;
}

static void find_own_addresses(struct controller *k) {
    char list[ADDRESSES_MAX][NET_TEXT_BYTES];
    struct addresses found = {.list = NULL};
    size_t n = net_own_addresses(k->api_port, list, ADDRESSES_MAX);
    for (size_t i = 0; i < n; i++)
        addresses_add(&found, list[i]);
    pthread_mutex_lock(&k->lock);
    addresses_deinit(&k->self_addresses);
    k->self_addresses = found;
    pthread_mutex_unlock(&k->lock);
}

/* ---- asking them ------------------------------------------------------------------------- */

static bool in_time(void *user) {
    const struct node_peer *p = user;
    return clock_s() < p->until_s &&
           (p->controller->leaving || !controller_is_closing(p->controller));
}

/* A peer that is known by its id is not another node that answers at its address. */
static bool is_meant(const struct node_peer *p, const char *id) {
    return *id != '\0' && (str_starts(p->key, SEED_KEY) || str_eq(p->key, id));
}

/* One that has answered at that address may only be slow: another one has its turn after some
 * tries. */
static void note_failure(struct node_peer *p) {
    client_close(p->client);
    p->client = NULL;
    p->digest[0] = p->members[0] = p->id[0] = '\0';
    if (!p->good || ++p->n_failed >= ADDRESS_TRIES) {
        p->n_tries++;
        p->good = false;
        p->n_failed = 0;
    }
}

static void exchange(struct node_peer *p) {
    struct controller *k = p->controller;
    struct err err = {.text = "it does not say who it is"};
    json_t *question, *answer = NULL;
    pthread_mutex_lock(&k->lock);
    question = controller_say(k, p->digest, p->members, p->address);
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
        st = controller_hear(k, answer, p->address, NULL, &err);
        pthread_mutex_unlock(&k->lock);
    }
    if (st == ST_OK && is_meant(p, json_text(answer, "node"))) {
        snprintf(p->digest, sizeof p->digest, "%s", json_text(answer, "digest"));
        snprintf(p->members, sizeof p->members, "%s", json_text(answer, "members"));
        snprintf(p->id, sizeof p->id, "%s", json_text(answer, "node"));
        p->n_failed = 0;
        p->good = true;
    } else {
        log_debug("%s: %s", p->address, err.text);
        note_failure(p);
    }
    json_decref(answer);
}

/* A node to ask, known as `key`, and one more address for it. */
static void peer_seen(struct controller *k, const char *key, const char *address) {
    struct node_peer *p = k->peers, *end = p + k->n_peers;
    size_t i = 0;
    while (p < end && !str_eq(p->key, key))
        p++;
    if (p == k->peers + PEERS_MAX)
        return;
    if (p == end) {
        *p = (struct node_peer){.controller = k};
        snprintf(p->key, sizeof p->key, "%s", key);
        k->n_peers++;
    }
    while (i < p->n_addresses && !str_eq(p->addresses[i], address))
        i++;
    if (i < p->n_addresses || i == PEER_ADDRESSES_MAX)
        return;
    snprintf(p->addresses[i], sizeof p->addresses[i], "%s", address);
    p->n_addresses++;
}

static void peer_seen_at(struct controller *k, const char *key,
                         const struct addresses *addresses) {
    for (size_t i = 0; i < addresses->n; i++)
        peer_seen(k, key, addresses->list[i]);
}

static void find_discovered(struct controller *k) {
    char key[ID_BYTES], addresses[DISCOVERY_ADDRESSES_MAX][NET_TEXT_BYTES];
    size_t n =
        k->discovery != NULL ? discovery_nodes(k->discovery, k->found, DISCOVERY_NODES_MAX) : 0;
    for (size_t i = 0; i < n; i++) {
        size_t n_addresses = discovered_addresses(&k->found[i], addresses);
        sodium_bin2hex(key, sizeof key, k->found[i].beacon.node, BEACON_ID_BYTES);
        for (size_t j = 0; j < n_addresses; j++)
            peer_seen(k, key, addresses[j]);
    }
}

static void find_at(struct controller *k, const char *seed) {
    char address[NET_TEXT_BYTES], key[sizeof k->peers[0].key];
    if (!client_full_address(seed, address, sizeof address))
        return; /* check_seeds() has refused it */
    snprintf(key, sizeof key, SEED_KEY "%s", address);
    peer_seen(k, key, address);
}

static void find_seeds(struct controller *k) {
    char list[SEEDS_BYTES], *rest = list, *seed;
    snprintf(list, sizeof list, "%s", k->seeds != NULL ? k->seeds : "");
    while ((seed = strsep(&rest, ",")) != NULL)
        find_at(k, seed);
}

static bool is_heard(const struct controller *k, const char *name) {
    for (size_t i = 0; i < k->n_others; i++)
        if (str_eq(k->others[i].name, name))
            return true;
    return false;
}

/* Nodes that were heard, that others have reported, and that were there before and are not
 * heard yet. */
static void find_by_hearsay(struct controller *k) {
    pthread_mutex_lock(&k->lock);
    for (size_t i = 0; i < k->n_others; i++) {
        struct addresses addresses = controller_addresses(&k->others[i]);
        peer_seen_at(k, k->others[i].id, &addresses);
        addresses_deinit(&addresses);
    }
    for (size_t i = 0; i < k->n_told; i++)
        peer_seen_at(k, k->told[i].id, &k->told[i].addresses);
    for (size_t i = 0; i < k->n_known; i++) {
        const struct known_node *known = &k->known[i];
        for (size_t j = 0; j < known->addresses.n && !is_heard(k, known->name); j++)
            find_at(k, known->addresses.list[j]);
    }
    pthread_mutex_unlock(&k->lock);
}

/* A seed may be this node, or one that was heard, too. */
static bool is_asked_already(const struct controller *k, size_t i) {
    const struct node_peer *p = &k->peers[i];
    if (*p->id == '\0')
        return false;
    for (size_t j = 0; j < i; j++)
        if (str_eq(k->peers[j].id, p->id))
            return true;
    return str_eq(p->id, k->self);
}

static void *exchange_main(void *p) {
    exchange(p);
    return NULL;
}

/* All at once, or timeouts of nodes that are off would add up. known: only nodes that have
 * answered before. */
static void exchange_with_all(struct controller *k, bool known) {
    for (size_t i = 0; i < k->n_peers; i++)
        k->peers[i].asked = !is_asked_already(k, i) && (!known || k->peers[i].good);
    for (size_t i = 0; i < k->n_peers; i++) {
        struct node_peer *p = &k->peers[i];
        if (!p->asked || thread_start(&p->thread, exchange_main, p) == 0)
            continue;
        p->asked = false;
        exchange(p);
    }
    for (size_t i = 0; i < k->n_peers; i++)
        if (k->peers[i].asked)
            pthread_join(k->peers[i].thread, NULL);
}

/* Which nodes to ask in this round, and where. */
static void find_peers(struct controller *k) {
    for (size_t i = 0; i < k->n_peers; i++)
        k->peers[i].n_addresses = 0;
    find_discovered(k);
    find_seeds(k);
    find_by_hearsay(k);
    for (size_t i = k->n_peers; i-- > 0;) {
        struct node_peer *p = &k->peers[i];
        if (p->n_addresses == 0) {
            client_close(p->client);
            memmove(p, p + 1, (--k->n_peers - i) * sizeof *p);
        } else if (p->client == NULL) {
            memcpy(p->address, p->addresses[(size_t)p->n_tries % p->n_addresses],
                   sizeof p->address);
        }
    }
}

static void *ask_server(void *user) {
    struct replica_run *r = user;
    double begun_s = clock_s();
    json_t *told = replica_ask(&r->replica);
    if (told != NULL) {
        json_decref(r->told);
        r->told = told;
        r->told_s = begun_s;
    }
    return NULL;
}

/* Each server here, at once: on how many ranks it is, and what else there is to tell of it. */
static void ask_servers(struct controller *k) {
    for (struct replica_run *r = k->runs; r != NULL; r = r->next)
        r->asked = r->replica.state == REPLICA_LISTENING &&
                   thread_start(&r->asking, ask_server, r) == 0;
}

/* Tokens a second that were predicted for the layout that was chosen; 0: not known. */
static double predicted_of(const json_t *its) {
    const json_t *one;
    double found = 0;
    size_t i;
    json_array_foreach(json_object_get(its, "candidates"), i, one) {
        if (json_is_true(json_object_get(one, "chosen")))
            found = json_number_value(json_object_get(one, "tokens_per_second"));
    }
    return found;
}

/* That it is placed, in the history, if that is news: in short, since its "placement" has all. */
static void note_placement(struct controller *k, struct replica_run *r, const json_t *its) {
    char news[sizeof r->placed];
    char how[96] = "";
    const char *out = json_text(its, "left_out");
    double predicted = predicted_of(its);
    if (predicted > 0)
        snprintf(how, sizeof how, ": %.40s, %.1f tokens/s predicted",
                 json_text(its, "parallel"), predicted);
    sentence_print(news, sizeof news, "%s serves %s on %d rank%s%s%s%s", k->name, r->name,
                   r->n_ranks, r->n_ranks == 1 ? "" : "s", *out != '\0' ? ", without " : "",
                   out, how);
    if (str_eq(news, r->placed))
        return;
    memcpy(r->placed, news, sizeof news);
    history_note(&k->history, 0, HAPPENED_PLACED, k->name, r->name, "%s", news);
}

static void hear_servers(struct controller *k) {
    for (struct replica_run *r = k->runs; r != NULL; r = r->next) {
        if (!r->asked)
            continue;
        pthread_join(r->asking, NULL);
        const json_t *its = json_array_get(json_object_get(r->told, "deployments"), 0);
        int n = (int)json_integer_value(json_object_get(its, "ranks"));
        if (n <= 0)
            continue;
        r->n_ranks = n;
        note_placement(k, r, its);
    }
}

void controller_gossip(struct controller *k) {
    find_own_addresses(k);
    find_peers(k);
    if (controller_is_closing(k))
        return;
    ask_servers(k);
    exchange_with_all(k, false);
    hear_servers(k);
}

void controller_say_goodbye(struct controller *k) {
    k->leaving = true;
    exchange_with_all(k, true);
}
