/* controller_ports.c: the ports of the deployments on this node: one gateway for all that share
 * a port. */
#include "node/controller_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/util.h"

#define PORT_S 10.0 /* between looks for a port that was taken */

static struct port *port_place(struct controller *k, int number) {
    struct port **at = &k->ports;
    while (*at != NULL && (*at)->number != number)
        at = &(*at)->next;
    if (*at == NULL && (*at = mem_calloc(1, sizeof **at)) != NULL)
        (*at)->number = number;
    return *at;
}

static void port_close(struct controller *k, struct port *p) {
    struct port **at = &k->ports;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    gateway_close(p->gateway);
    deployment_free(p->deployment);
    mem_free(p);
}

static void port_open(struct controller *k, struct port *p, const char *name, double now) {
    struct err err;
    const struct gateway_config cfg = {.port = p->number,
                                       .tls_cert_pem =
                                           deployment_file(p->deployment, "tls-cert"),
                                       .tls_key_pem = deployment_file(p->deployment, "tls-key"),
                                       .cluster = controller_answer_cluster,
                                       .may_ask = controller_may_ask,
                                       .wake = controller_wake,
                                       .models = controller_answer_models,
                                       .real_name = controller_real_name,
                                       .names_of = controller_names_of,
                                       .why_unknown = controller_why_unknown,
                                       .user = k};
    if (p->gateway != NULL || now < p->retry_s)
        return;
    p->retry_s = now + PORT_S;
    bool good = gateway_open(&p->gateway, &cfg, &err) == ST_OK;
    if (!good && p->err.text[0] == '\0')
        log_warn("%s: its port cannot be opened on this machine: %s", name, err.text);
    p->err = good ? (struct err){.text = ""} : err;
}

static void join_port(struct controller *k, struct replica_run *r) {
    struct port *p = port_place(k, r->wanted->port);
    if (p == NULL)
        return;
    if (p->n_runs > 0 && !deployments_may_share_port(p->deployment, r->wanted)) {
        bool said = r->port_err.text[0] != '\0';
        err_set(&r->port_err, ST_IO, "its port %d shows another certificate, for %s", p->number,
                p->deployment->name);
        if (!said)
            log_warn("%s: %s", r->name, r->port_err.text);
        return;
    }
    if (p->n_runs == 0 && (p->deployment = deployment_copy(r->wanted)) == NULL) {
        port_close(k, p); /* no memory: in the next round */
        return;
    }
    p->n_runs++;
    r->port = p;
    r->port_version = r->version;
    r->port_since = r->wanted->since;
}

void controller_drain_ports(struct controller *k, double wait_s) {
    double until_s = clock_s() + wait_s;
    for (struct port *p = k->ports; p != NULL; p = p->next)
        if (p->gateway != NULL)
            gateway_drain(p->gateway, (int)(1e3 * MAX(until_s - clock_s(), 0)));
}

void controller_leave_port(struct controller *k, struct replica_run *r) {
    gateway_remove(r->route);
    r->route = NULL;
    if (r->port != NULL && --r->port->n_runs == 0)
        port_close(k, r->port);
    r->port = NULL;
}

/* One that was moved is at the same port as before: what is asked there goes on. */
static bool stays_at_port(const struct replica_run *r) {
    return r->wanted->moved && r->port != NULL && r->wanted->since == r->port_since &&
           r->wanted->port == r->port->number &&
           deployments_may_share_port(r->port->deployment, r->wanted);
}

static void add_route(struct replica_run *r) {
    const char *keys = deployment_file(r->wanted, "api-key-file");
    char *first = keys != NULL ? mem_strndup(keys, strcspn(keys, "\n")) : NULL;
    r->route = gateway_add(r->port->gateway, r->name, r->wanted->model.name, r->wanted->since);
    r->use = (struct gateway_use){0};
    if (r->route != NULL)
        gateway_keep(r->route, first);
    mem_free(first);
}

void controller_keep_port(struct controller *k, struct replica_run *r, double now) {
    if (r->wanted != NULL && r->port_version != r->version && stays_at_port(r)) {
        r->port_version = r->version;
        if (r->route != NULL)
            gateway_moves(r->route);
    }
    if (r->wanted == NULL || r->port_version != r->version)
        controller_leave_port(k, r);
    if (r->wanted == NULL) {
        r->port_err.text[0] = '\0';
        return;
    }
    if (r->port == NULL)
        join_port(k, r);
    if (r->port == NULL)
        return;
    port_open(k, r->port, r->name, now);
    r->port_err = r->port->err;
    if (r->route == NULL && r->port->gateway != NULL)
        add_route(r);
    if (r->route != NULL) {
        gateway_sleep(r->route, r->known_asleep ? r->slept : 0);
        gateway_expire(r->route, controller_unloads_at(r, now));
    }
    if (r->route != NULL)
        gateway_name(r->route, r->server_name, r->coming);
    if (r->route != NULL)
        gateway_to(r->route, *r->target != '\0' ? r->target : NULL, r->server);
}
