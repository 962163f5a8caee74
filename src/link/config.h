/* config.h: the settings with which a group of ranks opens: who they are, where they meet, and
 * which links they may use. */
#ifndef LOCKSTEP_LINK_CONFIG_H
#define LOCKSTEP_LINK_CONFIG_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FABRIC_MAX_RANKS 64
#define FABRIC_TOKEN_BYTES 32

enum fabric_link {
    FABRIC_LINK_AUTO,
    FABRIC_LINK_SHM,
    FABRIC_LINK_TCP,
    FABRIC_LINK_VERBS,
    FABRIC_LINK_UCX
};

struct fabric_config {
    int rank, n_ranks;
    /* Where rank 0 listens and the others connect: "host:port". Rank 0 may instead bring a
     * listening socket that already exists (listen_fd >= 0, taken over), so that port 0 works. */
    const char *rendezvous;
    int listen_fd;                     /* -1: none */
    uint8_t token[FABRIC_TOKEN_BYTES]; /* shared secret of this group */
    enum fabric_link link;             /* auto: shm on the same host, else verbs, else tcp */
    /* longest that fabric_open waits for a rank that has not come, default 30000 */
    int bootstrap_ms;
    /* no heartbeat, or a message missing, for this long: lost; default 3000 */
    int silence_ms;
    /* longest that a living rank may keep the others waiting in a call; default 600000 */
    int compute_ms;
    int spin_us; /* a wait spins for this long, default 50 */
    /* inside a call it then polls for this long and offers its core to others, before it
     * sleeps; default 2000 */
    int yield_us;
    /* [n_ranks] or NULL. Bit q of wires[r] means that ranks r and q have a direct wire (a
     * cable). It is symmetric and the same on all ranks. Collectives use only wires; neighbours
     * forward the data of other ranks. send and recv between ranks without a wire use the
     * bootstrap's network. NULL: the wires that are found, if RDMA devices are tried and
     * connect every rank; otherwise all pairs. */
    const uint64_t *wires;
    /* NULL, or how every link is made worse (on one host): "latency=300us,bandwidth=10Gbit", also
     * jitter=20us, loss=1%, reorder=1%, corrupt=1%, stall=N and dead=N (after N messages),
     * lose=N and flip=N (the Nth message). */
    const char *emulate;
    /* [n_ranks] or NULL: the RDMA device towards each rank ("rdma_en5"); NULL: the first that is
     * found to reach it, which takes about a sixth of silence_ms for a rank that none reaches. */
    const char *const *rdma_devices;
    bool rdma_reliable; /* RC queue pairs instead of UC; the same on all ranks */
    /* NULL, or called now and then while rank 0 waits for the others. True ends the wait with
     * ST_PEER_LOST (a rank that was started has already ended). */
    bool (*hopeless)(void *user);
    void *hopeless_user;
    /* NULL, or gets bit r for each rank above this one that had not come when bootstrap_ms were
     * over; untouched otherwise */
    uint64_t *missing;
    /* largest expected sum/broadcast/gather part/send, in bytes as the caller gives them: a
     * hint for measuring and sizing when the group opens. Larger ones work; no call below
     * allocates */
    size_t max_message_bytes;
};

#endif
