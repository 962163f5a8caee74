/* discovery_node NAME SECRET INTERVAL_MS SECONDS: a node that others can find and nothing more
 * (test_discovery_hosts.sh). Whenever what it knows changes, it says all of it in one line:
 *
 *   sees: ben 10.7.0.2:7343 on eth0, [fe80::1%eth0]:7343 on eth0; strangers: 10.7.0.9
 *
 * SIGTERM ends it politely. */
#include "base/util.h"
#include "cluster/discovery.h"

#include <signal.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t ended;

static void end(int signal) {
    (void)signal;
    ended = 1;
}

__attribute__((format(printf, 2, 3))) static void add(char text[8192], const char *fmt, ...) {
    size_t at = strlen(text);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text + at, 8192 - at, fmt, ap);
    va_end(ap);
}

static void describe(char text[8192], struct discovery *d) {
    static struct discovered nodes[DISCOVERY_NODES_MAX];
    char strangers[DISCOVERY_STRANGERS_MAX][NET_TEXT_BYTES], address[NET_TEXT_BYTES];
    size_t n = discovery_nodes(d, nodes, ARRAY_LEN(nodes));
    strcpy(text, n == 0 ? "sees: nobody;" : "sees:");
    for (size_t i = 0; i < n; i++) {
        add(text, " %s", nodes[i].beacon.name);
        for (int k = 0; k < nodes[i].n_addresses; k++) {
            net_text(&nodes[i].addresses[k], address);
            add(text, "%s %s on %s", k == 0 ? "" : ",", address, nodes[i].interfaces[k]);
        }
        add(text, ";");
    }
    n = discovery_strangers(d, strangers, ARRAY_LEN(strangers));
    for (size_t i = 0; i < n; i++)
        add(text, "%s %s", i == 0 ? " strangers:" : ",", strangers[i]);
}

int main(int argc, char **argv) {
    static char now[8192], before[8192];
    struct beacon self = {.port = 7343, .version = "0.1.0"};
    struct discovery_config cfg = {.self = &self};
    struct discovery *d;
    struct err err;
    if (argc != 5 || sodium_init() < 0)
        return 1;
    signal(SIGTERM, end);
    alarm((unsigned)atoi(argv[4]));
    snprintf(self.name, sizeof self.name, "%s", argv[1]);
    randombytes_buf(self.node, sizeof self.node);
    crypto_generichash(cfg.key, sizeof cfg.key, (const uint8_t *)argv[2], strlen(argv[2]), NULL,
                       0);
    cfg.interval_ms = atoi(argv[3]);
    if (discovery_open(&d, &cfg, &err) != ST_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    while (!ended) {
        describe(now, d);
        if (!str_eq(now, before)) {
            puts(now);
            fflush(stdout);
            strcpy(before, now);
        }
        usleep(10000);
    }
    discovery_close(d);
    return 0;
}
