/* What a stranger or a broken peer may send: the handshake's acceptor, the stream of the tcp
 * link, packed sums; and what people write: an emulated link, a list of hosts, a matrix of RDMA
 * devices. The first byte chooses. */
#include "base/clock.h"
#include "base/util.h"
#include "fabric/handshake.h"
#include "fabric/launch_env.h"
#include "fabric/sum_codec.h"
#include "link/links.h"

#include <sodium.h>
#include <stdlib.h>
#include <unistd.h>

static void fuzz_handshake(const uint8_t *data, size_t n) {
    static const uint8_t token[HANDSHAKE_TOKEN_BYTES] = {1};
    int fds[2];
    struct visitor v;
    struct err err;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0)
        return;
    net_setup(fds[0]);
    net_setup(fds[1]);
    visitor_init(&v, fds[0], &(struct net_address){0});
    ssize_t put = write(fds[1], data, MIN(n, (size_t)4096));
    for (int i = 0; put > 0 && i < 4; i++) {
        enum status st = visitor_step(&v, token, &err);
        if (st == ST_OK)
            abort(); /* nobody guesses a keyed hash */
        if (st != ST_AGAIN)
            break;
    }
    close(fds[0]);
    close(fds[1]);
}

static void fuzz_tcp(const uint8_t *data, size_t n) {
    int fds[2];
    struct link *l = NULL;
    uint8_t blob[LINK_BLOB_BYTES];
    struct err err;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0)
        return;
    net_setup(fds[0]);
    net_setup(fds[1]);
    struct link_env env = {.data_fd = fds[0]};
    if (link_tcp.offer(&l, &env, blob, &err) == ST_OK) {
        const struct wire_msg *m;
        ssize_t put = write(fds[1], data, MIN(n, (size_t)65536));
        while (put > 0 && link_tcp.recv(l, &m, &err) == ST_OK) {
            struct check c = {0};
            check_bytes(&c, m + 1, m->n_bytes);
            link_tcp.done(l);
        }
        link_close(l);
    }
    close(fds[1]);
}

static void fuzz_pack(const uint8_t *data, size_t n) {
    static int64_t x[PACK_CHUNK];
    if (n < 3)
        return;
    size_t n_elements = (size_t)(data[0] | data[1] << 8) % PACK_CHUNK + 1, n_bytes = n - 3;
    uint32_t check;
    void *payload = malloc(n_bytes + 1); /* its own block: one byte too far is seen */
    memcpy(payload, data + 3, n_bytes);
    (data[2] & 2 ? unpack_add : unpack_copy)(x, n_elements, payload, n_bytes, data[2] & 1,
                                             &check);
    free(payload);
}

static void fuzz_emulation(const uint8_t *data, size_t n) {
    char text[256];
    struct err err;
    n = MIN(n, sizeof text - 1);
    memcpy(text, data, n);
    text[n] = '\0';
    link_emulate_check(text, &err);
}

static void fuzz_launch(const uint8_t *data, size_t n) {
    static char names[FABRIC_MAX_RANKS][LAUNCH_NAME_BYTES];
    static struct launch_hosts hosts;
    struct launch_place place;
    struct err err;
    char *text = malloc(n + 1);
    memcpy(text, data, n);
    text[n] = '\0';
    if (launch_hosts(&hosts, text, &err) == ST_OK && (hosts.n < 1 || hosts.names[0][0] == '-'))
        abort(); /* it would be an option of ssh */
    launch_from_hosts(&place, text, (int)(n % 3), 7000, &err);
    launch_rdma_matrix(names, text, (int)(n % 2), 2, &err);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static void (*const targets[])(const uint8_t *, size_t) = {
        fuzz_handshake, fuzz_tcp, fuzz_pack, fuzz_emulation, fuzz_launch};
    if (n == 0 || sodium_init() < 0)
        return 0;
    targets[data[0] % ARRAY_LEN(targets)](data + 1, n - 1);
    return 0;
}
