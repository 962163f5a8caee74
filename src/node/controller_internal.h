/* controller_internal.h: a controller's internal interface. Its files answer these questions:
 *
 *     controller.c           opens, closes, and runs the loop
 *     controller_gossip.c    what do nodes tell each other?
 *     controller_owner.c     which node owns each deployment, and where is it served?
 *     controller_copy.c      where is the model, and how is it copied here?
 *     controller_serve.c     starts and ends the server of a deployment that this node owns
 *     controller_layout.c    which nodes compute, if somebody has chosen them?
 *     controller_sleep.c     ends a server that nobody asks, and starts it for a question
 *     controller_joiners.c   with which nodes does a server start, and which came later?
 *     controller_standby.c   could this node take over?
 *     controller_ports.c     opens the ports of the deployments
 *     controller_disk.c      what is stored across starts?
 *     controller_requests.c  answers over HTTP, to nodes and commands
 *     controller_cluster.c   and to whoever looks at the cluster, at the deployments' ports
 *     controller_asker.c     who is that, and what may it?
 *     controller_models.c    models on this node's disk, and further names of those that are up
 *     controller_change.c    what these may change
 *     controller_plan.c      and what placements would give
 *     controller_speed.c     how fast is this machine, for one that plans? */
#ifndef LOCKSTEP_NODE_CONTROLLER_INTERNAL_H
#define LOCKSTEP_NODE_CONTROLLER_INTERNAL_H

#include "api/ollama_store.h"
#include "base/content.h"
#include "cluster/addresses.h"
#include "cluster/client.h"
#include "cluster/deployments.h"
#include "cluster/history.h"
#include "cluster/model_files.h"
#include "gateway/gateway.h"
#include "net/wake.h"
#include "node/controller.h"
#include "node/model_share.h"
#include "node/overview.h"
#include "node/replica.h"
#include "node/report.h"

#include <limits.h>
#include <pthread.h>

#define PEERS_MAX 512
#define OTHERS_MAX 256
#define PEER_ADDRESSES_MAX 16
#define ID_BYTES 33
#define SEEDS_BYTES 4096
#define SERVER_BYTES (ID_BYTES + 24)

/* Another node, from what it said last. */
struct other {
    char id[ID_BYTES], name[64];
    char host[NET_TEXT_BYTES]; /* where this node reaches it; "": it reached this one */
    char address[NET_TEXT_BYTES];
    char reaches_at[NET_TEXT_BYTES]; /* where it reaches this node; "": it has not yet */
    char asked_from[NET_TEXT_BYTES]; /* its address as this node saw it; "": likewise */
    char machine[2 * BEACON_ID_BYTES + 1], version[16];
    bool warned;                /* that it cannot be reached */
    double since_s, heard_s;    /* first and last heard of */
    struct addresses addresses; /* that its machine has */
    struct node_report report;
};

/* A node that another one reported: its id, and where it may be asked. */
struct told {
    char id[ID_BYTES];
    struct addresses addresses;
    double told_s;
};

/* A node that was there when this one last ran, or is now. */
struct known_node {
    char name[64];
    struct addresses addresses;
};

/* A node with which a server began or is to begin, or which is left out for a while. A node
 * that is back at another address is a different member, since its rank is looked for at the
 * old one. So is another node of that name. */
struct party_member {
    char name[64], address[NET_TEXT_BYTES];
    double wait_s, until_s; /* it is left out for wait_s, until until_s */
};
struct party {
    struct party_member *list; /* owned */
    size_t n, cap;
};

/* A node to ask. The thread's. */
struct node_peer {
    char key[NET_TEXT_BYTES + 8]; /* what it is known by: its id, or "seed " and an address */
    char addresses[PEER_ADDRESSES_MAX][NET_TEXT_BYTES];
    size_t n_addresses;
    char address[NET_TEXT_BYTES];           /* the one that is asked */
    char digest[DEPLOYMENTS_DIGEST_BYTES];  /* of the deployments that it knows */
    char members[DEPLOYMENTS_DIGEST_BYTES]; /* and of the nodes */
    char id[ID_BYTES]; /* the address that answers; "": none the last time */
    struct client *client;
    int n_tries;  /* which of its addresses comes next */
    int n_failed; /* exchanges in a row, at an address that was good before */
    bool good;    /* that address has answered */

    struct controller *controller;
    pthread_t thread; /* of the exchange under way */
    bool asked;       /* it has that thread */
    double until_s;   /* then the exchange is given up */
};

struct reading;

/* Why a model is not here. */
enum controller_lack { LACK_MISSING, LACK_DAMAGED, LACK_DISK };

#define CONTROLLER_READ_S 15.0

/* A deployment as this node sees it. The thread's, but for the list itself and what it
 * publishes. */
struct replica_run {
    struct replica_run *next;
    char name[64];
    struct deployment *wanted; /* owned copy; NULL: it is down */
    json_int_t version;        /* of `wanted` */
    bool changed;              /* the list says something else, and its model is forgotten */
    char id[DEPLOYMENTS_DIGEST_BYTES];
    bool named;                  /* this node may take part */
    bool mine, hasty;            /* and is to serve it; at once, being asked for it here */
    char target[NET_TEXT_BYTES]; /* where it listens, "host:port"; "": nowhere */
    char server[SERVER_BYTES];   /* and which server that is, whatever its address */
    double learned_s;            /* when this version came */
    uint64_t seen_term;
    struct replica replica;
    struct party party; /* the nodes that it began with, or would */
    char joiner[64];    /* one that is ready and was not; "": none, or more are to come soon */
    double joiner_s;    /* since when there is one; 0: none */
    double busy_s;      /* when a request was under way last, at any node */
    struct gateway_use use;     /* of this node's port, at the last look */
    int64_t questions, n_asked; /* of all nodes: that are under way; that there have been */
    double used_s;              /* when one was under way last, or its server began to listen */
    uint64_t used_term;         /* of that server */
    uint64_t target_term;       /* of the server at `target`, or the last one there */
    struct keep keep;           /* the latest that clients have said */
    int64_t idle_ms;            /* for how long it may go unasked */
    bool sleeping;              /* its server ends, to be asleep then */
    bool asleep;                /* this node holds it: it serves no one until somebody asks */
    bool calls;                 /* its questions here wait for its owner to hear of them */
    bool known_asleep;          /* a node does, or did when one was last heard to have it */
    int64_t slept;              /* since when, Unix time */
    uint64_t slept_term;        /* in which term it was last */
    bool joining;         /* its server ends, to start again with the nodes that have come */
    struct party joiners; /* they, from that beginning until it listens */
    struct party refused; /* those with which it did not begin */
    json_int_t running_version;
    uint64_t term;    /* 0: not running */
    int n_ranks;      /* it runs on; where it is not known yet, on which it is to run */
    pthread_t asking; /* the thread that asks its server for that */
    bool asked;
    double told_s;    /* when it was asked for what follows */
    json_t *told;     /* what that server told last (GET /v1/cluster); owned; NULL: nothing */
    char placed[600]; /* the last news of it in the history */
    char server_name[64]; /* the node that serves it, or did last; "": none has */
    char coming[64];      /* the node that begins to; "": none */
    int failures;
    double retry_s;
    char path[PATH_MAX];       /* of the model; "": not here */
    double find_s;             /* when to look for it again */
    unsigned failed_copies;    /* of it, to here */
    enum controller_lack lack; /* where path is "" */
    char lack_why[400];
    struct reading *reading;                    /* of its digest; NULL: none is under way */
    double read_s;                              /* when to try again */
    char content[2 * CONTENT_BYTES + 1];        /* its digest; "": not known */
    char served_content[2 * CONTENT_BYTES + 1]; /* of the copy that is served, or was last */
    char served_by[64];
    uint64_t memory_left;        /* of all machines that take part but the one that serves */
    struct model_share *share;   /* of it, for nodes that lack it */
    struct fetch *fetch;         /* of it from such a one; NULL: none is under way */
    double fetch_s;              /* when to try again */
    char source[NET_TEXT_BYTES]; /* the node that shares it; "": none */
    struct port *port;           /* NULL: none yet */
    json_int_t port_version, port_since; /* of what was put up when it joined the port */
    struct gateway_route *route;         /* there; NULL: it is not open */
    struct err port_err;                 /* why the port is not to be had; "": it is */
};

/* What all deployments with that port share. The thread's. */
struct port {
    struct port *next;
    int number;
    size_t n_runs;
    struct deployment *deployment; /* one of them: its certificate is theirs; owned */
    struct gateway *gateway;       /* NULL: the port is not to be had */
    double retry_s;
    struct err err;
};

struct fetch;

struct controller {
    const struct identity *id;
    struct discovery *discovery;
    char *seeds, *models, *state, *program, *list_path, *known_path;
    enum status (*check_words)(const char *const *words, size_t n, struct err *err);
    void (*tell)(void *user, json_t *facts);
    void *tell_user;
    struct ollama_store store; /* the models on its disk; its folder is `models` */
    struct history history;
    struct overview *overview;
    char self[ID_BYTES], name[64], machine[2 * BEACON_ID_BYTES + 1];
    char own_address[NET_TEXT_BYTES]; /* where this machine reaches the node */
    int api_port;
    double save_known_s;
    double awake_s; /* since when it has gone on without a pause */
    double round_s; /* when it last was at its rest */
    pthread_t thread;
    struct wake wake;

    /* The thread's. */
    struct node_peer peers[PEERS_MAX];
    size_t n_peers;
    struct discovered found[DISCOVERY_NODES_MAX];
    struct replica_run *runs;
    struct port *ports;
    struct known_node *known; /* [n_known] owned */
    size_t n_known;
    char *known_text; /* the same as it is on the disk; owned; NULL: it is not there */
    double gossip_s;
    bool leaving;  /* says goodbye */
    double left_s; /* when its thread ended; 0: it runs */

    pthread_mutex_t save_lock; /* taken before the other; guards what is on the disk, and: */
    char saved[DEPLOYMENTS_DIGEST_BYTES];
    bool said_save;

    pthread_mutex_t lock; /* guards what follows */
    bool closing;
    struct deployments list;
    char (*hasty)[REPORT_NAME_BYTES]; /* [n_hasty] owned: names that this node was asked for */
    size_t n_hasty, cap_hasty;
    struct other others[OTHERS_MAX];
    size_t n_others;
    struct told told[OTHERS_MAX];
    size_t n_told;
    bool said_full;
    struct node_report self_report; /* what this node says of itself */
    json_t *past_keys; /* {name: what its api-key-file was, or null}; owned; NULL: none yet */
    int n_later;       /* answers that take a while, under way */
    pthread_cond_t later_ended;
    json_t *doings; /* {"copies", "servers"}, for who looks; owned; NULL: nothing yet */
    struct addresses self_addresses;
};

bool controller_is_closing(struct controller *k);

/* ---- controller_owner.c ---------------------------------------------------------------------- */

/* After its own start a node listens this long to learn which nodes serve what. A node that
 * learns of a deployment gives the node that was asked this much time to begin. */
#define CONTROLLER_SETTLE_S 5.0

/* Reads what others say, and decides for each deployment. True: this node may begin to serve what
 * is its own. */
bool controller_judge_all(struct controller *k, double now);
/* After a machine stalled (it was stopped, or swapped out), its knowledge of the others is
 * older than it seems. So it asks them as after its own start. */
void controller_notice_pause(struct controller *k, double now);
/* Under the lock: when this name is next heard of, this node shall serve it at once, since the
 * user asked this node. False: it was not noted, or there is no memory. */
bool controller_note_hasty(struct controller *k, const char *name);
bool controller_forget_hasty(struct controller *k, const char *name);
/* May it take part? It may know of itself what is not known here. */
bool controller_takes_part(const struct replica_run *r, const struct other *o);
/* Could this node serve it, as far as its model and its last failure go? */
bool controller_is_able(const struct replica_run *r, double now);

/* ---- controller_copy.c ----------------------------------------------------------------------- */

/* Looks for the model, now and then. A user may delete it: then this node could not take over,
 * and must know. */
void controller_find_model(struct controller *k, struct replica_run *r, double now);
bool controller_is_still_there(const struct replica_run *r);
void controller_forget_model(struct replica_run *r);
/* Under the lock: where the model can be had; after a copy that failed, from the next one. */
void controller_find_source(const struct controller *k, struct replica_run *r);
/* A node without the model could not take over if the serving node were lost. So it gets a
 * copy, as soon as the server listens and is idle. */
void controller_fetch_model(struct controller *k, struct replica_run *r, double now);
/* Of the copy that is under way. */
struct copy_figures {
    uint64_t bytes, total; /* that are here; of the model */
    double rate;           /* bytes/s; 0: not known yet */
    const char *from;      /* borrowed */
};
void controller_look_at_copy(const struct replica_run *r, struct copy_figures *out);
/* The copy that is under way, if one is, is not wanted any more. */
void controller_stop_fetching(struct replica_run *r);
/* Waits for its end. */
void controller_end_fetching(struct replica_run *r, double now);

/* ---- controller_serve.c ---------------------------------------------------------------------- */

/* settled: as controller_judge_all() says. */
bool controller_may_begin(const struct replica_run *r, bool settled, double now);
void controller_begin_serving(struct controller *k, struct replica_run *r, double now);
/* Of one whose server runs. */
void controller_go_on_serving(struct controller *k, struct replica_run *r, double now);

/* ---- controller_layout.c --------------------------------------------------------------------- */

/* Is that node's copy known to be another model than the one here? Its rank would end the group. */
bool controller_has_other_content(const struct replica_run *r, const struct other *o);
/* Under the lock: has somebody chosen a layout, of which this node is, all the others of it are
 * there, and with which it has not failed? */
bool controller_follows_layout(const struct controller *k, const struct replica_run *r,
                               double now);
/* Under the lock: is it to have a rank? */
bool controller_computes(const struct controller *k, const struct replica_run *r,
                         const struct other *o, double now);
/* --parallel of its layout, which it has. */
void controller_layout_words(const struct deployment *d, char *out, size_t size);

/* ---- controller_sleep.c ---------------------------------------------------------------------- */

/* Under the lock: what all nodes say of the questions to it, and of whether it is asleep. */
void controller_look_at_sleep(const struct controller *k, struct replica_run *r, double now);
/* When it would be unloaded, Unix time; 0: never, or it does not serve. */
int64_t controller_unloads_at(const struct replica_run *r, double now);
/* Of one whose server runs: whether to end it. */
bool controller_is_time_to_sleep(const struct replica_run *r, double now);
/* Its server has ended for that. */
void controller_fall_asleep(struct controller *k, struct replica_run *r);
/* Of one that is asleep: this node owns it from now on. */
void controller_take_over_asleep(struct replica_run *r);
/* Of one that this node holds asleep: whether it stays so. */
void controller_stay_asleep(struct controller *k, struct replica_run *r, double now);
/* False: no memory. */
bool controller_say_sleep(const struct replica_run *r, double now, struct run_report *out);

/* ---- controller_joiners.c -------------------------------------------------------------------- */

/* Under the lock: notes which nodes could join those that serve it with this one. */
void controller_look_for_joiners(const struct controller *k, struct replica_run *r, double now);
/* Whether to begin again, with them. */
bool controller_is_time_to_join(const struct replica_run *r, double now);
/* Notes with which nodes the server is about to start. */
void controller_remember_party(struct controller *k, struct replica_run *r, double now);
/* The server did not start with the nodes that have joined. A new node must not end what was
 * served without it. */
void controller_refuse_joiners(struct replica_run *r, double now);
/* Those with which it has begun since, and stayed. */
void controller_forgive_joiners(struct replica_run *r);
bool controller_is_refused(const struct replica_run *r, const struct other *o, double now);
bool controller_refuses_any(const struct replica_run *r, double now);
void controller_forget_party(struct party *p);

/* ---- controller_disk.c ----------------------------------------------------------------------- */

/* What was kept at the last start. ST_BAD_INPUT: the list is damaged. */
enum status controller_load(struct controller *k, struct err *err);
/* The known nodes, for the next start: it then waits for them and asks them, whether or not its
 * seeds are there. Not at once: after a start they are not all back. */
void controller_save_known(struct controller *k, double now);
void controller_forget_known(struct controller *k);
/* The list to the disk, if it has changed. Not under the lock. */
void controller_save_list(struct controller *k);
/* Changes the list as a user asks, after it was written to disk. So a confirmed change survives
 * a power cut, and a change that cannot be stored is not made. hasty: a name that shall be
 * served at once, or NULL. Not under the lock. Errors of change(); ST_IO: it cannot be stored.
 */
enum status controller_change_list(struct controller *k,
                                   enum status (*change)(struct deployments *d,
                                                         const json_t *wish, struct err *err),
                                   const json_t *wish, const char *hasty, struct err *err);

/* ---- controller_ports.c ---------------------------------------------------------------------- */

/* Has the deployment answered at its port, or, where it is down, no longer. */
void controller_keep_port(struct controller *k, struct replica_run *r, double now);
/* At all ports new requests are refused, and those under way have wait_s, all together. */
void controller_drain_ports(struct controller *k, double wait_s);
/* Ends what is under way there. */
void controller_leave_port(struct controller *k, struct replica_run *r);

/* ---- controller_standby.c -------------------------------------------------------------------- */

/* Reads the digest of the copy that is here, if it is not known: begins it, or takes it. */
void controller_read_content(struct replica_run *r, double now);
/* Before path or wanted changes. */
void controller_stop_reading(struct replica_run *r);
/* That digest of the copy that a node serves; "": it is not known. */
void controller_compare_content(struct replica_run *r, const char *node, const char *content);
/* Is the copy here another one than that? */
bool controller_differs(const struct replica_run *r);
/* No copy was found; one could not be had. */
void controller_note_missing(const struct controller *k, struct replica_run *r);
void controller_note_no_copy(struct replica_run *r, enum status st, const char *sentence);
/* Whether this node could serve it if the one that does were lost, and why not. False: no
 * memory. */
bool controller_say_standby(const struct replica_run *r, double now, struct run_report *out);

/* ---- controller_asker.c ---------------------------------------------------------------------- */

/* Under the lock, of one that is taken down: who has its keys still sees what happened to it. */
void controller_remember_keys(struct controller *k, const struct deployment *one);

/* ---- controller_models.c --------------------------------------------------------------------- */

void controller_init_models(struct controller *k);
/* As gateway_config has them. */
void controller_answer_models(void *k, const struct gateway_client *c);
bool controller_real_name(void *k, const char *name, char out[GATEWAY_NAME_BYTES]);
json_t *controller_names_of(void *k, const char *deployment);
bool controller_why_unknown(void *k, const struct http_request *r, const char *name, char *out,
                            size_t size);

/* ---- controller_cluster.c -------------------------------------------------------------------- */

/* What is asked of the cluster at a deployment's port, as gateway_config's cluster. Port 0: at the
 * page of this machine (local_page.h). */
void controller_answer_cluster(void *k, struct http_request *r, int port);
/* gateway_config's may_ask and wake. */
bool controller_may_ask(void *k, const struct http_request *r, const char *deployment);
void controller_wake(void *k);

/* ---- controller_requests.c ------------------------------------------------------------------- */

/* The JSON of a request; NULL: it is none, or has too many values. */
json_t *controller_wish(const struct http_request *r);
/* *out: a new reference. On a thread of the request's own; it may take seconds. */
typedef enum status controller_answerer(struct controller *k, const json_t *wish, json_t **out,
                                        struct err *err);
/* Replies to a POST with that answer. */
void controller_answer(struct controller *k, struct http_request *r, controller_answerer *find);
/* Runs it on a thread of its own, or replies that there is too much to do. */
void controller_run_later(struct controller *k, struct http_request *r,
                          void (*run)(struct controller *k, struct http_request *r));
/* None is under way any more. */
void controller_wait_for_later(struct controller *k);

/* ---- controller_speed.c ---------------------------------------------------------------------- */

/* Of {"type", "bytes", "peers": addresses}: {"rate", "ops", "threads", "memory", "peers": {address:
 * seconds}}. Takes half a second. ST_BAD_INPUT, ST_NO_MEMORY. */
controller_answerer controller_speed;

/* ---- controller_gossip.c --------------------------------------------------------------------- */

/* Asks every other known node, and reads the answers. The thread's. */
void controller_gossip(struct controller *k);
/* That this node does nothing any more. When the thread has ended. */
void controller_say_goodbye(struct controller *k);

/* Under the lock: what a node reports of itself and knows. address: where this node reached it,
 * or NULL. from: the host from which it asks, or NULL. ST_BAD_INPUT, ST_NO_MEMORY. */
enum status controller_hear(struct controller *k, const json_t *said, const char *address,
                            const char *from, struct err *err);
/* Under the lock: this node's message to one whose deployments and nodes have these digests.
 * address: where it asks that one, or NULL. NULL: no memory. */
json_t *controller_say(struct controller *k, const char *its_digest, const char *its_members,
                       const char *address);
/* Under the lock: whether one of the words of --nodes, separated by commas, means that node or
 * this one: its name, or an address of it. */
bool controller_means(const char *words, const struct other *o);
bool controller_means_self(const struct controller *k, const char *words);
/* Under the lock: its addresses, the one that is good first; addresses_deinit() them. */
struct addresses controller_addresses(const struct other *o);
/* Under the lock: forgets nodes that have been silent for too long; number i. */
void controller_expire(struct controller *k, double now);
void controller_drop(struct controller *k, size_t i);

#endif
