/* bootstrap.c: connects the ranks of a group. Rank r connects to 0, learns the others'
 * addresses, connects to 1..r-1, and accepts r+1..n-1. Rank 0 only accepts, so by induction
 * every rank is served. While a rank waits, it watches its connections: if one rank dies, all
 * fail at once. */
#include "fabric/bootstrap.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "fabric/handshake.h"
#include "net/host_id.h"
#include "net/net.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <unistd.h>

#define MAX_VISITORS 32
#define RETRY_MS 20 /* between attempts while rank 0 is not there yet */

/* What the functions below share while the mesh is built. */
struct building {
    struct mesh *mesh;
    const struct fabric_config *cfg;
    uint64_t deadline_ns;
    int listen_fd;
    struct wire_rank *self;
    bool all_came; /* rank 0 has sent all addresses */
    struct visitor visitors[MAX_VISITORS];
};

static void close_fd(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void mesh_close(struct mesh *m) {
    for (int r = 0; r < FABRIC_MAX_RANKS; r++) {
        close_fd(&m->side[r]);
        close_fd(&m->data[r]);
    }
}

/* ---- addresses ----------------------------------------------------------------------------- */

static void address_to_wire(const struct net_address *a, struct wire_rank *who) {
    if (a->sa.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&a->sa;
        memset(who->address, 0, sizeof who->address);
        who->address[10] = who->address[11] = 0xff;
        memcpy(who->address + 12, &in->sin_addr, 4);
        who->port = ntohs(in->sin_port);
    } else {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&a->sa;
        memcpy(who->address, &in6->sin6_addr, 16);
        who->port = ntohs(in6->sin6_port);
        who->scope_id = in6->sin6_scope_id;
    }
}

static void address_from_wire(struct net_address *a, const struct wire_rank *who) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    memset(a, 0, sizeof *a);
    if (memcmp(who->address, mapped, sizeof mapped) == 0) {
        struct sockaddr_in *in = (struct sockaddr_in *)&a->sa;
        in->sin_family = AF_INET;
        in->sin_port = htons((uint16_t)who->port);
        memcpy(&in->sin_addr, who->address + 12, 4);
        a->len = sizeof *in;
    } else {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&a->sa;
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons((uint16_t)who->port);
        memcpy(&in6->sin6_addr, who->address, 16);
        in6->sin6_scope_id = who->scope_id;
        a->len = sizeof *in6;
    }
}

/* ---- accepting ----------------------------------------------------------------------------- */

static int *socket_of(struct building *b, uint32_t rank, uint32_t channel) {
    return channel == WIRE_SIDE ? &b->mesh->side[rank] : &b->mesh->data[rank];
}

static uint32_t wires_hash(const struct fabric_config *cfg) {
    uint8_t full[crypto_generichash_BYTES] = {0};
    uint32_t h;
    if (cfg->wires != NULL)
        crypto_generichash(full, sizeof full, (const uint8_t *)cfg->wires,
                           (size_t)cfg->n_ranks * sizeof *cfg->wires, NULL, 0);
    memcpy(&h, full, sizeof h);
    return h;
}

/* May this proved visitor be part of the group? */
static enum status judge(struct building *b, const struct wire_join *join, struct err *err) {
    if (join->n_ranks != (uint32_t)b->cfg->n_ranks)
        return err_set(err, ST_REFUSED, "it counts %u ranks in the group, this one has %d",
                       join->n_ranks, b->cfg->n_ranks);
    if (join->who.rank <= (uint32_t)b->cfg->rank || join->who.rank >= join->n_ranks ||
        join->channel >= WIRE_N_CHANNELS)
        return err_set(err, ST_REFUSED, "rank %u of %u has no business at rank %d",
                       join->who.rank, join->n_ranks, b->cfg->rank);
    if (join->wires != wires_hash(b->cfg))
        return err_set(err, ST_REFUSED, "rank %u is configured with other wires than rank %d",
                       join->who.rank, b->cfg->rank);
    if (*socket_of(b, join->who.rank, join->channel) >= 0)
        return err_set(err, ST_REFUSED, "rank %u is there already (pid %u)", join->who.rank,
                       b->mesh->who[join->who.rank].pid);
    return ST_OK;
}

static void admit(struct building *b, struct visitor *v) {
    visitor_answer(v, ST_OK, "");
    *socket_of(b, v->join.who.rank, v->join.channel) = v->fd;
    b->mesh->who[v->join.who.rank] = v->join.who;
    v->fd = -1;
}

static void turn_away(struct visitor *v, const struct err *why) {
    char from[NET_TEXT_BYTES];
    net_text(&v->from, from);
    log_warn("refused a connection from %s: %s", from, why->text);
    if (visitor_listens(v))
        visitor_answer(v, ST_REFUSED, why->text);
    close_fd(&v->fd);
}

static void visitor_readable(struct building *b, struct visitor *v) {
    struct err why;
    enum status st = visitor_step(v, b->cfg->token, &why);
    if (st == ST_OK)
        st = judge(b, &v->join, &why);
    if (st == ST_OK)
        admit(b, v);
    else if (st != ST_AGAIN)
        turn_away(v, &why);
}

/* A slot for one more connection: a free one, or that of a visitor whose time is over; NULL:
 * none. A slow member (packet loss, a busy machine) keeps its slot as long as no other needs
 * it. */
static struct visitor *find_place(struct building *b) {
    struct visitor *late = NULL;
    for (int i = 0; i < MAX_VISITORS; i++) {
        if (b->visitors[i].fd < 0)
            return &b->visitors[i];
        if (late == NULL && net_ms_left(b->visitors[i].deadline_ns) == 0)
            late = &b->visitors[i];
    }
    return late;
}

static enum status accept_visitors(struct building *b, struct err *err) {
    static const struct err late = {.text = "it did not prove itself in time"};
    struct visitor *v;
    while ((v = find_place(b)) != NULL) {
        struct net_address from;
        int fd = net_accept(b->listen_fd, &from);
        if (fd < 0 &&
            (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
            return err_set(err, ST_IO, "cannot take the connections of other ranks: %s",
                           strerror(errno));
        if (fd < 0)
            return ST_OK; /* no more of them, or one that has gone again */
        if (v->fd >= 0)
            turn_away(v, &late);
        visitor_init(v, fd, &from);
    }
    return ST_OK;
}

static enum status rank_lost(const struct building *b, int rank, struct err *err) {
    return err_set(
        err, ST_PEER_LOST,
        "rank %d (pid %u) is gone while the group was forming: it closed its connection", rank,
        b->mesh->who[rank].pid);
}

/* One round of poll over listener, visitors and the ranks that are here already. */
static enum status accept_round(struct building *b, struct err *err) {
    struct pollfd p[1 + MAX_VISITORS + FABRIC_MAX_RANKS];
    nfds_t n = 0;
    p[n++] = (struct pollfd){.fd = find_place(b) != NULL ? b->listen_fd : -1, .events = POLLIN};
    for (int i = 0; i < MAX_VISITORS; i++)
        p[n++] = (struct pollfd){.fd = b->visitors[i].fd, .events = POLLIN};
    for (int r = 0; r < b->cfg->n_ranks; r++)
        p[n++] = (struct pollfd){.fd = b->mesh->side[r], .events = NET_POLL_GONE};
    if (poll(p, n, MIN(net_ms_left(b->deadline_ns), 100)) < 0 && errno == EINVAL)
        return err_set(err, ST_IO, "too few open files are allowed here (ulimit -n 256)");
    for (int r = 0; r < b->cfg->n_ranks; r++)
        if (p[1 + MAX_VISITORS + r].revents != 0)
            return rank_lost(b, r, err);
    for (int i = 0; i < MAX_VISITORS; i++)
        if (p[1 + i].revents != 0)
            visitor_readable(b, &b->visitors[i]);
    if (p[0].revents != 0)
        TRY(accept_visitors(b, err));
    return ST_OK;
}

static bool complete(const struct building *b) {
    for (int r = b->cfg->rank + 1; r < b->cfg->n_ranks; r++)
        if (b->mesh->side[r] < 0 || b->mesh->data[r] < 0)
            return false;
    return true;
}

static enum status name_missing(const struct building *b, struct err *err) {
    char list[128] = "";
    uint64_t missing = 0;
    for (int r = b->cfg->rank + 1; r < b->cfg->n_ranks; r++) {
        size_t n = strlen(list);
        if (b->mesh->side[r] >= 0 && b->mesh->data[r] >= 0)
            continue;
        missing |= (uint64_t)1 << r;
        if (n + 8 < sizeof list)
            snprintf(list + n, sizeof list - n, "%s%d", n ? ", " : "", r);
    }
    if (b->all_came)
        return err_set(err, ST_PEER_LOST,
                       "rank %s of %d went silent while the group was forming", list,
                       b->cfg->n_ranks);
    if (b->cfg->missing != NULL)
        *b->cfg->missing = missing;
    return err_set(err, ST_TIMEOUT, "rank %s of %d did not come within %d ms", list,
                   b->cfg->n_ranks, b->cfg->bootstrap_ms);
}

/* Everybody has come: from here on a rank that does not answer is stopped or cut off. */
static void everybody_is_here(struct building *b) {
    b->deadline_ns = clock_ns() + forming_limit_ns(b->cfg);
    b->all_came = true;
}

static enum status accept_higher(struct building *b, struct err *err) {
    while (!complete(b)) {
        TRY(accept_round(b, err));
        if (b->cfg->hopeless != NULL && b->cfg->hopeless(b->cfg->hopeless_user))
            return err_set(err, ST_PEER_LOST, "a rank ended before it had come");
        if (!complete(b) && net_ms_left(b->deadline_ns) == 0)
            return name_missing(b, err);
    }
    return ST_OK;
}

/* ---- connecting ---------------------------------------------------------------------------- */

static enum status connect_patiently(int *fd, const struct net_address *to,
                                     uint64_t deadline_ns, struct err *err) {
    for (;;) {
        enum status st = net_connect(fd, to, deadline_ns, err);
        if (st != ST_AGAIN)
            return st;
        if (net_ms_left(deadline_ns) == 0)
            return ST_TIMEOUT; /* the sentence says "connection refused" */
        poll(NULL, 0, RETRY_MS);
    }
}

static enum status introduce(struct building *b, int fd, enum wire_channel channel,
                             const struct net_address *to, struct err *err) {
    struct wire_join join = {.who = *b->self,
                             .n_ranks = (uint32_t)b->cfg->n_ranks,
                             .channel = channel,
                             .wires = wires_hash(b->cfg)};
    return handshake_connect(fd, b->cfg->token, &join, to, b->deadline_ns, err);
}

static enum status connect_channel(struct building *b, const struct net_address *to, int rank,
                                   enum wire_channel channel, struct err *err) {
    int fd = -1;
    TRY(connect_patiently(&fd, to, b->deadline_ns, err));
    *socket_of(b, (uint32_t)rank, channel) = fd;
    return introduce(b, fd, channel, to, err);
}

/* The listener of a rank > 0 is on the interface by which it reaches rank 0. */
static enum status listen_beside(struct building *b, int fd, struct err *err) {
    struct net_address here;
    TRY(net_local(fd, &here, err));
    if (here.sa.ss_family == AF_INET)
        ((struct sockaddr_in *)&here.sa)->sin_port = 0;
    else
        ((struct sockaddr_in6 *)&here.sa)->sin6_port = 0;
    TRY(net_listen(&b->listen_fd, &here, err));
    TRY(net_local(b->listen_fd, &here, err));
    address_to_wire(&here, b->self);
    return ST_OK;
}

/* The listener must exist before the handshake tells of it, so the first connection is
 * made by hand. */
static enum status connect_to_first(struct building *b, struct err *err) {
    struct net_address to;
    TRY(net_resolve(&to, b->cfg->rendezvous, false, err));
    enum status st = connect_patiently(&b->mesh->side[0], &to, b->deadline_ns, err);
    if (st == ST_OK)
        st = listen_beside(b, b->mesh->side[0], err);
    if (st == ST_OK)
        st = introduce(b, b->mesh->side[0], WIRE_SIDE, &to, err);
    if (st == ST_OK)
        st = connect_channel(b, &to, 0, WIRE_DATA, err);
    return st == ST_OK ? st : err_prefix(err, st, "rank 0 at the rendezvous: ");
}

static enum status connect_to_lower(struct building *b, struct err *err) {
    for (int r = 1; r < b->cfg->rank; r++) {
        struct net_address to;
        address_from_wire(&to, &b->mesh->who[r]);
        enum status st = connect_channel(b, &to, r, WIRE_SIDE, err);
        if (st == ST_OK)
            st = connect_channel(b, &to, r, WIRE_DATA, err);
        if (st != ST_OK)
            return forming_failed(st, r, (int)b->mesh->who[r].pid, err);
    }
    return ST_OK;
}

/* ---- rank 0 sends all addresses ---------------------------------------------------------- */

static void send_table(struct building *b, enum status st, const struct err *why) {
    struct wire_answer answer = {.status = st};
    snprintf(answer.text, sizeof answer.text, "%.250s", st == ST_OK ? "" : why->text);
    for (int r = 1; r < b->cfg->n_ranks; r++) {
        int fd = b->mesh->side[r];
        if (fd < 0)
            continue;
        /* Fits the socket's buffer; a rank that is gone is noticed when its link is opened. */
        net_write(fd, &answer, sizeof answer, b->deadline_ns, NULL);
        if (st == ST_OK)
            net_write(fd, b->mesh->who, (size_t)b->cfg->n_ranks * sizeof b->mesh->who[0],
                      b->deadline_ns, NULL);
    }
}

/* Rank 0 was already waiting for the others when it answered this rank. So its report of the
 * missing ranks comes by then, even if this rank came first. A rank that gave up earlier would
 * be taken for the missing one. */
static uint64_t group_failure_until(const struct building *b) {
    return clock_ns() + (uint64_t)b->cfg->bootstrap_ms * 1000000u + forming_limit_ns(b->cfg);
}

static enum status receive_table(struct building *b, struct err *err) {
    struct wire_answer answer;
    struct wire_rank who[FABRIC_MAX_RANKS];
    size_t n_bytes = (size_t)b->cfg->n_ranks * sizeof who[0];
    uint64_t until = group_failure_until(b);
    enum status st = net_read(b->mesh->side[0], &answer, sizeof answer, until, err);
    if (st == ST_OK && answer.status != ST_OK) {
        answer.text[sizeof answer.text - 1] = '\0';
        return err_set(err, ST_PEER_LOST, "rank 0: %s", answer.text);
    }
    if (st == ST_OK)
        st = net_read(b->mesh->side[0], who, n_bytes, until, err);
    if (st == ST_TIMEOUT)
        return err_set(err, ST_PEER_LOST, "rank 0 went silent while the group was forming");
    if (st != ST_OK)
        return err_prefix(err, st, "rank 0 while the group was forming: ");
    for (int r = 0; r < b->cfg->n_ranks; r++)
        if (who[r].rank != (uint32_t)r || who[r].port > 65535)
            return err_set(err, ST_BAD_INPUT, "rank 0 sent a table with rank %u at place %d",
                           who[r].rank, r);
    memcpy(b->mesh->who, who, n_bytes);
    return ST_OK;
}

/* ---- the two roles -------------------------------------------------------------------------- */

static enum status form_as_first(struct building *b, struct err *err) {
    if (b->listen_fd < 0) {
        struct net_address at;
        TRY(net_resolve(&at, b->cfg->rendezvous, true, err));
        TRY(net_listen(&b->listen_fd, &at, err));
    } else {
        net_setup(b->listen_fd);
    }
    enum status st = accept_higher(b, err);
    send_table(b, st, err);
    return st;
}

static enum status form_as_other(struct building *b, struct err *err) {
    TRY(connect_to_first(b, err));
    TRY(receive_table(b, err));
    everybody_is_here(b);
    TRY(connect_to_lower(b, err));
    return accept_higher(b, err);
}

uint64_t forming_limit_ns(const struct fabric_config *cfg) {
    return (uint64_t)MAX(cfg->silence_ms, FORMING_MS_MIN) * 1000000u;
}

enum status forming_failed(enum status st, int rank, int pid, struct err *err) {
    if (st == ST_TIMEOUT)
        return err_set(err, ST_PEER_LOST,
                       "rank %d (pid %d) went silent while the group was forming", rank, pid);
    return err_prefix(err, st, "rank %d (pid %d): ", rank, pid);
}

enum status mesh_open(struct mesh *m, const struct fabric_config *cfg, uint64_t deadline_ns,
                      struct err *err) {
    memset(m, 0, sizeof *m);
    struct building b = {.mesh = m,
                         .cfg = cfg,
                         .deadline_ns = deadline_ns,
                         .listen_fd = cfg->listen_fd,
                         .self = &m->who[cfg->rank]};
    for (int r = 0; r < FABRIC_MAX_RANKS; r++)
        m->side[r] = m->data[r] = -1;
    for (int i = 0; i < MAX_VISITORS; i++)
        b.visitors[i].fd = -1;
    b.self->rank = (uint32_t)cfg->rank;
    b.self->pid = (uint32_t)getpid();
    host_id(b.self->host_id);
    enum status st = cfg->rank == 0 ? form_as_first(&b, err) : form_as_other(&b, err);
    for (int i = 0; i < MAX_VISITORS; i++)
        close_fd(&b.visitors[i].fd);
    close_fd(&b.listen_fd);
    if (st != ST_OK)
        mesh_close(m);
    return st;
}
